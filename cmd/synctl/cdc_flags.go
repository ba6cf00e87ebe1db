package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synctl/internal/cdc"
	"synctl/internal/cdc/snapshot"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
)

func newCDCGroup(app *cli.App) *cobra.Command {
	return cli.Group("cdc", "Capture the changes that are committed in PostgreSQL",
		`Captures committed changes from PostgreSQL's write-ahead log by logical replication (pgoutput; PostgreSQL 14 to 18; wal_level
has to be logical, the role needs REPLICATION). tail writes them to stdout, publish into a durable stream.`,
		newCDCTail(app), newCDCPublish(app), newCDCSnapshot(app), newCDCSlots(app))
}

// captureFlags are what tail and publish have in common: which changes, and where from.
type captureFlags struct {
	from           string
	tables         []string
	publication    string
	slot           string
	create         bool
	untilLSN       string
	limit          int64
	statusInterval time.Duration
	state          string
	acceptGap      bool
	stallTimeout   time.Duration
	maxWALHeld     cli.Size
	unresolved     cli.Choice
	snapshot       cli.Choice
	snapWorkers    int
	snapChunk      cli.Size
	snapRate       int64
	queueBytes     cli.Size
	live           *cli.LiveFlags
}

func (f *captureFlags) register(fs *pflag.FlagSet, from string) {
	f.unresolved, f.queueBytes = cli.NewChoice("fail", "text"), pipeline.DefaultQueueBytes
	fs.StringVar(&f.from, "from", "", from)
	fs.StringArrayVar(&f.tables, "table", nil, "table to capture as schema.table, with * globs (repeatable)")
	fs.StringVar(&f.publication, "publication", "", "publication to read (default: with --slot the one named after it, else a temporary one)")
	fs.StringVar(&f.slot, "slot", "", "replication slot that lasts, so that the next run goes on where this one ends (default: a temporary one)")
	fs.BoolVar(&f.create, "create", false, "make publication and slot when they are missing")
	fs.StringVar(&f.untilLSN, "until-lsn", "", "end after the transactions that ended at or below this position; now is the server's at the start")
	fs.Int64Var(&f.limit, "limit", 0, "end after so many records; with --slot at the end of the transaction that reaches it")
	fs.DurationVar(&f.statusInterval, "status-interval", 10*time.Second, "between status messages to the server, at most a third of its wal_sender_timeout")
	fs.StringVar(&f.state, "state", "", "file that keeps the last confirmed position (default: by system and slot under $XDG_STATE_HOME/synctl)")
	fs.BoolVar(&f.acceptGap, "accept-gap", false, "go on where the slot stands although changes before it were never delivered")
	fs.DurationVar(&f.stallTimeout, "stall-timeout", 0, "fail when nothing moves for this long although there is work (0: never)")
	fs.Var(&f.maxWALHeld, "max-wal-held", "fail when the slot holds back more WAL than this (0: never)")
	fs.Var(&f.unresolved, "unresolved-type", "a value whose composite type was altered or dropped since: an error, or its text")
	f.snapshot, f.snapChunk = cli.NewChoice("none", "initial", "only"), snapshot.DefaultChunkBytes
	fs.Var(&f.snapshot, "snapshot", "rows that the tables have already: left out, delivered as read records beside the changes, or that and then end")
	fs.IntVar(&f.snapWorkers, "snapshot-workers", snapshot.DefaultWorkers, "connections that read rows of a snapshot at the same time")
	fs.Var(&f.snapChunk, "snapshot-chunk-bytes", "rows of a snapshot between two marks in the log; each worker holds up to two such chunks in memory")
	fs.Int64Var(&f.snapRate, "snapshot-rate", 0, "rows per second that a snapshot reads at most (0: no limit)")
	fs.Var(&f.queueBytes, "queue-bytes", "bytes in memory between the server and the sink; a larger row travels alone")
	f.live = cli.AddLiveFlags(fs)
}

