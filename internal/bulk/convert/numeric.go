package convert

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Signs of PostgreSQL's binary numeric.
const (
	numericPositive = 0x0000
	numericNegative = 0x4000
	numericNaN      = 0xC000
	numericPlusInf  = 0xD000
	numericMinusInf = 0xF000

	maxDScale = 16383  // digits after the point that the type can show
	maxDigits = 131072 // digits before the point that the type can hold
)

// appendSpecial writes NaN or an infinity.
func appendSpecial(dst []byte, sign uint16) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, sign)
	return append(dst, 0, 0)
}

// appendNumeric writes digits × 10^-scale as a binary numeric. digits are ASCII, without sign or point. A type with a
// precision is enforced here: the server would round in silence.
func appendNumeric(dst []byte, neg bool, digits []byte, scale int, t *Type) ([]byte, error) {
	for len(digits) > 0 && digits[0] == '0' {
		digits = digits[1:]
	}
	shown := max(scale, 0)
	if t.Precision > 0 {
		all, was := digits, scale
		for scale > t.Scale && len(digits) > 0 {
			if digits[len(digits)-1] != '0' {
				return dst, fmt.Errorf("value %s has more than %d digits after the point: it does not fit %s", plain(neg, all, was), t.Scale, t.Name)
			}
			digits, scale = digits[:len(digits)-1], scale-1
		}
		if len(digits)-scale > t.Precision-t.Scale && len(digits) > 0 {
			return dst, fmt.Errorf("value %s has more than %d digits before the point: it does not fit %s", plain(neg, all, was), t.Precision-t.Scale, t.Name)
		}
		shown = max(t.Scale, 0)
	}
	if shown > maxDScale || len(digits)-scale > maxDigits {
		return dst, fmt.Errorf("value of %d digits is out of range for %s", len(digits), t.Name)
	}
	if len(digits) == 0 {
		dst = append(dst, 0, 0, 0, 0, 0, 0)
		return binary.BigEndian.AppendUint16(dst, uint16(shown)), nil
	}
	before := len(digits) - scale // digits before the point; not above 0: so many zeros after it
	weight := floorDiv(before+3, 4) - 1
	pos := before - 4*(weight+1) // where the first group of four begins, at most 0
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	end := head + 8 // after the last group that is not zero
	for ; pos < len(digits); pos += 4 {
		group := uint16(0)
		for k := pos; k < pos+4; k++ {
			group *= 10
			if k >= 0 && k < len(digits) {
				group += uint16(digits[k] - '0')
			}
		}
		dst = binary.BigEndian.AppendUint16(dst, group)
		if group != 0 {
			end = len(dst)
		}
	}
	dst = dst[:end]
	putNumericHead(dst[head:], (end-head-8)/2, weight, neg, shown)
	return dst, nil
}

// pow10 are the powers of ten that a uint64 holds.
var pow10 = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}

// appendSmall is appendNumeric for v × 10^-scale without the way over text, as most numbers are; ok is false when it
// does not know whether the number fits.
func appendSmall(dst []byte, neg bool, v uint64, scale int, t *Type) (_ []byte, ok bool) {
	shown := scale
	if t.Precision > 0 {
		whole := t.Precision - t.Scale + scale // digits of v that the type has room for
		if scale > t.Scale || whole < 1 || (whole < len(pow10) && v >= pow10[whole]) {
			return dst, false
		}
		shown = t.Scale
	}
	pad := (4 - scale&3) & 3 // the last group of four has to end at the scale's place
	if scale < 0 || scale > 36 || v > 1<<50 {
		return dst, false
	}
	var groups [6]uint16 // least first; 2^50 × 1000 has 19 digits
	n, skip := 0, 0
	for v *= pow10[pad]; v > 0; v /= 10000 {
		groups[n] = uint16(v % 10000)
		if groups[n] == 0 && n == skip {
			skip++ // zeros at the end are not stored
		}
		n++
	}
	head := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	for i := n - 1; i >= skip; i-- {
		dst = binary.BigEndian.AppendUint16(dst, groups[i])
	}
	weight := n - 1 - (scale+pad)/4
	if n == 0 {
		weight, skip, neg = 0, 0, false
	}
	putNumericHead(dst[head:], n-skip, weight, neg, shown)
	return dst, true
}

func putNumericHead(b []byte, groups, weight int, neg bool, shown int) {
	sign := uint16(numericPositive)
	if neg {
		sign = numericNegative
	}
	binary.BigEndian.PutUint16(b, uint16(groups))
	binary.BigEndian.PutUint16(b[2:], uint16(int16(weight)))
	binary.BigEndian.PutUint16(b[4:], sign)
	binary.BigEndian.PutUint16(b[6:], uint16(shown))
}

