package record

import (
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"
)

// AppendString writes s as a JSON string, escaped as PostgreSQL's escape_json escapes it. s must be valid UTF-8, or
// the result is no JSON; where that is not known use appendText.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst, _ = appendQuoted(dst, view(s))
	return dst
}

var errUTF8 = errors.New("text is not valid UTF-8, so JSON cannot hold it")

// appendText is AppendString for text that may not be UTF-8, as in a database whose encoding is SQL_ASCII.
func appendText[T string | []byte](dst []byte, s T) ([]byte, error) {
	dst, ok := appendQuoted(dst, view(s))
	if !ok {
		return dst, errUTF8
	}
	return dst, nil
}

// view is the text as bytes that are only read.
func view[T string | []byte](s T) []byte {
	switch s := any(s).(type) {
	case []byte:
		return s
	case string:
		return unsafe.Slice(unsafe.StringData(s), len(s))
	}
	return nil
}

// appendQuoted writes s as a JSON string and tells whether it was UTF-8. If not, what it wrote is no JSON.
func appendQuoted(dst, s []byte) (out []byte, ok bool) {
	dst = append(dst, '"')
	start, ok := 0, true
	for i := skipPlain(s, 0); i < len(s); i = skipPlain(s, i) {
		if s[i] >= utf8.RuneSelf {
			for i < len(s) && s[i] >= utf8.RuneSelf {
				_, n := utf8.DecodeRune(s[i:])
				ok = ok && n > 1
				i += n
			}
			continue
		}
		dst = append(dst, s[start:i]...)
		dst = appendEscape(dst, s[i])
		i++
		start = i
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"'), ok
}

// appendEscape writes a character that a JSON string does not carry as it stands.
func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, '\\', 'b')
	case '\f':
		return append(dst, '\\', 'f')
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&0xf])
}

// AppendUnquoted appends the content of a JSON string, quotes included in s, with its escapes resolved. s must be
// valid JSON, such as a part of a Line; half of a surrogate pair is an error, as no text can hold it.
func AppendUnquoted(dst, s []byte) ([]byte, error) {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return dst, fmt.Errorf("not a JSON string: %s", excerpt(s))
	}
	s = s[1 : len(s)-1]
	start := 0
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		end, fl, bad := scanEscape(s, i)
		if bad == "" && fl&hasLone != 0 {
			bad = "half of a surrogate pair"
		}
		if bad != "" {
			return dst, fmt.Errorf("%s: %s", bad, excerpt(s[i:]))
		}
		dst = appendEscaped(dst, s[i:end])
		i, start = end, end
	}
	return append(dst, s[start:]...), nil
}

// appendEscaped appends the character of one escape, or of a surrogate pair of two, that scanEscape has passed.
func appendEscaped(dst, esc []byte) []byte {
	switch esc[1] {
	case 'b':
		return append(dst, '\b')
	case 'f':
		return append(dst, '\f')
	case 'n':
		return append(dst, '\n')
	case 'r':
		return append(dst, '\r')
	case 't':
		return append(dst, '\t')
	case 'u':
		u, _ := hex4(esc, 2)
		if len(esc) == 12 {
			low, _ := hex4(esc, 8)
			u = 0x10000 + (u-0xD800)<<10 + (low - 0xDC00)
		}
		return utf8.AppendRune(dst, rune(u))
	}
	return append(dst, esc[1]) // quote, backslash, slash
}

// excerpt is the beginning of a text for an error message, quoted.
func excerpt(b []byte) string {
	const most = 60
	if len(b) <= most {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q and %d bytes more", b[:most], len(b)-most)
}
