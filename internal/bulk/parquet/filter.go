package parquet

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"synctl/internal/fault"
)

// filter is comparisons of columns with literals, joined by AND: what --filter can say of Parquet files.
type filter struct {
	terms []*term
}

// term is one comparison. A row passes when it is true; a null makes it neither true nor false, so the row does not pass.
type term struct {
	column string
	op     string   // = <> < <= > >= in, is null, is not null
	texts  []string // the literals as written
	quoted []bool

	kind   valueKind
	ints   []int64
	floats []float64
	bytes  [][]byte
}

// valueKind says how a column's values are compared.
type valueKind uint8

const (
	intValue valueKind = iota
	floatValue
	bytesValue
	boolValue
)

const filterHint = "Write comparisons joined by AND, such as: day >= '2026-11-01' AND shop IN (1, 2) AND note IS NOT NULL."

func parseFilter(s string) (*filter, error) {
	if strings.TrimSpace(s) == "" {
		return nil, nil
	}
	p := &filterParser{s: s}
	f := &filter{}
	for {
		t, err := p.term()
		if err != nil {
			return nil, fault.New(fault.Usage, filterHint, "filter %q: %w", s, err)
		}
		f.terms = append(f.terms, t)
		switch word, _ := p.next(); {
		case word == "":
			return f, nil
		case !strings.EqualFold(word, "and"):
			return nil, fault.New(fault.Usage, filterHint, "filter %q: %q where AND or the end was expected", s, word)
		}
	}
}

type filterParser struct {
	s string
	i int
}

// next gives the next token; quoted tells a literal or a name in quotes.
func (p *filterParser) next() (token string, quoted byte) {
	for p.i < len(p.s) && strings.IndexByte(" \t\n\r", p.s[p.i]) >= 0 {
		p.i++
	}
	if p.i == len(p.s) {
		return "", 0
	}
	start := p.i
	switch c := p.s[p.i]; {
	case c == '\'' || c == '"' || c == '`':
		var b []byte
		for p.i++; p.i < len(p.s); p.i++ {
			if p.s[p.i] == c {
				if p.i+1 == len(p.s) || p.s[p.i+1] != c {
					p.i++
					return string(b), c
				}
				p.i++
			}
			b = append(b, p.s[p.i])
		}
		return p.s[start:], 0 // never closed: no token fits it
	case strings.IndexByte("(),", c) >= 0:
		p.i++
	case strings.IndexByte("=<>!", c) >= 0:
		for p.i < len(p.s) && strings.IndexByte("=<>!", p.s[p.i]) >= 0 {
			p.i++
		}
	default:
		for p.i < len(p.s) && strings.IndexByte(" \t\n\r(),=<>!'\"`", p.s[p.i]) < 0 {
			p.i++
		}
	}
	return p.s[start:p.i], 0
}

func (p *filterParser) term() (*term, error) {
	name, q := p.next()
	if name == "" || q == '\'' {
		return nil, fmt.Errorf("a column's name is missing before %q", p.s[p.i:])
	}
	t := &term{column: name}
	op, _ := p.next()
	switch op = strings.ToLower(op); op {
	case "=", "<>", "<", "<=", ">", ">=":
		t.op = op
		return t, p.literal(t)
	case "!=":
		t.op = "<>"
		return t, p.literal(t)
	case "in":
		return t, p.list(t)
	case "is":
		return t, p.null(t)
	}
	return nil, fmt.Errorf("%q is no comparison", op)
}

func (p *filterParser) literal(t *term) error {
	word, q := p.next()
	if q == 0 && (strings.EqualFold(word, "date") || strings.EqualFold(word, "timestamp")) {
		word, q = p.next()
	}
	if word == "" && q == 0 || strings.ContainsAny(word, "(),") && q == 0 || q == '"' || q == '`' {
		return fmt.Errorf("a literal is missing after %s %s", t.column, t.op)
	}
	t.texts, t.quoted = append(t.texts, word), append(t.quoted, q == '\'')
	return nil
}

func (p *filterParser) list(t *term) error {
	t.op = "in"
	if word, _ := p.next(); word != "(" {
		return fmt.Errorf("a list in brackets is missing after %s IN", t.column)
	}
	for {
		if err := p.literal(t); err != nil {
			return err
		}
		switch word, _ := p.next(); word {
		case ")":
			return nil
		case ",":
		default:
			return fmt.Errorf("the list of %s IN is not closed", t.column)
		}
	}
}

func (p *filterParser) null(t *term) error {
	word, _ := p.next()
	t.op = "is null"
	if strings.EqualFold(word, "not") {
		t.op = "is not null"
		word, _ = p.next()
	}
	if !strings.EqualFold(word, "null") {
		return fmt.Errorf("IS is followed by %q, not by NULL or NOT NULL", word)
	}
	return nil
}

// columns are the names that the filter compares.
func (f *filter) columns() []string {
	if f == nil {
		return nil
	}
	var names []string
	for _, t := range f.terms {
		names = append(names, t.column)
	}
	return names
}

// keep tells which rows of a batch pass; at gives the column of every name.
func (f *filter) keep(rb arrow.RecordBatch, at map[string]int) ([]bool, error) {
	if f == nil {
		return nil, nil
	}
	keep := make([]bool, rb.NumRows())
	for i := range keep {
		keep[i] = true
	}
	for _, t := range f.terms {
		a := rb.Column(at[t.column])
		compare, err := t.comparer(a)
		if err != nil {
			return nil, err
		}
		for i := range keep {
			if keep[i] {
				keep[i] = t.passes(a.IsNull(i), func(k int) (int, bool) { return compare(i, k) })
			}
		}
	}
	return keep, nil
}

// passes decides a term for one value; compare gives the value's order against literal k, false when it has none (NaN).
func (t *term) passes(null bool, compare func(k int) (int, bool)) bool {
	switch {
	case t.op == "is null":
		return null
	case t.op == "is not null":
		return !null
	case null:
		return false
	}
	for k := range t.texts {
		c, ok := compare(k)
		if ok && holds(t.op, c) {
			return true
		}
		if !ok && t.op == "<>" {
			return true
		}
	}
	return false
}

func holds(op string, c int) bool {
	switch op {
	case "=", "in":
		return c == 0
	case "<>":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

// mayHold tells whether any value between min and max, given by their order against literal k, could pass.
func (t *term) mayHold(lo, hi func(k int) int) bool {
	for k := range t.texts {
		l, h := lo(k), hi(k)
		switch t.op {
		case "=", "in":
			if l <= 0 && h >= 0 {
				return true
			}
		case "<":
			if l < 0 {
				return true
			}
		case "<=":
			if l <= 0 {
				return true
			}
		case ">":
			if h > 0 {
				return true
			}
		case ">=":
			if h >= 0 {
				return true
			}
		default:
			return true
		}
	}
	return false
}

func order[T int64 | float64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func orderBytes(a, b []byte) int { return bytes.Compare(a, b) }
