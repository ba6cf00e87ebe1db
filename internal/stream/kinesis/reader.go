package kinesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

// The service allows five reads a second and shard; a burst of five may come at once.
const (
	readsPerSecond = 5
	defaultPoll    = 500 * time.Millisecond
	minReadBackoff = 250 * time.Millisecond
	maxReadBackoff = 10 * time.Second
)

// Reader reads one shard by GetRecords.
type Reader struct {
	s       *Stream
	client  *kinesis.Client
	shard   string
	poll    time.Duration
	reads   [readsPerSecond]time.Time // when the last reads were, a ring
	readAt  int
	waitTip bool // the last read found the tip

	iterator *string
	begin    stream.Position
	last     string    // the last stream record that was read; empty: none yet
	polled   time.Time // by the service's clock: when the shard was last seen, for positions without a record
	found    *stream.Page
	page     stream.Page
	subs     []subRecord
	closed   bool
}

// Open begins to read a shard at a position. A position after or at a sequence number is checked: its record must
// still be there, or what came after it may be gone, too.
func (s *Stream) Open(ctx context.Context, shard string, at stream.Position) (stream.Reader, error) {
	r := &Reader{s: s, client: once(s.client), shard: shard, poll: s.opt.PollInterval, begin: at}
	if r.poll <= 0 {
		r.poll = defaultPoll
	}
	if err := r.seek(ctx, at); err != nil {
		return nil, err
	}
	return r, nil
}

// Close forgets the iterator; the service keeps nothing of it.
func (r *Reader) Close() error {
	r.iterator, r.closed = nil, true
	return nil
}

// Next gives the next records, or says that the tip was seen or the shard's end reached.
func (r *Reader) Next(ctx context.Context) (*stream.Page, error) {
	if p := r.found; p != nil {
		r.found = nil
		return p, nil
	}
	if r.closed {
		return nil, fault.New(fault.Failed, "", "read shard %s of %s: it was read to its end", r.shard, r.s.opt.URL())
	}
	if r.waitTip {
		r.waitTip = false
		if err := sleep(ctx, r.poll); err != nil {
			return nil, err
		}
	}
	for {
		p, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		if r.found != nil { // what a renewed iterator began with
			p, r.found = r.found, nil
			return p, nil
		}
		if p != nil && (len(p.Records) > 0 || p.AtTip || p.Closed) {
			r.waitTip = p.AtTip
			return p, nil
		}
	}
}

// seek gets an iterator for a position.
func (r *Reader) seek(ctx context.Context, at stream.Position) error {
	in := &kinesis.GetShardIteratorInput{ShardId: aws.String(r.shard)}
	switch at.Kind {
	case stream.Beginning:
		in.ShardIteratorType = types.ShardIteratorTypeTrimHorizon
	case stream.Latest:
		in.ShardIteratorType = types.ShardIteratorTypeLatest
	case stream.AtTime:
		in.ShardIteratorType, in.Timestamp = types.ShardIteratorTypeAtTimestamp, aws.Time(at.Time)
	case stream.AtSequence, stream.AfterSequence:
		return r.seekSequence(ctx, at, in)
	default:
		return fmt.Errorf("open shard %s: position of unknown kind %d", r.shard, at.Kind)
	}
	return r.getIterator(ctx, in, "")
}

// seekSequence starts at the record itself, also for what comes after it: that it is still there proves that nothing
// behind it has been trimmed away. The service says nothing of that; it starts at its oldest record.
func (r *Reader) seekSequence(ctx context.Context, at stream.Position, in *kinesis.GetShardIteratorInput) error {
	pos, err := parsePosition(at.Sequence)
	if err != nil {
		return stream.Foreign(r.s.opt.URL(), r.shard, at.Sequence, err.Error())
	}
	in.ShardIteratorType, in.StartingSequenceNumber = types.ShardIteratorTypeAtSequenceNumber, aws.String(pos.number)
	if err := r.getIterator(ctx, in, at.Sequence); err != nil {
		return err
	}
	for {
		p, err := r.read(ctx)
		if err != nil {
			return err
		}
		if p == nil && r.last != "" {
			return nil // renewed after a record that was read, and checked there
		}
		if p == nil || len(p.Records) == 0 && !p.AtTip && !p.Closed {
			continue
		}
		return r.startAt(p, pos, at)
	}
}

