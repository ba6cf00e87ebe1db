package cdc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/fault"
	"synctl/internal/pg"
	"synctl/internal/record"
)

// relation is a table as the rows that follow have it.
type relation struct {
	table     *record.Table
	skip      bool // not asked for by --table
	composite bool // has columns with composite types in them, whose fields the stream does not describe
	message   relationMessage
	job       *snapshot.Job // its rows are being read, or were in one go; nil for most
}

// relation handles a RELATION message: the server sends one before a table's first row, and again after the table, its
// schema or its publication was altered, also within a transaction.
func (s *Source) relation(ctx context.Context, p []byte) error {
	m, err := parseRelation(p)
	if err != nil {
		return fmt.Errorf("read RELATION: %w", err)
	}
	rel := &relation{message: m, skip: !s.filter.match(m.schema, m.name)}
	if rel.skip {
		if rel.skip, err = s.foreign(ctx, m.oid); err != nil {
			return fmt.Errorf("describe table %s.%s: %w", m.schema, m.name, err)
		}
	}
	if !rel.skip {
		if rel.table, err = s.describe(ctx, m); err != nil {
			return fmt.Errorf("describe table %s.%s: %w", m.schema, m.name, err)
		}
		for _, c := range rel.table.Columns {
			rel.composite = rel.composite || hasComposite(c.Type)
		}
	} else {
		rel.table = record.NewTable(m.schema, m.name, m.oid, nil)
	}
	if s.snaps.run != nil && !rel.skip {
		rel.job = s.snaps.run.Job(m.schema, m.name)
	}
	s.relations[m.oid] = rel
	return nil
}

// foreign tells whether a table that is not asked for by its own name is no partition of one that is.
func (s *Source) foreign(ctx context.Context, oid uint32) (bool, error) {
	var ancestors []tableInfo
	err := s.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		ancestors, err = readTables(ctx, conn, `WHERE c.oid IN (SELECT relid FROM pg_partition_ancestors($1::oid))`, oid)
		return err
	})
	for _, a := range ancestors {
		if s.filter.match(a.name.Schema, a.name.Name) {
			return false, err
		}
	}
	return true, err
}

// describe makes a table's descriptor: its columns' types from the catalogue, its key from the replica identity.
func (s *Source) describe(ctx context.Context, m relationMessage) (*record.Table, error) {
	types, err := s.columnTypes(ctx, m)
	if err != nil {
		return nil, err
	}
	key, err := s.keyOf(ctx, m)
	if err != nil {
		return nil, err
	}
	columns := make([]record.Column, len(m.columns))
	for i, c := range m.columns {
		columns[i] = record.Column{Name: c.name, Type: types[i], Key: slices.Contains(key, c.name)}
	}
	return record.NewTable(m.schema, m.name, m.oid, columns), nil
}

// keyOf names the key's columns. The message marks those of the replica identity's index, but under FULL it marks every
// column; and where a column list leaves a part of the index out, what is left identifies no row.
func (s *Source) keyOf(ctx context.Context, m relationMessage) ([]string, error) {
	var marked []string
	var columns []string
	for _, c := range m.columns {
		columns = append(columns, c.name)
		if c.key {
			marked = append(marked, c.name)
		}
	}
	if m.identity != 'f' && len(marked) == 0 {
		return nil, nil
	}
	var indexed []string
	err := s.meta.do(ctx, func(conn *pgx.Conn) (err error) {
		indexed, err = identityColumns(ctx, conn, m.oid, m.identity)
		return err
	})
	if err != nil {
		return nil, err
	}
	if m.identity != 'f' {
		if contains(indexed, marked) && !contains(columns, indexed) {
			return nil, nil
		}
		return marked, nil
	}
	if len(indexed) == 0 {
		// The table may be gone by now; what its key was is known if this run has seen it.
		if old := s.relations[m.oid]; old != nil && old.message.identity == 'f' && old.table != nil {
			for _, i := range old.table.Key {
				indexed = append(indexed, old.table.Columns[i].Name)
			}
		}
	}
	if !contains(columns, indexed) {
		return nil, nil
	}
	return indexed, nil
}

// contains tells whether all of part are in all.
func contains(all, part []string) bool {
	return !slices.ContainsFunc(part, func(p string) bool { return !slices.Contains(all, p) })
}

