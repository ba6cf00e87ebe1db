package main

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/pg"
	"synctl/internal/swap"
)

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
