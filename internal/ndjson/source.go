package ndjson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"

	"synctl/internal/fault"
	"synctl/internal/pipeline"
	"synctl/internal/record"
)

// readBytes is how much is asked of the input at once: what a pipe holds on Linux.
const readBytes = 64 << 10

// Source reads lines into batches. Its token is the number of lines read, an int64.
//
// A blank line is an error, like any other that is not a record. The last line may lack its line feed if it is
// complete: no beginning of a JSON object is itself an object, so nothing is guessed.
type Source struct {
	in   input
	name string

	buf     []byte // buf[from:to] has been read and not been consumed; longer than readBytes while a line is
	from    int
	scanned int // no line feed lies before it
	to      int
	eof     bool
	lines   int64
	err     error // ends the input once what came before it is delivered
	acked   atomic.Int64
}

var _ pipeline.Source = (*Source)(nil)

// NewSource reads from r, which errors call name. Where r is a file, a cancelled ReadBatch returns although nothing
// comes, as from a pipe or a terminal; with other readers it waits for Read to return.
func NewSource(r io.Reader, name string) *Source {
	s := &Source{in: plainInput{r}, name: name, buf: make([]byte, readBytes)}
	if f, ok := r.(*os.File); ok {
		s.in = fileInput{f}
	}
	return s
}

// Acked is how many lines the sink holds. It may be called at any time.
func (s *Source) Acked() int64 { return s.acked.Load() }

// ReadBatch fills b with the lines that are there, waiting for one.
func (s *Source) ReadBatch(ctx context.Context, b *record.Batch) error {
	for s.err == nil {
		line, ok := s.next()
		fits := ok && b.Fits(len(line), 0)
		switch {
		case len(b.Records) > 0 && !fits: // full, or one would have to wait
			b.Token = s.lines
			return nil
		case ok:
			s.err = s.take(ctx, b, line)
		default:
			s.err = s.read(ctx, b)
		}
		if ctx.Err() != nil && errors.Is(s.err, context.Cause(ctx)) {
			err := s.err
			s.err = nil // what has been read is kept
			return err
		}
	}
	if len(b.Records) == 0 {
		return s.err
	}
	b.Token = s.lines
	return nil
}

// Ack notes how far the sink is; a pipe has nobody to tell.
func (s *Source) Ack(_ context.Context, t record.Token) error {
	lines, ok := t.(int64)
	if !ok {
		return fmt.Errorf("token %v is not a number of lines", t)
	}
	s.acked.Store(lines)
	return nil
}

// next is the next line without its line feed, if all of it has been read.
func (s *Source) next() (line []byte, ok bool) {
	if i := bytes.IndexByte(s.buf[s.scanned:s.to], '\n'); i >= 0 {
		return s.buf[s.from : s.scanned+i], true
	}
	s.scanned = s.to
	return s.buf[s.from:s.to], s.eof && s.from < s.to
}

// take moves a line that was read into the batch.
func (s *Source) take(ctx context.Context, b *record.Batch, line []byte) error {
	if len(s.buf) > readBytes {
		return s.takeLong(ctx, b, line)
	}
	if !b.Fits(len(line), 0) {
		if err := b.Reserve(ctx, len(line), 0); err != nil {
			return err
		}
	}
	kept := b.Copy(line)
	s.from = min(s.from+len(line)+1, s.to)
	s.scanned = s.from
	return s.add(b, kept)
}

// takeLong gives the buffer that has grown for one line to the batch, rather than copying it.
func (s *Source) takeLong(ctx context.Context, b *record.Batch, line []byte) error {
	if err := b.Reserve(ctx, len(s.buf), 0); err != nil {
		return err
	}
	rest := s.buf[min(s.from+len(line)+1, s.to):s.to]
	b.Adopt(s.buf)
	s.buf = make([]byte, readBytes)
	s.from, s.scanned, s.to = 0, 0, copy(s.buf, rest) // fits: it came with the line's last read
	return s.add(b, line)
}

// add parses a line that lies in the batch.
func (s *Source) add(b *record.Batch, line []byte) error {
	r := b.Add()
	if err := record.Parse(line, r); err != nil {
		b.Records = b.Records[:len(b.Records)-1]
		return s.malformed(line, err)
	}
	s.lines++
	r.Line.Number = s.lines
	return nil
}

// malformed is the error for a line that is not a record.
func (s *Source) malformed(line []byte, err error) error {
	number := s.lines + 1
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		err = errors.New("is blank, not a record")
	case s.eof && s.from == s.to:
		err = fmt.Errorf("is cut off after %d bytes: the input ends there without a line feed, as when its writer is killed: %w",
			len(line), err)
	}
	hint := fmt.Sprintf("docs/record.md describes the format. To go on from this line once it is right: tail -n +%d.", number)
	return fault.New(fault.Failed, hint, "%s, line %d: %w", s.name, number, err)
}

// read reads more of the input, making room first: for a line that is longer than the buffer, as much as the queue's
// bound allows.
func (s *Source) read(ctx context.Context, b *record.Batch) error {
	if s.eof {
		return io.EOF
	}
	if s.from > 0 {
		s.to = copy(s.buf, s.buf[s.from:s.to])
		s.scanned -= s.from
		s.from = 0
	}
	if s.to == len(s.buf) {
		size := 2 * len(s.buf)
		if size > math.MaxUint32 {
			return fmt.Errorf("%s, line %d: longer than 4 GiB", s.name, s.lines+1)
		}
		if err := b.Reserve(ctx, size, 0); err != nil {
			return err
		}
		grown := make([]byte, size)
		copy(grown, s.buf)
		s.buf = grown
	}
	n, err := s.in.read(ctx, s.buf[s.to:min(s.to+readBytes, len(s.buf))])
	s.to += n
	switch {
	case err == io.EOF:
		s.eof = true
		return nil
	case err != nil && (ctx.Err() == nil || !errors.Is(err, context.Cause(ctx))):
		return fmt.Errorf("read %s after line %d: %w", s.name, s.lines, err)
	}
	return err
}
