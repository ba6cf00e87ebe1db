package swap

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"synctl/internal/fault"
)

func TestFit(t *testing.T) {
	for _, c := range []struct{ name, suffix, want string }{
		{"orders", "_old_16400", "orders_old_16400"},
		{strings.Repeat("a", 53), "_old_16400", strings.Repeat("a", 53) + "_old_16400"},
		{strings.Repeat("a", 54), "_old_16400", ""},
		{strings.Repeat("ü", 31), "_old_16400", ""},
	} {
		got := fit(c.name, c.suffix)
		if c.want != "" && got != c.want {
			t.Errorf("fit(%q, %q) = %q", c.name, c.suffix, got)
		}
		if len(got) > 63 || !utf8.ValidString(got) || !strings.HasSuffix(got, c.suffix) {
			t.Errorf("fit(%q, %q) = %q, %d bytes", c.name, c.suffix, got, len(got))
		}
	}
	if a, b := fit(strings.Repeat("a", 70)+"x", "_new_1"), fit(strings.Repeat("a", 70)+"y", "_new_1"); a == b {
		t.Error("two names became one")
	}
}

func TestOptionChanges(t *testing.T) {
	got := optionChanges("ALTER TABLE t", "toast.", []string{"a=1", "b=2", "c=3"}, []string{"b=2", "c=it's", "d="})
	want := []string{`ALTER TABLE t SET (toast."c" = 'it''s', toast."d" = '')`, `ALTER TABLE t RESET (toast."a")`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got := optionChanges("x", "", []string{"a=1"}, []string{"a=1"}); got != nil {
		t.Errorf("%q", got)
	}
}

func TestGrantsOrder(t *testing.T) {
	want := []grant{{Grantor: "clerk", Grantee: "reader", Privilege: "INSERT"}, {Grantor: "owner", Grantee: "clerk", Privilege: "INSERT", Grantable: true},
		{Grantor: "owner", Grantee: "owner", Privilege: "INSERT"}, {Column: "a b", Grantor: "owner", Grantee: "", Privilege: "SELECT"}}
	got := grants(`TABLE t`, "owner", []grant{{Grantor: "owner", Grantee: "stranger", Privilege: "SELECT"}}, want)
	expect := []string{`REVOKE ALL ON TABLE t FROM "stranger", PUBLIC, "owner" CASCADE`, `GRANT INSERT ON TABLE t TO "owner"`, `GRANT INSERT ON TABLE t TO "clerk" WITH GRANT OPTION`,
		`GRANT SELECT ("a b") ON TABLE t TO PUBLIC`, `SET LOCAL ROLE "clerk"`, `GRANT INSERT ON TABLE t TO "reader"`, `RESET ROLE`}
	if !slices.Equal(got, expect) {
		t.Errorf("%q", got)
	}
	if got := grants("TABLE t", "owner", want, []grant{want[3], want[2], want[1], want[0]}); got != nil {
		t.Errorf("equal grants in another order: %q", got)
	}
}

// TestStandbys: a standby that hides its snapshots is warned of; one that tells of an old snapshot is waited for.
func TestStandbys(t *testing.T) {
	b, o := simple(t)
	conn, err := pgconn.Connect(b.Context(), b.dsn+"&replication=true&application_name=far-standby")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	id, err := pglogrepl.IdentifySystem(b.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	// Read nothing from it: what the server sends fits into the socket's buffers for as long as the test takes.
	conn.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + id.XLogPos.String()})
	if err := conn.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	feedback := func(xmin uint32) {
		msg := binary.BigEndian.AppendUint64([]byte{'h'}, 0)
		for _, v := range []uint32{xmin, 0, 0, 0} {
			msg = binary.BigEndian.AppendUint32(msg, v)
		}
		if err := conn.Frontend().SendUnbufferedEncodedCopyData(append(binary.BigEndian.AppendUint32([]byte{'d'}, uint32(4+len(msg))), msg...)); err != nil {
			t.Fatal(err)
		}
	}
	sees := func(sql string) {
		for range 100 {
			if b.one(sql) == "true" {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Fatalf("never: %s", sql)
	}
	var xid uint32
	if err := b.conn.QueryRow(b.Context(), `SELECT pg_snapshot_xmin(pg_current_snapshot())::xid`).Scan(&xid); err != nil {
		t.Fatal(err)
	}
	feedback(xid)
	sees(`SELECT (count(*) = 1)::text FROM pg_stat_replication WHERE application_name = 'far-standby' AND backend_xmin IS NOT NULL`)
	o.SnapshotWait = 100 * time.Millisecond
	b.refused(o, fault.Check, "far-standby")
	feedback(0)
	sees(`SELECT (count(*) = 1)::text FROM pg_stat_replication WHERE application_name = 'far-standby' AND backend_xmin IS NULL`)
	res := b.swap(b.again(o))
	if len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "standby far-standby does not send hot_standby_feedback") {
		t.Errorf("warnings %s", fmt.Sprint(res.Warnings))
	}
}
