package swap

import (
	"fmt"
	"slices"
	"strings"

	"synctl/internal/pg"
)

// definition carries over everything that is neither rows nor keys: defaults, identity, comments, statistics targets,
// triggers, row security, privileges.
func (p *plan) definition() []string {
	n, m, t := p.s.new, p.s.model(), p.staging()
	var out []string
	for _, c := range m.Columns {
		out = append(out, p.columnDefinition(c, *n.column(c.Name))...)
	}
	if changed(n.Comment, m.Comment) && !n.marked() {
		out = append(out, comment("TABLE "+t, m.Comment))
	}
	for _, k := range m.Constraints {
		if k.Type == "f" {
			continue // with its own step
		}
		i := slices.IndexFunc(n.Constraints, func(h constraint) bool { return h.Type == k.Type && h.Name == k.Name })
		if i < 0 && k.Comment != nil || i >= 0 && changed(n.Constraints[i].Comment, k.Comment) {
			out = append(out, comment("CONSTRAINT "+pg.Ident(k.Name)+" ON "+t, k.Comment))
		}
	}
	out = append(out, p.statistics()...)
	out = append(out, p.triggers()...)
	out = append(out, p.rowSecurity()...)
	out = append(out, grants("TABLE "+t, m.Owner, p.ownerMapped(n.Grants), m.Grants)...)
	return out
}

func (p *plan) columnDefinition(c, x column) []string {
	var out []string
	alter := fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s ", p.staging(), pg.Ident(c.Name))
	if c.Generated == "" && c.Identity == "" && c.Default != x.Default {
		if c.Default == "" {
			out = append(out, alter+"DROP DEFAULT")
		} else {
			out = append(out, alter+"SET DEFAULT "+c.Default)
		}
	}
	if p.s.parent == nil && c.Identity != "" {
		out = append(out, p.identity(c, x)...)
	}
	if c.Target != x.Target {
		out = append(out, fmt.Sprintf("%sSET STATISTICS %d", alter, c.Target))
	}
	out = append(out, optionChanges(strings.TrimSuffix(alter, " "), "", x.Options, c.Options)...)
	if changed(x.Comment, c.Comment) {
		out = append(out, comment("COLUMN "+p.staging()+"."+pg.Ident(c.Name), c.Comment))
	}
	return out
}

// identity gives the newcomer an identity sequence of its own: one cannot be handed from table to table. Its position
// is taken over in the exchange.
func (p *plan) identity(c, x column) []string {
	i := slices.IndexFunc(p.idents, func(s identPair) bool { return s.want.Column == c.Name })
	if i < 0 {
		return nil
	}
	pr := p.idents[i]
	kind := map[string]string{"a": "ALWAYS", "d": "BY DEFAULT"}[c.Identity]
	name := pg.Ident(pr.want.Schema, pr.name)
	var out []string
	var have []grant
	switch {
	case pr.have == nil:
		out = append(out, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s ADD GENERATED %s AS IDENTITY (SEQUENCE NAME %s %s)",
			p.staging(), pg.Ident(c.Name), kind, name, pr.want.Options))
		// What default privileges give a new sequence cannot be known here: all of them are taken first.
		have = []grant{{Grantor: pr.want.Owner, Grantee: "?"}}
	default:
		have = pr.have.Grants
		if x.Identity != c.Identity {
			out = append(out, fmt.Sprintf("ALTER TABLE %s ALTER COLUMN %s SET GENERATED %s", p.staging(), pg.Ident(c.Name), kind))
		}
		if pr.have.Options != pr.want.Options {
			options := pr.want.Options
			if !strings.HasSuffix(options, " CYCLE") {
				options += " NO CYCLE"
			}
			out = append(out, fmt.Sprintf("ALTER SEQUENCE %s %s", name, options))
		}
	}
	return append(out, grants("SEQUENCE "+name, pr.want.Owner, have, pr.want.Grants)...)
}

