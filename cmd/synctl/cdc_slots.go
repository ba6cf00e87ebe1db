package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synctl/internal/cdc"
	"synctl/internal/cli"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

const fromDatabaseUsage = "database: postgres://… or a libpq keyword string; what is missing comes from the libpq environment"

func newCDCSlots(app *cli.App) *cobra.Command {
	return cli.Group("slots", "List, create and drop replication slots",
		`A replication slot makes the server keep the changes that have not been confirmed. One that nobody reads holds back WAL until the disk
is full, so drop what is not needed.`,
		newSlotsList(app), newSlotsCreate(app), newSlotsAddTable(app), newSlotsDrop(app))
}

// slotInfo is one slot in the result of slots list.
type slotInfo struct {
	Name      string `json:"name"`
	Plugin    string `json:"plugin"`
	Database  string `json:"database"`
	Temporary bool   `json:"temporary"`
	ActivePID int    `json:"active_pid"`
	ActiveBy  string `json:"active_by"`
	Confirmed string `json:"confirmed_lsn"`
	WALHeld   int64  `json:"wal_held_bytes"`
	WALStatus string `json:"wal_status"`
}

func newSlotsList(app *cli.App) *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the server's replication slots and the WAL that they hold back",
		Long:    "Lists every replication slot of the server: plugin, who reads it, the position confirmed, how much WAL the server keeps for it, and whether it still has what the slot needs (wal_status).",
		Example: "  synctl cdc slots list --from postgres://app@localhost/shop\n  synctl cdc slots list --output json | jq '.slots[] | select(.active_pid == 0)'",
		Args:    cobra.NoArgs,
	}
	cmd.Flags().StringVar(&from, "from", "", fromDatabaseUsage)
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		conn, err := pg.Connect(ctx, pg.DSN(from), "synctl cdc slots")
		if err != nil {
			return err
		}
		defer conn.Close(context.WithoutCancel(ctx))
		slots, err := cdc.Slots(ctx, conn, "")
		if err != nil {
			return err
		}
		return printSlots(r, output, slots)
	})
	return cmd
}

func printSlots(r *cli.Run, output *cli.Output, slots []cdc.Slot) error {
	list := struct {
		Slots []slotInfo `json:"slots"`
	}{[]slotInfo{}}
	for _, s := range slots {
		list.Slots = append(list.Slots, slotInfo{s.Name, s.Plugin, s.Database, s.Temporary, s.ActivePID, s.ActiveBy, s.Confirmed.String(), s.WALHeld, s.WALStatus})
	}
	return r.Result(output, list, func(w io.Writer) error {
		if len(slots) == 0 {
			_, err := fmt.Fprintln(r.Err, "the server has no replication slots")
			return err
		}
		var rows [][]string
		for _, s := range list.Slots {
			active := "no"
			if s.ActivePID != 0 {
				active = strings.TrimSpace(fmt.Sprintf("PID %d %s", s.ActivePID, s.ActiveBy))
			}
			rows = append(rows, []string{s.Name, s.Plugin, s.Database, active, s.Confirmed, cli.FormatBytes(s.WALHeld), s.WALStatus})
		}
		return cli.Table(w, []string{"NAME", "PLUGIN", "DATABASE", "ACTIVE", "CONFIRMED", "WAL HELD", "WAL STATUS"}, rows)
	})
}

// slotFlags name one slot and what belongs to it.
type slotFlags struct{ from, slot, publication, state string }

func (f *slotFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.from, "from", "", fromDatabaseUsage)
	fs.StringVar(&f.slot, "slot", "", "name of the slot; it may also be given as an argument")
	fs.StringVar(&f.state, "state", "", "file that keeps the last confirmed position (default: by system and slot under $XDG_STATE_HOME/synctl)")
}

