package convert

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// Fit says how a source type and a target type go together.
type Fit uint8

const (
	Fits     Fit = iota // every value of the source type has an exact one in the target, or is checked and usually has
	Narrower            // the target cannot hold every value: allowed only when the user says so, then checked
	Unfit               // the types mean different things
)

// FitOf holds an Arrow type against a target type. reason is empty where it Fits.
func FitOf(dt arrow.DataType, t *Type) (Fit, string) {
	b := builder{e: &env{}}
	if n := b.build(dt, t); n == nil && !(b.fit != Unfit && textOnly(dt, t)) {
		return Unfit, b.why(dt, t)
	}
	if b.fit != Fits {
		return b.fit, b.why(dt, t)
	}
	return Fits, ""
}

// textOnly tells the pairs that have no binary form here, but whose text the server reads.
func textOnly(dt arrow.DataType, t *Type) bool {
	switch dt := dt.(type) {
	case *arrow.DictionaryType:
		return textOnly(dt.ValueType, t)
	case arrow.ListLikeType:
		return t.Kind == Array && (textOnly(dt.Elem(), t.Elem) || FitsBinary(dt.Elem(), t.Elem))
	case *arrow.StructType:
		return t.Kind == Composite
	}
	return isString(dt) && (t.Kind == Other || t.Kind == Interval || t.Kind == Range)
}

// FitsBinary tells whether values of an Arrow type can be sent in a target type's binary form.
func FitsBinary(dt arrow.DataType, t *Type) bool {
	b := builder{e: &env{}}
	return b.build(dt, t) != nil
}

func isString(dt arrow.DataType) bool {
	switch dt.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return true
	}
	return false
}

// builder makes nodes and remembers the worst fit on the way.
type builder struct {
	e      *env
	fit    Fit
	reason string
}

func (b *builder) why(dt arrow.DataType, t *Type) string {
	if b.reason != "" {
		return b.reason
	}
	return fmt.Sprintf("%s does not go into %s", dt, t.Name)
}

func (b *builder) narrow(ok bool, format string, args ...any) {
	if !ok && b.fit == Fits {
		b.fit, b.reason = Narrower, fmt.Sprintf(format, args...)
	}
}

// build makes the node for a pair of types, nil where they do not go together in binary form.
func (b *builder) build(dt arrow.DataType, t *Type) node {
	switch dt := dt.(type) {
	case *arrow.DictionaryType:
		if v := b.build(dt.ValueType, t); v != nil {
			return &dictNode{values: v}
		}
		return nil
	case *extensions.UUIDType:
		if t.Kind == UUID {
			return &extensionNode{&bytesNode{e: b.e, t: t, raw: true, size: 16}}
		}
		return nil
	case arrow.ExtensionType:
		if v := b.build(dt.StorageType(), t); v != nil {
			return &extensionNode{v}
		}
		return nil
	case *arrow.NullType:
		return &nullNode{}
	}
	if n := b.scalar(dt, t); n != nil {
		return n
	}
	return b.nested(dt, t)
}

