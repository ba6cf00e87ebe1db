package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/record"
	"synctl/internal/stream"
	"synctl/internal/testkit"
	"synctl/internal/testkit/kinesisfake"
)

// The tests here run the program as its users do, as processes of their own, and kill them with SIGKILL at random
// moments while the database works. Promises 1, 2, 3 and 7.

// process is one run of synctl.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr lockedBuffer
	done   chan struct{}
	err    error
}

// lockedBuffer can be read while the process still writes.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// launch starts synctl, which TestMain has put on the PATH, in an environment that holds no settings of the user's.
func launch(t testing.TB, stdin string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command("synctl", args...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir())
	p.cmd.Stdin = strings.NewReader(stdin)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start synctl: %v", err)
	}
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() { p.kill() })
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// wait waits for the process to end and gives its exit code, -1 when a signal ended it.
func (p *process) wait(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		_ = p.cmd.Process.Signal(syscall.SIGQUIT) // the goroutines' stacks go to stderr
		select {
		case <-p.done:
		case <-time.After(5 * time.Second):
			p.kill()
		}
		t.Fatalf("synctl %s is still running after %s:\n%s", strings.Join(p.cmd.Args[1:], " "), limit, p.stderr.String())
	}
	var exit *exec.ExitError
	switch {
	case p.err == nil:
		return 0
	case errors.As(p.err, &exit):
		return exit.ExitCode()
	}
	t.Fatalf("run synctl: %v", p.err)
	return 0
}

// synctl runs a command to its end, which has to come with exit code 0.
func synctl(t testing.TB, args ...string) *process {
	t.Helper()
	p := launch(t, "", args...)
	if code := p.wait(t, 3*time.Minute); code != 0 {
		t.Fatalf("synctl %s: exit code %d\n%s", strings.Join(args, " "), code, p.stderr.String())
	}
	return p
}

// killRepeatedly keeps a command running, kills it after a random time and starts it again, until kills are done and
// stop is closed. A run that ends by itself with an error fails the test.
func killRepeatedly(t *testing.T, rng *rand.Rand, kills int, stop <-chan struct{}, args ...string) (killed int) {
	for {
		p := launch(t, "", args...)
		var timer <-chan time.Time
		if kills > 0 {
			timer = time.After(time.Duration(100+rng.IntN(900)) * time.Millisecond)
		}
		if killed >= kills && kills > 0 {
			select {
			case <-stop:
				p.kill()
				return killed
			default:
			}
		}
		select {
		case <-timer:
			p.kill()
			killed++
		case <-untilOver(kills, stop):
			p.terminate(t)
			return killed
		case <-p.done:
			t.Errorf("synctl %s ended by itself: %v\n%s", strings.Join(args, " "), p.err, p.stderr.String())
			return killed
		}
		if t.Failed() {
			return killed
		}
	}
}

// untilOver is stop for a run that is not to be killed, and never for others.
func untilOver(kills int, stop <-chan struct{}) <-chan struct{} {
	if kills > 0 {
		return nil
	}
	return stop
}

// terminate asks the process to end, which it has to do with exit code 0.
func (p *process) terminate(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if code := p.wait(t, time.Minute); code != 0 {
		t.Errorf("synctl %s ended with %d after SIGTERM:\n%s", strings.Join(p.cmd.Args[1:], " "), code, p.stderr.String())
	}
}

