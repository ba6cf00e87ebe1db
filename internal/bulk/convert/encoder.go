package convert

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Format is the form in which rows are sent.
type Format uint8

const (
	BinaryFormat Format = iota
	TextFormat          // for whole loads of which a column has no binary form here
)

func (f Format) String() string {
	if f == TextFormat {
		return "text"
	}
	return "binary"
}

// Header and Trailer are what begins and ends a COPY of the format.
func (f Format) Header() []byte {
	if f == TextFormat {
		return nil
	}
	return append([]byte("PGCOPY\n\xff\r\n\x00"), 0, 0, 0, 0, 0, 0, 0, 0)
}

func (f Format) Trailer() []byte {
	if f == TextFormat {
		return nil
	}
	return []byte{0xff, 0xff}
}

// CellKind is the form of a Cell.
type CellKind uint8

const (
	NullCell CellKind = iota
	TextCell          // the text of a value, as CSV has it
	JSONCell          // a raw JSON value, not null
)

// Cell is one value of a source without types of its own.
type Cell struct {
	Kind CellKind
	Data []byte
}

// Input is one column of the load: where its values are in a batch, and where they go.
type Input struct {
	Index  int            // of the column in the batch, or in the row's cells
	Arrow  arrow.DataType // nil: the values are cells
	JSON   bool           // the cells can be JSON
	Target Column
}

// Plan is how a load's rows are made. Immutable; every reader makes an Encoder of its own.
type Plan struct {
	Inputs []Input
	Format Format
	NUL    NULPolicy
}

// BinaryPossible tells whether a column can be sent in binary form.
func (in *Input) BinaryPossible() bool {
	switch {
	case in.Arrow != nil:
		return FitsBinary(in.Arrow, in.Target.Type)
	case in.JSON:
		return hasJSONForm(in.Target.Type)
	}
	return hasTextForm(in.Target.Type)
}

// Encoder turns rows into COPY rows. It is used by one goroutine.
type Encoder struct {
	plan  *Plan
	env   env
	nodes []node        // by input; nil for cells
	arrs  []arrow.Array // by input, of the bound batch
	nulls []bool        // by input, whether the bound batch has any
	probe []byte
	out   []byte
}

// NewEncoder makes an encoder. Every input has to go into the plan's format.
func (p *Plan) NewEncoder() *Encoder {
	e := &Encoder{plan: p, nodes: make([]node, len(p.Inputs)), arrs: make([]arrow.Array, len(p.Inputs)), nulls: make([]bool, len(p.Inputs))}
	e.env.nul = p.NUL
	b := builder{e: &e.env}
	for i, in := range p.Inputs {
		if in.Arrow != nil {
			e.nodes[i] = b.build(in.Arrow, in.Target.Type)
		}
	}
	return e
}

// NULs is how many NUL characters were stripped or replaced.
func (e *Encoder) NULs() int64 { return e.env.nuls }

// Bind takes the batch whose rows AppendRow then writes.
func (e *Encoder) Bind(rb arrow.RecordBatch) {
	for i, in := range e.plan.Inputs {
		e.arrs[i] = rb.Column(in.Index)
		if e.nodes[i] != nil {
			e.nodes[i].bind(e.arrs[i])
			_, dictionary := e.arrs[i].(*array.Dictionary) // its values can be null, too
			e.nulls[i] = dictionary || e.arrs[i].NullN() != 0 || e.arrs[i].DataType().ID() == arrow.NULL
		}
	}
}

// AppendRow writes row i of the bound batch. On an error dst comes back as it was.
func (e *Encoder) AppendRow(dst []byte, i int) ([]byte, error) {
	if e.plan.Format == TextFormat {
		return e.appendTextRow(dst, func(k int, b []byte) ([]byte, bool, error) { return e.arrowText(b, k, i) })
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.nodes)))
	for k, n := range e.nodes {
		if e.nulls[k] && n.null(i) {
			if e.plan.Inputs[k].Target.NotNull {
				return dst[:start], e.nullError(k)
			}
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		var err error
		if dst, err = appendValue(dst, n, i); err != nil {
			return dst[:start], &ValueError{Column: e.plan.Inputs[k].Target.Name, Err: err}
		}
	}
	return dst, nil
}

