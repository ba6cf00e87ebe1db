package convert

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

// env is what the conversions of one Encoder share: the policy, what it counted, and buffers.
type env struct {
	nul    NULPolicy
	nuls   int64
	digits []byte // of numbers
	clean  []byte // of strings without their NULs
	plain  []byte // of JSON strings without their escapes
}

// hasTextForm tells whether text of a type can be turned into its binary form here.
func hasTextForm(t *Type) bool {
	switch t.Kind {
	case Other, Interval, Array, Composite, Range:
		return false
	}
	return true
}

// appendText writes the text of a value in the type's binary form.
func (e *env) appendText(dst, b []byte, t *Type) ([]byte, error) {
	switch t.Kind {
	case Text:
		return e.appendString(dst, b, t)
	case Int2, Int4, Int8:
		v, ok := parseInt(b)
		if !ok {
			return dst, misfit(b, t)
		}
		return appendInt(dst, v, t)
	case Numeric:
		return e.appendNumericText(dst, b, t)
	case Float4, Float8:
		return appendFloatText(dst, b, t)
	case Bool:
		return appendBoolText(dst, b, t)
	case Date:
		return appendDateText(dst, b, t)
	case Time:
		return appendTimeText(dst, b, t)
	case Timestamp, TimestampTZ:
		return appendTimestampText(dst, b, t)
	case UUID:
		return appendUUIDText(dst, b, t)
	case Bytea:
		return appendByteaText(dst, b, t)
	case JSON:
		return e.appendJSONText(dst, b)
	case JSONB:
		return e.appendJSONText(append(dst, 1), b) // the version of jsonb's binary form
	case Enum:
		if _, ok := t.Labels[string(b)]; !ok {
			return dst, fmt.Errorf("value %s is no label of enum %s", quoteValue(b), t.Name)
		}
		return append(dst, b...), nil
	}
	return dst, fmt.Errorf("no binary form of %s is known", t.Name)
}

// appendString writes text, checked as the server would, so that an error has its row without the server's help.
func (e *env) appendString(dst, b []byte, t *Type) ([]byte, error) {
	b, err := e.cleanString(b)
	if err != nil {
		return dst, err
	}
	if t.Length > 0 && len(b) > t.Length {
		if n := utf8.RuneCount(b); n > t.Length {
			return dst, fmt.Errorf("value %s has %d characters: it does not fit %s", quoteValue(b), n, t.Name)
		}
	}
	return append(dst, b...), nil
}

// cleanString checks that b is UTF-8 and applies the NUL policy.
func (e *env) cleanString(b []byte) ([]byte, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("value %s is not UTF-8", quoteValue(b))
	}
	if bytes.IndexByte(b, 0) < 0 {
		return b, nil
	}
	return e.replaceNUL(b, "\x00")
}

// replaceNUL applies the policy to every nul in b, which is the character itself or its JSON escape.
func (e *env) replaceNUL(b []byte, nul string) ([]byte, error) {
	if e.nul == NULFail {
		return nil, fmt.Errorf("value %s holds a NUL character, which PostgreSQL's text cannot hold (see --nul)", quoteValue(b))
	}
	e.clean = e.clean[:0]
	for len(b) > 0 {
		i := indexNUL(b, nul)
		if i < 0 {
			break
		}
		e.clean = append(e.clean, b[:i]...)
		if e.nul == NULReplace {
			e.clean = append(e.clean, "\uFFFD"...)
		}
		e.nuls++
		b = b[i+len(nul):]
	}
	e.clean = append(e.clean, b...)
	return e.clean, nil
}

const jsonNUL = `\u0000`