// checkOrder reads every shard of a stream from its beginning: per partition key, positions never go back, except by
// redelivery of ids that were there before. It returns how many lines there are, and how many of them came again.
func checkOrder(t *testing.T, s stream.Stream) (lines, again int) {
	t.Helper()
	ctx := context.Background()
	shards, err := s.Shards(ctx)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	last := map[string]record.Pos{}
	for _, shard := range shards {
		r, err := s.Open(ctx, shard.ID, stream.Position{Kind: stream.Beginning})
		if err != nil {
			t.Fatal(err)
		}
		for {
			page, err := r.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range page.Records {
				for _, line := range bytes.Split(bytes.TrimSuffix(entry.Data, []byte("\n")), []byte("\n")) {
					var rec record.Record
					if err := record.Parse(line, &rec); err != nil {
						t.Fatalf("shard %s, sequence %s: %v", shard.ID, entry.Sequence, err)
					}
					lines++
					key := string(entry.PartitionKey)
					if rec.Op == record.Truncate {
						key = "truncate " + shard.ID
					}
					id := key + " " + string(rec.Pos.AppendID(nil))
					if seen[id] {
						again++
						continue
					}
					seen[id] = true
					if before, ok := last[key]; ok && rec.Pos.Compare(before) < 0 {
						t.Errorf("shard %s, key %s: %s comes after %s, which is later", shard.ID, key, rec.Pos.AppendID(nil), before.AppendID(nil))
					}
					last[key] = rec.Pos
				}
			}
			if page.Closed || page.AtTip {
				break
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return lines, again
}

// chaos is one journey from a source database over a stream into a target, with kills.
type chaos struct {
	streamURL    string   // to publish to and to replay from
	publishFlags []string // beyond the usual ones
	replayFlags  []string
	kills        int // of the publisher and of the consumer each
	transactions int64
	// rows that the source has before the publisher first runs, and which it delivers as a snapshot; 0: none.
	rows int
}

func (c chaos) run(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_REGION", "us-east-1")
	cluster := testkit.Shared(t)
	source, target := cluster.Database(t), cluster.Database(t)
	src, dst := testkit.Connect(t, source), testkit.Connect(t, target)
	testkit.Exec(t, src, testkit.WorkloadTables)
	testkit.Exec(t, dst, testkit.WorkloadTables)
	var slot string
	if err := src.QueryRow(context.Background(), `SELECT 'chaos_' || current_database()`).Scan(&slot); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	publish := append([]string{"cdc", "publish", "--from", source, "--slot", slot, "--publication", slot, "--table", "shop.*", "--create",
		"--state", filepath.Join(dir, "state"), "--to", c.streamURL}, c.publishFlags...)
	replay := append([]string{"replay", "--from", c.streamURL, "--to", target, "--checkpoint", "chaos"}, c.replayFlags...)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	if c.rows > 0 {
		c.fill(t, src, source, seed)
	}
	synctl(t, append(publish, "--until-lsn", "now")...) // makes publication, slot and stream
	if c.rows > 0 {
		// At this rate the snapshot lasts for about as long as the kills do.
		publish = append(publish, "--snapshot", "initial", "--snapshot-workers", "2", "--snapshot-chunk-bytes", "256KiB", "--snapshot-rate", fmt.Sprint(c.rows/8))
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		n := killRepeatedly(t, rand.New(rand.NewPCG(seed, 1)), c.kills, stop, publish...)
		t.Logf("publish was killed %d times", n)
	})
	wg.Go(func() {
		n := killRepeatedly(t, rand.New(rand.NewPCG(seed, 2)), c.kills, stop, append(replay, "--follow")...)
		t.Logf("replay was killed %d times", n)
	})
	// Beside a snapshot shards run further apart, and a value that one row hands to another can leave a third waiting for good:
	// docs/replay.md tells of it. So there rows keep theirs.
	w := &testkit.Workload{DSN: source, Seed: seed, Truncates: true, Emails: c.rows == 0, Pause: 20 * time.Millisecond}
	begin := time.Now()
	if c.rows > 0 {
		wg.Go(func() { c.disturb(t, source, seed, stop) })
	}
	w.Run(ctx, t, c.transactions)
	t.Logf("%d transactions in %s", w.Transactions.Load(), time.Since(begin).Round(time.Millisecond))
	close(stop)
	wg.Wait()
	if t.Failed() {
		return
	}
	if c.rows > 0 {
		publish = publish[:len(publish)-2] // the rest as fast as it goes
	}
	p := synctl(t, append(publish, "--until-lsn", "now")...)
	t.Logf("last publish:\n%s", p.stderr.String())
	p = synctl(t, replay...)
	t.Logf("last replay:\n%s", p.stderr.String())
	testkit.SameTables(t, source, target, "shop")

	s, err := openStream(context.Background(), c.streamURL, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	lines, again := checkOrder(t, s)
	t.Logf("%d lines in the stream, %d of them redelivered", lines, again)
	if lines == 0 || c.kills > 0 && again == 0 {
		t.Errorf("%d lines, %d redelivered: the kills tested nothing", lines, again)
	}
}

// fill gives the source rows, some of them with TOASTed values, before anybody captures its changes.
func (c chaos) fill(t *testing.T, conn *pgx.Conn, dsn string, seed uint64) {
	w := &testkit.Workload{DSN: dsn, Seed: seed + 1, Truncates: true, Emails: true}
	w.Run(context.Background(), t, 400)
	testkit.Exec(t, conn, fmt.Sprintf(`INSERT INTO shop.orders SELECT i, i %% 1000, i / 7.0, CASE WHEN i %% 50 = 0 THEN repeat(md5(i::text), 100) ELSE 'note ' || i END,
		ARRAY['a', i::text], jsonb_build_object('n', i) FROM generate_series(1000000, 1000000 + %d - 1) i; ANALYZE shop.orders`, c.rows))
}

// disturb changes rows that the snapshot reads: values beside a TOASTed one, deletes, key updates.
func (c chaos) disturb(t *testing.T, dsn string, seed uint64, stop <-chan struct{}) {
	conn := testkit.Connect(t, dsn)
	rng := rand.New(rand.NewPCG(seed, 3))
	for {
		select {
		case <-stop:
			return
		default:
		}
		id := 1000000 + rng.IntN(c.rows)
		sql := `UPDATE shop.orders SET amount = amount + 1 WHERE id BETWEEN $1 AND $1 + 60`
		switch rng.IntN(4) {
		case 0:
			sql = `DELETE FROM shop.orders WHERE id = $1`
		case 1:
			sql = `UPDATE shop.orders SET id = -id WHERE id = $1`
		case 2:
			sql = `INSERT INTO shop.orders (id, customer) VALUES ($1, 1) ON CONFLICT (id) DO UPDATE SET customer = 2`
		}
		if _, err := conn.Exec(context.Background(), sql, id); err != nil {
			var e *pgconn.PgError
			if !errors.As(err, &e) || e.Code != "23505" && e.Code != "40P01" {
				t.Errorf("disturb: %v", err)
				return
			}
		}
	}
}

// TestSnapshotUnderWritersAndKills: a snapshot beside writers, publisher and consumer killed again and again: the exact tables.
// SYNCTL_TEST_SNAPSHOT_ROWS makes the large table larger.
func TestSnapshotUnderWritersAndKills(t *testing.T) {
	chaos{
		streamURL:    "file:" + filepath.Join(t.TempDir(), "stream"),
		publishFlags: []string{"--create-stream", "4"},
		kills:        20, transactions: 1500, rows: snapshotRows(t),
	}.run(t)
}

// TestSnapshotThroughKinesisWithFaults: the same through a Kinesis that throttles, fails, forgets its answers and stores late.
func TestSnapshotThroughKinesisWithFaults(t *testing.T) {
	fake := faultyKinesis(t)
	chaos{
		streamURL:    "kinesis://chaos?endpoint=" + fake,
		publishFlags: []string{"--create-stream", "3"},
		kills:        20, transactions: 1000, rows: snapshotRows(t) / 4,
	}.run(t)
}

func snapshotRows(t *testing.T) int {
	s := os.Getenv("SYNCTL_TEST_SNAPSHOT_ROWS")
	if s == "" {
		return 120_000
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestKilledPublisherAndConsumerGiveTheExactTables(t *testing.T) {
	chaos{
		streamURL:    "file:" + filepath.Join(t.TempDir(), "stream"),
		publishFlags: []string{"--create-stream", "4"},
		kills:        20, transactions: 3000,
	}.run(t)
}

func TestKinesisWithFaultsAndKillsGivesTheExactTables(t *testing.T) {
	chaos{
		streamURL:    "kinesis://chaos?endpoint=" + faultyKinesis(t),
		publishFlags: []string{"--create-stream", "3"},
		kills:        20, transactions: 2000,
	}.run(t)
}

// faultyKinesis is the URL of a Kinesis that has every fault that a client has to bear.
func faultyKinesis(t *testing.T) string {
	fake, err := kinesisfake.Start(kinesisfake.Options{Script: kinesisfake.Random(kinesisfake.Faults{
		Throttle: 0.02, EntryFailure: 0.01, Error500: 0.02, Error503: 0.02, Drop: 0.02, LoseAck: 0.03, Late: 0.03, LateBy: 3 * time.Second,
		ExpireIterator: 0.01, ThrottleRead: 0.02, Shuffle: true, OnlyData: true,
	}, uint64(time.Now().UnixNano()))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	return fake.URL()
}

func TestKinesisLocalGivesTheExactTables(t *testing.T) {
	chaos{
		streamURL:    "kinesis://chaos?endpoint=" + testkit.KinesisLocal(t),
		publishFlags: []string{"--create-stream", "2"},
		transactions: 600,
	}.run(t)
}
