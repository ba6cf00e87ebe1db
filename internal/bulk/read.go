package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
)

// readWork is one reader's way through its parts.
type readWork struct {
	reader  Reader
	encoder *convert.Encoder
	queue   *queue
	rejects *rejects // nil: the first row that does not fit fails the load
	count   *counts
	stats   ReaderStats

	cur *chunk
}

// counts are shared by readers and writers, and watched by progress.
type counts struct {
	read, filtered, rejected, copied, copiedBytes atomic.Int64
}

// ReaderStats is what one reader did.
type ReaderStats struct {
	Rows    int64 `json:"rows"`
	Batches int64 `json:"batches"`
}

func (w *readWork) run(ctx context.Context) error {
	for {
		b, err := w.reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return w.flush(ctx)
		}
		if err != nil {
			return err
		}
		if err := w.batch(ctx, b); err != nil {
			return err
		}
		w.stats.Batches++
	}
}

func (w *readWork) batch(ctx context.Context, b *Batch) error {
	if b.Arrow != nil {
		w.encoder.Bind(b.Arrow)
	}
	for i := range b.Rows {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		w.stats.Rows++
		if b.Keep != nil && !b.Keep[i] {
			w.count.filtered.Add(1)
			continue
		}
		if err := w.row(ctx, b, i); err != nil {
			return err
		}
	}
	w.count.read.Add(int64(b.Rows))
	if w.rejects != nil {
		return w.flush(ctx) // a chunk is of one batch, which is kept with it
	}
	return nil
}

func (w *readWork) row(ctx context.Context, b *Batch, i int) error {
	if w.cur == nil {
		c, err := w.queue.get(ctx)
		if err != nil {
			return err
		}
		w.cur = c
	}
	c := w.cur
	start := len(c.buf)
	buf, err := w.encode(c.buf, b, i)
	c.buf = buf
	if err != nil {
		return w.unfit(b, i, err)
	}
	if len(c.buf) > w.queue.most() {
		// Too large to go with others, or at all in a chunk's bytes: it waits for bytes of its own, holding none meanwhile.
		row := c.buf
		if start > 0 {
			row = append([]byte(nil), c.buf[start:]...)
			c.buf = c.buf[:start]
			err = w.flush(ctx)
		} else {
			w.cur, c.buf = nil, nil
			w.queue.put(c)
		}
		if err != nil {
			return err
		}
		if c, err = w.queue.large(ctx, row); err != nil {
			return err
		}
		w.cur = c
	}
	c.note(b.Part, b.First+int64(i))
	if w.rejects != nil {
		c.origin = append(c.origin, int32(i))
		c.batch = b
	}
	if len(c.buf) >= w.queue.unit {
		return w.flush(ctx)
	}
	return nil
}

func (w *readWork) encode(dst []byte, b *Batch, i int) ([]byte, error) {
	if b.Arrow != nil {
		return w.encoder.AppendRow(dst, i)
	}
	if err := b.Bad[i]; err != nil {
		return dst, err
	}
	return w.encoder.AppendCells(dst, b.Cells[i*b.Width:(i+1)*b.Width])
}

// unfit deals with a row that cannot be sent.
func (w *readWork) unfit(b *Batch, i int, err error) error {
	if w.rejects != nil {
		w.count.rejected.Add(1)
		return w.rejects.write(b, i, err)
	}
	return fault.Wrap(fault.Failed, rowHint, fmt.Errorf("%s: %w", place(b, i), err))
}

const rowHint = "Mend the row in the source, or let such rows go to a file with --on-reject dead-letter --dead-letter FILE."

// place names a row for a message.
func place(b *Batch, i int) string {
	row := fmt.Sprintf("%s, row %d", b.Part, b.First+int64(i))
	if b.Lines != nil {
		row += fmt.Sprintf(" (line %d)", b.Lines(i))
	}
	return row
}

// flush hands the chunk that is being filled to a writer.
func (w *readWork) flush(ctx context.Context) error {
	c := w.cur
	if c == nil {
		return nil
	}
	w.cur = nil
	if c.rows == 0 {
		w.queue.put(c)
		return nil
	}
	if c.batch != nil && c.batch.Detach != nil {
		c.release = c.batch.Detach()
	}
	return w.queue.send(ctx, c)
}
