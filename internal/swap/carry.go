package swap

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"synctl/internal/pg"
)

// storage is what has to be settled before the heap is rewritten: where and how its rows lie.
func (p *plan) storage() []string {
	n, m := p.s.new, p.s.model()
	var out []string
	if n.Schema != p.s.schema {
		out = append(out, fmt.Sprintf("ALTER TABLE %s SET SCHEMA %s", n.ident(), pg.Ident(p.s.schema)))
	}
	t := p.staging()
	if n.Owner != m.Owner {
		out = append(out, fmt.Sprintf("ALTER TABLE %s OWNER TO %s", t, pg.Ident(m.Owner)))
	}
	for _, c := range m.Columns {
		x := n.column(c.Name)
		if x.Storage != c.Storage {
			out = append(out, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET STORAGE %s", t, pg.Ident(c.Name), storageName(c.Storage)))
		}
		if x.Compression != c.Compression {
			out = append(out, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET COMPRESSION %s", t, pg.Ident(c.Name), compressionName(c.Compression)))
		}
	}
	// A partitioned table has no storage parameters of its own to hand on.
	if m.Kind == "r" {
		out = append(out, optionChanges("ALTER TABLE "+t, "", n.Options, m.Options)...)
		out = append(out, optionChanges("ALTER TABLE "+t, "toast.", n.ToastOpts, m.ToastOpts)...)
	}
	if n.Space != m.Space && (m.Kind == "r" || m.Space != "") {
		space := m.Space
		if space == "" {
			space = "pg_default"
		}
		out = append(out, fmt.Sprintf("ALTER TABLE %s SET TABLESPACE %s", t, pg.Ident(space)))
	}
	return out
}

func storageName(s string) string {
	return map[string]string{"p": "PLAIN", "e": "EXTERNAL", "x": "EXTENDED", "m": "MAIN"}[s]
}

func compressionName(s string) string {
	switch s {
	case "p":
		return "pglz"
	case "l":
		return "lz4"
	}
	return "default"
}

// optionChanges sets and resets storage parameters so that have becomes want.
func optionChanges(alter, prefix string, have, want []string) []string {
	h, w := optionMap(have), optionMap(want)
	var set, reset, out []string
	for _, k := range slices.Sorted(maps.Keys(w)) {
		if v, ok := h[k]; !ok || v != w[k] {
			set = append(set, fmt.Sprintf("%s%s = %s", prefix, pg.Ident(k), pg.Literal(w[k])))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if _, ok := w[k]; !ok {
			reset = append(reset, prefix+pg.Ident(k))
		}
	}
	if len(set) > 0 {
		out = append(out, fmt.Sprintf("%s SET (%s)", alter, strings.Join(set, ", ")))
	}
	if len(reset) > 0 {
		out = append(out, fmt.Sprintf("%s RESET (%s)", alter, strings.Join(reset, ", ")))
	}
	return out
}

func optionMap(list []string) map[string]string {
	m := map[string]string{}
	for _, o := range list {
		k, v, _ := strings.Cut(o, "=")
		m[k] = v
	}
	return m
}

// constraints are NOT NULL, CHECK and the bound, in one ALTER TABLE: one scan for all of them.
func (p *plan) constraints() []string {
	n, m := p.s.new, p.s.model()
	var actions, after []string
	for _, c := range m.Columns {
		if c.NotNull && !n.column(c.Name).NotNull && p.s.version < 18 {
			actions = append(actions, fmt.Sprintf("ALTER COLUMN %s SET NOT NULL", pg.Ident(c.Name)))
		}
	}
	for _, k := range m.Constraints {
		if k.Type != "c" && k.Type != "n" {
			continue
		}
		name := k.Name
		if p.s.old == nil && k.Type == "n" {
			name = p.childNotNull(k)
		}
		i := slices.IndexFunc(n.Constraints, func(h constraint) bool { return h.Type == k.Type && h.Def == k.Def })
		if j := slices.IndexFunc(n.Constraints, func(h constraint) bool { return h.Type == k.Type && h.Def == k.Def && h.Name == name }); j >= 0 {
			i = j
		}
		switch {
		case i < 0:
			actions = append(actions, fmt.Sprintf("ADD CONSTRAINT %s %s", pg.Ident(name), k.Def))
		case n.Constraints[i].Name != name:
			after = append(after, fmt.Sprintf("ALTER TABLE %s RENAME CONSTRAINT %s TO %s", p.staging(), pg.Ident(n.Constraints[i].Name), pg.Ident(name)))
		}
	}
	if p.s.within != "" && !slices.ContainsFunc(n.Constraints, func(h constraint) bool { return h.Name == p.boundName() }) {
		actions = append(actions, fmt.Sprintf("ADD CONSTRAINT %s CHECK (%s)", pg.Ident(p.boundName()), p.s.within))
	}
	if len(actions) == 0 {
		return after
	}
	return append(after, "ALTER TABLE "+p.staging()+" "+strings.Join(actions, ", "))
}

// childNotNull is the name that CREATE TABLE … PARTITION OF gives: the parent's own.
func (p *plan) childNotNull(k constraint) string { return k.Name }

func (p *plan) buildIndexes() []string {
	var out []string
	for _, x := range p.indexes {
		if x.have != nil || x.want.ConType != "" && !x.want.usesIndex() {
			continue
		}
		unique, tail := "", x.want.Tail
		if x.want.Unique {
			unique = "UNIQUE "
		}
		if x.want.Space != "" {
			tail = withSpace(tail, x.want.Space)
		}
		out = append(out, fmt.Sprintf("CREATE %sINDEX %s ON %s %s", unique, pg.Ident(x.name), p.staging(), tail))
	}
	return out
}

// withSpace puts TABLESPACE where the grammar wants it: before WHERE.
func withSpace(tail, space string) string {
	if head, where, ok := strings.Cut(tail, " WHERE "); ok {
		return head + " TABLESPACE " + pg.Ident(space) + " WHERE " + where
	}
	return tail + " TABLESPACE " + pg.Ident(space)
}

// keys makes constraints of the indexes and gives them what an index definition does not have.
func (p *plan) keys() []string {
	var out []string
	t, n, m := p.staging(), p.s.new, p.s.model()
	for _, x := range p.indexes {
		var have index
		if x.have != nil {
			have = *x.have
		}
		w := x.want
		if w.ConType != "" && have.ConType == "" {
			out = append(out, p.addKey(x))
		}
		at := pg.Ident(p.s.schema, x.name)
		if changed(have.Comment, w.Comment) {
			out = append(out, comment("INDEX "+at, w.Comment))
		}
		if changed(have.ConComment, w.ConComment) {
			out = append(out, comment("CONSTRAINT "+pg.Ident(x.name)+" ON "+t, w.ConComment))
		}
		for _, target := range w.Targets {
			if !slices.Contains(have.Targets, target) {
				num, value, _ := strings.Cut(target, "=")
				out = append(out, fmt.Sprintf("ALTER INDEX %s ALTER COLUMN %s SET STATISTICS %s", at, num, value))
			}
		}
		if w.Clustered && !have.Clustered {
			out = append(out, fmt.Sprintf("ALTER TABLE %s CLUSTER ON %s", t, pg.Ident(x.name)))
		}
		if m.Identity == "i" && w.ReplIdent && !have.ReplIdent {
			out = append(out, fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY USING INDEX %s", t, pg.Ident(x.name)))
		}
	}
	if m.Identity != n.Identity && m.Identity != "i" {
		out = append(out, fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY %s", t, map[string]string{"d": "DEFAULT", "f": "FULL", "n": "NOTHING"}[m.Identity]))
	}
	return out
}

func (p *plan) addKey(x indexPair) string {
	w, name := x.want, pg.Ident(x.name)
	if !w.usesIndex() {
		return fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", p.staging(), name, w.ConDef)
	}
	kind := "UNIQUE"
	if w.ConType == "p" {
		kind = "PRIMARY KEY"
	}
	sql := fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s USING INDEX %s", p.staging(), name, kind, name)
	if w.Deferrable {
		sql += " DEFERRABLE"
	}
	if w.Deferred {
		sql += " INITIALLY DEFERRED"
	}
	return sql
}

// addForeignKeys adds keys unvalidated, which needs the other table for a moment, and then validates them, which lets
// its writers go on.
func (p *plan) addForeignKeys() {
	n := p.s.new
	var validate []string
	for _, k := range p.s.model().Constraints {
		if k.Type != "f" {
			continue
		}
		def := strings.TrimSuffix(k.Def, " NOT VALID")
		i := slices.IndexFunc(n.Constraints, func(h constraint) bool {
			return h.Type == "f" && h.Name == k.Name && strings.TrimSuffix(h.Def, " NOT VALID") == def
		})
		sql := fmt.Sprintf("ALTER TABLE %s ADD CONSTRAINT %s %s", p.staging(), pg.Ident(k.Name), strings.ReplaceAll(def, tableMark, p.staging()))
		enforced := !strings.Contains(def, " NOT ENFORCED")
		if enforced {
			sql += " NOT VALID"
		}
		other := k.RefName
		if k.Ref == p.s.model().OID {
			other = "staging"
		}
		if i < 0 {
			p.add(Step{Name: "foreign key " + k.Name, Lock: "SHARE ROW EXCLUSIVE on " + other + ", for a moment", SQL: []string{sql}, kind: guarded, diff: true})
		}
		if k.Valid && enforced && (i < 0 || !n.Constraints[i].Valid) {
			validate = append(validate, fmt.Sprintf("ALTER TABLE %s VALIDATE CONSTRAINT %s", p.staging(), pg.Ident(k.Name)))
		}
		if k.Comment != nil && (i < 0 || changed(n.Constraints[i].Comment, k.Comment)) {
			validate = append(validate, comment("CONSTRAINT "+pg.Ident(k.Name)+" ON "+p.staging(), k.Comment))
		}
	}
	p.add(Step{Name: "validate foreign keys", Lock: "ROW SHARE on the tables they point at", SQL: validate, diff: true})
}

func changed(have, want *string) bool {
	if have == nil || want == nil {
		return have != want
	}
	return *have != *want
}

func comment(on string, text *string) string {
	if text == nil {
		return "COMMENT ON " + on + " IS NULL"
	}
	return "COMMENT ON " + on + " IS " + pg.Literal(*text)
}
