// Package sink says what replayed records go into: the sinks are its folders. It holds what a consumer of a stream and
// its sinks must agree on, which is how far a shard has been read.
package sink

import (
	"cmp"
	"fmt"
	"strings"
)

// Mark is a place in a shard up to which everything has been handled. Its zero value is the shard's beginning. It is the
// token of a replay's batches.
type Mark struct {
	Sequence string // of the last stream record of which something was handled
	Lines    int    // how many of that record's lines were handled, when not all: 0 is all of them
	Ended    bool   // the shard is closed and was read to its end
}

// IsZero tells the beginning of a shard.
func (m Mark) IsZero() bool { return m == Mark{} }

// String is the mark for people.
func (m Mark) String() string {
	switch {
	case m.Ended:
		return "the shard's end"
	case m.Sequence == "":
		return "the beginning"
	case m.Lines > 0:
		return fmt.Sprintf("%s line %d", m.Sequence, m.Lines)
	}
	return m.Sequence
}

// Covers tells whether line of the stream record with this sequence number is at or before the mark.
func (m Mark) Covers(sequence string, line int) bool {
	if m.Ended {
		return true
	}
	if m.Sequence == "" {
		return false
	}
	switch c := CompareSequence(sequence, m.Sequence); {
	case c < 0:
		return true
	case c > 0:
		return false
	}
	return m.Lines == 0 || line < m.Lines
}

// After tells whether m covers more than o.
func (m Mark) After(o Mark) bool {
	if m.Ended || o.Ended {
		return m.Ended && !o.Ended
	}
	if c := CompareSequence(m.Sequence, o.Sequence); c != 0 {
		return c > 0
	}
	return o.Lines > 0 && (m.Lines == 0 || m.Lines > o.Lines)
}

// CompareSequence orders two sequence numbers of one shard: decimal integers of up to 186 digits, so compared as text by
// length first; and, of a record out of an aggregate, a dot and its index. A number without an index is all of its aggregate.
func CompareSequence(a, b string) int {
	a, ai, aPart := strings.Cut(a, ".")
	b, bi, bPart := strings.Cut(b, ".")
	if c := compareNumber(a, b); c != 0 {
		return c
	}
	switch {
	case aPart && bPart:
		return compareNumber(ai, bi)
	case aPart:
		return -1
	case bPart:
		return 1
	}
	return 0
}

func compareNumber(a, b string) int {
	a, b = trimZeros(a), trimZeros(b)
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return strings.Compare(a, b)
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
