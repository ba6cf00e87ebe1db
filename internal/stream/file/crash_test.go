package file

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
)

// TestMain runs this program again as the writer that tests kill or starve of space.
func TestMain(m *testing.M) {
	if dir := os.Getenv("STREAM_TEST_WRITER"); dir != "" {
		if err := writeForever(dir); err != nil {
			fmt.Printf("error %d %v\n", fault.ClassOf(err), err)
			os.Exit(int(fault.ClassOf(err)))
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// writer starts the writing process: it appends the batches from number first on, several in flight, and prints the
// number of each that is done.
func writer(t *testing.T, dir string, first, fileLimit int) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "STREAM_TEST_WRITER="+dir, "STREAM_TEST_FIRST="+strconv.Itoa(first),
		"STREAM_TEST_LIMIT="+strconv.Itoa(fileLimit))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, out
}

func writeForever(dir string) error {
	n, _ := strconv.Atoi(os.Getenv("STREAM_TEST_FIRST"))
	if limit, _ := strconv.Atoi(os.Getenv("STREAM_TEST_LIMIT")); limit > 0 {
		signal.Ignore(syscall.SIGXFSZ)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(limit), Max: uint64(limit)}); err != nil {
			return err
		}
	}
	s, err := OpenSink(context.Background(), dir, SinkOptions{})
	if err != nil {
		return err
	}
	free := make(chan struct{}, 4)
	for next := n; ; next++ {
		n := next
		free <- struct{}{}
		b := record.NewBatch(1<<20, nil, nil)
		for _, line := range batchLines(n) {
			if err := record.Parse(b.Copy([]byte(line)), b.Add()); err != nil {
				return err
			}
		}
		err := s.Write(context.Background(), b, func(err error) {
			if err == nil {
				os.Stdout.WriteString("acked " + strconv.Itoa(n) + "\n")
			}
			<-free
		})
		if err != nil {
			return errors.Join(err, s.Close())
		}
	}
}