func (e *Encoder) nullError(k int) error {
	return &ValueError{Column: e.plan.Inputs[k].Target.Name, Err: fmt.Errorf("value is null, and the column is NOT NULL")}
}

// AppendCells writes a row of cells. On an error dst comes back as it was.
func (e *Encoder) AppendCells(dst []byte, cells []Cell) ([]byte, error) {
	if e.plan.Format == TextFormat {
		return e.appendTextRow(dst, func(k int, b []byte) ([]byte, bool, error) { return e.cellText(b, k, cells) })
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.nodes)))
	for k := range e.plan.Inputs {
		in := &e.plan.Inputs[k]
		c := cells[in.Index]
		if c.Kind == NullCell {
			if in.Target.NotNull {
				return dst[:start], e.nullError(k)
			}
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		mark := len(dst)
		var err error
		dst = append(dst, 0, 0, 0, 0)
		if c.Kind == JSONCell {
			dst, err = e.env.appendJSON(dst, c.Data, in.Target.Type)
		} else {
			dst, err = e.env.appendText(dst, c.Data, in.Target.Type)
		}
		size := len(dst) - mark - 4
		if err == nil && size > math.MaxInt32 {
			err = fmt.Errorf("value of %d bytes is larger than COPY's field", size)
		}
		if err != nil {
			return dst[:start], &ValueError{Column: in.Target.Name, Err: err}
		}
		binary.BigEndian.PutUint32(dst[mark:], uint32(size))
	}
	return dst, nil
}

// appendTextRow writes a row of COPY's text format from what value gives for each input.
func (e *Encoder) appendTextRow(dst []byte, value func(k int, b []byte) ([]byte, bool, error)) ([]byte, error) {
	start := len(dst)
	for k := range e.plan.Inputs {
		if k > 0 {
			dst = append(dst, '\t')
		}
		b, null, err := value(k, e.out[:0])
		if err != nil {
			return dst[:start], &ValueError{Column: e.plan.Inputs[k].Target.Name, Err: err}
		}
		e.out = b
		if null {
			if e.plan.Inputs[k].Target.NotNull {
				return dst[:start], e.nullError(k)
			}
			dst = append(dst, '\\', 'N')
			continue
		}
		dst = appendCopyText(dst, b)
	}
	return append(dst, '\n'), nil
}

// appendCopyText escapes what COPY's text format gives a meaning to.
func appendCopyText(dst, b []byte) []byte {
	for _, c := range b {
		switch c {
		case '\\':
			dst = append(dst, '\\', '\\')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

// cellText gives a cell's text for COPY's text format: the server's own input functions read it. What they would change
// in silence is refused here.
func (e *Encoder) cellText(dst []byte, k int, cells []Cell) ([]byte, bool, error) {
	in := &e.plan.Inputs[k]
	c := cells[in.Index]
	if c.Kind == NullCell {
		return dst, true, nil
	}
	data := c.Data
	if c.Kind == JSONCell {
		var err error
		if e.probe, err = e.jsonText(e.probe[:0], data, in.Target.Type); err != nil {
			return dst, false, err
		}
		data = e.probe
	}
	if err := e.refuseRounding(data, in.Target.Type); err != nil {
		return dst, false, err
	}
	var err error
	if isJSON(in.Target.Type) {
		dst, err = e.env.appendJSONText(dst, data)
		return dst, false, err
	}
	if data, err = e.env.cleanString(data); err != nil {
		return dst, false, err
	}
	return append(dst, data...), false, nil
}

// refuseRounding checks the types whose input functions round or cut without a word.
func (e *Encoder) refuseRounding(data []byte, t *Type) error {
	var err error
	switch t.Kind {
	case Numeric:
		if t.Precision > 0 {
			e.env.plain, err = e.env.appendNumericText(e.env.plain[:0], data, t)
		}
	case Text:
		e.env.plain, err = e.env.appendString(e.env.plain[:0], data, t)
	case Time, Timestamp, TimestampTZ:
		if c, ok, fine := parseClock(data); ok && c.infinite == 0 {
			if !fine {
				return tooFine(data, t)
			}
			if c.hasZone && t.Kind != TimestampTZ {
				return fmt.Errorf("value %s has a time zone: it does not fit %s", quoteValue(data), t.Name)
			}
			return checkFraction(c.micros, t)
		}
	}
	return err
}
