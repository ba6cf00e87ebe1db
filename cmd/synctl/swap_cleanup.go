package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/swap"
)

func newSwapCleanup(app *cli.App) *cobra.Command {
	d := swap.Defaults()
	c := swap.CleanupOptions{KeepOld: d.KeepOld, LockTimeout: d.LockTimeout, LockRetries: d.LockRetries}
	var to, confirm string
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Drop kept tables and what killed swaps left behind",
		Long: `Drops kept tables beyond the newest --keep-old of each table or partition, and removes the traces of killed swaps on live
tables. It touches only what synctl put there itself, and leaves alone the tables of which a swap is running. Staging tables stay.`,
		Example: `  synctl swap cleanup --to postgres://app@db/shop --dry-run
  synctl swap cleanup --to postgres://app@db/shop --table orders --keep-old 0`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	fs.StringVar(&to, "to", "", "the database (postgres://… or a libpq string)")
	fs.StringVar(&c.Table, "table", "", "only this live table's; left out: all")
	fs.IntVar(&c.KeepOld, "keep-old", c.KeepOld, "how many kept tables to leave of each table or partition")
	fs.DurationVar(&c.LockTimeout, "lock-timeout", c.LockTimeout, "the longest that one attempt makes anybody wait")
	fs.IntVar(&c.LockRetries, "lock-retries", c.LockRetries, "further attempts before giving up")
	fs.BoolVarP(&c.DryRun, "dry-run", "n", false, "say what would be dropped, change nothing")
	fs.StringVar(&confirm, "confirm", "", "the table's name (\"all\" without --table), instead of being asked for it on a terminal")
	output := cli.AddOutputFlag(fs)
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		c.To, c.Log = pg.DSN(to), r.Log
		if !c.DryRun {
			name := c.Table
			if name == "" {
				name = "all"
			}
			if err := ask(r, confirm, name, fmt.Sprintf("Kept tables beyond the newest %d are going to be dropped in %s; they cannot be rolled back to then.", c.KeepOld, c.To)); err != nil {
				return err
			}
		}
		out, err := swap.Cleanup(ctx, c)
		if err != nil {
			return err
		}
		if err := r.Result(output, out, func(w io.Writer) error { return writeCleared(w, out) }); err != nil {
			return err
		}
		if len(out.Warnings) > 0 {
			return fault.New(fault.Failed, "Remove what is in the way, then run the command again.", "%d kept tables could not be dropped", len(out.Warnings))
		}
		return nil
	})
	return cmd
}

func writeCleared(w io.Writer, c *swap.Cleared) error {
	var rows [][]string
	for _, l := range []struct {
		what  string
		names []string
	}{{"dropped", c.Dropped}, {"unfinished, withdrawn", c.Withdrawn}, {"running, left alone", c.Running}} {
		for _, n := range l.names {
			rows = append(rows, []string{l.what, n})
		}
	}
	return cli.Table(w, []string{"WHAT", "NAME"}, rows)
}
