package postgres

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// column is a column of a target table.
type column struct {
	name      string
	ident     string // quoted
	declared  string // type with its modifier, to declare it in a record set
	bare      string // type without a modifier: a cast to it does not cut what is too long
	equals    string // the operator of the key's index, qualified; plain = where there is none
	generated bool
	always    bool  // GENERATED ALWAYS AS IDENTITY
	hstore    *tree // where hstore values are in it; nil: nowhere
}

// table is a target table as the catalogue has it.
type table struct {
	schema, name string
	ident        string
	partitioned  bool
	columns      []*column
	byName       map[string]*column
	unique       []uniqueIndex
	shapes       map[string]*shape
	checked      bool // whether it has an index for its key
	acts         bool // has triggers or cascading foreign keys that fire in our session
}

// uniqueIndex is a unique index over plain columns, without a predicate.
type uniqueIndex struct {
	name    string
	columns []string
}

// tree says where in a value hstore occurs: JSON holds an object there, which has to become hstore's text.
type tree struct {
	self   bool             // the value itself
	elem   *tree            // an array's elements
	fields map[string]*tree // a composite's attributes, by JSON-quoted name
}

const columnSQL = `
SELECT a.attname, format_type(a.atttypid, a.atttypmod), format_type(a.atttypid, -1), a.attgenerated <> '', a.attidentity = 'a', a.atttypid
FROM pg_attribute a WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

const indexSQL = `
SELECT c.relname, array_agg(a.attname::text ORDER BY k.n),
	array_agg(format('OPERATOR(%I.%s)', n.nspname, o.oprname) ORDER BY k.n)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
