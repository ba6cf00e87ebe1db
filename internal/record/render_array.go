package record

import (
	"bytes"
	"errors"
	"fmt"
)

// maxDims is how many dimensions an array of PostgreSQL's can have.
const maxDims = 6

// arrayShape holds what is known of an array's dimensions while it is read, outermost first.
type arrayShape struct {
	depth   int          // braces open
	dims    int          // how deep the elements lie; 0 until the first
	count   [maxDims]int // items seen in the innermost open brace of each dimension
	size    [maxDims]int // items that each brace of the dimension has; -1 until one is closed
	bounded int          // dimensions that the text's bounds give, 0 for none
}

// appendArray writes an array as nested JSON arrays. Bounds before the braces are there only when one of them does not
// begin at 1, which JSON cannot say.
func (t *Type) appendArray(dst, text []byte) (out []byte, literal bool, err error) {
	var s arrayShape
	body, err := s.readBounds(text)
	if err != nil {
		return dst, false, err
	}
	// Elements that are arrays themselves, of a domain over one, look in JSON like a further dimension.
	literal = s.bounded > 0 || t.Elem.Kind == KindArray || t.Elem.Kind == KindVector
	if string(body) == "{}" {
		if s.bounded > 0 {
			return dst, false, notForm("no bounds for an empty array", text)
		}
		return append(dst, '[', ']'), false, nil
	}
	i := 0
	for {
		// At the beginning of an item: braces to its depth, then an element.
		for i < len(body) && body[i] == '{' {
			if dst, err = s.open(dst); err != nil {
				return dst, false, err
			}
			i++
		}
		if s.dims == 0 {
			s.dims = s.depth
		}
		if s.depth == 0 || s.depth != s.dims {
			return dst, false, notForm("braces that go equally deep", text)
		}
		var lit bool
		if dst, i, lit, err = t.appendElement(dst, body, i); err != nil {
			return dst, false, err
		}
		literal = literal || lit
		s.count[s.depth-1]++
		for i < len(body) && body[i] == '}' && s.depth > 0 {
			if err := s.close(); err != nil {
				return dst, false, err
			}
			dst = append(dst, ']')
			i++
		}
		if s.depth == 0 {
			break
		}
		if i >= len(body) || body[i] != t.delim() {
			return dst, false, notForm("a delimiter or } after each element", text)
		}
		dst = append(dst, ',')
		i++
	}
	if i != len(body) {
		return dst, false, notForm("nothing after the last }", text)
	}
	if s.bounded > 0 && s.bounded != s.dims {
		return dst, false, notForm("as many bounds as dimensions", text)
	}
	return dst, literal, nil
}

func (t *Type) delim() byte {
	if t.Delim == 0 {
		return ','
	}
	return t.Delim
}

func (s *arrayShape) open(dst []byte) ([]byte, error) {
	if s.depth == maxDims {
		return dst, fmt.Errorf("array of more than %d dimensions", maxDims)
	}
	if s.depth > 0 {
		s.count[s.depth-1]++
	}
	if s.dims == 0 && s.bounded == 0 {
		s.size[s.depth] = -1
	}
	s.count[s.depth] = 0
	s.depth++
	return append(dst, '['), nil
}

func (s *arrayShape) close() error {
	s.depth--
	d := s.depth
	if s.size[d] == -1 {
		s.size[d] = s.count[d]
	}
	if s.size[d] != s.count[d] {
		return fmt.Errorf("array with %d items where %d are due in dimension %d", s.count[d], s.size[d], d+1)
	}
	return nil
}

// readBounds reads what may stand before an array's braces, [0:1][-2:3]=, and returns the rest.
func (s *arrayShape) readBounds(text []byte) (body []byte, err error) {
	if len(text) == 0 || text[0] != '[' {
		return text, nil
	}
	head, body, ok := bytes.Cut(text, []byte("="))
	for ok && len(head) > 0 {
		var low, top int
		var okLow, okTop bool
		low, head, okLow = cutBound(head, '[', ':')
		top, head, okTop = cutBound(head, ':', ']')
		if len(head) > 0 && head[0] == ']' {
			head = head[1:]
		} else {
			okTop = false
		}
		if !okLow || !okTop || top < low || s.bounded == maxDims {
			return nil, notForm("bounds such as [0:1]=", text)
		}
		s.size[s.bounded] = top - low + 1
		s.bounded++
	}
	if s.bounded == 0 {
		return nil, notForm("bounds such as [0:1]=", text)
	}
	return body, nil
}

// cutBound reads one number between the characters before and after, and leaves after in the rest.
func cutBound(b []byte, before, after byte) (v int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != before {
		return 0, nil, false
	}
	i, sign := 1, 1
	if i < len(b) && b[i] == '-' {
		i, sign = 2, -1
	}
	end := skipDigits(b, i)
	u, ok := parseUint(b[i:end], 1<<31)
	if !ok || end >= len(b) || b[end] != after {
		return 0, nil, false
	}
	return sign * int(u), b[end:], true
}

var errUnclosed = errors.New("quotes that are not closed")

// appendElement writes the element at i of an array and returns the offset after it.
func (t *Type) appendElement(dst, b []byte, i int) (out []byte, end int, literal bool, err error) {
	if i < len(b) && b[i] == '"' {
		from, escaped := i+1, false
		for i++; i < len(b) && b[i] != '"'; i++ {
			if b[i] == '\\' {
				escaped = true
				i++
			}
		}
		if i >= len(b) {
			return dst, i, false, errUnclosed
		}
		if escaped {
			dst, literal, err = t.Elem.appendUnescaped(dst, b[from:i], false)
		} else {
			dst, literal, err = t.Elem.AppendJSON(dst, b[from:i])
		}
		return dst, i + 1, literal, err
	}
	from, delim := i, t.delim()
	for i < len(b) && b[i] != delim && b[i] != '}' {
		switch b[i] {
		case '{', '"', '\\', ' ', '\t', '\n', '\r', '\v', '\f':
			return dst, i, false, notForm("quotes around an element", b[from:])
		}
		i++
	}
	elem := b[from:i]
	switch {
	case len(elem) == 0:
		return dst, i, false, notForm("an element", b[from:])
	case len(elem) == 4 && bytes.EqualFold(elem, []byte("NULL")):
		return append(dst, "null"...), i, false, nil
	}
	dst, literal, err = t.Elem.AppendJSON(dst, elem)
	return dst, i, literal, err
}
