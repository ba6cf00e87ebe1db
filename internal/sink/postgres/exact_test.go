package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"synctl/internal/record"
	"synctl/internal/testkit"
)

// zoo are columns and values, as SQL, that have to come out with the same text. Literal ones lose something in JSON and
// are sent by their text besides.
var zoo = []struct {
	typ     string
	values  []string
	literal bool
}{
	{"bool", []string{"true", "false", "NULL"}, false},
	{"int2", []string{"-32768", "32767"}, false},
	{"int8", []string{"-9223372036854775808", "9223372036854775807"}, false},
	{"numeric", []string{"'12.30'", "'NaN'", "'Infinity'", "'-Infinity'", "'12345678901234567890123456789.123456789'", "'1e-20'"}, false},
	{"numeric(10,2)", []string{"'12.30'", "'NaN'"}, false},
	{"float4", []string{"'1.1'", "'NaN'", "'-0'", "'1e-40'"}, false},
	{"float8", []string{"'0.1'", "'Infinity'", "'-0'", "'1.7976931348623157e308'", "'5e-324'"}, false},
	{"money", []string{"'$1,234.50'"}, false},
	{"text", []string{"''", "' a '", `'q"\u0027'`, `E'tab\t\\ "x" \u00e9 \U0001F600'`, "'null'", "'{}'"}, false},
	{"varchar(5)", []string{"'abc'"}, false},
	{"char(5)", []string{"'ab'"}, false},
	{"name", []string{"'n'"}, false},
	{`"char"`, []string{"'x'"}, false},
	{"bytea", []string{`'\x00ff'`, "''"}, false},
	{"date", []string{"'2026-11-30'", "'infinity'", "'0044-03-15 BC'", "'10000-01-01'"}, false},
	{"timestamp", []string{"'2026-11-30 19:58:00.123456'", "'-infinity'", "'0044-03-15 01:02:03 BC'", "'294276-12-31 23:59:59.999999'"}, false},
	{"timestamptz", []string{"'2026-11-30 19:58:00.123456+00'", "'infinity'", "'0044-03-15 01:02:03 BC'"}, false},
	{"time", []string{"'24:00:00'", "'01:02:03.000001'"}, false},
	{"timetz", []string{"'01:02:03+05:30'"}, false},
	{"interval", []string{"'1 year -2 months 3 days 04:05:06.7'", "'-00:00:01'"}, false},
	{"uuid", []string{"'7d444840-9dc0-11d1-b245-5ffdce74fad2'"}, false},
	{"inet", []string{"'10.0.0.1/8'", "'::1'"}, false},
	{"cidr", []string{"'10.0.0.0/8'"}, false},
	{"macaddr", []string{"'08:00:2b:01:02:03'"}, false},
	{"bit(3)", []string{"B'101'"}, false},
	{"varbit", []string{"B'1'", "B''"}, false},
	{"xml", []string{"'<a>x</a>'"}, false},
	{"json", []string{`'{"a":1,"a":2.50}'`, `'"s"'`, `'1e2'`}, false},
	{"json", []string{"'null'"}, true},
	{"jsonb", []string{`'{"b":1.10,"a":[1e400]}'`, "'false'"}, false},
	{"jsonb", []string{"'null'"}, true},
	{"jsonb[]", []string{`ARRAY['null','{"a":null}']::jsonb[]`}, true},
	{"int[]", []string{"'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'"}, false},
	{"int[]", []string{"'[0:1]={1,2}'", "'[2:2][3:4]={{7,8}}'"}, true},
	{"text[]", []string{`ARRAY['a,b','"q"','NULL','',NULL]`}, false},
	{"int2vector", []string{"'1 2 3'"}, false},
	{"oidvector", []string{"'1 2'"}, false},
	{"point", []string{"'(1,2.5)'"}, false},
	{"box", []string{"'(3,4),(1,2)'"}, false},
	{"box[]", []string{"'{(3,4),(1,2);(7,8),(5,6)}'"}, false},
	{"int4range", []string{"'[1,5)'", "'empty'", "'(,)'"}, false},
	{"tstzrange", []string{`'["2026-11-30 00:00:00+00",)'`}, false},
	{"int4multirange", []string{"'{[1,3),[5,7)}'"}, false},
	{"tsvector", []string{"'''a'':1 ''b'':2'"}, false},
	{"mood", []string{"'ok'", "'so ''so'''"}, false},
	{"mood[]", []string{"'{ok,NULL}'"}, false},
	{"posint", []string{"7"}, false},
	{"posints", []string{"'{1,2}'"}, false},
	{"pair", []string{"ROW(1,'x')::pair", "ROW(NULL,NULL)::pair", "ROW(1,'')::pair"}, false},
	{"pair[]", []string{`ARRAY[ROW(1,'a,"b')::pair,NULL]`}, false},
	{"hstore", []string{`'"a"=>"1","b"=>NULL,"q\"x"=>"\\"'`, "''"}, false},
	{"hstore[]", []string{`ARRAY['"a"=>"1"'::hstore,NULL]`, `ARRAY[ARRAY['"a"=>"1"'::hstore],ARRAY['b=>2'::hstore]]`}, false},
	{"hpair", []string{`ROW('"a"=>"1"',2)::hpair`}, false},
	{"hpair[]", []string{`ARRAY[ROW('"a"=>"1"',2)::hpair]`}, false},
	{"citext", []string{"'MiXed'"}, false},
	{"pg_lsn", []string{"'0/16B3748'"}, false},
	{"regclass", []string{"'pg_class'"}, false},
}

