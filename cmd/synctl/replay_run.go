package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
	"synctl/internal/replay"
	"synctl/internal/sink/postgres"
	"synctl/internal/stream"
)

// runReplay is the journey of a replay: stream → engine for each shard → sink.
func runReplay(ctx context.Context, r *cli.Run, f *replayFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	o, err := f.options()
	if err != nil {
		return err
	}
	o.Log, o.Drain = r.Log, r.Drain
	st, err := openStream(ctx, f.from, r.Log)
	if err != nil {
		return err
	}
	defer st.Close()
	o.Stream = st
	if f.dryRun {
		return planReplay(ctx, r, f, o)
	}
	to, err := f.open(ctx, r, st.Name())
	if err != nil {
		return err
	}
	o.Target = to.target
	job, err := replay.New(o)
	if err != nil {
		return errors.Join(err, to.close())
	}
	stop, err := r.Report(func() cli.Snapshot { return snapshotReplay(job.Status()) })
	if err != nil {
		return errors.Join(err, to.close())
	}
	defer stop()
	began := time.Now()
	err = job.Run(ctx)
	if e := to.close(); err == nil {
		err = e
	}
	stop()
	if err != nil || to.stdout {
		return err
	}
	sum := replaySummary{Checkpoint: to.checkpoint}
	sum.fill(job.Status(), time.Since(began))
	to.summarize(&sum)
	return r.Result(f.output, &sum, sum.text)
}

func snapshotReplay(st replay.Status) cli.Snapshot {
	return cli.Snapshot{
		Records: st.Records, Bytes: st.Bytes, InFlight: st.InFlight, Position: st.Position, Reconnects: st.Retries,
		Lag: &cli.Lag{Bytes: -1, Age: st.Behind}, Ready: st.Running > 0 && st.Trouble == "", Trouble: st.Trouble,
	}
}

// replayTo is where a replay's records go.
type replayTo struct {
	target     replay.Target
	stdout     bool
	checkpoint string // in use; empty: none
	postgres   *postgres.Target
	stream     stream.Sink
	closers    []func() error
	closed     bool
}

func (to *replayTo) close() error {
	if to.closed {
		return nil
	}
	to.closed = true
	var err error
	for _, c := range to.closers {
		err = errors.Join(err, c())
	}
	return err
}

func (to *replayTo) summarize(s *replaySummary) {
	if to.postgres != nil {
		s.applied(to.postgres.Stats())
	}
	if to.stream != nil {
		sum := to.stream.Summary()
		s.Published = &sum
	}
}

// open opens the sink and the checkpoint.
func (f *replayFlags) open(ctx context.Context, r *cli.Run, name string) (*replayTo, error) {
	if pg.IsURL(f.to) {
		return f.openPostgres(ctx, r, name)
	}
	to := &replayTo{checkpoint: f.checkpoint}
	plain := &replay.Plain{}
	if isStreamURL(f.to) {
		// A floor speaks of the stream that it is in; a copy is published without.
		s, err := openStreamSink(ctx, f.to, streamSinkOptions{}, r.Log)
		if err != nil {
			return nil, err
		}
		to.stream, plain.Sink = s, s
		to.closers = append(to.closers, s.Close)
	} else {
		// A run that was killed can have left half a line at the end of the file that stdout is.
		if out, ok := r.Out.(*os.File); ok {
			if cut, err := ndjson.RepairTail(out); err != nil {
				return nil, err
			} else if cut > 0 {
				r.Log.Warn("cut off an unfinished last line", "bytes", cut)
			}
		}
		to.stdout, plain.Sink = true, ndjson.NewSink(r.Out, "standard output")
	}
	if f.checkpoint != "" {
		store, err := f.openStore(ctx, r.IO, name)
		if err != nil {
			return nil, errors.Join(err, to.close())
		}
		plain.Store = store
		to.closers = append(to.closers, store.Close)
	}
	to.target = plain
	return to, nil
}