// startAt keeps of the first page what comes at or after the position.
func (r *Reader) startAt(p *stream.Page, pos position, at stream.Position) error {
	if len(p.Records) == 0 {
		return stream.Trimmed(r.s.opt.URL(), r.shard, at.Sequence, "")
	}
	first, err := parsePosition(p.Records[0].Sequence)
	if err != nil || compareDigits(first.number, pos.number) != 0 {
		return stream.Trimmed(r.s.opt.URL(), r.shard, at.Sequence, p.Records[0].Sequence)
	}
	n := 0
	for ; n < len(p.Records); n++ {
		have, err := parsePosition(p.Records[n].Sequence)
		if err != nil || have.number != first.number {
			break
		}
		if pos.sub < 0 && at.Kind == stream.AtSequence || pos.sub >= 0 && (have.sub > pos.sub || have.sub == pos.sub && at.Kind == stream.AtSequence) {
			break
		}
	}
	p.Records = p.Records[n:]
	if len(p.Records) > 0 || p.AtTip || p.Closed {
		r.found = p
		r.waitTip = p.AtTip
	}
	return nil
}

// getIterator asks until there is an answer. sequence is what was asked for, for the fault.
func (r *Reader) getIterator(ctx context.Context, in *kinesis.GetShardIteratorInput, sequence string) error {
	in.StreamName, in.StreamARN = r.s.opt.names()
	for try := 0; ; try++ {
		out, err := r.client.GetShardIterator(ctx, in)
		if err == nil {
			r.iterator = out.ShardIterator
			r.seen(awsmiddleware.GetServerTime(out.ResultMetadata))
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("get an iterator of shard %s: %w", r.shard, ctx.Err())
		}
		switch {
		case code(err) == "InvalidArgumentException" && sequence != "":
			return stream.Foreign(r.s.opt.URL(), r.shard, sequence, err.Error())
		case code(err) == "ResourceNotFoundException":
			return r.notFound(ctx, sequence, err)
		case !transient(err):
			return explain(r.s.opt, "GetShardIterator", err)
		}
		if err := r.backOff(ctx, try, "GetShardIterator", err); err != nil {
			return err
		}
	}
}

// notFound says what was not found: the stream, the shard, or (an emulator's answer) the sequence number.
func (r *Reader) notFound(ctx context.Context, sequence string, err error) error {
	shards, errList := r.s.Shards(ctx)
	if errList != nil {
		return errList
	}
	known := slices.ContainsFunc(shards, func(s stream.Shard) bool { return s.ID == r.shard })
	if known && sequence != "" {
		return stream.Foreign(r.s.opt.URL(), r.shard, sequence, err.Error())
	}
	return stream.NoShard(r.s.opt.URL(), r.shard)
}

// seen notes the service's clock; the header's resolution is a second.
func (r *Reader) seen(server time.Time, ok bool) {
	if ok {
		r.polled = server.Add(-time.Second)
	} else {
		r.polled = time.Now().Add(-time.Second)
	}
}

// backOff waits before a call is made again, and says why.
func (r *Reader) backOff(ctx context.Context, try int, action string, err error) error {
	pause := min(minReadBackoff<<min(try, 10), maxReadBackoff)
	pause = pause/2 + rand.N(pause/2)
	level := r.s.opt.logger().Warn
	if try == 0 || throttle(err) && try < 5 {
		// One failure is no news. Refusals come by themselves where other consumers share the five reads a second.
		level = r.s.opt.logger().Debug
	}
	level("a read of the stream failed and is tried again", "stream", r.s.opt.Name, "shard", r.shard, "call", action,
		"tries", try+1, "pause", pause, "error", err)
	return sleep(ctx, pause)
}

