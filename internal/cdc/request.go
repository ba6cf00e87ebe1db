package cdc

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Asked is a request to snapshot a table, on its way to the run that reads the slot.
type Asked struct {
	Table   TableName
	ID      string
	Slot    Slot
	Running bool // somebody reads the slot now
	Added   bool // to the publication
}

// RequestSnapshot asks the run that reads opt.Slot to deliver the rows of a table anew. where selects them; empty: all.
func RequestSnapshot(ctx context.Context, opt Options, table, where string) (Asked, error) {
	var a Asked
	err := onServer(ctx, opt, func(conn *pgx.Conn) (err error) {
		if a, err = prepareRequest(ctx, conn, opt, table); err != nil {
			return err
		}
		if !a.Running {
			return fault.New(fault.Check, "Start it (synctl cdc publish --slot "+opt.Slot+" …) and ask again; a first run with --snapshot initial delivers every table's rows by itself.",
				"nobody reads slot %s, so there is no run to ask", opt.Slot)
		}
		p, err := readPublication(ctx, conn, opt.Publication)
		if err != nil {
			return err
		}
		if p != nil && !publishes(p, a.Table) {
			return fault.New(fault.Check, "Add it: synctl cdc slots add-table "+opt.Slot+" --table "+a.Table.String(), "publication %s does not publish %s", p.name, a.Table)
		}
		return a.send(ctx, conn, where)
	})
	return a, err
}

// AddTable adds a table to the publication of a slot, and asks the run that reads the slot for the rows that it has, in this order: a change
// that is committed in between is in the feed and in the rows, and the run knows which is newer.
func AddTable(ctx context.Context, opt Options, table string) (Asked, error) {
	var a Asked
	err := onServer(ctx, opt, func(conn *pgx.Conn) (err error) {
		if a, err = prepareRequest(ctx, conn, opt, table); err != nil {
			return err
		}
		p, err := readPublication(ctx, conn, opt.Publication)
		if err != nil {
			return err
		}
		if p == nil {
			return fault.New(fault.Check, "Name it with --publication.", "no publication %s", opt.Publication)
		}
		if !publishes(p, a.Table) {
			info, err := readTables(ctx, conn, `WHERE n.nspname = $1 AND c.relname = $2`, a.Table.Schema, a.Table.Name)
			if err != nil {
				return err
			}
			if err := checkIdentity(ctx, conn, info, p.viaRoot); err != nil {
				return err
			}
			_, err = conn.Exec(ctx, "ALTER PUBLICATION "+pg.Ident(p.name)+" ADD TABLE ONLY "+pg.Ident(a.Table.Schema, a.Table.Name))
			var e *pgconn.PgError
			if errors.As(err, &e) && e.Code == "42501" {
				return fault.New(fault.Unreachable, "It takes ownership of the publication and of the table.", "add %s to publication %s: %w", a.Table, p.name, err)
			}
			if err != nil {
				return fmt.Errorf("add %s to publication %s: %w", a.Table, p.name, err)
			}
			a.Added = true
		}
		if !a.Running {
			return nil
		}
		return a.send(ctx, conn, "")
	})
	return a, err
}

func onServer(ctx context.Context, opt Options, do func(*pgx.Conn) error) error {
	conn, err := pg.Connect(ctx, opt.DSN, opt.Application)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

func prepareRequest(ctx context.Context, conn *pgx.Conn, opt Options, table string) (a Asked, err error) {
	t, ok := splitPattern(table)
	if !ok || strings.Contains(table, "*") {
		return a, fault.New(fault.Usage, "Give one table as schema.table.", "--table %q", table)
	}
	a.Table = t
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p'))`, t.Schema, t.Name).Scan(&exists); err != nil {
		return a, err
	}
	if !exists {
		return a, fault.New(fault.Check, "Check the name and the database.", "no table %s", t)
	}
	slot, err := findSlot(ctx, conn, opt.Slot)
	if err != nil {
		return a, err
	}
	if slot == nil {
		return a, fault.New(fault.Check, "synctl cdc slots list shows those there are.", "no slot %s", opt.Slot)
	}
	a.Slot, a.Running = *slot, slot.ActivePID != 0
	return a, nil
}

func publishes(p *publicationInfo, t TableName) bool {
	for _, have := range p.tables {
		if have.name == t {
			return true
		}
	}
	return false
}

func (a *Asked) send(ctx context.Context, conn *pgx.Conn, where string) error {
	if where != "" {
		// Tried here, where the one who typed it sees the error. LIMIT 0 reads nothing.
		if _, err := conn.Exec(ctx, "SELECT FROM "+pg.Ident(a.Table.Schema, a.Table.Name)+" WHERE ("+where+") LIMIT 0"); err != nil {
			return fault.New(fault.Usage, "Give a condition on the table's columns, such as --where \"created_at > '2026-11-01'\".", "--where: %w", err)
		}
	}
	var id [8]byte
	rand.Read(id[:])
	a.ID = hex.EncodeToString(id[:])
	// The run finds this session by its name and looks whose it is, and answers on the channel.
	if _, err := conn.Exec(ctx, "SELECT set_config('application_name', $1, false)", askerName(a.ID)); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+pg.Ident(answerChannel(a.ID))); err != nil {
		return err
	}
	if err := (snapshot.Request{ID: a.ID, Slot: a.Slot.Name, Schema: a.Table.Schema, Table: a.Table.Name, Where: where}).Send(ctx, conn); err != nil {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	answer, err := conn.WaitForNotification(wctx)
	switch {
	case err == nil && answer.Payload == "":
		return nil
	case err == nil:
		return fault.New(fault.Check, "The run's log says the same.", "the run that reads slot %s does not snapshot %s: %s", a.Slot.Name, a.Table, answer.Payload)
	case wctx.Err() != nil && ctx.Err() == nil:
		return fault.New(fault.Failed, "It may be far behind, or its sink may be stuck (synctl cdc slots list). Without --where it still comes to the request in time; with --where ask again.",
			"the run that reads slot %s has not taken the request up within %s", a.Slot.Name, answerPatience)
	}
	return err
}

// answerPatience is how long the run may take to come to a request.
const answerPatience = 30 * time.Second

func askerName(id string) string     { return "synctl snapshot " + id }
func answerChannel(id string) string { return "synctl_" + id }

var requestID = regexp.MustCompile(`^[0-9a-f]{16}$`)

// admit tells whether a request out of the log is to be carried out, and answers it. Any role may write such a message. A condition is
// SQL that is run with our rights, so it is taken only from somebody who has them anyway: the session that asks is still there, and it is our
// role's or a superuser's.
func (o *opening) admit(q snapshot.Request) (keyless bool, refuse string, err error) {
	if !requestID.MatchString(q.ID) {
		return false, "its id is none of synctl's", nil
	}
	if !o.filter.match(q.Schema, q.Table) {
		refuse = "--table leaves it out"
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectPatience)
	defer cancel()
	err = o.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		if q.Where != "" && refuse == "" {
			var trusted bool
			err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
WHERE a.application_name = $1 AND a.datname = current_database() AND (r.rolsuper OR r.rolname = session_user))`, askerName(q.ID)).Scan(&trusted)
			if err != nil {
				return err
			}
			if !trusted {
				refuse = "it has a condition, and a condition is taken only from a session of our own role or of a superuser that still waits for the answer"
			}
		}
		if keyless, err = keylessTable(ctx, conn, q.Schema, q.Table); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, `SELECT pg_notify($1, $2)`, answerChannel(q.ID), refuse)
		return err
	})
	return keyless, refuse, err
}
