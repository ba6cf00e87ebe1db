package cdc

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Dropped says what Drop removed.
type Dropped struct {
	Slot        string
	Publication string // "": none was asked for
	State       string // the state file; "": there was none
}

// Drop drops the slot of the options, with it the state file that speaks of it, so that one made anew is not taken for
// a gap, and, when withPublication is set, the publication: Publication, or the one named after the slot.
func Drop(ctx context.Context, opt Options, withPublication bool) (d Dropped, err error) {
	cfg, err := pg.Parse(opt.DSN, opt.Application)
	if err != nil {
		return d, err
	}
	r, err := connectReplication(ctx, cfg)
	if err != nil {
		return d, err
	}
	defer r.drop()
	id, err := r.identify(ctx)
	if err != nil {
		return d, err
	}
	m := &session{cfg: cfg}
	defer m.close(ctx)
	err = m.do(ctx, func(conn *pgx.Conn) error { return dropSlot(ctx, conn, opt.Slot) })
	if err != nil {
		return d, err
	}
	d.Slot = opt.Slot
	state := opt.State
	if state == "" {
		state = StatePath(opt.StateDir, id.system, opt.Slot)
	}
	switch err := os.Remove(state); {
	case err == nil:
		d.State = state
	case !errors.Is(err, os.ErrNotExist):
		return d, fault.Wrap(fault.Failed, "Remove it by hand: a slot that is made anew under this name would be taken for a gap.", fmt.Errorf("slot %s is dropped; its state file stays: %w", d.Slot, err))
	}
	if withPublication {
		name := opt.Publication
		if name == "" {
			name = opt.Slot
		}
		if err := m.do(ctx, func(conn *pgx.Conn) error { return dropPublication(ctx, conn, name) }); err != nil {
			return d, err
		}
		d.Publication = name
	}
	return d, nil
}

func dropSlot(ctx context.Context, conn *pgx.Conn, name string) error {
	slot, err := findSlot(ctx, conn, name)
	switch {
	case err != nil:
		return err
	case slot == nil:
		return fault.New(fault.Check, "See those there are: synctl cdc slots list.", "no slot %s", name)
	case slot.ActivePID != 0:
		return slotActive(slot)
	}
	_, err = conn.Exec(ctx, `SELECT pg_drop_replication_slot($1)`, name)
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == "42501" {
		return fault.New(fault.Unreachable, "The role needs the REPLICATION attribute.", "drop slot %s: %w", name, err)
	}
	if err != nil {
		return fmt.Errorf("drop slot %s: %w", name, err)
	}
	return nil
}
