package bulk

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Follow is what a run does with its staging table once that is complete. The load's lock is held meanwhile, so a poller
// is told that the run is running until all of it is done.
type Follow struct {
	// Check is called before a row is read, so that hours of loading do not end at what was known before. create is the SQL
	// that will make the staging table.
	Check func(ctx context.Context, t Tables, create []string) error
	// Do works on the complete staging table. A later try of a run with an ID, which finds what an earlier try loaded, calls
	// it alone: it has to go on where that one was.
	Do func(ctx context.Context, t Tables) error
}

// Tables are the names of a load's tables, qualified and quoted.
type Tables struct{ Live, Staging string }

func (l *Load) tables() Tables {
	return Tables{Live: pg.Ident(l.live.schema, l.live.name), Staging: l.staging.ident()}
}

// precheck asks whether what follows the load can be done at all.
func (l *Load) precheck(ctx context.Context, old bool) error {
	if l.o.Follow == nil {
		return nil
	}
	var create []string
	if old {
		create = append(create, "DROP TABLE IF EXISTS "+l.staging.ident())
	}
	return l.o.Follow.Check(ctx, l.tables(), append(create, l.staging.createSQL()...))
}

// follow does what comes after the load, and remembers how it ended. The staging table stays, whatever happens: the next
// try goes on with it, or loads again where a check has refused it, and a person may want to look at it.
func (l *Load) follow(ctx context.Context, sum *Summary) error {
	if l.o.Follow == nil {
		return nil
	}
	// The session has nothing to do now, and holds the lock.
	if _, err := l.conn.Exec(ctx, "SET idle_session_timeout = 0"); err != nil {
		return serverFault(fmt.Errorf("set idle_session_timeout: %w", err))
	}
	cause := l.o.Follow.Do(ctx, l.tables())
	if l.o.RunID == "" {
		return cause
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanPatience)
	defer cancel()
	conn, err := l.alive(clean)
	if err == nil && cause != nil {
		err = l.noteFailed(clean, conn, sum, cause)
	} else if err == nil {
		err = l.noteLive(clean, conn, sum)
	}
	switch {
	case cause != nil && err != nil:
		l.o.Log.Warn("the run's failure could not be recorded", "run", l.o.RunID, "error", err)
		return cause
	case cause != nil:
		return cause
	case err != nil:
		return serverFault(fmt.Errorf("note that run %s is done, which it is: %w", l.o.RunID, err))
	}
	return nil
}

func (l *Load) noteLive(ctx context.Context, conn *pgx.Conn, sum *Summary) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := endRun(ctx, tx, l.o.RunID, sum, exitOf(sum), nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE synctl.load_run SET live_at = clock_timestamp() WHERE run_id = $1`, l.o.RunID)
		return err
	})
}

func (l *Load) noteFailed(ctx context.Context, conn *pgx.Conn, sum *Summary, cause error) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := endRun(ctx, tx, l.o.RunID, sum, int(fault.ClassOf(cause)), cause); err != nil || fault.ClassOf(cause) != fault.Check {
			return err
		}
		_, err := tx.Exec(ctx, `UPDATE synctl.load_run SET loaded_at = NULL WHERE run_id = $1`, l.o.RunID)
		return err
	})
}

// alive is the load's connection, or a new one where that is gone.
func (l *Load) alive(ctx context.Context) (*pgx.Conn, error) {
	if !l.conn.IsClosed() {
		return l.conn, nil
	}
	conn, err := pg.Connect(ctx, l.o.To, "synctl bulk load")
	if err == nil {
		l.conn = conn // closed like the other
	}
	return conn, err
}

// loaded tells whether what an earlier try of the run loaded is there to go on with: in its place, or brought live by a try
// that was killed before it could say so.
func (l *Load) loaded(ctx context.Context, r *Run) (bool, error) {
	if r.LoadedAt == nil || r.stagingOID == nil || r.Staging != l.staging.String() {
		return false, nil
	}
	var inPlace, occupied, emptied bool
	var name string
	err := l.conn.QueryRow(ctx, `SELECT coalesce(to_regclass($2)::oid = c.oid, false), to_regclass($2) IS NOT NULL, c.relpersistence = 'u', c.oid::regclass::text FROM pg_class c WHERE c.oid = $1`,
		*r.stagingOID, l.staging.ident()).Scan(&inPlace, &occupied, &emptied, &name)
	if errors.Is(err, pgx.ErrNoRows) {
		l.o.Log.Info("what an earlier try of this run loaded is gone: loading again", "run", r.ID)
		return false, nil
	}
	if err == nil && inPlace && emptied && r.Rows != nil && *r.Rows > 0 {
		// A crash of the server empties an unlogged table and leaves the ledger.
		err = l.conn.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM "+l.staging.ident()+")").Scan(&emptied)
		if err == nil && emptied {
			l.o.Log.Warn("what an earlier try of this run loaded is gone with a crash of the server: loading again", "run", r.ID)
			return false, nil
		}
	}
	if err != nil {
		return false, serverFault(fmt.Errorf("look for staging table: %w", err))
	}
	if !inPlace && occupied {
		return false, fault.New(fault.Check, "Nothing was changed. If the data have to be loaded again, use another --run-id.",
			"run %s has loaded table %s, which has been brought live or renamed since, and %s is another load's", r.ID, name, l.staging)
	}
	return true, nil
}
