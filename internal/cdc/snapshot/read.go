package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// layout is what a chunk's query needs to know of its table.
type layout struct {
	shape  *Shape
	kind   string   // pg_class.relkind
	filter string   // the publication's row filter
	order  []string // the key's columns as its index has them; empty: no key
	types  map[string]string
	rows   int64
}

// errGone says why there is nothing more to read of a table.
type errGone struct{ reason string }

func (e *errGone) Error() string { return e.reason }

// read reads a chunk's rows in one transaction.
func (r *Run) read(conn *pgx.Conn, c *Chunk) error {
	c.rows, c.count, c.bytes, c.last, c.whole, c.key = nil, 0, 0, nil, false, nil
	err := r.readWithin(conn, c)
	var gone *errGone
	var e *pgconn.PgError
	switch {
	case err == nil:
	case errors.As(err, &gone):
		c.gone, c.rows, c.whole = gone.reason, nil, true
		err = nil
	case errors.As(err, &e) && (e.Code == "42P01" || e.Code == "3F000"):
		c.gone, c.rows, c.whole = "it was dropped", nil, true
		err = nil
	case errors.As(err, &e) && e.Code == "42501":
		return fault.New(fault.Unreachable, fmt.Sprintf("GRANT SELECT ON %s to the role; a snapshot reads the table itself.", pg.Ident(c.job.Schema, c.job.Table)),
			"snapshot of %s.%s: %w", c.job.Schema, c.job.Table, err)
	case errors.As(err, &e) && !lost(err):
		return fault.New(fault.Failed, "See whether the --where of the snapshot fits the table; then run the same command again: it goes on where it was.",
			"snapshot of %s.%s: %w", c.job.Schema, c.job.Table, err)
	default:
		return err
	}
	if c.gone != "" && c.stream != nil {
		close(c.seen)
	}
	if !conn.IsClosed() {
		if _, err := conn.Exec(r.ctx, "ROLLBACK"); err != nil && c.stream == nil {
			return err
		}
	}
	if c.stream == nil {
		r.spent(c.count)
	}
	if c.keys == nil && c.to == nil { // it found where the next one begins
		r.mu.Lock()
		if c.last != nil {
			c.job.next = c.last
		}
		c.job.all, c.job.busy = c.whole || c.stream != nil, false
		r.changed.Broadcast()
		r.mu.Unlock()
	}
	return nil
}

func (r *Run) readWithin(conn *pgx.Conn, c *Chunk) error {
	j := c.job
	name := pg.Ident(j.Schema, j.Table)
	// The lock comes before the snapshot, so that no TRUNCATE and no ALTER TABLE that rewrites comes between them.
	// The settings make the planner walk the key's index, and give rows from the first on. All of it is one message to the server.
	_, err := conn.PgConn().Exec(r.ctx, `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE `+name+` IN ACCESS SHARE MODE;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off; SET LOCAL cursor_tuple_fraction = 0.0001;
SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0`).ReadAll()
	if err != nil {
		return err
	}
	if c.snap, _, err = r.look(conn); err != nil {
		return err
	}
	l, err := r.layoutOf(conn, j)
	if err != nil {
		return err
	}
	c.shape = l.shape
	if j.Keyless || len(l.order) == 0 {
		return r.readWhole(conn, c, l)
	}
	for i, col := range l.shape.Columns {
		if slices.Contains(l.order, col.Name) {
			c.key = append(c.key, i)
		}
	}
	r.mu.Lock()
	j.estimate = l.rows
	r.mu.Unlock()
	if c.keys == nil && c.to == nil && r.cfg.Workers > 1 {
		if err := r.cut(conn, c, l); err != nil {
			return err
		}
	}
	if err := r.declare(conn, l.query(c, j.Where)); err != nil {
		return err
	}
	return r.fetch(conn, c, l, r.cfg.ChunkBytes, func(block []byte) error {
		c.rows = append(c.rows, block)
		return nil
	})
}

// declare opens the cursor. A --where is part of the query, so it goes as one statement that cannot hold another.
func (r *Run) declare(conn *pgx.Conn, query string) error {
	return conn.PgConn().ExecParams(r.ctx, "DECLARE synctl_chunk NO SCROLL CURSOR FOR "+query, nil, nil, nil, nil).Read().Err
}

