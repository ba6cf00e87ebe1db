package convert

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
)

// node writes the values of one Arrow type in the binary form of one target type. It keeps the array it is bound to,
// so that a value costs a bounds check and no type switch.
type node interface {
	bind(a arrow.Array)
	// null tells whether the value at i is null, by itself or through a dictionary.
	null(i int) bool
	// append writes the payload of the value at i, which is not null.
	append(dst []byte, i int) ([]byte, error)
}

// base answers null from the array's validity.
type base struct{ arr arrow.Array }

func (b *base) bind(a arrow.Array) { b.arr = a }
func (b *base) null(i int) bool    { return b.arr.IsNull(i) }

// appendField writes a value's length and payload, or the mark of null.
func appendField(dst []byte, n node, i int) ([]byte, error) {
	if n.null(i) {
		return append(dst, 0xff, 0xff, 0xff, 0xff), nil
	}
	return appendValue(dst, n, i)
}

// appendValue writes the length and payload of a value that is not null.
func appendValue(dst []byte, n node, i int) ([]byte, error) {
	mark := len(dst)
	dst, err := n.append(append(dst, 0, 0, 0, 0), i)
	if err != nil {
		return dst[:mark], err
	}
	size := len(dst) - mark - 4
	if size > math.MaxInt32 {
		return dst[:mark], fmt.Errorf("value of %d bytes is larger than COPY's field", size)
	}
	binary.BigEndian.PutUint32(dst[mark:], uint32(size))
	return dst, nil
}

type nullNode struct{ base }

func (n *nullNode) null(int) bool                            { return true }
func (n *nullNode) append(dst []byte, _ int) ([]byte, error) { return dst, nil }

type boolNode struct {
	base
	vals *array.Boolean
}

func (n *boolNode) bind(a arrow.Array) { n.arr, n.vals = a, a.(*array.Boolean) }
func (n *boolNode) append(dst []byte, i int) ([]byte, error) {
	if n.vals.Value(i) {
		return append(dst, 1), nil
	}
	return append(dst, 0), nil
}

type integer interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64
}

// valuer is an Arrow array of fixed-width values.
type valuer[T any] interface{ Values() []T }

type intNode[T integer] struct {
	base
	vals []T
	t    *Type
}

func (n *intNode[T]) bind(a arrow.Array) { n.arr, n.vals = a, a.(valuer[T]).Values() }
func (n *intNode[T]) append(dst []byte, i int) ([]byte, error) {
	v := n.vals[i]
	if v > 0 && int64(v) < 0 { // a uint64 past int64
		if n.t.Kind == Numeric {
			var b [20]byte
			return appendNumeric(dst, false, appendUint(b[:0], uint64(v), 0), 0, n.t)
		}
		return dst, fmt.Errorf("value %d does not fit %s", uint64(v), n.t.Name)
	}
	return appendInt(dst, int64(v), n.t)
}

type float interface{ ~float32 | ~float64 }

type floatNode[T float] struct {
	base
	vals []T
	t    *Type
}

func (n *floatNode[T]) bind(a arrow.Array) { n.arr, n.vals = a, a.(valuer[T]).Values() }
func (n *floatNode[T]) append(dst []byte, i int) ([]byte, error) {
	return appendFloat(dst, float64(n.vals[i]), n.t)
}

func appendFloat(dst []byte, v float64, t *Type) ([]byte, error) {
	if t.Kind == Float8 {
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(v)), nil
	}
	f := float32(v)
	if float64(f) != v && v == v {
		return dst, fmt.Errorf("value %v does not fit %s exactly", v, t.Name)
	}
	return binary.BigEndian.AppendUint32(dst, math.Float32bits(f)), nil
}

type halfNode struct {
	base
	vals *array.Float16
	t    *Type
}

func (n *halfNode) bind(a arrow.Array) { n.arr, n.vals = a, a.(*array.Float16) }
func (n *halfNode) append(dst []byte, i int) ([]byte, error) {
	return appendFloat(dst, float64(n.vals.Value(i).Float32()), n.t)
}

// wideNode writes decimals of every width: words gives the magnitude.
type wideNode struct {
	base
	words func(i int, w *[4]uint64) (neg bool)
	scale int
	t     *Type
	// Here and not in append, where they would escape to the heap for every value.
	w [4]uint64
	b [80]byte
}

func (n *wideNode) bind(a arrow.Array) {
	n.arr = a
	n.words = wordsOf(a)
}

// wordsOf gives access to the magnitudes of an array of decimals.
func wordsOf(a arrow.Array) func(i int, w *[4]uint64) bool {
	switch a := a.(type) {
	case *array.Decimal32:
		return func(i int, w *[4]uint64) bool { return magnitude64(int64(a.Value(i)), w) }
	case *array.Decimal64:
		return func(i int, w *[4]uint64) bool { return magnitude64(int64(a.Value(i)), w) }
	case *array.Decimal128:
		return func(i int, w *[4]uint64) bool { return magnitude128(a.Value(i), w) }
	case *array.Decimal256:
		return func(i int, w *[4]uint64) bool { return magnitude256(a.Value(i), w) }
	}
	panic(fmt.Sprintf("convert: %s is no array of decimals", a.DataType()))
}

func magnitude64(v int64, w *[4]uint64) bool {
	if v < 0 {
		w[0] = -uint64(v)
		return true
	}
	w[0] = uint64(v)
	return false
}

func magnitude128(v decimal128.Num, w *[4]uint64) bool {
	lo, hi := v.LowBits(), uint64(v.HighBits())
	neg := v.Sign() < 0
	if neg {
		lo, hi = ^lo+1, ^hi
		if lo == 0 {
			hi++
		}
	}
	w[0], w[1] = lo, hi
	return neg
}

