package swap

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"synctl/internal/pg"
)

// relation is what the catalogs say of one table. Every expression in it is deparsed under an empty search_path, so
// that equal text means equal meaning and all names are qualified.
type relation struct {
	OID         uint32
	Schema      string
	Name        string
	Owner       string
	Kind        string // r, p, …: pg_class.relkind
	Persistence string // p, u, t
	Method      string // table access method
	Space       string // tablespace; empty is the database's
	Identity    string // replica identity: d, n, f, i
	RowSecurity bool
	ForceRLS    bool
	Partition   bool
	Bound       string // FOR VALUES …, DEFAULT, or empty
	Options     []string
	ToastOpts   []string
	Comment     *string
	RowType     uint32
	Tuples      float32 // reltuples: -1 never counted

	Columns      []column
	Grants       []grant
	Indexes      []index
	Constraints  []constraint
	Triggers     []trigger
	Policies     []policy
	Statistics   []statistic
	Publications []publication
	Sequences    []sequence
	Views        []view
}

type column struct {
	Num         int16
	Name        string
	Type        string
	Collation   string
	NotNull     bool
	Identity    string
	Generated   string // s, v or empty
	Default     string // default, or the generation expression
	Storage     string
	Compression string
	Target      int // statistics target, -1 the default
	Options     []string
	Comment     *string
}

type grant struct {
	Column    string // empty: of the table
	Grantor   string
	Grantee   string // empty: PUBLIC
	Privilege string
	Grantable bool
}

type index struct {
	OID        uint32
	Name       string
	Unique     bool
	Valid      bool
	Clustered  bool
	ReplIdent  bool
	Tail       string // the definition from USING on
	Space      string
	Comment    *string
	Targets    []string // "column number=target" of expression columns
	ConType    string   // p, u, x, or empty
	ConName    string
	ConDef     string
	Deferrable bool
	Deferred   bool
	ConComment *string
	Parent     uint32
}

type constraint struct {
	Name      string
	Type      string // c, f, n
	Def       string
	Valid     bool
	Ref       uint32 // the table that a foreign key points at
	RefName   string
	Inherited bool
	Comment   *string
}

type trigger struct {
	Name    string
	Def     string // with the table's name replaced by tableMark
	Enabled string // O, D, R, A
	Cloned  bool
	Comment *string
}

type policy struct {
	Name       string
	Permissive bool
	Command    string
	Roles      []string // empty name: PUBLIC
	Using      string
	Check      string
	Comment    *string
}

type statistic struct {
	Schema  string
	Name    string
	Owner   string
	Def     string // from the kinds to before FROM
	Target  int
	Comment *string
}

type publication struct {
	Name    string
	Owner   string
	Columns []string
	Filter  string
}

type sequence struct {
	OID      uint32
	Schema   string
	Name     string
	Column   string
	Identity bool // a column's own: cannot be handed on
	Owner    string
	Options  string
	Grants   []grant
}

type view struct {
	OID     uint32
	Schema  string
	Name    string
	Owner   string
	Kind    string
	Options []string
	Def     string
}

func (r *relation) ident() string { return pg.Ident(r.Schema, r.Name) }

func (r *relation) display() string { return displayName(r.Schema, r.Name) }

func displayName(schema, name string) string { return schema + "." + name }

func (r *relation) column(name string) *column {
	for i := range r.Columns {
		if r.Columns[i].Name == name {
			return &r.Columns[i]
		}
	}
	return nil
}

// tableMark stands for the table's own name in the texts that are compared between two tables.
const tableMark = "\x00table\x00"

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func rows[T any](ctx context.Context, q querier, what, sql string, args ...any) ([]T, error) {
	r, err := q.Query(ctx, sql, args...)
	if err == nil {
		var list []T
		if list, err = pgx.CollectRows(r, pgx.RowToStructByPos[T]); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("read %s: %w", what, err)
}
