package convert

import "fmt"

// Kind says which binary form a target type has. Domains have the kind of their base type.
type Kind uint8

const (
	Other Kind = iota // no binary form known here: the whole load goes as text
	Bool
	Int2
	Int4
	Int8
	Float4
	Float8
	Numeric
	Text // text, varchar, bpchar, name, citext: their binary form is the text
	Bytea
	Date
	Time
	Timestamp
	TimestampTZ
	Interval
	UUID
	JSON
	JSONB
	Enum
	Array
	Composite
	Range
)

// Type is a target type as its catalogue has it. Immutable.
type Type struct {
	OID  uint32 // of the type itself: a domain's own, not its base type's
	Name string // as format_type prints it, for messages
	Kind Kind

	Precision, Scale int // Numeric: Precision 0 is unconstrained
	Length           int // Text of varchar(n), bpchar(n): characters; 0 is unbounded
	// FracDigits is the precision of Time, Timestamp and TimestampTZ, 6 where it is not constrained.
	FracDigits int

	Elem   *Type               // Array, Range (the subtype)
	Fields []Field             // Composite, in attribute order
	Labels map[string]struct{} // Enum
}

// Field is one attribute of a composite type.
type Field struct {
	Name string
	Type *Type
}

// Column is one column of the target table.
type Column struct {
	Name    string
	Type    *Type
	NotNull bool
}

// NULPolicy is what becomes of a NUL character in a string: PostgreSQL's text cannot hold it.
type NULPolicy uint8

const (
	NULFail    NULPolicy = iota // an error of the row
	NULStrip                    // the character is left out, and counted
	NULReplace                  // U+FFFD stands in for it, and is counted
)

// ValueError says which column's value does not fit and why. File and row are added by those who know them.
type ValueError struct {
	Column string
	Err    error
}

func (e *ValueError) Error() string { return fmt.Sprintf("column %q: %v", e.Column, e.Err) }
func (e *ValueError) Unwrap() error { return e.Err }

// quoteValue prints a value for a message, cut to a length that a line can bear.
func quoteValue(b []byte) string {
	const most = 60
	if len(b) > most {
		return fmt.Sprintf("%q… (%d bytes)", b[:most], len(b))
	}
	return fmt.Sprintf("%q", b)
}

func misfit(b []byte, t *Type) error {
	return fmt.Errorf("value %s is not a valid %s", quoteValue(b), t.Name)
}