func (p *plan) statistics() []string {
	var out []string
	for _, s := range p.stats {
		name := pg.Ident(s.want.Schema, s.name)
		have := statistic{Target: -1, Owner: p.s.model().Owner}
		if s.have != nil {
			have = *s.have
		} else {
			out = append(out, fmt.Sprintf("CREATE STATISTICS %s%s FROM %s", name, s.want.Def, p.staging()),
				fmt.Sprintf("ALTER STATISTICS %s OWNER TO %s", name, pg.Ident(s.want.Owner)))
		}
		if s.have != nil && have.Owner != s.want.Owner {
			out = append(out, fmt.Sprintf("ALTER STATISTICS %s OWNER TO %s", name, pg.Ident(s.want.Owner)))
		}
		if have.Target != s.want.Target {
			out = append(out, fmt.Sprintf("ALTER STATISTICS %s SET STATISTICS %d", name, s.want.Target))
		}
		if changed(have.Comment, s.want.Comment) {
			out = append(out, comment("STATISTICS "+name, s.want.Comment))
		}
	}
	return out
}

// triggers carries over those made on the table itself; a parent's row triggers are cloned by ATTACH, which fails over
// one of the same name.
func (p *plan) triggers() []string {
	if p.s.old == nil {
		return nil
	}
	var out []string
	for _, w := range p.s.old.Triggers {
		if w.Cloned {
			continue
		}
		have := trigger{Enabled: "O"}
		if i := slices.IndexFunc(p.s.new.Triggers, func(h trigger) bool { return h.Name == w.Name && h.Def == w.Def }); i >= 0 {
			have = p.s.new.Triggers[i]
		} else {
			out = append(out, strings.Replace(w.Def, tableMark, p.staging(), 1))
		}
		if have.Enabled != w.Enabled {
			out = append(out, enableTrigger(p.staging(), w))
		}
		if changed(have.Comment, w.Comment) {
			out = append(out, comment("TRIGGER "+pg.Ident(w.Name)+" ON "+p.staging(), w.Comment))
		}
	}
	return out
}

func enableTrigger(table string, t trigger) string {
	how := map[string]string{"O": "ENABLE", "D": "DISABLE", "R": "ENABLE REPLICA", "A": "ENABLE ALWAYS"}[t.Enabled]
	return fmt.Sprintf("ALTER TABLE ONLY %s %s TRIGGER %s", table, how, pg.Ident(t.Name))
}

func (p *plan) rowSecurity() []string {
	n, m, t := p.s.new, p.s.model(), p.staging()
	var out []string
	for _, w := range m.Policies {
		i := slices.IndexFunc(n.Policies, func(h policy) bool { return h.Name == w.Name })
		if i >= 0 && samePolicy(n.Policies[i], w) {
			if changed(n.Policies[i].Comment, w.Comment) {
				out = append(out, comment("POLICY "+pg.Ident(w.Name)+" ON "+t, w.Comment))
			}
			continue
		}
		if i >= 0 {
			out = append(out, fmt.Sprintf("DROP POLICY %s ON %s", pg.Ident(w.Name), t))
		}
		out = append(out, createPolicy(t, w))
		if w.Comment != nil {
			out = append(out, comment("POLICY "+pg.Ident(w.Name)+" ON "+t, w.Comment))
		}
	}
	for _, h := range n.Policies {
		if !slices.ContainsFunc(m.Policies, func(w policy) bool { return w.Name == h.Name }) {
			out = append(out, fmt.Sprintf("DROP POLICY %s ON %s", pg.Ident(h.Name), t))
		}
	}
	if n.RowSecurity != m.RowSecurity {
		out = append(out, "ALTER TABLE "+t+map[bool]string{true: " ENABLE", false: " DISABLE"}[m.RowSecurity]+" ROW LEVEL SECURITY")
	}
	if n.ForceRLS != m.ForceRLS {
		out = append(out, "ALTER TABLE "+t+map[bool]string{true: " FORCE", false: " NO FORCE"}[m.ForceRLS]+" ROW LEVEL SECURITY")
	}
	return out
}

