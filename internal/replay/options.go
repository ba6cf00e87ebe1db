package replay

import (
	"context"
	"log/slog"
	"time"

	"synctl/internal/pipeline"
	"synctl/internal/sink"
	"synctl/internal/stream"
)

// Options say what to replay.
type Options struct {
	Stream stream.Stream
	Shards []string // only these; none: all, and those that continue them
	Target Target

	From     stream.Position // where a shard begins that has no checkpoint
	End      End
	Limit    int64 // records in all; 0: no limit
	Filter   Filter
	AllowGap bool // a checkpoint that was trimmed away: go on at the oldest record

	QueueBytes   int64           // over all shards; 0: 16 MiB
	Drain        <-chan struct{} // closed to stop in good order; nil: never
	DrainTimeout time.Duration   // 0: the pipeline's default

	Rescan   time.Duration // how often the shards are listed again; 0: 30 s
	RetryFor time.Duration // how long a shard is tried again without getting on; 0: 5 min

	Log *slog.Logger // nil: nothing is logged
}

// EndKind says where a replay ends.
type EndKind uint8

const (
	AtTip         EndKind = iota // at what was the tip when the shard was begun
	UntilSequence                // after the record with Sequence; with one shard
	UntilTime                    // before the first record that arrived after Time
	Never
)

// End is where a replay ends.
type End struct {
	Kind     EndKind
	Sequence string
	Time     time.Time
}

// Target is where records go. Its methods may be called from several goroutines.
type Target interface {
	// Open readies the sink for a shard, at its checkpoint.
	Open(ctx context.Context, shard string, parents []string) (Outlet, error)
	// Expect announces shards that will be read, before any of them is; Done, that nothing more comes of one. Children are
	// announced before their parent is done.
	Expect(shards ...string)
	Done(shard string)
	// Stop says that the run ends early: shards that wait for others give up with an error for which Stopped is true.
	Stop()
	Stopped(err error) bool
	// Settle finishes what waits for other shards, once all have been read to the replay's end. outlets are still open.
	Settle(ctx context.Context, outlets []Outlet) error
	// Retryable tells whether opening the shard again can help.
	Retryable(err error) bool
}

// Outlet is the sink of one shard. Its batches' tokens are sink.Marks.
type Outlet interface {
	pipeline.Sink
	// Start tells where the shard's checkpoint stands, if there is one, and the sequence number at which to begin to read
	// when that is earlier; the outlet then leaves out what the mark covers.
	Start() (mark sink.Mark, reread string, exists bool)
	// Checkpoint stores a mark that is durable in the sink; an outlet that is a pipeline.TokenKeeper is not asked.
	Checkpoint(ctx context.Context, m sink.Mark) error
	// Finish moves the checkpoint to m when the engine has ended well: everything up to it was handled.
	Finish(ctx context.Context, m sink.Mark) error
	// Broken gives an error that no Write could be told of.
	Broken() <-chan error
	Close()
}
