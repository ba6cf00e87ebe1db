package kinesis

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// sender encodes and sends one request at a time; its buffers are used again for the next.
type sender struct {
	s       *Sink
	buf     []byte
	spans   []span
	records []types.PutRecordsRequestEntry
	failed  []entry
	whole   []*batch
}

type span struct{ from, to int }

// maxKeptBuffer is the largest buffer that is kept between requests.
const maxKeptBuffer = 8 << 20

// send encodes what is new in q, sends everything, and settles each entry.
func (w *sender) send(ctx context.Context, q *request) {
	unused, err := w.encode(ctx, q)
	if err != nil {
		w.s.fail(err)
		return
	}
	w.putBack(unused)
	w.failed, w.whole = w.failed[:0], w.whole[:0]
	if err := w.put(ctx, q); err != nil {
		w.s.fail(err)
		return
	}
	w.settle(q)
	if cap(w.buf) > maxKeptBuffer {
		w.buf = nil
	}
}

// encode makes entries of the keys that were taken, as long as the request has room, and gives back the others.
func (w *sender) encode(ctx context.Context, q *request) (unused []taken, err error) {
	w.buf, w.spans = w.buf[:0], w.spans[:0]
	floor := record.LSN(0)
	if w.s.opt.Floor != nil {
		floor = w.s.opt.Floor()
	}
	retried := len(q.entries)
	for i, t := range q.fresh {
		if q.bytes >= w.s.opt.RequestBytes {
			unused = q.fresh[i:]
			break
		}
		room := w.s.opt.RequestBytes - q.bytes
		if len(q.entries) == 0 {
			room = w.s.maxRecord // a request of one record may be larger than others
		}
		e, sp, err := w.encodeKey(ctx, t, floor, room)
		if err != nil {
			return nil, err
		}
		if e.last == nil {
			unused = q.fresh[i:] // its first line has no room in this request
			break
		}
		q.entries = append(q.entries, e)
		w.spans = append(w.spans, sp)
		q.bytes += sp.to - sp.from + len(e.key.name)
	}
	for i, sp := range w.spans {
		q.entries[retried+i].data = w.buf[sp.from:sp.to:sp.to]
	}
	return unused, nil
}

// encodeKey makes one stream record of what waits for a key: its lines, up to the record's limit and the request's room.
func (w *sender) encodeKey(ctx context.Context, t taken, floor record.LSN, room int) (entry, span, error) {
	e := entry{key: t.key}
	sp := span{len(w.buf), len(w.buf)}
	limit := w.s.maxRecord - len(t.key.name)
	for it := t.key.head; ; it = it.next {
		if it.waitsForMove() {
			break
		}
		it.rec.Floor, it.rec.Stream = floor, nil
		var err error
		if w.buf, err = record.AppendLine(w.buf, it.rec); err != nil {
			return e, sp, fmt.Errorf("publish to %s: %w", w.s.stream.URL(), err)
		}
		line := w.buf[sp.to:]
		if len(line) > limit {
			if err := w.oversize(ctx, t.key, it.rec, line, limit); err != nil {
				return e, sp, err
			}
			w.buf = w.buf[:sp.to]
		} else if size := len(w.buf) - sp.from; size > limit || size+len(t.key.name) > room {
			w.buf = w.buf[:sp.to]
			break
		} else {
			sp.to = len(w.buf)
			e.records++
		}
		e.last = it
		if it == t.until {
			break // what follows is the writer's
		}
	}
	return e, sp, nil
}

