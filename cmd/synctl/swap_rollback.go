package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/pg"
	"synctl/internal/swap"
)

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
	addPlaceFlags(fs, &o)
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
