package csv

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/zstd"

	"synctl/internal/bulk"
	"synctl/internal/bulk/convert"
	"synctl/internal/bulk/lines"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func load(t *testing.T, path string, c Options, o bulk.Options) (*bulk.Summary, error) {
	t.Helper()
	src, err := Open(context.Background(), path, c)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	return bulk.New(src, o).Run(context.Background())
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func rows(t *testing.T, conn *pgx.Conn, table string) string {
	t.Helper()
	var got string
	if err := conn.QueryRow(context.Background(), "SELECT coalesce(json_agg(to_json(x) ORDER BY to_json(x)::text)::text, '') FROM "+table+" x").Scan(&got); err != nil {
		t.Fatal(err)
	}
	return got
}

const everything = `CREATE TABLE e (i int, b bigint, n numeric, p numeric(8,3), f float8, r real, o boolean, t text, v varchar(5), y bytea, d date, c time, s timestamp, z timestamptz, u uuid, j json, k jsonb, m text)`

// Each of these values is read by PostgreSQL's own COPY, too; what it stores is what we have to store.
var values = map[string][]string{
	"i": {"0", "-2147483648", " 42 ", "+7", ""},
	"b": {"9223372036854775807", "-9223372036854775808"},
	"n": {"0", "-0", "0.10", "1e3", "1.5E-7", "NaN", "Infinity", "-inf", "12345678901234567890.123456789012345678901234567890", ".5", "5.", "000123.4000", "-0.00010000"},
	"p": {"12345.678", "-0.001", "12345", "1.500"},
	"f": {"0.1", "-1e300", "NaN", "inf", "-Infinity", "5e-324", "1.7976931348623157e308", "-0"},
	"r": {"0.1", "3.4e38", "1e-45"},
	"o": {"t", "false", "YES", "of", "1", "0", " tru "},
	"t": {`""`, `"a ""quoted"" word"`, `"two` + "\n" + `lines"`, "grüße", `" "`, `\N`, `"\."`},
	"v": {"äöüßx", `"ab"`},
	"y": {`\x00ff`, `\xDEAD beef`, `abc\\d\001`, `""`},
	"d": {"2026-11-30", "0044-03-15 BC", "infinity", "-infinity", "5874897-12-31", "4713-01-01 BC"},
	"c": {"00:00:00", "23:59:59.999999", "24:00:00", "12:34"},
	"s": {"2026-11-30 19:58:00.123456", "2026-11-30T19:58:00", "infinity", "294276-12-31 23:59:59.999999", "0001-01-01 00:00:00 BC", "2026-11-30", "4713-11-24 00:00:00 BC", "2026-12-31 23:59:60"},
	"z": {"2026-11-30 19:58:00+02", "2026-11-30T19:58:00Z", "2026-11-30 19:58:00.5-03:30", "-infinity", "1900-01-01 00:00:00+00:19:32", "2026-11-30 10:00:00 UTC"},
	"u": {"00112233-4455-6677-8899-AABBCCDDEEFF", "{00112233-4455-6677-8899-aabbccddeeff}", "00112233445566778899aabbccddeeff"},
	"j": {`"{""a"": 1, ""a"":2}"`, `"12345678901234567890.10"`, `null`},
	"k": {`"{""a"": [1, ""x""]}"`, `true`},
}

func TestAgreesWithPostgreSQL(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, everything+"; CREATE TABLE own (LIKE e)")
	var b strings.Builder
	names := strings.Fields("i b n p f r o t v y d c s z u j k m")
	b.WriteString(strings.Join(names, ",") + "\r\n")
	for at, c := range names {
		for i, v := range values[c] {
			b.WriteString(strings.Repeat(",", at) + v + strings.Repeat(",", len(names)-at-1) + fmt.Sprintf("%s%d%s", c, i, []string{"\n", "\r\n"}[i%2]))
		}
	}
	text := strings.ReplaceAll(b.String(), "\r\n", "\n")
	if _, err := conn.PgConn().CopyFrom(context.Background(), strings.NewReader(text), "COPY own FROM STDIN (FORMAT csv, HEADER)"); err != nil {
		t.Fatal(err)
	}
	want := rows(t, conn, "own")
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	g.Write([]byte(b.String()))
	g.Close()
	z, _ := zstd.NewWriter(&zs)
	z.Write([]byte("\xef\xbb\xbf" + text))
	z.Close()
	for name, content := range map[string]string{"plain.csv": text, "mixed.csv": b.String(), "a.csv.gz": gz.String(), "bom.csv.zst": zs.String()} {
		for _, format := range []convert.Format{convert.BinaryFormat, convert.TextFormat} {
			if _, err := load(t, write(t, name, content), Options{}, bulk.Options{To: pg.DSN(dsn), Table: "e", CopyFormat: format}); err != nil {
				t.Errorf("%s as %s: %v", name, format, err)
			} else if got := rows(t, conn, "e_staging"); got != want {
				t.Errorf("%s as %s:\n got %s\nwant %s", name, format, got, want)
			}
		}
	}
}

