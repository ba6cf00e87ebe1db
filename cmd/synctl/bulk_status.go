package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"synctl/internal/bulk"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

func newBulkStatus(app *cli.App) *cobra.Command {
	var to, id string
	cmd := &cobra.Command{
		Use:   "status --to DSN --run-id ID",
		Short: "Tell how a load with a run ID stands",
		Long: `Tells a poller whether a run is done (exit 0, or 5 when rows went to its dead-letter file), running or unknown (exit 4),
failed or interrupted (exit 1). The word itself is "state" in the JSON object.`,
		Example: `  synctl bulk status --to postgres://app@localhost/shop --run-id 2026-11-30
  synctl bulk status --to postgres://app@localhost/shop --run-id 2026-11-30 --output json`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&to, "to", "", "the PostgreSQL that was loaded into")
	cmd.Flags().StringVar(&id, "run-id", "", "the run's ID")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		if id == "" {
			return fault.New(fault.Usage, "Give the ID that the load was started with.", "--run-id is missing")
		}
		run, err := bulk.Status(ctx, pg.DSN(to), id)
		if err != nil {
			return err
		}
		if err := r.Result(output, run, func(w io.Writer) error { return writeRun(w, run) }); err != nil {
			return err
		}
		return run.Fault()
	})
	return cmd
}

func writeRun(w io.Writer, run *bulk.Run) error {
	rows := [][]string{{"state", run.State}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, []string{name, value})
		}
	}
	add("table", run.Table)
	add("staging", run.Staging)
	add("source", run.Source)
	if run.StartedAt != nil {
		add("started", run.StartedAt.UTC().Format(time.RFC3339))
	}
	if run.FinishedAt != nil {
		add("finished", run.FinishedAt.UTC().Format(time.RFC3339))
	}
	if run.Rows != nil {
		add("rows", cli.FormatCount(*run.Rows))
	}
	if run.Rejected != nil && *run.Rejected > 0 {
		add("rejected", cli.FormatCount(*run.Rejected))
	}
	if run.Error != nil {
		add("error", *run.Error)
	}
	if err := cli.Table(w, []string{"run", run.ID}, rows); err != nil {
		return fmt.Errorf("write run: %w", err)
	}
	return nil
}
