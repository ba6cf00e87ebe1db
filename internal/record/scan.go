package record

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// maxDepth is how deeply JSON may be nested. It is encoding/json's limit too, so what this package accepts, consumers
// written in Go can read; without a limit a line of brackets would grow the stack until the process dies.
const maxDepth = 10000

const (
	noName  = "a field's name is missing"
	noColon = "a field's name without :"
)

// What a scan saw in the strings it passed. Some of it is valid JSON that not every reader can decode.
type strFlags uint8

const (
	hasEscape strFlags = 1 << iota
	hasNUL             // \u0000, which PostgreSQL's text cannot hold
	hasLone            // half of a surrogate pair, which no text can hold
)

// The scanning functions return the offset after what they passed. Where the text is not JSON, bad says why and the
// offset is where.

// special8 marks, in the lowest set high bit, the first of eight bytes that a JSON string does not carry as it stands:
// control characters, quote, backslash; and bytes outside ASCII, which have to be checked. Zero: none of the eight.
// A borrow can mark a byte falsely only above a byte that is marked rightly.
func special8(x uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	return (x | (x - 0x20*ones) | ((x ^ '"'*ones) - ones) | ((x ^ '\\'*ones) - ones)) & highs
}

// skipPlain passes the bytes that a JSON string carries as they stand.
func skipPlain(b []byte, i int) int {
	for i+8 <= len(b) {
		if m := special8(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
		i += 8
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// scanString passes the string whose opening quote is at i.
func scanString(b []byte, i int) (end int, fl strFlags, bad string) {
	i++
	if i+8 <= len(b) { // most strings are names and short values, and end in here
		if m := special8(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			i += bits.TrailingZeros64(m) >> 3
			if b[i] == '"' {
				return i + 1, 0, ""
			}
		}
	}
	for {
		i = skipPlain(b, i)
		if i >= len(b) {
			return len(b), fl, "string is not closed"
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, fl, ""
		case c == '\\':
			var f strFlags
			if i, f, bad = scanEscape(b, i); bad != "" {
				return i, fl, bad
			}
			fl |= f
		case c < ' ':
			return i, fl, "control character in a string"
		default:
			_, n := utf8.DecodeRune(b[i:])
			if n == 1 {
				return i, fl, "invalid UTF-8"
			}
			i += n
		}
	}
}

// scanEscape passes the escape whose backslash is at i; a surrogate pair is passed whole.
func scanEscape(b []byte, i int) (end int, fl strFlags, bad string) {
	if i+1 >= len(b) {
		return i, 0, "string is not closed"
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, hasEscape, ""
	case 'u':
	default:
		return i, 0, "unknown escape in a string"
	}
	u, ok := hex4(b, i+2)
	if !ok {
		return i, 0, `\u without four hexadecimal digits`
	}
	switch {
	case u == 0:
		return i + 6, hasEscape | hasNUL, ""
	case u < 0xD800 || u > 0xDFFF:
		return i + 6, hasEscape, ""
	case u < 0xDC00 && i+7 < len(b) && b[i+6] == '\\' && b[i+7] == 'u':
		if low, ok := hex4(b, i+8); ok && low >= 0xDC00 && low <= 0xDFFF {
			return i + 12, hasEscape, ""
		}
	}
	return i + 6, hasEscape | hasLone, ""
}

// hex4 reads four hexadecimal digits at i.
func hex4(b []byte, i int) (u uint32, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		u = u<<4 | uint32(d)
	}
	return u, true
}

func hexDigit(c byte) (d byte, ok bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t') {
		i++
	}
	return i
}

// scanValue passes the JSON value at i, white space before it included. depth counts the values around it.
func scanValue(b []byte, i, depth int) (end int, fl strFlags, bad string) {
	i = skipSpace(b, i)
	if i >= len(b) {
		return i, 0, "a value is missing"
	}
	switch c := b[i]; {
	case c == '"':
		return scanString(b, i)
	case c == '{' || c == '[':
		if depth >= maxDepth {
			return i, 0, "nested more than 10000 deep"
		}
		if c == '{' {
			return scanObject(b, i, depth+1)
		}
		return scanArray(b, i, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		return scanNumber(b, i)
	case c == 't':
		return scanWord(b, i, "true")
	case c == 'f':
		return scanWord(b, i, "false")
	case c == 'n':
		return scanWord(b, i, "null")
	}
	return i, 0, "not a JSON value"
}

func scanObject(b []byte, i, depth int) (end int, fl strFlags, bad string) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, 0, ""
	}
	for {
		var f strFlags
		if i, f, bad = scanName(b, i); bad != "" {
			return i, fl, bad
		}
		fl |= f
		if i, f, bad = scanValue(b, i, depth); bad != "" {
			return i, fl, bad
		}
		fl |= f
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = skipSpace(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, fl, ""
		default:
			return i, fl, "object goes on without , or }"
		}
	}
}

// scanName passes a field's name at i and the colon after it.
func scanName(b []byte, i int) (end int, fl strFlags, bad string) {
	if i >= len(b) || b[i] != '"' {
		return i, 0, noName
	}
	if i, fl, bad = scanString(b, i); bad != "" {
		return i, fl, bad
	}
	i = skipSpace(b, i)
	if i >= len(b) || b[i] != ':' {
		return i, fl, noColon
	}
	return i + 1, fl, ""
}

func scanArray(b []byte, i, depth int) (end int, fl strFlags, bad string) {
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0, ""
	}
	for {
		var f strFlags
		if i, f, bad = scanValue(b, i, depth); bad != "" {
			return i, fl, bad
		}
		fl |= f
		i = skipSpace(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i++
		case i < len(b) && b[i] == ']':
			return i + 1, fl, ""
		default:
			return i, fl, "array goes on without , or ]"
		}
	}
}

func scanWord(b []byte, i int, word string) (end int, fl strFlags, bad string) {
	if len(b)-i >= len(word) && string(b[i:i+len(word)]) == word {
		return i + len(word), 0, ""
	}
	return i, 0, "not a JSON value"
}

// scanNumber passes the number at i, as JSON writes numbers.
func scanNumber(b []byte, i int) (end int, fl strFlags, bad string) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && b[i] >= '1' && b[i] <= '9':
		i = skipDigits(b, i)
	default:
		return i, 0, "a number's digits are missing"
	}
	if i < len(b) && b[i] == '.' {
		j := skipDigits(b, i+1)
		if j == i+1 {
			return j, 0, "a number's digits are missing"
		}
		i = j
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := skipDigits(b, i)
		if j == i {
			return j, 0, "a number's digits are missing"
		}
		i = j
	}
	return i, 0, ""
}

func skipDigits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

// scanDocument checks that b is one JSON value and white space, nothing else.
func scanDocument(b []byte) (off int, fl strFlags, bad string) {
	i, fl, bad := scanValue(b, 0, 0)
	if bad != "" {
		return i, fl, bad
	}
	if i = skipSpace(b, i); i < len(b) {
		return i, fl, "text after the end of the JSON value"
	}
	return i, fl, ""
}