// read makes one GetRecords that gets an answer. A nil page: the iterator was renewed.
func (r *Reader) read(ctx context.Context) (*stream.Page, error) {
	for try := 0; ; try++ {
		if err := r.pace(ctx); err != nil {
			return nil, err
		}
		in := &kinesis.GetRecordsInput{ShardIterator: r.iterator}
		if r.s.opt.ARN != "" {
			in.StreamARN = aws.String(r.s.opt.ARN)
		}
		out, err := r.client.GetRecords(ctx, in)
		switch {
		case err == nil:
			r.seen(awsmiddleware.GetServerTime(out.ResultMetadata))
			return r.take(out), nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("read shard %s: %w", r.shard, ctx.Err())
		case code(err) == "ExpiredIteratorException":
			return nil, r.renew(ctx)
		case !transient(err):
			return nil, explain(r.s.opt, "GetRecords", err)
		}
		if err := r.backOff(ctx, try, "GetRecords", err); err != nil {
			return nil, err
		}
	}
}

// renew replaces an expired iterator by one that goes on after the last record that was read.
func (r *Reader) renew(ctx context.Context) error {
	r.s.opt.logger().Debug("an iterator expired and is renewed", "stream", r.s.opt.Name, "shard", r.shard, "after", r.last)
	switch {
	case r.last != "":
		return r.seek(ctx, stream.Position{Kind: stream.AfterSequence, Sequence: r.last})
	case r.begin.Kind == stream.Latest:
		// Latest as it would be now is not what it was: records came meanwhile.
		return r.seek(ctx, stream.Position{Kind: stream.AtTime, Time: r.polled})
	case r.begin.Kind == stream.AtSequence || r.begin.Kind == stream.AfterSequence:
		pos, err := parsePosition(r.begin.Sequence)
		if err != nil {
			return err
		}
		in := &kinesis.GetShardIteratorInput{ShardId: aws.String(r.shard), ShardIteratorType: types.ShardIteratorTypeAtSequenceNumber,
			StartingSequenceNumber: aws.String(pos.number)}
		return r.getIterator(ctx, in, r.begin.Sequence)
	}
	return r.seek(ctx, r.begin)
}

// pace keeps to five reads in any second.
func (r *Reader) pace(ctx context.Context) error {
	if oldest := r.reads[r.readAt]; !oldest.IsZero() {
		if wait := time.Second - time.Since(oldest); wait > 0 {
			if err := sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
	r.reads[r.readAt] = time.Now()
	r.readAt = (r.readAt + 1) % len(r.reads)
	return nil
}

// take makes a page of an answer.
func (r *Reader) take(out *kinesis.GetRecordsOutput) *stream.Page {
	p := &r.page
	*p = stream.Page{Records: p.Records[:0], Behind: time.Duration(aws.ToInt64(out.MillisBehindLatest)) * time.Millisecond}
	for i := range out.Records {
		rec := &out.Records[i]
		r.last = aws.ToString(rec.SequenceNumber)
		key, at := []byte(aws.ToString(rec.PartitionKey)), aws.ToTime(rec.ApproximateArrivalTimestamp)
		subs, ok := deaggregate(r.subs[:0], rec.Data)
		if !ok {
			p.Records = append(p.Records, stream.Record{Sequence: r.last, PartitionKey: key, ArrivedAt: at, Data: rec.Data})
			continue
		}
		r.subs = subs
		for n, sub := range subs {
			p.Records = append(p.Records, stream.Record{Sequence: fmt.Sprintf("%s.%d", r.last, n), PartitionKey: sub.key, ArrivedAt: at, Data: sub.data})
		}
	}
	p.AtTip = p.Behind == 0
	r.iterator = out.NextShardIterator
	if r.iterator == nil {
		r.closed, p.Closed, p.AtTip = true, true, true
		for i := range out.ChildShards {
			p.Children = append(p.Children, childOf(&out.ChildShards[i]))
		}
	}
	return p
}

func childOf(c *types.ChildShard) stream.Shard {
	sh := stream.Shard{ID: aws.ToString(c.ShardId), Parents: c.ParentShards, Records: -1, Bytes: -1, Open: true}
	sh.HashLow, sh.HashTop = hashRange(c.HashKeyRange)
	return sh
}
