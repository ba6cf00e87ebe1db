package testkit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// WorkloadTables is the schema that Workload writes to: every kind of key, TOASTed values, a second unique constraint,
// a foreign key, and a table that is truncated.
const WorkloadTables = `
CREATE SCHEMA shop;
CREATE TABLE shop.orders (
  id bigint PRIMARY KEY, customer integer NOT NULL, amount numeric(20,4), note text, tags text[],
  detail jsonb, placed_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE shop.lines (
  order_id bigint, line smallint, sku text COLLATE "C", price double precision, PRIMARY KEY (order_id, line));
CREATE TABLE shop.accounts (id integer PRIMARY KEY, email text NOT NULL UNIQUE, balance bigint);
CREATE TABLE shop."Odd ""names""" ("the.key" text, "part\2" date, "select" bytea, PRIMARY KEY ("the.key", "part\2"));
CREATE TABLE shop.cart (id integer PRIMARY KEY, owner text);
CREATE TABLE shop.journal (at timestamp, what text);
ALTER TABLE shop.journal REPLICA IDENTITY FULL;
CREATE TABLE shop.full_rows (id integer PRIMARY KEY, big text, n integer);
ALTER TABLE shop.full_rows REPLICA IDENTITY FULL;
ALTER TABLE shop.orders ALTER note SET STORAGE EXTERNAL;
`

// Workload writes to WorkloadTables from several sessions whose transactions overlap: inserts, updates, deletes, key
// updates, truncates, unchanged TOASTed values, savepoints rolled back, whole transactions rolled back.
type Workload struct {
	DSN     string
	Writers int    // sessions; 0 means 4
	Seed    uint64 // of the choice of operations; their interleaving is the server's
	Keys    int    // how many keys a table has at most; 0 means 500
	// Truncates lets the cart be truncated now and then.
	Truncates bool
	// Emails lets accounts exchange their unique e-mail addresses.
	Emails bool
	// Pause is the longest wait within a transaction, which makes transactions overlap; 0 means 2 ms.
	Pause time.Duration

	Transactions atomic.Int64 // committed so far
}

// Run writes until ctx ends or, where n is above 0, n transactions were committed. It fails the test on any error that
// is not the ordinary conflict of concurrent writers.
func (w *Workload) Run(ctx context.Context, t testing.TB, n int64) {
	t.Helper()
	if w.Writers == 0 {
		w.Writers = 4
	}
	if w.Keys == 0 {
		w.Keys = 500
	}
	if w.Pause == 0 {
		w.Pause = 2 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for i := range w.Writers {
		wg.Go(func() {
			if err := w.write(ctx, i, n); err != nil && ctx.Err() == nil {
				t.Errorf("workload writer %d: %v", i, err)
				cancel()
			}
		})
	}
	wg.Wait()
}

func (w *Workload) write(ctx context.Context, writer int, n int64) error {
	rng := rand.New(rand.NewPCG(w.Seed, uint64(writer)))
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	for ctx.Err() == nil && (n <= 0 || w.Transactions.Load() < n) {
		if conn == nil || conn.IsClosed() {
			c, err := pgx.Connect(ctx, w.DSN)
			if err != nil {
				if ctx.Err() == nil && serverAway(err) {
					time.Sleep(100 * time.Millisecond)
					continue
				}
				return err
			}
			conn = c
		}
		err := w.transaction(ctx, conn, rng)
		var pgErr *pgconn.PgError
		switch {
		case err == nil:
			w.Transactions.Add(1)
		case errors.Is(err, errRolledBack):
		case errors.As(err, &pgErr) && (pgErr.Code == "40P01" || pgErr.Code == "40001" || pgErr.Code == "23505"): // conflicts of writers
		case serverAway(err):
		default:
			return err
		}
	}
	return nil
}

func serverAway(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return strings.HasPrefix(pgErr.Code, "57P")
	}
	return true // no answer of the server's: the connection is gone
}

var errRolledBack = errors.New("rolled back on purpose")

func (w *Workload) transaction(ctx context.Context, conn *pgx.Conn, rng *rand.Rand) error {
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	for range 1 + rng.IntN(8) {
		if err := w.change(ctx, tx, rng); err != nil {
			return err
		}
		if rng.IntN(10) == 0 { // a savepoint whose changes are undone
			sub, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			if err := w.change(ctx, sub, rng); err != nil {
				return err
			}
			if err := sub.Rollback(ctx); err != nil {
				return err
			}
		}
		if rng.IntN(4) == 0 {
			time.Sleep(rand.N(w.Pause))
		}
	}
	if rng.IntN(12) == 0 {
		return errRolledBack
	}
	return tx.Commit(ctx)
}

