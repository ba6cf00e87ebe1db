package swap

import (
	"fmt"
	"slices"
	"strings"

	"synctl/internal/pg"
)

// changedCode is the SQLSTATE by which the exchange says that a definition is no longer the one that was planned for.
const changedCode = "SY001"

// budget lets the next statement take what is left of the lock timeout. transaction_timestamp is when the message with
// BEGIN arrived, so waiting and working together are bounded, and not each of them (promise 8).
func (p *plan) budget() string {
	return fmt.Sprintf("SELECT pg_catalog.set_config('statement_timeout', greatest(1, %d - (extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.transaction_timestamp()) * 1000)::int)::text, true)",
		p.o.LockTimeout.Milliseconds())
}

// lockTables are taken in the order in which queries take them: views, the parent, its partitions.
func (p *plan) lockTables() []string {
	s := p.s
	var list []string
	if s.parent != nil {
		list = append(list, "ONLY "+s.parent.ident())
	}
	if s.old != nil {
		list = append(list, "ONLY "+s.old.ident())
	}
	if s.deflt != nil {
		list = append(list, s.deflt.ident())
	}
	list = append(list, s.lockable...)
	if s.new != nil {
		list = append(list, "ONLY "+p.staging())
	}
	return list
}

func (p *plan) exchangeLocks() string {
	var names []string
	for _, l := range p.lockTables() {
		names = append(names, strings.ReplaceAll(strings.TrimPrefix(l, "ONLY "), `"`, ""))
	}
	return "ACCESS EXCLUSIVE on " + strings.Join(names, ", ")
}

func (p *plan) lock() string {
	lock := "LOCK TABLE " + strings.Join(p.lockTables(), ", ") + " IN ACCESS EXCLUSIVE MODE"
	if p.s.old == nil || len(p.s.old.Views) == 0 {
		return lock
	}
	// LOCK TABLE on a view locks every table that the view reads as well. Giving it the owner that it has locks it
	// alone. One DO is one statement: one timeout for all of it.
	var b strings.Builder
	b.WriteString("DO $synctl$ BEGIN\n")
	for _, v := range p.s.old.Views {
		fmt.Fprintf(&b, "  ALTER VIEW %s OWNER TO %s;\n", pg.Ident(v.Schema, v.Name), pg.Ident(v.Owner))
	}
	b.WriteString("  " + lock + ";\nEND $synctl$")
	return b.String()
}

// guard makes sure under the lock that the definitions are still those that the plan was made for.
func (p *plan) guard() string {
	return fmt.Sprintf(`DO $synctl$ BEGIN
  IF (%s) IS DISTINCT FROM (SELECT print FROM synctl.swap WHERE %s) THEN
    RAISE EXCEPTION 'the definition of a table changed since the exchange was planned' USING ERRCODE = '%s';
  END IF;
END $synctl$`, fingerprintSQL(p.s.oids()), stateKey(p.t), changedCode)
}

// exchange is the one short transaction. Its statements are sent in one message: no round trip happens while locks are
// held.
func (p *plan) exchange() []string {
	s := p.s
	out := []string{
		fmt.Sprintf("SET LOCAL statement_timeout = %d", p.o.LockTimeout.Milliseconds()),
		p.lock(),
		fmt.Sprintf("UPDATE synctl.swap SET began_at = pg_catalog.transaction_timestamp(), locked_at = pg_catalog.clock_timestamp() WHERE %s", stateKey(p.t)),
		p.budget(),
		p.guard(),
	}
	if s.old != nil {
		out = append(out, p.leave()...)
	}
	if s.new != nil {
		out = append(out, p.come()...)
	}
	var former, newcomer, kept = "NULL", "NULL", "NULL"
	if s.old != nil {
		former, kept = fmt.Sprint(s.old.OID), pg.Literal(p.keptName(s.name))
	}
	if s.new != nil {
		newcomer = fmt.Sprint(s.new.OID)
	}
	return append(out, fmt.Sprintf("UPDATE synctl.swap SET state = 'exchanged', former = %s, kept_name = %s, newcomer = %s, bound = %s, exchanged_at = pg_catalog.clock_timestamp() WHERE %s",
		former, kept, newcomer, pg.Literal(s.bound), stateKey(p.t)))
}

