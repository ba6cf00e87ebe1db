package convert

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// appendJSON writes a JSON value in the type's binary form, as json_populate_record would take it: strings by their
// content, other scalars by their text, arrays as arrays, objects as composites.
func (e *env) appendJSON(dst, raw []byte, t *Type) ([]byte, error) {
	switch {
	case t.Kind == JSON:
		return e.appendJSONText(dst, raw)
	case t.Kind == JSONB:
		return e.appendJSONText(append(dst, 1), raw)
	case raw[0] == '"':
		var err error
		if e.plain, err = Unquote(e.plain[:0], raw); err != nil {
			return dst, err
		}
		return e.appendText(dst, e.plain, t)
	case t.Kind == Array:
		return e.appendJSONArray(dst, raw, t)
	case t.Kind == Composite:
		return e.appendJSONObject(dst, raw, t)
	case raw[0] == '{' || raw[0] == '[':
		if t.Kind != Text {
			return dst, misfit(raw, t)
		}
	}
	return e.appendText(dst, raw, t)
}

// hasJSONForm tells whether JSON values can be turned into the type's binary form here.
func hasJSONForm(t *Type) bool {
	switch t.Kind {
	case Array:
		return hasJSONForm(t.Elem)
	case Composite:
		for _, f := range t.Fields {
			if !hasJSONForm(f.Type) {
				return false
			}
		}
		return true
	}
	return hasTextForm(t)
}

// appendJSONArray writes nested JSON arrays as an array with as many dimensions as they are deep.
func (e *env) appendJSONArray(dst, raw []byte, t *Type) ([]byte, error) {
	if raw[0] != '[' {
		return dst, misfit(raw, t)
	}
	var dims [6]int
	depth, err := jsonDims(raw, t, dims[:])
	if err != nil {
		return dst, err
	}
	head := len(dst)
	dst = appendArrayHead(dst, t, dims[:depth])
	if depth == 0 {
		return dst, nil
	}
	dst, nulls, err := e.appendJSONElems(dst, raw, t, dims[:depth])
	if err != nil {
		return dst[:head], err
	}
	if nulls {
		dst[head+7] = 1
	}
	return dst, nil
}

// jsonDims measures the outermost and first arrays; appendJSONElems holds the others against them.
func jsonDims(raw []byte, t *Type, dims []int) (int, error) {
	depth := 0
	for len(raw) > 0 && raw[0] == '[' && (depth == 0 || !isJSON(t.Elem)) {
		if depth == len(dims) {
			return 0, fmt.Errorf("value %s has more than %d dimensions", quoteValue(raw), len(dims))
		}
		n, first := 0, []byte(nil)
		if err := EachElement(raw, func(v []byte) error {
			if n == 0 {
				first = v
			}
			n++
			return nil
		}); err != nil {
			return 0, err
		}
		if n == 0 {
			return 0, nil
		}
		dims[depth] = n
		depth++
		raw = first
	}
	return depth, nil
}

func isJSON(t *Type) bool { return t.Kind == JSON || t.Kind == JSONB }

func (e *env) appendJSONElems(dst, raw []byte, t *Type, dims []int) (_ []byte, nulls bool, err error) {
	n := 0
	if raw[0] != '[' {
		return dst, false, fmt.Errorf("value %s: a multidimensional array must be rectangular", quoteValue(raw))
	}
	err = EachElement(raw, func(v []byte) error {
		n++
		if len(dims) > 1 {
			inner := false
			dst, inner, err = e.appendJSONElems(dst, v, t, dims[1:])
			nulls = nulls || inner
			return err
		}
		if string(v) == "null" {
			nulls = true
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			return nil
		}
		mark := len(dst)
		dst, err = e.appendJSON(append(dst, 0, 0, 0, 0), v, t.Elem)
		if err == nil {
			binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
		}
		return err
	})
	if err == nil && n != dims[0] {
		err = fmt.Errorf("value %s: a multidimensional array must be rectangular", quoteValue(raw))
	}
	return dst, nulls, err
}

func (e *env) appendJSONObject(dst, raw []byte, t *Type) ([]byte, error) {
	if raw[0] != '{' {
		return dst, misfit(raw, t)
	}
	head := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t.Fields)))
	for _, f := range t.Fields {
		v, err := Member(raw, f.Name)
		if err != nil {
			return dst[:head], err
		}
		dst = binary.BigEndian.AppendUint32(dst, f.Type.OID)
		if v == nil || string(v) == "null" {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		mark := len(dst)
		if dst, err = e.appendJSON(append(dst, 0, 0, 0, 0), v, f.Type); err != nil {
			return dst[:head], fmt.Errorf("field %q: %w", f.Name, err)
		}
		binary.BigEndian.PutUint32(dst[mark:], uint32(len(dst)-mark-4))
	}
	return dst, nil
}

// appendArrayHead writes an array's head: dimensions, no nulls, element type, sizes with lower bounds of 1.
func appendArrayHead(dst []byte, t *Type, dims []int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(dims)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, t.Elem.OID)
	for _, n := range dims {
		dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		dst = append(dst, 0, 0, 0, 1)
	}
	return dst
}

// Unquote appends the content of a JSON string, quotes included in raw.
func Unquote(dst, raw []byte) ([]byte, error) {
	s := raw[1 : len(raw)-1]
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			return append(dst, s...), nil
		}
		dst = append(dst, s[:i]...)
		if i+1 >= len(s) {
			return dst, fmt.Errorf("JSON string %s ends in a backslash", quoteValue(raw))
		}
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case '"', '\\', '/':
			dst = append(dst, c)
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, rest, ok := hexRune(s)
			if !ok {
				return dst, fmt.Errorf("JSON string %s has an escape that is no character", quoteValue(raw))
			}
			dst, s = utf8.AppendRune(dst, r), rest
		default:
			return dst, fmt.Errorf("JSON string %s has the unknown escape \\%c", quoteValue(raw), c)
		}
	}
}

// hexRune reads XXXX, or XXXX\uXXXX for a surrogate pair.
func hexRune(s []byte) (rune, []byte, bool) {
	r, ok := hex4(s)
	if !ok {
		return 0, nil, false
	}
	s = s[4:]
	if !utf16.IsSurrogate(r) {
		return r, s, true
	}
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, nil, false
	}
	low, ok := hex4(s[2:])
	if !ok {
		return 0, nil, false
	}
	r = utf16.DecodeRune(r, low)
	return r, s[6:], r != utf8.RuneError
}

func hex4(s []byte) (rune, bool) {
	if len(s) < 4 {
		return 0, false
	}
	r := rune(0)
	for _, c := range s[:4] {
		v := unhex(c)
		if v > 15 {
			return 0, false
		}
		r = r<<4 | rune(v)
	}
	return r, true
}
