package replay

import (
	"path"
	"slices"
	"strings"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// Filter chooses records. The zero value takes all.
type Filter struct {
	Only []string    // globs of schema.table; records without a table match none
	Ops  []record.Op // none: all
}

// Check tells whether the globs are valid.
func (f *Filter) Check() error {
	for _, g := range f.Only {
		if err := checkGlob("--only", g); err != nil {
			return err
		}
	}
	return nil
}

func checkGlob(flag, g string) error {
	schema, table, ok := strings.Cut(g, ".")
	_, err1 := path.Match(schema, "")
	_, err2 := path.Match(table, "")
	if !ok || schema == "" || table == "" || err1 != nil || err2 != nil {
		return fault.New(fault.Usage, "Write it as schema.table; * stands for any characters and ? for one.", "%s %q is not a glob of schema.table", flag, g)
	}
	return nil
}

// matchName matches a glob; path.Match's * stops at a slash, which identifiers can hold.
func matchName(glob, name string) bool {
	if glob == "*" {
		return true
	}
	ok, err := path.Match(strings.ReplaceAll(glob, "/", "\x00"), strings.ReplaceAll(name, "/", "\x00"))
	return err == nil && ok
}

// Table tells whether a table is wanted.
func (f *Filter) Table(schema, table string) bool {
	return len(f.Only) == 0 || slices.ContainsFunc(f.Only, func(g string) bool {
		gs, gt, _ := strings.Cut(g, ".")
		return matchName(gs, schema) && matchName(gt, table)
	})
}

// filter is a Filter with a memory of tables, for one shard's goroutine.
type filter struct {
	Filter
	tables map[string]bool // by schema and table as lines write them
	key    []byte
}

func (f *filter) wants(r *record.Record) bool {
	if len(f.Ops) > 0 && !slices.Contains(f.Ops, r.Op) {
		return false
	}
	if len(f.Only) == 0 {
		return true
	}
	switch r.Op {
	case record.Truncate:
		tables, err := r.TruncatedTables()
		return err != nil || slices.ContainsFunc(tables, func(t record.TableID) bool { return f.Table(t.Schema, t.Name) })
	case record.Message, record.Data, record.Begin, record.Commit:
		return false
	}
	l := &r.Line
	f.key = append(append(append(f.key[:0], l.Get(l.Schema)...), 0), l.Get(l.Table)...)
	ok, known := f.tables[string(f.key)]
	if !known {
		if f.tables == nil {
			f.tables = map[string]bool{}
		}
		ok = f.Table(r.SchemaName(), r.TableName())
		f.tables[string(f.key)] = ok
	}
	return ok
}

// Rename is a list of --map rules: the first whose left side matches a table gives its name in the target. A * in a name on
// the right stands for what the * on the same side of the left's dot matched.
type Rename []renameRule

type renameRule struct{ fromSchema, fromTable, toSchema, toTable string }

// ParseRename reads rules of the form schema.table=schema.table.
func ParseRename(rules []string) (Rename, error) {
	const hint = "Write it as schema.table=schema.table, such as 'public.*=archive.*'; each * on the right needs one * at the same side of the dot on the left."
	var out Rename
	for _, r := range rules {
		from, to, ok := strings.Cut(r, "=")
		if !ok {
			return nil, fault.New(fault.Usage, hint, "--map %q has no =", r)
		}
		if err := checkGlob("--map", from); err != nil {
			return nil, err
		}
		fromSchema, fromTable, _ := strings.Cut(from, ".")
		toSchema, toTable, ok := strings.Cut(to, ".")
		if !ok || toSchema == "" || toTable == "" {
			return nil, fault.New(fault.Usage, hint, "--map %q: %q is not schema.table", r, to)
		}
		for _, pair := range [][2]string{{fromSchema, toSchema}, {fromTable, toTable}} {
			plain := strings.Count(pair[0], "*") == 1 && !strings.ContainsAny(pair[0], `?[\`)
			if stars := strings.Count(pair[1], "*"); stars > 1 || stars == 1 && !plain {
				return nil, fault.New(fault.Usage, hint, "--map %q: it is not clear what * stands for in %q", r, pair[1])
			}
		}
		out = append(out, renameRule{fromSchema, fromTable, toSchema, toTable})
	}
	return out, nil
}

// Apply gives the target's name of a table.
func (rs Rename) Apply(schema, table string) (string, string) {
	for _, r := range rs {
		if matchName(r.fromSchema, schema) && matchName(r.fromTable, table) {
			return fill(r.toSchema, r.fromSchema, schema), fill(r.toTable, r.fromTable, table)
		}
	}
	return schema, table
}

// fill puts what the * of glob matched in name for the * of to.
func fill(to, glob, name string) string {
	if !strings.Contains(to, "*") {
		return to
	}
	before, after, _ := strings.Cut(glob, "*")
	return strings.Replace(to, "*", name[len(before):len(name)-len(after)], 1)
}
