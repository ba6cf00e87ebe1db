package record

import (
	"bytes"
	"fmt"
)

// AppendJSON appends, for a value in PostgreSQL's text form, what to_json gives for it. literal tells that the JSON does
// not determine the value, so that the record's literal needs its text besides. Text that is not of the type's form is
// an error, never a guess (promise 5); dst is then returned as it was.
//
// The text must have been written under DateStyle ISO, extra_float_digits above 0 and bytea_output hex.
func (t *Type) AppendJSON(dst, text []byte) (out []byte, literal bool, err error) {
	mark := len(dst)
	switch t.Kind {
	case KindString:
		dst, err = appendText(dst, text)
	case KindBool:
		dst, err = appendBool(dst, text)
	case KindNumber:
		dst, err = appendNumber(dst, text)
	case KindDate, KindTimestamp, KindTimestampTZ:
		dst, err = appendTime(dst, text, t.Kind)
	case KindJSON, KindJSONB:
		dst, literal, err = appendJSONColumn(dst, text, t.Kind)
	case KindArray:
		dst, literal, err = t.appendArray(dst, text)
	case KindVector:
		dst, literal, err = t.appendVector(dst, text)
	case KindComposite:
		dst, literal, err = t.appendComposite(dst, text)
	case KindHstore:
		dst, err = appendHstore(dst, text)
	default:
		err = fmt.Errorf("kind %d is not known", t.Kind)
	}
	if err != nil {
		return dst[:mark], false, fmt.Errorf("type %s: %w", t.Name, err)
	}
	return dst, literal, nil
}

// notForm is the error for text that is not of its type's form.
func notForm(want string, text []byte) error {
	return fmt.Errorf("want %s, found %s", want, excerpt(text))
}

func appendBool(dst, text []byte) ([]byte, error) {
	switch string(text) {
	case "t":
		return append(dst, "true"...), nil
	case "f":
		return append(dst, "false"...), nil
	}
	return dst, notForm("t or f", text)
}

func appendNumber(dst, text []byte) ([]byte, error) {
	if end, _, bad := scanNumber(text, 0); bad == "" && end == len(text) {
		return append(dst, text...), nil
	}
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		dst = append(dst, '"')
		dst = append(dst, text...)
		return append(dst, '"'), nil
	}
	return dst, notForm("a number", text)
}

// appendTime writes a date or timestamp in ISO form. A timestamp's blank becomes T, and a zone gets its minutes.
func appendTime(dst, text []byte, kind TypeKind) ([]byte, error) {
	dst = append(dst, '"')
	if string(text) == "infinity" || string(text) == "-infinity" {
		dst = append(dst, text...)
		return append(dst, '"'), nil
	}
	body, bc := bytes.CutSuffix(text, []byte(" BC"))
	i := skipDigits(body, 0) // the year has four digits or more
	if i < 4 || !shaped(body[i:], "-00-00") {
		return dst, notForm("an ISO date", text)
	}
	i += len("-00-00")
	dst = append(dst, body[:i]...)
	if kind != KindDate {
		clock := body[i:]
		if !shaped(clock, " 00:00:00") {
			return dst, notForm("an ISO timestamp", text)
		}
		n := len(" 00:00:00")
		if n < len(clock) && clock[n] == '.' {
			if end := skipDigits(clock, n+1); end > n+1 {
				n = end
			}
		}
		dst = append(dst, 'T')
		dst = append(dst, clock[1:n]...)
		i += n
	}
	zone := body[i:]
	switch {
	case kind != KindTimestampTZ && len(zone) == 0:
	case kind == KindTimestampTZ && isZone(zone):
		dst = append(dst, zone...)
		if len(zone) == len("+00") {
			dst = append(dst, ":00"...)
		}
	default:
		return dst, notForm("an ISO date or timestamp", text)
	}
	if bc {
		dst = append(dst, " BC"...)
	}
	return append(dst, '"'), nil
}

// isZone knows the offsets that PostgreSQL writes: +00, +05:30, and with seconds for local mean times.
func isZone(s []byte) bool {
	if len(s) == 0 || s[0] != '+' && s[0] != '-' {
		return false
	}
	switch len(s) {
	case len("+00"):
		return shaped(s[1:], "00")
	case len("+00:00"):
		return shaped(s[1:], "00:00")
	case len("+00:00:00"):
		return shaped(s[1:], "00:00:00")
	}
	return false
}

// shaped tells whether s begins like shape, in which 0 stands for any digit.
func shaped(s []byte, shape string) bool {
	if len(s) < len(shape) {
		return false
	}
	for i := range len(shape) {
		// Where the shape has 0, this is 0 to 9 for digits; elsewhere it must be 0.
		if d := s[i] - shape[i]; d != 0 && (d > 9 || shape[i] != '0') {
			return false
		}
	}
	return true
}

// appendVector writes int2vector and oidvector, whose text is their elements with blanks between. Their bounds begin at
// 0, so PostgreSQL makes something else of their JSON, and nothing at all of an empty one: they are always literal.
func (t *Type) appendVector(dst, text []byte) (out []byte, literal bool, err error) {
	dst = append(dst, '[')
	for rest := text; len(rest) > 0; {
		elem, after, more := bytes.Cut(rest, []byte(" "))
		if len(elem) == 0 || more && len(after) == 0 {
			return dst, false, notForm("elements with one blank between", text)
		}
		if len(rest) < len(text) {
			dst = append(dst, ',')
		}
		if dst, _, err = t.Elem.AppendJSON(dst, elem); err != nil {
			return dst, false, err
		}
		rest = after
	}
	return append(dst, ']'), true, nil
}

// appendUnescaped renders an element of an array or composite that was written with escapes. raw is what stood between
// its quotes; double tells that a quote may be written as two (composites). The plain text is made behind dst, rendered
// behind itself and moved over, so that nesting needs no buffers.
func (t *Type) appendUnescaped(dst, raw []byte, double bool) (out []byte, literal bool, err error) {
	mark := len(dst)
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c == '\\' || double && c == '"' {
			i++ // the scan that found raw's end has seen that a character follows
			c = raw[i]
		}
		dst = append(dst, c)
	}
	end := len(dst)
	dst, literal, err = t.AppendJSON(dst, dst[mark:end:end])
	if err != nil {
		return dst[:mark], false, err
	}
	return dst[:mark+copy(dst[mark:], dst[end:])], literal, nil
}
