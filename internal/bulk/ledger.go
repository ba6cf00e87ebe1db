package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// ledgerSQL makes what synctl keeps of runs in the target database.
const ledgerSQL = `CREATE SCHEMA IF NOT EXISTS synctl;
CREATE TABLE IF NOT EXISTS synctl.load_run (
	run_id        text PRIMARY KEY,
	live_table    text NOT NULL,
	live_oid      oid NOT NULL,
	staging_table text NOT NULL,
	source        text NOT NULL,
	server_pid    int NOT NULL,
	state         text NOT NULL CHECK (state IN ('running', 'done', 'failed')),
	started_at    timestamptz NOT NULL,
	finished_at   timestamptz,
	rows_read     bigint,
	rows_copied   bigint,
	rows_rejected bigint,
	bytes         bigint,
	exit_code     int,
	staging_oid   oid,
	loaded_at     timestamptz,
	live_at       timestamptz,
	error         text
)`

// Run is what the ledger knows of one run.
type Run struct {
	ID         string     `json:"run_id"`
	State      string     `json:"state"` // running, done, failed, interrupted, unknown
	Table      string     `json:"table,omitempty"`
	Staging    string     `json:"staging,omitempty"`
	Source     string     `json:"source,omitempty"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	Rows       *int64     `json:"rows,omitempty"` // copied
	Rejected   *int64     `json:"rejected,omitempty"`
	Bytes      *int64     `json:"bytes,omitempty"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	Error      *string    `json:"error,omitempty"`

	LoadedAt *time.Time `json:"loaded_at,omitempty"` // when the staging table was complete
	LiveAt   *time.Time `json:"live_at,omitempty"`   // when the same run had brought it live

	oid        uint32
	pid        int32
	stagingOID *uint32
}

