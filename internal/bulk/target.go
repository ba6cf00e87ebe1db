package bulk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/bulk/convert"
	"synctl/internal/fault"
	"synctl/internal/pg"
)

// target is the live table as the catalogue has it.
type target struct {
	schema, name string
	oid          uint32
	columns      []targetColumn
}

// targetColumn is a column of the live table and where its values come from when the source has none.
type targetColumn struct {
	convert.Column
	generated bool
	fill      string // an expression: its default, or its identity's next value; empty: null
}

func (t *target) String() string { return t.schema + "." + t.name }

func (t *target) column(name string) *targetColumn {
	for i := range t.columns {
		if t.columns[i].Name == name {
			return &t.columns[i]
		}
	}
	return nil
}

// splitTable takes schema.table apart; a name without a schema is found by the search path. Quotes as in SQL.
func splitTable(s string) (parts []string, err error) {
	var cur strings.Builder
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' && quoted && i+1 < len(s) && s[i+1] == '"':
			cur.WriteByte('"')
			i++
		case c == '"':
			quoted = !quoted
		case c == '.' && !quoted:
			parts = append(parts, cur.String())
			cur.Reset()
		default:
			cur.WriteByte(c)
		}
	}
	parts = append(parts, cur.String())
	for _, p := range parts {
		if p == "" || quoted || len(parts) > 2 {
			return nil, fault.New(fault.Usage, `Write schema.table, with quotes around a name that has a point in it: public."my.table".`, "table name %q", s)
		}
	}
	return parts, nil
}

func lookUpTarget(ctx context.Context, conn *pgx.Conn, table string) (*target, error) {
	parts, err := splitTable(table)
	if err != nil {
		return nil, err
	}
	t := &target{}
	var kind string
	var persistence string
	err = conn.QueryRow(ctx, `SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`, pg.Ident(parts...)).
		Scan(&t.oid, &t.schema, &t.name, &kind, &persistence)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fault.New(fault.Check, "The live table has to be there: the staging table is made like it. Check the name, the database and the search path.",
			"table %s does not exist", table)
	case err != nil:
		return nil, serverFault(fmt.Errorf("look up table %s: %w", table, err))
	case kind != "r" && kind != "p":
		return nil, fault.New(fault.Check, "Name an ordinary or a partitioned table.", "%s is not a table", t)
	}
	return t, t.readColumns(ctx, conn)
}

func (t *target) readColumns(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.attgenerated <> '', format_type(a.atttypid, a.atttypmod),
		CASE WHEN a.attgenerated <> '' THEN ''
		     WHEN a.attidentity <> '' THEN format('nextval(%L::regclass)', pg_get_serial_sequence(format('%I.%I', n.nspname, c.relname), a.attname))
		     ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
		WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, t.oid)
	if err != nil {
		return serverFault(fmt.Errorf("look up columns of %s: %w", t, err))
	}
	type raw struct {
		typ    uint32
		mod    int32
		format string
	}
	var raws []raw
	for rows.Next() {
		var c targetColumn
		var r raw
		if err := rows.Scan(&c.Name, &r.typ, &r.mod, &c.NotNull, &c.generated, &r.format, &c.fill); err != nil {
			return serverFault(fmt.Errorf("look up columns of %s: %w", t, err))
		}
		t.columns, raws = append(t.columns, c), append(raws, r)
	}
	if err := rows.Err(); err != nil {
		return serverFault(fmt.Errorf("look up columns of %s: %w", t, err))
	}
	types := typeLookUp{conn: conn}
	for i := range t.columns {
		typ, err := types.look(ctx, raws[i].typ, raws[i].mod)
		if err != nil {
			return serverFault(fmt.Errorf("look up type of column %s of %s: %w", t.columns[i].Name, t, err))
		}
		typ.Name = raws[i].format
		t.columns[i].Type = typ
	}
	return nil
}

// typeLookUp reads what the conversion has to know of types.
type typeLookUp struct {
	conn  *pgx.Conn
	depth int
}