const zooTypes = `CREATE EXTENSION hstore; CREATE EXTENSION citext;
CREATE TYPE mood AS ENUM ('ok', 'so ''so'''); CREATE DOMAIN posint AS int CHECK (value > 0); CREATE DOMAIN posints AS int[];
CREATE TYPE pair AS (a int, b text); CREATE TYPE hpair AS (h hstore, n int);`

func TestEveryValueComesOutAsItWas(t *testing.T) {
	var columns []string
	for i, z := range zoo {
		columns = append(columns, fmt.Sprintf("c%d %s", i, z.typ))
	}
	table := "(id int PRIMARY KEY, " + strings.Join(columns, ", ") + ")"
	b := newBench(t, zooTypes+"CREATE TABLE src "+table+"; CREATE TABLE t "+table+"; INSERT INTO src SELECT generate_series(1, 6)", Options{})
	ctx := context.Background()
	for i, z := range zoo {
		for j, v := range z.values {
			testkit.Exec(t, b.conn, fmt.Sprintf("UPDATE src SET c%d = %s WHERE id = %d", i, v, j+1))
		}
	}
	rows, err := b.conn.Query(ctx, "SELECT to_json(src)::text, id FROM src ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	var afters []string
	for rows.Next() {
		var after string
		var id int
		if err := rows.Scan(&after, &id); err != nil {
			t.Fatal(err)
		}
		afters = append(afters, strings.ReplaceAll(after, "\n", ""))
	}
	for id, after := range afters {
		var literal []string
		for i, z := range zoo {
			if !z.literal {
				continue
			}
			var text *string
			if err := b.conn.QueryRow(ctx, fmt.Sprintf("SELECT c%d::text FROM src WHERE id = %d", i, id+1)).Scan(&text); err != nil {
				t.Fatal(err)
			}
			if text != nil {
				literal = append(literal, fmt.Sprintf(`"c%d":%s`, i, record.AppendString(nil, *text)))
			}
		}
		extra := ""
		if len(literal) > 0 {
			extra = `,"literal":{` + strings.Join(literal, ",") + "}"
		}
		b.must("a", b.change("insert", "t", "", fmt.Sprintf(`"key":{"id":%d},"after":%s%s`, id+1, after, extra)))
		// And by an update, over a row that has nothing.
		testkit.Exec(t, b.conn, fmt.Sprintf("INSERT INTO t (id) VALUES (%d)", 100+id))
		moved := strings.Replace(after, fmt.Sprintf(`"id":%d`, id+1), fmt.Sprintf(`"id":%d`, 100+id), 1)
		b.must("a", b.change("update", "t", "", fmt.Sprintf(`"key":{"id":%d},"after":%s%s`, 100+id, moved, extra)))
	}
	for i, z := range zoo {
		for _, off := range []int{0, 99} {
			var bad int
			q := fmt.Sprintf("SELECT count(*) FROM src JOIN t ON t.id = src.id + %d WHERE t.c%d::text IS DISTINCT FROM src.c%d::text", off, i, i)
			if err := b.conn.QueryRow(ctx, q).Scan(&bad); err != nil {
				t.Fatal(err)
			}
			if bad > 0 {
				var got, want *string
				_ = b.conn.QueryRow(ctx, fmt.Sprintf("SELECT t.c%d::text, src.c%d::text FROM src JOIN t ON t.id = src.id + %d WHERE t.c%d::text IS DISTINCT FROM src.c%d::text LIMIT 1", i, i, off, i, i)).Scan(&got, &want)
				t.Errorf("%s: %d of %d values differ (offset %d): %v, want %v", z.typ, bad, len(z.values), off, deref(got), deref(want))
			}
		}
	}
}

func deref(s *string) string {
	if s == nil {
		return "NULL"
	}
	return *s
}
