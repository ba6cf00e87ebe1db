package snapshot

import (
	"context"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
)

// readWhole reads a table without a key in one transaction, and hands its rows to the feed where the low mark stands: there is
// no way to tell which of them a change beside it concerns, so the feed stands still meanwhile.
func (r *Run) readWhole(conn *pgx.Conn, c *Chunk, l *layout) error {
	j := c.job
	if !j.Keyless {
		return fault.New(fault.Check, "Publish all columns of its key, or give it its key back; then run the same command again.",
			"%s.%s has no key that is published whole, or lost it while its snapshot ran", j.Schema, j.Table)
	}
	r.mu.Lock()
	j.estimate = l.rows
	r.mu.Unlock()
	select {
	case c.seen <- c.snap:
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	select {
	case ok := <-c.useful:
		if !ok { // the feed had a transaction that the snapshot does not see
			if _, err := conn.Exec(r.ctx, "ROLLBACK"); err != nil {
				return err
			}
			if !sleep(r.ctx, settlePause/20) {
				return r.ctx.Err()
			}
			return r.readWithin(conn, c)
		}
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
	// From here on the feed takes rows: an error makes it begin the table anew.
	c.err = r.pass(conn, c, l)
	close(c.stream)
	return nil
}

func (r *Run) pass(conn *pgx.Conn, c *Chunk, l *layout) error {
	q := l.selectFrom()
	for i, cond := range l.conditions(c.job.Where) {
		q += [...]string{" WHERE ", " AND "}[min(i, 1)] + cond
	}
	if err := r.declare(conn, q); err != nil {
		return err
	}
	return r.fetch(conn, c, l, 1<<40, func(block []byte) error {
		select {
		case c.stream <- block:
			return nil
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	})
}

// Whole tells a chunk that is its whole table, and whose rows come while it is delivered.
func (c *Chunk) Whole() bool { return c.stream != nil }

// Begin waits for the snapshot in which a whole table is read; ok is false when there is no such table any more.
func (r *Run) Begin(ctx context.Context, c *Chunk) (ok bool, err error) {
	for {
		select {
		case snap, ok := <-c.seen:
			if !ok {
				return false, nil
			}
			stale := (&Window{}).Stale(snap, &r.decoded)
			select {
			case c.useful <- !stale:
			case <-ctx.Done():
				return false, context.Cause(ctx)
			}
			if !stale {
				r.mu.Lock()
				c.job.passed = &snap
				r.mu.Unlock()
				return true, nil
			}
		case <-r.failed:
			return false, r.Err()
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// Ended tells, behind the last row of a whole table, whether it came to its end; if not it begins anew.
func (r *Run) Ended(c *Chunk) bool {
	if c.err == nil {
		return true
	}
	r.cfg.Log.Warn("reading a table was interrupted; it begins anew", "table", c.job.Schema+"."+c.job.Table, "error", c.err)
	r.mu.Lock()
	c.job.passed = nil
	r.mu.Unlock()
	r.again(c)
	return false
}
