package testkit

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// ZooKeysDDL makes a table (k, v int) for every type of zooKeys, its primary key of that type, and names those that the
// server can have. The zoo's types have to be there.
func ZooKeysDDL(t testing.TB, conn *pgx.Conn) (tables []string) {
	t.Helper()
	for i, k := range zooKeys {
		var known bool
		if err := conn.QueryRow(context.Background(), `SELECT to_regtype($1) IS NOT NULL`, k.Type).Scan(&known); err != nil {
			t.Fatal(err)
		}
		if !known {
			continue
		}
		table := fmt.Sprintf("zoo.by_%d", i)
		Exec(t, conn, fmt.Sprintf("CREATE TABLE %s (k %s PRIMARY KEY, v int)", table, k.Type))
		tables = append(tables, table)
	}
	return tables
}

// ZooKeyChanges inserts, updates, moves to another key and deletes in a table of ZooKeysDDL: of the type's four values
// the first stays, the second becomes the third, and the fourth goes.
func ZooKeyChanges(t testing.TB, conn *pgx.Conn, table string) {
	t.Helper()
	v := zooKey(t, table).Values
	for _, sql := range []string{
		fmt.Sprintf("INSERT INTO %s VALUES (%s, 1), (%s, 2), (%s, 4)", table, v[0], v[1], v[3]),
		fmt.Sprintf("UPDATE %s SET v = v + 10", table),
		fmt.Sprintf("UPDATE %s SET k = %s, v = 3 WHERE v = 12", table, v[2]),
		fmt.Sprintf("UPDATE %s SET v = 13 WHERE v = 3", table),
		fmt.Sprintf("DELETE FROM %s WHERE v = 14", table),
	} {
		Exec(t, conn, sql)
	}
}

// ZooKeyMove inserts two rows into a table of ZooKeysDDL, changes one, and moves it to another key.
func ZooKeyMove(t testing.TB, conn *pgx.Conn, table string) {
	t.Helper()
	v := zooKey(t, table).Values
	Exec(t, conn, fmt.Sprintf("INSERT INTO %s VALUES (%s, 1), (%s, 2)", table, v[0], v[1]))
	Exec(t, conn, fmt.Sprintf("UPDATE %s SET v = 3 WHERE v = 2", table))
	Exec(t, conn, fmt.Sprintf("UPDATE %s SET k = %s WHERE v = 3", table, v[2]))
}

func zooKey(t testing.TB, table string) ZooColumn {
	t.Helper()
	var i int
	if _, err := fmt.Sscanf(table, "zoo.by_%d", &i); err != nil {
		t.Fatalf("table %s: %v", table, err)
	}
	return zooKeys[i]
}

// zooKeys are types for primary keys, with four values each.
var zooKeys = []ZooColumn{
	{Type: "int8", Values: []string{"-9223372036854775808", "0", "9007199254740993", "1"}},
	{Type: "numeric", Values: []string{"'NaN'", "'1.10'", "'-Infinity'", "'1e40'"}},
	{Type: "float8", Values: []string{"'NaN'", "'-Infinity'", "'0.1'", "'1e300'"}},
	{Type: "text", Values: []string{"''", zooText, "'.'", `'\'`}},
	{Type: "citext", Values: []string{"'X'", "'A'", "'a'", "'b'"}},
	{Type: "char(5)", Values: []string{"'a'", "''", "'b'", "'c'"}},
	{Type: "bytea", Values: []string{"''", `'\x00'`, `'\xff'`, `'\x5c'`}},
	{Type: "date", Values: []string{"'infinity'", "'0044-03-15 BC'", "'10000-01-01'", "'2026-11-30'"}},
	{Type: "timestamptz", Values: []string{"'infinity'", "'0044-03-15 00:00+00 BC'", "'294276-12-31 23:59:59.999999+00'", "'2026-11-30 00:00+00'"}},
	{Type: "interval", Values: []string{"'1 mon'", "'1 day'", "'24:00:00.1'", "'0'"}},
	{Type: "uuid", Values: []string{"'00000000-0000-0000-0000-000000000000'", "'00000000-0000-0000-0000-000000000001'", "'00000000-0000-0000-0000-000000000002'", "'00000000-0000-0000-0000-000000000003'"}},
	{Type: "inet", Values: []string{"'10.0.0.1/8'", "'10.0.0.1'", "'::1'", "'::2'"}},
	{Type: "zoo.mood", Values: []string{"'ok'", "'so ''so'''", `'a,b "c" {d} \e'`, "''"}},
	{Type: "zoo.posint", Values: []string{"1", "2", "3", "4"}},
	{Type: "int[]", Values: []string{"'{}'", "'{1,NULL}'", "'[0:0]={1}'", "'{{1,2}}'"}},
	{Type: "zoo.pair", Values: []string{"ROW(1, 'a')", "ROW(1, '\"')", "ROW(2, '')", "ROW(3, 'c')"}},
	{Type: "jsonb", Values: []string{"'null'", `'{"a": 1.10}'`, "'[]'", "'1'"}},
	{Type: "int4range", Values: []string{"'empty'", "'[1,2)'", "'(,)'", "'[5,)'"}},
	{Type: "bit(2)", Values: []string{"B'00'", "B'01'", "B'10'", "B'11'"}},
	{Type: "pg_lsn", Values: []string{"'0/0'", "'0/1'", "'1/0'", "'2/0'"}},
	{Type: "oid", Values: []string{"0", "1", "4294967295", "2"}},
	{Type: `"char"`, Values: []string{"'a'", "''", "'\"'", "'z'"}},
	{Type: "money", Values: []string{"'1'", "'-1234.50'", "'0'", "'5'"}},
	{Type: "tsvector", Values: []string{"''", "'''a'':1'", "'''b'':2A'", "'''c'''"}},
}
