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
	errBehind    = errors.New("there is text between a closing quote and the next delimiter; a quote inside of a quoted value is written twice")
	errCR        = errors.New("a carriage return stands outside of quotes")
)

// record takes the record at the start of b apart and gives the bytes it took, its line end included. Values point into b,
// where quoted ones were moved together; they are valid until the next call. After an error the rest of the record is still skipped.
func (p *parser) record(b []byte) (fields []field, n int, err error) {
	p.fields, p.newlines = p.fields[:0], 0
	for i := 0; ; i++ {
		var f field
		var problem error
		if i < len(b) && b[i] == '"' {
			f, i, problem = p.quoted(b, i)
		} else {
			start := i
			for i < len(b) && b[i] != p.delimiter && b[i] != '\n' {
				i++
			}
			f.data = b[start:i]
			if (i == len(b) || b[i] == '\n') && len(f.data) > 0 && f.data[len(f.data)-1] == '\r' {
				f.data = f.data[:len(f.data)-1] // of the line end
			}
			if bytes.IndexByte(f.data, '\r') >= 0 {
				problem = errCR
			}
		}
		if err == nil {
			err = problem
		}
		p.fields = append(p.fields, f)
		if i >= len(b) || b[i] == '\n' {
			return p.fields, min(i+1, len(b)), err
		}
	}
}

// quoted reads the value whose opening quote is at i, moving it together in place.
func (p *parser) quoted(b []byte, i int) (f field, end int, err error) {
	i++
	start, to := i, i
	for {
		q := bytes.IndexByte(b[i:], '"')
		if q < 0 {
			p.newlines += bytes.Count(b[i:], []byte{'\n'})
			return field{data: b[start:to], quoted: true}, len(b), errOpenQuote
		}
		p.newlines += bytes.Count(b[i:i+q], []byte{'\n'})
		if to != i {
			copy(b[to:], b[i:i+q])
		}
		to += q
		i += q + 1
		if i == len(b) || b[i] != '"' {
			break
		}
		b[to] = '"'
		to++
		i++
	}
	behind := i
	for i < len(b) && b[i] != p.delimiter && b[i] != '\n' {
		i++
	}
	if rest := b[behind:i]; len(rest) > 0 && !(string(rest) == "\r" && (i == len(b) || b[i] == '\n')) {
		err = errBehind
	}
	return field{data: b[start:to], quoted: true}, i, err
}
