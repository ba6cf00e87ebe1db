package replay

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/sink/postgres"
	"synctl/internal/stream/file"
	"synctl/internal/testkit"
)

// replayProcess names the variable that makes this test binary a consumer: TestMain runs childReplay instead of tests.
const replayProcess = "SYNCTL_TEST_REPLAY"

// childReplay follows a stream into a database until it is killed, or replays it to the tip.
func childReplay(args string) int {
	var dir, dsn, end string
	if _, err := fmt.Sscan(args, &dir, &dsn, &end); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx := context.Background()
	err := func() error {
		st, err := file.Open(dir)
		if err != nil {
			return err
		}
		target, err := postgres.Open(ctx, postgres.Options{DSN: pg.DSN(dsn), Stream: st.Name(), BatchBytes: 8 << 10})
		if err != nil {
			return err
		}
		o := Options{Stream: st, Target: Postgres{target}, QueueBytes: 256 << 10}
		if end == "follow" {
			o.End.Kind = Never
		}
		r, err := New(o)
		if err != nil {
			return err
		}
		return r.Run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err, fault.HintOf(err))
		return 1
	}
	return 0
}

func consumer(t *testing.T, dir, dsn, end string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), replayProcess+"="+dir+" "+dsn+" "+end)
	cmd.Stderr = &bytes.Buffer{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// TestExactTableThroughKills kills the consumer at random moments while a publisher that is "killed" too writes; then the
// same command gives the exact table.
func TestExactTableThroughKills(t *testing.T) {
	for _, shards := range []int{1, 4} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			dsn := testkit.Shared(t).Database(t)
			conn := testkit.Connect(t, dsn)
			testkit.Exec(t, conn, "CREATE TABLE t (id int PRIMARY KEY, note text)")
			p := newPublisher(t, shards)
			rng := rand.New(rand.NewPCG(3, uint64(shards)))
			for range 12 {
				cmd := consumer(t, p.dir, dsn, "follow")
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				p.chunk(25)
				time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond)
				if err := cmd.Process.Kill(); err != nil {
					t.Fatalf("the consumer ended by itself: %v\n%s", err, cmd.Stderr)
				}
				if err := cmd.Wait(); cmd.ProcessState.ExitCode() != -1 {
					t.Fatalf("the consumer ended by itself: %v\n%s", err, cmd.Stderr)
				}
			}
			last := consumer(t, p.dir, dsn, "tip")
			if err := last.Run(); err != nil {
				t.Fatalf("%v\n%s", err, last.Stderr)
			}
			p.compare(conn)
		})
	}
}

// TestServerCrash stops the target's server at once, as a crash does, with asynchronous commits that it then has lost.
func TestServerCrash(t *testing.T) {
	cluster := testkit.Own(t, testkit.Options{Durable: true, Settings: map[string]string{"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}})
	dsn := cluster.DSN("postgres")
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE t (id int PRIMARY KEY, note text); CHECKPOINT")
	conn.Close(context.Background())
	p := newPublisher(t, 2)
	target := openTarget(t, dsn, postgres.Options{BatchBytes: 8 << 10})
	defer target.Close(context.Background())
	drain := make(chan struct{})
	r, err := New(Options{Stream: p.open(), Target: Postgres{target}, End: End{Kind: Never}, Drain: drain})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(context.Background()) }()
	for range 3 {
		p.chunk(30)
		cluster.Stop(syscall.SIGQUIT)
		p.chunk(5)
		if err := cluster.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if st := r.Status(); st.Running == 2 && caughtUp(t, p, st) {
			break
		}
	}
	close(drain)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if r.Status().Retries == 0 {
		t.Error("nothing was tried again, though the server crashed")
	}
	p.compare(testkit.Connect(t, dsn))
}

func caughtUp(t *testing.T, p *publisher, st Status) bool {
	t.Helper()
	shards, err := p.open().Shards(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, sh := range shards {
		ok := sh.Newest == ""
		for _, s := range st.Shards {
			ok = ok || s.ID == sh.ID && s.Read == sh.Newest
		}
		if !ok {
			return false
		}
	}
	return true
}
