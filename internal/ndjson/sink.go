package ndjson

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"synctl/internal/fault"
	"synctl/internal/pipeline"
	"synctl/internal/record"
)

// ErrReaderGone is in the chain of the error of a pipe that nobody reads any more: for a command at the front of a shell
// pipe, a clean end. (A process must ignore SIGPIPE to live to see it on its standard output.)
var ErrReaderGone = errors.New("the reader of the pipe has gone")

// writeBytes is how many bytes of lines are gathered before they are written: a batch is one write unless it is larger.
const writeBytes = 256 << 10

// Sink writes lines. A batch is done once its lines are written; in a regular file, once they are on the disk.
type Sink struct {
	w    io.Writer
	file *os.File // w, when it is a regular file
	name string
	buf  []byte
}

var _ pipeline.Sink = (*Sink)(nil)

// NewSink writes to w, which errors call name. For a regular file call RepairTail first.
func NewSink(w io.Writer, name string) *Sink {
	s := &Sink{w: w, name: name}
	if f, ok := w.(*os.File); ok && isRegular(f) {
		s.file = f
	}
	return s
}

func isRegular(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode().IsRegular()
}

// Write writes all of b. The batches that the source reads meanwhile make the next one larger, so that one sync comes
// to cover many transactions.
func (s *Sink) Write(ctx context.Context, b *record.Batch, done func(error)) error {
	s.buf = s.buf[:0]
	for i := range b.Records {
		var err error
		if s.buf, err = record.AppendLine(s.buf, &b.Records[i]); err != nil {
			return errors.Join(err, s.flush(ctx)) // what came before the record is written all the same
		}
		if len(s.buf) >= writeBytes {
			if err := s.flush(ctx); err != nil {
				return err
			}
		}
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	if s.file != nil {
		if err := s.file.Sync(); err != nil {
			return s.failed("sync", err)
		}
	}
	done(nil)
	return nil
}

func (s *Sink) flush(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if len(s.buf) == 0 {
		return nil
	}
	_, err := s.w.Write(s.buf)
	if cap(s.buf) > 4*writeBytes {
		s.buf = nil // one large record must not hold its memory for good
	}
	s.buf = s.buf[:0]
	return s.failed("write", err)
}

func (s *Sink) failed(verb string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe):
		return fmt.Errorf("write %s: %w", s.name, ErrReaderGone)
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fault.New(fault.Failed, "Make room and run the same command again: it goes on where the file ends.",
			"%s %s: %w", verb, s.name, err)
	}
	return fmt.Errorf("%s %s: %w", verb, s.name, err)
}