// query selects the chunk's rows.
func (l *layout) query(c *Chunk, where string) string {
	var b strings.Builder
	b.WriteString(l.selectFrom())
	conds := l.conditions(where)
	if c.from != nil {
		conds = append(conds, l.bound(">", c.from))
	}
	if c.to != nil {
		conds = append(conds, l.bound("<=", c.to))
	}
	if c.keys != nil {
		var names []string
		for _, i := range c.key {
			names = append(names, l.shape.Columns[i].Name)
		}
		var list []string
		for _, k := range c.keys {
			list = append(list, l.tuple(names, k))
		}
		conds = append(conds, "("+idents(names)+") IN ("+strings.Join(list, ", ")+")")
	}
	if len(conds) > 0 {
		b.WriteString(" WHERE " + strings.Join(conds, " AND "))
	}
	if c.keys == nil {
		b.WriteString(" ORDER BY " + idents(l.order))
	}
	return b.String()
}

func (l *layout) selectFrom() string {
	var names []string
	for _, c := range l.shape.Columns {
		names = append(names, c.Name)
	}
	only := "ONLY "
	if l.kind == "p" {
		only = ""
	}
	return "SELECT " + idents(names) + " FROM " + only + pg.Ident(l.shape.Schema, l.shape.Name)
}

func (l *layout) conditions(where string) (conds []string) {
	for _, w := range []string{l.filter, where} {
		if w != "" {
			conds = append(conds, "("+w+")")
		}
	}
	return conds
}

func (l *layout) bound(op string, key []string) string {
	return "(" + idents(l.order) + ") " + op + " " + l.tuple(l.order, key)
}