// oversize deals with a record that no stream record can hold.
func (w *sender) oversize(ctx context.Context, k *key, rec *record.Record, line []byte, limit int) error {
	s := w.s
	table := "no table"
	if name := rec.TableName(); name != "" {
		table = rec.SchemaName() + "." + name
	}
	what := fmt.Sprintf("%s of %s, key %q: record %s of %d bytes is larger than the %d bytes that a record of stream %s can hold beside its key",
		rec.Op, table, k.name, rec.AppendID(nil), len(line), limit, s.stream.Name)
	if s.opt.DeadLetters == nil {
		return fault.New(fault.Failed, "Raise the stream's maximum record size (aws kinesis update-max-record-size, up to 10240 KiB), "+
			"or let such records go to a file: --oversize dead-letter --dead-letter FILE.", "%s", what)
	}
	if err := s.opt.DeadLetters.Put(ctx, line, k.name, what); err != nil {
		return fmt.Errorf("write dead letter: %w", err)
	}
	s.load.deadLetter()
	return nil
}

func (w *sender) putBack(unused []taken) {
	if len(unused) == 0 {
		return
	}
	w.s.mu.Lock()
	for i := len(unused) - 1; i >= 0; i-- {
		w.s.gate.putBack(unused[i].key)
	}
	w.s.mu.Unlock()
	w.s.nudge()
}

// put sends the entries and collects in w.failed those that are to be sent again. An error is for good.
func (w *sender) put(ctx context.Context, q *request) error {
	s := w.s
	w.records = w.records[:0]
	for i := range q.entries {
		e := &q.entries[i]
		if len(e.data) == 0 {
			continue // dead letters alone
		}
		rec := types.PutRecordsRequestEntry{PartitionKey: &e.key.name, Data: e.data}
		if e.shard != "" {
			rec.ExplicitHashKey = &e.shard
		}
		w.records = append(w.records, rec)
	}
	if len(w.records) == 0 {
		return nil
	}
	in := &kinesis.PutRecordsInput{Records: w.records}
	in.StreamName, in.StreamARN = s.stream.names()
	s.load.sent(len(w.records))
	callCtx, cancel := context.WithTimeout(ctx, s.opt.RequestTimeout)
	defer cancel()
	out, err := s.client.PutRecords(callCtx, in)
	if err == nil && len(out.Records) != len(w.records) {
		err = fmt.Errorf("PutRecords answered for %d of %d records", len(out.Records), len(w.records))
	}
	s.load.returned(len(w.records))
	switch {
	case err == nil:
		w.sort(q, out)
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !transient(err) && !errors.Is(err, context.DeadlineExceeded):
		return explain(s.stream, "PutRecords", err)
	}
	for i := range q.entries {
		if len(q.entries[i].data) > 0 {
			w.failed = append(w.failed, q.entries[i])
			q.entries[i].last = nil
		}
	}
	s.load.requestFailed(len(w.failed), err)
	return nil
}

// sort parts the entries that were stored from those that were not.
func (w *sender) sort(q *request, out *kinesis.PutRecordsOutput) {
	results := out.Records
	load := &w.s.load
	load.mu.Lock()
	defer load.mu.Unlock()
	for i := range q.entries {
		e := &q.entries[i]
		if len(e.data) == 0 {
			continue
		}
		r := &results[0]
		results = results[1:]
		if errorCode := aws.ToString(r.ErrorCode); errorCode != "" {
			load.refused(e, errorCode)
			w.failed = append(w.failed, *e)
			e.last = nil // not acknowledged
			continue
		}
		load.stored(e, aws.ToString(r.ShardId))
	}
}

// settle acknowledges what was stored and puts the rest aside for its next try.
func (w *sender) settle(q *request) {
	s := w.s
	again := s.groups(w.failed)
	s.mu.Lock()
	for i := range q.entries {
		if e := &q.entries[i]; e.last != nil {
			s.gate.acknowledge(e.key, e.last, func(b *batch) {
				delete(s.live, b)
				w.whole = append(w.whole, b)
			})
		}
	}
	for _, g := range again {
		heap.Push(&s.retries, g)
		s.held += g.bytes
	}
	s.active--
	s.changed.Broadcast()
	s.mu.Unlock()
	s.complete(w.whole)
	s.nudge()
	s.load.report(s.log, s.opt, s.stream, time.Now(), false)
}