// batchLines are two rows and a key update: its halves go to the keys n+1000000 and n+2000000.
func batchLines(n int) []string {
	half := func(op, suffix, tuple string, key int) string {
		return fmt.Sprintf(`{"v":1,"id":"1.1.%016X.0%s","op":"%s","schema":"public","table":"orders","key":{"id":%d}%s,"moved":true,"lsn":"0/%X","row_lsn":"0/%X","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
			n*16+16, suffix, op, key, tuple, n*16+24, n*16+16)
	}
	return []string{
		string(rowLine(n%7, 300+n%400)),
		half("delete", "d", "", n+1_000_000),
		half("insert", "i", fmt.Sprintf(`,"after":{"id":%d}`, n+2_000_000), n+2_000_000),
		string(rowLine(n+100, 250)),
	}
}

// acks reads what a writer acknowledged until its output ends.
func acks(t *testing.T, out io.Reader, first chan<- struct{}) (acked []int, failure string) {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "acked ")
		if !ok {
			failure = lines.Text()
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Errorf("the writer said %q", lines.Text())
		}
		if acked = append(acked, n); len(acked) == 1 && first != nil {
			close(first)
		}
	}
	return acked, failure
}

// TestKilledWriter kills a writing process with -9 at random moments and starts it again, while readers follow: what was
// acknowledged is there, what a reader has seen stays as it was, and no insert of a key update is there without its delete.
func TestKilledWriter(t *testing.T) {
	const rounds = 25
	dir := newStream(t, Options{Shards: 3, SegmentBytes: 20_000})
	seen := make([]map[string]string, 3)
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for i := range seen {
		seen[i] = map[string]string{}
		readers.Go(func() { follow(t, ctx, dir, i, seen[i]) })
	}
	acked, next := map[int]bool{}, 0
	for range rounds {
		cmd, out := writer(t, dir, next, 0)
		first := make(chan struct{})
		go func() {
			select {
			case <-first:
			case <-time.After(10 * time.Second):
			}
			time.Sleep(time.Duration(rand.IntN(30_000)) * time.Microsecond)
			cmd.Process.Kill()
		}()
		got, failure := acks(t, out, first)
		cmd.Wait()
		if failure != "" || len(got) == 0 {
			t.Fatalf("the writer acknowledged %d batches and said %q", len(got), failure)
		}
		for _, n := range got {
			acked[n] = true
		}
		next = got[len(got)-1] + 1
		if next%3 == 0 {
			next-- // as a publisher that does not know its last acknowledgement
		}
		checkPairs(t, dir)
	}
	time.Sleep(5 * pollInterval)
	stop()
	readers.Wait()
	checkAcked(t, dir, acked)
	for i := range seen {
		now := map[string]string{}
		for _, r := range readAll(t, dir, i, stream.Position{}) {
			now[r.Sequence] = string(r.Data)
		}
		if len(seen[i]) == 0 {
			t.Errorf("the reader of shard %d saw nothing", i)
		}
		for sequence, data := range seen[i] {
			if now[sequence] != data {
				t.Fatalf("shard %d: a reader saw %s as %s, it is now %q", i, sequence, data, now[sequence])
			}
		}
	}
	t.Logf("%d batches acknowledged over %d kills", len(acked), rounds)
}

func follow(t *testing.T, ctx context.Context, dir string, shard int, seen map[string]string) {
	st, err := Open(dir)
	if err != nil {
		t.Error(err)
		return
	}
	r, err := st.Open(ctx, shardID(shard), stream.Position{})
	if err != nil {
		t.Error(err)
		return
	}
	defer r.Close()
	for {
		p, err := r.Next(ctx)
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("follow shard %d: %v", shard, err)
			}
			return
		}
		for _, rec := range p.Records {
			seen[rec.Sequence] = string(rec.Data)
		}
	}
}

// allKeys reads the records of all shards by partition key.
func allKeys(t *testing.T, dir string) map[string]int {
	t.Helper()
	keys := map[string]int{}
	for i := range 3 {
		for _, r := range readAll(t, dir, i, stream.Position{}) {
			keys[string(r.PartitionKey)]++
		}
	}
	return keys
}

func checkPairs(t *testing.T, dir string) {
	t.Helper()
	keys := allKeys(t, dir)
	for key, n := range keys {
		id, _ := strconv.Atoi(strings.TrimPrefix(key, "public.orders."))
		if id >= 2_000_000 {
			if d := keys["public.orders."+strconv.Itoa(id-1_000_000)]; d != n {
				t.Fatalf("key update %d: %d inserts, %d deletes", id-2_000_000, n, d)
			}
		}
	}
}

func checkAcked(t *testing.T, dir string, acked map[int]bool) {
	t.Helper()
	keys := allKeys(t, dir)
	for n := range acked {
		for _, id := range []int{n + 100, n + 1_000_000, n + 2_000_000} {
			if keys["public.orders."+strconv.Itoa(id)] == 0 {
				t.Fatalf("batch %d was acknowledged, key %d is missing", n, id)
			}
		}
	}
}

// A file that may not grow, and a disk that is full: an error that says so, exit 1; what was acknowledged is readable;
// with space again writing goes on.
func TestFullDisk(t *testing.T) {
	t.Run("FileSizeLimit", func(t *testing.T) {
		dir := newStream(t, Options{Shards: 3})
		starve(t, dir, 50_000, "ulimit -f", func() {})
	})
	t.Run("Tmpfs", func(t *testing.T) {
		mount := t.TempDir()
		if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=300k"); err != nil {
			t.Skipf("a small disk cannot be mounted here: %v", err)
		}
		t.Cleanup(func() { unix.Unmount(mount, unix.MNT_DETACH) })
		dir := mount + "/orders"
		if err := Create(dir, Options{Shards: 3, SegmentBytes: 30_000}); err != nil {
			t.Fatal(err)
		}
		starve(t, dir, 0, "Free space", func() {
			if err := unix.Mount("tmpfs", mount, "tmpfs", unix.MS_REMOUNT, "size=2m"); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func starve(t *testing.T, dir string, limit int, hint string, relieve func()) {
	cmd, out := writer(t, dir, 0, limit)
	got, failure := acks(t, out, nil)
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != 1 || len(got) == 0 || !strings.Contains(failure, "write segment") && !strings.Contains(failure, "make segment") {
		t.Fatalf("the writer acknowledged %d batches, said %q and ended with %v", len(got), failure, err)
	}
	acked := map[int]bool{}
	for _, n := range got {
		acked[n] = true
	}
	checkAcked(t, dir, acked)
	checkPairs(t, dir)
	relieve()
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(7_777_777, 300))
	checkAcked(t, dir, acked)
	if allKeys(t, dir)["public.orders.7777777"] != 1 {
		t.Error("the record written with space again is not there")
	}
	for e, want := range map[error]string{syscall.ENOSPC: "Free space", syscall.EFBIG: "ulimit -f"} {
		if h := fault.HintOf(diskFault("write", &os.PathError{Err: e})); want == hint && !strings.Contains(h, hint) {
			t.Errorf("hint for %v: %q", e, h)
		}
	}
}

// Once a flush failed nothing is acknowledged any more, also when the next one would succeed: the kernel has by then
// forgotten the pages that it could not write.
func TestFailedFlushIsFinal(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(1, 300))
	fail := true
	s.sync = func(f *os.File) error {
		if fail {
			fail = false
			return &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.EIO}
		}
		return f.Sync()
	}
	b := record.NewBatch(1<<20, nil, nil)
	fill(t, b, rowLine(2, 300))
	done := make(chan error, 1)
	if err := s.Write(t.Context(), b, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, syscall.EIO) || fault.ClassOf(err) != fault.Failed {
		t.Fatalf("done after a failed flush: %v", err)
	}
	if err := s.Write(t.Context(), b, func(error) { t.Error("done was called") }); !errors.Is(err, syscall.EIO) {
		t.Fatalf("write after a failed flush: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if recs := readAll(t, dir, 0, stream.Position{}); len(recs) != 1 {
		t.Fatalf("%d records are to be seen, one was acknowledged", len(recs))
	}
	s = openSink(t, dir, SinkOptions{})
	put(t, s, rowLine(3, 300))
	recs := readAll(t, dir, 0, stream.Position{})
	if len(recs) != 2 || !bytes.Contains(recs[1].Data, []byte(`"key":{"id":3}`)) {
		t.Fatalf("after a new start: %d records", len(recs))
	}
}

// Between a write and its flush a reader sees nothing.
func TestReaderStopsAtWhatIsDurable(t *testing.T) {
	dir := newStream(t, Options{})
	s := openSink(t, dir, SinkOptions{})
	flushing, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release() // or a failure would leave Close waiting
	s.sync = func(f *os.File) error {
		close(flushing)
		<-goOn
		return f.Sync()
	}
	b := record.NewBatch(1<<20, nil, nil)
	fill(t, b, rowLine(1, 300))
	done := make(chan error, 1)
	if err := s.Write(t.Context(), b, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	<-flushing
	if n := size(t, segments(t, dir, 0)[0]); n < 300 {
		t.Fatalf("the segment has %d bytes, the record was to be in it", n)
	}
	if recs := readAll(t, dir, 0, stream.Position{}); len(recs) != 0 {
		t.Fatalf("a reader sees %d records that are not durable", len(recs))
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if recs := readAll(t, dir, 0, stream.Position{}); len(recs) != 1 {
		t.Fatalf("a reader sees %d records, one is durable", len(recs))
	}
}
