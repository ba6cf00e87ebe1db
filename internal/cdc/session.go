package cdc

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// session is an ordinary connection beside the replication connection: for the catalogue, look-ups, figures, and the
// advisory lock that guards a temporary publication. It is made anew when it was lost, unless it holds that lock.
type session struct {
	cfg *pgx.ConnConfig

	mu     sync.Mutex
	conn   *pgx.Conn
	guards bool // an advisory lock depends on the connection
}

func dial(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	unlimited(cfg.RuntimeParams)
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, pg.ConnectFault(&cfg.Config, err)
	}
	return conn, nil
}

// unlimited keeps the time limits of a role or a database from ending what is meant to last: the session that holds the
// lock rests for days, and slot creation waits for open transactions.
func unlimited(params map[string]string) {
	for _, name := range []string{"statement_timeout", "lock_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"} {
		if params[name] == "" {
			params[name] = "0"
		}
	}
}

// do runs f with the connection, one caller at a time.
func (m *session) do(ctx context.Context, f func(*pgx.Conn) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn == nil || m.conn.IsClosed() {
		if m.guards {
			return fault.New(fault.Unreachable, "Run the command again; with --slot a lost connection is made anew.",
				"the connection that guards the temporary publication was lost")
		}
		conn, err := dial(ctx, m.cfg)
		if err != nil {
			return err
		}
		m.conn = conn
	}
	return f(m.conn)
}

func (m *session) close(ctx context.Context) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.conn != nil {
		m.conn.Close(ctx)
	}
}
