package cli

import (
	"bytes"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedBuffer is a terminal that may be looked at while it is written to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// screen is what a terminal shows after s: clearLine takes the line that is being written away.
func screen(s string) []string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		if at := strings.LastIndex(line, clearLine); at >= 0 {
			lines[i] = line[at+len(clearLine):]
		}
	}
	return lines
}

func testRun(t *testing.T, mode string, tty bool) (*Run, *lockedBuffer) {
	t.Helper()
	out := &lockedBuffer{}
	app := New(IO{Err: out, ErrIsTTY: tty, Getenv: func(string) string { return "" }, Width: func() int { return 100 }}, nil)
	if err := app.progress.Set(mode); err != nil {
		t.Fatal(err)
	}
	return &Run{IO: app.IO, Log: app.logger(), app: app}, out
}

func TestReportPlain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := testRun(t, "auto", false)
		var records int64
		stop, err := r.Report(func() Snapshot {
			records += 5000
			return Snapshot{Records: records, Bytes: 10 * records, Position: "0/16B3748", Lag: &Lag{Bytes: 77, Age: 1500 * time.Millisecond}}
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Second)
		stop()
		stop() // deferred stops beside explicit ones are ordinary
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 3 {
			t.Fatalf("want two lines of progress in 25 s and a last one, got:\n%s", out)
		}
		for i, want := range []string{
			`msg=progress records=5000 rate=500 bytes=50000 in_flight=0 lag_bytes=77 lag=1.5s position=0/16B3748`,
			`msg=progress records=10000 rate=500 `,
			`msg=finished records=15000 rate=600 elapsed=25s bytes=150000 `,
		} {
			if !strings.Contains(lines[i], want) {
				t.Errorf("line %d is %q, want %q in it", i, lines[i], want)
			}
		}
		if strings.ContainsAny(out.String(), "\r\x1b") {
			t.Errorf("control characters where there is no terminal: %q", out)
		}
	})
}

func TestReportBar(t *testing.T) {
	for _, c := range []struct {
		name  string
		total int64
		want  *regexp.Regexp
	}{
		{"unknown total", 0, regexp.MustCompile(`^\S 1,000 records · [0-9,]+/s · 9\.8 KiB · lag 2\.0 MiB · 7 in flight · at 0/1$`)},
		{"known total", 4000, regexp.MustCompile(`25% \|█+ *\| 1,000 records · .* · ETA [0-9]+s · at 0/1$`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, out := testRun(t, "auto", true)
				stop, err := r.Report(func() Snapshot {
					return Snapshot{Records: 1000, Bytes: 10000, Total: c.total, InFlight: 7, Position: "0/1", Lag: &Lag{Bytes: 2 << 20, Age: -1}}
				})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
				lines := screen(out.String())
				if got := lines[len(lines)-1]; !c.want.MatchString(got) {
					t.Errorf("status line is %q, want %s", got, c.want)
				}
				stop()
				lines = screen(out.String())
				if len(lines) != 2 || !strings.Contains(lines[0], "msg=finished records=1000") || lines[1] != "" {
					t.Errorf("after the end the terminal shows %q", lines)
				}
			})
		})
	}
}

func TestReportNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := testRun(t, "none", true)
		stop, err := r.Report(func() Snapshot { return Snapshot{} })
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		stop()
		if out.String() != "" {
			t.Errorf("--progress none wrote %q", out)
		}
	})
}

// Log lines, prompts and data on the same terminal must come out whole, and the status line be back below them.
func TestStatusLineDoesNotTear(t *testing.T) {
	out := &lockedBuffer{}
	c := &console{w: out}
	log := slog.New(slog.NewTextHandler(c, nil))
	data := sharedTerminal{c, out}
	c.setStatus("| 10 records")
	log.Info("one")
	data.Write([]byte(`{"v":1}` + "\n"))
	c.Write([]byte("Really? "))
	c.setStatus("/ 20 records")
	if lines := screen(out.String()); lines[len(lines)-1] != "Really? " {
		t.Errorf("a prompt must stay the last line, the terminal shows %q", lines)
	}
	c.Write([]byte("\n"))
	lines := screen(out.String())
	if len(lines) != 4 || !strings.HasSuffix(lines[0], "msg=one") || lines[1] != `{"v":1}` || lines[2] != "Really? " || lines[3] != "/ 20 records" {
		t.Errorf("the terminal shows %q", lines)
	}
	c.setStatus("")
	if lines := screen(out.String()); lines[3] != "" {
		t.Errorf("the status line is still there: %q", lines)
	}
}

func TestStatusLineFitsTheTerminal(t *testing.T) {
	for _, c := range []struct {
		line  string
		width int
		want  string
	}{
		{"1234567890", 0, "1234567890"}, {"1234567890", 11, "1234567890"}, {"1234567890", 10, "12345678…"}, {"··········", 6, "····…"},
	} {
		if got := cut(c.line, c.width); got != c.want {
			t.Errorf("cut(%q, %d) = %q, want %q", c.line, c.width, got, c.want)
		}
	}
}
