package bulk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// rejects is the dead-letter file: rows that do not fit, whole, with the reason, each a record of op "read".
//
// It is written beside its place and moved there once the load is complete, so that a run that was killed leaves no half
// file that looks like an answer.
type rejects struct {
	mu     sync.Mutex
	path   string
	schema string
	table  string
	file   *os.File
	w      *bufio.Writer
	line   []byte
	n      int64
}

func openRejects(path, schema, table string) (*rejects, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		return nil, fault.New(fault.Usage, "Move it away, or name another file: dead letters of another run are not to be lost.",
			"dead-letter file %s exists and is not empty", path)
	}
	f, err := os.OpenFile(path+".partial", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, "Name a file in a folder that can be written to.", fmt.Errorf("open dead-letter file: %w", err))
	}
	return &rejects{path: path, schema: schema, table: table, file: f, w: bufio.NewWriter(f)}, nil
}

// write appends row i of b with the reason why it was refused.
func (r *rejects) write(b *Batch, i int, reason error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	row := b.First + int64(i)
	l := append(r.line[:0], `{"v":1,"id":`...)
	l = record.AppendString(l, b.Part+"/"+strconv.FormatInt(row, 10))
	l = append(l, `,"op":"read","schema":`...)
	l = record.AppendString(l, r.schema)
	l = append(l, `,"table":`...)
	l = record.AppendString(l, r.table)
	l = append(l, `,"after":`...)
	l = b.Whole(l, i)
	l = append(l, `,"source":`...)
	l = record.AppendString(l, b.Part)
	l = append(l, `,"row":`...)
	l = strconv.AppendInt(l, row, 10)
	if b.Lines != nil {
		l = strconv.AppendInt(append(l, `,"line":`...), b.Lines(i), 10)
	}
	var value *convert.ValueError
	if errors.As(reason, &value) {
		l = record.AppendString(append(l, `,"column":`...), value.Column)
	}
	l = record.AppendString(append(l, `,"reason":`...), strings.ToValidUTF8(reason.Error(), "\uFFFD"))
	l = append(l, '}', '\n')
	r.line, r.n = l, r.n+1
	if _, err := r.w.Write(l); err != nil {
		return fmt.Errorf("write dead-letter file: %w", err)
	}
	return nil
}

// sync makes what was written durable, still beside its place.
func (r *rejects) sync() error {
	err := r.w.Flush()
	if err == nil {
		err = r.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write dead-letter file: %w", err)
	}
	return nil
}

// publish moves the file into its place, if there is anything in it.
func (r *rejects) publish() error {
	if err := r.file.Close(); err != nil {
		return fmt.Errorf("close dead-letter file: %w", err)
	}
	if r.n == 0 {
		return os.Remove(r.path + ".partial")
	}
	if err := os.Rename(r.path+".partial", r.path); err != nil {
		return fmt.Errorf("move dead-letter file: %w", err)
	}
	return nil
}

// discard drops what a failed run wrote.
func (r *rejects) discard() {
	r.file.Close()
	os.Remove(r.path + ".partial")
}

// runRejecting copies a few chunks at a time, each COPY a transaction of its own, so that one that fails can be sent
// again without the row that the server refused. That the whole can still be thrown away is the staging table's doing.
func (w *writeWork) runRejecting(ctx context.Context) error {
	for {
		chunks, err := w.collect(ctx)
		if err != nil {
			return err
		}
		if len(chunks) == 0 {
			return nil
		}
		if err := w.copyRejecting(ctx, chunks); err != nil {
			return err
		}
	}
}

// mostCollected bounds what is sent again for one bad row.
const mostCollected = 4 << 20

// collect waits for a chunk and takes what else is ready. It waits for no second one: readers may need its bytes first.
func (w *writeWork) collect(ctx context.Context) ([]*chunk, error) {
	var chunks []*chunk
	select {
	case c, ok := <-w.queue.ready:
		if !ok {
			return nil, nil
		}
		chunks = append(chunks, c)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for size := len(chunks[0].buf); size < mostCollected; {
		select {
		case c, ok := <-w.queue.ready:
			if !ok {
				return chunks, nil
			}
			chunks = append(chunks, c)
			size += len(c.buf)
		default:
			return chunks, nil
		}
	}
	return chunks, nil
}

func (w *writeWork) copyRejecting(ctx context.Context, chunks []*chunk) error {
	for {
		sent := int64(0)
		readers := []io.Reader{bytes.NewReader(w.format.Header())}
		for _, c := range chunks {
			readers = append(readers, bytes.NewReader(c.buf))
			sent += c.rows
		}
		readers = append(readers, bytes.NewReader(w.format.Trailer()))
		tag, err := w.conn.CopyFrom(ctx, io.MultiReader(readers...), w.copy)
		if err == nil {
			if err := w.counted(tag.RowsAffected(), sent); err != nil {
				return err
			}
			break
		}
		if err := w.rejectLine(chunks, err); err != nil {
			return err
		}
	}
	for _, c := range chunks {
		w.stats.Bytes += int64(len(c.buf))
		w.count.copied.Add(c.rows)
		w.count.copiedBytes.Add(int64(len(c.buf)))
		w.queue.put(c)
	}
	return nil
}

// rejectLine takes the row that the server refused out of its chunk and writes it to the dead-letter file.
func (w *writeWork) rejectLine(chunks []*chunk, err error) error {
	line, column := lineOf(err)
	var pgErr *pgconn.PgError
	if line == 0 || !errors.As(err, &pgErr) || (!strings.HasPrefix(pgErr.Code, "22") && !strings.HasPrefix(pgErr.Code, "23")) {
		return serverFault(fmt.Errorf("copy rows: %w", err))
	}
	for _, c := range chunks {
		if line > c.rows {
			line -= c.rows
			continue
		}
		k := int(line - 1)
		from, to := rowBounds(c.buf, k, w.format)
		c.buf = append(c.buf[:from], c.buf[to:]...)
		row := int(c.origin[k])
		c.origin = append(c.origin[:k], c.origin[k+1:]...)
		c.rows--
		w.count.rejected.Add(1)
		reason := error(pgErr)
		if column != "" {
			reason = &convert.ValueError{Column: column, Err: pgErr}
		}
		return w.reject.write(c.batch, row, reason)
	}
	return serverFault(fmt.Errorf("copy rows: %w", err))
}

// rowBounds finds row k in COPY rows that were made here.
func rowBounds(b []byte, k int, f convert.Format) (from, to int) {
	for ; ; k-- {
		if f == convert.TextFormat {
			to = from + bytes.IndexByte(b[from:], '\n') + 1
		} else {
			to = from + 2
			for n := int(binary.BigEndian.Uint16(b[from:])); n > 0; n-- {
				size := int32(binary.BigEndian.Uint32(b[to:]))
				to += 4 + int(max(size, 0))
			}
		}
		if k == 0 {
			return from, to
		}
		from = to
	}
}

// recoverRejects moves a file into its place whose run was killed after the load was complete and before that.
func recoverRejects(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if err := os.Rename(path+".partial", path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("move dead-letter file: %w", err)
	}
	return nil
}
