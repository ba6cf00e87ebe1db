package stream

import (
	"crypto/md5"
	"encoding/binary"
	"math/big"
	"math/bits"
	"sort"
)

// Hash is the MD5 of a partition key as the 128-bit number by which Kinesis, and file streams alike, choose the shard.
type Hash struct{ Hi, Lo uint64 }

// HashKey hashes a partition key.
func HashKey(key []byte) Hash {
	sum := md5.Sum(key)
	return Hash{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])}
}

// Less orders hashes as numbers.
func (h Hash) Less(o Hash) bool { return h.Hi < o.Hi || h.Hi == o.Hi && h.Lo < o.Lo }

// Big is the hash as a number.
func (h Hash) Big() *big.Int {
	n := new(big.Int).SetUint64(h.Hi)
	return n.Or(n.Lsh(n, 64), new(big.Int).SetUint64(h.Lo))
}

// HashOf is the hash that is the number n, of which only the lowest 128 bits count.
func HashOf(n *big.Int) Hash {
	mask := new(big.Int).SetUint64(^uint64(0))
	return Hash{
		Hi: new(big.Int).And(new(big.Int).Rsh(n, 64), mask).Uint64(),
		Lo: new(big.Int).And(n, mask).Uint64(),
	}
}

// Ranges finds the shard of a hash among ranges that are contiguous and cover all hashes: it holds their lower ends,
// ascending.
type Ranges []Hash

// EqualRanges are the lower ends of n equal ranges, cut as Kinesis cuts a new stream of n shards: each is 2^128 / n
// wide, rounded down, and the last one reaches to the top.
func EqualRanges(n int) Ranges {
	if n == 1 {
		return Ranges{{}}
	}
	// 2^128 / n by long division, one 64-bit digit after the other; the top digit of 2^128 is 1.
	d := uint64(n)
	hi, rem := bits.Div64(1, 0, d)
	lo, _ := bits.Div64(rem, 0, d)
	r := make(Ranges, n)
	for i := 1; i < n; i++ {
		var carry uint64
		r[i].Lo, carry = bits.Add64(r[i-1].Lo, lo, 0)
		r[i].Hi, _ = bits.Add64(r[i-1].Hi, hi, carry)
	}
	return r
}

// Find is the index of the range that holds h.
func (r Ranges) Find(h Hash) int {
	return sort.Search(len(r)-1, func(i int) bool { return h.Less(r[i+1]) })
}

// Top is the upper end of range i, itself included.
func (r Ranges) Top(i int) Hash {
	if i == len(r)-1 {
		return Hash{^uint64(0), ^uint64(0)}
	}
	lo, borrow := bits.Sub64(r[i+1].Lo, 1, 0)
	return Hash{r[i+1].Hi - borrow, lo}
}