// ensureLedger makes schema and table where they are missing. Two runs that do so at once must not meet.
func ensureLedger(ctx context.Context, conn *pgx.Conn) error {
	var there bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('synctl.load_run') IS NOT NULL`).Scan(&there); err != nil {
		return serverFault(fmt.Errorf("look for synctl.load_run: %w", err))
	}
	if there {
		return nil
	}
	return inTransaction(ctx, conn, []string{fmt.Sprintf("SELECT pg_advisory_xact_lock(%d, 0)", lockClass), ledgerSQL})
}

// findRun reads a run; nil when there is none of that ID.
func findRun(ctx context.Context, conn *pgx.Conn, id string) (*Run, error) {
	r := &Run{ID: id}
	err := conn.QueryRow(ctx, `SELECT state, live_table, live_oid, server_pid, staging_table, source, started_at, finished_at, rows_copied, rows_rejected, bytes, exit_code, error,
		staging_oid, loaded_at, live_at
		FROM synctl.load_run WHERE run_id = $1`, id).
		Scan(&r.State, &r.Table, &r.oid, &r.pid, &r.Staging, &r.Source, &r.StartedAt, &r.FinishedAt, &r.Rows, &r.Rejected, &r.Bytes, &r.ExitCode, &r.Error, &r.stagingOID, &r.LoadedAt, &r.LiveAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, serverFault(fmt.Errorf("read synctl.load_run: %w", err))
	}
	return r, nil
}

// beginRun writes that the run is under way.
func beginRun(ctx context.Context, conn *pgx.Conn, id string, s *staging, source string) error {
	_, err := conn.Exec(ctx, `INSERT INTO synctl.load_run (run_id, live_table, live_oid, server_pid, staging_table, source, state, started_at)
		VALUES ($1, $2, $3, pg_backend_pid(), $4, $5, 'running', clock_timestamp())
		ON CONFLICT (run_id) DO UPDATE SET live_oid = excluded.live_oid, server_pid = excluded.server_pid, staging_table = excluded.staging_table, state = 'running', started_at = excluded.started_at,
			finished_at = NULL, rows_read = NULL, rows_copied = NULL, rows_rejected = NULL, bytes = NULL, exit_code = NULL, error = NULL,
			staging_oid = NULL, loaded_at = NULL, live_at = NULL`,
		id, s.live.String(), s.live.oid, s.String(), source)
	if err != nil {
		return serverFault(fmt.Errorf("write synctl.load_run: %w", err))
	}
	return nil
}

// takeRun writes that a later try goes on with what an earlier one loaded.
func takeRun(ctx context.Context, conn *pgx.Conn, id string) error {
	_, err := conn.Exec(ctx, `UPDATE synctl.load_run SET state = 'running', server_pid = pg_backend_pid(), finished_at = NULL, exit_code = NULL, error = NULL WHERE run_id = $1`, id)
	if err != nil {
		return serverFault(fmt.Errorf("write synctl.load_run: %w", err))
	}
	return nil
}

// noteLoaded writes that the staging table is complete, and which it is: whatever follows may rename it.
func noteLoaded(ctx context.Context, tx execer, id string, s *Summary, staging string) error {
	_, err := tx.Exec(ctx, `UPDATE synctl.load_run SET loaded_at = clock_timestamp(), staging_oid = to_regclass($2)::oid, rows_read = $3, rows_copied = $4, rows_rejected = $5, bytes = $6
		WHERE run_id = $1`, id, staging, s.RowsRead, s.Rows, s.Rejected, s.Bytes)
	if err != nil {
		return serverFault(fmt.Errorf("write synctl.load_run: %w", err))
	}
	return nil
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// endRun writes how the run ended. It runs in the transaction that marks the staging table, when there is one.
func endRun(ctx context.Context, tx execer, id string, s *Summary, exit int, cause error) error {
	state, text := "done", (*string)(nil)
	if cause != nil {
		state = "failed"
		msg := pg.Redact(cause.Error())
		text = &msg
	}
	_, err := tx.Exec(ctx, `UPDATE synctl.load_run SET state = $2, finished_at = clock_timestamp(), rows_read = $3, rows_copied = $4, rows_rejected = $5, bytes = $6,
		exit_code = $7, error = $8 WHERE run_id = $1`, id, state, s.RowsRead, s.Rows, s.Rejected, s.Bytes, exit, text)
	if err != nil {
		return serverFault(fmt.Errorf("write synctl.load_run: %w", err))
	}
	return nil
}

// Status tells how a run stands. One that says "running" and whose lock nobody holds was killed.
func Status(ctx context.Context, dsn pg.DSN, id string) (*Run, error) {
	conn, err := pg.Connect(ctx, dsn, "synctl bulk status")
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var there bool
	if err := conn.QueryRow(ctx, `SELECT to_regclass('synctl.load_run') IS NOT NULL`).Scan(&there); err != nil {
		return nil, serverFault(fmt.Errorf("look for synctl.load_run: %w", err))
	}
	var r *Run
	if there {
		if r, err = findRun(ctx, conn, id); err != nil {
			return nil, err
		}
	}
	if r == nil {
		return &Run{ID: id, State: "unknown"}, nil
	}
	if r.State == "running" {
		pid, err := lockHolder(ctx, conn, r.oid)
		if err != nil {
			return nil, serverFault(fmt.Errorf("look for the run's lock: %w", err))
		}
		if pid != r.pid {
			r.State = "interrupted"
		}
	}
	return r, nil
}

// Fault is how a run's state ends 'bulk status': nil for one that is done.
func (r *Run) Fault() error {
	switch r.State {
	case "done":
		if r.Rejected != nil && *r.Rejected > 0 {
			return fault.New(fault.DeadLetters, "", "run %s is done, %d rows are in its dead-letter file", r.ID, *r.Rejected)
		}
		return nil
	case "failed":
		return fault.New(fault.Failed, "Mend the cause and start it again with the same --run-id.", "run %s failed: %s", r.ID, *r.Error)
	case "interrupted":
		return fault.New(fault.Failed, "Start it again with the same --run-id.", "run %s was killed: nobody holds its lock", r.ID)
	case "unknown":
		return fault.New(fault.Check, "Check the ID and the database.", "no run %s is known here", r.ID)
	}
	return fault.New(fault.Check, "Ask again later.", "run %s is running", r.ID)
}
