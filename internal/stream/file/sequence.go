package file

import (
	"fmt"
	"strconv"
	"strings"
)

// A sequence number is the stream's epoch (6 digits), the shard's number (4) and the record's ordinal in its shard (15,
// from 1): decimal, of one width, so that it is ordered alike as text and as a number, and a number of another shard or
// of an earlier stream in the same directory is recognised. Ordinals have no gaps.
const (
	ordinalDigits  = 15
	sequenceDigits = 6 + 4 + ordinalDigits

	shardPrefix   = "shardId-"
	segmentSuffix = ".ndjson"
)

func shardID(i int) string { return fmt.Sprintf(shardPrefix+"%012d", i) }

// shardIndex is the number of a shard of this stream; ok is false for a name that is none.
func (m *meta) shardIndex(id string) (i int, ok bool) {
	i, err := strconv.Atoi(strings.TrimPrefix(id, shardPrefix))
	return i, err == nil && i >= 0 && i < m.Shards && shardID(i) == id
}

// sequencePrefix is what all sequence numbers of a shard begin with.
func (m *meta) sequencePrefix(shard int) string { return fmt.Sprintf("%06d%04d", m.Epoch, shard) }

func (m *meta) sequence(shard int, ordinal uint64) string {
	return string(appendOrdinal([]byte(m.sequencePrefix(shard)), ordinal))
}

func appendOrdinal(dst []byte, ordinal uint64) []byte {
	var d [ordinalDigits]byte
	for i := len(d) - 1; i >= 0; i-- {
		d[i] = '0' + byte(ordinal%10)
		ordinal /= 10
	}
	return append(dst, d[:]...)
}

func parseOrdinal(s []byte) (n uint64, ok bool) {
	if len(s) != ordinalDigits {
		return 0, false
	}
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}

// ordinal takes apart a sequence number of the shard; reason says why it is none.
func (m *meta) ordinal(shard int, sequence string) (n uint64, reason string) {
	if len(sequence) != sequenceDigits {
		return 0, fmt.Sprintf("this stream's have %d digits", sequenceDigits)
	}
	if n, ok := parseOrdinal([]byte(sequence[10:])); ok && n > 0 {
		switch {
		case sequence[:10] == m.sequencePrefix(shard):
			return n, ""
		case sequence[:6] == strconv.Itoa(m.Epoch):
			if other, err := strconv.Atoi(sequence[6:10]); err == nil && other < m.Shards {
				return 0, "it is of shard " + shardID(other)
			}
		default:
			return 0, fmt.Sprintf("it is of another stream: this one's begin with %d", m.Epoch)
		}
	}
	return 0, "this stream never had it"
}

func (m *meta) segmentName(shard int, base uint64) string {
	return m.sequence(shard, base) + segmentSuffix
}

// segmentBase is the first ordinal of the segment with this name; ok is false for another file.
func (m *meta) segmentBase(shard int, name string) (base uint64, ok bool) {
	sequence, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok {
		return 0, false
	}
	base, reason := m.ordinal(shard, sequence)
	return base, reason == ""
}