// kinds are the built-in types whose binary form is known, by OID.
var kinds = map[uint32]convert.Kind{
	16: convert.Bool, 17: convert.Bytea, 20: convert.Int8, 21: convert.Int2, 23: convert.Int4, 25: convert.Text, 114: convert.JSON,
	700: convert.Float4, 701: convert.Float8, 1042: convert.Text, 1043: convert.Text, 1082: convert.Date, 1083: convert.Time,
	1114: convert.Timestamp, 1184: convert.TimestampTZ, 1186: convert.Interval, 1700: convert.Numeric, 2950: convert.UUID, 3802: convert.JSONB,
}

func (l *typeLookUp) look(ctx context.Context, oid uint32, mod int32) (*convert.Type, error) {
	if l.depth++; l.depth > 32 {
		return nil, fmt.Errorf("type %d is nested deeper than 32", oid)
	}
	defer func() { l.depth-- }()
	t := &convert.Type{OID: oid, FracDigits: 6}
	var name, kind, category, recv string
	var base, elem, rel uint32
	var baseMod int32
	err := l.conn.QueryRow(ctx, `SELECT typname, typtype::text, typcategory::text, typreceive::text, typbasetype, typtypmod, typelem, typrelid, format_type(oid, $2)
		FROM pg_type WHERE oid = $1`, oid, mod).Scan(&name, &kind, &category, &recv, &base, &baseMod, &elem, &rel, &t.Name)
	if err != nil {
		return nil, err
	}
	if k, ok := kinds[oid]; ok {
		t.Kind = k
		applyTypmod(t, mod)
		return t, nil
	}
	switch {
	case kind == "d":
		inner, err := l.look(ctx, base, baseMod)
		if err != nil {
			return nil, err
		}
		d := *inner
		d.OID, d.Name = oid, t.Name
		return &d, nil
	case kind == "e":
		t.Kind = convert.Enum
		return t, l.labels(ctx, t)
	case kind == "c":
		t.Kind = convert.Composite
		return t, l.fields(ctx, t, rel)
	case kind == "r":
		t.Kind = convert.Range
		return t, l.subtype(ctx, t)
	case category == "A" && elem != 0 && recv == "array_recv":
		t.Kind = convert.Array
		t.Elem, err = l.look(ctx, elem, mod)
		return t, err
	case name == "citext":
		t.Kind = convert.Text
	}
	return t, nil
}

// applyTypmod reads a type modifier, each type's own way.
func applyTypmod(t *convert.Type, mod int32) {
	if mod < 0 {
		return
	}
	switch t.Kind {
	case convert.Numeric:
		m := mod - 4
		t.Precision = int(m>>16) & 0xffff
		t.Scale = int((m&0x7ff)^1024) - 1024
	case convert.Text:
		t.Length = int(mod - 4)
	case convert.Time, convert.Timestamp, convert.TimestampTZ:
		t.FracDigits = int(mod)
	case convert.Interval:
		t.Kind = convert.Other // fields or a precision: the server would cut in silence
	}
}

func (l *typeLookUp) labels(ctx context.Context, t *convert.Type) error {
	rows, err := l.conn.Query(ctx, `SELECT enumlabel FROM pg_enum WHERE enumtypid = $1`, t.OID)
	if err != nil {
		return err
	}
	labels, err := pgx.CollectRows(rows, pgx.RowTo[string])
	t.Labels = map[string]struct{}{}
	for _, s := range labels {
		t.Labels[s] = struct{}{}
	}
	return err
}

func (l *typeLookUp) fields(ctx context.Context, t *convert.Type, rel uint32) error {
	rows, err := l.conn.Query(ctx, `SELECT attname, atttypid, atttypmod FROM pg_attribute
		WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum`, rel)
	if err != nil {
		return err
	}
	type attribute struct {
		Name string
		Type uint32
		Mod  int32
	}
	attributes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[attribute])
	if err != nil {
		return err
	}
	for _, a := range attributes {
		typ, err := l.look(ctx, a.Type, a.Mod)
		if err != nil {
			return err
		}
		t.Fields = append(t.Fields, convert.Field{Name: a.Name, Type: typ})
	}
	return nil
}

func (l *typeLookUp) subtype(ctx context.Context, t *convert.Type) (err error) {
	var sub uint32
	if err = l.conn.QueryRow(ctx, `SELECT rngsubtype FROM pg_range WHERE rngtypid = $1`, t.OID).Scan(&sub); err == nil {
		t.Elem, err = l.look(ctx, sub, -1)
	}
	return err
}
