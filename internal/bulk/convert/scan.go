package convert

import (
	"bytes"
	"errors"
	"fmt"
)

var errNotJSON = errors.New("not valid JSON")

// EachElement calls f with every element of a JSON array, in order. Elements are raw JSON without blanks around.
func EachElement(raw []byte, f func(v []byte) error) error {
	i := skipSpace(raw, 1)
	if i < len(raw) && raw[i] == ']' {
		return nil
	}
	for {
		end, err := skipValue(raw, i, 0)
		if err != nil {
			return err
		}
		if err := f(raw[i:end]); err != nil {
			return err
		}
		i = skipSpace(raw, end)
		switch {
		case i < len(raw) && raw[i] == ']':
			return nil
		case i < len(raw) && raw[i] == ',':
			i = skipSpace(raw, i+1)
		default:
			return errNotJSON
		}
	}
}

// EachMember calls f with every member of a JSON object, in order; key is raw, with its quotes. It returns where the
// object ends.
func EachMember(raw []byte, f func(key, v []byte) error) (end int, err error) {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return 0, errNotJSON
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(raw) || raw[i] != '"' {
			return 0, errNotJSON
		}
		keyStart := i
		if i, err = skipString(raw, i); err != nil {
			return 0, err
		}
		key := raw[keyStart:i]
		i = skipSpace(raw, i)
		if i >= len(raw) || raw[i] != ':' {
			return 0, errNotJSON
		}
		start := skipSpace(raw, i+1)
		if i, err = skipValue(raw, start, 0); err != nil {
			return 0, err
		}
		if err := f(key, raw[start:i]); err != nil {
			return 0, err
		}
		i = skipSpace(raw, i)
		switch {
		case i < len(raw) && raw[i] == '}':
			return i + 1, nil
		case i < len(raw) && raw[i] == ',':
			i = skipSpace(raw, i+1)
		default:
			return 0, errNotJSON
		}
	}
}

// Member is the raw value of an object's member, the last of that name; nil when there is none.
func Member(raw []byte, name string) (v []byte, err error) {
	var plain []byte
	_, err = EachMember(raw, func(key, value []byte) error {
		if KeyIs(key, name, &plain) {
			v = value
		}
		return nil
	})
	return v, err
}

// KeyIs tells whether a raw key is name. scratch is used when it has escapes.
func KeyIs(key []byte, name string, scratch *[]byte) bool {
	if bytes.IndexByte(key, '\\') < 0 {
		return string(key[1:len(key)-1]) == name
	}
	var err error
	*scratch, err = Unquote((*scratch)[:0], key)
	return err == nil && string(*scratch) == name
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// mostNested bounds the recursion of a value that is all brackets.
const mostNested = 1000

// skipValue finds where the value that begins at i ends, checking its syntax.
func skipValue(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return 0, errNotJSON
	}
	if depth > mostNested {
		return 0, fmt.Errorf("JSON nested deeper than %d", mostNested)
	}
	switch c := b[i]; {
	case c == '"':
		return skipString(b, i)
	case c == '{' || c == '[':
		return skipNested(b, i, depth)
	case c == '-' || (c >= '0' && c <= '9'):
		return skipNumber(b, i)
	}
	for _, word := range [...]string{"true", "false", "null"} {
		if bytes.HasPrefix(b[i:], []byte(word)) {
			return i + len(word), nil
		}
	}
	return 0, errNotJSON
}

func skipNested(b []byte, i, depth int) (int, error) {
	object, closing := b[i] == '{', b[i]+2 // '{'+2 is '}', '['+2 is ']'
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == closing {
		return i + 1, nil
	}
	for {
		var err error
		if object {
			if i >= len(b) || b[i] != '"' {
				return 0, errNotJSON
			}
			if i, err = skipString(b, i); err != nil {
				return 0, err
			}
			i = skipSpace(b, i)
			if i >= len(b) || b[i] != ':' {
				return 0, errNotJSON
			}
			i = skipSpace(b, i+1)
		}
		if i, err = skipValue(b, i, depth+1); err != nil {
			return 0, err
		}
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == closing:
			return i + 1, nil
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		default:
			return 0, errNotJSON
		}
	}
}

func skipString(b []byte, i int) (int, error) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c == '\\':
			i++
		case c < ' ':
			return 0, errNotJSON
		}
	}
	return 0, errNotJSON
}

func skipNumber(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	start := i
	i = digitsEnd(b, i)
	if i == start || (b[start] == '0' && i > start+1) {
		return 0, errNotJSON
	}
	if i < len(b) && b[i] == '.' {
		j := digitsEnd(b, i+1)
		if j == i+1 {
			return 0, errNotJSON
		}
		i = j
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digitsEnd(b, i)
		if j == i {
			return 0, errNotJSON
		}
		i = j
	}
	return i, nil
}
