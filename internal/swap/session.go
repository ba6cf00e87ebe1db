package swap

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

const application = "synctl swap"

// session is the connection that plans and exchanges. It holds the advisory lock of the table.
type session struct {
	*pgx.Conn
	opts    Options
	log     *slog.Logger
	version int // major version of the server
	pid     uint32
	watch   *pgx.Conn // asks who is in the way; nil until needed
}

// A role's or database's own settings must not decide how a swap goes: a statement_timeout would cut an index build,
// a search_path would change what deparsed expressions mean, idle_in_transaction_session_timeout would end a wait.
var quietSettings = []string{
	"SET statement_timeout = 0", "SET lock_timeout = 0", "SET idle_in_transaction_session_timeout = 0",
	"SET default_transaction_isolation = 'read committed'", "SET default_transaction_read_only = off", "SET default_transaction_deferrable = off",
	"SET default_tablespace = ''", "SET row_security = off", "SET check_function_bodies = off", "SET standard_conforming_strings = on",
	"SET quote_all_identifiers = off",
}

func open(ctx context.Context, o Options) (*session, error) {
	conn, err := dial(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: conn, opts: o, log: o.Log, pid: conn.PgConn().PID()}
	if err := s.prepare(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func dial(ctx context.Context, o Options) (*pgx.Conn, error) {
	cfg, err := pg.Parse(o.To, application)
	if err != nil {
		return nil, err
	}
	cfg.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		level := slog.LevelDebug
		if n.Severity == "WARNING" {
			level = slog.LevelWarn
		}
		o.Log.Log(context.Background(), level, "server: "+n.Message, "severity", n.Severity)
	}
	// The tables under the statements change; cached plans and descriptions would only get in the way.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, pg.ConnectFault(&cfg.Config, err)
	}
	return conn, nil
}

func (s *session) prepare(ctx context.Context) error {
	var number int
	var standby bool
	if err := s.QueryRow(ctx, `SELECT current_setting('server_version_num')::int, pg_is_in_recovery()`).Scan(&number, &standby); err != nil {
		return fmt.Errorf("read server version: %w", err)
	}
	s.version = number / 10000
	if s.version < 14 {
		return fault.New(fault.Check, "Use PostgreSQL 14 or later.", "the server is PostgreSQL %d", s.version)
	}
	if standby {
		return fault.New(fault.Unreachable, "Connect to the primary.", "the server is a standby: it cannot be changed")
	}
	return quiet(ctx, s.Conn, s.version)
}

func quiet(ctx context.Context, conn *pgx.Conn, version int) error {
	for _, set := range quietSettings {
		if _, err := conn.Exec(ctx, set); err != nil {
			return fmt.Errorf("%s: %w", set, err)
		}
	}
	if version >= 17 {
		if _, err := conn.Exec(ctx, "SET transaction_timeout = 0"); err != nil {
			return fmt.Errorf("set transaction_timeout: %w", err)
		}
	}
	// A killed client's index build must not go on for hours and keep the next run out. Servers on systems that cannot
	// watch a socket refuse the setting; there an orphan ends with its statement.
	_, _ = conn.Exec(ctx, "SET client_connection_check_interval = '500ms'")
	return nil
}

// planning makes the empty search_path that relation's texts need.
func (s *session) planning(ctx context.Context) error {
	if _, err := s.Exec(ctx, "SET search_path = ''"); err != nil {
		return fmt.Errorf("set search_path: %w", err)
	}
	return nil
}

func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if s.watch != nil {
		s.watch.Close(ctx)
	}
	s.Conn.Close(ctx)
}

// resolve finds a table by the name the user gave, under the role's own search_path. 0 is none.
func (s *session) resolve(ctx context.Context, name string) (uint32, error) {
	if _, _, err := s.parts(ctx, name); err != nil {
		return 0, err // to_regclass itself gives null for what is no name, from 18 on
	}
	var oid *uint32
	if err := s.QueryRow(ctx, `SELECT to_regclass($1)::oid`, name).Scan(&oid); err != nil {
		return 0, nameFault(name, err)
	}
	if oid == nil {
		return 0, nil
	}
	return *oid, nil
}

// parts splits a name as SQL reads it; schema is empty where none was given.
func (s *session) parts(ctx context.Context, name string) (schema, table string, err error) {
	var list []string
	if err := s.QueryRow(ctx, `SELECT parse_ident($1)`, name).Scan(&list); err != nil {
		return "", "", nameFault(name, err)
	}
	switch len(list) {
	case 1:
		return "", list[0], nil
	case 2:
		return list[0], list[1], nil
	}
	return "", "", nameFault(name, fmt.Errorf("it has %d parts", len(list)))
}

func nameFault(name string, err error) error {
	return fault.New(fault.Usage, `Write table, schema.table, or "Odd Name" in double quotes.`, "%q is not a table's name: %w", name, err)
}

// serverFault gives errors of the server the class they have for a caller: lost connections and missing rights are of
// the server, data that break a constraint are a failed check.
func serverFault(err error) error {
	pgErr, ok := asPgError(err)
	switch {
	case err == nil || fault.HintOf(err) != "":
		return err
	case ok && pgErr.Code == "42501":
		return fault.Wrap(fault.Unreachable, "Connect as the owner of the table, or as a role that is a member of it.", err)
	case ok && pgErr.Code[:2] == "23":
		return fault.Wrap(fault.Check, "Correct the data and load it again; the live table was not touched.", detailed(pgErr, err))
	case pg.Retryable(err):
		return fault.Wrap(fault.Unreachable, "Run the same command again: it goes on where this one stopped.", err)
	}
	return err
}

func detailed(pgErr *pgconn.PgError, err error) error {
	if pgErr.Detail == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, pgErr.Detail)
}
