package ndjson

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

const table = `CREATE TYPE pair AS (x int, y text); CREATE TABLE e (id int, b bigint, n numeric(30,5), f float8, o boolean, t text, y bytea, d date, z timestamptz,
	j json, k jsonb, a int[], m text[], p pair, q pair[], u uuid, "Odd ""name""" text)`

var input = []string{
	`{"id":1,"b":9007199254740993,"n":12345678901234567890.12345,"f":0.1,"o":true,"t":"a\"b\\c\u00e9\ud83d\ude00\n","y":"\\x00ff","d":"2026-11-30","z":"2026-11-30T19:58:00.5+00:00"}`,
	`{"id":2,"j":{"n":1.10,"n":2},"k":{"n":12345678901234567890.5,"s":"x"},"a":[1,null,3],"m":["a","b,c","\"",null],"p":{"x":1,"y":"one"},"q":[{"x":1},null]}`,
	`  {"id":3, "a": [[1,2],[3,4]], "m": [], "t": "", "f":"NaN", "n":-0.5, "b":"7", "u":"00112233-4455-6677-8899-aabbccddeeff", "Odd \"name\"": "x"}  `,
	``,
	`{"id":4,"t":12,"k":null,"j":"text","o":"f","f":1e300}`,
	`{"id":5,"t":{"not":"text"},"k":"text","n":1e3}`,
}

func load(t *testing.T, content string, columns []string, o bulk.Options) (*bulk.Summary, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := Open(context.Background(), path, nil, columns)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	o.Table, o.Columns = "e", columns
	return bulk.New(src, o).Run(context.Background())
}

func rows(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(context.Background(), "SELECT string_agg(to_json(x)::text, E'\n' ORDER BY id) FROM ("+sql+") x").Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

// What json_populate_record makes of the same objects is what has to be stored.
func TestAgreesWithJSONPopulateRecord(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, table)
	var union []string
	for _, l := range input {
		if l != "" {
			union = append(union, "SELECT (json_populate_record(NULL::e, "+pg.Literal(l)+")).*")
		}
	}
	want := rows(t, conn, strings.Join(union, " UNION ALL "))
	for _, format := range []convert.Format{convert.BinaryFormat, convert.TextFormat} {
		sum, err := load(t, strings.Join(input, "\n"), nil, bulk.Options{To: pg.DSN(dsn), CopyFormat: format})
		if err != nil {
			t.Fatalf("as %s: %v", format, err)
		}
		if got := rows(t, conn, "SELECT * FROM e_staging"); got != want || sum.Rows != 5 {
			t.Errorf("as %s: %d rows\n got %s\nwant %s", format, sum.Rows, got, want)
		}
	}
}

func TestRecordsGiveTheirRows(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, table)
	lines := `{"v":1,"id":"a.1","op":"insert","schema":"s","table":"e","key":{"id":1},"after":{"id":1,"k":null,"t":"one"},"literal":{"k":"null"}}
{"v":1,"id":"a.2","op":"read","schema":"s","table":"e","after":{"id":2,"t":"two"}}
`
	if _, err := load(t, lines, nil, bulk.Options{To: pg.DSN(dsn)}); err != nil {
		t.Fatal(err)
	}
	var got string
	if err := conn.QueryRow(context.Background(), "SELECT string_agg(concat_ws(' ', id, t, k::text, k IS NULL), ', ' ORDER BY id) FROM e_staging").Scan(&got); err != nil {
		t.Fatal(err)
	}
	if want := "1 one null f, 2 two t"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err := load(t, lines+`{"v":1,"id":"a.3","op":"delete","schema":"s","table":"e","key":{"id":1},"after":null}`+"\n", nil, bulk.Options{To: pg.DSN(dsn)})
	if err == nil || !strings.Contains(err.Error(), "row 3") || !strings.Contains(err.Error(), "synctl replay") {
		t.Errorf("got %v, want an error for row 3 that names replay", err)
	}
}

func TestMisfitsAreNamed(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	testkit.Exec(t, testkit.Connect(t, dsn), table)
	for row, want := range map[string]string{
		`{"id":1.5}`:                       `"1.5" is not a valid integer`,
		`{"id":1e3}`:                       `not a valid integer`,
		`{"id":1`:                          `not valid JSON`,
		`[1]`:                              `not valid JSON`,
		`{"id":1} {"id":2}`:                `more on the line than one JSON object`,
		`{"id":[1]}`:                       `"[1]" is not a valid integer`,
		`{"id":2,"a":[[1],[2,3]]}`:         `rectangular`,
		`{"id":2,"t":"a\u0000b"}`:          `NUL character`,
		`{"id":2,"k":{"x":"a\u0000b"}}`:    `NUL character`,
		`{"id":2,"t":"\ud800"}`:            `no character`,
		`{"id":2,"n":0.000001}`:            `more than 5 digits after the point`,
		`{"id":2,"p":{"x":"one","y":"1"}}`: `field "x": value "one" is not a valid integer`,
	} {
		_, err := load(t, `{"id":1}`+"\n"+row, []string{"id", "a", "t", "k", "n", "p"}, bulk.Options{To: pg.DSN(dsn)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "row 2 (line 2)") || fault.ClassOf(err) != fault.Failed {
			t.Errorf("%s: %v\nwant row 2 and %q in it", row, err, want)
		}
	}
	_, err := load(t, strings.Repeat(`{"id":1}`+"\n", 40000)+`{"id":1,"new":2}`, nil, bulk.Options{To: pg.DSN(dsn)})
	if want := `row 40001 (line 40001): member "new" is in none of the first lines`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q in it", err, want)
	}
	sum, err := load(t, `{"id":1,"t":"a\u0000b","k":["\u0000","\\u0000"]}`, nil, bulk.Options{To: pg.DSN(dsn), NUL: convert.NULReplace})
	if err != nil || sum.NULs != 2 {
		t.Fatalf("%v, %+v, want two NUL characters replaced", err, sum)
	}
	if got, want := rows(t, testkit.Connect(t, dsn), "SELECT id, t, k FROM e_staging"), "{\"id\":1,\"t\":\"a\uFFFDb\",\"k\":[\"\uFFFD\", \"\\\\u0000\"]}"; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}