CROSS JOIN LATERAL unnest(i.indkey[0:i.indnkeyatts-1]::int2[], i.indclass[0:i.indnkeyatts-1]::oid[]) WITH ORDINALITY AS k(attnum, opclass, n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
JOIN pg_opclass oc ON oc.oid = k.opclass
JOIN pg_amop am ON am.amopfamily = oc.opcfamily AND am.amopstrategy = 3 AND am.amoplefttype = oc.opcintype AND am.amoprighttype = oc.opcintype
JOIN pg_operator o ON o.oid = am.amopopr JOIN pg_namespace n ON n.oid = o.oprnamespace
WHERE i.indrelid = $1 AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indislive
GROUP BY c.relname, i.indisprimary ORDER BY i.indisprimary DESC, c.relname`

// actsSQL tells whether a change of the table makes others: by a trigger, or by a foreign key that cascades into it.
const actsSQL = `
SELECT current_setting('session_replication_role') <> 'replica' AND (
	EXISTS (SELECT FROM pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal AND tgenabled IN ('O', 'A'))
	OR EXISTS (SELECT FROM pg_constraint WHERE contype = 'f' AND $1 IN (conrelid, confrelid) AND (confdeltype IN ('c', 'n', 'd') OR confupdtype IN ('c', 'n', 'd'))))`

// hstoreSQL lists the types that hold hstore at some depth: arrays and composites of it, and domains.
const hstoreSQL = `
SELECT t.oid, t.typtype::text, CASE WHEN t.typtype = 'd' THEN t.typbasetype WHEN t.typcategory = 'A' THEN t.typelem ELSE 0 END, t.typrelid, t.typname
FROM pg_type t WHERE t.oid = $1`

// loadTable reads a table from the catalogue.
func loadTable(ctx context.Context, conn *pgx.Conn, schema, name string) (*table, error) {
	t := &table{schema: schema, name: name, ident: pg.Ident(schema, name), byName: map[string]*column{}, shapes: map[string]*shape{}}
	var oid uint32
	var kind string
	err := conn.QueryRow(ctx, `SELECT c.oid, c.relkind::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relname = $2 AND c.relkind IN ('r', 'p', 'f', 'v')`, schema, name).Scan(&oid, &kind)
	if err == pgx.ErrNoRows {
		return nil, fault.New(fault.Failed,
			"Create it (pg_dump --schema-only of the source), send its records to another one with --map "+schema+"."+name+"=schema.table, or leave them out with --only.",
			"table %s.%s does not exist in the target database", schema, name)
	}
	if err != nil {
		return nil, err
	}
	t.partitioned = kind == "p"
	if err := t.loadColumns(ctx, conn, oid); err != nil {
		return nil, err
	}
	if err := t.loadIndexes(ctx, conn, oid); err != nil {
		return nil, err
	}
	return t, conn.QueryRow(ctx, actsSQL, oid).Scan(&t.acts)
}

func (t *table) loadColumns(ctx context.Context, conn *pgx.Conn, oid uint32) error {
	rows, err := conn.Query(ctx, columnSQL, oid)
	if err != nil {
		return err
	}
	var types []uint32
	for rows.Next() {
		c := &column{equals: "="}
		var typ uint32
		if err := rows.Scan(&c.name, &c.declared, &c.bare, &c.generated, &c.always, &typ); err != nil {
			return err
		}
		c.ident = pg.Ident(c.name)
		t.columns = append(t.columns, c)
		t.byName[c.name] = c
		types = append(types, typ)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for i, c := range t.columns {
		if c.hstore, err = hstoreTree(ctx, conn, types[i], 0); err != nil {
			return err
		}
	}
	return nil
}

func (t *table) loadIndexes(ctx context.Context, conn *pgx.Conn, oid uint32) error {
	rows, err := conn.Query(ctx, indexSQL, oid)
	if err != nil {
		return err
	}
	for rows.Next() {
		var u uniqueIndex
		var ops []string
		if err := rows.Scan(&u.name, &u.columns, &ops); err != nil {
			return err
		}
		for i, name := range u.columns {
			if c := t.byName[name]; c.equals == "=" {
				c.equals = ops[i]
			}
		}
		t.unique = append(t.unique, u)
	}
	return rows.Err()
}

// hasKeyIndex tells whether a unique index is over exactly these columns.
func (t *table) hasKeyIndex(names []string) bool {
	for i := range t.unique {
		if sameNames(t.unique[i].columns, names) {
			return true
		}
	}
	return false
}

func sameNames(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		if !slices.Contains(b, x) {
			return false
		}
	}
	return true
}

// hstoreTree finds hstore inside a type. Built-in types are not asked for: none holds it.
func hstoreTree(ctx context.Context, conn *pgx.Conn, oid uint32, depth int) (*tree, error) {
	if oid < 16384 || depth > 20 {
		return nil, nil
	}
	var typtype, name string
	var inner, relid uint32
	if err := conn.QueryRow(ctx, hstoreSQL, oid).Scan(&oid, &typtype, &inner, &relid, &name); err != nil {
		return nil, err
	}
	switch {
	case typtype == "b" && name == "hstore":
		return &tree{self: true}, nil
	case typtype == "d":
		return hstoreTree(ctx, conn, inner, depth+1)
	case inner != 0:
		elem, err := hstoreTree(ctx, conn, inner, depth+1)
		if elem == nil {
			return nil, err
		}
		return &tree{elem: elem}, nil
	case typtype == "c":
		return compositeTree(ctx, conn, relid, depth)
	}
	return nil, nil
}

func compositeTree(ctx context.Context, conn *pgx.Conn, relid uint32, depth int) (*tree, error) {
	rows, err := conn.Query(ctx, `SELECT to_json(attname::text)::text, atttypid FROM pg_attribute
		WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, relid)
	if err != nil {
		return nil, err
	}
	type attribute struct {
		Name string
		Type uint32
	}
	attributes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[attribute])
	if err != nil {
		return nil, err
	}
	t := &tree{fields: map[string]*tree{}}
	for _, a := range attributes {
		sub, err := hstoreTree(ctx, conn, a.Type, depth+1)
		if err != nil {
			return nil, err
		}
		if sub != nil {
			t.fields[strings.TrimSpace(a.Name)] = sub
		}
	}
	if len(t.fields) == 0 {
		return nil, nil
	}
	return t, nil
}
