package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"synctl/internal/record"
)

// firstUserOID is where PostgreSQL begins to number what users and extensions create (FirstNormalObjectId). Types
// below it never change during a server's life.
const firstUserOID = 16384

// Querier is the part of a connection that the catalogue needs.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// UnknownTypeError says that the catalogue has no such type: it was dropped, or the transaction that makes it is not
// visible yet (decoding can precede visibility while a synchronous standby is waited for).
type UnknownTypeError struct{ OID uint32 }

func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("no type with OID %d in pg_type: it was dropped, or is not visible yet", e.OID)
}

// Catalogue describes types by OID as PostgreSQL's to_json categorises them, and remembers them. It is for one
// goroutine at a time.
type Catalogue struct {
	types map[uint32]*record.Type
	casts map[uint32]string
}

// NewCatalogue makes an empty catalogue.
func NewCatalogue() *Catalogue {
	return &Catalogue{types: map[uint32]*record.Type{}, casts: map[uint32]string{}}
}

// Types describes the types with the given OIDs, in their order. Built-in types come from memory once they are known;
// with fresh, types that users and extensions made are read again, since they may have been altered. A type that does
// not exist is an *UnknownTypeError.
func (c *Catalogue) Types(ctx context.Context, q Querier, oids []uint32, fresh bool) ([]*record.Type, error) {
	known := func(oid uint32) *record.Type {
		if fresh && oid >= firstUserOID {
			return nil
		}
		return c.types[oid]
	}
	rows := map[uint32]*typeRow{}
	var missing []uint32
	for _, oid := range oids {
		if known(oid) == nil {
			missing = append(missing, oid)
		}
	}
	for len(missing) > 0 {
		next, err := readTypes(ctx, q, missing, rows)
		if err != nil {
			return nil, err
		}
		missing = missing[:0]
		for _, oid := range next {
			if known(oid) == nil && rows[oid] == nil && !slices.Contains(missing, oid) {
				missing = append(missing, oid)
			}
		}
	}
	// A type is built from those below it, each once; built holds what this call has read, so that a failure leaves the
	// memory as it was.
	built := map[uint32]*record.Type{}
	out := make([]*record.Type, len(oids))
	for i, oid := range oids {
		t, err := c.build(oid, rows, built, known)
		if err != nil {
			return nil, err
		}
		out[i] = t
	}
	for oid, t := range built {
		c.types[oid] = t
		if r := rows[oid]; r != nil && r.jsonCast && !r.hstore {
			c.casts[oid] = t.Name
		}
	}
	return out, nil
}

