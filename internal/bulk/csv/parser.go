package csv

import (
	"bytes"
	"errors"
)

// field is one value of a record.
type field struct {
	data   []byte
	quoted bool // any part of it
}

// parser takes records apart. It is used by one goroutine.
type parser struct {
	delimiter byte
	fields    []field
	newlines  int // inside of the record's values
}

var (
	errOpenQuote = errors.New("a quote is opened and never closed")
	errCR        = errors.New("a carriage return stands outside of quotes")
)

// record takes the record at the start of b apart and gives the bytes it took, its line end included. Values point into b, where quoted
// ones were moved together; they are valid until the next call. After an error the rest of the record is still skipped.
func (p *parser) record(b []byte) (fields []field, n int, err error) {
	p.fields, p.newlines = p.fields[:0], 0
	for i := 0; ; {
		start := i
		for i < len(b) && b[i] != p.delimiter && b[i] != '\n' && b[i] != '"' {
			i++
		}
		f := field{data: b[start:i]}
		if i < len(b) && b[i] == '"' {
			var closed bool
			f, i, closed = p.quoted(b, start, i)
			if !closed {
				err = errOpenQuote
			}
		}
		last := i >= len(b) || b[i] == '\n'
		if last && i <= len(b) && len(f.data) > 0 && f.data[len(f.data)-1] == '\r' && b[i-1] == '\r' {
			f.data = f.data[:len(f.data)-1] // of the line end
		}
		if !f.quoted && bytes.IndexByte(f.data, '\r') >= 0 && err == nil {
			err = errCR
		}
		p.fields = append(p.fields, f)
		if last {
			return p.fields, min(i+1, len(b)), err
		}
		i++
	}
}

// quoted reads a value that has quotes, from start, with the first quote at i, moving it together in place.
func (p *parser) quoted(b []byte, start, i int) (f field, end int, closed bool) {
	to := i
	open := false
	for ; i < len(b); i++ {
		c := b[i]
		switch {
		case c == '"' && open && i+1 < len(b) && b[i+1] == '"':
			i++
		case c == '"':
			open = !open
			continue
		case !open && (c == p.delimiter || c == '\n'):
			return field{data: b[start:to], quoted: true}, i, true
		}
		if c == '\n' {
			p.newlines++
		}
		b[to] = c
		to++
	}
	return field{data: b[start:to], quoted: true}, i, !open
}
