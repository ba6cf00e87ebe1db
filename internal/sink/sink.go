// Package sink says what replayed records go into: the sinks are its folders. It holds what a consumer of a stream and
// its sinks must agree on, which is how far a shard has been read.
package sink

import "fmt"

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

// CompareSequence orders two sequence numbers: decimal integers of up to 186 digits, so compared as text by length first.
func CompareSequence(a, b string) int {
	a, b = trimZeros(a), trimZeros(b)
	switch {
	case len(a) != len(b):
		if len(a) < len(b) {
			return -1
		}
		return 1
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func trimZeros(s string) string {
	for len(s) > 1 && s[0] == '0' {
		s = s[1:]
	}
	return s
}
