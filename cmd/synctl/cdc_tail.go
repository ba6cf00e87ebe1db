package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"synctl/internal/cli"
	"synctl/internal/ndjson"
	"synctl/internal/pipeline"
)

func newCDCTail(app *cli.App) *cobra.Command {
	f := &captureFlags{}
	var transactions bool
	cmd := &cobra.Command{
		Use:   "tail --from DSN [--table SCHEMA.TABLE]... [--slot NAME]",
		Short: "Write committed changes to stdout as NDJSON",
		Long: `Writes every committed change of the tables as one JSON object a line. Without --slot it begins now, with a publication and a slot
that are gone when it ends. With --slot it goes on where the last run ended, and a position is confirmed to the server only once its
lines are written; into a regular file, once they are on the disk. What is in a pipe when its reader dies is lost: for that there is
synctl cdc publish.`,
		Example: `  # Watch a schema
  synctl cdc tail --from postgres://app@localhost/shop --table 'public.*'

  # Keep a file up to date, over restarts
  synctl cdc tail --from postgres://app@localhost/shop --table public.orders --slot orders --create >> orders.ndjson

  # What has been committed since the last run, then end
  synctl cdc tail --slot orders --until-lsn now`,
		Args: cobra.NoArgs,
	}
	f.register(cmd.Flags(), fromDatabaseUsage)
	cmd.Flags().BoolVar(&transactions, "transactions", false, "also write begin and commit records")
	cmd.RunE = app.Live(f.live, func(ctx context.Context, r *cli.Run) error { return runCDCTail(ctx, r, f, transactions) })
	return cmd
}

func runCDCTail(ctx context.Context, r *cli.Run, f *captureFlags, transactions bool) error {
	o, err := f.options(r)
	if err != nil {
		return err
	}
	o.Transactions, o.Application = transactions, "synctl cdc tail"
	if out, ok := r.Out.(*os.File); ok {
		cut, err := ndjson.RepairTail(out)
		if err != nil {
			return err
		}
		if cut > 0 {
			r.Log.Warn("cut off the line that a killed run left unfinished; the record comes again", "file", "stdout", "bytes", cut)
		}
	}
	src, err := openSource(ctx, r, o)
	if errors.Is(err, errStopped) {
		r.Log.Info(err.Error())
		return nil
	}
	if err != nil {
		return err
	}
	plan := src.Plan()
	r.Log.Info("capturing", "tables", len(plan.Tables), "publication", plan.Publication, "slot", plan.Slot, "from", src.Confirmed().String())
	var stats pipeline.Stats
	stop, err := r.Report(func() cli.Snapshot { return progressOf(src, &stats) })
	if err != nil {
		return closing(ctx, src, err)
	}
	defer stop()
	if err := f.capture(ctx, r, src, ndjson.NewSink(r.Out, "stdout"), &stats); err != nil {
		return fmt.Errorf("capture changes: %w", err)
	}
	return nil
}
