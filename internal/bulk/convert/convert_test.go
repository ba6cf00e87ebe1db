package convert

import (
	"bytes"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"
)

// The short way of making a numeric gives the very bytes of the long one, and refuses what the long one refuses.
func TestSmallNumericsAreTheSame(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	types := []*Type{{Name: "numeric", Kind: Numeric}, {Name: "numeric(10,2)", Kind: Numeric, Precision: 10, Scale: 2}, {Name: "numeric(38,9)", Kind: Numeric, Precision: 38, Scale: 9},
		{Name: "numeric(4,4)", Kind: Numeric, Precision: 4, Scale: 4}, {Name: "numeric(3,-2)", Kind: Numeric, Precision: 3, Scale: -2}, {Name: "numeric(2,5)", Kind: Numeric, Precision: 2, Scale: 5}}
	took := 0
	for range 200_000 {
		v := rnd.Uint64() >> rnd.IntN(64)
		if rnd.IntN(4) == 0 {
			v = v / 10000 * 10000
		}
		if rnd.IntN(50) == 0 {
			v = 0
		}
		scale, typ, neg := rnd.IntN(12), types[rnd.IntN(len(types))], rnd.IntN(2) == 0
		short, ok := appendSmall(nil, neg, v, scale, typ)
		if !ok {
			continue
		}
		took++
		long, err := appendNumeric(nil, neg, appendUint(nil, v, 0), scale, typ)
		if err != nil || !bytes.Equal(short, long) {
			t.Fatalf("%v %d scale %d as %s: % x, the long way % x, %v", neg, v, scale, typ.Name, short, long, err)
		}
	}
	if took < 50_000 {
		t.Fatalf("only %d numbers went the short way", took)
	}
}

func TestWideDigits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 20_000 {
		w := [4]uint64{rnd.Uint64(), rnd.Uint64(), rnd.Uint64(), rnd.Uint64()}
		for i := 3; i >= rnd.IntN(5); i-- {
			w[i] = 0
		}
		want := new(big.Int)
		for i := 3; i >= 0; i-- {
			want.Or(want.Lsh(want, 64), new(big.Int).SetUint64(w[i]))
		}
		if got := appendWide(nil, w[:]); string(got) != want.String() {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// Days and calendar dates against the standard library, over its whole range and ours.
func TestCivilDays(t *testing.T) {
	for days := int64(-1_500_000); days < 1_500_000; days += 13 {
		at := time.Unix(days*86400, 0).UTC()
		y, m, d := civil(days)
		if int(y) != at.Year() || int(m) != int(at.Month()) || int(d) != at.Day() {
			t.Fatalf("day %d is %d-%d-%d, want %s", days, y, m, d, at)
		}
		if back := daysFromCivil(y, m, d); back != days {
			t.Fatalf("%d-%d-%d is day %d, want %d", y, m, d, back, days)
		}
	}
}

// FuzzText: whatever the text, a conversion ends in bytes or in an error, and leaves what was there before alone.
func FuzzText(f *testing.F) {
	for _, s := range []string{"1", "-0.10e5", "NaN", "2026-11-30T19:58:00.5+02", "0044-03-15 BC", `\xdead`, `a\\b\001`, "{00112233-4455-6677-8899-aabbccddeeff}", `{"a":["\u0000"]}`, "\x00", "t"} {
		f.Add([]byte(s))
	}
	types := []*Type{{Kind: Bool}, {Kind: Int2}, {Kind: Int4}, {Kind: Int8}, {Kind: Float4}, {Kind: Float8}, {Kind: Numeric}, {Kind: Numeric, Precision: 8, Scale: 3}, {Kind: Text}, {Kind: Text, Length: 3},
		{Kind: Bytea}, {Kind: Date}, {Kind: Time, FracDigits: 3}, {Kind: Timestamp, FracDigits: 6}, {Kind: TimestampTZ, FracDigits: 0}, {Kind: UUID}, {Kind: JSON}, {Kind: JSONB}, {Kind: Enum},
		{Kind: Array, Elem: &Type{Kind: Int4}}, {Kind: Composite, Fields: []Field{{"a", &Type{Kind: Text}}}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, policy := range []NULPolicy{NULFail, NULReplace} {
			e := &env{nul: policy}
			for _, typ := range types {
				before := []byte("before")
				if hasTextForm(typ) {
					if out, _ := e.appendText(before, b, typ); !bytes.HasPrefix(out, before) {
						t.Fatalf("kind %d: what was there before is gone", typ.Kind)
					}
				}
				if end, err := skipValue(b, 0, 0); err == nil && end == len(b) {
					if out, _ := e.appendJSON(before, b, typ); !bytes.HasPrefix(out, before) {
						t.Fatalf("kind %d from JSON: what was there before is gone", typ.Kind)
					}
				}
			}
		}
	})
}
