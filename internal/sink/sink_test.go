package sink

import "testing"

func TestCompareSequence(t *testing.T) {
	// In ascending order.
	list := []string{"1", "9", "10", "49590338271490256608559692538361571095921575989136588897.0", "49590338271490256608559692538361571095921575989136588897.9",
		"49590338271490256608559692538361571095921575989136588897.10", "49590338271490256608559692538361571095921575989136588897", "49590338271490256608559692538361571095921575989136588898"}
	for i, a := range list {
		for j, b := range list {
			got := CompareSequence(a, b)
			if (got < 0) != (i < j) || (got == 0) != (i == j) {
				t.Errorf("%s against %s: %d", a, b, got)
			}
		}
	}
	if CompareSequence("007", "7") != 0 {
		t.Error("leading zeros count")
	}
}

func TestMarks(t *testing.T) {
	for _, c := range []struct {
		m        Mark
		sequence string
		line     int
		covers   bool
	}{
		{Mark{}, "1", 0, false},
		{Mark{Sequence: "5"}, "4", 9, true},
		{Mark{Sequence: "5"}, "5", 9, true},
		{Mark{Sequence: "5"}, "6", 0, false},
		{Mark{Sequence: "5", Lines: 2}, "5", 1, true},
		{Mark{Sequence: "5", Lines: 2}, "5", 2, false},
		{Mark{Sequence: "5"}, "5.3", 0, true},
		{Mark{Sequence: "5.3"}, "5.4", 0, false},
		{Mark{Sequence: "5", Ended: true}, "6", 0, true},
	} {
		if got := c.m.Covers(c.sequence, c.line); got != c.covers {
			t.Errorf("%v covers %s line %d: %t", c.m, c.sequence, c.line, got)
		}
	}
	order := []Mark{{}, {Sequence: "4"}, {Sequence: "5", Lines: 1}, {Sequence: "5", Lines: 2}, {Sequence: "5"}, {Sequence: "6"}, {Sequence: "6", Ended: true}}
	for i, a := range order {
		for j, b := range order {
			if got := a.After(b); got != (i > j) {
				t.Errorf("%v after %v: %t", a, b, got)
			}
		}
	}
}
