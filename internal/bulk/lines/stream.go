package lines

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"synctl/internal/fault"
)

const (
	blockBytes = 256 << 10
	// longestRecord bounds what a quote that is never closed makes us read: a field of COPY cannot be larger.
	longestRecord = 1 << 30
)

// Format says where records end: at every line end that is not inside of a quoted value.
type Format struct {
	Quote     byte // 0: no value is quoted, a record is a line
	Delimiter byte // between values: a quote behind it opens
}

// Block is some whole records, with their line ends.
type Block struct {
	Name  string // of the file
	Data  []byte
	First int64 // number of the first record in its file, from 1; a header is not counted
	Line  int64 // line on which it begins, from 1
	Count int   // records
}

// stream is one file being read.
type stream struct {
	mu      sync.Mutex
	name    string
	in      io.Reader
	closers []io.Closer
	format  Format

	rest   []byte // read, behind the last whole record
	record int64  // number of the next record
	line   int64
	ended  bool
	peeked *Block
}

// openStream opens a file, decompressed by its ending, without its byte-order mark.
func openStream(name string, in io.Reader, format Format) (*stream, error) {
	s := &stream{name: name, in: in, format: format, record: 1, line: 1}
	if in == nil {
		f, err := os.Open(name)
		if err != nil {
			return nil, fault.Wrap(fault.Failed, "Check the file and the right to read it.", fmt.Errorf("open data set: %w", err))
		}
		s.in, s.closers = f, []io.Closer{f}
	}
	if err := s.decompress(); err != nil {
		s.close()
		return nil, err
	}
	b := bufio.NewReaderSize(s.in, 64<<10)
	if mark, _ := b.Peek(3); bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		_, _ = b.Discard(3) // it is in the buffer
	}
	s.in = b
	return s, nil
}

func (s *stream) decompress() error {
	switch strings.ToLower(filepath.Ext(s.name)) {
	case ".gz", ".gzip":
		z, err := gzip.NewReader(s.in)
		if err != nil {
			return s.fault(err)
		}
		s.in, s.closers = z, append(s.closers, z)
	case ".zst", ".zstd":
		z, err := zstd.NewReader(s.in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return s.fault(err)
		}
		s.in, s.closers = z, append(s.closers, closer(z.Close))
	}
	return nil
}

type closer func()

func (c closer) Close() error { c(); return nil }

func (s *stream) fault(err error) error {
	return fault.Wrap(fault.Failed, "Check the file: it may be damaged or cut off.", fmt.Errorf("read %s: %w", s.name, err))
}

func (s *stream) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i].Close()
	}
	s.closers = nil
}

// next fills b, whose Data is reused, with the next block; io.EOF ends the file.
func (s *stream) next(ctx context.Context, b *Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peeked != nil {
		*b, s.peeked = *s.peeked, nil
		return nil
	}
	b.Name, b.Data = s.name, append(b.Data[:0], s.rest...)
	s.rest = s.rest[:0]
	want := blockBytes
	for {
		if err := s.fill(ctx, b, want); err != nil {
			return err
		}
		end, count, lines := s.wholeRecords(b.Data)
		if end == 0 && !s.ended {
			if want >= longestRecord {
				return fault.New(fault.Failed, "A quote may be missing on that line.", "read %s: the record that begins on line %d is longer than %d bytes", s.name, s.line, longestRecord)
			}
			want *= 2
			continue
		}
		if len(b.Data) == 0 {
			return io.EOF
		}
		s.rest = append(s.rest, b.Data[end:]...)
		b.Data, b.First, b.Line, b.Count = b.Data[:end], s.record, s.line, count
		s.record += int64(count)
		s.line += int64(lines)
		return nil
	}
}

// fill reads until b holds want bytes or the input ends.
func (s *stream) fill(ctx context.Context, b *Block, want int) error {
	if cap(b.Data) < want {
		b.Data = append(make([]byte, 0, want), b.Data...)
	}
	for !s.ended && len(b.Data) < want {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := s.in.Read(b.Data[len(b.Data):want])
		b.Data = b.Data[:len(b.Data)+n]
		if errors.Is(err, io.EOF) {
			s.ended = true
		} else if err != nil {
			return s.fault(err)
		}
	}
	return nil
}

