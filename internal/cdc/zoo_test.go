package cdc

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/pg"
	"synctl/internal/record"
	"synctl/internal/testkit"
)

// TestZoo: for every value of every type, after is what PostgreSQL's own to_json gives for the row, byte by byte but for
// line breaks in json, which a line cannot hold, and the blank that to_json puts between fields of rows.
func TestZoo(t *testing.T) {
	dsn, conn := database(t)
	columns := testkit.ZooDDL(t, conn)
	r := start(t, Options{DSN: pg.DSN(dsn), Tables: []string{testkit.ZooTable}})
	rows := testkit.ZooRows(t, conn, columns)
	got := r.wait(len(rows))
	r.stop()
	sameAsToJSON(t, conn, rows, got)
	for i := range rows {
		var rec record.Record
		if err := record.Parse([]byte(got[i].line), &rec); err != nil {
			t.Errorf("%s: own line cannot be read: %v", rows[i], err)
		}
	}
}

// sameAsToJSON compares what came of the zoo's rows with PostgreSQL's to_json of them.
func sameAsToJSON(t *testing.T, conn *pgx.Conn, rows []string, got []change) {
	t.Helper()
	for name, value := range pg.OutputSettings {
		testkit.Exec(t, conn, "SET "+name+" = "+pg.Literal(value))
	}
	res, err := conn.Query(t.Context(), "SELECT to_json(z)::text FROM "+testkit.ZooTable+" z ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Close()
	for i := range rows {
		var want string
		if !res.Next() || res.Scan(&want) != nil {
			t.Fatalf("row %d: %v", i, res.Err())
		}
		if have, want := squeeze(string(got[i].After)), squeeze(want); have != want {
			t.Errorf("%s\n after   %s\n to_json %s", rows[i], notNull(have), notNull(want))
		}
	}
}

// squeeze takes out blanks and line breaks outside of strings, where they mean nothing.
func squeeze(s string) string {
	var b strings.Builder
	in := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if in && c == '\\' {
			b.WriteString(s[i : i+2])
			i++
			continue
		}
		if c == '"' {
			in = !in
		}
		if !in && (c == ' ' || c == '\n' || c == '\r' || c == '\t') {
			continue
		}
		b.WriteByte(c)
	}
	return b.String()
}

func notNull(s string) string {
	var keep []string
	for _, f := range strings.Split(s, `,"c`) {
		if !strings.HasSuffix(strings.TrimSuffix(f, "}"), ":null") {
			keep = append(keep, f)
		}
	}
	return strings.Join(keep, " ")
}
