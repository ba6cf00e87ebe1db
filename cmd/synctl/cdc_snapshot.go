package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"synctl/internal/cdc"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// askedSummary is the result of asking for a table's rows.
type askedSummary struct {
	Table       string `json:"table"`
	Slot        string `json:"slot"`
	Request     string `json:"request,omitempty"`
	Reader      string `json:"reader,omitempty"`
	Publication string `json:"added_to_publication,omitempty"`
}

func newCDCSnapshot(app *cli.App) *cobra.Command {
	f := &slotFlags{}
	var table, where string
	cmd := &cobra.Command{
		Use:   "snapshot --slot NAME --table SCHEMA.TABLE",
		Short: "Ask a running tail or publish for a table's rows",
		Long: `Asks the tail or publish that reads a slot to deliver the rows of a table, again or for the first time, beside the changes. The request
travels through the write-ahead log, and the run answers it. With --where it has to be of the run's own role or a superuser's. Rows that were deleted
meanwhile are not taken away from the target: a snapshot says what is there.`,
		Example: "  synctl cdc snapshot --from postgres://app@localhost/shop --slot shop --table public.orders\n" +
			"  synctl cdc snapshot --slot shop --table public.orders --where \"placed_at >= '2026-11-01'\"",
		Args: cobra.NoArgs,
	}
	cmd.Flags().StringVar(&f.from, "from", "", fromDatabaseUsage)
	cmd.Flags().StringVar(&f.slot, "slot", "", "slot whose reader is asked")
	cmd.Flags().StringVar(&f.publication, "publication", "", "publication that it reads (default: the slot's name)")
	cmd.Flags().StringVar(&table, "table", "", "table as schema.table")
	cmd.Flags().StringVar(&where, "where", "", "condition on the table's columns (default: all rows)")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		if f.slot == "" || table == "" {
			return fault.New(fault.Usage, "synctl cdc snapshot --slot NAME --table schema.table", "--slot and --table are needed")
		}
		asked, err := cdc.RequestSnapshot(ctx, f.request("synctl cdc snapshot"), table, where)
		if err != nil {
			return err
		}
		return printAsked(r, output, f, asked)
	})
	return cmd
}

func newSlotsAddTable(app *cli.App) *cobra.Command {
	f := &slotFlags{}
	var table string
	cmd := &cobra.Command{
		Use:   "add-table NAME --table SCHEMA.TABLE",
		Short: "Add a table to a slot's publication and feed",
		Long: `Adds a table to the publication, and then asks the run that reads the slot for the rows that the table has. When nobody reads the slot, the
next run delivers the table's changes, and its rows with --snapshot initial. A run that was started with --table delivers what matches
it alone.`,
		Example: "  synctl cdc slots add-table shop --from postgres://app@localhost/shop --table public.invoices",
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.Flags().StringVar(&f.from, "from", "", fromDatabaseUsage)
	cmd.Flags().StringVar(&f.slot, "slot", "", "name of the slot; it may also be given as an argument")
	cmd.Flags().StringVar(&f.publication, "publication", "", "publication that it reads (default: the slot's name)")
	cmd.Flags().StringVar(&table, "table", "", "table as schema.table")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		if _, err := f.options(r); err != nil {
			return err
		}
		if table == "" {
			return fault.New(fault.Usage, "synctl cdc slots add-table NAME --table schema.table", "--table is missing")
		}
		asked, err := cdc.AddTable(ctx, f.request("synctl cdc slots"), table)
		if err != nil {
			return err
		}
		if !asked.Running {
			r.Log.Warn("nobody reads the slot: the next run delivers the table's changes, and its rows with --snapshot initial", "slot", f.slot)
		}
		return printAsked(r, output, f, asked)
	})
	return cmd
}

// request is what a request to a slot's reader needs.
func (f *slotFlags) request(application string) cdc.Options {
	o := cdc.Options{DSN: pg.DSN(f.from), Slot: f.slot, Publication: f.publication, Application: application}
	if o.Publication == "" {
		o.Publication = f.slot
	}
	return o
}

func printAsked(r *cli.Run, output *cli.Output, f *slotFlags, asked cdc.Asked) error {
	s := askedSummary{Table: asked.Table.String(), Slot: asked.Slot.Name, Request: asked.ID}
	if asked.ID != "" {
		s.Reader = asked.Slot.ActiveBy
	}
	if asked.Added {
		if s.Publication = f.publication; s.Publication == "" {
			s.Publication = f.slot
		}
	}
	return r.Result(output, s, func(w io.Writer) error {
		rows := [][]string{{"table", s.Table}, {"slot", s.Slot}}
		if s.Publication != "" {
			rows = append(rows, []string{"added to", "publication " + s.Publication})
		}
		if s.Request != "" {
			rows = append(rows, []string{"asked", s.Reader}, []string{"request", s.Request})
		}
		return cli.Table(w, []string{"WHAT", "VALUE"}, rows)
	})
}
