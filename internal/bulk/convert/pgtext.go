package convert

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// arrowText gives the text of an Arrow value for COPY's text format. Where the pair has a binary form, that is made,
// too, and thrown away: it is what checks that the value fits.
func (e *Encoder) arrowText(dst []byte, k, i int) ([]byte, bool, error) {
	t := e.plan.Inputs[k].Target.Type
	if n := e.nodes[k]; n != nil {
		if n.null(i) {
			return dst, true, nil
		}
		var err error
		if e.probe, err = n.append(e.probe[:0], i); err != nil {
			return dst, false, err
		}
		if t.Kind == Text || t.Kind == Enum || t.Kind == JSON {
			return append(dst, e.probe...), false, nil
		}
		if t.Kind == JSONB {
			return append(dst, e.probe[1:]...), false, nil
		}
	} else if e.arrs[k].IsNull(i) {
		return dst, true, nil
	}
	dst, err := e.env.appendLiteral(dst, e.arrs[k], i, t)
	return dst, false, err
}

// appendLiteral writes a value, which is not null, as PostgreSQL's input function of t reads it.
func (e *env) appendLiteral(dst []byte, a arrow.Array, i int, t *Type) ([]byte, error) {
	if d, ok := a.(*array.Dictionary); ok {
		return e.appendLiteral(dst, d.Dictionary(), d.GetValueIndex(i), t)
	}
	if x, ok := a.(array.ExtensionArray); ok && t.Kind != UUID {
		return e.appendLiteral(dst, x.Storage(), i, t)
	}
	if isJSON(t) {
		switch a.(type) {
		case array.ListLike, *array.Struct:
			return AppendJSON(dst, a, i)
		}
	}
	switch a := a.(type) {
	case array.ListLike:
		if t.Kind == Array {
			return e.appendArrayLiteral(dst, a, i, t)
		}
	case *array.Struct:
		switch t.Kind {
		case Composite:
			return e.appendRowLiteral(dst, a, i, t)
		case Range:
			return e.appendRangeLiteral(dst, a, i, t)
		}
	}
	if f, ok := a.(*array.FixedSizeBinary); ok && t.Kind == UUID {
		return fmt.Appendf(dst, "%x", f.Value(i)), nil
	}
	dst, _, err := appendScalarText(dst, a, i)
	return dst, err
}

func (e *env) appendArrayLiteral(dst []byte, a array.ListLike, i int, t *Type) ([]byte, error) {
	start, end := a.ValueOffsets(i)
	dst = append(dst, '{')
	values := a.ListValues()
	_, deeper := values.(array.ListLike)
	deeper = deeper && !isJSON(t.Elem)
	for k := int(start); k < int(end); k++ {
		if k > int(start) {
			dst = append(dst, ',')
		}
		switch {
		case values.IsNull(k) && deeper:
			return dst, errNullList
		case values.IsNull(k):
			dst = append(dst, "NULL"...)
			continue
		case deeper:
			var err error
			if dst, err = e.appendArrayLiteral(dst, values.(array.ListLike), k, t); err != nil {
				return dst, err
			}
			continue
		}
		text, err := e.appendLiteral(nil, values, k, t.Elem)
		if err != nil {
			return dst, fmt.Errorf("element %d: %w", k-int(start)+1, err)
		}
		dst = appendQuoted(dst, text)
	}
	return append(dst, '}'), nil
}

func (e *env) appendRowLiteral(dst []byte, a *array.Struct, i int, t *Type) ([]byte, error) {
	dt := a.DataType().(*arrow.StructType)
	dst = append(dst, '(')
	for k, f := range t.Fields {
		if k > 0 {
			dst = append(dst, ',')
		}
		at, ok := dt.FieldIdx(f.Name)
		if !ok || a.Field(at).IsNull(i) {
			continue
		}
		text, err := e.appendLiteral(nil, a.Field(at), i, f.Type)
		if err != nil {
			return dst, fmt.Errorf("field %q: %w", f.Name, err)
		}
		dst = appendQuoted(dst, text)
	}
	return append(dst, ')'), nil
}

func (e *env) appendRangeLiteral(dst []byte, a *array.Struct, i int, t *Type) ([]byte, error) {
	dst = append(dst, '[')
	for k := range 2 {
		if k == 1 {
			dst = append(dst, ',')
		}
		if a.Field(k).IsNull(i) {
			continue
		}
		text, err := e.appendLiteral(nil, a.Field(k), i, t.Elem)
		if err != nil {
			return dst, err
		}
		dst = appendQuoted(dst, text)
	}
	return append(dst, ')'), nil
}

// appendQuoted writes an element of an array, composite or range literal, always in quotes.
func appendQuoted(dst, text []byte) []byte {
	dst = append(dst, '"')
	for _, c := range text {
		if c == '"' || c == '\\' {
			dst = append(dst, '\\')
		}
		dst = append(dst, c)
	}
	return append(dst, '"')
}

// jsonText gives the text that PostgreSQL's input function of t reads for a JSON value.
func (e *Encoder) jsonText(dst, raw []byte, t *Type) ([]byte, error) {
	switch {
	case isJSON(t):
		return append(dst, raw...), nil
	case raw[0] == '"':
		return Unquote(dst, raw)
	case raw[0] == '[' && t.Kind == Array:
		return e.jsonArrayText(dst, raw, t)
	case raw[0] == '{' && t.Kind == Composite:
		return e.jsonRowText(dst, raw, t)
	case (raw[0] == '{' || raw[0] == '[') && t.Kind != Text:
		return dst, misfit(raw, t)
	}
	return append(dst, raw...), nil
}

func (e *Encoder) jsonArrayText(dst, raw []byte, t *Type) ([]byte, error) {
	dst = append(dst, '{')
	first := true
	err := EachElement(raw, func(v []byte) error {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		var err error
		switch {
		case bytes.Equal(v, []byte("null")):
			dst = append(dst, "NULL"...)
		case v[0] == '[' && !isJSON(t.Elem):
			dst, err = e.jsonArrayText(dst, v, t)
		default:
			var text []byte
			if text, err = e.jsonText(nil, v, t.Elem); err == nil {
				err = e.refuseRounding(text, t.Elem)
			}
			dst = appendQuoted(dst, text)
		}
		return err
	})
	return append(dst, '}'), err
}

func (e *Encoder) jsonRowText(dst, raw []byte, t *Type) ([]byte, error) {
	dst = append(dst, '(')
	for k, f := range t.Fields {
		if k > 0 {
			dst = append(dst, ',')
		}
		v, err := Member(raw, f.Name)
		if err != nil {
			return dst, err
		}
		if v == nil || string(v) == "null" {
			continue
		}
		text, err := e.jsonText(nil, v, f.Type)
		if err == nil {
			err = e.refuseRounding(text, f.Type)
		}
		if err != nil {
			return dst, fmt.Errorf("field %q: %w", f.Name, err)
		}
		dst = appendQuoted(dst, text)
	}
	return append(dst, ')'), nil
}