// identityColumns names the columns by which rows are told apart: those of the identity index, under FULL those of the
// primary key. A deferrable key can be the same for two rows for a while: it counts as none.
func identityColumns(ctx context.Context, conn *pgx.Conn, oid uint32, identity byte) ([]string, error) {
	which := "i.indisprimary"
	if identity == 'i' {
		which = "i.indisreplident"
	}
	rows, err := conn.Query(ctx, `SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY((i.indkey::int2[])[0:i.indnkeyatts - 1])
WHERE i.indrelid = $1 AND i.indimmediate AND i.indisvalid AND `+which+` ORDER BY a.attnum`, oid)
	if err != nil {
		return nil, fmt.Errorf("read the key from the catalogue: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("read the key from the catalogue: %w", err)
	}
	return names, nil
}

// columnTypes asks the catalogue for the types of a table's columns. One that is not there may not be visible yet, so it
// is asked again once the transaction is; after that it has been dropped.
func (s *Source) columnTypes(ctx context.Context, m relationMessage) ([]*record.Type, error) {
	oids := make([]uint32, len(m.columns))
	for i, c := range m.columns {
		oids[i] = c.typ
	}
	types, err := s.loadTypes(ctx, oids)
	var unknown *pg.UnknownTypeError
	if !errors.As(err, &unknown) {
		return types, err
	}
	if s.tx.open {
		if err := s.waitVisible(ctx, s.tx.xid); err != nil {
			return nil, err
		}
	}
	types = make([]*record.Type, len(oids))
	for i, c := range m.columns {
		t, err := s.loadTypes(ctx, oids[i:i+1])
		switch {
		case err == nil:
			types[i] = t[0]
		case !errors.As(err, &unknown):
			return nil, err
		case s.opt.UnresolvedType != UnresolvedText:
			return nil, fault.New(fault.Failed, unresolvedHint, "column %q of %s.%s: %w", c.name, m.schema, m.name, err)
		default:
			s.log.Warn("a type was dropped since the change was written; its values go as text", "table", m.schema+"."+m.name, "column", c.name, "type_oid", c.typ)
			types[i] = &record.Type{OID: c.typ, Name: fmt.Sprintf("type %d", c.typ), Kind: record.KindString}
		}
	}
	return types, nil
}

const unresolvedHint = "With --unresolved-type text such values are written as PostgreSQL's text, in a JSON string."

func (s *Source) loadTypes(ctx context.Context, oids []uint32) (types []*record.Type, err error) {
	known := len(s.types.JSONCasts())
	err = s.meta.do(ctx, func(conn *pgx.Conn) error {
		types, err = s.types.Types(ctx, conn, oids, true)
		return err
	})
	if casts := s.types.JSONCasts(); len(casts) > known {
		s.log.Warn("types with a cast to json of their own are written as strings", "types", casts)
	}
	return types, err
}

func hasComposite(t *record.Type) bool {
	return t != nil && (t.Kind == record.KindComposite || hasComposite(t.Elem))
}

// fitting gives the descriptor that a row with composite values goes by. The stream does not say when a composite type
// was altered: its fields are counted, and the catalogue is read again when they do not fit.
func (s *Source) fitting(ctx context.Context, rel *relation, t tuples) (*record.Table, error) {
	if s.misfit(rel.table, t) < 0 {
		return rel.table, nil
	}
	table, err := s.describe(ctx, rel.message)
	if err != nil {
		return nil, err
	}
	rel.table = table
	i := s.misfit(table, t)
	for ; i >= 0; i = s.misfit(table, t) {
		c := table.Columns[i]
		if s.opt.UnresolvedType != UnresolvedText {
			return nil, fault.New(fault.Failed, unresolvedHint,
				"column %q of %s.%s: type %s was altered since the change was written (transaction %d, committed %s)",
				c.Name, table.Schema, table.Name, c.Type.Name, s.tx.xid, s.tx.at.Time().Format(time.RFC3339))
		}
		columns := slices.Clone(table.Columns)
		for k := range columns {
			columns[k].Prefix = nil
		}
		columns[i].Type = &record.Type{OID: c.Type.OID, Name: c.Type.Name, Kind: record.KindString}
		table = record.NewTable(table.Schema, table.Name, table.OID, columns)
	}
	return table, nil
}

// maxProbe is how much memory is kept for trying values of composite types.
const maxProbe = 64 << 10

// misfit is the first column whose value does not have the shape of its type, -1 when there is none.
func (s *Source) misfit(table *record.Table, t tuples) int {
	for i, c := range table.Columns {
		if !hasComposite(c.Type) {
			continue
		}
		for _, row := range [...][]record.Value{t.old, t.new} {
			if row == nil || row[i].Kind != record.Text {
				continue
			}
			out, _, err := c.Type.AppendJSON(s.probe[:0], row[i].Data)
			if err != nil {
				return i
			}
			if cap(out) <= maxProbe {
				s.probe = out[:0]
			}
		}
	}
	return -1
}
