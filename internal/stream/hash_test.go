package stream

import (
	"crypto/md5"
	"math/big"
	"testing"
)

// The shard of a key is defined by 2^128 arithmetic; big.Int does it independently of the code.
func TestRangesAgreeWithBigArithmetic(t *testing.T) {
	top := new(big.Int).Lsh(big.NewInt(1), 128)
	for _, n := range []int{1, 2, 3, 4, 7, 64, 1000} {
		ranges := EqualRanges(n)
		step := new(big.Int).Div(top, big.NewInt(int64(n)))
		for i := range n {
			low := new(big.Int).Mul(step, big.NewInt(int64(i)))
			high := new(big.Int).Sub(new(big.Int).Add(low, step), big.NewInt(1))
			if i == n-1 {
				high.Sub(top, big.NewInt(1))
			}
			if ranges[i].Big().Cmp(low) != 0 || ranges.Top(i).Big().Cmp(high) != 0 {
				t.Fatalf("%d shards: range %d is %v-%v, want %v-%v", n, i, ranges[i].Big(), ranges.Top(i).Big(), low, high)
			}
			if ranges.Find(HashOf(low)) != i || ranges.Find(HashOf(high)) != i {
				t.Fatalf("%d shards: the ends of range %d are not found in it", n, i)
			}
		}
	}
}

func TestHashKeyIsMD5(t *testing.T) {
	for _, key := range []string{"", "public.orders.1", "ключ"} {
		sum := md5.Sum([]byte(key))
		if want := new(big.Int).SetBytes(sum[:]); HashKey([]byte(key)).Big().Cmp(want) != 0 {
			t.Errorf("hash of %q is %v, want %v", key, HashKey([]byte(key)).Big(), want)
		}
	}
}
