package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// mostSpans bounds what a COPY remembers of where its rows came from; the next COPY of the same transaction begins anew.
const mostSpans = 1 << 14

// writeWork is one connection that copies chunks into the staging table.
type writeWork struct {
	conn   *pgconn.PgConn
	copy   string // the COPY statement
	format convert.Format
	queue  *queue
	count  *counts
	reject *rejects
	stats  WriterStats
}

// WriterStats is what one writer did.
type WriterStats struct {
	Rows  int64 `json:"rows"`
	Bytes int64 `json:"bytes"`
}

// run copies chunks until there are no more. All of it is one transaction, which is left open for commit.
func (w *writeWork) run(ctx context.Context) error {
	if w.reject != nil {
		return w.runRejecting(ctx)
	}
	if err := w.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	for {
		f := newFeed(ctx, w)
		tag, err := w.conn.CopyFrom(ctx, f, w.copy)
		f.stop()
		switch {
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return w.explain(err, f.spans)
		}
		if err := w.counted(tag.RowsAffected(), f.rows); err != nil {
			return err
		}
		if !f.more {
			return nil
		}
	}
}

func (w *writeWork) exec(ctx context.Context, sql string) error {
	if _, err := w.conn.Exec(ctx, sql).ReadAll(); err != nil {
		return serverFault(fmt.Errorf("%s: %w", strings.ToLower(sql), err))
	}
	return nil
}

// counted holds what the server says it stored against what was sent.
func (w *writeWork) counted(stored, sent int64) error {
	if stored != sent {
		return fault.New(fault.Failed, "Nothing was kept. Run again; if it happens again, a trigger or rule on the staging table may drop rows.",
			"COPY stored %d rows of %d that were sent", stored, sent)
	}
	w.stats.Rows += stored
	return nil
}

// feed is what CopyFrom reads: chunk after chunk. CopyFrom reads from a goroutine of its own, which it does not wait for
// when the connection is lost, so reading ends with stop and not before.
type feed struct {
	ctx     context.Context
	cancel  context.CancelFunc
	mu      sync.Mutex // guards what follows
	w       *writeWork
	pending []byte
	cur     *chunk
	spans   []span
	rows    int64
	more    bool // the COPY ends, but there may be more chunks
	ended   bool
}

func newFeed(ctx context.Context, w *writeWork) *feed {
	f := &feed{w: w, pending: w.format.Header()}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// stop ends the reading and gives the last chunk back. The feed's results may be looked at after it.
func (f *feed) stop() {
	f.cancel()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finish()
	f.ended, f.pending = true, nil
}

// Read implements io.Reader.
func (f *feed) Read(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.pending) == 0 {
		if err := f.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.pending)
	f.pending = f.pending[n:]
	return n, nil
}

// next takes the next chunk, or the trailer, or says that it is over.
func (f *feed) next() error {
	f.finish()
	if f.ended {
		return io.EOF
	}
	if len(f.spans) >= mostSpans {
		f.more = true
	} else {
		select {
		case c, ok := <-f.w.queue.ready:
			if ok {
				f.take(c)
				return nil
			}
		case <-f.ctx.Done():
			return f.ctx.Err()
		}
	}
	f.ended = true
	f.pending = f.w.format.Trailer()
	if len(f.pending) == 0 {
		return io.EOF
	}
	return nil
}

func (f *feed) take(c *chunk) {
	f.cur, f.pending = c, c.buf
	f.rows += c.rows
	f.spans = append(f.spans, c.spans...)
}

// finish gives the chunk that was sent back to the queue.
func (f *feed) finish() {
	if f.cur == nil {
		return
	}
	f.w.stats.Bytes += int64(len(f.cur.buf))
	f.w.count.copied.Add(f.cur.rows)
	f.w.count.copiedBytes.Add(int64(len(f.cur.buf)))
	f.w.queue.put(f.cur)
	f.cur = nil
}

// copyLine is how the server names a row of a COPY, in whatever language: "COPY t, line 5, column a: …".
var copyLine = regexp.MustCompile(`(?m)^COPY .*?, \pL+ (\d+)(?:, \pL+ ([^:\n]+))?`)

// lineOf finds the row of a COPY that the server complains of, from 1; 0 when it names none.
func lineOf(err error) (line int64, column string) {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return 0, ""
	}
	if m := copyLine.FindStringSubmatch(pgErr.Where); m != nil {
		line, _ = strconv.ParseInt(m[1], 10, 64)
		return line, m[2]
	}
	return 0, ""
}

// explain names the source's row that the server refused.
func (w *writeWork) explain(err error, spans []span) error {
	line, column := lineOf(err)
	left := line
	for _, s := range spans {
		if left >= 1 && left <= s.count {
			return fault.Wrap(fault.Failed, rowHint, fmt.Errorf("%s, row %d%s: %w", s.part, s.first+left-1, inColumn(column), err))
		}
		left -= s.count
	}
	return serverFault(fmt.Errorf("copy rows: %w", err))
}

func inColumn(column string) string {
	if column == "" {
		return ""
	}
	return fmt.Sprintf(", column %q", column)
}

// serverFault gives an error of the server its class: lost or refused connections are Unreachable.
func serverFault(err error) error {
	var pgErr *pgconn.PgError
	if errors.Is(err, context.Canceled) {
		return err
	}
	if pg.Retryable(err) {
		return fault.Wrap(fault.Unreachable, "Run the same command again when the server is back: what this run left is removed first.", err)
	}
	if errors.As(err, &pgErr) {
		hint := pgErr.Hint
		switch {
		case pgErr.Code == "42501":
			return fault.Wrap(fault.Unreachable, "Grant the right that is missing to the role that loads.", err)
		case strings.HasPrefix(pgErr.Code, "53"):
			hint = "The server is out of disk space, memory or connections; free some and run again."
		}
		return fault.Wrap(fault.Failed, hint, err)
	}
	return fault.Wrap(fault.Unreachable, "Run the same command again when the server is back: what this run left is removed first.", err)
}