func (f *replayFlags) openPostgres(ctx context.Context, r *cli.Run, name string) (*replayTo, error) {
	rename, err := replay.ParseRename(f.rename)
	if err != nil {
		return nil, err
	}
	filter := replay.Filter{Only: f.only}
	to := &replayTo{checkpoint: f.checkpoint}
	if to.checkpoint == "" {
		to.checkpoint = "default"
	}
	to.postgres, err = postgres.Open(ctx, postgres.Options{
		DSN: pg.DSN(f.to), Checkpoint: to.checkpoint, Stream: name, Map: rename.Apply, Only: filter.Table,
		OverwriteExisting: f.existingRow.Value == "overwrite", IgnoreMissing: f.missingRow.Value == "ignore",
		Connections: f.connections, HoldBytes: int64(f.holdBytes), HoldTime: f.holdTime, Log: r.Log,
	})
	if err != nil {
		return nil, err
	}
	to.target = replay.Postgres{Target: to.postgres}
	to.closers = append(to.closers, func() error { return to.postgres.Close(context.WithoutCancel(ctx)) })
	return to, nil
}

// closingStore is a store that holds its checkpoint until it is closed.
type closingStore interface {
	replay.Store
	io.Closer
}

func (f *replayFlags) openStore(ctx context.Context, o cli.IO, name string) (closingStore, error) {
	if pg.IsURL(f.store) {
		return postgres.OpenStore(ctx, pg.DSN(f.store), f.checkpoint, name)
	}
	path, err := storePath(o, f.store)
	if err != nil {
		return nil, err
	}
	return replay.OpenFileStore(path, f.checkpoint, name)
}

// storePath is the file of a file: checkpoint store; empty is the default one.
func storePath(o cli.IO, url string) (string, error) {
	if url == "" {
		dir, err := o.StateDir()
		return filepath.Join(dir, "checkpoints.json"), err
	}
	path, ok := strings.CutPrefix(url, "file:")
	if !ok || path == "" {
		return "", fault.New(fault.Usage, "Write file:PATH or postgres://….", "--checkpoint-store %q", pg.Redact(url))
	}
	return path, nil
}

// planReplay is the dry run: everything is opened for reading and nothing is changed.
func planReplay(ctx context.Context, r *cli.Run, f *replayFlags, o replay.Options) error {
	job, err := replay.New(o)
	if err != nil {
		return err
	}
	shards, err := job.Preview(ctx)
	if err != nil {
		return err
	}
	plan := replayPlan{From: f.from, To: pg.Redact(f.to), Shards: shards}
	if pg.IsURL(f.to) {
		if _, err := replay.ParseRename(f.rename); err != nil {
			return err
		}
		if plan.Checkpoint = f.checkpoint; plan.Checkpoint == "" {
			plan.Checkpoint = "default"
		}
		if plan.Standing, err = standing(ctx, f.to, plan.Checkpoint, o.Stream.Name()); err != nil {
			return err
		}
	}
	return r.Result(f.output, &plan, plan.text)
}

type replayPlan struct {
	From       string           `json:"from"`
	To         string           `json:"to"`
	Checkpoint string           `json:"checkpoint,omitempty"`
	Standing   []string         `json:"standing,omitempty"` // where the checkpoint stands
	Shards     []replay.Preview `json:"shards"`
}

// standing connects to the target and says where its checkpoint stands.
func standing(ctx context.Context, dsn, name, streamName string) ([]string, error) {
	all, err := postgres.List(ctx, pg.DSN(dsn))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, c := range all {
		if c.Name == name && c.Stream == streamName {
			out = append(out, c.Shard+" after "+c.Mark.String())
		}
	}
	return out, nil
}

func (p *replayPlan) text(w io.Writer) error {
	fmt.Fprintf(w, "would read %s into %s\n", p.From, p.To)
	if p.Checkpoint != "" {
		fmt.Fprintf(w, "checkpoint %s stands at: %s\n", p.Checkpoint, orNone(strings.Join(p.Standing, ", ")))
	}
	rows := make([][]string, len(p.Shards))
	for i, s := range p.Shards {
		records := "unknown"
		if s.Records >= 0 {
			records = cli.FormatCount(s.Records)
		}
		rows[i] = []string{s.ID, s.Begin, records, orNone(s.Oldest), orNone(s.Newest), orNone(strings.Join(s.After, ", "))}
	}
	return cli.Table(w, []string{"SHARD", "BEGIN", "RECORDS", "OLDEST", "NEWEST", "AFTER"}, rows)
}

func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
