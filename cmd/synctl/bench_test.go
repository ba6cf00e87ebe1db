package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/testkit"
	"synctl/internal/testkit/kinesisfake"
)

// The benchmarks here time whole processes against each other in alternating runs, so that a machine whose speed
// drifts does not decide, and report medians. `make bench` runs them; docs/benchmarks.md has figures.

const benchRuns = 5

// benchTable has the nine columns of an ordinary table: a key, numbers, texts, a time, JSON.
const benchTable = `CREATE TABLE bench (
  id bigint PRIMARY KEY, customer integer NOT NULL, status text NOT NULL, amount numeric(12,2) NOT NULL, active boolean NOT NULL,
  created_at timestamptz NOT NULL, email text NOT NULL, note text, detail jsonb NOT NULL)`

const benchInsert = `INSERT INTO bench SELECT i, i %% 10000, (ARRAY['new','paid','shipped','closed'])[1 + i %% 4], (i %% 100000) / 100.0, i %% 3 = 0,
  timestamptz '2026-01-01' + i * interval '1 second', 'user' || i || '@example.org', CASE WHEN i %% 5 = 0 THEN NULL ELSE 'note number ' || i END,
  jsonb_build_object('source', 'web', 'n', i) FROM generate_series(%d, %d) i`

// benchRows is how many rows a backlog has; SYNCTL_BENCH_ROWS makes it smaller for a quick look.
func benchRows(b *testing.B) int {
	if s := os.Getenv("SYNCTL_BENCH_ROWS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	return 1_000_000
}

// benchBinary builds synctl once as users have it, without the race detector or test hooks.
var benchBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "synctl-bench-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "synctl")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build: %v\n%s", err, out)
	}
	return path, nil
})

// usage is what one run of a process took.
type usage struct {
	Wall, CPU time.Duration
	PeakMiB   float64
}

// timed runs a process to its end. Its standard output goes to stdout, or to /dev/null.
func timed(b *testing.B, stdout *os.File, name string, args ...string) usage {
	b.Helper()
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if stdout != nil {
		cmd.Stdout = stdout
	}
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, stderr.String())
	}
	u := usage{Wall: time.Since(begin), CPU: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}
	if ru, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		u.PeakMiB = float64(ru.Maxrss) / 1024
	}
	return u
}

// contestant is one of the programs compared.
type contestant struct {
	name string
	run  func(i int) usage
}

