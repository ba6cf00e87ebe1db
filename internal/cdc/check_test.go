package cdc

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestRefusals: what cannot work is refused before anything is made, with its class, its name and the next step.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		sql   string
		opt   Options
		class fault.Class
		says  string
	}{
		"nothing asked for":    {"", Options{}, fault.Usage, "nothing says which tables"},
		"no schema":            {"", Options{Tables: []string{"orders"}}, fault.Usage, `table "orders"`},
		"slot name":            {"", Options{Slot: "A-b"}, fault.Usage, `slot name "A-b"`},
		"reserved name":        {"", Options{Slot: "synctl_tmp_x"}, fault.Usage, "synctl_tmp_"},
		"create without slot":  {"", Options{Tables: []string{"a.b"}, Create: true}, fault.Usage, "--create without --slot"},
		"no such table":        {"", Options{Tables: []string{"public.orders"}}, fault.Check, "no table matches public.orders"},
		"no such publication":  {"", Options{Publication: "p"}, fault.Check, "no publication p"},
		"no such slot":         {"", Options{Slot: "nope"}, fault.Check, "no slot nope"},
		"create without table": {"", Options{Slot: "s1", Create: true}, fault.Usage, "publication s1 does not exist"},
		"keyless":              {"CREATE TABLE a (id int)", Options{Tables: []string{"public.*"}}, fault.Check, "no replica identity: public.a"},
		"keyless, published": {"CREATE TABLE a (id int); CREATE TABLE b (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a, b",
			Options{Publication: "p", Tables: []string{"public.b"}}, fault.Check, "public.a"},
		"identity nothing": {"CREATE TABLE a (id int PRIMARY KEY); ALTER TABLE a REPLICA IDENTITY NOTHING", Options{Tables: []string{"public.a"}}, fault.Check, "public.a"},
		"publication too narrow": {"CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE a",
			Options{Publication: "p", Tables: []string{"public.*"}}, fault.Check, "publication p does not publish public.b"},
		"root full, leaf default": {"CREATE TABLE a (id int PRIMARY KEY, v int) PARTITION BY RANGE (id); CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (9); ALTER TABLE a REPLICA IDENTITY FULL",
			Options{Tables: []string{"public.a"}}, fault.Check, "replica identity of partition public.a1"},
		"other plugin": {"SELECT pg_create_logical_replication_slot('s_' || current_database(), 'test_decoding')", Options{Slot: "s_DB"}, fault.Check, "plugin test_decoding"},
		"physical":     {"SELECT pg_create_physical_replication_slot('ph_' || current_database())", Options{Slot: "ph_DB"}, fault.Check, "physical"},
		"slot older than its publication": {"CREATE TABLE a (id int PRIMARY KEY);;SELECT pg_create_logical_replication_slot('o_' || current_database(), 'pgoutput')",
			Options{Slot: "o_DB", Tables: []string{"public.a"}, Create: true}, fault.Check, "exists, publication o_DB does not"},
	} {
		t.Run(name, func(t *testing.T) {
			dsn, conn := database(t)
			for _, sql := range strings.Split(c.sql, ";;") {
				testkit.Exec(t, conn, sql)
			}
			db := conn.Config().Database
			opt := c.opt
			opt.DSN, opt.StateDir = pg.DSN(dsn), t.TempDir()
			opt.Slot = strings.ReplaceAll(opt.Slot, "DB", db)
			_, err := Open(t.Context(), opt)
			if err == nil || fault.ClassOf(err) != c.class || !strings.Contains(err.Error(), strings.ReplaceAll(c.says, "DB", db)) || fault.HintOf(err) == "" {
				t.Errorf("class %d, hint %q: %v", fault.ClassOf(err), fault.HintOf(err), err)
			}
			var made int
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_publication WHERE pubname <> 'p'`).Scan(&made); err != nil || made != 0 {
				t.Errorf("%d publications were made before the refusal, %v", made, err)
			}
			if _, err := conn.Exec(t.Context(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name IN ('ph_' || current_database())`); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRefusedRole(t *testing.T) {
	dsn, conn := database(t)
	role := "plain_" + conn.Config().Database
	testkit.Exec(t, conn, "CREATE TABLE a (id int PRIMARY KEY); CREATE ROLE "+role+" LOGIN")
	t.Cleanup(func() { conn.Exec(context.Background(), "DROP ROLE "+role) })
	_, err := Open(t.Context(), Options{DSN: pg.DSN(strings.Replace(dsn, "postgres@", role+"@", 1)), Tables: []string{"public.a"}})
	if fault.ClassOf(err) != fault.Unreachable || !strings.Contains(fmt.Sprint(err), "REPLICATION") || !strings.Contains(fault.HintOf(err), "ALTER ROLE") {
		t.Errorf("error %v, hint %q", err, fault.HintOf(err))
	}
	// Also where only the replication connection meets the refusal, as when a slot is dropped.
	cfg, err := pg.Parse(pg.DSN(strings.Replace(dsn, "postgres@", role+"@", 1)), "test")
	if err != nil {
		t.Fatal(err)
	}
	_, err = connectReplication(t.Context(), cfg)
	if fault.ClassOf(err) != fault.Unreachable || !strings.Contains(fault.HintOf(err), "ALTER ROLE") {
		t.Errorf("error %v, hint %q", err, fault.HintOf(err))
	}
	_, err = Open(t.Context(), Options{DSN: "postgres://nobody:secret@127.0.0.1:1/x?connect_timeout=2", Tables: []string{"public.a"}})
	if fault.ClassOf(err) != fault.Unreachable || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error %v", err)
	}
}

func TestWALLevel(t *testing.T) {
	t.Parallel()
	c := testkit.Own(t, testkit.Options{Settings: map[string]string{"wal_level": "replica"}})
	_, err := Open(t.Context(), Options{DSN: pg.DSN(c.DSN("postgres")), Tables: []string{"public.a"}})
	if fault.ClassOf(err) != fault.Check || !strings.Contains(fmt.Sprint(err), "wal_level is replica") {
		t.Errorf("error %v", err)
	}
}

func TestSlotInUse(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: slotFor(conn), Create: true, StateDir: t.TempDir(), Application: "the first"}
	r := start(t, opt)
	_, err := Open(t.Context(), opt)
	if fault.ClassOf(err) != fault.Unreachable || !strings.Contains(fmt.Sprint(err), "in use by PID") || !strings.Contains(fmt.Sprint(err), "the first") {
		t.Errorf("error %v", err)
	}
	r.stop()
}

