package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Advisory lock classes: the first of the two keys of pg_advisory_lock. "sync" in ASCII, and the number after it.
const (
	lockSchema     = 0x73796e63
	lockCheckpoint = 0x73796e64
)

// schemaSQL makes what a consumer keeps beside the data. docs/replay.md describes every table; keep the two in step.
const schemaSQL = `
CREATE SCHEMA IF NOT EXISTS synctl;
CREATE TABLE IF NOT EXISTS synctl.checkpoint (
	name text, stream text, shard text,
	sequence text NOT NULL DEFAULT '', lines int NOT NULL DEFAULT 0, ended boolean NOT NULL DEFAULT false,
	reread text NOT NULL DEFAULT '', owner bigint NOT NULL DEFAULT 0, updated_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (name, stream, shard));
CREATE TABLE IF NOT EXISTS synctl.floor (
	name text, stream text, shard text, system numeric, timeline bigint, table_schema text, table_name text,
	floor pg_lsn NOT NULL, snapshot pg_lsn NOT NULL DEFAULT '0/0',
	PRIMARY KEY (name, stream, shard, system, timeline, table_schema, table_name));
CREATE TABLE IF NOT EXISTS synctl.seen (
	name text, stream text, shard text, id text, table_schema text NOT NULL, table_name text NOT NULL, commit_lsn pg_lsn NOT NULL,
	PRIMARY KEY (name, stream, shard, id));
CREATE TABLE IF NOT EXISTS synctl.applied (
	name text, stream text, id text, applied_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (name, stream, id));
CREATE TABLE IF NOT EXISTS synctl.held (
	name text, stream text, shard text, n bigint, sequence text NOT NULL, line int NOT NULL,
	table_schema text NOT NULL, table_name text NOT NULL, record text NOT NULL, reason text NOT NULL,
	held_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (name, stream, shard, n));
CREATE TABLE IF NOT EXISTS synctl.truncated (
	name text, stream text, id text, applied_at timestamptz NOT NULL DEFAULT now(),
	PRIMARY KEY (name, stream, id));
ALTER TABLE synctl.floor ADD COLUMN IF NOT EXISTS snapshot pg_lsn NOT NULL DEFAULT '0/0';`

// hasSchema tells whether all of schema synctl is there, so that a role without CREATE can use what an owner made.
func hasSchema(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var n int
	err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace
		WHERE s.nspname = 'synctl' AND c.relname IN ('checkpoint', 'floor', 'seen', 'applied', 'held', 'truncated')
		AND (c.relname <> 'floor' OR EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'snapshot'))`).Scan(&n)
	return n == 6, err
}

// ensureSchema makes schema synctl when it is missing. Two consumers that start at once take turns, as IF NOT EXISTS alone
// does not keep the second from a duplicate key in the catalogue.
func ensureSchema(ctx context.Context, conn *pgx.Conn) error {
	ok, err := hasSchema(ctx, conn)
	if err != nil {
		return err
	}
	if ok {
		return checkSchemaRights(ctx, conn)
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockSchema); err != nil {
			return err
		}
		if err := synchronous(ctx, tx); err != nil {
			return err
		}
		_, err := tx.Conn().PgConn().Exec(ctx, schemaSQL).ReadAll()
		return err
	})
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "42501" {
		return fault.New(fault.Unreachable,
			"GRANT CREATE ON DATABASE to the role for the first run, or let an owner run it once and grant USAGE on schema synctl and SELECT, INSERT, UPDATE, DELETE on its tables.",
			"create schema synctl, which keeps the checkpoint beside the data: %s", pgErr.Message)
	}
	return err
}

// checkSchemaRights says at the start what the role lacks on a schema that another role made.
func checkSchemaRights(ctx context.Context, conn *pgx.Conn) error {
	var role string
	var may bool
	err := conn.QueryRow(ctx, `SELECT current_user::text, has_schema_privilege(s.oid, 'USAGE') AND (
		SELECT bool_and(has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'INSERT') AND has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE'))
		FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname IN ('checkpoint', 'floor', 'seen', 'applied', 'held', 'truncated'))
		FROM pg_namespace s WHERE s.nspname = 'synctl'`).Scan(&role, &may)
	if err != nil {
		return fmt.Errorf("check the rights on schema synctl: %w", err)
	}
	if !may {
		ident := pg.Ident(role)
		return fault.New(fault.Unreachable,
			"As the schema's owner, run GRANT USAGE ON SCHEMA synctl TO "+ident+"; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA synctl TO "+ident+".",
			"role %q may not use schema synctl, which keeps the checkpoint beside the data", role)
	}
	return nil
}

// synchronous makes the transaction's commit last through a crash, whatever the user chose for the data: what later
// commits build on, the schema and the row of a checkpoint, must not be lost alone.
func synchronous(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SET LOCAL synchronous_commit = on")
	return err
}