func (l *layout) tuple(names, key []string) string {
	var parts []string
	for i, n := range names {
		parts = append(parts, "CAST("+quote(key[i])+" AS "+l.types[n]+")")
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

func quote(s string) string {
	return "E'" + strings.ReplaceAll(strings.ReplaceAll(s, `\`, `\\`), "'", "''") + "'"
}

func idents(names []string) string {
	var q []string
	for _, n := range names {
		q = append(q, pg.Ident(n))
	}
	return strings.Join(q, ", ")
}

// cut finds where a chunk ends, so that another worker can begin behind it while this one reads.
func (r *Run) cut(conn *pgx.Conn, c *Chunk, l *layout) error {
	j := c.job
	rows := r.chunkRows(j)
	conds := l.conditions(j.Where)
	if c.from != nil {
		conds = append(conds, l.bound(">", c.from))
	}
	q := "SELECT " + idents(l.order) + strings.TrimPrefix(l.selectFrom(), l.selectFrom()[:strings.Index(l.selectFrom(), " FROM ")])
	if len(conds) > 0 {
		q += " WHERE " + strings.Join(conds, " AND ")
	}
	q += fmt.Sprintf(" ORDER BY %s OFFSET %d LIMIT 1", idents(l.order), rows-1)
	res := conn.PgConn().ExecParams(r.ctx, q, nil, nil, nil, nil).Read()
	if res.Err != nil {
		return res.Err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(res.Rows) == 0 {
		return nil // the last one: it ends where the table does
	}
	for _, v := range res.Rows[0] {
		c.to = append(c.to, string(v))
	}
	j.next, j.busy = c.to, false
	r.changed.Broadcast()
	return nil
}

// chunkRows is how many rows a chunk should have, by those that were read so far.
func (r *Run) chunkRows(j *Job) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	width := int64(1000)
	if j.Rows > 0 {
		width = max(j.Bytes/j.Rows, 1)
	}
	n := max(r.cfg.ChunkBytes/width, 1)
	if r.cfg.Rate > 0 {
		n = min(n, r.cfg.Rate)
	}
	return n
}

// fetch reads from the cursor until there is nothing more or the chunk is full. How many rows it asks for at a time follows their
// width, so that what is asked for fits.
func (r *Run) fetch(conn *pgx.Conn, c *Chunk, l *layout, limit int64, take func([]byte) error) error {
	j := c.job
	// A chunk that has an end, or is the whole table, is read to it; another one until it is full.
	n, bounded := max(j.perFetch, 1), c.to != nil || c.keys != nil || c.stream != nil
	f := filler{c: c, columns: len(l.shape.Columns), take: take}
	for {
		got, cut, err := f.fetch(r.ctx, conn, n, 4*limit)
		if err != nil {
			return err
		}
		if cut { // rows are far wider than those before: what has come is a chunk, the rest another one's
			conn.Close(r.ctx)
			n = 1
			break
		}
		c.whole = got < n
		full := !bounded && (c.bytes >= limit || r.cfg.Rate > 0 && int64(c.count) >= r.cfg.Rate)
		if c.whole || full {
			break
		}
		if c.stream != nil && !r.paced(got) {
			return r.ctx.Err()
		}
		width := max(c.bytes/int64(max(c.count, 1)), f.widest/4, 1)
		most := min(1<<20/width, limit/(4*width))
		if r.cfg.Rate > 0 {
			most = min(most, r.cfg.Rate/4)
		}
		n = int(max(min(int64(8*n), most), 1))
	}
	if f.err() != nil {
		return f.err()
	}
	j.perFetch = n
	c.last = f.last(l.order, l.shape)
	if conn.IsClosed() && bounded {
		if err := r.split(c); err != nil {
			return err
		}
	}
	c.whole = c.whole && !bounded
	return f.flush()
}

// errSplit says that a chunk was made smaller and is to be read again.
var errSplit = errors.New("the chunk's rows are too wide to be held at once")

// split makes two of a chunk whose rows are far wider than was foreseen. A range ends where it was cut, with what was read; keys are
// halved and read again, since their rows come in no order.
func (r *Run) split(c *Chunk) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	j, half := c.job, len(c.keys)/2
	if c.keys != nil && half == 0 {
		return nil // one row, and it is there
	}
	r.nextID++
	rest := r.chunk(j, r.nextID)
	j.chunks = slices.Insert(j.chunks, slices.Index(j.chunks, c)+1, rest)
	r.changed.Broadcast()
	if c.keys == nil {
		rest.from, rest.to, c.to = c.last, c.to, c.last
		return nil
	}
	c.keys, rest.keys = c.keys[:half:half], c.keys[half:]
	return errSplit
}

// filler puts rows into blocks.
type filler struct {
	c       *Chunk
	columns int
	take    func([]byte) error
	block   []byte
	row     int    // where the last row begins in lastBlock
	tail    []byte // the last row
	widest  int64
	failed  error
}

func (f *filler) err() error { return f.failed }

func (f *filler) fetch(ctx context.Context, conn *pgx.Conn, n int, most int64) (got int, cut bool, err error) {
	mrr := conn.PgConn().Exec(ctx, fmt.Sprintf("FETCH FORWARD %d FROM synctl_chunk", n))
	for mrr.NextResult() {
		rr := mrr.ResultReader()
		for rr.NextRow() {
			f.add(rr.Values())
			got++
			if f.c.bytes > most && f.c.stream == nil {
				return got, true, nil
			}
		}
	}
	return got, false, mrr.Close()
}

func (f *filler) add(values [][]byte) {
	size := 4 * len(values)
	for _, v := range values {
		size += len(v)
	}
	if len(f.block)+size > cap(f.block) {
		if err := f.flush(); err != nil && f.failed == nil {
			f.failed = err
		}
		f.block = f.c.blocks.take(size)
	}
	f.row = len(f.block)
	for _, v := range values {
		f.block = appendValue(f.block, v)
	}
	f.tail = f.block[f.row:]
	f.c.count++
	f.c.bytes += int64(size)
	f.widest = max(f.widest, int64(size))
}

func (f *filler) flush() error {
	if len(f.block) == 0 {
		return nil
	}
	b := f.block
	f.block = nil
	return f.take(b)
}

// last is the key of the last row, in the order of names.
func (f *filler) last(names []string, s *Shape) []string {
	if f.tail == nil {
		return nil
	}
	texts := make([]string, len(names))
	p := f.tail
	for _, c := range s.Columns {
		n := rowBytes(p, 1)
		if i := slices.Index(names, c.Name); i >= 0 {
			texts[i] = string(p[4:n])
		}
		p = p[n:]
	}
	return texts
}
