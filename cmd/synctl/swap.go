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
	addExchangeFlags(fs, &confirm, &o)
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
	fs.BoolVarP(&o.DryRun, "dry-run", "n", false, "check, print the SQL, change nothing")
}

// addPlaceFlags say what is exchanged and how patiently.
func addPlaceFlags(fs *pflag.FlagSet, o *swap.Options) {
	fs.StringVar(&o.Partition, "partition", "", "the partition to replace or to add; left out: the whole table")
	fs.DurationVar(&o.LockTimeout, "lock-timeout", o.LockTimeout, "the longest that one attempt makes anybody wait, in all and not per lock")
	fs.IntVar(&o.LockRetries, "lock-retries", o.LockRetries, "further attempts before giving up")
	fs.IntVar(&o.IndexJobs, "index-jobs", o.IndexJobs, "connections that build indexes at once")
}

// addExchangeFlags are those of an exchange, which 'swap' and 'bulk load --swap' share.
func addExchangeFlags(fs *pflag.FlagSet, confirm *string, o *swap.Options) {
	addPlaceFlags(fs, o)
	fs.StringVar(&o.Values, "values", "", `the partition's bounds: "IN ('2026-11-30')" or "FROM (…) TO (…)"; may be left out for a partition that exists`)
	fs.Int64Var(&o.MinRows, "min-rows", o.MinRows, "refuse a staging table with fewer rows")
	fs.StringArrayVar(&o.Checks, "check", nil, "a query that must return true before the exchange (repeatable)")
	fs.StringVar(&o.WaitFor, "wait-for", "", "hold the exchange until this query returns true")
	fs.DurationVar(&o.WaitTimeout, "wait-timeout", 0, "how long --wait-for may take; 0 is for ever")
	fs.IntVar(&o.KeepOld, "keep-old", o.KeepOld, "how many former tables to keep for a rollback")
	fs.BoolVar(&o.KeepUnlogged, "keep-unlogged", false, "leave the table unlogged: a crash of the server then EMPTIES the live table")
	fs.DurationVar(&o.SnapshotWait, "snapshot-wait", o.SnapshotWait, "how long to wait for transactions older than the data, which would find the new table empty")
	fs.BoolVar(&o.IgnoreSnapshots, "ignore-snapshots", false, "exchange although such transactions remain")
	fs.StringVar(confirm, "confirm", "", "the table's name, instead of being asked for it on a terminal")
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
		return writeSwapSummary(w, res)
	})
}

func writeSwapSummary(w io.Writer, res *swap.Result) error {
	what := res.Table
	if res.Partition != "" {
		what = strings.TrimSpace(fmt.Sprintf("%s, partition %s %s", res.Table, res.Partition, res.Bound))
	}
	head := []string{"swap of", what}
	rows := [][]string{{"outcome", res.Outcome}}
	if res.Outcome == "already" {
		return cli.Table(w, head, rows)
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
	return cli.Table(w, head, append(rows,
		[]string{"longest lock held", duration(res.LockHeld)},
		[]string{"longest wait for locks", duration(res.LockWaited)},
		[]string{"attempts repeated", fmt.Sprint(res.Retries)},
		[]string{"wait for snapshots", duration(res.SnapshotSeconds)},
		[]string{"time in all", duration(res.Seconds)}))
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Microsecond).String()
}
