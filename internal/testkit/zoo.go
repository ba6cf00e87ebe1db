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
	if _, err := conn.Exec(ctx, `CREATE TYPE zoo.hpair AS (h hstore, n int)`); err != nil {
		t.Logf("the zoo has no composite with an hstore: %v", err)
	}
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

const zooTypes = `CREATE SCHEMA zoo;
CREATE TYPE zoo.mood AS ENUM ('ok', 'so ''so''', 'a,b "c" {d} \e', '');
CREATE DOMAIN zoo.posint AS int CHECK (value > 0);
CREATE DOMAIN zoo.posposint AS zoo.posint;
CREATE DOMAIN zoo.ints AS int[];
CREATE DOMAIN zoo.intss AS zoo.ints;
CREATE DOMAIN zoo.doc AS jsonb;
CREATE DOMAIN zoo.at AS timestamptz;
CREATE TYPE zoo.pair AS (a int, b text);
CREATE DOMAIN zoo.dpair AS zoo.pair;
CREATE TYPE zoo.inner AS (p zoo.pair, ps zoo.pair[], m zoo.mood, ms zoo.mood[]);
CREATE TYPE zoo.outer AS ("odd ""name, {}" zoo.inner[], d zoo.dpair, ds zoo.dpair[], at zoo.at, j json, jb zoo.doc, f float8, b bytea, ok bool, x zoo.intss);
CREATE TYPE zoo.one AS (t text);
CREATE TYPE zoo.none AS ();
CREATE TYPE zoo.floatrange AS RANGE (subtype = float8, subtype_diff = float8mi);
CREATE TYPE zoo.textrange AS RANGE (subtype = text);
CREATE TABLE zoo.parent (id int PRIMARY KEY, doc json, at date);
`

// zooText is text with everything that some layer might take for its own.
const zooText = `E'a "b" ''c'' \\ , ; : {} () [] <> NULL null \t\n\r\b\f \x01\x1f\x7f é 😀 \u2028 % \\u0041 \\N'`

