package kinesisfake

import (
	"math/big"
	"math/bits"
)

// Sequence numbers have the size and growth of the real ones: 56 digits, from 47 hexadecimal digits, highest first:
//
//	2 | second of the shard's creation (9) | counter (16) | 0000 | second of arrival (9) | shard number (7) | 2
//
// The counter runs over the whole stream, so a child's numbers are above its parents'.
type sequence struct {
	created, arrived int64  // Unix seconds
	counter          uint64 // from 1
	shard            int
}

// words is the number as three words, highest first.
func (q sequence) words() (hi, mid, lo uint64) {
	created := uint64(q.created) & (1<<36 - 1)
	// bits 187..184: 2; 183..148: created; 147..84: counter; 83..68: zero; 67..32: arrived; 31..4: shard; 3..0: 2
	hi = 2<<56 | created<<20 | q.counter>>44
	arrived := uint64(q.arrived) & (1<<36 - 1)
	mid = q.counter<<20 | arrived>>32
	lo = arrived<<32 | uint64(q.shard)<<4 | 2
	return hi, mid, lo
}

func (q sequence) append(dst []byte) []byte {
	const chunk = 10_000_000_000_000_000_000 // 10^19, the largest power that fits a word
	hi, mid, lo := q.words()
	var digits [57]byte
	for end := len(digits); end > 0; end -= 19 {
		var r uint64
		hi, r = bits.Div64(0, hi, chunk)
		mid, r = bits.Div64(r, mid, chunk)
		lo, r = bits.Div64(r, lo, chunk)
		for i := 1; i <= 19; i++ {
			digits[end-i] = byte('0' + r%10)
			r /= 10
		}
	}
	i := 0
	for i < len(digits)-1 && digits[i] == '0' {
		i++
	}
	return append(dst, digits[i:]...)
}

func (q sequence) String() string { return string(q.append(nil)) }

// parseSequence takes a number apart; ok is false for what this server never gave out.
func parseSequence(s string) (q sequence, ok bool) {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 192 {
		return q, false
	}
	mask := new(big.Int).SetUint64(^uint64(0))
	word := func(shift uint) uint64 {
		return new(big.Int).And(new(big.Int).Rsh(n, shift), mask).Uint64()
	}
	if word(184) != 2 || word(0)&15 != 2 {
		return q, false
	}
	q.created = int64(word(148) & (1<<36 - 1))
	q.counter = word(84)
	q.arrived = int64(word(32) & (1<<36 - 1))
	q.shard = int(word(4) & (1<<28 - 1))
	return q, true
}
