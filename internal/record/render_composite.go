package record

import (
	"fmt"
)

// appendComposite writes a composite value as an object of its fields. A number of fields that is not the type's
// means that the type was altered after the value was written.
func (t *Type) appendComposite(dst, text []byte) (out []byte, literal bool, err error) {
	if len(text) < 2 || text[0] != '(' || text[len(text)-1] != ')' {
		return dst, false, notForm("(field,…)", text)
	}
	if len(t.Fields) == 0 {
		if len(text) != 2 {
			return dst, false, notForm("() for a type without fields", text)
		}
		return append(dst, '{', '}'), false, nil
	}
	dst = append(dst, '{')
	i := 1
	for n := range t.Fields {
		f := &t.Fields[n]
		if n > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendText(dst, f.Name); err != nil {
			return dst, false, fmt.Errorf("field %q: %w", f.Name, err)
		}
		dst = append(dst, ':')
		var lit bool
		if dst, i, lit, err = f.Type.appendField(dst, text, i); err != nil {
			return dst, false, fmt.Errorf("field %q: %w", f.Name, err)
		}
		literal = literal || lit
		end := byte(',')
		if n == len(t.Fields)-1 {
			end = ')'
		}
		if text[i] != end {
			return dst, false, fmt.Errorf("want %d fields, found others (was the type altered?): %s", len(t.Fields), excerpt(text))
		}
		i++
	}
	if i != len(text) {
		return dst, false, notForm("nothing after )", text)
	}
	return append(dst, '}'), literal, nil
}

// appendField writes the field at i of a composite's text b and returns the offset of what follows it, which is there.
func (t *Type) appendField(dst, b []byte, i int) (out []byte, end int, literal bool, err error) {
	if b[i] == ',' || b[i] == ')' {
		return append(dst, "null"...), i, false, nil
	}
	if b[i] != '"' {
		from := i
		for b[i] != ',' && b[i] != ')' { // b ends with )
			switch b[i] {
			case '(', '"', '\\', ' ', '\t', '\n', '\r', '\v', '\f':
				return dst, i, false, notForm("quotes around a field", b[from:])
			}
			i++
		}
		dst, literal, err = t.AppendJSON(dst, b[from:i])
		return dst, i, literal, err
	}
	from, escaped := i+1, false
	for i++; ; i++ {
		if i >= len(b)-1 { // the last character is the composite's own )
			return dst, i, false, errUnclosed
		}
		if b[i] == '\\' || b[i] == '"' && b[i+1] == '"' {
			escaped = true
			i++
		} else if b[i] == '"' {
			break
		}
	}
	if escaped {
		dst, literal, err = t.appendUnescaped(dst, b[from:i], true)
	} else {
		dst, literal, err = t.AppendJSON(dst, b[from:i])
	}
	return dst, i + 1, literal, err
}

// appendHstore writes an hstore as its own cast to json does: an object of strings and nulls, with blanks.
func appendHstore(dst, text []byte) ([]byte, error) {
	const want = `"key"=>"value", …`
	dst = append(dst, '{')
	var err error
	for i := 0; i < len(text); {
		if i > 0 {
			if !hasAt(text, i, ", ") {
				return dst, notForm(want, text[i:])
			}
			dst = append(dst, ", "...)
			i += 2
		}
		if dst, i, err = appendHstoreString(dst, text, i); err != nil {
			return dst, err
		}
		if !hasAt(text, i, "=>") {
			return dst, notForm(want, text[i:])
		}
		dst = append(dst, ": "...)
		i += 2
		if hasAt(text, i, "NULL") {
			dst = append(dst, "null"...)
			i += len("NULL")
			continue
		}
		if dst, i, err = appendHstoreString(dst, text, i); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func hasAt(b []byte, i int, s string) bool { return len(b)-i >= len(s) && string(b[i:i+len(s)]) == s }

var hstoreString = Type{Name: "hstore", Kind: KindString}

func appendHstoreString(dst, b []byte, i int) (out []byte, end int, err error) {
	if i >= len(b) || b[i] != '"' {
		return dst, i, notForm("a quoted string", b[i:])
	}
	from := i + 1
	for i++; i < len(b) && b[i] != '"'; i++ {
		if b[i] == '\\' {
			i++
		}
	}
	if i >= len(b) {
		return dst, i, errUnclosed
	}
	dst, _, err = hstoreString.appendUnescaped(dst, b[from:i], false)
	return dst, i + 1, err
}
