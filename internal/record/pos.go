package record

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// LSN is a position in a PostgreSQL write-ahead log, printed as PostgreSQL does: 0/16B3748.
type LSN uint64

func (l LSN) String() string { return string(l.Append(nil)) }

// Append writes the LSN in PostgreSQL's form.
func (l LSN) Append(dst []byte) []byte {
	dst = appendUpperHex(dst, uint64(l>>32), 1)
	dst = append(dst, '/')
	return appendUpperHex(dst, uint64(l&0xffffffff), 1)
}

// ParseLSN reads PostgreSQL's form of an LSN.
func ParseLSN(s string) (LSN, error) {
	hi, lo, ok := strings.Cut(s, "/")
	if ok && len(hi) >= 1 && len(hi) <= 8 && len(lo) >= 1 && len(lo) <= 8 {
		h, errH := strconv.ParseUint(hi, 16, 32)
		l, errL := strconv.ParseUint(lo, 16, 32)
		if errH == nil && errL == nil {
			return LSN(h<<32 | l), nil
		}
	}
	return 0, fmt.Errorf("parse LSN %q: want hexadecimal/hexadecimal, such as 0/16B3748", s)
}

func appendUpperHex(dst []byte, v uint64, minDigits int) []byte {
	const digits = "0123456789ABCDEF"
	n := max((bits.Len64(v)+3)/4, minDigits)
	dst = append(dst, "0000000000000000"[:n]...)
	for i := len(dst) - 1; v != 0; i-- {
		dst[i] = digits[v&0xf]
		v >>= 4
	}
	return dst
}

// Suffix tells apart records that share system, timeline, row LSN and n. It is the last character of an id.
type Suffix byte

const (
	NoSuffix   Suffix = 0
	MovedOut   Suffix = 'd' // the delete of a key update
	MovedIn    Suffix = 'i' // the insert of a key update
	MessageEnd Suffix = 'm' // a logical message: its LSN is its record's end, which can be the next row's LSN
	TxBegin    Suffix = 'b' // a transaction's begin: its LSN is that of the transaction's first record, often a row's
	TxCommit   Suffix = 'c' // a transaction's commit: its LSN is the commit record's
)

// Pos names and orders a change. (Commit, Row, N, Suffix) is the total order of changes within one timeline, and
// System.Timeline.Row.N with the suffix is the id: the same on every delivery, whatever slot or publication carried it.
type Pos struct {
	System   uint64 // PostgreSQL's system identifier
	Timeline uint32 // the timeline to which Row belongs
	Commit   LSN    // the transaction's commit LSN ("lsn")
	Row      LSN    // the change's own LSN: its XLogData header's WAL start ("row_lsn")
	N        uint32 // which of several changes that share Row, from 0
	Suffix   Suffix
}

// AppendID writes the id: 7412345678901234567.1.00000000016B3700.0
func (p Pos) AppendID(dst []byte) []byte {
	dst = strconv.AppendUint(dst, p.System, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, uint64(p.Timeline), 10)
	dst = append(dst, '.')
	dst = appendUpperHex(dst, uint64(p.Row), 16)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, uint64(p.N), 10)
	if p.Suffix != NoSuffix {
		dst = append(dst, byte(p.Suffix))
	}
	return dst
}

// ParseID reads the id of a change as AppendID writes it. The commit LSN is not part of it.
func ParseID(s string) (Pos, error) {
	if pos, ok := parseID([]byte(s)); ok {
		return pos, nil
	}
	return Pos{}, fmt.Errorf("parse id %q: want system.timeline.row_lsn.n, the row LSN as 16 hexadecimal digits", s)
}

// Compare orders two changes of one timeline: negative when p comes first.
func (p Pos) Compare(q Pos) int {
	switch {
	case p.Commit != q.Commit:
		return cmpUint(uint64(p.Commit), uint64(q.Commit))
	case p.Row != q.Row:
		return cmpUint(uint64(p.Row), uint64(q.Row))
	// A message's LSN is the end of its record, so one that shares it with a row was written before that row.
	case (p.Suffix == MessageEnd) != (q.Suffix == MessageEnd):
		if p.Suffix == MessageEnd {
			return -1
		}
		return 1
	case (p.Suffix == TxBegin) != (q.Suffix == TxBegin):
		if p.Suffix == TxBegin {
			return -1
		}
		return 1
	case p.N != q.N:
		return cmpUint(uint64(p.N), uint64(q.N))
	}
	return cmpUint(uint64(p.Suffix), uint64(q.Suffix)) // 'd' before 'i'
}

func cmpUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
