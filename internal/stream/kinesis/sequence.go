package kinesis

import (
	"fmt"
	"strconv"
	"strings"
)

// position is a sequence number as this package gives it out: the service's number, and for a record out of a KPL
// aggregate a dot and its index, from 0.
type position struct {
	number string
	sub    int // -1: the whole stream record
}

func parsePosition(s string) (position, error) {
	number, sub, aggregated := strings.Cut(s, ".")
	if !digits(number) || len(number) > 200 {
		return position{}, fmt.Errorf("a sequence number is digits, for a record out of an aggregate with a dot and its index")
	}
	if !aggregated {
		return position{number, -1}, nil
	}
	i, err := strconv.Atoi(sub)
	if err != nil || !digits(sub) {
		return position{}, fmt.Errorf("%q is not the index of a record in its aggregate", sub)
	}
	return position{number, i}, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// CompareSequences orders two sequence numbers of a shard as Reader gives them: -1, 0 or 1. The number of a whole
// aggregate comes before those of its records.
func CompareSequences(a, b string) int {
	an, as, aSub := strings.Cut(a, ".")
	bn, bs, bSub := strings.Cut(b, ".")
	switch c := compareDigits(an, bn); {
	case c != 0:
		return c
	case aSub != bSub && bSub:
		return -1
	case aSub != bSub:
		return 1
	}
	return compareDigits(as, bs)
}

func compareDigits(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if len(a) != len(b) {
		if len(a) < len(b) {
			return -1
		}
		return 1
	}
	return strings.Compare(a, b)
}