func (b *builder) scalar(dt arrow.DataType, t *Type) node {
	switch dt := dt.(type) {
	case *arrow.BooleanType:
		if t.Kind == Bool {
			return &boolNode{}
		}
	case *arrow.Int8Type:
		return intNodeOf[int8](b, dt, t, 8, 3)
	case *arrow.Int16Type:
		return intNodeOf[int16](b, dt, t, 16, 5)
	case *arrow.Int32Type:
		return intNodeOf[int32](b, dt, t, 32, 10)
	case *arrow.Int64Type:
		return intNodeOf[int64](b, dt, t, 64, 19)
	case *arrow.Uint8Type:
		return intNodeOf[uint8](b, dt, t, 9, 3)
	case *arrow.Uint16Type:
		return intNodeOf[uint16](b, dt, t, 17, 5)
	case *arrow.Uint32Type:
		return intNodeOf[uint32](b, dt, t, 33, 10)
	case *arrow.Uint64Type:
		return intNodeOf[uint64](b, dt, t, 65, 20)
	case *arrow.Float16Type:
		if t.Kind == Float4 || t.Kind == Float8 {
			return &halfNode{t: t}
		}
	case *arrow.Float32Type:
		if t.Kind == Float4 || t.Kind == Float8 {
			return &floatNode[float32]{t: t}
		}
	case *arrow.Float64Type:
		if t.Kind == Float4 || t.Kind == Float8 {
			b.narrow(t.Kind == Float8, "%s is wider than %s", dt, t.Name)
			return &floatNode[float64]{t: t}
		}
	case arrow.DecimalType:
		return b.decimal(dt, t)
	case *arrow.MonthDayNanoIntervalType:
		if t.Kind == Interval {
			return &intervalNode{}
		}
	case *arrow.Date32Type, *arrow.Date64Type, *arrow.Time32Type, *arrow.Time64Type, *arrow.TimestampType:
		return b.moment(dt, t)
	}
	return b.bytes(dt, t)
}

// intNodeOf makes a node for integers of so many bits (unsigned: one more, for the sign) and decimal digits.
func intNodeOf[T integer](b *builder, dt arrow.DataType, t *Type, bits, digits int) node {
	holds := 0
	switch t.Kind {
	case Int2:
		holds = 16
	case Int4:
		holds = 32
	case Int8:
		holds = 64
	case Float4:
		holds = 25
	case Float8:
		holds = 54
	case Numeric:
		b.narrow(t.Precision == 0 || t.Precision-t.Scale >= digits, "%s is wider than %s", dt, t.Name)
		return &intNode[T]{t: t}
	default:
		return nil
	}
	b.narrow(bits <= holds, "%s is wider than %s", dt, t.Name)
	return &intNode[T]{t: t}
}

func (b *builder) decimal(dt arrow.DecimalType, t *Type) node {
	p, s := int(dt.GetPrecision()), int(dt.GetScale())
	holds := 0
	switch t.Kind {
	case Numeric:
		b.narrow(t.Precision == 0 || (t.Scale >= s && t.Precision-t.Scale >= p-s), "%s is wider than %s", dt, t.Name)
		return &wideNode{scale: s, t: t}
	case Int2:
		holds = 4
	case Int4:
		holds = 9
	case Int8:
		holds = 18
	default:
		return nil
	}
	b.narrow(s == 0 && p <= holds, "%s is wider than %s", dt, t.Name)
	return &wideNode{scale: s, t: t}
}

func unitFor(u arrow.TimeUnit) unitOf {
	switch u {
	case arrow.Second:
		return unitOf{factor: microsPerSecond}
	case arrow.Millisecond:
		return unitOf{factor: 1000}
	case arrow.Microsecond:
		return unitOf{factor: 1}
	}
	return unitOf{nanos: true}
}

func (b *builder) moment(dt arrow.DataType, t *Type) node {
	switch dt := dt.(type) {
	case *arrow.Date32Type:
		if t.Kind == Date {
			return &momentNode[arrow.Date32]{unit: unitOf{factor: microsPerDay}, what: "date", t: t}
		}
	case *arrow.Date64Type:
		if t.Kind == Date {
			return &momentNode[arrow.Date64]{unit: unitOf{factor: 1000}, what: "date", t: t}
		}
	case *arrow.Time32Type:
		if t.Kind == Time {
			return &momentNode[arrow.Time32]{unit: unitFor(dt.Unit), what: "time", t: t}
		}
	case *arrow.Time64Type:
		if t.Kind == Time {
			return &momentNode[arrow.Time64]{unit: unitFor(dt.Unit), what: "time", t: t}
		}
	case *arrow.TimestampType:
		switch {
		case t.Kind != Timestamp && t.Kind != TimestampTZ:
			return nil
		case (t.Kind == TimestampTZ) != (dt.TimeZone != ""):
			b.reason = fmt.Sprintf("%s does not go into %s: one is a moment, the other a wall clock's reading", dt, t.Name)
			return nil
		}
		return &momentNode[arrow.Timestamp]{unit: unitFor(dt.Unit), what: "timestamp", t: t}
	}
	return nil
}