var zoo = []ZooColumn{
	{Type: "bool", Values: []string{"true", "false"}},
	{Type: "int2", Values: []string{"-32768", "32767", "0"}},
	{Type: "int4", Values: []string{"-2147483648", "2147483647", "0"}},
	{Type: "int8", Values: []string{"-9223372036854775808", "9223372036854775807", "9007199254740993", "0"}},
	{Type: "numeric", Values: []string{"'0'", "'-0.00'", "'12.30'", "'NaN'", "'Infinity'", "'-Infinity'", "'12345678901234567890123456789.123456789'", "'1e-30'", "'1e400'",
		"repeat('9', 131072)", "'0.' || repeat('1', 16383)"}},
	{Type: "numeric(20,6)", Values: []string{"'12.3'", "'-0'", "'NaN'"}},
	{Type: "float4", Values: []string{"'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "'3.4028235e38'", "'1e-45'", "'0.1'", "'16777217'", "'1e10'"}},
	{Type: "float8", Values: []string{"'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "'1.7976931348623157e308'", "'5e-324'", "'0.1'", "'1e15'", "'1e16'", "'123456789012345680'"}},
	{Type: "money", Values: []string{"'-92233720368547758.08'", "'1234.50'", "'0'"}},
	{Type: "text", Values: []string{"''", "' '", zooText, "'null'", "'NULL'", "'{}'", `'"'`, `'\'`, "repeat('é', 5000)", `'\x00'`, "E'\\ufeff'"}},
	{Type: "varchar(20)", Values: []string{"'abc'", "''", "'a  '"}},
	{Type: "char(5)", Values: []string{"'ab'", "''", "'é'"}},
	{Type: "name", Values: []string{"'n'", "'a \"b'", "''"}},
	{Type: `"char"`, Values: []string{"'x'", "''", "'\"'"}},
	{Type: "citext", Values: []string{"'MiXed'", "''"}},
	{Type: "bytea", Values: []string{`'\x00ff5c22'`, "''", `'\x'::bytea || convert_to(repeat('z', 100), 'UTF8')`}},
	{Type: "date", Values: []string{"'2026-11-30'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'4714-11-24 BC'", "'5874897-12-31'", "'0001-01-01'", "'10000-01-01'"}},
	{Type: "time", Values: []string{"'00:00'", "'24:00:00'", "'23:59:59.999999'", "'01:02:03.1'"}},
	{Type: "timetz", Values: []string{"'23:59:59.5+05:30'", "'00:00-15:59:59'", "'24:00+00'"}},
	{Type: "timestamp", Values: []string{"'2026-11-30 19:58:00.123456'", "'infinity'", "'-infinity'", "'4714-11-24 00:00 BC'", "'0044-03-15 12:00 BC'", "'294276-12-31 23:59:59.999999'",
		"'10000-01-01'", "'2026-11-30 19:58:00.1'", "'0001-01-01'", "'2016-12-31 23:59:60'"}},
	{Type: "timestamptz", Values: []string{"'2026-11-30 19:58:00.123456+02'", "'infinity'", "'-infinity'", "'4714-11-24 00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "'10000-01-01 00:00+00'"}},
	{Type: "timestamptz(2)", Values: []string{"'2026-11-30 19:58:00.129+02'"}},
	{Type: "interval", Values: []string{"'1 year -2 months 3 days 04:05:06.7'", "'-00:00:00.000001'", "'0'", "'178000000 years'", "'-178000000 years'", "'1 mon -1 day'", "'-2000:00:00.5'"}},
	{Type: "uuid", Values: []string{"'7d444840-9dc0-11d1-b245-5ffdce74fad2'", "'00000000-0000-0000-0000-000000000000'"}},
	{Type: "inet", Values: []string{"'10.0.0.1/8'", "'::1'", "'::ffff:1.2.3.4/96'", "'0.0.0.0/0'"}},
	{Type: "cidr", Values: []string{"'10.0.0.0/8'", "'2001:db8::/32'"}},
	{Type: "macaddr", Values: []string{"'08:00:2b:01:02:03'"}},
	{Type: "macaddr8", Values: []string{"'08:00:2b:01:02:03:04:05'"}},
	{Type: "bit(3)", Values: []string{"B'101'", "B'000'"}},
	{Type: "varbit", Values: []string{"B'1'", "B''", "repeat('10', 100)"}},
	{Type: "xml", Values: []string{`'<a b="c">x &amp; y</a>'`, "''", "E'<?xml version=\"1.0\"?>\\n<a/>'", "'plain'", "E'<a>\\n\\t</a>'"}},
	{Type: "json", Values: []string{"'null'", `'{"a":1,"a":2.50,"b":{}}'`, `'"s"'`, "'1e2'", "'-0'", `' { "a" :  [ 1 , null ] } '`, `E'{"a":\n [1,\t2],\r\n"b": 1e400}'`, `'"\u0000"'`, `'"\u00e9 \/ \ud83d\ude00"'`,
		`'{"\ud800":1}'`, "'true'", `'[]'`, `('{"' || repeat('k', 3000) || '": 123456789012345678901234567890.10}')`}},
	{Type: "jsonb", Values: []string{"'null'", `'{"b": 1.10, "a": [1e400, null, "x"], "": {}}'`, "'false'", `'"null"'`, "'-0.0'", `'"\u00e9 \n \" \\ "'`, "'{}'", "'[]'", "'1e-400'"}},
	{Type: "jsonpath", Values: []string{`'$."a"[*] ? (@ > 1)'`}},
	{Type: "tsvector", Values: []string{"'''a'':1 ''b'':2A ''c d'' ''e\\\\f'' '", "''"}},
	{Type: "tsquery", Values: []string{"'a & !b | ''c d'':*A'", "''"}},
	{Type: "point", Values: []string{"'(1,2.5)'", "'(NaN,-Infinity)'", "'(-0,1e300)'"}},
	{Type: "line", Values: []string{"'{1,-1,0}'"}},
	{Type: "lseg", Values: []string{"'[(0,0),(1,1)]'"}},
	{Type: "box", Values: []string{"'(3,4),(1,2)'"}},
	{Type: "path", Values: []string{"'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'"}},
	{Type: "polygon", Values: []string{"'((0,0),(1,1),(2,0))'"}},
	{Type: "circle", Values: []string{"'<(0,0),5>'"}},
	{Type: "pg_lsn", Values: []string{"'0/16B3748'", "'FFFFFFFF/FFFFFFFF'", "'0/0'"}},
	{Type: "txid_snapshot", Values: []string{"'10:20:10,14,15'"}},
	{Type: "pg_snapshot", Values: []string{"'10:20:10,14,15'"}},
	{Type: "xid", Values: []string{"'4294967295'"}},
	{Type: "xid8", Values: []string{"'18446744073709551615'", "'0'"}},
	{Type: "cid", Values: []string{"'7'"}},
	{Type: "tid", Values: []string{"'(4294967295,65535)'"}},
	{Type: "oid", Values: []string{"4294967295", "0"}},
	{Type: "regclass", Values: []string{"'pg_class'", "0"}},
	{Type: "regtype", Values: []string{"'double precision'", `'"char"'`, "'int[]'"}},
	{Type: "regproc", Values: []string{"'now'"}},
	{Type: "regprocedure", Values: []string{"'abs(numeric)'"}},
	{Type: "regoper", Values: []string{"'||/'"}},
	{Type: "regoperator", Values: []string{"'+(integer,integer)'"}},
	{Type: "regrole", Values: []string{"'postgres'"}},
	{Type: "regnamespace", Values: []string{"'pg_catalog'"}},
	{Type: "regconfig", Values: []string{"'english'"}},
	{Type: "regdictionary", Values: []string{"'simple'"}},
	{Type: "regcollation", Values: []string{`'"C"'`}},
	{Type: "refcursor", Values: []string{"'cur'"}},
	{Type: "aclitem", Values: []string{"'postgres=r/postgres'"}},
	{Type: "int2vector", Values: []string{"'1 -2 3'", "''"}},
	{Type: "oidvector", Values: []string{"'1 4294967295'", "''"}},
	{Type: "int4range", Values: []string{"'[1,5)'", "'empty'", "'(,)'", "'(,5)'"}},
	{Type: "int8range", Values: []string{"'[1,9223372036854775807)'"}},
	{Type: "numrange", Values: []string{"'(1.50,NaN]'", "'[-Infinity,Infinity)'"}},
	{Type: "daterange", Values: []string{"'[0044-03-15 BC,infinity)'", "'[2026-11-30,)'"}},
	{Type: "tsrange", Values: []string{`'["2026-11-30 00:00:00","infinity")'`}},
	{Type: "tstzrange", Values: []string{`'["2026-11-30 00:00:00+00",)'`}},
	{Type: "zoo.floatrange", Values: []string{"'[-0,1e300)'"}},
	{Type: "zoo.textrange", Values: []string{`'["a,\"b\\\\","z()"]'`, "'[\"\",b)'"}},
	{Type: "int4multirange", Values: []string{"'{[1,3),[5,7)}'", "'{}'", "'{(,)}'"}},
	{Type: "tstzmultirange", Values: []string{`'{["2026-11-30 00:00:00+00","2027-01-01 00:00:00+00"),[2028-01-01,)}'`}},
	{Type: "nummultirange", Values: []string{"'{[1.10,2],(3,Infinity)}'"}},
	{Type: "zoo.mood", Values: []string{"'ok'", "'so ''so'''", `'a,b "c" {d} \e'`, "''"}},
	{Type: "zoo.posint", Values: []string{"7"}},
	{Type: "zoo.posposint", Values: []string{"7"}},
	{Type: "zoo.ints", Values: []string{"'{1,NULL}'", "'{}'", "'[0:0]={1}'"}},
	{Type: "zoo.intss", Values: []string{"'{{1,2},{3,4}}'"}},
	{Type: "zoo.doc", Values: []string{`'{"a": null}'`, "'null'"}},
	{Type: "zoo.at", Values: []string{"'2026-11-30 19:58:00+00'", "'infinity'"}},
	{Type: "zoo.pair", Values: []string{"ROW(1, " + zooText + ")", "ROW(NULL, NULL)", "ROW(NULL, '')", "ROW(1, 'NULL')"}},
	{Type: "zoo.dpair", Values: []string{"ROW(1, 'x')::zoo.pair", "ROW(NULL, NULL)::zoo.pair"}},
	{Type: "zoo.one", Values: []string{"ROW('')", "ROW(NULL)", "ROW('a,b')"}},
	{Type: "zoo.none", Values: []string{"ROW()"}},
	{Type: "zoo.parent", Values: []string{`ROW(1, '{"a": [1]}', '0044-03-15 BC')`, "ROW(1, 'null', 'infinity')"}},
	{Type: "zoo.outer", Values: []string{
		"ROW(ARRAY[ROW(ROW(1, " + zooText + ")::zoo.pair, ARRAY[ROW(2, 'q\"')::zoo.pair, NULL, ROW(NULL, '')::zoo.pair], 'ok', ARRAY['so ''so''', NULL, '']::zoo.mood[])::zoo.inner, NULL], " +
			"ROW(3, '\\')::zoo.pair, ARRAY[ROW(4, 'd')::zoo.pair::zoo.dpair], '2026-11-30 19:58:00+00', '{\"a\": \"b\\\\c\"}', '{\"x\": [1, \"y\"]}', 'NaN', '\\x00ff', true, '{{1,NULL},{3,4}}')",
		"ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
		"ROW('{}', ROW(NULL, NULL)::zoo.pair, '[0:0]={\"(1,)\"}', '-infinity', 'null', 'null', '-0', '', false, '{}')"}},
	// Arrays
	{Type: "int[]", Values: []string{"'{1,NULL,3}'", "'{{1,2},{3,4}}'", "'{}'", "'[0:1]={1,2}'", "'[2:2][-1:0]={{1,2}}'", "'{{{{{{1}}}}}}'"}},
	{Type: "bool[]", Values: []string{"'{t,f,NULL}'"}},
	{Type: "float8[]", Values: []string{"'{NaN,-0,Infinity,1e300,NULL}'"}},
	{Type: "numeric[]", Values: []string{"'{NaN,1.0,-Infinity,1e40}'"}},
	{Type: "text[]", Values: []string{"ARRAY['', 'NULL', 'null', 'a b', '{', '\"', '\\', NULL, " + zooText + "]", "ARRAY[ARRAY['a,b'], ARRAY['']]"}},
	{Type: "char(3)[]", Values: []string{"ARRAY['a', '']"}},
	{Type: `"char"[]`, Values: []string{`ARRAY['x', '', ',']::"char"[]`}},
	{Type: "bytea[]", Values: []string{`ARRAY['\x00ff', '']::bytea[]`}},
	{Type: "date[]", Values: []string{"'{2026-11-30,infinity,0044-03-15 BC,NULL}'"}},
	{Type: "timestamp[]", Values: []string{"'{2026-11-30 01:02:03.4,-infinity}'"}},
	{Type: "timestamptz[]", Values: []string{"'{{2026-11-30 19:58:00+00},{infinity}}'"}},
	{Type: "interval[]", Values: []string{"'{1 day 02:03:04,-1 mon}'"}},
	{Type: "json[]", Values: []string{`ARRAY['{"a": "b\\c"}', '[1, 2]', NULL]::json[]`, "ARRAY['null']::json[]", `ARRAY['"\u0000"']::json[]`}},
	{Type: "jsonb[]", Values: []string{`ARRAY['{"a": "b\\c"}', NULL]::jsonb[]`, "ARRAY['null', '[null]']::jsonb[]", `'[3:3]={"{\"a\": 1}"}'`}},
	{Type: "box[]", Values: []string{"'{(3,4),(1,2);(7,8),(5,6)}'", "'{{(3,4),(1,2)};{NULL}}'"}},
	{Type: "point[]", Values: []string{`'{"(1,2)",NULL}'`}},
	{Type: "int4range[]", Values: []string{`'{"[1,5)",empty,NULL}'`}},
	{Type: "int4multirange[]", Values: []string{`ARRAY['{[1,3),[5,7)}', NULL]::int4multirange[]`}},
	{Type: "int2vector[]", Values: []string{"ARRAY['1 2'::int2vector, NULL]"}},
	{Type: "xml[]", Values: []string{"ARRAY['<a b=\"c\"/>']::xml[]"}},
	{Type: "uuid[]", Values: []string{"'{7d444840-9dc0-11d1-b245-5ffdce74fad2,NULL}'"}},
	{Type: "inet[]", Values: []string{"'{10.0.0.1/8,::1}'"}},
	{Type: "money[]", Values: []string{"ARRAY['1234.50'::money]"}},
	{Type: "varbit[]", Values: []string{"'{101,NULL}'"}},
	{Type: "tsvector[]", Values: []string{"ARRAY['''a'':1'::tsvector]"}},
	{Type: "regtype[]", Values: []string{"ARRAY['double precision'::regtype]"}},
	{Type: "zoo.mood[]", Values: []string{`ARRAY['ok', NULL, 'a,b "c" {d} \e', '']::zoo.mood[]`}},
	{Type: "zoo.posint[]", Values: []string{"'{1,NULL}'"}},
	{Type: "zoo.ints[]", Values: []string{"ARRAY['{1,2}'::zoo.ints, '{3}'::zoo.ints, NULL]", "ARRAY['{1,2}'::zoo.ints]", "'{}'", "ARRAY['[0:0]={1}'::zoo.ints]"}},
	{Type: "zoo.pair[]", Values: []string{"ARRAY[ROW(1, " + zooText + ")::zoo.pair, NULL, ROW(NULL, '')::zoo.pair]"}},
	{Type: "zoo.dpair[]", Values: []string{"ARRAY[ROW(1, 'a\"b')::zoo.pair::zoo.dpair, NULL]"}},
	{Type: "zoo.one[]", Values: []string{"ARRAY[ROW('')::zoo.one, ROW(NULL)::zoo.one]"}},
	{Type: "zoo.outer[]", Values: []string{"ARRAY[ROW(ARRAY[ROW(ROW(1, " + zooText + ")::zoo.pair, NULL, NULL, NULL)::zoo.inner], NULL, NULL, 'infinity', '[1]', '\"\\\\\"', '-0', NULL, NULL, NULL)::zoo.outer, NULL]"}},
	{Type: "zoo.textrange[]", Values: []string{`ARRAY['["a,\"b\\","z()"]']::zoo.textrange[]`}},
	{Type: "hstore", Values: []string{"''", `'a=>1, "b c"=>NULL, "q\"\\"=>"x,y", ""=>""'`, `'NULL=>"NULL"'`, `hstore('k', ` + zooText + `)`}},
	{Type: "hstore[]", Values: []string{`ARRAY['"a"=>"1"'::hstore, NULL]`, `ARRAY[ARRAY['"a"=>"1"'::hstore], ARRAY['"q\""=>"\\"'::hstore]]`}},
	{Type: "citext[]", Values: []string{"ARRAY['A', 'a', NULL]::citext[]"}},
	{Type: "zoo.hpair", Values: []string{"ROW('\"a\"=>\"1\", \"q\\\"\"=>NULL', 2)", "ROW('', NULL)"}},
	{Type: "zoo.hpair[]", Values: []string{`ARRAY[ROW('"q\""=>"\\"', 2)::zoo.hpair, NULL]`}},
	{Type: "ltree", Values: []string{"'Top.Science'"}},
	{Type: "cube", Values: []string{"'(1,2),(3,4)'"}},
	{Type: "isbn13", Values: []string{"'978-0-393-04002-9'"}},
}
