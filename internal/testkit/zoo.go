package testkit

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// ZooColumn is a column of the zoo: a type and, as SQL, values of it that are ordinary, extreme and odd.
type ZooColumn struct {
	Name, Type string
	Values     []string
}

// ZooTable is the zoo's table. Column id is its key; every other column is one of Zoo's.
const ZooTable = "public.zoo"

// ZooDDL makes the types and the table of the zoo in an empty database. Extensions that the server does not have are left
// out, with what depends on them, and named.
func ZooDDL(t testing.TB, conn *pgx.Conn) (columns []ZooColumn) {
	t.Helper()
	ctx := context.Background()
	for _, ext := range []string{"hstore", "citext", "ltree", "cube", "isn"} {
		if _, err := conn.Exec(ctx, "CREATE EXTENSION "+ext); err != nil {
			t.Logf("the zoo has no %s: %v", ext, err)
		}
	}
	Exec(t, conn, zooTypes)
	ddl := "CREATE TABLE " + ZooTable + " (id int PRIMARY KEY"
	for i, c := range zoo {
		var known bool
		if err := conn.QueryRow(ctx, `SELECT to_regtype($1) IS NOT NULL`, c.Type).Scan(&known); err != nil {
			t.Fatal(err)
		}
		if !known {
			t.Logf("the zoo has no column of type %s", c.Type)
			continue
		}
		c.Name = fmt.Sprintf("c%d", i)
		ddl += fmt.Sprintf(", %s %s", c.Name, c.Type)
		columns = append(columns, c)
	}
	Exec(t, conn, ddl+")")
	return columns
}

// ZooRows inserts every value of every column, each in a row of its own, and gives what each row holds.
func ZooRows(t testing.TB, conn *pgx.Conn, columns []ZooColumn) (rows []string) {
	t.Helper()
	var sql strings.Builder
	for _, c := range columns {
		for _, v := range append(c.Values, "NULL") {
			rows = append(rows, c.Type+" "+v)
			fmt.Fprintf(&sql, "INSERT INTO %s (id, %s) VALUES (%d, (%s)::%s);\n", ZooTable, c.Name, len(rows), v, c.Type)
		}
	}
	Exec(t, conn, sql.String())
	return rows
}

const zooTypes = `
CREATE TYPE mood AS ENUM ('ok', 'very good', 'a"b\c', '');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE nest AS (p pair, ps pair[], j json, t timestamptz, n numeric, "odd ""name" text);
CREATE DOMAIN money_d AS numeric(12,2) CHECK (VALUE > -1000);
CREATE DOMAIN ints AS int[];
CREATE DOMAIN pair_d AS pair;
CREATE DOMAIN deep AS money_d;
CREATE TYPE textrange AS RANGE (subtype = text);
CREATE TYPE empty AS ();
`