func (b *builder) bytes(dt arrow.DataType, t *Type) node {
	switch dt.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		switch t.Kind {
		case Text, JSON, JSONB, Enum, UUID:
			return &bytesNode{e: b.e, t: t}
		}
	case arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW, arrow.FIXED_SIZE_BINARY:
		switch t.Kind {
		case Bytea:
			return &bytesNode{e: b.e, t: t, raw: true}
		case UUID:
			if w, ok := dt.(*arrow.FixedSizeBinaryType); ok && w.ByteWidth == 16 {
				return &bytesNode{e: b.e, t: t, raw: true, size: 16}
			}
		case Text, JSON, JSONB, Enum: // writers that do not annotate their strings
			if dt.ID() != arrow.FIXED_SIZE_BINARY {
				return &bytesNode{e: b.e, t: t}
			}
		}
	}
	return nil
}

func (b *builder) nested(dt arrow.DataType, t *Type) node {
	if isJSON(t) {
		switch dt.(type) {
		case arrow.ListLikeType, *arrow.StructType:
			return &jsonNode{e: b.e, t: t}
		}
		return nil
	}
	switch dt := dt.(type) {
	case arrow.ListLikeType:
		if l := b.list(dt, t); l != nil { // not a nil *listNode in a node
			return l
		}
	case *arrow.StructType:
		switch t.Kind {
		case Range:
			return b.rangeOf(dt, t)
		case Composite:
			return b.composite(dt, t)
		}
	}
	return nil
}

func (b *builder) list(dt arrow.ListLikeType, t *Type) *listNode {
	if _, isMap := dt.(*arrow.MapType); isMap || t.Kind != Array {
		return nil
	}
	if inner, ok := dt.Elem().(arrow.ListLikeType); ok && !isJSON(t.Elem) {
		if deep := b.list(inner, t); deep != nil {
			return &listNode{deep: deep, t: t}
		}
		return nil
	}
	if elem := b.build(dt.Elem(), t.Elem); elem != nil {
		return &listNode{elem: elem, t: t}
	}
	return nil
}

func (b *builder) rangeOf(dt *arrow.StructType, t *Type) node {
	if dt.NumFields() != 2 || dt.Field(0).Name != "start" || dt.Field(1).Name != "end" {
		return nil
	}
	lower, upper := b.build(dt.Field(0).Type, t.Elem), b.build(dt.Field(1).Type, t.Elem)
	if lower == nil || upper == nil {
		return nil
	}
	return &rangeNode{lower: lower, upper: upper, t: t}
}

func (b *builder) composite(dt *arrow.StructType, t *Type) node {
	n := &structNode{t: t}
	matched := 0
	for _, f := range t.Fields {
		at, ok := dt.FieldIdx(f.Name)
		if !ok {
			n.from, n.fields = append(n.from, -1), append(n.fields, nil)
			continue
		}
		fn := b.build(dt.Field(at).Type, f.Type)
		if fn == nil {
			b.reason = fmt.Sprintf("field %q: %s", f.Name, b.why(dt.Field(at).Type, f.Type))
			return nil
		}
		matched++
		n.from, n.fields = append(n.from, at), append(n.fields, fn)
	}
	if matched < dt.NumFields() {
		var extra []string
		for _, f := range dt.Fields() {
			if !hasField(t, f.Name) {
				extra = append(extra, f.Name)
			}
		}
		b.reason = fmt.Sprintf("%s has no field %s", t.Name, strings.Join(extra, ", "))
		return nil
	}
	return n
}

func hasField(t *Type, name string) bool {
	for _, f := range t.Fields {
		if f.Name == name {
			return true
		}
	}
	return false
}
