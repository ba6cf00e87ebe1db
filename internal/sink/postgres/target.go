package postgres

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// Options say where and how to apply.
type Options struct {
	DSN        pg.DSN
	Checkpoint string // the consumer's name; empty: "default"
	Stream     string // the stream's name: a checkpoint belongs to (name, stream, shard)

	// Map gives the target's table for a record's; nil keeps the name.
	Map func(schema, table string) (string, string)
	// Only tells whether a table is wanted; nil: all are. It is asked for the tables of a truncate.
	Only func(schema, table string) bool

	OverwriteExisting bool // an insert whose key exists replaces the row, instead of ending the run
	IgnoreMissing     bool // an update or delete that finds no row is counted, instead of ending the run

	Connections int           // at most; 0: 4
	BatchBytes  int           // of lines in one transaction, about; 0: 4 MiB
	HoldBytes   int64         // of records that wait for another shard, over all shards; 0: 16 MiB
	HoldTime    time.Duration // how long one may wait; 0: 10 min
	HoldRetry   time.Duration // between two attempts; 0: 200 ms

	Log *slog.Logger // nil: nothing is logged
}

func (o *Options) defaults() {
	if o.Checkpoint == "" {
		o.Checkpoint = "default"
	}
	if o.Map == nil {
		o.Map = func(s, t string) (string, string) { return s, t }
	}
	if o.Only == nil {
		o.Only = func(string, string) bool { return true }
	}
	if o.Connections == 0 {
		o.Connections = 4
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 4 << 20
	}
	if o.HoldBytes == 0 {
		o.HoldBytes = 16 << 20
	}
	if o.HoldTime == 0 {
		o.HoldTime = 10 * time.Minute
	}
	if o.HoldRetry == 0 {
		o.HoldRetry = 200 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// ErrStopped is what a batch is done with that waited for other shards when the run was stopped: what was committed of it is
// in the checkpoint, the rest comes again.
var ErrStopped = errors.New("stopped while waiting for other shards")

// Stats are a target's figures so far.
type Stats struct {
	Applied    int64 // changes
	Duplicates int64 // changes dropped because they had been applied
	Missing    int64 // updates and deletes without a row, where that is ignored
	Skipped    int64 // logical messages, which have no row
	Held       int64 // records waiting for another shard now
	HeldBytes  int64
	Truncates  int64
	Commits    int64
}

// Target is a database to which records are applied.
type Target struct {
	opts  Options
	cfg   *pgx.ConnConfig
	owner int64 // fences a consumer that lost its lock

	lock  *pgx.Conn // holds the advisory lock of the checkpoint
	conns chan *conn

	mu         sync.Mutex // guards lock
	barriers   barriers
	deferrable bool // the database has constraints that can be deferred

	warned   sync.Map // what was warned of, so that each shard does not say it again
	heldMu   sync.Mutex
	held     map[string]heldTotals // by shard
	released atomic.Int64          // held records that could be applied
	stats    struct {
		applied, duplicates, missing, skipped, truncates, commits atomic.Int64
	}
}

// conn is a connection or the place for one.
type conn struct{ *pgx.Conn }

// Open connects, makes schema synctl where it is missing, and takes the checkpoint: one consumer at a time has it.
func Open(ctx context.Context, o Options) (*Target, error) {
	o.defaults()
	cfg, err := config(o.DSN)
	if err != nil {
		return nil, err
	}
	t := &Target{opts: o, cfg: cfg, owner: newOwner(), conns: make(chan *conn, o.Connections), held: map[string]heldTotals{}}
	t.barriers.init()
	for range o.Connections {
		t.conns <- &conn{}
	}
	if t.lock, err = connect(ctx, cfg); err != nil {
		return nil, err
	}
	if err := t.prepare(ctx); err != nil {
		t.lock.Close(ctx)
		return nil, err
	}
	return t, nil
}

func (t *Target) prepare(ctx context.Context) error {
	if err := ensureSchema(ctx, t.lock); err != nil {
		return err
	}
	if err := lockConsumer(ctx, t.lock, t.opts.Checkpoint, t.opts.Stream); err != nil {
		return err
	}
	return t.lock.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_constraint WHERE condeferrable)").Scan(&t.deferrable)
}

// config is the configuration of our connections: plans are made for each execution, as a plan made while a table was small
// would read all of it later; and the session that holds the lock, which is idle, is not to be ended for that.
func config(dsn pg.DSN) (*pgx.ConnConfig, error) {
	cfg, err := pg.Parse(dsn, "synctl replay")
	if err != nil {
		return nil, err
	}
	for k, v := range map[string]string{"plan_cache_mode": "force_custom_plan", "jit": "off", "idle_session_timeout": "0"} {
		if _, ok := cfg.RuntimeParams[k]; !ok {
			cfg.RuntimeParams[k] = v
		}
	}
	return cfg, nil
}

func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	c, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, &connectError{pg.ConnectFault(&cfg.Config, err), pg.Retryable(err)}
	}
	return c, nil
}

