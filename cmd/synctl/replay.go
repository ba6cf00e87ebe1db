package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
	"synctl/internal/replay"
	"synctl/internal/sink/postgres"
	"synctl/internal/stream"
)

// replayFlags are what the command line of replay says.
type replayFlags struct {
	from, to string
	shards   []string

	fromSequence, afterSequence string
	fromTime                    cli.Time
	fromBeginning, fromLatest   bool
	checkpoint, store           string
	allowGap                    bool

	untilSequence string
	untilTime     cli.Time
	limit         int64
	follow        bool

	only, ops, rename []string

	missingRow, existingRow cli.Choice
	holdBytes               cli.Size
	holdTime                time.Duration
	connections             int

	queueBytes cli.Size
	dryRun     bool
	live       *cli.LiveFlags
	output     *cli.Output
}

func newReplay(app *cli.App) *cobra.Command {
	f := &replayFlags{
		missingRow: cli.NewChoice("fail", "ignore"), existingRow: cli.NewChoice("fail", "overwrite"),
		holdBytes: 16 << 20, queueBytes: 16 << 20,
	}
	cmd := &cobra.Command{
		Use:   "replay --from STREAM [--to SINK]",
		Short: "Consume a stream from any position, into stdout, PostgreSQL or another stream",
		Long: `Reads a stream's shards, from any sequence number, time, checkpoint, the beginning or the tip, and hands their records to a
sink: stdout: (the default), postgres://… or another stream. A replay ends at what was the tip when it began, unless told otherwise.

Into PostgreSQL every change takes effect exactly once: data and checkpoint are committed together, in schema synctl beside the data,
and what a publisher delivered twice is recognised. The same command, run again after whatever stopped it, goes on where it was: a
checkpoint that stands goes before --from-…, which say where to begin when there is none. docs/replay.md tells how it works.`,
		Example: `  # Look at a stream
  synctl replay --from file:/var/lib/shop-stream --limit 10

  # Bring a database up to date, and keep it so
  synctl replay --from kinesis://shop --to postgres://app@replica/shop --follow

  # What happened to one table since noon
  synctl replay --from kinesis://shop --from-time 2026-11-30T12:00:00Z --only public.orders

  # Again from a known record of one shard
  synctl replay --from file:/var/lib/shop-stream --shard shardId-000000000000 --from-sequence 49590338271490256608559692538361571095921575989136588898`,
		Args: cobra.NoArgs,
	}
	f.register(cmd.Flags())
	cmd.MarkFlagsMutuallyExclusive("from-sequence", "after-sequence", "from-time", "from-beginning", "from-latest")
	cmd.MarkFlagsMutuallyExclusive("until-sequence", "until-time", "follow")
	cmd.RunE = app.Live(f.live, func(ctx context.Context, r *cli.Run) error { return runReplay(ctx, r, f) })
	return cmd
}