// options turns the flags into what package cdc wants.
func (f *captureFlags) options(r *cli.Run) (cdc.Options, error) {
	var dir string
	if f.slot != "" {
		var err error
		if dir, err = stateDir(r, f.state); err != nil {
			return cdc.Options{}, err
		}
	}
	o := cdc.Options{
		DSN: pg.DSN(f.from), Tables: f.tables, Publication: f.publication, Slot: f.slot, Create: f.create, Limit: f.limit,
		StatusInterval: f.statusInterval, State: f.state, StateDir: dir, AcceptGap: f.acceptGap,
		StallTimeout: f.stallTimeout, MaxWALHeld: int64(f.maxWALHeld), Log: r.Log,
	}
	if f.unresolved.Value == "text" {
		o.UnresolvedType = cdc.UnresolvedText
	}
	o.Snapshot = map[string]cdc.SnapshotMode{"none": cdc.SnapshotNone, "initial": cdc.SnapshotInitial, "only": cdc.SnapshotOnly}[f.snapshot.Value]
	o.SnapshotWorkers, o.SnapshotChunkBytes, o.SnapshotRate = f.snapWorkers, int64(f.snapChunk), f.snapRate
	switch f.untilLSN {
	case "":
	case "now":
		o.UntilNow = true
	default:
		lsn, err := record.ParseLSN(f.untilLSN)
		if err != nil {
			return o, fault.Wrap(fault.Usage, "Give a position such as 0/16B3748, or now.", fmt.Errorf("--until-lsn: %w", err))
		}
		o.UntilLSN = lsn
	}
	switch {
	case f.snapWorkers < 1 || f.snapChunk < 64<<10 || f.snapRate < 0:
		return o, fault.New(fault.Usage, "At least one worker, chunks of 64KiB or more, a rate of 0 (no limit) or more.",
			"--snapshot-workers %d, --snapshot-chunk-bytes %s, --snapshot-rate %d", f.snapWorkers, f.snapChunk.String(), f.snapRate)
	case f.limit < 0:
		return o, fault.New(fault.Usage, "Give a number above 0.", "--limit %d", f.limit)
	case f.queueBytes < 128<<10:
		return o, fault.New(fault.Usage, "Give 128KiB or more; 16MiB is the default.", "--queue-bytes %s is too small", f.queueBytes.String())
	}
	return o, nil
}

// stateDir is where the state of a slot lies unless file names one.
func stateDir(r *cli.Run, file string) (string, error) {
	if file != "" {
		return "", nil
	}
	return r.StateDir()
}

// errStopped says that a run was asked to stop before it had begun to read.
var errStopped = errors.New("stopped before anything was read")

// openSource is cdc.Open that a first signal ends, too: making a slot can wait for open transactions without end, and
// there is nothing to drain yet.
func openSource(ctx context.Context, r *cli.Run, o cdc.Options) (*cdc.Source, error) {
	octx, cancel := context.WithCancelCause(ctx)
	opened, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-r.Drain:
			cancel(errStopped)
		case <-opened:
		}
	}()
	src, err := cdc.Open(octx, o)
	close(opened)
	<-watched
	if err != nil && errors.Is(context.Cause(octx), errStopped) {
		err = errStopped
	}
	cancel(nil)
	return src, err
}

// capture runs the pipeline from the database into sink until it ends, is drained or fails, watching for stalls
// meanwhile, and closes the source.
func (f *captureFlags) capture(ctx context.Context, r *cli.Run, src *cdc.Source, sink pipeline.Sink, stats *pipeline.Stats) (err error) {
	defer func() {
		// Also after a forced stop: what is acknowledged is confirmed, so that it does not come again.
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		err = errors.Join(err, src.Close(cctx))
	}()
	runCtx, force := context.WithCancelCause(ctx)
	defer force(nil)
	watchCtx, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watched, ran := make(chan error, 1), make(chan error, 1)
	go func() { watched <- src.Watch(watchCtx) }()
	go func() {
		ran <- pipeline.Run(runCtx, src, sink, pipeline.Options{QueueBytes: int64(f.queueBytes), Drain: r.Drain,
			DrainTimeout: f.live.DrainTimeout, Stats: stats})
	}()
	select {
	case err := <-ran:
		stopWatching()
		<-watched
		return err
	case err := <-watched:
		force(err)
		// A sink can hang in a write to a pipe whose reader has stopped, and nothing but the end of the process frees it.
		select {
		case ended := <-ran:
			if err == nil { // we were forced to stop
				return ended
			}
		case <-time.After(hungSink):
		}
		return cmp.Or(err, context.Cause(ctx))
	}
}

// hungSink is how long a run that does not get on may take to notice that it is over.
const hungSink = 2 * time.Second

// progressOf is the progress of a capture.
func progressOf(src *cdc.Source, stats *pipeline.Stats) cli.Snapshot {
	st := src.Status()
	s := cli.Snapshot{
		Records: stats.DoneRecords.Load(), Bytes: stats.DoneBytes.Load(), InFlight: stats.Records.Load() - stats.DoneRecords.Load(),
		Position: st.Confirmed.String(), Reconnects: st.Reconnects, WALHeld: st.WALHeld, Ready: st.Connected,
		Lag: &cli.Lag{Bytes: -1, Age: st.Behind},
	}
	if st.Stalled > 0 {
		s.Trouble = fmt.Sprintf("no progress for %s although there is work: confirmed %s, read up to %s, the server is at %s", st.Stalled.Round(time.Second), st.Confirmed, st.Read, st.ServerEnd)
	}
	if st.ServerEnd > st.Confirmed {
		s.Lag.Bytes = int64(st.ServerEnd - st.Confirmed)
	} else if st.ServerEnd > 0 {
		s.Lag.Bytes = 0
	}
	return s
}