// lost makes err one that opening the shard again can help against, when it came with the loss of its connection: what the
// driver says then does not always tell.
func lost(ctx context.Context, c *pgx.Conn, err error) error {
	if err != nil && ctx.Err() == nil && c.IsClosed() {
		return &connectError{err, true}
	}
	return err
}

// connectError is the fault of a connection that was not made or was lost, and whether there may be one later.
type connectError struct {
	error
	retry bool
}

func (e *connectError) Unwrap() error { return e.error }

func newOwner() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return int64(binary.BigEndian.Uint64(b[:]))
}

// lockConsumer takes the advisory lock of a checkpoint for the session.
func lockConsumer(ctx context.Context, c *pgx.Conn, name, stream string) error {
	// A consumer that was killed can leave its session behind for a moment.
	deadline := time.Now().Add(3 * time.Second)
	for {
		var ok bool
		if err := c.QueryRow(ctx, "SELECT pg_try_advisory_lock($1, hashtext($2))", int32(lockCheckpoint), name+"\n"+stream).Scan(&ok); err != nil {
			return err
		}
		if ok {
			return nil
		}
		if time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	var pid int
	_ = c.QueryRow(ctx, `SELECT l.pid FROM pg_locks l WHERE l.locktype = 'advisory' AND l.classid = $1::bigint::oid AND l.granted
		AND l.objid = (hashtext($2)::bigint & 4294967295)::oid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`,
		int64(lockCheckpoint), name+"\n"+stream).Scan(&pid)
	return fault.New(fault.Unreachable,
		"Stop the other one, or give this one a checkpoint of its own with --checkpoint NAME.",
		"checkpoint %q of stream %s is in use by another consumer (PID %d on the server)", name, stream, pid)
}

// relock takes the lock again after its connection was lost. Whoever took it meanwhile has changed the owner of the
// checkpoints, which every commit of ours checks.
func (t *Target) relock(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.lock.Ping(ctx); err == nil {
		return nil
	} else if ctx.Err() != nil {
		return ctx.Err()
	}
	t.lock.Close(ctx)
	c, err := connect(ctx, t.cfg)
	if err != nil {
		return err
	}
	if err := lockConsumer(ctx, c, t.opts.Checkpoint, t.opts.Stream); err != nil {
		err = lost(ctx, c, err)
		c.Close(ctx)
		return err
	}
	t.lock = c
	return nil
}

// acquire takes a connection; give it back with t.conns <-.
func (t *Target) acquire(ctx context.Context) (*conn, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case c := <-t.conns:
		if c.Conn != nil && !c.IsClosed() {
			return c, nil
		}
		fresh, err := connect(ctx, t.cfg)
		c.Conn = fresh
		if err != nil {
			c.Conn = nil
			t.conns <- c
			return nil, err
		}
		return c, nil
	}
}

// warn says something of a table once.
func (t *Target) warn(tab *table, msg string, args ...any) {
	if _, said := t.warned.LoadOrStore(tab.ident+msg, true); !said {
		t.opts.Log.Warn(msg, append([]any{"table", tab.ident}, args...)...)
	}
}

// Stats gives the figures so far.
func (t *Target) Stats() Stats {
	s, held := &t.stats, t.heldNow()
	return Stats{
		Applied: s.applied.Load(), Duplicates: s.duplicates.Load(), Missing: s.missing.Load(), Skipped: s.skipped.Load(),
		Held: held.records, HeldBytes: held.bytes, Truncates: s.truncates.Load(), Commits: s.commits.Load(),
	}
}

// Endpoint names the database without credentials.
func (t *Target) Endpoint() string { return pg.Endpoint(&t.cfg.Config) }

// Close closes the connections. Every Shard must have been closed.
func (t *Target) Close(ctx context.Context) error {
	for range cap(t.conns) {
		if c := <-t.conns; c.Conn != nil {
			c.Close(ctx)
		}
	}
	return t.lock.Close(ctx)
}

// Retryable tells whether opening the shard again from its committed checkpoint can help.
func Retryable(err error) bool {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "57014" { // statement_timeout, or a cancel by an operator
		return true
	}
	if c, ok := errors.AsType[*connectError](err); ok {
		return c.retry
	}
	return errors.Is(err, errRewind) || pg.Retryable(err)
}

// errRewind: what the database holds is not what we committed last: the server crashed and lost an asynchronous commit, or the answer
// to a commit was lost.
var errRewind = errors.New("the checkpoint in the database is not the one we committed last")