// wholeRecords finds where the last whole record of data ends. At the end of the input the last record needs no line end.
func (s *stream) wholeRecords(data []byte) (end, count, lines int) {
	if s.format.Quote == 0 || bytes.IndexByte(data, s.format.Quote) < 0 {
		count = bytes.Count(data, []byte{'\n'})
		end = bytes.LastIndexByte(data, '\n') + 1
	} else {
		end, count = s.quotedRecords(data)
	}
	if s.ended && end < len(data) {
		end = len(data)
		count++
	}
	return end, count, bytes.Count(data[:end], []byte{'\n'})
}

// quotedRecords is wholeRecords for data with quotes in it. One opens only at the beginning of a value; anywhere else it is
// a character like others.
func (s *stream) quotedRecords(data []byte) (end, count int) {
	for pos := 0; ; {
		q := bytes.IndexByte(data[pos:], s.format.Quote)
		outside := data[pos:]
		if q >= 0 {
			outside = data[pos : pos+q]
		}
		if i := bytes.LastIndexByte(outside, '\n'); i >= 0 {
			count += bytes.Count(outside, []byte{'\n'})
			end = pos + i + 1
		}
		if q < 0 {
			return end, count
		}
		pos += q + 1
		if pos > 1 && data[pos-2] != s.format.Delimiter && data[pos-2] != '\n' {
			continue
		}
		if pos = s.closing(data, pos); pos < 0 {
			return end, count
		}
	}
}

// closing gives the place behind the quote that closes what was opened before pos; -1 when it is not in data.
func (s *stream) closing(data []byte, pos int) int {
	for {
		q := bytes.IndexByte(data[pos:], s.format.Quote)
		if q < 0 {
			return -1
		}
		pos += q + 1
		if pos == len(data) || data[pos] != s.format.Quote {
			return pos
		}
		pos++
	}
}

// Set is the files of a data set, read by several readers at once: each has a file of its own as long as there are
// enough, then they share those that are left.
type Set struct {
	format Format
	stdin  io.Reader

	mu    sync.Mutex
	files []string
	fresh *stream // opened by Peek, and nobody's yet
	open  []*stream
}

// NewSet makes a set of files; with in given it is that one stream instead, and files its name.
func NewSet(files []string, in io.Reader, format Format) *Set {
	return &Set{format: format, stdin: in, files: append([]string(nil), files...)}
}

// Peek opens the first file and gives its first block, which the first reader gets again. io.EOF: it is empty.
func (s *Set) Peek(ctx context.Context) (*Block, error) {
	st, err := s.openNext()
	if err != nil {
		return nil, err
	}
	s.fresh = st
	b := &Block{}
	if err := st.next(ctx, b); err != nil {
		return nil, err
	}
	st.peeked = b
	return b, nil
}

func (s *Set) openNext() (*stream, error) {
	name := s.files[0]
	s.files = s.files[1:]
	st, err := openStream(name, s.stdin, s.format)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// Cursor is one reader's place in the set.
type Cursor struct {
	set *Set
	at  *stream
}

// Cursor makes a reader's place.
func (s *Set) Cursor() *Cursor { return &Cursor{set: s} }

// Next fills b with a block; io.EOF when every file is at its end.
func (c *Cursor) Next(ctx context.Context, b *Block) error {
	for {
		if c.at == nil {
			if err := c.choose(); err != nil {
				return err
			}
		}
		err := c.at.next(ctx, b)
		if !errors.Is(err, io.EOF) {
			return err
		}
		c.set.drop(c.at)
		c.at = nil
	}
}

// choose takes a file of one's own, else one that is open.
func (c *Cursor) choose() error {
	s := c.set
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.fresh != nil:
		c.at, s.fresh = s.fresh, nil
	case len(s.files) > 0:
		st, err := s.openNext()
		if err != nil {
			return err
		}
		c.at = st
	case len(s.open) == 0:
		return io.EOF
	default:
		c.at = s.open[0]
		return nil
	}
	s.open = append(s.open, c.at)
	return nil
}

func (s *Set) drop(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, o := range s.open {
		if o == st {
			s.open = append(s.open[:i], s.open[i+1:]...)
			st.close()
			return
		}
	}
}

// Close closes what is open.
func (s *Set) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.open {
		st.close()
	}
	s.open = nil
	if s.fresh != nil {
		s.fresh.close()
		s.fresh = nil
	}
	return nil
}