// indexNUL finds nul in b; as an escape only where its backslash is not itself escaped.
func indexNUL(b []byte, nul string) int {
	if len(nul) == 1 {
		return bytes.IndexByte(b, nul[0])
	}
	for from := 0; ; {
		i := bytes.Index(b[from:], []byte(nul))
		if i < 0 {
			return -1
		}
		i += from
		slashes := 0
		for j := i - 1; j >= 0 && b[j] == '\\'; j-- {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
		from = i + 1
	}
}

// appendJSONText writes JSON as it stands. The server checks its syntax; that it holds no NUL is checked here, since
// jsonb cannot hold one and a later cast of json fails on it.
func (e *env) appendJSONText(dst, b []byte) ([]byte, error) {
	b, err := e.cleanString(b)
	if err != nil {
		return dst, err
	}
	if indexNUL(b, jsonNUL) >= 0 {
		if b, err = e.replaceNUL(b, jsonNUL); err != nil {
			return dst, err
		}
	}
	return append(dst, b...), nil
}

// parseInt reads a decimal integer with blanks around it.
func parseInt(b []byte) (int64, bool) {
	b = trimSpace(b)
	neg := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		neg = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	v := uint64(0)
	for _, c := range b {
		if c < '0' || c > '9' || v > math.MaxUint64/10-1 {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	if neg {
		return -int64(v), v <= 1<<63
	}
	return int64(v), v < 1<<63
}

// appendInt writes an integer in the width of its type.
func appendInt(dst []byte, v int64, t *Type) ([]byte, error) {
	switch t.Kind {
	case Int8:
		return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
	case Int4:
		if v == int64(int32(v)) {
			return binary.BigEndian.AppendUint32(dst, uint32(v)), nil
		}
	case Int2:
		if v == int64(int16(v)) {
			return binary.BigEndian.AppendUint16(dst, uint16(v)), nil
		}
	case Float8:
		if f := float64(v); int64(f) == v && f < 1<<63 {
			return binary.BigEndian.AppendUint64(dst, math.Float64bits(f)), nil
		}
	case Float4:
		if f := float32(v); int64(f) == v && f < 1<<63 {
			return binary.BigEndian.AppendUint32(dst, math.Float32bits(f)), nil
		}
	case Numeric:
		var b [20]byte
		u := uint64(v)
		if v < 0 {
			u = -u
		}
		if dst, ok := appendSmall(dst, v < 0, u, 0, t); ok {
			return dst, nil
		}
		return appendNumeric(dst, v < 0, appendUint(b[:0], u, 0), 0, t)
	}
	return dst, fmt.Errorf("value %d does not fit %s", v, t.Name)
}

func appendFloatText(dst, b []byte, t *Type) ([]byte, error) {
	b = trimSpace(b)
	size := 64
	if t.Kind == Float4 {
		size = 32
	}
	// strconv also reads hexadecimal floats and underscores, which PostgreSQL does not read alike everywhere.
	if len(b) == 0 || bytes.ContainsAny(b, "xXpP_") {
		return dst, misfit(b, t)
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), size)
	if err != nil || (f == 0 && !isZero(b)) {
		return dst, misfit(b, t)
	}
	if t.Kind == Float4 {
		return binary.BigEndian.AppendUint32(dst, math.Float32bits(float32(f))), nil
	}
	return binary.BigEndian.AppendUint64(dst, math.Float64bits(f)), nil
}

// isZero tells a zero from a number that is too small for its type.
func isZero(b []byte) bool {
	for _, c := range b {
		if c == 'e' || c == 'E' {
			return true
		}
		if c >= '1' && c <= '9' {
			return false
		}
	}
	return true
}

func appendBoolText(dst, b []byte, t *Type) ([]byte, error) {
	s := trimSpace(b)
	for _, w := range [...]struct {
		word  string
		least int
		value byte
	}{{"true", 1, 1}, {"false", 1, 0}, {"yes", 1, 1}, {"no", 1, 0}, {"on", 2, 1}, {"off", 2, 0}, {"1", 1, 1}, {"0", 1, 0}} {
		if len(s) >= w.least && len(s) <= len(w.word) && equalFold(s, w.word[:len(s)]) {
			return append(dst, w.value), nil
		}
	}
	return dst, misfit(b, t)
}

func appendUUIDText(dst, b []byte, t *Type) ([]byte, error) {
	s := b
	if len(s) >= 2 && s[0] == '{' && s[len(s)-1] == '}' {
		s = s[1 : len(s)-1]
	}
	at, nibbles := len(dst), 0
	for i, c := range s {
		v := unhex(c)
		switch {
		case c == '-' && nibbles > 0 && nibbles%4 == 0 && nibbles < 32 && s[i-1] != '-':
			continue
		case v > 15 || nibbles == 32:
			return dst[:at], misfit(b, t)
		case nibbles%2 == 0:
			dst = append(dst, v<<4)
		default:
			dst[len(dst)-1] |= v
		}
		nibbles++
	}
	if nibbles != 32 {
		return dst[:at], misfit(b, t)
	}
	return dst, nil
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// appendByteaText reads both of bytea's input forms: \x and hexadecimal digits, and escapes.
func appendByteaText(dst, b []byte, t *Type) ([]byte, error) {
	at := len(dst)
	if len(b) >= 2 && b[0] == '\\' && b[1] == 'x' {
		digits := b[2:]
		if bytes.ContainsAny(digits, " \n\t\r") {
			digits = bytes.Join(bytes.Fields(digits), nil)
		}
		var err error
		if dst, err = hex.AppendDecode(dst, digits); err != nil {
			return dst[:at], misfit(b, t)
		}
		return dst, nil
	}
	for i := 0; i < len(b); i++ {
		switch {
		case b[i] != '\\':
			dst = append(dst, b[i])
		case i+1 < len(b) && b[i+1] == '\\':
			dst = append(dst, '\\')
			i++
		case i+3 < len(b) && octal(b[i+1], 3) && octal(b[i+2], 7) && octal(b[i+3], 7):
			dst = append(dst, (b[i+1]-'0')<<6|(b[i+2]-'0')<<3|(b[i+3]-'0'))
			i += 3
		default:
			return dst[:at], misfit(b, t)
		}
	}
	return dst, nil
}

func octal(c, most byte) bool { return c >= '0' && c <= '0'+most }
