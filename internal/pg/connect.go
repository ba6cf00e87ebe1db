package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
)

// DSN is a connection string: a postgres:// URL, a libpq keyword string, or empty for the libpq environment alone. It
// prints without its password (promise 9); Reveal gives the string to a driver.
type DSN string

func (d DSN) String() string   { return Redact(string(d)) }
func (d DSN) GoString() string { return d.String() }
func (d DSN) Reveal() string   { return string(d) }

// HasPassword tells whether the string itself carries a password, and so argv would.
func (d DSN) HasPassword() bool { return Redact(string(d)) != string(d) }

// IsURL tells whether s names a PostgreSQL server by URL or keyword string.
func IsURL(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://") ||
		regexp.MustCompile(`^\s*[a-z_]+\s*=`).MatchString(s)
}

// Settings that make PostgreSQL's text output the one that synctl's renderers and to_json agree on. They are set in
// the start-up packet of every connection that reads values.
var OutputSettings = map[string]string{
	"DateStyle":          "ISO, YMD",
	"IntervalStyle":      "postgres",
	"TimeZone":           "UTC",
	"extra_float_digits": "3",
	"bytea_output":       "hex",
	"client_encoding":    "UTF8",
	"xmloption":          "content",
}

// Parse reads a connection string and the libpq environment and sets what every connection of synctl has: an
// application_name unless the user gave one, and OutputSettings. Errors name what is wrong without the password.
func Parse(dsn DSN, application string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(dsn.Reveal())
	if err != nil {
		return nil, fault.New(fault.Usage,
			"Give a URL such as postgres://user@host:5432/database, a libpq keyword string, or set PGHOST, PGUSER and PGDATABASE.",
			"read connection string: %s", Redact(err.Error()))
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = application
	}
	for k, v := range OutputSettings {
		cfg.RuntimeParams[k] = v
	}
	return cfg, nil
}

// Connect opens one connection. A server that cannot be reached or refuses is a fault of class Unreachable that names host,
// port, user and database.
func Connect(ctx context.Context, dsn DSN, application string) (*pgx.Conn, error) {
	cfg, err := Parse(dsn, application)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, ConnectFault(&cfg.Config, err)
	}
	return conn, nil
}

// ConnectFault explains why a connection could not be made.
func ConnectFault(cfg *pgconn.Config, err error) error {
	hint := "Check that the server runs and listens there, and that a firewall lets us through."
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "28P01", "28000":
			hint = "Check user, password and pg_hba.conf; a password can come from PGPASSFILE or PGPASSWORD."
		case "3D000":
			hint = "Check the database's name, or create it."
		case "53300":
			hint = "Raise max_connections (for replication max_wal_senders), or close other connections."
		case "42501":
			hint = "Run GRANT CONNECT ON DATABASE " + Ident(cfg.Database) + " TO " + Ident(cfg.User) + "."
			if cfg.RuntimeParams["replication"] != "" {
				hint = fmt.Sprintf("Run ALTER ROLE %s REPLICATION as a superuser (Amazon RDS: GRANT rds_replication TO %s).", Ident(cfg.User), Ident(cfg.User))
			}
		case "57P03":
			hint = "The server is starting up or shutting down; try again."
		}
	}
	return fault.New(fault.Unreachable, hint, "connect to PostgreSQL at %s as %s, database %s: %w",
		hostPort(cfg), cfg.User, cfg.Database, redacted{err})
}

// redacted is an error that prints without passwords and still tells what it is: Retryable looks below it.
type redacted struct{ err error }

func (r redacted) Error() string { return Redact(r.err.Error()) }
func (r redacted) Unwrap() error { return r.err }

func hostPort(cfg *pgconn.Config) string {
	if strings.HasPrefix(cfg.Host, "/") {
		return fmt.Sprintf("%s:%d", cfg.Host, cfg.Port)
	}
	return net.JoinHostPort(cfg.Host, fmt.Sprint(cfg.Port))
}

// Retryable tells whether trying again later can help: the connection was lost, the server restarts, a lock or
// serialization failure, too many connections.
func Retryable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch {
		case strings.HasPrefix(pgErr.Code, "08"), // connection exception
			pgErr.Code == "40001", pgErr.Code == "40P01", pgErr.Code == "55P03",
			pgErr.Code == "53300",                                               // too many connections
			pgErr.Code == "57P01", pgErr.Code == "57P02", pgErr.Code == "57P03": // shutdown, crash, cannot connect now
			return true
		}
		return false
	}
	var connectErr *pgconn.ConnectError
	if errors.As(err, &connectErr) {
		return true
	}
	var netErr net.Error
	return errors.As(err, &netErr) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, pgconn.ErrConnClosed) || pgconn.SafeToRetry(err)
}

// Ident quotes an identifier of one part or more: Ident("a", `b"c`) is "a"."b""c".
func Ident(parts ...string) string { return pgx.Identifier(parts).Sanitize() }

// Literal quotes a string as an SQL literal that does not depend on standard_conforming_strings.
func Literal(s string) string {
	if strings.Contains(s, `\`) {
		return ` E'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + `'`
	}
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}

// Endpoint names a server for messages and for state files: host, port, database, without credentials.
func Endpoint(cfg *pgconn.Config) string {
	u := url.URL{Scheme: "postgres", Host: hostPort(cfg), Path: "/" + cfg.Database}
	return u.String()
}