func samePolicy(a, b policy) bool {
	return a.Permissive == b.Permissive && a.Command == b.Command && slices.Equal(a.Roles, b.Roles) && a.Using == b.Using && a.Check == b.Check
}

func createPolicy(t string, w policy) string {
	sql := fmt.Sprintf("CREATE POLICY %s ON %s", pg.Ident(w.Name), t)
	if !w.Permissive {
		sql += " AS RESTRICTIVE"
	}
	sql += " FOR " + map[string]string{"*": "ALL", "r": "SELECT", "a": "INSERT", "w": "UPDATE", "d": "DELETE"}[w.Command]
	roles := make([]string, len(w.Roles))
	for i, r := range w.Roles {
		roles[i] = roleName(r)
	}
	sql += " TO " + strings.Join(roles, ", ")
	if w.Using != "" {
		sql += " USING (" + w.Using + ")"
	}
	if w.Check != "" {
		sql += " WITH CHECK (" + w.Check + ")"
	}
	return sql
}

func roleName(name string) string {
	if name == "" {
		return "PUBLIC"
	}
	return pg.Ident(name)
}

// ownerMapped is what ALTER … OWNER makes of grants: the former owner's become the new owner's.
func (p *plan) ownerMapped(list []grant) []grant {
	list = slices.Clone(list)
	for i := range list {
		if list[i].Grantor == p.s.new.Owner {
			list[i].Grantor = p.s.model().Owner
		}
		if list[i].Grantee == p.s.new.Owner {
			list[i].Grantee = p.s.model().Owner
		}
	}
	return list
}

// grants makes the privileges on an object those of want. They are taken from everybody first: what default
// privileges gave a staging table is not what the live table has.
func grants(on, owner string, have, want []grant) []string {
	if sameGrants(have, want) {
		return nil
	}
	var out []string
	var roles []string
	for _, g := range append(slices.Clone(have), grant{Grantee: ""}, grant{Grantee: owner}) {
		if g.Grantee != "?" && !slices.Contains(roles, roleName(g.Grantee)) {
			roles = append(roles, roleName(g.Grantee))
		}
	}
	out = append(out, fmt.Sprintf("REVOKE ALL ON %s FROM %s CASCADE", on, strings.Join(roles, ", ")))
	// The owner's first: others may have been granted theirs by a role that got the right to grant from the owner.
	ordered := slices.Clone(want)
	slices.SortStableFunc(ordered, func(a, b grant) int { return rank(a, owner) - rank(b, owner) })
	for _, g := range ordered {
		privilege := g.Privilege
		if g.Column != "" {
			privilege += " (" + pg.Ident(g.Column) + ")"
		}
		sql := fmt.Sprintf("GRANT %s ON %s TO %s", privilege, on, roleName(g.Grantee))
		if g.Grantable {
			sql += " WITH GRANT OPTION"
		}
		if g.Grantor != owner {
			out = append(out, "SET LOCAL ROLE "+pg.Ident(g.Grantor), sql, "RESET ROLE")
			continue
		}
		out = append(out, sql)
	}
	return out
}

func rank(g grant, owner string) int {
	switch {
	case g.Grantor != owner:
		return 2
	case g.Grantee != owner:
		return 1
	}
	return 0
}

func sameGrants(a, b []grant) bool {
	key := func(g grant) string {
		return strings.Join([]string{g.Column, g.Grantor, g.Grantee, g.Privilege, fmt.Sprint(g.Grantable)}, "\x00")
	}
	index := map[string]bool{}
	for _, g := range a {
		index[key(g)] = true
	}
	for _, g := range b {
		if !index[key(g)] {
			return false
		}
		delete(index, key(g))
	}
	return len(index) == 0
}