// change makes one change. Statements take the lower key first, where they take two, to keep deadlocks rare.
func (w *Workload) change(ctx context.Context, tx pgx.Tx, rng *rand.Rand) error {
	id := rng.IntN(w.Keys)
	var sql string
	var args []any
	switch k := rng.IntN(100); {
	case k < 25:
		sql = `INSERT INTO shop.orders VALUES ($1::bigint, $2, $3::text::numeric, $4, ARRAY[$5::text, NULL, 'a"b,c'], jsonb_build_object('n', $1::bigint, 's', $5::text))
			ON CONFLICT (id) DO UPDATE SET amount = excluded.amount, tags = excluded.tags`
		args = []any{id, rng.IntN(100), fmt.Sprintf("%d.%04d", rng.IntN(1e9), rng.IntN(1e4)), w.note(rng), randomText(rng, 20)}
	case k < 35: // leaves the TOASTed note unchanged
		sql, args = `UPDATE shop.orders SET customer = customer + 1 WHERE id = $1`, []any{id}
	case k < 40:
		sql, args = `UPDATE shop.orders SET note = $2 WHERE id = $1`, []any{id, w.note(rng)}
	case k < 46: // a key update, with a TOASTed value that is not sent
		sql = `UPDATE shop.orders SET id = $2 WHERE id = $1 AND NOT EXISTS (SELECT FROM shop.orders WHERE id = $2)`
		args = []any{id, rng.IntN(w.Keys)}
	case k < 52:
		sql, args = `DELETE FROM shop.orders WHERE id = $1`, []any{id}
	case k < 62:
		sql = `INSERT INTO shop.lines VALUES ($1, $2, $3, $4) ON CONFLICT (order_id, line) DO UPDATE SET sku = excluded.sku, price = excluded.price`
		args = []any{id, rng.IntN(3), randomText(rng, 8), rng.NormFloat64()}
	case k < 66:
		sql, args = `DELETE FROM shop.lines WHERE order_id = $1`, []any{id}
	case k < 72:
		sql = `INSERT INTO shop."Odd ""names""" VALUES ($1, date '2020-01-01' + $2::int, decode($3, 'hex')) ON CONFLICT DO NOTHING`
		args = []any{"k.\\" + randomText(rng, 2), id, fmt.Sprintf("%x", randomText(rng, 10))}
	case k < 75:
		sql, args = `UPDATE shop."Odd ""names""" SET "the.key" = "the.key" || '.' WHERE "part\2" = date '2020-01-01' + $1::int AND length("the.key") < 30`, []any{id}
	case k < 80:
		sql = `INSERT INTO shop.full_rows VALUES ($1, $2, 0) ON CONFLICT (id) DO UPDATE SET n = shop.full_rows.n + 1`
		args = []any{id, w.note(rng)}
	case k < 83:
		sql, args = `DELETE FROM shop.full_rows WHERE id = $1`, []any{id}
	case k < 88:
		sql, args = `INSERT INTO shop.journal VALUES (clock_timestamp(), $1), (NULL, $1), (NULL, $1)`, []any{randomText(rng, 1)}
	case k < 90: // one of several identical rows
		sql, args = `DELETE FROM shop.journal WHERE ctid = (SELECT ctid FROM shop.journal WHERE what = $1 LIMIT 1)`, []any{randomText(rng, 1)}
	case k < 94:
		sql = `INSERT INTO shop.accounts VALUES ($1::integer, 'user' || $1::integer || '@example.org', 0) ON CONFLICT (id) DO UPDATE SET balance = shop.accounts.balance + 1`
		args = []any{id}
	case k < 97 && w.Emails: // the address is given up by one account and taken by another, in one transaction
		other := rng.IntN(w.Keys)
		if other == id {
			return nil
		}
		if _, err := tx.Exec(ctx, `UPDATE shop.accounts SET email = 'left-' || id || '-' || $2::text WHERE id = $1`, id, fmt.Sprint(rng.Uint64())); err != nil {
			return err
		}
		sql, args = `UPDATE shop.accounts SET email = 'user' || $1::integer || '@example.org' WHERE id = $2
			AND NOT EXISTS (SELECT FROM shop.accounts WHERE email = 'user' || $1::integer || '@example.org')`, []any{id, other}
	case k == 99 && w.Truncates && rng.IntN(4) == 0:
		sql = `TRUNCATE shop.cart`
	default:
		sql, args = `INSERT INTO shop.cart VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET owner = excluded.owner`, []any{id, randomText(rng, 5)}
	}
	_, err := tx.Exec(ctx, sql, args...)
	return err
}

func (w *Workload) note(rng *rand.Rand) string {
	if rng.IntN(3) == 0 {
		return randomText(rng, 4000) // TOASTed
	}
	return randomText(rng, 30)
}

func randomText(rng *rand.Rand, n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzäß\\\"'\t\nπ漢🙂"
	runes := []rune(letters)
	var b strings.Builder
	for range n {
		b.WriteRune(runes[rng.IntN(len(runes))])
	}
	return b.String()
}

// SameTables fails the test for every table of schema whose rows differ between two databases, naming the first rows
// that only one of them has.
func SameTables(t testing.TB, sourceDSN, targetDSN, schema string) {
	t.Helper()
	ctx := context.Background()
	source, target := Connect(t, sourceDSN), Connect(t, targetDSN)
	rows, err := source.Query(ctx, `SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables WHERE schemaname = $1 ORDER BY 1`, schema)
	if err != nil {
		t.Fatal(err)
	}
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(tables) == 0 {
		t.Fatalf("tables of schema %s: %v %v", schema, tables, err)
	}
	for _, table := range tables {
		a, b := tableRows(t, source, table), tableRows(t, target, table)
		missing, extra := 0, 0
		for row, n := range a {
			if d := n - b[row]; d > 0 {
				if missing++; missing <= 3 {
					t.Errorf("%s: target lacks %d × %.300s", table, d, row)
				}
			}
		}
		for row, n := range b {
			if d := n - a[row]; d > 0 {
				if extra++; extra <= 3 {
					t.Errorf("%s: target has besides %d × %.300s", table, d, row)
				}
			}
		}
		if missing+extra > 0 {
			t.Errorf("%s: %d rows differ or are missing, %d are too many", table, missing, extra)
		}
	}
}

func tableRows(t testing.TB, conn *pgx.Conn, table string) map[string]int {
	t.Helper()
	rows, err := conn.Query(context.Background(), `SELECT t::text FROM `+table+` t`)
	if err != nil {
		t.Fatalf("read %s: %v", table, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("read %s: %v", table, err)
	}
	m := make(map[string]int, len(list))
	for _, row := range list {
		m[row]++
	}
	return m
}