var zoo = []ZooColumn{
	{Type: "boolean", Values: []string{"true", "false"}},
	{Type: "smallint", Values: []string{"0", "-32768", "32767"}},
	{Type: "integer", Values: []string{"0", "-2147483648", "2147483647"}},
	{Type: "bigint", Values: []string{"'-9223372036854775808'", "9223372036854775807", "9007199254740993"}},
	{Type: "real", Values: []string{"'-0'", "1e-45", "3.4028235e38", "'NaN'", "'Infinity'", "'-Infinity'", "0.1"}},
	{Type: "double precision", Values: []string{"'-0'", "5e-324", "1.7976931348623157e308", "'NaN'", "'-Infinity'", "0.1", "1e21", "123456789012345680"}},
	{Type: "numeric", Values: []string{"12.30", "12345678901234567890123456789.000000000000000001", "'NaN'", "'Infinity'", "'-Infinity'", "1e-20", "1e100", "0.00", "-0.0", "(repeat('9', 1000) || '.' || repeat('1', 500))::numeric"}},
	{Type: "numeric(10,2)", Values: []string{"1.5", "-0.01"}},
	{Type: "money", Values: []string{"'1234.56'", "'-92233720368547758.08'"}},
	{Type: "text", Values: []string{"''", "'null'", "'NULL'", "'ünïcødé 😀 \u2028'", `E'tab\t nl\n cr\r quote" back\\ \x01\x1f\x7f bs\b ff\f'`, "'</script>&'", "repeat('é', 5000)"}},
	{Type: "varchar(10)", Values: []string{"'abc'", "' a '"}},
	{Type: "char(5)", Values: []string{"'ab'", "''"}},
	{Type: `"char"`, Values: []string{"'a'", "''"}},
	{Type: "name", Values: []string{"'some name'"}},
	{Type: "bytea", Values: []string{`'\x'`, `'\x00ff5c22'`}},
	{Type: "date", Values: []string{"'2026-11-30'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'4713-01-01 BC'", "'5874897-12-31'", "'0001-01-01'"}},
	{Type: "time", Values: []string{"'00:00'", "'24:00:00'", "'23:59:59.999999'"}},
	{Type: "timetz", Values: []string{"'12:34:56.789+05:45'", "'24:00-15:59'"}},
	{Type: "timestamp", Values: []string{"'2026-11-30 19:58:00.123456'", "'infinity'", "'-infinity'", "'4713-01-01 00:00:00 BC'", "'294276-12-31 23:59:59.999999'", "'0001-01-01'", "'2000-01-01 00:00:00.1'"}},
	{Type: "timestamptz", Values: []string{"'2026-11-30 19:58:00.123456+02'", "'infinity'", "'-infinity'", "'4713-01-01 12:00:00+00 BC'", "'294276-12-31 23:59:59+00'", "'0044-03-15 12:00 BC'"}},
	{Type: "interval", Values: []string{"'1 year -2 mons 3 days -04:05:06.789'", "'0'", "'-178000000 years'", "'00:00:00.000001'"}},
	{Type: "json", Values: []string{`'{"a": 1,  "a": 2, "n": 12345678901234567890.10}'`, `'null'`, `E'[1,\n 2]'`, `'"\u0000"'`, `' "x" '`, `'1e400'`, `'{"s": "a\nb"}'`, `'-0'`}},
	{Type: "jsonb", Values: []string{`'{"b": 1, "a": [1.50, null]}'`, `'null'`, `'1e400'`, `'"text"'`, `'{}'`}},
	{Type: "jsonpath", Values: []string{`'$.a[*] ? (@.b == "x")'`}},
	{Type: "xml", Values: []string{`'<a b="c">d</a>'`}},
	{Type: "uuid", Values: []string{"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"}},
	{Type: "inet", Values: []string{"'10.1.2.3/8'", "'::1'", "'fe80::1/64'"}},
	{Type: "cidr", Values: []string{"'10.0.0.0/8'", "'::/0'"}},
	{Type: "macaddr", Values: []string{"'08:00:2b:01:02:03'"}},
	{Type: "macaddr8", Values: []string{"'08:00:2b:01:02:03:04:05'"}},
	{Type: "bit(3)", Values: []string{"B'101'"}},
	{Type: "varbit", Values: []string{"B''", "B'1010101010101'"}},
	{Type: "tsvector", Values: []string{`'fat:2A rat:3 ''it''''s'':1'`, "''"}},
	{Type: "tsquery", Values: []string{`'fat & (rat | !cat:ab)'`}},
	{Type: "point", Values: []string{"'(1.5,-2)'", "'(NaN,Infinity)'"}},
	{Type: "line", Values: []string{"'{1,2,3}'"}},
	{Type: "lseg", Values: []string{"'[(0,0),(1,1)]'"}},
	{Type: "box", Values: []string{"'(1,1),(0,0)'"}},
	{Type: "path", Values: []string{"'[(0,0),(1,1)]'", "'((0,0),(1,1))'"}},
	{Type: "polygon", Values: []string{"'((0,0),(1,1),(1,0))'"}},
	{Type: "circle", Values: []string{"'<(0,0),1.5>'"}},
	{Type: "pg_lsn", Values: []string{"'16/B374D848'"}},
	{Type: "xid", Values: []string{"'4294967295'"}},
	{Type: "xid8", Values: []string{"'18446744073709551615'"}},
	{Type: "cid", Values: []string{"'1'"}},
	{Type: "tid", Values: []string{"'(1,2)'"}},
	{Type: "oid", Values: []string{"4294967295"}},
	{Type: "regclass", Values: []string{"'pg_class'"}},
	{Type: "regtype", Values: []string{"'integer'"}},
	{Type: "pg_snapshot", Values: []string{"'10:20:10,14,15'"}},
	{Type: "int2vector", Values: []string{"'1 2 3'", "''"}},
	{Type: "oidvector", Values: []string{"'1 4294967295'"}},
	{Type: "int4range", Values: []string{"'[1,10)'", "'empty'", "'(,5]'"}},
	{Type: "numrange", Values: []string{"'[1.50,2.50]'"}},
	{Type: "tstzrange", Values: []string{`'["2026-01-01 00:00+00",infinity)'`}},
	{Type: "daterange", Values: []string{"'[2026-01-01,)'"}},
	{Type: "textrange", Values: []string{`'["a ""b","c,d")'`}},
	{Type: "int4multirange", Values: []string{"'{[1,3),[5,9)}'", "'{}'"}},
	{Type: "tsmultirange", Values: []string{"'{[2026-01-01,2026-02-01)}'"}},
	{Type: "integer[]", Values: []string{"'{}'", "'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'[0:2]={1,2,3}'", "'[2:3][-1:0]={{1,2},{3,4}}'", "'{{{1},{2}},{{3},{4}}}'"}},
	{Type: "text[]", Values: []string{`ARRAY['', 'null', 'NULL', 'a"b', 'c\d', 'e,f', '{g}', ' h ', E'i\nj', 'ü']`, "ARRAY[NULL]::text[]", "ARRAY[ARRAY['a','b'],ARRAY['c',NULL]]"}},
	{Type: "boolean[]", Values: []string{"'{t,f,NULL}'"}},
	{Type: "numeric[]", Values: []string{"'{1.50,NaN,-Infinity,1e30}'"}},
	{Type: "double precision[]", Values: []string{"'{-0,NaN,Infinity,1e-300}'"}},
	{Type: "timestamptz[]", Values: []string{`'{"2026-11-30 19:58:00+00",infinity,"0044-03-15 12:00+00 BC"}'`}},
	{Type: "timestamp[]", Values: []string{`'{"2026-11-30 19:58:00",-infinity}'`}},
	{Type: "date[]", Values: []string{`'{2026-11-30,infinity}'`}},
	{Type: "bytea[]", Values: []string{`ARRAY['\x00ff'::bytea, '\x']`}},
	{Type: "json[]", Values: []string{`ARRAY['{"a":  [1, null]}'::json, 'null', '"x\"y"', NULL]`}},
	{Type: "jsonb[]", Values: []string{`ARRAY['{"a": 1}'::jsonb, 'null', NULL]`}},
	{Type: "box[]", Values: []string{"'{(1,1),(0,0);(2,2),(1,1)}'"}},
	{Type: "point[]", Values: []string{`'{"(1,2)","(3,4)"}'`}},
	{Type: "int4range[]", Values: []string{`'{"[1,3)",empty}'`}},
	{Type: "uuid[]", Values: []string{"'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"}},
	{Type: "interval[]", Values: []string{`'{"1 day","-00:00:01"}'`}},
	{Type: "mood", Values: []string{"'ok'", "'very good'", `'a"b\c'`, "''"}},
	{Type: "mood[]", Values: []string{`ARRAY['ok','','a"b\c']::mood[]`}},
	{Type: "pair", Values: []string{"ROW(1,'x')", "ROW(NULL,NULL)", "ROW(1,'')", `ROW(-1,E'a"b\\c,(d)\n')`}},
	{Type: "pair[]", Values: []string{`ARRAY[ROW(1,'a"b\c,d')::pair, NULL, ROW(NULL,'')::pair]`, "ARRAY[ARRAY[ROW(1,'x')::pair],ARRAY[ROW(2,'y')::pair]]"}},
	{Type: "nest", Values: []string{`ROW(ROW(1,'a"b')::pair, ARRAY[ROW(2,'c\d')::pair, NULL], '{"k":  [1]}', '2026-01-01 00:00+00', 'NaN', '"')`, "ROW(NULL,NULL,'null',NULL,NULL,NULL)", "ROW(NULL,'{}',NULL,'infinity',1.10,'')"}},
	{Type: "nest[]", Values: []string{`ARRAY[ROW(ROW(1,'"\"')::pair, ARRAY[ROW(2,'{,}')::pair], '{"k": "\\"}', NULL, -0.0, '\')::nest]`}},
	{Type: "empty", Values: []string{"ROW()"}},
	{Type: "money_d", Values: []string{"1.5", "'NaN'"}},
	{Type: "deep", Values: []string{"2.25"}},
	{Type: "deep[]", Values: []string{"'{1.5,2}'"}},
	{Type: "ints", Values: []string{"'{1,2}'", "'[5:6]={1,2}'"}},
	{Type: "pair_d", Values: []string{"ROW(1,'x')"}},
	{Type: "pair_d[]", Values: []string{"ARRAY[ROW(1,'x')::pair_d]"}},
	{Type: "hstore", Values: []string{`'a=>1, "b c"=>NULL, "d\"e"=>"\\", ""=>"t"'`, "''"}},
	{Type: "hstore[]", Values: []string{`ARRAY['a=>1'::hstore, '"x\"y"=>NULL']`}},
	{Type: "citext", Values: []string{"'Abc'"}},
	{Type: "citext[]", Values: []string{"'{A,b}'"}},
	{Type: "ltree", Values: []string{"'Top.Science'"}},
	{Type: "cube", Values: []string{"'(1,2),(3,4)'"}},
	{Type: "isbn13", Values: []string{"'978-0-393-04002-9'"}},
}
