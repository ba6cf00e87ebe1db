package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/cdc"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
	"synctl/internal/stream"
)

// publishFlags are what the command line of publish says beyond which changes.
type publishFlags struct {
	captureFlags
	to           string
	partitionKey cli.Choice
	oversize     cli.Choice
	deadLetter   string
	linger       time.Duration
	inFlight     int
	createStream int
	dryRun       bool
	output       *cli.Output
}

func newCDCPublish(app *cli.App) *cobra.Command {
	f := &publishFlags{partitionKey: cli.NewChoice("key", "table"), oversize: cli.NewChoice("fail", "dead-letter")}
	cmd := &cobra.Command{
		Use:   "publish --from DSN|- --to STREAM",
		Short: "Publish committed changes into a durable stream",
		Long: `Publishes every committed change of the tables into a stream: Kinesis, or a directory on disk. Changes of one row reach the stream in
commit order, each at least once and under the same id. A position is confirmed to the server only once everything up to it is durable in
the stream, so the same command, run again after whatever stopped it, loses nothing. --from - publishes NDJSON records from stdin.`,
		Example: `  # Into a directory; the first run makes publication, slot and stream
  synctl cdc publish --from postgres://app@localhost/shop --table 'public.*' --slot shop --create --to file:/var/lib/shop-stream --create-stream 4

  # Into Kinesis
  synctl cdc publish --slot shop --to kinesis://shop

  # Records from a pipe
  synctl cdc tail --table public.orders | jq -c 'select(.op != "delete")' | synctl cdc publish --from - --to kinesis://orders`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	f.register(fs, "database: postgres://… or a libpq keyword string, what is missing from the libpq environment; or - for NDJSON on stdin")
	fs.StringVar(&f.to, "to", "", "stream to publish to: file:DIR, kinesis://NAME or a stream's ARN")
	fs.Var(&f.partitionKey, "partition-key", "by what records are spread over the shards: order is per row key, or per table")
	fs.Var(&f.oversize, "oversize", "a record larger than the stream takes: end with an error, or into the dead-letter file")
	fs.StringVar(&f.deadLetter, "dead-letter", "", "file for records that the stream does not take, with the reason; for --oversize dead-letter")
	fs.DurationVar(&f.linger, "linger", 20*time.Millisecond, "how long a record may wait for others to fill a request to Kinesis")
	fs.IntVar(&f.inFlight, "in-flight", 8, "requests to Kinesis at a time")
	fs.IntVar(&f.createStream, "create-stream", 0, "make the stream with so many shards if there is none")
	fs.BoolVarP(&f.dryRun, "dry-run", "n", false, "connect, check, print what would be done, change nothing")
	f.output = cli.AddOutputFlag(fs)
	cmd.RunE = app.Live(f.live, func(ctx context.Context, r *cli.Run) error { return runCDCPublish(ctx, r, f) })
	return cmd
}

// check finds what is wrong with the command line without any server's help.
func (f *publishFlags) check() error {
	usage := func(hint, format string, args ...any) error { return fault.New(fault.Usage, hint, format, args...) }
	switch {
	case f.to == "":
		return usage("Say where to: --to file:DIR or --to kinesis://NAME.", "--to is missing")
	case !isStreamURL(f.to):
		return usage(streamHint, "--to %q is not a stream", pg.Redact(f.to))
	case f.oversize.Value == "dead-letter" && f.deadLetter == "":
		return usage("Add --dead-letter FILE.", "--oversize dead-letter without a file for them")
	case f.oversize.Value == "fail" && f.deadLetter != "":
		return usage("Add --oversize dead-letter, or leave --dead-letter out.", "--dead-letter %s would stay empty: --oversize is fail", f.deadLetter)
	case f.inFlight < 1:
		return usage("Give a number above 0.", "--in-flight %d", f.inFlight)
	case f.linger < 0:
		return usage("Give 0 for none.", "--linger %s", f.linger)
	case f.createStream < 0:
		return usage("Give a number of shards above 0.", "--create-stream %d", f.createStream)
	}
	if f.from != "-" {
		return nil
	}
	for name, given := range map[string]bool{"--table": len(f.tables) > 0, "--publication": f.publication != "", "--slot": f.slot != "",
		"--create": f.create, "--until-lsn": f.untilLSN != "", "--limit": f.limit != 0, "--state": f.state != "", "--accept-gap": f.acceptGap,
		"--stall-timeout": f.stallTimeout != 0, "--max-wal-held": f.maxWALHeld != 0, "--snapshot": f.snapshot.Value != "none"} {
		if given {
			return usage("Leave it out, or name a database with --from.", "%s is of a database, and --from is -", name)
		}
	}
	return nil
}

func runCDCPublish(ctx context.Context, r *cli.Run, f *publishFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	o, err := f.options(r)
	if err != nil {
		return err
	}
	o.Application = "synctl cdc publish"
	if f.dryRun {
		return f.plan(ctx, r, o)
	}
	if f.createStream > 0 {
		created, err := createStream(ctx, f.to, newStream{Shards: f.createStream}, r.Log)
		if err != nil {
			return err
		}
		if created {
			r.Log.Info("created stream", "stream", f.to, "shards", f.createStream)
		}
	}
	var letters *ndjson.DeadLetters
	so := streamSinkOptions{Linger: f.linger, InFlight: f.inFlight, QueueBytes: int(2 * f.queueBytes)}
	if f.linger == 0 {
		so.Linger = -1
	}
	if f.partitionKey.Value == "table" {
		so.KeyBy = stream.ByTable
	}
	if f.deadLetter != "" {
		if letters, err = ndjson.OpenDeadLetters(f.deadLetter); err != nil {
			return err
		}
		defer letters.Close()
		so.DeadLetters = letters
	}
	// The sink comes first: a stream that is missing must not leave a new slot behind that holds back WAL.
	var src atomic.Pointer[cdc.Source]
	if f.from != "-" {
		so.Floor = func() record.LSN {
			if s := src.Load(); s != nil {
				return s.Floor()
			}
			return 0
		}
	}
	sink, err := openStreamSink(ctx, f.to, so, r.Log)
	if err != nil {
		return err
	}
	begin := time.Now()
	if f.from == "-" {
		err = f.fromStdin(ctx, r, sink)
	} else {
		err = f.fromDatabase(ctx, r, o, &src, sink)
	}
	err = errors.Join(err, sink.Close())
	if err != nil && f.from != "-" && src.Load() == nil {
		return err // it never began, so there is nothing to sum up
	}
	if err == nil && letters != nil && letters.Count() > 0 {
		err = fault.New(fault.DeadLetters, "Look at them: jq . "+f.deadLetter, "%d records went to the dead-letter file %s", letters.Count(), f.deadLetter)
	}
	return errors.Join(err, f.summarize(r, sink.Summary(), time.Since(begin)))
}

func (f *publishFlags) fromDatabase(ctx context.Context, r *cli.Run, o cdc.Options, floor *atomic.Pointer[cdc.Source], sink stream.Sink) error {
	src, err := openSource(ctx, r, o)
	if errors.Is(err, errStopped) {
		r.Log.Info(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	floor.Store(src)
	plan := src.Plan()
	if f.slot == "" {
		r.Log.Warn("the slot is temporary: what is committed between this run and the next is not published; --slot NAME --create makes one that lasts")
	}
	r.Log.Info("publishing", "tables", len(plan.Tables), "publication", plan.Publication, "slot", plan.Slot, "from", src.Confirmed().String(), "to", f.to)
	var stats pipeline.Stats
	stop, err := r.Report(func() cli.Snapshot { return withSink(progressOf(src, &stats), sink) })
	if err != nil {
		return closing(ctx, src, err)
	}
	defer stop()
	if err := f.capture(ctx, r, src, sink, &stats); err != nil {
		return fmt.Errorf("publish changes to %s: %w", f.to, err)
	}
	return nil
}

// closing closes a source whose run did not begin.
func closing(ctx context.Context, src *cdc.Source, err error) error {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, src.Close(cctx))
}

func (f *publishFlags) fromStdin(ctx context.Context, r *cli.Run, sink stream.Sink) error {
	if r.InIsTTY {
		r.Log.Info("reading NDJSON records from the terminal; end with Ctrl-D")
	}
	src := ndjson.NewSource(r.In, "stdin")
	var stats pipeline.Stats
	stop, err := r.Report(func() cli.Snapshot {
		return withSink(cli.Snapshot{Records: stats.DoneRecords.Load(), Bytes: stats.DoneBytes.Load(),
			InFlight: stats.Records.Load() - stats.DoneRecords.Load(), Ready: true}, sink)
	})
	if err != nil {
		return err
	}
	defer stop()
	err = pipeline.Run(ctx, src, sink, pipeline.Options{QueueBytes: int64(f.queueBytes), Drain: r.Drain, DrainTimeout: f.live.DrainTimeout, Stats: &stats})
	if err != nil {
		return fmt.Errorf("publish to %s; the first %d lines of stdin are in the stream: %w", f.to, src.Acked(), err)
	}
	if stats.Records.Load() == 0 {
		r.Log.Warn("stdin was empty: nothing was published")
	}
	return nil
}

func withSink(s cli.Snapshot, sink stream.Sink) cli.Snapshot {
	sum := sink.Summary()
	s.Retries, s.Throttled, s.DeadLetters = sum.Retries, sum.Throttled, sum.DeadLetters
	return s
}

// plan prints what a run would do.
func (f *publishFlags) plan(ctx context.Context, r *cli.Run, o cdc.Options) error {
	type planned struct {
		From        string   `json:"from"`
		Tables      []string `json:"tables,omitempty"`
		Publication string   `json:"publication,omitempty"`
		Slot        string   `json:"slot,omitempty"`
		Position    string   `json:"position,omitempty"`
		To          string   `json:"to"`
		Shards      int      `json:"shards"`
		Creates     []string `json:"creates"`
	}
	p := planned{From: pg.Redact(f.from), To: f.to, Creates: []string{}}
	if f.from != "-" {
		found, err := cdc.Check(ctx, o)
		if err != nil {
			return err
		}
		for _, t := range found.Tables {
			p.Tables = append(p.Tables, t.String())
		}
		p.Publication, p.Slot = found.Publication, found.Slot
		if found.From != 0 {
			p.Position = found.From.String()
		}
		if found.MakesPublication {
			p.Creates = append(p.Creates, strings.TrimSpace("publication "+found.Publication))
		}
		if found.MakesSlot {
			p.Creates = append(p.Creates, strings.TrimSpace("slot "+found.Slot))
		}
	}
	shards, missing, err := f.findStream(ctx, r)
	if err != nil {
		return err
	}
	p.Shards = shards
	if missing {
		p.Creates = append(p.Creates, fmt.Sprintf("stream %s with %d shards", f.to, shards))
	}
	return r.Result(f.output, p, func(w io.Writer) error {
		rows := [][]string{{"from", p.From}, {"tables", strings.Join(p.Tables, " ")}, {"publication", p.Publication}, {"slot", p.Slot},
			{"position", p.Position}, {"to", p.To}, {"shards", fmt.Sprint(p.Shards)}, {"creates", strings.Join(p.Creates, ", ")}}
		return cli.Table(w, []string{"WHAT", "VALUE"}, rows)
	})
}

// findStream looks for the stream without making it.
func (f *publishFlags) findStream(ctx context.Context, r *cli.Run) (shards int, missing bool, err error) {
	s, err := openStream(ctx, f.to, r.Log)
	var d stream.Description
	if err == nil {
		defer s.Close()
		d, err = s.Describe(ctx)
	}
	if errors.Is(err, stream.ErrNotFound) && f.createStream > 0 {
		return f.createStream, true, nil
	}
	if err != nil {
		return 0, false, err
	}
	for _, shard := range d.Shards {
		if shard.Open {
			shards++
		}
	}
	if f.createStream > 0 {
		err = sameStream(f.to, newStream{Shards: f.createStream}, d)
	}
	return shards, false, err
}