// leave takes the former table out and its names away.
func (p *plan) leave() []string {
	s := p.s
	var out []string
	kept := pg.Ident(s.schema, p.keptName(s.name))
	if s.parent != nil {
		out = append(out, fmt.Sprintf("ALTER TABLE %s DETACH PARTITION %s", s.parent.ident(), s.old.ident()), p.budget())
	}
	for _, pr := range p.idents {
		out = append(out, fmt.Sprintf("SELECT pg_catalog.setval(%s::pg_catalog.regclass, last_value, is_called) FROM %s",
			pg.Literal(pg.Ident(pr.want.Schema, pr.name)), pg.Ident(pr.want.Schema, pr.want.Name)))
	}
	out = append(out, fmt.Sprintf("ALTER TABLE %s RENAME TO %s", s.old.ident(), pg.Ident(p.keptName(s.name))))
	for _, k := range s.old.Constraints {
		// A kept table's key would go on forbidding deletes in the table it points at, or cascade into it.
		if k.Type == "f" {
			out = append(out, fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", kept, pg.Ident(k.Name)))
		}
	}
	for _, x := range s.old.Indexes {
		out = append(out, renameIndex(s.schema, x.Name, p.keptName(x.Name)))
	}
	for _, x := range s.old.Statistics {
		out = append(out, renameStatistics(x.Schema, x.Name, p.keptName(x.Name)))
	}
	for _, pr := range p.idents {
		out = append(out, renameSequence(pr.want.Schema, pr.want.Name, p.keptName(pr.want.Name)))
	}
	for _, u := range s.old.Publications {
		out = append(out, fmt.Sprintf("ALTER PUBLICATION %s DROP TABLE ONLY %s", pg.Ident(u.Name), kept))
	}
	return out
}

// come gives the newcomer the names and the place.
func (p *plan) come() []string {
	s := p.s
	var out []string
	at := pg.Ident(s.schema, s.name)
	if s.new.Name != s.name {
		out = append(out, fmt.Sprintf("ALTER TABLE %s RENAME TO %s", p.staging(), pg.Ident(s.name)))
	}
	if s.new.marked() {
		out = append(out, comment("TABLE "+at, s.model().Comment))
	}
	for _, x := range p.indexes {
		if x.name != x.last {
			out = append(out, renameIndex(s.schema, x.name, x.last))
		}
	}
	for _, x := range p.stats {
		if x.name != x.want.Name {
			out = append(out, renameStatistics(x.want.Schema, x.name, x.want.Name))
		}
	}
	for _, x := range p.idents {
		out = append(out, renameSequence(x.want.Schema, x.name, x.want.Name))
	}
	if s.parent != nil {
		out = append(out, p.budget(), fmt.Sprintf("ALTER TABLE %s ATTACH PARTITION %s %s", s.parent.ident(), at, s.bound), p.budget(),
			fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", at, pg.Ident(p.boundName())))
		if s.deflt != nil {
			out = append(out, fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT %s", s.deflt.ident(), pg.Ident(p.excludeName())))
		}
		out = append(out, p.clonedTriggers(at)...)
	}
	if s.old == nil {
		return out
	}
	for _, x := range s.old.Sequences {
		if !x.Identity {
			out = append(out, fmt.Sprintf("ALTER SEQUENCE %s OWNED BY %s.%s", pg.Ident(x.Schema, x.Name), at, pg.Ident(x.Column)))
		}
	}
	for _, u := range s.old.Publications {
		out = append(out, publish(u, at))
	}
	for _, v := range s.old.Views {
		out = append(out, replaceView(v))
	}
	return out
}

// clonedTriggers restores what was set on the former partition's clones: ATTACH clones the parent's state.
func (p *plan) clonedTriggers(at string) []string {
	if p.s.old == nil {
		return nil
	}
	var out []string
	for _, t := range p.s.old.Triggers {
		i := slices.IndexFunc(p.s.parent.Triggers, func(x trigger) bool { return x.Name == t.Name })
		if t.Cloned && i >= 0 && p.s.parent.Triggers[i].Enabled != t.Enabled {
			out = append(out, enableTrigger(at, t))
		}
		if t.Cloned && t.Comment != nil {
			out = append(out, comment("TRIGGER "+pg.Ident(t.Name)+" ON "+at, t.Comment))
		}
	}
	return out
}

func publish(u publication, at string) string {
	sql := fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE ONLY %s", pg.Ident(u.Name), at)
	if len(u.Columns) > 0 {
		quoted := make([]string, len(u.Columns))
		for i, c := range u.Columns {
			quoted[i] = pg.Ident(c)
		}
		sql += " (" + strings.Join(quoted, ", ") + ")"
	}
	if u.Filter != "" {
		sql += " WHERE (" + u.Filter + ")"
	}
	return sql
}

// replaceView has a view read the table that now bears the name. Its OID stays, and with it what depends on it, its
// owner, privileges and comments.
func replaceView(v view) string {
	sql := "CREATE OR REPLACE VIEW " + pg.Ident(v.Schema, v.Name)
	if len(v.Options) > 0 {
		var set []string
		for _, o := range v.Options {
			k, value, _ := strings.Cut(o, "=")
			set = append(set, pg.Ident(k)+" = "+pg.Literal(value))
		}
		sql += " WITH (" + strings.Join(set, ", ") + ")"
	}
	return sql + " AS" + "\n" + strings.TrimSuffix(strings.TrimRight(v.Def, " \n"), ";")
}

func renameIndex(schema, from, to string) string {
	return fmt.Sprintf("ALTER INDEX %s RENAME TO %s", pg.Ident(schema, from), pg.Ident(to))
}

func renameStatistics(schema, from, to string) string {
	return fmt.Sprintf("ALTER STATISTICS %s RENAME TO %s", pg.Ident(schema, from), pg.Ident(to))
}

func renameSequence(schema, from, to string) string {
	return fmt.Sprintf("ALTER SEQUENCE %s RENAME TO %s", pg.Ident(schema, from), pg.Ident(to))
}
