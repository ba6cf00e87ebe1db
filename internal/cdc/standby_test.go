package cdc

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// standby makes a primary with a table and its publication, and a standby of it.
func standby(t *testing.T) (primary, second *testkit.Cluster) {
	t.Helper()
	primary = testkit.Own(t, testkit.Options{})
	if primary.Version < 16 {
		t.Skip("no decoding on a standby before PostgreSQL 16")
	}
	dsn := primary.DSN("postgres")
	testkit.Exec(t, testkit.Connect(t, dsn), `CREATE TABLE a (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a`)
	return primary, primary.Standby(t)
}

// logSnapshots makes slot creation on the standby get on.
func logSnapshots(ctx context.Context, t *testing.T, dsn string) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	go func() {
		for ctx.Err() == nil {
			if _, err := conn.Exec(ctx, `SELECT pg_log_standby_snapshot()`); err != nil {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

// TestPromotedUnderRun: a standby that is read from is promoted, and the connection lives through it. What commits from
// then on has the new timeline in its ids, as it has after a restart, and the position is found in the server's history.
func TestPromotedUnderRun(t *testing.T) {
	primary, second := standby(t)
	ctx, cancel := context.WithCancel(t.Context())
	logSnapshots(ctx, t, primary.DSN("postgres"))
	opt := Options{DSN: pg.DSN(second.DSN("postgres")), Publication: "p", Slot: "s", Create: true, StateDir: t.TempDir()}
	r := start(t, opt)
	testkit.Exec(t, testkit.Connect(t, primary.DSN("postgres")), `INSERT INTO a VALUES (1)`)
	before := r.wait(1)
	cancel()
	primary.Stop(syscall.SIGINT)
	conn := testkit.Connect(t, second.DSN("postgres"))
	testkit.Exec(t, conn, `SELECT pg_promote()`)
	testkit.Exec(t, conn, `INSERT INTO a VALUES (2)`)
	r.wait(2)
	r.kill()
	second.Stop(syscall.SIGINT) // the slot is free at once
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	testkit.Exec(t, testkit.Connect(t, second.DSN("postgres")), `INSERT INTO a VALUES (3)`)
	again := start(t, opt)
	for got := again.wait(1); string(got[len(got)-1].Key) != `{"id":3}`; got = again.wait(len(got) + 1) {
	}
	ids := map[string]string{}
	for _, c := range append(parse(t, r.out.all()), again.stop()...) {
		if id := ids[string(c.Key)]; id != "" && id != c.ID {
			t.Errorf("row %s came as %s and as %s", c.Key, id, c.ID)
		}
		ids[string(c.Key)] = c.ID
	}
	system, _, _ := strings.Cut(before[0].ID, ".")
	for key, timeline := range map[string]int{`{"id":1}`: 1, `{"id":2}`: 2, `{"id":3}`: 2} {
		if prefix := fmt.Sprintf("%s.%d.", system, timeline); !strings.HasPrefix(ids[key], prefix) {
			t.Errorf("row %s has id %s, want %s…", key, ids[key], prefix)
		}
	}
}

// TestStandbyMakesNoPublication: what only the primary can make is refused with the statement that makes it there, and the
// temporary publications that the primary has in use are left alone.
func TestStandbyMakesNoPublication(t *testing.T) {
	primary, second := standby(t)
	r := start(t, Options{DSN: pg.DSN(primary.DSN("postgres")), Tables: []string{"public.a"}})
	defer r.stop()
	conn := testkit.Connect(t, second.DSN("postgres"))
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication`).Scan(&n); err != nil || time.Now().After(deadline) {
			t.Fatalf("%d publications on the standby, %v", n, err)
		}
		if n == 2 {
			break
		}
	}
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, nil))
	_, err := Open(t.Context(), Options{DSN: pg.DSN(second.DSN("postgres")), Tables: []string{"public.a"}, Log: log, StateDir: t.TempDir()})
	if fault.ClassOf(err) != fault.Check || !strings.Contains(fault.HintOf(err), `CREATE PUBLICATION "synctl" FOR TABLE ONLY "public"."a"`) {
		t.Errorf("error %v, hint %s", err, fault.HintOf(err))
	}
	if said.Len() > 0 {
		t.Errorf("said: %s", said.String())
	}
}
