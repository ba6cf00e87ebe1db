package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

// copyDir copies a stream, so that each way of damaging it starts from the same bytes: into memory where there is such
// a directory, as flushing is not what these tests are about.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	tmp, err := os.MkdirTemp("/dev/shm", "synctl-stream-")
	if err != nil {
		tmp = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(tmp) })
	to := filepath.Join(tmp, filepath.Base(dir))
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// checkWhole fails unless the shard holds exactly the acknowledged records and maybe more after them, all valid JSON,
// and takes another one that gets the next sequence number.
func checkWhole(t *testing.T, dir string, acked []stream.Record, log *slog.Logger) {
	t.Helper()
	s := openSink(t, dir, SinkOptions{Logger: log})
	recs := readAll(t, dir, 0, stream.Position{})
	if len(recs) < len(acked) {
		t.Fatalf("%d records, %d were acknowledged", len(recs), len(acked))
	}
	for i, a := range acked {
		if recs[i].Sequence != a.Sequence || !bytes.Equal(recs[i].Data, a.Data) {
			t.Fatalf("record %d is %s %s, want %s", i, recs[i].Sequence, recs[i].Data, a.Sequence)
		}
	}
	put(t, s, rowLine(999, 300))
	after := readAll(t, dir, 0, stream.Position{})
	if len(after) != len(recs)+1 {
		t.Fatalf("after another record there are %d, want %d", len(after), len(recs)+1)
	}
	m, _ := loadMeta(dir)
	if n, reason := m.ordinal(0, after[len(after)-1].Sequence); reason != "" || n != uint64(len(after)) {
		t.Fatalf("the new record is number %d, want %d", n, len(after))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range segments(t, dir, 0) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			if len(line) > 0 && (!json.Valid(line) || line[len(line)-1] != '\n') {
				t.Fatalf("%s holds %q", path, line)
			}
		}
	}
}

// unacknowledged makes a stream whose last segment has records beyond the committed end, as a killed writer leaves it.
func unacknowledged(t *testing.T) (dir string, acked []stream.Record, last string, durable int64) {
	t.Helper()
	dir = newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(1, 300), rowLine(2, 300))
	put(t, s, rowLine(3, 300))
	acked = readAll(t, dir, 0, stream.Position{})
	last = segments(t, dir, 0)[0]
	durable = size(t, last)
	heads, err := os.ReadFile(filepath.Join(dir, headsName))
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, rowLine(4, 300))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, headsName), heads, 0o666); err != nil {
		t.Fatal(err)
	}
	return dir, acked, last, durable
}

// The tail beyond the committed end is cut off wherever it was torn, with heads and without them; without, a whole line
// there is kept, as it could have been acknowledged.
func TestTornTailAtEveryByte(t *testing.T) {
	dir, acked, last, durable := unacknowledged(t)
	full := size(t, last)
	rel, _ := filepath.Rel(dir, last)
	for _, lost := range []bool{false, true} {
		step := int64(1)
		if !lost {
			step = 13 // with heads the content of the tail does not matter
		}
		for cut := durable; cut <= full; cut += step {
			d := copyDir(t, dir)
			if err := os.Truncate(filepath.Join(d, rel), cut); err != nil {
				t.Fatal(err)
			}
			if lost {
				if err := os.Remove(filepath.Join(d, headsName)); err != nil {
					t.Fatal(err)
				}
			}
			var log bytes.Buffer
			checkWhole(t, d, acked, slog.New(slog.NewTextHandler(&log, nil)))
			if torn := cut > durable && (!lost || cut < full); torn && !strings.Contains(log.String(), "cut off") {
				t.Fatalf("cut at %d of %d: the log does not say it: %q", cut, full, log.String())
			}
			if t.Failed() {
				t.Fatalf("cut at byte %d of %d, durable %d, heads lost %v", cut, full, durable, lost)
			}
		}
	}
}

func TestGarbageTail(t *testing.T) {
	dir, acked, last, durable := unacknowledged(t)
	rel, _ := filepath.Rel(dir, last)
	for name, garbage := range map[string]string{
		"zeros":         strings.Repeat("\x00", 5000),
		"foreign line":  `{"v":1}` + "\n",
		"line feeds":    "\n\n\n",
		"another shard": `{"a":1,"stream":{"name":"orders","shard":"shardId-000000000001"}}` + "\n",
	} {
		for _, lost := range []bool{false, true} {
			d := copyDir(t, dir)
			path := filepath.Join(d, rel)
			if err := os.Truncate(path, durable); err != nil {
				t.Fatal(err)
			}
			f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteString(garbage); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if lost {
				os.Remove(filepath.Join(d, headsName))
			}
			t.Run(name, func(t *testing.T) { checkWhole(t, d, acked, nil) })
		}
	}
}

// Of the two generations in heads one is always whole: the one that a power cut spoils was not yet published.
func TestSpoiledGeneration(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(1, 300))
	acked := readAll(t, dir, 0, stream.Position{})
	gen := s.hf.gen
	next := s.hf.slot(gen + 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, headsName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("half of a generation"), next); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if recs := readAll(t, dir, 0, stream.Position{}); len(recs) != 1 {
		t.Fatalf("a reader sees %d records", len(recs))
	}
	checkWhole(t, dir, acked, nil)
}

// What the disk had confirmed and then lost is said, not papered over.
func TestLostDurableBytesAreAnError(t *testing.T) {
	dir, _, last, durable := unacknowledged(t)
	if err := os.Truncate(last, durable-1); err != nil {
		t.Fatal(err)
	}
	_, err := OpenSink(t.Context(), dir, SinkOptions{})
	if err == nil || !strings.Contains(err.Error(), "were durable") || fault.HintOf(err) == "" {
		t.Fatalf("open to write: %v", err)
	}
	if _, err := tryReadAll(t.Context(), dir, 0, stream.Position{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Fatalf("read: %v", err)
	}
}

func TestSecondWriterIsRefused(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	_, err := OpenSink(t.Context(), dir, SinkOptions{})
	if err == nil || fault.ClassOf(err) != fault.Unreachable || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Fatalf("second writer: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openSink(t, dir, SinkOptions{})
}

func TestCreateRefusesOtherData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, shardID(0)), 0o777); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(dir, shardID(0), "1.ndjson")
	if err := os.WriteFile(precious, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, Options{}); fault.ClassOf(err) != fault.Usage {
		t.Fatalf("create over data: %v", err)
	}
	if size(t, precious) != 1 {
		t.Fatal("the data was touched")
	}
	// What a Create that was killed left behind does not stand in the way.
	if err := os.Truncate(precious, 0); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	if err := Create(dir, Options{Shards: 2}); !errors.Is(err, stream.ErrExists) {
		t.Fatalf("create twice: %v", err)
	}
}

// A key that names its shard, its stream and its place in it: others are recognised.
func TestSequenceOfAnEarlierStreamAtTheSamePlace(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(1, 300))
	old := readAll(t, dir, 0, stream.Position{})[0].Sequence
	s.Close()
	for {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := Create(dir, Options{}); err != nil {
			t.Fatal(err)
		}
		if m, _ := loadMeta(dir); !strings.HasPrefix(old, strconv.Itoa(m.Epoch)) {
			break
		}
	}
	put(t, openSink(t, dir, SinkOptions{}), rowLine(1, 300))
	_, err := tryReadAll(t.Context(), dir, 0, stream.Position{Kind: stream.AfterSequence, Sequence: old})
	if !errors.Is(err, stream.ErrForeignSequence) || !strings.Contains(err.Error(), "another stream") {
		t.Fatalf("a number of the stream that was there before: %v", err)
	}
}
