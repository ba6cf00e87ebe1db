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
	"synctl/internal/swap"
)

func newSwap(app *cli.App) *cobra.Command {
	o := swap.Defaults()
	var to, confirm string
	cmd := &cobra.Command{
		Use:   "swap",
		Short: "Bring a loaded table live without downtime",
		Long: `Checks a staging table, gives it the live table's keys, indexes, privileges and everything else that hangs on it, and
exchanges it: for a partition of a partitioned table, or for the whole of a plain one. The exchange is one short transaction;
nobody waits longer than --lock-timeout in all, and what was live is kept for 'swap rollback'. A run that was killed is
taken up by the same command. Anything that could not be carried over is refused before anything is changed.`,
		Example: `  # See what would be done, as SQL
  synctl swap --to postgres://app@db/shop --table orders --staging orders_staging --partition orders_20261130 --values "IN ('2026-11-30')" --dry-run

  # Do it, if the data are enough and what they should be
  synctl swap --to postgres://app@db/shop --table orders --staging orders_staging --partition orders_20261130 --values "IN ('2026-11-30')" \
    --min-rows 100000 --check "SELECT sum(amount) > 0 FROM orders_staging"

  # Exchange a whole table
  synctl swap --to postgres://app@db/shop --table prices --staging prices_staging`,
		Args: cobra.NoArgs,
	}
	fs := cmd.Flags()
	addTargetFlags(fs, &to, &o)
	fs.StringVar(&o.Staging, "staging", "", "the loaded table")
	fs.StringVar(&o.Values, "values", "", `the partition's bounds: "IN ('2026-11-30')" or "FROM (…) TO (…)"; may be left out for a partition that exists`)
	fs.Int64Var(&o.MinRows, "min-rows", o.MinRows, "refuse a staging table with fewer rows")
	fs.StringArrayVar(&o.Checks, "check", nil, "a query that must return true before the exchange (repeatable)")
	fs.StringVar(&o.WaitFor, "wait-for", "", "hold the exchange until this query returns true")
	fs.DurationVar(&o.WaitTimeout, "wait-timeout", 0, "how long --wait-for may take; 0 is for ever")
	fs.IntVar(&o.KeepOld, "keep-old", o.KeepOld, "how many former tables to keep for a rollback")
	fs.BoolVar(&o.KeepUnlogged, "keep-unlogged", false, "leave the table unlogged: a crash of the server then EMPTIES the live table")
	fs.DurationVar(&o.SnapshotWait, "snapshot-wait", o.SnapshotWait, "how long to wait for transactions older than the data, which would find the new table empty")
	fs.BoolVar(&o.IgnoreSnapshots, "ignore-snapshots", false, "exchange although such transactions remain")
	fs.StringVar(&confirm, "confirm", "", "the table's name, instead of being asked for it on a terminal")
	output := cli.AddOutputFlag(fs)
	cmd.AddCommand(newSwapRollback(app), newSwapList(app), newSwapCleanup(app))
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		o.To, o.Log = pg.DSN(to), r.Log
		if !o.DryRun {
			if err := ask(r, confirm, o.Table, fmt.Sprintf("%s is going to be replaced in %s by %s.", swapped(o), o.To, o.Staging)); err != nil {
				return err
			}
		}
		res, err := swap.Run(ctx, o)
		return swapResult(r, output, res, err)
	})
	return cmd
}

// addTargetFlags are those that swap and rollback share.
func addTargetFlags(fs *pflag.FlagSet, to *string, o *swap.Options) {
	fs.StringVar(to, "to", "", "the database (postgres://… or a libpq string); what is missing comes from the libpq environment")
	fs.StringVar(&o.Table, "table", "", "the live table")
	fs.StringVar(&o.Partition, "partition", "", "the partition to replace or to add; left out: the whole table")
	fs.DurationVar(&o.LockTimeout, "lock-timeout", o.LockTimeout, "the longest that one attempt makes anybody wait, in all and not per lock")
	fs.IntVar(&o.LockRetries, "lock-retries", o.LockRetries, "further attempts before giving up")
	fs.IntVar(&o.IndexJobs, "index-jobs", o.IndexJobs, "connections that build indexes at once")
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, "check, print the SQL, change nothing")
}

func swapped(o swap.Options) string {
	if o.Partition != "" {
		return fmt.Sprintf("Partition %s of %s", o.Partition, o.Table)
	}
	return "Table " + o.Table
}

