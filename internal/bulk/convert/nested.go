package convert

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// jsonNode writes values of any Arrow type as JSON.
type jsonNode struct {
	base
	e *env
	t *Type
	b []byte
}

func (n *jsonNode) append(dst []byte, i int) ([]byte, error) {
	var err error
	if n.b, err = AppendJSON(n.b[:0], n.arr, i); err != nil {
		return dst, err
	}
	if n.t.Kind == JSONB {
		dst = append(dst, 1)
	}
	return n.e.appendJSONText(dst, n.b)
}

// listNode writes lists as arrays; lists of lists as arrays of more dimensions.
type listNode struct {
	base
	list array.ListLike
	elem node // the innermost, bound by its own list
	deep *listNode
	t    *Type
}

func (n *listNode) bind(a arrow.Array) {
	n.arr, n.list = a, a.(array.ListLike)
	if n.deep != nil {
		n.deep.bind(n.list.ListValues())
		return
	}
	n.elem.bind(n.list.ListValues())
}

func (n *listNode) append(dst []byte, i int) ([]byte, error) {
	var dims [6]int
	depth, err := n.dims(i, dims[:0])
	if err != nil {
		return dst, err
	}
	for _, d := range depth {
		if d == 0 {
			return appendArrayHead(dst, n.t, nil), nil
		}
	}
	head := len(dst)
	dst, nulls, err := n.elems(appendArrayHead(dst, n.t, depth), i, depth)
	if nulls {
		dst[head+7] = 1
	}
	return dst, err
}

// dims measures the list at i and the first lists in it.
func (n *listNode) dims(i int, d []int) ([]int, error) {
	start, end := n.list.ValueOffsets(i)
	d = append(d, int(end-start))
	if n.deep == nil || end == start {
		return d, nil
	}
	if len(d) == 6 {
		return nil, fmt.Errorf("list nested deeper than PostgreSQL's 6 dimensions")
	}
	if n.deep.null(int(start)) {
		return nil, errNullList
	}
	return n.deep.dims(int(start), d)
}

var (
	errNullList = fmt.Errorf("a multidimensional array cannot hold a null list")
	errRagged   = fmt.Errorf("a multidimensional array must be rectangular")
)

func (n *listNode) elems(dst []byte, i int, dims []int) ([]byte, bool, error) {
	start, end := n.list.ValueOffsets(i)
	if int(end-start) != dims[0] {
		return dst, false, errRagged
	}
	nulls := false
	for k := int(start); k < int(end); k++ {
		var err error
		if n.deep != nil {
			if n.deep.null(k) {
				return dst, false, errNullList
			}
			var inner bool
			dst, inner, err = n.deep.elems(dst, k, dims[1:])
			nulls = nulls || inner
		} else {
			nulls = nulls || n.elem.null(k)
			dst, err = appendField(dst, n.elem, k)
		}
		if err != nil {
			return dst, false, fmt.Errorf("element %d: %w", k-int(start)+1, err)
		}
	}
	return dst, nulls, nil
}

// structNode writes structs as composites, by the names of the fields.
type structNode struct {
	base
	from   []int // per field of the composite, the struct's field; -1 is null
	fields []node
	t      *Type
}

func (n *structNode) bind(a arrow.Array) {
	n.arr = a
	s := a.(*array.Struct)
	for k, f := range n.fields {
		if f != nil {
			f.bind(s.Field(n.from[k]))
		}
	}
}

func (n *structNode) append(dst []byte, i int) ([]byte, error) {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(n.t.Fields)))
	for k, f := range n.t.Fields {
		dst = binary.BigEndian.AppendUint32(dst, f.Type.OID)
		if n.fields[k] == nil {
			dst = append(dst, 0xff, 0xff, 0xff, 0xff)
			continue
		}
		var err error
		if dst, err = appendField(dst, n.fields[k], i); err != nil {
			return dst, fmt.Errorf("field %q: %w", f.Name, err)
		}
	}
	return dst, nil
}

// Flags of a range's binary form.
const (
	rangeLowerInc = 0x02
	rangeLowerInf = 0x08
	rangeUpperInf = 0x10
)

// rangeNode writes struct{start, end} as a range [start, end); a null bound is unbounded.
type rangeNode struct {
	base
	lower, upper node
	t            *Type
}

func (n *rangeNode) bind(a arrow.Array) {
	n.arr = a
	s := a.(*array.Struct)
	n.lower.bind(s.Field(0))
	n.upper.bind(s.Field(1))
}

func (n *rangeNode) append(dst []byte, i int) ([]byte, error) {
	flags := byte(0)
	low, up := !n.lower.null(i), !n.upper.null(i)
	if low {
		flags |= rangeLowerInc
	} else {
		flags |= rangeLowerInf
	}
	if !up {
		flags |= rangeUpperInf
	}
	dst = append(dst, flags)
	var err error
	if low {
		if dst, err = appendField(dst, n.lower, i); err != nil {
			return dst, fmt.Errorf("start: %w", err)
		}
	}
	if up {
		if dst, err = appendField(dst, n.upper, i); err != nil {
			return dst, fmt.Errorf("end: %w", err)
		}
	}
	return dst, nil
}
