package record

// Fields walks over the fields of a JSON object that is known to be valid, such as a part of a Line:
//
//	for f := record.FieldsOf(obj); f.Next(); {
//		use(f.Name, f.Value) // JSON texts, the name with its quotes
//	}
type Fields struct {
	Name, Value []byte
	b           []byte
	i           int
}

// FieldsOf begins a walk. An empty obj has no fields.
func FieldsOf(obj []byte) Fields { return Fields{b: obj, i: 1} }

// Next goes on to the next field; false after the last.
func (f *Fields) Next() bool {
	i := skipSpace(f.b, f.i)
	if i < len(f.b) && f.b[i] == ',' {
		i = skipSpace(f.b, i+1)
	}
	if i >= len(f.b) || f.b[i] != '"' {
		return false
	}
	end, _, bad := scanString(f.b, i)
	if bad != "" {
		return false
	}
	f.Name = f.b[i:end]
	i = skipSpace(f.b, skipSpace(f.b, end)+1)
	end, _, bad = scanValue(f.b, i, 0)
	if bad != "" {
		return false
	}
	f.Value = f.b[i:end]
	f.i = end
	return true
}

// Elements walks over the elements of a JSON array that is known to be valid.
type Elements struct {
	Value []byte
	b     []byte
	i     int
}

// ElementsOf begins a walk. An empty array text has no elements.
func ElementsOf(array []byte) Elements { return Elements{b: array, i: 1} }

// Next goes on to the next element; false after the last.
func (e *Elements) Next() bool {
	i := skipSpace(e.b, e.i)
	if i < len(e.b) && e.b[i] == ',' {
		i = skipSpace(e.b, i+1)
	}
	if i >= len(e.b) || e.b[i] == ']' {
		return false
	}
	end, _, bad := scanValue(e.b, i, 0)
	if bad != "" {
		return false
	}
	e.Value = e.b[i:end]
	e.i = end
	return true
}