// compare runs the contestants in turn, round by round, and reports each one's median rows per second, CPU seconds per
// million rows and peak memory, and the first one's speed as a multiple of each other's, by the median of the rounds' ratios.
func compare(b *testing.B, rows int, list []contestant) {
	b.Helper()
	all := make([][]usage, len(list))
	for i := range benchRuns {
		for k, c := range list {
			all[k] = append(all[k], c.run(i))
		}
	}
	for k, c := range list {
		var rate, cpu, ratio []float64
		peak := 0.0
		for i, u := range all[k] {
			rate = append(rate, float64(rows)/u.Wall.Seconds())
			cpu = append(cpu, u.CPU.Seconds()*1e6/float64(rows))
			ratio = append(ratio, u.Wall.Seconds()/all[0][i].Wall.Seconds())
			peak = max(peak, u.PeakMiB)
		}
		b.ReportMetric(math.Round(median(rate)), c.name+"-rows/s")
		b.ReportMetric(median(cpu), c.name+"-cpu-s/Mrow")
		b.ReportMetric(math.Round(peak), c.name+"-peak-MiB")
		if k > 0 {
			b.ReportMetric(median(ratio), list[0].name+"/"+c.name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// backlog makes a database whose publication "bench" has rows inserts waiting in every slot named, in transactions of
// 1000 rows, and returns the cluster, its URL and the LSN at the end.
func backlog(b *testing.B, rows int, slots map[string]string) (*testkit.Cluster, string, string) {
	b.Helper()
	ctx := context.Background()
	cluster := testkit.Own(b, testkit.Options{Settings: map[string]string{"max_replication_slots": "60", "synchronous_commit": "off"}})
	dsn := cluster.Database(b)
	conn := testkit.Connect(b, dsn)
	testkit.Exec(b, conn, benchTable)
	testkit.Exec(b, conn, `CREATE PUBLICATION bench FOR TABLE bench`)
	for slot, plugin := range slots {
		if _, err := conn.Exec(ctx, `SELECT pg_create_logical_replication_slot($1, $2)`, slot, plugin); err != nil {
			b.Fatalf("create slot %s with plugin %s: %v", slot, plugin, err)
		}
	}
	for i := 0; i < rows; i += 1000 {
		testkit.Exec(b, conn, fmt.Sprintf(benchInsert, i+1, min(i+1000, rows)))
	}
	return cluster, dsn, currentLSN(b, conn)
}

func currentLSN(b *testing.B, conn *pgx.Conn) string {
	b.Helper()
	testkit.Exec(b, conn, "CHECKPOINT") // with synchronous_commit off the last commits need not be flushed yet
	var lsn string
	if err := conn.QueryRow(context.Background(), `SELECT pg_current_wal_flush_lsn()::text`).Scan(&lsn); err != nil {
		b.Fatal(err)
	}
	return lsn
}

// BenchmarkTail compares cdc tail with pg_recvlogical, which writes what the server sends as it stands: with pgoutput,
// the same work for the server, and with wal2json, what is used where JSON is wanted.
func BenchmarkTail(b *testing.B) {
	rows := benchRows(b)
	synctl, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	slots := map[string]string{}
	for i := range benchRuns {
		slots[fmt.Sprintf("tail%d", i)], slots[fmt.Sprintf("recv%d", i)], slots[fmt.Sprintf("json%d", i)] = "pgoutput", "pgoutput", "wal2json"
	}
	cluster, dsn, end := backlog(b, rows, slots)
	recv := filepath.Join(cluster.Bin, "pg_recvlogical")
	compare(b, rows, []contestant{
		{"tail", func(i int) usage {
			return timed(b, nil, synctl, "cdc", "tail", "--from", dsn, "--slot", fmt.Sprintf("tail%d", i), "--publication", "bench", "--until-lsn", end, "--progress", "none", "--state", filepath.Join(b.TempDir(), "state"))
		}},
		{"recvlogical-pgoutput", func(i int) usage {
			return timed(b, nil, recv, "-d", dsn, "-S", fmt.Sprintf("recv%d", i), "--start", "-f", "/dev/null", "-E", end, "-o", "proto_version=1", "-o", "publication_names=bench")
		}},
		{"recvlogical-wal2json", func(i int) usage {
			return timed(b, nil, recv, "-d", dsn, "-S", fmt.Sprintf("json%d", i), "--start", "-f", "/dev/null", "-E", end, "-o", "format-version=2", "-o", "include-lsn=on", "-o", "include-timestamp=on", "-o", "include-xids=on")
		}},
	})
}

// BenchmarkPublish compares cdc publish into a stream on disk, fsync included, with cdc tail to /dev/null.
func BenchmarkPublish(b *testing.B) {
	rows := benchRows(b)
	synctl, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	slots := map[string]string{}
	for i := range benchRuns {
		slots[fmt.Sprintf("tail%d", i)], slots[fmt.Sprintf("pub%d", i)] = "pgoutput", "pgoutput"
	}
	_, dsn, end := backlog(b, rows, slots)
	compare(b, rows, []contestant{
		{"publish", func(i int) usage {
			dir := b.TempDir()
			defer os.RemoveAll(filepath.Join(dir, "stream"))
			return timed(b, nil, synctl, "cdc", "publish", "--from", dsn, "--slot", fmt.Sprintf("pub%d", i), "--publication", "bench", "--until-lsn", end,
				"--progress", "none", "--state", filepath.Join(dir, "state"), "--to", "file:"+filepath.Join(dir, "stream"), "--create-stream", "4")
		}},
		{"tail", func(i int) usage {
			return timed(b, nil, synctl, "cdc", "tail", "--from", dsn, "--slot", fmt.Sprintf("tail%d", i), "--publication", "bench", "--until-lsn", end,
				"--progress", "none", "--state", filepath.Join(b.TempDir(), "state"))
		}},
	})
}

// BenchmarkPublishKinesis publishes to a Kinesis endpoint in this process that answers at once and keeps nothing. The
// figures are of client and server together on the same cores.
func BenchmarkPublishKinesis(b *testing.B) {
	rows := benchRows(b)
	synctl, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	fake, err := kinesisfake.Start(kinesisfake.Options{Discard: true})
	if err != nil {
		b.Fatal(err)
	}
	defer fake.Close()
	fake.CreateStream("bench", 8)
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		b.Setenv(name, "test")
	}
	b.Setenv("AWS_REGION", "us-east-1")
	slots := map[string]string{}
	for i := range benchRuns {
		slots[fmt.Sprintf("pub%d", i)] = "pgoutput"
	}
	_, dsn, end := backlog(b, rows, slots)
	compare(b, rows, []contestant{{"publish", func(i int) usage {
		return timed(b, nil, synctl, "cdc", "publish", "--from", dsn, "--slot", fmt.Sprintf("pub%d", i), "--publication", "bench", "--until-lsn", end,
			"--progress", "none", "--state", filepath.Join(b.TempDir(), "state"), "--to", "kinesis://bench?endpoint="+fake.URL())
	}}})
}

// mixedChanges makes changes of every kind, row by row in random turn, so that a consumer finds no long runs of one kind.
const mixedChanges = `DO $$
DECLARE n bigint := 0; top bigint := (SELECT max(id) FROM bench); k double precision; one bigint;
BEGIN
  WHILE n < %d LOOP
    k := random();
    one := 1 + floor(random() * top)::bigint; -- not in the WHERE: random() there would scan the table
    IF k < 0.35 THEN
      top := top + 1;
      INSERT INTO bench VALUES (top, top %% 1000, 'new', 1.5, true, now(), 'a@example.org', 'fresh', '{"n": 1}');
    ELSIF k < 0.85 THEN
      UPDATE bench SET status = 'paid', amount = amount + 1 WHERE id = one;
    ELSE
      DELETE FROM bench WHERE id = one;
    END IF;
    n := n + 1;
  END LOOP;
END $$`

// streamOf publishes what waits in a slot into a new stream on disk and returns its URL.
func streamOf(b *testing.B, synctl, dsn, slot, end string) string {
	b.Helper()
	dir := b.TempDir()
	url := "file:" + filepath.Join(dir, "stream")
	timed(b, nil, synctl, "cdc", "publish", "--from", dsn, "--slot", slot, "--publication", "bench", "--until-lsn", end,
		"--progress", "none", "--state", filepath.Join(dir, "state"), "--to", url, "--create-stream", "4")
	return url
}

// BenchmarkReplay measures replay from a stream on disk to stdout and into PostgreSQL.
func BenchmarkReplay(b *testing.B) {
	rows := benchRows(b)
	synctl, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	cluster, dsn, end := backlog(b, rows, map[string]string{"inserts": "pgoutput"})
	src := testkit.Connect(b, dsn)
	inserts := streamOf(b, synctl, dsn, "inserts", end)
	testkit.Exec(b, src, `SELECT pg_create_logical_replication_slot('mixed', 'pgoutput')`)
	for range 20 {
		testkit.Exec(b, src, fmt.Sprintf(mixedChanges, rows/20))
	}
	mixed := streamOf(b, synctl, dsn, "mixed", currentLSN(b, src))

	b.Run("stdout", func(b *testing.B) {
		compare(b, rows, []contestant{{"replay", func(int) usage {
			return timed(b, nil, synctl, "replay", "--from", inserts, "--progress", "none")
		}}})
	})
	b.Run("postgres-inserts", func(b *testing.B) {
		compare(b, rows, []contestant{{"replay", func(int) usage {
			target := emptyTarget(b, cluster)
			u := timed(b, nil, synctl, "replay", "--from", inserts, "--to", target, "--progress", "none")
			var n int
			if err := testkit.Connect(b, target).QueryRow(context.Background(), "SELECT count(*) FROM bench").Scan(&n); err != nil || n != rows {
				b.Fatalf("%d rows arrived of %d, %v", n, rows, err)
			}
			return u
		}}})
	})
	b.Run("postgres-mixed", func(b *testing.B) {
		compare(b, rows, []contestant{{"replay", func(int) usage {
			target := emptyTarget(b, cluster)
			conn := testkit.Connect(b, target)
			testkit.Exec(b, conn, fmt.Sprintf(benchInsert, 1, rows))
			testkit.Exec(b, conn, "VACUUM ANALYZE bench")
			return timed(b, nil, synctl, "replay", "--from", mixed, "--to", target, "--progress", "none")
		}}})
	})
}

func emptyTarget(b *testing.B, cluster *testkit.Cluster) string {
	b.Helper()
	dsn := cluster.Database(b)
	testkit.Exec(b, testkit.Connect(b, dsn), benchTable)
	return dsn
}