// ask asks on a terminal; a script that does not give --confirm has said what it wants by its flags.
func ask(r *cli.Run, confirm, name, consequence string) error {
	if confirm == "" && (!r.InIsTTY || !r.ErrIsTTY) {
		return nil
	}
	return r.Confirm(confirm, name, consequence)
}

func swapResult(r *cli.Run, output *cli.Output, res *swap.Result, err error) error {
	if err != nil {
		return err
	}
	return r.Result(output, res, func(w io.Writer) error {
		if res.Outcome == "planned" {
			return swap.WriteScript(w, res.Plan)
		}
		return cli.Table(w, []string{"WHAT", "VALUE"}, swapSummary(res))
	})
}

func swapSummary(res *swap.Result) [][]string {
	what := res.Table
	if res.Partition != "" {
		what = fmt.Sprintf("%s, partition %s %s", res.Table, res.Partition, res.Bound)
	}
	rows := [][]string{{"outcome", res.Outcome}, {"table", what}}
	if res.Outcome == "already" {
		return rows
	}
	if res.Rows >= 0 {
		rows = append(rows, []string{"rows", cli.FormatCount(res.Rows)})
	}
	if res.Kept != "" {
		rows = append(rows, []string{"kept", res.Kept})
	}
	if len(res.Dropped) > 0 {
		rows = append(rows, []string{"dropped", strings.Join(res.Dropped, ", ")})
	}
	return append(rows,
		[]string{"longest lock held", duration(res.LockHeld)},
		[]string{"longest wait for locks", duration(res.LockWaited)},
		[]string{"attempts repeated", fmt.Sprint(res.Retries)},
		[]string{"wait for snapshots", duration(res.SnapshotSeconds)},
		[]string{"time in all", duration(res.Seconds)})
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}

func newSwapRollback(app *cli.App) *cobra.Command {
	o := swap.Defaults()
	var to, confirm string
	cmd := &cobra.Command{
		Use:   "rollback",
		Short: "Bring back what the last swap put aside",
		Long: `Exchanges the kept table or partition for the live one, with the same checks, locks and retries as a swap. What was live is
kept in its turn. Where the last swap added a partition that was not there before, that partition is taken out.`,
		Example: `  synctl swap rollback --to postgres://app@db/shop --table orders --partition orders_20261130`,
		Args:    cobra.NoArgs,
	}
	fs := cmd.Flags()
	addTargetFlags(fs, &to, &o)
	fs.DurationVar(&o.SnapshotWait, "snapshot-wait", o.SnapshotWait, "how long to wait for older transactions, should the kept table have to be rewritten")
	fs.BoolVar(&o.IgnoreSnapshots, "ignore-snapshots", false, "exchange although such transactions remain")
	fs.StringVar(&confirm, "confirm", "", "the table's name, instead of being asked for it on a terminal")
	output := cli.AddOutputFlag(fs)
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		o.To, o.Log = pg.DSN(to), r.Log
		if !o.DryRun {
			if err := ask(r, confirm, o.Table, fmt.Sprintf("%s is going to be rolled back in %s.", swapped(o), o.To)); err != nil {
				return err
			}
		}
		res, err := swap.Rollback(ctx, o)
		return swapResult(r, output, res, err)
	})
	return cmd
}

func newSwapList(app *cli.App) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List kept tables and unfinished swaps",
		Long:  "Lists the former tables that swaps have put aside in a database, and the swaps that have begun and not ended.",
		Example: `  synctl swap list --to postgres://app@db/shop
  synctl swap list --to postgres://app@db/shop --output json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the database (postgres://… or a libpq string)")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		l, err := swap.List(ctx, pg.DSN(to), r.Log)
		if err != nil {
			return err
		}
		return r.Result(output, l, func(w io.Writer) error { return writeListing(w, l) })
	})
	return cmd
}

func writeListing(w io.Writer, l *swap.Listing) error {
	var rows [][]string
	for _, k := range l.Kept {
		estimate := "?"
		if k.Rows >= 0 {
			estimate = cli.FormatCount(k.Rows)
		}
		rows = append(rows, []string{k.Table, k.Partition, "kept by " + k.By, k.Name, k.Since.UTC().Format(time.RFC3339), estimate, cli.FormatBytes(k.Bytes)})
	}
	for _, u := range l.Unfinished {
		state := u.State
		if u.Running {
			state += ", running"
		}
		rows = append(rows, []string{u.Table, u.Partition, state, u.Staging, u.Since.UTC().Format(time.RFC3339), "", ""})
	}
	return cli.Table(w, []string{"TABLE", "PARTITION", "STATE", "NAME", "SINCE", "ROWS", "SIZE"}, rows)
}

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
