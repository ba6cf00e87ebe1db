package cli

import (
	"testing"
	"time"
)

func TestSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want int64
		ok   bool
	}{
		{"0", 0, true}, {"4096", 4096, true}, {"64MiB", 64 << 20, true}, {"1GB", 1e9, true}, {"1.5KiB", 1536, true}, {"10 kB", 10000, true},
		{"7B", 7, true}, {"8TiB", 8 << 40, true},
		{"", 0, false}, {"-1", 0, false}, {"MiB", 0, false}, {"64mib", 0, false}, {"1e9", 0, false}, {"0.3B", 0, false}, {"1.2.3", 0, false},
		{"9999999999TiB", 0, false}, {"1/2", 0, false}, {"0x10", 0, false},
	} {
		var s Size
		err := s.Set(c.text)
		if (err == nil) != c.ok || int64(s) != c.want {
			t.Errorf("Set(%q) = %d, %v; want %d, ok %v", c.text, s, err, c.want, c.ok)
		}
	}
}

func TestSizeReadsWhatItPrints(t *testing.T) {
	for _, n := range []Size{0, 1, 1023, 1024, 1536, 16 << 20, 3 << 40, 1e9} {
		var back Size
		if err := back.Set(n.String()); err != nil || back != n {
			t.Errorf("%d prints as %s, which reads as %d, %v", int64(n), n.String(), int64(back), err)
		}
	}
}

func TestFormats(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", -100: "-100"} {
		if got := FormatCount(n); got != want {
			t.Errorf("FormatCount(%d) = %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 5 << 20: "5.0 MiB", 1<<63 - 1: "8.0 EiB"} {
		if got := FormatBytes(n); got != want {
			t.Errorf("FormatBytes(%d) = %s, want %s", n, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	var at Time
	if err := at.Set("2026-11-30T20:58:00.5+01:00"); err != nil || !at.Equal(time.Date(2026, 11, 30, 19, 58, 0, 5e8, time.UTC)) {
		t.Errorf("time is %v, %v", at, err)
	}
	for _, bad := range []string{"", "2026-11-30", "2026-11-30T19:58:00", "yesterday"} {
		if at.Set(bad) == nil {
			t.Errorf("time %q was taken", bad)
		}
	}
}