func TestMisfitsAreNamed(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, strings.Replace(everything, "CREATE TABLE e (", "CREATE TABLE e (q int NOT NULL DEFAULT 1, ", 1))
	for _, c := range []struct{ head, row, want string }{
		{"i", "2147483648", "does not fit integer"}, {"i", "1.5", "not a valid integer"}, {"i", "1_000", "not a valid integer"},
		{"p", "1.2345", "more than 3 digits after the point"}, {"p", "123456", "more than 5 digits before the point"},
		{"n", "1,5", "2 values, the header 1"}, {"f", "1e400", "not a valid double"}, {"f", "1e-400", "not a valid double"},
		{"t", "a\x00b", "NUL"}, {"t", "a\xffb", "not UTF-8"}, {"v", "abcdef", "6 characters"}, {"y", `\xabc`, "not a valid bytea"},
		{"d", "2026-02-30", "not a date in ISO 8601"}, {"d", "yesterday", "not a date"}, {"d", "2026-01-01 10:00", "time of day"}, {"d", "5874898-01-01", "out of PostgreSQL's range"},
		{"s", "2026-11-30 19:58:00.1234567", "below the microsecond"}, {"s", "2026-11-30 19:58:00+02", "time zone"}, {"s", "294277-01-01", "out of PostgreSQL's range"},
		{"u", "00112233", "not a valid uuid"}, {"k", "{", "invalid input syntax for type json"}, {"o", "maybe", "not a valid boolean"},
		{"i,q", "1,", "column is NOT NULL"}, {"t", `"abc`, "never closed"}, {"t,v", "a\rb,c", "carriage return"}, {"t", `"abc"d`, "closing quote"},
	} {
		path := write(t, "m.csv", c.head+"\n"+good(c.head)+"\n"+c.row+"\n")
		_, err := load(t, path, Options{}, bulk.Options{To: pg.DSN(dsn), Table: "e", Writers: 1})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path+", row 2") || fault.ClassOf(err) != fault.Failed {
			t.Errorf("%s %q: %v\nwant row 2 and %q in it", c.head, c.row, err, c.want)
		}
	}
}

// good is a row that fits the columns of head.
func good(head string) string {
	row := map[string]string{"i": "1", "i,q": "1,1", "p": "1", "n": "1", "f": "1", "t": "x", "v": "x", "y": "x", "d": "2026-01-01", "s": "2026-01-01", "u": "00112233445566778899aabbccddeeff", "k": "1", "o": "t", "t,v": "x,y"}
	return row[head]
}