// JSONCasts names the types met so far for which a user made a cast to json: to_json would call it, synctl writes
// their text as a string.
func (c *Catalogue) JSONCasts() []string {
	var names []string
	for _, name := range c.casts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// typeRow is one type as the catalogue has it.
type typeRow struct {
	oid, base, elem, relid uint32
	name                   string
	kind                   string // typtype
	elemDelim              string
	array                  bool // a true array, by its subscripting function
	hstore, jsonCast       bool
	fields                 []fieldRow
}

type fieldRow struct {
	name string
	oid  uint32
}

const typesSQL = `
SELECT t.oid, t.typbasetype, t.typelem, t.typrelid,
       CASE WHEN n.nspname = 'pg_catalog' THEN t.typname::text ELSE n.nspname || '.' || t.typname END,
       t.typtype::text,
       coalesce((SELECT e.typdelim::text FROM pg_type e WHERE e.oid = t.typelem), ','),
       t.typelem <> 0 AND t.typsubscript = 'pg_catalog.array_subscript_handler'::regproc,
       t.typname = 'hstore' AND EXISTS (SELECT FROM pg_depend d JOIN pg_extension x ON x.oid = d.refobjid
           WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.refclassid = 'pg_extension'::regclass
             AND d.deptype = 'e' AND x.extname = 'hstore'),
       t.oid >= 16384 AND EXISTS (SELECT FROM pg_cast k WHERE k.castsource = t.oid AND k.casttarget = 'json'::regtype AND k.castmethod = 'f')
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
WHERE t.oid = ANY($1::oid[])`

const fieldsSQL = `
SELECT attrelid, attname::text, atttypid FROM pg_attribute
WHERE attrelid = ANY($1::oid[]) AND attnum > 0 AND NOT attisdropped ORDER BY attrelid, attnum`

// readTypes adds the types with the given OIDs to rows and names the OIDs that these refer to.
func readTypes(ctx context.Context, q Querier, oids []uint32, rows map[uint32]*typeRow) (refers []uint32, err error) {
	res, err := q.Query(ctx, typesSQL, oids)
	if err != nil {
		return nil, fmt.Errorf("read types from the catalogue: %w", err)
	}
	byRelation := map[uint32]*typeRow{}
	var relations []uint32
	r := typeRow{}
	_, err = pgx.ForEachRow(res, []any{&r.oid, &r.base, &r.elem, &r.relid, &r.name, &r.kind, &r.elemDelim, &r.array, &r.hstore, &r.jsonCast}, func() error {
		t := r
		rows[t.oid] = &t
		switch {
		case t.kind == "d":
			refers = append(refers, t.base)
		case t.array:
			refers = append(refers, t.elem)
		case t.kind == "c":
			byRelation[t.relid] = &t
			relations = append(relations, t.relid)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read types from the catalogue: %w", err)
	}
	if len(relations) == 0 {
		return refers, nil
	}
	if res, err = q.Query(ctx, fieldsSQL, relations); err != nil {
		return nil, fmt.Errorf("read the fields of composite types: %w", err)
	}
	var relation uint32
	var f fieldRow
	_, err = pgx.ForEachRow(res, []any{&relation, &f.name, &f.oid}, func() error {
		byRelation[relation].fields = append(byRelation[relation].fields, f)
		refers = append(refers, f.oid)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the fields of composite types: %w", err)
	}
	return refers, nil
}

// errCircular cannot be had through PostgreSQL's own commands; it keeps a damaged catalogue from a stack overflow.
var errCircular = errors.New("type refers to itself")

func (c *Catalogue) build(oid uint32, rows map[uint32]*typeRow, built map[uint32]*record.Type, known func(uint32) *record.Type) (*record.Type, error) {
	if t, ok := built[oid]; ok {
		if t == nil {
			return nil, errCircular
		}
		return t, nil
	}
	if t := known(oid); t != nil {
		return t, nil
	}
	r := rows[oid]
	if r == nil {
		return nil, &UnknownTypeError{OID: oid}
	}
	built[oid] = nil // being built
	t := &record.Type{OID: oid, Name: r.name, Delim: ','}
	if err := c.fill(t, r, rows, built, known); err != nil {
		delete(built, oid)
		return nil, fmt.Errorf("type %s: %w", r.name, err)
	}
	built[oid] = t
	return t, nil
}

func (c *Catalogue) fill(t *record.Type, r *typeRow, rows map[uint32]*typeRow, built map[uint32]*record.Type, known func(uint32) *record.Type) (err error) {
	switch {
	case r.kind == "d":
		base, err := c.build(r.base, rows, built, known)
		if err != nil {
			return err
		}
		*t = *base // OID and name of the base: a domain is rendered as its base type
	case r.oid == int2VectorOID || r.oid == oidVectorOID:
		t.Kind = record.KindVector
		t.Elem, err = c.build(r.elem, rows, built, known)
	case r.array:
		t.Kind, t.Delim = record.KindArray, r.elemDelim[0]
		t.Elem, err = c.build(r.elem, rows, built, known)
	case r.kind == "c":
		t.Kind = record.KindComposite
		for _, f := range r.fields {
			ft, err := c.build(f.oid, rows, built, known)
			if err != nil {
				return fmt.Errorf("field %s: %w", f.name, err)
			}
			t.Fields = append(t.Fields, record.Field{Name: f.name, Type: ft})
		}
	case r.hstore:
		t.Kind = record.KindHstore
	default:
		t.Kind = builtinKind(r.oid)
	}
	return err
}

const (
	int2VectorOID = 22
	oidVectorOID  = 30
)

// builtinKind is json_categorize_type for types that are no array and no composite. OIDs of built-in types are fixed.
func builtinKind(oid uint32) record.TypeKind {
	switch oid {
	case 16:
		return record.KindBool
	case 20, 21, 23, 700, 701, 1700:
		return record.KindNumber
	case 1082:
		return record.KindDate
	case 1114:
		return record.KindTimestamp
	case 1184:
		return record.KindTimestampTZ
	case 114:
		return record.KindJSON
	case 3802:
		return record.KindJSONB
	}
	return record.KindString
}
