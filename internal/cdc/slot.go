package cdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
)

// Slot is a replication slot as pg_replication_slots has it.
type Slot struct {
	Name      string
	Plugin    string // empty for a physical slot
	Database  string
	Temporary bool
	ActivePID int        // 0: nobody reads it
	ActiveBy  string     // who does: application, role and address
	Confirmed record.LSN // 0 for a physical slot
	WALHeld   int64      // bytes of WAL that the server keeps for it
	WALStatus string     // reserved, extended, unreserved, lost
}

const slotSQL = `
SELECT s.slot_name::text, coalesce(s.plugin::text, ''), coalesce(s.database::text, ''), s.temporary, coalesce(s.active_pid, 0),
       coalesce(concat_ws(' ', nullif(a.application_name, ''), 'as ' || a.usename, 'from ' || host(a.client_addr)), ''),
       coalesce(s.confirmed_flush_lsn::text, '0/0'), coalesce(pg_wal_lsn_diff(
         CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, s.restart_lsn), 0)::bigint,
       coalesce(s.wal_status, '')
FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid `

// Slots lists the server's replication slots; with a name, that one.
func Slots(ctx context.Context, conn *pgx.Conn, name string) ([]Slot, error) {
	rows, err := conn.Query(ctx, slotSQL+"WHERE $1 = '' OR s.slot_name::text = $1 ORDER BY 1", name)
	if err != nil {
		return nil, fmt.Errorf("list replication slots: %w", err)
	}
	slots, err := pgx.CollectRows(rows, func(r pgx.CollectableRow) (s Slot, err error) {
		var lsn string
		if err := r.Scan(&s.Name, &s.Plugin, &s.Database, &s.Temporary, &s.ActivePID, &s.ActiveBy, &lsn, &s.WALHeld, &s.WALStatus); err != nil {
			return s, err
		}
		s.Confirmed, err = record.ParseLSN(lsn)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list replication slots: %w", err)
	}
	return slots, nil
}

func findSlot(ctx context.Context, conn *pgx.Conn, name string) (*Slot, error) {
	slots, err := Slots(ctx, conn, name)
	if err != nil || len(slots) == 0 {
		return nil, err
	}
	return &slots[0], nil
}

// checkSlot refuses a slot that cannot be read, or not by us.
func checkSlot(s *Slot, database string) error {
	switch {
	case s.Plugin == "":
		return fault.New(fault.Check, "Choose another --slot.", "slot %s is a physical slot, not a logical one", s.Name)
	case s.Plugin != "pgoutput":
		return fault.New(fault.Check, "Choose another --slot, or drop this one and run with --create.", "slot %s has the plugin %s, pgoutput is needed", s.Name, s.Plugin)
	case s.Database != database:
		return fault.New(fault.Check, "Connect to that database, or choose another --slot.", "slot %s belongs to database %s, not to %s", s.Name, s.Database, database)
	case s.WALStatus == "lost":
		return fault.New(fault.Check,
			fmt.Sprintf("The changes since then are gone: bring the target up to date by other means, then synctl cdc slots drop %s, and begin anew with --create. A larger max_slot_wal_keep_size keeps it from happening again.", s.Name),
			"slot %s is lost: the server has removed WAL that it still needed (confirmed %s)", s.Name, s.Confirmed)
	case s.ActivePID != 0:
		return slotActive(s)
	}
	return nil
}

func slotActive(s *Slot) error {
	return fault.New(fault.Unreachable,
		fmt.Sprintf("Stop that reader (SELECT pg_terminate_backend(%d) ends its connection), or choose another --slot.", s.ActivePID),
		"slot %s is in use by PID %d (%s)", s.Name, s.ActivePID, s.ActiveBy)
}

// createSlot makes a logical slot on the replication connection. The server first waits for every transaction that is
// open at the time; say which, since a forgotten one makes this hang for ever.
func createSlot(ctx context.Context, r *replication, watch *session, name string, temporary bool, log *slog.Logger) (record.LSN, error) {
	wctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tellWaits(wctx, watch, r.pg.PID(), name, log)
	}()
	res, err := pglogrepl.CreateReplicationSlot(ctx, r.pg, pg.Ident(name), "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: temporary, SnapshotAction: "NOEXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication})
	cancel()
	<-done
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code {
		case "53400":
			return 0, fault.New(fault.Check, "Raise max_replication_slots and restart the server, or drop slots that are not needed (synctl cdc slots list).",
				"create slot %s: %w", name, err)
		case "42501":
			return 0, fault.New(fault.Unreachable, "The role needs the REPLICATION attribute.", "create slot %s: %w", name, err)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("create slot %s: %w", name, err)
	}
	return record.ParseLSN(res.ConsistentPoint)
}

// tellWaits says which transactions keep the creation of a slot waiting, two seconds after it began and whenever they
// change.
func tellWaits(ctx context.Context, watch *session, pid uint32, name string, log *slog.Logger) {
	var last string
	var told bool
	for pause := 2 * time.Second; ; pause = time.Second {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		var who []string
		var standby bool
		err := watch.do(ctx, func(conn *pgx.Conn) (err error) {
			if who, err = blockers(ctx, conn, pid); err != nil {
				return err
			}
			return conn.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby)
		})
		if err != nil {
			if ctx.Err() == nil {
				log.Debug("cannot tell what slot creation waits for", "error", err)
			}
			continue
		}
		if standby && !told {
			log.Warn("slot creation on a standby waits for the primary to log its running transactions; SELECT pg_log_standby_snapshot() there makes it do so", "slot", name)
			told = true
		}
		if now := strings.Join(who, "; "); now != last && now != "" {
			log.Warn("slot creation waits for open transactions to end", "slot", name, "waits_for", now)
			last = now
		}
	}
}

func blockers(ctx context.Context, conn *pgx.Conn, pid uint32) ([]string, error) {
	rows, err := conn.Query(ctx, `
SELECT format('PID %s (%s, %s, %s since %s)', a.pid, coalesce(nullif(a.application_name, ''), 'unnamed'), coalesce(a.usename::text, '-'),
              coalesce(a.state, '-'), coalesce(to_char(a.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), '-'))
FROM unnest(pg_blocking_pids($1)) b(pid) JOIN pg_stat_activity a ON a.pid = b.pid
UNION ALL
SELECT format('prepared transaction %L of %s since %s', p.gid, p.owner, p.prepared) FROM pg_prepared_xacts p
WHERE 0 = ANY(pg_blocking_pids($1)) ORDER BY 1`, int32(pid))
	if err != nil {
		return nil, err
	}
	who, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return slices.Compact(who), err
}