func (f *replayFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.from, "from", "", "stream to read: file:DIR, kinesis://NAME or a stream's ARN")
	fs.StringVar(&f.to, "to", "stdout:", "sink: stdout:, postgres://…, file:DIR or kinesis://NAME")
	fs.StringArrayVar(&f.shards, "shard", nil, "read only this shard (repeatable); its children are not followed")

	fs.StringVar(&f.fromSequence, "from-sequence", "", "begin at this sequence number, itself included (one shard)")
	fs.StringVar(&f.afterSequence, "after-sequence", "", "begin after this sequence number (one shard)")
	fs.Var(&f.fromTime, "from-time", "begin at the first record that arrived at or after this time")
	fs.BoolVar(&f.fromBeginning, "from-beginning", false, "begin at the oldest record (the default)")
	fs.BoolVar(&f.fromLatest, "from-latest", false, "begin at what arrives from now on")
	fs.StringVar(&f.checkpoint, "checkpoint", "", "go on where this checkpoint stands, and move it (default for postgres://: default; else none)")
	fs.StringVar(&f.store, "checkpoint-store", "", "where checkpoints are kept that cannot lie beside the data: file:PATH or postgres://… (default file:checkpoints.json in the state directory)")
	fs.BoolVar(&f.allowGap, "allow-gap", false, "go on at the oldest record when the checkpoint has been trimmed away")

	fs.StringVar(&f.untilSequence, "until-sequence", "", "end after this sequence number (one shard)")
	fs.Var(&f.untilTime, "until-time", "end before the first record that arrived after this time")
	fs.Int64Var(&f.limit, "limit", 0, "end after so many records, over all shards")
	fs.BoolVar(&f.follow, "follow", false, "never end: wait for what arrives")

	fs.StringArrayVar(&f.only, "only", nil, "only records of tables that this glob of schema.table matches (repeatable)")
	fs.StringSliceVar(&f.ops, "op", nil, "only these operations: insert, update, delete, truncate, message, read, data")
	fs.StringArrayVar(&f.rename, "map", nil, "schema.table=schema.table for a postgres:// target, with globs: 'public.*=archive.*' (repeatable)")

	fs.Var(&f.missingRow, "missing-row", "postgres://: an update or delete that finds no row and is no duplicate")
	fs.Var(&f.existingRow, "existing-row", "postgres://: an insert whose key exists and that is no duplicate")
	fs.Var(&f.holdBytes, "hold-bytes", "postgres://: bytes of records that may wait for another shard to make room for them")
	fs.DurationVar(&f.holdTime, "hold-time", 10*time.Minute, "postgres://: how long such a record may wait")
	fs.IntVar(&f.connections, "connections", 4, "postgres://: connections that apply, at most")

	fs.Var(&f.queueBytes, "queue-bytes", "bytes in memory between stream and sink, over all shards")
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, "connect, check, print what would be read and written, change nothing")
	f.live = cli.AddLiveFlags(fs)
	f.output = cli.AddOutputFlag(fs)
}

// check finds what is wrong with the command line without any server's help.
func (f *replayFlags) check() error {
	usage := func(hint, format string, args ...any) error { return fault.New(fault.Usage, hint, format, args...) }
	toPostgres := pg.IsURL(f.to)
	switch {
	case f.from == "":
		return usage("Say which stream to read: --from file:DIR or --from kinesis://NAME.", "--from is missing")
	case !isStreamURL(f.from):
		return usage(streamHint, "--from %q is not a stream", pg.Redact(f.from))
	case !toPostgres && !isStreamURL(f.to) && f.to != "stdout:" && f.to != "-":
		return usage("Write stdout:, postgres://…, file:DIR or kinesis://NAME.", "--to %q is not a sink", pg.Redact(f.to))
	case f.to == f.from:
		return usage("Copy into another stream.", "--from and --to are the same stream, which would be read for ever")
	case len(f.rename) > 0 && !toPostgres:
		return usage("Leave --map out, or give --to postgres://….", "--map names tables of a PostgreSQL target, and there is none")
	case toPostgres && f.store != "":
		return usage("Leave --checkpoint-store out.", "--checkpoint-store does not go with --to postgres://, whose checkpoint lies beside the data")
	case f.store != "" && f.checkpoint == "":
		return usage("Name one with --checkpoint NAME.", "--checkpoint-store without a checkpoint")
	case f.limit < 0:
		return usage("Give a number above 0.", "--limit %d", f.limit)
	case f.connections < 1:
		return usage("Give a number above 0.", "--connections %d", f.connections)
	case f.queueBytes < 128<<10:
		return usage("Give 128KiB or more; 16MiB is the default.", "--queue-bytes %s is too small", f.queueBytes.String())
	case len(f.shards) > 1 && (f.fromSequence != "" || f.afterSequence != "" || f.untilSequence != ""):
		return usage("Name one --shard.", "a sequence number belongs to one shard, and %d are named", len(f.shards))
	}
	return nil
}