// A quoted value may hold line ends and the block may end in it; rows and lines stay right, and nothing is lost or doubled.
func TestBlocksEndBetweenRecords(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE l (nr int, note text)")
	var b strings.Builder
	b.WriteString("note,nr\n")
	const n = 30000
	for i := range n {
		fmt.Fprintf(&b, "\"line one of %d\nand, \"\"two\"\"\n%s\",%d\n", i, strings.Repeat("x", i%50), i)
	}
	path := write(t, "l.csv", b.String())
	sum, err := load(t, path, Options{}, bulk.Options{To: pg.DSN(dsn), Table: "l", Readers: 3, Writers: 2, QueueBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var distinct, bad int
	if err := conn.QueryRow(context.Background(), `SELECT count(DISTINCT nr), count(*) FILTER (WHERE note <> format(E'line one of %s\nand, "two"\n', nr) || repeat('x', nr % 50)) FROM l_staging`).Scan(&distinct, &bad); err != nil {
		t.Fatal(err)
	}
	if sum.Rows != n || distinct != n || bad != 0 {
		t.Fatalf("%d rows, %d of them different, %d wrong; want %d", sum.Rows, distinct, bad, n)
	}
	if sum.QueuePeak > 1<<20 {
		t.Errorf("queue peak %d, over its bound", sum.QueuePeak)
	}
	broken := strings.Replace(b.String(), ",29998\n", ",x\n", 1)
	_, err = load(t, write(t, "l.csv", broken), Options{}, bulk.Options{To: pg.DSN(dsn), Table: "l", Readers: 3})
	if want := fmt.Sprintf("row 29999 (line %d)", 2+29998*3); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %s", err, want)
	}
}

func TestColumnsDelimiterNull(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, `CREATE TABLE o (a int, b text, c text DEFAULT 'filled', d int GENERATED ALWAYS AS (a + 1) STORED)`)
	path := write(t, "o.csv", "1;NULL;x\n2;\"NULL\";y\n3;;z\n")
	if _, err := load(t, path, Options{Delimiter: ';', Null: "NULL", NoHeader: true, Names: []string{"a", "text", "skipped"}},
		bulk.Options{To: pg.DSN(dsn), Table: "o", Columns: []string{"a", "text"}, Rename: map[string]string{"text": "b"}}); err != nil {
		t.Fatal(err)
	}
	want := `[{"a":1,"b":null,"c":"filled","d":2}, {"a":2,"b":"NULL","c":"filled","d":3}, {"a":3,"b":"","c":"filled","d":4}]`
	if got := strings.ReplaceAll(rows(t, conn, "o_staging"), "\n", ""); strings.Join(strings.Fields(got), " ") != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

// COPY … CSV would drop these quotes.
func TestQuotesInsideOfAValueStay(t *testing.T) {
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE inches (a text, b text)")
	if _, err := load(t, write(t, "i.csv", "a,b\n5\" disk,\"a \"\"b\"\"\"\n3.5\",\"x\ny\"\n"), Options{}, bulk.Options{To: pg.DSN(dsn), Table: "inches"}); err != nil {
		t.Fatal(err)
	}
	want := `[{"a":"3.5\"","b":"x\ny"}, {"a":"5\" disk","b":"a \"b\""}]`
	if got := strings.Join(strings.Fields(rows(t, conn, "inches_staging")), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzParser holds the parser against the splitter: both have to find the same records, and all bytes are taken.
func FuzzParser(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a\nb\",c\r\n", "\"", "a\"b\"c\n\n", ",,\n\r\n", "\"\"\"\"\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f.csv")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		set := lines.NewSet([]string{path}, nil, lines.Format{Quote: '"', Delimiter: ','})
		defer set.Close()
		var block lines.Block
		c := set.Cursor()
		p := parser{delimiter: ','}
		for c.Next(context.Background(), &block) == nil {
			n := 0
			for data := block.Data; len(data) > 0; n++ {
				_, took, _ := p.record(data)
				if took == 0 {
					t.Fatal("a record of no bytes")
				}
				data = data[took:]
			}
			if n != block.Count {
				t.Fatalf("%q: %d records, the splitter found %d", b, n, block.Count)
			}
		}
	})
}
