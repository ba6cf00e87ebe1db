package cli

import (
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// Size is a flag's value in bytes: 64MiB, 1GB, 4096.
type Size int64

var _ pflag.Value = (*Size)(nil)

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"B", 1}, // last: it ends the others too
}

// Set reads a number and an optional unit. A fraction is fine as long as it comes out at whole bytes.
func (s *Size) Set(text string) error {
	number, unit := strings.TrimSpace(text), int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	if number == "" || strings.Trim(number, "0123456789.") != "" || len(number) > 20 {
		return fmt.Errorf("want a size such as 4096, 64MiB or 1GB (B, kB, MB, GB, TB, KiB, MiB, GiB, TiB)")
	}
	n, ok := new(big.Rat).SetString(number)
	if !ok {
		return fmt.Errorf("%q is not a number", number)
	}
	n.Mul(n, new(big.Rat).SetInt64(unit))
	if !n.IsInt() || !n.Num().IsInt64() {
		return fmt.Errorf("is not a whole number of bytes below 8 EiB")
	}
	*s = Size(n.Num().Int64())
	return nil
}

// String gives the largest binary unit that divides the size, so that a default reads as it would be written.
func (s *Size) String() string {
	for _, u := range []struct {
		name  string
		bytes int64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if *s != 0 && int64(*s)%u.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(*s)/u.bytes, u.name)
		}
	}
	return fmt.Sprint(int64(*s))
}

// Type names the value in help texts.
func (s *Size) Type() string { return "size" }

// FormatBytes writes a size for people, with three digits or so: 1.2 MiB.
func FormatBytes(n int64) string {
	const units = "KMGTPE"
	if n < 1024 && n > -1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for (v >= 1024 || v <= -1024) && i < len(units)-1 {
		v, i = v/1024, i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// FormatCount writes a number for people: 1,234,567.
func FormatCount(n int64) string {
	s := fmt.Sprint(n)
	first := 0
	if n < 0 {
		first = 1
	}
	for i := len(s) - 3; i > first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Time is a flag's value in RFC 3339: 2026-11-30T19:58:00Z. Its zero value is "not given".
type Time struct{ time.Time }

var _ pflag.Value = (*Time)(nil)

// Set reads RFC 3339 with an explicit zone, so that the same command means the same instant everywhere.
func (t *Time) Set(text string) error {
	v, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return fmt.Errorf("want a time such as 2026-11-30T19:58:00Z or 2026-11-30T20:58:00+01:00")
	}
	t.Time = v
	return nil
}

func (t *Time) String() string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// Type names the value in help texts.
func (t *Time) Type() string { return "time" }

// Choice is a flag's value out of a list.
type Choice struct {
	Value   string
	Allowed []string
}

var _ pflag.Value = (*Choice)(nil)

// NewChoice makes a choice; the first of allowed is the default.
func NewChoice(allowed ...string) Choice { return Choice{Value: allowed[0], Allowed: allowed} }

// Set accepts one of the allowed values.
func (c *Choice) Set(text string) error {
	for _, a := range c.Allowed {
		if text == a {
			c.Value = text
			return nil
		}
	}
	return fmt.Errorf("want one of %s", strings.Join(c.Allowed, ", "))
}

func (c *Choice) String() string { return c.Value }

// Type names the value in help texts.
func (c *Choice) Type() string { return strings.Join(c.Allowed, "|") }

// LiveFlags are the flags of commands that run until they are asked to stop.
type LiveFlags struct {
	DrainTimeout time.Duration // from the first signal until we are forced
	MetricsAddr  string        // host:port for /metrics, /healthz, /readyz; empty: no server
}

// AddLiveFlags adds --drain-timeout and --metrics-addr.
func AddLiveFlags(fs *pflag.FlagSet) *LiveFlags {
	l := &LiveFlags{}
	fs.DurationVar(&l.DrainTimeout, "drain-timeout", 25*time.Second, "after the first SIGINT or SIGTERM, how long to finish what is in flight")
	fs.StringVar(&l.MetricsAddr, "metrics-addr", "", "serve Prometheus /metrics, /healthz and /readyz at this host:port")
	return l
}
