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
	conn, err := pgx.ConnectConfig(ctx, cfg.Copy())
	if err != nil {
		return nil, pg.ConnectFault(&cfg.Config, err)
	}
	return conn, nil
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