func magnitude256(v decimal256.Num, w *[4]uint64) bool {
	*w = v.Array()
	neg := int64(w[3]) < 0
	if neg {
		carry := uint64(1)
		for i := range w {
			w[i] = ^w[i] + carry
			if w[i] != 0 {
				carry = 0
			}
		}
	}
	return neg
}

func (n *wideNode) append(dst []byte, i int) ([]byte, error) {
	n.w = [4]uint64{}
	neg := n.words(i, &n.w)
	if n.t.Kind == Numeric && n.w[1]|n.w[2]|n.w[3] == 0 {
		if dst, ok := appendSmall(dst, neg, n.w[0], n.scale, n.t); ok {
			return dst, nil
		}
	}
	digits := appendWide(n.b[:0], n.w[:])
	if n.t.Kind == Numeric {
		return appendNumeric(dst, neg, digits, n.scale, n.t)
	}
	whole := digits // an integer target: what is behind the point has to be zeros
	for s := n.scale; s > 0 && len(whole) > 0; s-- {
		if whole[len(whole)-1] != '0' {
			return dst, fmt.Errorf("value %s does not fit %s", plain(neg, digits, n.scale), n.t.Name)
		}
		whole = whole[:len(whole)-1]
	}
	if len(whole) == 0 {
		return appendInt(dst, 0, n.t)
	}
	v, ok := parseInt(whole)
	if !ok || n.scale < 0 {
		return dst, fmt.Errorf("value %s does not fit %s", plain(neg, digits, n.scale), n.t.Name)
	}
	if neg {
		v = -v
	}
	return appendInt(dst, v, n.t)
}

// bytesNode writes strings and binaries.
type bytesNode struct {
	base
	get  func(i int) []byte
	e    *env
	t    *Type
	raw  bool // the bytes are the binary form: bytea, uuid
	size int  // the length raw bytes must have, 0 for any
}

func (n *bytesNode) bind(a arrow.Array) { n.arr, n.get = a, bytesOf(a) }

func bytesOf(a arrow.Array) func(i int) []byte {
	switch a := a.(type) {
	case *array.String:
		return func(i int) []byte { return stringBytes(a.Value(i)) }
	case *array.LargeString:
		return func(i int) []byte { return stringBytes(a.Value(i)) }
	case *array.StringView:
		return func(i int) []byte { return stringBytes(a.Value(i)) }
	case *array.Binary:
		return a.Value
	case *array.LargeBinary:
		return a.Value
	case *array.BinaryView:
		return a.Value
	case *array.FixedSizeBinary:
		return a.Value
	}
	panic(fmt.Sprintf("convert: %s is no array of strings", a.DataType()))
}

func stringBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

func (n *bytesNode) append(dst []byte, i int) ([]byte, error) {
	b := n.get(i)
	if !n.raw {
		return n.e.appendText(dst, b, n.t)
	}
	if n.size > 0 && len(b) != n.size {
		return dst, fmt.Errorf("value of %d bytes does not fit %s", len(b), n.t.Name)
	}
	return append(dst, b...), nil
}

// momentNode writes dates, times and timestamps.
type momentNode[T integer] struct {
	base
	vals []T
	unit unitOf
	what string
	t    *Type
}

func (n *momentNode[T]) bind(a arrow.Array) { n.arr, n.vals = a, a.(valuer[T]).Values() }
func (n *momentNode[T]) append(dst []byte, i int) ([]byte, error) {
	v := int64(n.vals[i])
	if n.t.Kind == Date && n.unit.factor == microsPerDay {
		return appendDate(dst, v)
	}
	m, err := n.unit.micros(v, n.what)
	switch {
	case err != nil:
		return dst, err
	case n.t.Kind == Time:
		return appendTime(dst, m, n.t)
	case n.t.Kind == Date: // date64: milliseconds of a midnight
		if m%microsPerDay != 0 {
			return dst, fmt.Errorf("date %d ms has a time of day", v)
		}
		return appendDate(dst, m/microsPerDay)
	}
	return appendTimestamp(dst, m, n.t)
}

type intervalNode struct {
	base
	vals *array.MonthDayNanoInterval
}

func (n *intervalNode) bind(a arrow.Array) { n.arr, n.vals = a, a.(*array.MonthDayNanoInterval) }
func (n *intervalNode) append(dst []byte, i int) ([]byte, error) {
	v := n.vals.Value(i)
	if v.Nanoseconds%1000 != 0 {
		return dst, fmt.Errorf("interval of %d ns has digits below the microsecond", v.Nanoseconds)
	}
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Nanoseconds/1000))
	dst = binary.BigEndian.AppendUint32(dst, uint32(v.Days))
	return binary.BigEndian.AppendUint32(dst, uint32(v.Months)), nil
}

// dictNode writes the values of a dictionary by index.
type dictNode struct {
	arr    *array.Dictionary
	values node
}

func (n *dictNode) bind(a arrow.Array) {
	n.arr = a.(*array.Dictionary)
	n.values.bind(n.arr.Dictionary())
}
func (n *dictNode) null(i int) bool {
	return n.arr.IsNull(i) || n.values.null(n.arr.GetValueIndex(i))
}
func (n *dictNode) append(dst []byte, i int) ([]byte, error) {
	return n.values.append(dst, n.arr.GetValueIndex(i))
}

// extensionNode looks through an extension type at its storage.
type extensionNode struct{ node }

func (n *extensionNode) bind(a arrow.Array) { n.node.bind(a.(array.ExtensionArray).Storage()) }