func floorDiv(a, b int) int {
	q := a / b
	if a%b != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// plain prints digits × 10^-scale for a message.
func plain(neg bool, digits []byte, scale int) string {
	var b []byte
	if neg {
		b = append(b, '-')
	}
	return string(appendDecimal(b, digits, scale))
}

// appendDecimal writes digits × 10^-scale as text, with scale digits after the point.
func appendDecimal(dst, digits []byte, scale int) []byte {
	for len(digits) > 1 && digits[0] == '0' {
		digits = digits[1:]
	}
	switch {
	case scale <= 0:
		if len(digits) == 0 || digits[0] == '0' {
			return append(dst, '0')
		}
		dst = append(dst, digits...)
		for ; scale < 0; scale++ {
			dst = append(dst, '0')
		}
		return dst
	case scale >= len(digits):
		dst = append(dst, '0', '.')
		for n := scale - len(digits); n > 0; n-- {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	dst = append(dst, digits[:len(digits)-scale]...)
	dst = append(dst, '.')
	return append(dst, digits[len(digits)-scale:]...)
}

// appendWide writes the decimal digits of an unsigned integer of up to four words, least significant first, which it
// destroys.
func appendWide(dst []byte, w []uint64) []byte {
	const chunk = 1_000_000_000_000_000_000
	var parts [5]uint64 // 256 bits are at most 78 digits: five chunks of 18
	n := 0
	for {
		for len(w) > 0 && w[len(w)-1] == 0 {
			w = w[:len(w)-1]
		}
		if len(w) == 0 {
			break
		}
		rem := uint64(0)
		for i := len(w) - 1; i >= 0; i-- {
			w[i], rem = bits.Div64(rem, w[i], chunk)
		}
		parts[n] = rem
		n++
	}
	if n == 0 {
		return append(dst, '0')
	}
	dst = appendUint(dst, parts[n-1], 0)
	for i := n - 2; i >= 0; i-- {
		dst = appendUint(dst, parts[i], 18)
	}
	return dst
}

// appendUint writes v with at least width digits.
func appendUint(dst []byte, v uint64, width int) []byte {
	var b [20]byte
	i := len(b)
	for v > 0 || len(b)-i < max(width, 1) {
		i--
		b[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, b[i:]...)
}

// numericText is a number's text taken apart.
type numericText struct {
	neg    bool
	digits []byte // points into the text, or into scratch when a point stood between
	scale  int
	sign   uint16 // NaN or an infinity when not 0
}

// parseNumeric reads PostgreSQL's decimal syntax: sign, digits, point, exponent, NaN, Infinity, blanks around.
func parseNumeric(b, scratch []byte) (n numericText, scratchOut []byte, ok bool) {
	b = trimSpace(b)
	s := b
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		n.neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 {
		return n, scratch, false
	}
	if c := s[0]; c != '.' && (c < '0' || c > '9') {
		n.sign, ok = specialNumber(b, s, n.neg)
		return n, scratch, ok
	}
	i := digitsEnd(s, 0)
	whole, frac := s[:i], []byte(nil)
	if i < len(s) && s[i] == '.' {
		j := digitsEnd(s, i+1)
		frac = s[i+1 : j]
		i = j
	}
	if len(whole)+len(frac) == 0 {
		return n, scratch, false
	}
	exp := 0
	if i < len(s) {
		if exp, ok = parseExponent(s[i:]); !ok {
			return n, scratch, false
		}
	}
	n.digits, n.scale = whole, len(frac)-exp
	if len(frac) > 0 {
		scratch = append(append(scratch[:0], whole...), frac...)
		n.digits = scratch
	}
	return n, scratch, true
}

func digitsEnd(s []byte, i int) int {
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i
}

// parseExponent reads e±N to the end of s.
func parseExponent(s []byte) (int, bool) {
	if s[0] != 'e' && s[0] != 'E' {
		return 0, false
	}
	s = s[1:]
	neg := false
	if len(s) > 0 && (s[0] == '-' || s[0] == '+') {
		neg = s[0] == '-'
		s = s[1:]
	}
	if len(s) == 0 || digitsEnd(s, 0) != len(s) {
		return 0, false
	}
	e := 0
	for _, c := range s {
		if e = e*10 + int(c-'0'); e > 1_000_000 {
			return 0, false // far outside of what numeric holds
		}
	}
	if neg {
		e = -e
	}
	return e, true
}

func specialNumber(whole, unsigned []byte, neg bool) (uint16, bool) {
	switch {
	case equalFold(whole, "nan"):
		return numericNaN, true
	case equalFold(unsigned, "infinity"), equalFold(unsigned, "inf"):
		if neg {
			return numericMinusInf, true
		}
		return numericPlusInf, true
	}
	return 0, false
}

// appendNumericText writes a number's text as a binary numeric.
func (e *env) appendNumericText(dst, b []byte, t *Type) ([]byte, error) {
	var n numericText
	var ok bool
	n, e.digits, ok = parseNumeric(b, e.digits)
	switch {
	case !ok:
		return dst, misfit(b, t)
	case n.sign == numericNaN:
		return appendSpecial(dst, n.sign), nil
	case n.sign != 0 && t.Precision > 0:
		return dst, fmt.Errorf("value %s does not fit %s: a numeric with a precision holds no infinity", quoteValue(b), t.Name)
	case n.sign != 0:
		return appendSpecial(dst, n.sign), nil
	}
	return appendNumeric(dst, n.neg, n.digits, n.scale, t)
}

func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// trimSpace cuts what PostgreSQL's input functions take for blanks.
func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\n\r\v\f") }