// TestLostSlot: a slot whose WAL the server has removed cannot go on, and says so.
func TestLostSlot(t *testing.T) {
	t.Parallel()
	c := testkit.Own(t, testkit.Options{Settings: map[string]string{"max_slot_wal_keep_size": "1MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}})
	dsn := c.Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY)`)
	opt := Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}, Slot: "lost", Create: true, StateDir: t.TempDir()}
	start(t, opt).stop()
	for range 40 {
		testkit.Exec(t, conn, `SELECT pg_switch_wal() FROM pg_logical_emit_message(false, 'x', 'x')`)
		testkit.Exec(t, conn, `CHECKPOINT`)
		if s, err := findSlot(t.Context(), conn, "lost"); err != nil || s.WALStatus == "lost" {
			break
		}
	}
	_, err := Open(t.Context(), opt)
	if fault.ClassOf(err) != fault.Check || !strings.Contains(fmt.Sprint(err), "slot lost is lost") {
		t.Errorf("error %v", err)
	}
}

// TestCreationWaits: the transactions for which slot creation waits are named.
func TestCreationWaits(t *testing.T) {
	dsn, conn := database(t)
	testkit.Exec(t, conn, `CREATE TABLE a (id int PRIMARY KEY); SET application_name = 'forgotten'`)
	testkit.Exec(t, conn, `BEGIN; INSERT INTO a VALUES (1)`)
	watch, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Open(ctx, Options{DSN: pg.DSN(dsn), Tables: []string{"public.a"}})
		ended <- err
	}()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var pid uint32
		err := watch.QueryRow(t.Context(), `SELECT coalesce(max(pid), 0) FROM pg_stat_activity WHERE backend_type = 'walsender' AND datname = current_database() AND wait_event_type = 'Lock'`).Scan(&pid)
		if err != nil {
			t.Fatal(err)
		}
		if pid != 0 {
			who, err := blockers(t.Context(), watch, pid)
			if err != nil || len(who) != 1 || !strings.Contains(who[0], fmt.Sprint("PID ", conn.PgConn().PID())) || !strings.Contains(who[0], "forgotten") {
				t.Errorf("waits for %q, %v", who, err)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("slot creation does not wait")
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("opened although it was cancelled")
	}
	testkit.Exec(t, conn, `ROLLBACK`)
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, schema, name string
		want                  bool
	}{
		{"public.orders", "public", "orders", true}, {"public.orders", "public", "orders2", false}, {"public.*", "public", "x", true},
		{"*.x", "y", "x", true}, {"p*c.o*d*s", "public", "orders", true}, {"p*c.o*d*s", "public", "ords", true},
		{"p*c.o*d*s", "public", "orde", false}, {"a.b*b", "a", "b", false}, {"a.b*b", "a", "bb", true}, {`"a.b".c`, "a.b", "c", true},
	} {
		f, err := newFilter([]string{c.pattern})
		if err != nil {
			t.Fatal(err)
		}
		if f.match(c.schema, c.name) != c.want {
			t.Errorf("%s on %s.%s is not %v", c.pattern, c.schema, c.name, c.want)
		}
	}
}
