package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/replay"
	"synctl/internal/sink"
	"synctl/internal/sink/postgres"
)

// checkpointFlags are what the checkpoint commands have in common.
type checkpointFlags struct {
	store  string
	output *cli.Output
}

func newCheckpoint(app *cli.App) *cobra.Command {
	return cli.Group("checkpoint", "See and move where consumers of streams stand",
		`A checkpoint is a name under which a replay remembers how far it has read each shard of a stream. Those of a postgres:// target lie
beside the data in schema synctl; others in a file or in a database that --checkpoint-store names.`,
		newCheckpointList(app), newCheckpointSet(app), newCheckpointDelete(app))
}

func (f *checkpointFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.store, "store", "", "file:PATH, or the postgres://… target itself (default file:checkpoints.json in the state directory)")
	f.output = cli.AddOutputFlag(cmd.Flags())
}

// checkpointRow is a checkpoint in --output json.
type checkpointRow struct {
	replay.StoredMark
	Held int64 `json:"held,omitempty"` // records that wait for another shard
}

func newCheckpointList(app *cli.App) *cobra.Command {
	f := &checkpointFlags{}
	cmd := &cobra.Command{
		Use: "list", Short: "List checkpoints",
		Long:    "Lists every checkpoint of a store, with the sequence number up to which each shard has been handled.",
		Example: "  synctl checkpoint list --store postgres://app@replica/shop",
		Args:    cobra.NoArgs,
	}
	f.register(cmd)
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		rows, err := f.list(ctx, r.IO)
		if err != nil {
			return err
		}
		return r.Result(f.output, rows, func(w io.Writer) error {
			var cells [][]string
			for _, c := range rows {
				mark := c.Mark()
				cells = append(cells, []string{c.Name, c.Stream, c.Shard, mark.String(), fmt.Sprint(c.Held), c.UpdatedAt.Format(time.RFC3339)})
			}
			return cli.Table(w, []string{"NAME", "STREAM", "SHARD", "STANDS AT", "HELD", "UPDATED"}, cells)
		})
	})
	return cmd
}

func (f *checkpointFlags) list(ctx context.Context, o cli.IO) ([]checkpointRow, error) {
	rows := []checkpointRow{}
	if pg.IsURL(f.store) {
		all, err := postgres.List(ctx, pg.DSN(f.store))
		for _, c := range all {
			rows = append(rows, checkpointRow{replay.StoredMark{Name: c.Name, Stream: c.Stream, Shard: c.Shard, Sequence: c.Mark.Sequence,
				Lines: c.Mark.Lines, Ended: c.Mark.Ended, UpdatedAt: c.UpdatedAt.UTC()}, c.Held})
		}
		return rows, err
	}
	path, err := storePath(o, f.store)
	if err != nil {
		return nil, err
	}
	all, err := replay.ListStore(path)
	for _, c := range all {
		rows = append(rows, checkpointRow{StoredMark: c})
	}
	return rows, err
}

func newCheckpointSet(app *cli.App) *cobra.Command {
	f := &checkpointFlags{}
	var streamName, shard, sequence string
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Move a checkpoint",
		Long: `Sets a shard's checkpoint to after a sequence number, so that the next replay under this name goes on behind it. In a PostgreSQL
target what the consumer knew of duplicates in that shard is forgotten with it: changes after the new position are applied, again if need be.`,
		Example: "  synctl checkpoint set default --store postgres://app@replica/shop --stream shop --shard shardId-000000000000 --sequence 4959033827149025660855969253836157109592157598913",
		Args:    cobra.ExactArgs(1),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&streamName, "stream", "", "the stream's name")
	cmd.Flags().StringVar(&shard, "shard", "", "the shard")
	cmd.Flags().StringVar(&sequence, "sequence", "", "the last sequence number that counts as handled")
	for _, name := range []string{"stream", "shard", "sequence"} {
		_ = cmd.MarkFlagRequired(name) // fails only for a flag that is not there
	}
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		name, mark := r.Args[0], sink.Mark{Sequence: sequence}
		if pg.IsURL(f.store) {
			if err := postgres.Set(ctx, pg.DSN(f.store), name, streamName, shard, mark); err != nil {
				return err
			}
		} else if err := f.inFile(r.IO, name, streamName, func(s *replay.FileStore) error { return s.Put(ctx, shard, mark) }); err != nil {
			return err
		}
		row := replay.StoredMark{Name: name, Stream: streamName, Shard: shard, Sequence: sequence, UpdatedAt: time.Now().UTC()}
		return r.Result(f.output, row, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "checkpoint %s of %s, shard %s: after %s\n", name, streamName, shard, sequence)
			return err
		})
	})
	return cmd
}

// inFile runs f with a consumer's checkpoint in a file.
func (f *checkpointFlags) inFile(o cli.IO, name, streamName string, do func(*replay.FileStore) error) error {
	path, err := storePath(o, f.store)
	if err != nil {
		return err
	}
	s, err := replay.OpenFileStore(path, name, streamName)
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

func newCheckpointDelete(app *cli.App) *cobra.Command {
	f := &checkpointFlags{}
	var streamName, shard string
	var dropHeld bool
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a checkpoint",
		Long: `Deletes a checkpoint of a stream, of one shard or of all, and, in a PostgreSQL target, what goes with it: floors, ids, and, if --drop-held
says so, records that wait for another shard. The next replay under this name begins where its --from-… says.`,
		Example: "  synctl checkpoint delete default --store postgres://app@replica/shop --stream shop",
		Args:    cobra.ExactArgs(1),
	}
	f.register(cmd)
	cmd.Flags().StringVar(&streamName, "stream", "", "the stream's name")
	cmd.Flags().StringVar(&shard, "shard", "", "only this shard's")
	cmd.Flags().BoolVar(&dropHeld, "drop-held", false, "also when records wait in synctl.held, which are lost then")
	_ = cmd.MarkFlagRequired("stream") // fails only for a flag that is not there
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		name := r.Args[0]
		var n int64
		var err error
		if pg.IsURL(f.store) {
			n, err = postgres.Delete(ctx, pg.DSN(f.store), name, streamName, shard, dropHeld)
		} else {
			err = f.inFile(r.IO, name, streamName, func(s *replay.FileStore) error {
				k, err := s.Delete(shard)
				n = int64(k)
				return err
			})
		}
		if err == nil && n == 0 {
			err = fault.New(fault.Failed, "See what there is: synctl checkpoint list.", "no checkpoint %q of stream %s", name, streamName)
		}
		if err != nil {
			return err
		}
		return r.Result(f.output, map[string]int64{"deleted": n}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "deleted %d shard(s) of checkpoint %s\n", n, name)
			return err
		})
	})
	return cmd
}