func (f *slotFlags) options(r *cli.Run) (cdc.Options, error) {
	if len(r.Args) == 1 {
		if f.slot != "" && f.slot != r.Args[0] {
			return cdc.Options{}, fault.New(fault.Usage, "Name one.", "two slots are named: %s and %s", f.slot, r.Args[0])
		}
		f.slot = r.Args[0]
	}
	if f.slot == "" {
		return cdc.Options{}, fault.New(fault.Usage, "Give its name: synctl cdc slots create NAME.", "no slot is named")
	}
	dir, err := stateDir(r, f.state)
	if err != nil {
		return cdc.Options{}, err
	}
	return cdc.Options{DSN: pg.DSN(f.from), Slot: f.slot, Publication: f.publication, State: f.state, StateDir: dir, Log: r.Log, Application: "synctl cdc slots"}, nil
}

func newSlotsCreate(app *cli.App) *cobra.Command {
	f := &slotFlags{}
	var tables []string
	cmd := &cobra.Command{
		Use:   "create NAME --table SCHEMA.TABLE...",
		Short: "Make a publication and a slot that begins now",
		Long: `Makes what tail and publish make with --create: the publication first, since a slot cannot read changes from before its publication,
then the slot. Changes that are committed from then on are kept by the server until they are confirmed.`,
		Example: "  synctl cdc slots create shop --from postgres://app@localhost/shop --table 'public.*'",
		Args:    cobra.MaximumNArgs(1),
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&f.publication, "publication", "", "publication to make or to use (default: the slot's name)")
	cmd.Flags().StringArrayVar(&tables, "table", nil, "table to publish as schema.table, with * globs (repeatable)")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		o, err := f.options(r)
		if err != nil {
			return err
		}
		o.Tables, o.Create = tables, true
		plan, err := cdc.Check(ctx, o)
		if err != nil {
			return err
		}
		if !plan.MakesSlot {
			return fault.New(fault.Check, "Use it as it is, or drop it first: synctl cdc slots drop "+o.Slot+".", "slot %s exists already", o.Slot)
		}
		src, err := cdc.Open(ctx, o)
		if err != nil {
			return err
		}
		at := src.Confirmed()
		if err := closing(ctx, src, nil); err != nil {
			return err
		}
		made := struct {
			Slot        string `json:"slot"`
			Publication string `json:"publication"`
			From        string `json:"from_lsn"`
		}{o.Slot, src.Plan().Publication, at.String()}
		return r.Result(output, made, func(w io.Writer) error {
			return cli.Table(w, []string{"SLOT", "PUBLICATION", "FROM"}, [][]string{{made.Slot, made.Publication, made.From}})
		})
	})
	return cmd
}

func newSlotsDrop(app *cli.App) *cobra.Command {
	f := &slotFlags{}
	var withPublication bool
	var confirm string
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a slot that nobody reads",
		Long: `Drops a slot and the state file that speaks of it. What has not been confirmed through it is never delivered. Asks for the name on a
terminal; elsewhere --confirm NAME has to give it.`,
		Example: "  synctl cdc slots drop shop --from postgres://app@localhost/shop --publication --confirm shop",
		Args:    cobra.MaximumNArgs(1),
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&withPublication, "publication", false, "drop the publication of the same name, too")
	cmd.Flags().StringVar(&confirm, "confirm", "", "the slot's name, to say that it is meant")
	output := cli.AddOutputFlag(cmd.Flags())
	cmd.RunE = app.Finite(func(ctx context.Context, r *cli.Run) error {
		o, err := f.options(r)
		if err != nil {
			return err
		}
		if err := r.Confirm(confirm, o.Slot, fmt.Sprintf("Dropping slot %s loses the changes that were not confirmed through it.", o.Slot)); err != nil {
			return err
		}
		d, err := cdc.Drop(ctx, o, withPublication)
		if err != nil {
			return err
		}
		done := struct {
			Slot        string `json:"slot"`
			Publication string `json:"publication,omitempty"`
			State       string `json:"state_file,omitempty"`
		}{d.Slot, d.Publication, d.State}
		return r.Result(output, done, func(w io.Writer) error {
			return cli.Table(w, []string{"DROPPED", "NAME"}, dropRows(d))
		})
	})
	return cmd
}

func dropRows(d cdc.Dropped) [][]string {
	rows := [][]string{{"slot", d.Slot}}
	if d.Publication != "" {
		rows = append(rows, []string{"publication", d.Publication})
	}
	if d.State != "" {
		rows = append(rows, []string{"state file", d.State})
	}
	return rows
}
