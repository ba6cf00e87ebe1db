package ndjson

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"synctl/internal/pipeline"
	"synctl/internal/record"
)

// line is a small record that says its number.
func line(n int) string { return fmt.Sprintf(`{"v":1,"id":"x/%d","op":"data","data":%d}`, n, n) }

// padded is a record of about size bytes.
func padded(n, size int) string {
	return fmt.Sprintf(`{"v":1,"id":"x/%d","op":"data","data":"%s"}`, n, strings.Repeat("a", size))
}

func join(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

// copyLines runs a pipeline from in to a buffer.
func copyLines(t *testing.T, in io.Reader, o pipeline.Options) (string, *Source, error) {
	t.Helper()
	var out bytes.Buffer
	src := NewSource(in, "stdin")
	err := pipeline.Run(t.Context(), src, NewSink(&out, "stdout"), o)
	return out.String(), src, err
}

func TestCopy(t *testing.T) {
	var lines []string
	for n := range 2000 {
		lines = append(lines, line(n))
		if n%97 == 0 {
			lines = append(lines, padded(n, 3000*(n/97)))
		}
		if n == 1000 || n == 1001 {
			lines = append(lines, padded(n, 700<<10))
		}
	}
	want := join(lines...)
	small := pipeline.Options{QueueBytes: 64 << 10, BatchBytes: 4 << 10}
	for name, c := range map[string]struct {
		in io.Reader
		o  pipeline.Options
	}{
		"at once":                {strings.NewReader(want), pipeline.Options{}},
		"small queue":            {strings.NewReader(want), small},
		"halves":                 {iotest.HalfReader(strings.NewReader(want)), small},
		"data with the end":      {iotest.DataErrReader(strings.NewReader(want)), small},
		"without last line feed": {strings.NewReader(strings.TrimSuffix(want, "\n")), small},
	} {
		t.Run(name, func(t *testing.T) {
			got, src, err := copyLines(t, c.in, c.o)
			if err != nil {
				t.Fatal(err)
			}
			if got != want {
				t.Errorf("%d bytes came out of %d", len(got), len(want))
			}
			if src.Acked() != int64(len(lines)) {
				t.Errorf("%d lines acknowledged of %d", src.Acked(), len(lines))
			}
		})
	}
	t.Run("byte by byte", func(t *testing.T) {
		want := join(line(1), line(2))
		if got, _, err := copyLines(t, iotest.OneByteReader(strings.NewReader(want)), small); err != nil || got != want {
			t.Errorf("%q, %v", got, err)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		if got, src, err := copyLines(t, strings.NewReader(""), small); err != nil || got != "" || src.Acked() != 0 {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// TestMalformed: what comes before the bad line is delivered, and the error names input and line.
func TestMalformed(t *testing.T) {
	good := join(line(1), line(2))
	for name, c := range map[string]struct{ in, want string }{
		"syntax":         {good + "{\"v\":1,}\n" + good, `stdin, line 3: byte 7: a field's name is missing`},
		"blank":          {good + "\n" + good, "stdin, line 3: is blank, not a record"},
		"blank at end":   {good + "  ", "stdin, line 3: is blank, not a record"},
		"cut off":        {good + line(3)[:20], "stdin, line 3: is cut off after 20 bytes"},
		"cut off, long":  {good + padded(3, 200<<10)[:150<<10], "stdin, line 3: is cut off after 153600 bytes"},
		"malformed long": {good + padded(3, 200<<10) + "x\n" + good, "stdin, line 3: byte 204"},
		"not a record":   {good + "[]\n", "stdin, line 3: byte 0: a record is a JSON object"},
	} {
		t.Run(name, func(t *testing.T) {
			got, src, err := copyLines(t, strings.NewReader(c.in), pipeline.Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			if got != good || src.Acked() != 2 {
				t.Errorf("delivered %q, acknowledged %d", got, src.Acked())
			}
		})
	}
	t.Run("read error", func(t *testing.T) {
		boom := errors.New("boom")
		got, _, err := copyLines(t, io.MultiReader(strings.NewReader(good), iotest.ErrReader(boom)), pipeline.Options{})
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "after line 2") || got != good {
			t.Errorf("%q, error %v", got, err)
		}
	})
}

// TestPipeWaits: lines are delivered as they come, and a drain ends the wait for more.
func TestPipeWaits(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	r.Fd() // makes it blocking, as standard input is
	out := make(chan string, 10)
	drain, errc := make(chan struct{}), make(chan error, 1)
	go func() {
		errc <- pipeline.Run(t.Context(), NewSource(r, "pipe"), NewSink(chanWriter(out), "out"), pipeline.Options{Drain: drain})
	}()
	for n := range 3 {
		fmt.Fprintln(w, line(n))
		select {
		case got := <-out:
			if got != line(n)+"\n" {
				t.Errorf("got %q", got)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("a line is not delivered before the next one comes")
		}
	}
	fmt.Fprint(w, line(4)[:10])
	close(drain)
	select {
	case err := <-errc:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the drain waits for input")
	}
}

type chanWriter chan string

func (c chanWriter) Write(p []byte) (int, error) { c <- string(p); return len(p), nil }

// batchOf is a batch that holds the lines.
func batchOf(t *testing.T, lines ...string) *record.Batch {
	t.Helper()
	b := record.NewBatch(8<<20, nil, nil)
	for _, l := range lines {
		if err := record.Parse([]byte(l), b.Add()); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func TestOneWritePerBatch(t *testing.T) {
	var w countingWriter
	s := NewSink(&w, "out")
	done := 0
	for range 2 {
		err := s.Write(t.Context(), batchOf(t, line(1), line(2)), func(err error) {
			if err != nil || w.writes != done+1 {
				t.Errorf("done(%v) after %d writes", err, w.writes)
			}
			done++
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := join(line(1), line(2), line(1), line(2)); w.String() != want || done != 2 {
		t.Errorf("wrote %q, done %d times", w.String(), done)
	}
}

type countingWriter struct {
	bytes.Buffer
	writes int
}

func (w *countingWriter) Write(p []byte) (int, error) { w.writes++; return w.Buffer.Write(p) }

// shortWriter takes n bytes and then fails.
type shortWriter struct {
	n   int
	err error
}

func (w *shortWriter) Write(p []byte) (int, error) {
	n := min(w.n, len(p))
	if w.n -= n; n < len(p) {
		return n, w.err
	}
	return n, nil
}

func TestPartialWriteIsNotDone(t *testing.T) {
	boom := errors.New("boom")
	err := NewSink(&shortWriter{n: 10, err: boom}, "out").Write(t.Context(), batchOf(t, line(1)), func(error) { t.Error("done") })
	if !errors.Is(err, boom) || !strings.Contains(err.Error(), "write out") {
		t.Errorf("error %v", err)
	}
}

func TestReaderGone(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	s := NewSink(w, "stdout")
	if err := s.Write(t.Context(), batchOf(t, line(1)), func(error) {}); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if err := s.Write(t.Context(), batchOf(t, line(2)), func(error) { t.Error("done") }); !errors.Is(err, ErrReaderGone) {
		t.Errorf("error %v, want ErrReaderGone", err)
	}
}

func TestFullDisk(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here")
	}
	defer f.Close()
	err = NewSink(f, "stdout").Write(t.Context(), batchOf(t, line(1)), func(error) { t.Error("done") })
	if err == nil || !strings.Contains(err.Error(), "write stdout") || !strings.Contains(err.Error(), "space") {
		t.Errorf("error %v", err)
	}
}

func TestWriteAfterForce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var w countingWriter
	err := NewSink(&w, "out").Write(ctx, batchOf(t, line(1)), func(error) { t.Error("done") })
	if !errors.Is(err, context.Canceled) || w.writes != 0 {
		t.Errorf("error %v after %d writes", err, w.writes)
	}
}

func TestRepairTail(t *testing.T) {
	whole := join(line(1), line(2))
	for name, c := range map[string]struct {
		in, want string
		fails    bool
	}{
		"empty":                   {"", "", false},
		"whole":                   {whole, whole, false},
		"torn":                    {whole + line(3)[:25], whole, false},
		"torn early":              {whole + "{", whole, false},
		"torn before line feed":   {whole + line(3), whole, false},
		"torn in the first line":  {line(1)[:9], "", false},
		"torn and long":           {whole + padded(3, 300<<10), whole, false},
		"zeros after a crash":     {whole + "\x00\x00\x00", whole, false},
		"somebody's notes":        {whole + "buy milk", "", true},
		"somebody's only line":    {"buy milk", "", true},
		"a record of another era": {whole + `{"v":2`, "", true},
	} {
		for _, mode := range []int{os.O_RDWR, os.O_WRONLY | os.O_APPEND} {
			t.Run(fmt.Sprintf("%s, mode %o", name, mode), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "out.ndjson")
				if err := os.WriteFile(path, []byte(c.in), 0o600); err != nil {
					t.Fatal(err)
				}
				f, err := os.OpenFile(path, mode, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cut, err := RepairTail(f)
				if c.fails {
					after, _ := os.ReadFile(path)
					if err == nil || string(after) != c.in {
						t.Fatalf("error %v, left %q", err, after)
					}
					return
				}
				if err != nil || cut != int64(len(c.in)-len(c.want)) {
					t.Fatalf("cut %d bytes of %d, %v", cut, len(c.in), err)
				}
				// The sink goes on where the file ends.
				if err := NewSink(f, "out").Write(t.Context(), batchOf(t, line(9)), func(error) {}); err != nil {
					t.Fatal(err)
				}
				if after, _ := os.ReadFile(path); string(after) != c.want+line(9)+"\n" {
					t.Errorf("file holds %q", after)
				}
			})
		}
	}
}

func TestRepairTailOfAPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if cut, err := RepairTail(w); cut != 0 || err != nil {
		t.Errorf("cut %d, %v", cut, err)
	}
}

// TestKilledWriter kills a process in the middle of its lines and repairs what it leaves.
func TestKilledWriter(t *testing.T) {
	if os.Getenv("NDJSON_WRITE") != "" {
		s := NewSink(os.Stdout, "stdout")
		for n := 0; ; n++ {
			if err := s.Write(context.Background(), batchOf(t, padded(n, 100<<10)), func(error) {}); err != nil {
				os.Exit(1)
			}
		}
	}
	path := filepath.Join(t.TempDir(), "out.ndjson")
	for range 3 {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := RepairTail(f); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriter$")
		cmd.Env = append(os.Environ(), "NDJSON_WRITE=1")
		cmd.Stdout = f
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		cmd.Process.Kill()
		cmd.Wait()
		if _, err := RepairTail(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	src := NewSource(f, path)
	if err := pipeline.Run(t.Context(), src, NewSink(io.Discard, "nothing"), pipeline.Options{}); err != nil {
		t.Fatal(err)
	}
	if src.Acked() == 0 {
		t.Error("the writers wrote nothing")
	}
}

// BenchmarkCopy takes lines from a file through the engine and back to lines.
func BenchmarkCopy(b *testing.B) {
	const one = `{"v":1,"id":"7412345678901234567.1.00000000016B3700.0","op":"insert","schema":"public","table":"orders","key":{"id":42},` +
		`"after":{"id":42,"customer":1234567,"status":"paid","amount":12.30,"paid":true,"created":"2026-11-30T19:58:00.123456+00:00",` +
		`"due":"2026-12-24","note":"Leave it at the door.","extra":{"a": [1, 2]}},` +
		`"lsn":"0/16B3748","row_lsn":"0/16B3700","xid":751,"committed_at":"2026-11-30T19:58:00.123456Z"}` + "\n"
	const lines = 20000
	path := filepath.Join(b.TempDir(), "in.ndjson")
	if err := os.WriteFile(path, []byte(strings.Repeat(one, lines)), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(one) * lines))
	for b.Loop() {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := pipeline.Run(b.Context(), NewSource(f, path), NewSink(io.Discard, "nothing"), pipeline.Options{}); err != nil {
			b.Fatal(err)
		}
		f.Close()
	}
	b.ReportMetric(float64(lines*b.N)/b.Elapsed().Seconds(), "records/s")
}