// options makes the replay's options, without stream and target.
func (f *replayFlags) options() (o replay.Options, err error) {
	o = replay.Options{
		Shards: f.shards, Limit: f.limit, AllowGap: f.allowGap, QueueBytes: int64(f.queueBytes), DrainTimeout: f.live.DrainTimeout,
		Filter: replay.Filter{Only: f.only},
	}
	switch {
	case f.fromSequence != "":
		o.From = stream.Position{Kind: stream.AtSequence, Sequence: f.fromSequence}
	case f.afterSequence != "":
		o.From = stream.Position{Kind: stream.AfterSequence, Sequence: f.afterSequence}
	case !f.fromTime.IsZero():
		o.From = stream.Position{Kind: stream.AtTime, Time: f.fromTime.Time}
	case f.fromLatest:
		o.From = stream.Position{Kind: stream.Latest}
	}
	switch {
	case f.untilSequence != "":
		o.End = replay.End{Kind: replay.UntilSequence, Sequence: f.untilSequence}
	case !f.untilTime.IsZero():
		o.End = replay.End{Kind: replay.UntilTime, Time: f.untilTime.Time}
	case f.follow:
		o.End = replay.End{Kind: replay.Never}
	}
	for _, name := range f.ops {
		op, ok := record.ParseOp(name)
		if !ok {
			return o, fault.New(fault.Usage, "Give some of insert, update, delete, truncate, message, read, data.", "--op %q is not an operation", name)
		}
		o.Filter.Ops = append(o.Filter.Ops, op)
	}
	return o, o.Filter.Check()
}

// replaySummary is what --output json prints. docs/replay.md promises its fields.
type replaySummary struct {
	Records     int64             `json:"records"`
	Bytes       int64             `json:"bytes"`
	Seconds     float64           `json:"seconds"`
	Retries     int64             `json:"retries"`
	Checkpoint  string            `json:"checkpoint,omitempty"`
	Shards      map[string]string `json:"shards"` // shard → sequence number of the last record read
	Applied     *int64            `json:"applied,omitempty"`
	Duplicates  *int64            `json:"duplicates,omitempty"`
	MissingRows *int64            `json:"missing_rows,omitempty"`
	Skipped     *int64            `json:"skipped_messages,omitempty"`
	Held        *int64            `json:"held,omitempty"` // records that wait for another shard, in synctl.held
	Published   *stream.Summary   `json:"published,omitempty"`
}

func (s *replaySummary) fill(st replay.Status, took time.Duration) {
	s.Records, s.Bytes, s.Seconds, s.Retries, s.Shards = st.Records, st.Bytes, took.Seconds(), st.Retries, map[string]string{}
	for _, sh := range st.Shards {
		s.Shards[sh.ID] = sh.Read
	}
}

func (s *replaySummary) applied(st postgres.Stats) {
	s.Applied, s.Duplicates, s.MissingRows, s.Skipped, s.Held = &st.Applied, &st.Duplicates, &st.Missing, &st.Skipped, &st.Held
}

func (s *replaySummary) text(w io.Writer) error {
	parts := []string{fmt.Sprintf("%s records from %d shard(s) in %.1f s", cli.FormatCount(s.Records), len(s.Shards), s.Seconds)}
	if s.Applied != nil {
		parts = append(parts, fmt.Sprintf("%s changes applied, %s duplicates dropped", cli.FormatCount(*s.Applied), cli.FormatCount(*s.Duplicates)))
		if *s.MissingRows > 0 {
			parts = append(parts, cli.FormatCount(*s.MissingRows)+" without a row ignored")
		}
		if *s.Skipped > 0 {
			parts = append(parts, cli.FormatCount(*s.Skipped)+" logical messages, which have no row, passed over")
		}
	}
	if s.Held != nil && *s.Held > 0 {
		parts = append(parts, cli.FormatCount(*s.Held)+" wait for other shards in synctl.held")
	}
	if s.Published != nil {
		parts = append(parts, fmt.Sprintf("%s records published", cli.FormatCount(s.Published.Records)))
	}
	if s.Checkpoint != "" {
		parts = append(parts, "checkpoint "+s.Checkpoint)
	}
	_, err := fmt.Fprintln(w, strings.Join(parts, "; "))
	return err
}
