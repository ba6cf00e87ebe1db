package snapshot

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/fault"
)

// maxAttempts is how often a chunk is tried on connections that get lost; with the pauses between them some ten minutes.
const maxAttempts = 60

// work reads chunk after chunk on a connection of its own, until the run ends.
func (r *Run) work() {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			conn.Close(context.WithoutCancel(r.ctx))
		}
	}()
	for c := r.take(); c != nil; c = r.take() {
		for attempt := 0; ; attempt++ {
			err := r.attempt(&conn, c)
			if err == nil {
				break
			}
			if conn != nil {
				conn.Close(context.WithoutCancel(r.ctx))
				conn = nil
			}
			if r.ctx.Err() != nil {
				return
			}
			if errors.Is(err, errSplit) {
				continue
			}
			if !lost(err) || attempt > maxAttempts {
				r.fail(err)
				return
			}
			wait := min(100*time.Millisecond<<min(attempt, 7), 10*time.Second)
			r.cfg.Log.Warn("a snapshot's connection was lost", "error", err, "wait", wait.String())
			if !sleep(r.ctx, wait/2+rand.N(wait/2)) {
				return
			}
		}
	}
}

// lost tells errors after which another connection helps: the feed reconnects as well, or ends the run.
func lost(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		switch e.Code[:2] {
		case "57", "08", "53": // shut down, connection, resources
			return true
		}
		return e.Code == "40001" || e.Code == "40P01" || e.Code == "55P03"
	}
	return fault.ClassOf(err) != fault.Check
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// take waits for a chunk to read, and for room for it; nil ends the worker.
func (r *Run) take() *Chunk {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		if r.ctx.Err() != nil || r.err != nil {
			return nil
		}
		if r.slots > 0 {
			for _, j := range r.jobs {
				if c := r.of(j); c != nil {
					r.slots--
					c.taken = true
					r.chunks[c.id] = c
					return c
				}
			}
		}
		r.changed.Wait()
	}
}

// of gives a chunk of a job that nobody reads yet; nil when there is none now.
func (r *Run) of(j *Job) *Chunk {
	if j.Done {
		return nil
	}
	for _, c := range j.chunks {
		if !c.taken {
			return c
		}
	}
	r.nextID++
	c := r.chunk(j, r.nextID)
	switch {
	case len(j.Again) > 0:
		n := min(len(j.Again), 1000)
		c.keys = j.Again[:n:n]
		j.Again = j.Again[n:]
	case !j.all && !j.busy:
		c.from, j.busy = j.next, true
	default:
		return nil
	}
	j.chunks = append(j.chunks, c)
	return c
}

// attempt reads a chunk and writes its marks.
func (r *Run) attempt(conn **pgx.Conn, c *Chunk) (err error) {
	if *conn == nil {
		if *conn, err = r.cfg.Dial(r.ctx); err != nil {
			return err
		}
	}
	if !c.read {
		if err := r.settle(*conn); err != nil {
			return err
		}
		if !r.pace() {
			return r.ctx.Err()
		}
		if err := emit(r.ctx, *conn, mark{Run: r.id, Chunk: c.id, Mark: "low"}); err != nil {
			return err
		}
		if err := r.read(*conn, c); err != nil {
			return err
		}
		c.read = true
	}
	if c.stream != nil {
		return nil // its rows went where the low mark stands
	}
	if (*conn).IsClosed() { // the chunk was cut
		if *conn, err = r.cfg.Dial(r.ctx); err != nil {
			return err
		}
	}
	return emit(r.ctx, *conn, mark{Run: r.id, Chunk: c.id, Mark: "high"})
}

// pace keeps to the rate.
func (r *Run) pace() bool {
	if r.cfg.Rate <= 0 {
		return true
	}
	r.mu.Lock()
	wait := time.Until(r.rateAt)
	r.mu.Unlock()
	return sleep(r.ctx, max(wait, 0))
}

// paced notes rows of a table that is read in one go, and waits for as long as the rate asks.
func (r *Run) paced(rows int) bool {
	r.spent(rows)
	return r.pace()
}

// spent notes rows that were read.
func (r *Run) spent(rows int) {
	if r.cfg.Rate > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		if r.rateAt.Before(now) {
			r.rateAt = now
		}
		r.rateAt = r.rateAt.Add(time.Duration(float64(rows) / float64(r.cfg.Rate) * float64(time.Second)))
	}
}

// settlePause is how long a transaction can stand between its commit record and its end without waiting for a standby.
const settlePause = time.Second

// settle waits until what was committed before this run began is visible. A transaction is decoded as soon as its commit record is
// written; a run before this one may have delivered it and been killed while no query saw it yet. Those that are decoded
// from now on are known one by one.
func (r *Run) settle(conn *pgx.Conn) error {
	r.settling.Lock()
	defer r.settling.Unlock()
	r.mu.Lock()
	settled := r.settled
	r.mu.Unlock()
	if settled {
		return nil
	}
	first, standbys, err := r.look(conn)
	if err != nil {
		return err
	}
	for began, told := time.Now(), false; len(first.InProgress) > 0; {
		if !standbys && time.Since(began) >= settlePause {
			break // they are still running: their commit records are to come
		}
		if !sleep(r.ctx, 50*time.Millisecond) {
			return r.ctx.Err()
		}
		now, _, err := r.look(conn)
		if err != nil {
			return err
		}
		left := first.InProgress[:0]
		for _, x := range first.InProgress {
			if !now.Sees(uint32(x)) {
				left = append(left, x)
			}
		}
		first.InProgress = left
		if !told && time.Since(began) > 5*time.Second {
			told = true
			r.cfg.Log.Warn("the snapshot waits for transactions that were open when it began, since one that waits for a synchronous standby cannot be told from one that runs", "xids", first.InProgress)
		}
	}
	r.mu.Lock()
	r.settled = true
	r.mu.Unlock()
	return nil
}

func (r *Run) look(conn *pgx.Conn) (s Snap, standbys bool, err error) {
	var text string
	if err := conn.QueryRow(r.ctx, `SELECT pg_current_snapshot()::text, current_setting('synchronous_standby_names') <> ''`).Scan(&text, &standbys); err != nil {
		return s, false, err
	}
	s, err = ParseSnap(text)
	return s, standbys, err
}
