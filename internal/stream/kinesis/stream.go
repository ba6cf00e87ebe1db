package kinesis

import (
	"context"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
	"github.com/aws/aws-sdk-go-v2/service/kinesis/types"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

var _ stream.Stream = (*Stream)(nil)

// Stream is one stream of the service, to read and to manage.
type Stream struct {
	client *kinesis.Client
	opt    Options
}

// Open finds the stream that the options name.
func Open(ctx context.Context, o Options) (*Stream, error) {
	client, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Stream{client: client, opt: o}
	if _, err := s.summary(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Create makes a provisioned stream of so many shards and waits until it is active.
func Create(ctx context.Context, o Options, shards int) error {
	if shards < 1 {
		return fault.New(fault.Usage, "Say how many with --shards N.", "a stream needs at least 1 shard, not %d", shards)
	}
	client, err := connect(ctx, o)
	if err != nil {
		return err
	}
	_, err = client.CreateStream(ctx, &kinesis.CreateStreamInput{StreamName: aws.String(o.Name), ShardCount: aws.Int32(int32(shards)),
		StreamModeDetails: &types.StreamModeDetails{StreamMode: types.StreamModeProvisioned}})
	switch {
	case code(err) == "ResourceInUseException":
		return stream.Exists(o.URL())
	case code(err) == "LimitExceededException":
		return fault.New(fault.Unreachable, "Ask for fewer shards, delete streams, or have the account's shard quota raised.", "create stream %s: %w", o.URL(), err)
	case err != nil:
		return explain(o, "CreateStream", err)
	}
	s := &Stream{client: client, opt: o}
	return s.waitActive(ctx)
}

func (s *Stream) waitActive(ctx context.Context) error {
	pause := 100 * time.Millisecond
	for {
		d, err := s.summary(ctx)
		if err != nil {
			return err
		}
		if d.StreamStatus == types.StreamStatusActive {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 2*time.Second)
	}
}

// List names the streams of the account and region.
func List(ctx context.Context, o Options) ([]string, error) {
	client, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	var names []string
	in := &kinesis.ListStreamsInput{}
	for {
		out, err := client.ListStreams(ctx, in)
		if err != nil {
			return nil, explain(o, "ListStreams", err)
		}
		names = append(names, out.StreamNames...)
		if !aws.ToBool(out.HasMoreStreams) || len(out.StreamNames) == 0 {
			return names, nil
		}
		in.ExclusiveStartStreamName = aws.String(out.StreamNames[len(out.StreamNames)-1])
	}
}

// Name is the stream's name.
func (s *Stream) Name() string { return s.opt.Name }

// Close ends nothing: a client has nothing to close.
func (s *Stream) Close() error { return nil }

// Trim fails: the service removes records by age alone.
func (s *Stream) Trim(context.Context) error {
	return fault.New(fault.Usage,
		"Shorten its retention instead: aws kinesis decrease-stream-retention-period --stream-name "+s.opt.Name+" --retention-period-hours 24.",
		"%s: Kinesis cannot trim records; they go when their retention ends", s.opt.URL())
}

func (s *Stream) summary(ctx context.Context) (*types.StreamDescriptionSummary, error) {
	name, arn := s.opt.names()
	out, err := s.client.DescribeStreamSummary(ctx, &kinesis.DescribeStreamSummaryInput{StreamName: name, StreamARN: arn})
	if err != nil {
		return nil, explain(s.opt, "DescribeStreamSummary", err)
	}
	return out.StreamDescriptionSummary, nil
}

// maxRecord is the largest stream record, data and key together, in bytes.
func maxRecord(d *types.StreamDescriptionSummary) int {
	if kib := aws.ToInt32(d.MaxRecordSizeInKiB); kib > 0 {
		return int(kib) << 10
	}
	return 1 << 20
}

// Describe tells what the stream is.
func (s *Stream) Describe(ctx context.Context) (stream.Description, error) {
	d, err := s.summary(ctx)
	if err != nil {
		return stream.Description{}, err
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return stream.Description{}, err
	}
	return stream.Description{
		Name: s.opt.Name, URL: s.opt.URL(), Status: string(d.StreamStatus), Shards: shards,
		Retention:      time.Duration(aws.ToInt32(d.RetentionPeriodHours)) * time.Hour,
		MaxRecordBytes: maxRecord(d),
	}, nil
}

// Shards lists every shard that can still be read, parents before children.
func (s *Stream) Shards(ctx context.Context) ([]stream.Shard, error) {
	return listShards(ctx, s.client, s.opt)
}

func listShards(ctx context.Context, client *kinesis.Client, o Options) ([]stream.Shard, error) {
	name, arn := o.names()
	in := &kinesis.ListShardsInput{StreamName: name, StreamARN: arn}
	var shards []stream.Shard
	for {
		out, err := client.ListShards(ctx, in)
		if err != nil {
			return nil, explain(o, "ListShards", err)
		}
		for i := range out.Shards {
			shards = append(shards, shardOf(&out.Shards[i]))
		}
		if out.NextToken == nil {
			break
		}
		in = &kinesis.ListShardsInput{NextToken: out.NextToken} // a token stands for the stream's name, which must be left out
	}
	// A child's number is above its parents'.
	slices.SortFunc(shards, func(a, b stream.Shard) int { return strings.Compare(a.ID, b.ID) })
	return shards, nil
}

func shardOf(d *types.Shard) stream.Shard {
	sh := stream.Shard{ID: aws.ToString(d.ShardId), Records: -1, Bytes: -1, Open: true}
	sh.HashLow, sh.HashTop = hashRange(d.HashKeyRange)
	for _, p := range []*string{d.ParentShardId, d.AdjacentParentShardId} {
		if aws.ToString(p) != "" {
			sh.Parents = append(sh.Parents, *p)
		}
	}
	if r := d.SequenceNumberRange; r != nil && aws.ToString(r.EndingSequenceNumber) != "" {
		sh.Open = false
	}
	return sh
}

func hashRange(r *types.HashKeyRange) (low, top *big.Int) {
	low, top = new(big.Int), new(big.Int)
	if r != nil {
		low.SetString(aws.ToString(r.StartingHashKey), 10)
		top.SetString(aws.ToString(r.EndingHashKey), 10)
	}
	return low, top
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
