package cdc

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"synctl/internal/pg"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

// TestStopsWithinATransaction: an orderly stop does not wait for the end of a large transaction, and confirms what came
// before it.
func TestStopsWithinATransaction(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int, v text); ALTER TABLE a REPLICA IDENTITY FULL`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	testkit.Exec(t, conn, `INSERT INTO a VALUES (0, 'before')`)
	testkit.Exec(t, conn, `INSERT INTO a SELECT i, repeat('x', 50) FROM generate_series(1, 1000000) i`)
	src, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBatch(64<<10, nil, nil)
	for got := 0; got < 5000; got += len(b.Records) {
		b.Reset()
		if err := src.ReadBatch(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if b.Token != nil {
			if err := src.Ack(t.Context(), b.Token); err != nil {
				t.Fatal(err)
			}
		}
	}
	begin := time.Now()
	if err := src.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if d := time.Since(begin); d > 2500*time.Millisecond {
		t.Errorf("the stop took %s", d)
	}
	slot, err := findSlot(t.Context(), conn, opt.Slot)
	if err != nil || slot.Confirmed != src.Confirmed() || src.Confirmed() == 0 {
		t.Errorf("the server has %v, the state %s, %v", slot, src.Confirmed(), err)
	}
}

// TestTimeLimitsOfTheRole: time limits that a role has do not end what is meant to last.
func TestTimeLimitsOfTheRole(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	testkit.Exec(t, conn, `ALTER DATABASE `+conn.Config().Database+` SET idle_session_timeout = '300ms'`)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
	time.Sleep(time.Second)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	r.wait(1)
	r.stop()
	var left int
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d publications left, %v", left, err)
	}
}

// blackHole is a way to the server that can stop to carry anything without closing.
type blackHole struct {
	net.Listener
	closed atomic.Bool // nothing passes
}

func newBlackHole(t *testing.T, target string) *blackHole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &blackHole{Listener: l}
	t.Cleanup(func() { l.Close() })
	carry := func(dst, src net.Conn, dead *atomic.Bool) {
		b := make([]byte, 64<<10)
		for {
			n, err := src.Read(b)
			if h.closed.Load() {
				dead.Store(true) // this connection never comes back, and its end is not told either
			}
			if dead.Load() {
				return
			}
			if _, werr := dst.Write(b[:n]); err != nil || werr != nil {
				dst.Close()
				return
			}
		}
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			dead := new(atomic.Bool)
			go carry(out, in, dead)
			go carry(in, out, dead)
		}
	}()
	return h
}

// TestSilentServer: a connection that carries nothing any more, without being closed, is given up and made anew.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	c := testkit.Own(t, testkit.Options{Settings: map[string]string{"wal_sender_timeout": "2s"}})
	dsn := c.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	way := newBlackHole(t, fmt.Sprintf("127.0.0.1:%d", c.Port))
	through := strings.Replace(dsn, fmt.Sprint(":", c.Port), fmt.Sprint(":", way.Addr().(*net.TCPAddr).Port), 1)
	r := startWith(t, Options{DSN: pg.DSN(through), Tables: []string{"public.a"}, Slot: "silent", Create: true}, func(s *Source) {
		if v := c.Version; (s.silence > 0) != (v >= 16) {
			t.Errorf("version %d: silence is borne for %s", v, s.silence)
		}
		s.silence = 5 * time.Second
	})
	testkit.Exec(t, conn, `INSERT INTO a VALUES (1)`)
	r.wait(1)
	time.Sleep(6 * time.Second) // a quiet server that answers is not given up
	if n := r.src.Status().Reconnects; n != 0 {
		t.Errorf("%d reconnects although the server is there", n)
	}
	way.closed.Store(true)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	time.Sleep(time.Second) // far less than the silence that is borne: the next connection has to find the way open
	way.closed.Store(false)
	r.wait(2)
	if n := r.src.Status().Reconnects; n == 0 {
		t.Error("the connection was not made anew, so nothing was tested")
	}
	r.stop()
}
