package swap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/pg"
)

// judge finds everything that cannot be carried over, before anything is changed.
func (s *situation) judge(ctx context.Context, tx pgx.Tx, o Options) error {
	if s.new != nil {
		s.judgeStaging(o.DryRun && len(o.Draft) > 0)
		s.judgeColumns()
		if err := s.judgeWriters(ctx, tx); err != nil {
			return err
		}
	}
	for _, r := range []*relation{s.old, s.parent} {
		if r == nil {
			continue
		}
		if err := s.judgeDependents(ctx, tx, r, r == s.old); err != nil {
			return err
		}
	}
	if err := s.judgeForeignKeys(ctx, tx); err != nil {
		return err
	}
	s.judgeModel(o)
	if s.new != nil && s.new.Persistence == "u" {
		if s.new.Tuples > 0 {
			var any bool
			if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+s.new.ident()+`)`).Scan(&any); err != nil {
				return fmt.Errorf("look into staging: %w", err)
			}
			if !any {
				s.refuse("%s is unlogged and empty, and was counted with %.0f rows before: a crash of the server emptied it; load it again", s.new.display(), s.new.Tuples)
			}
		}
		if o.KeepUnlogged {
			s.warn("%s stays unlogged: a crash or an immediate stop of the server, and a standby's promotion, EMPTY it, and queries on a standby that touch it fail", displayName(s.schema, s.name))
		}
	}
	return s.judgeRights(ctx, tx)
}

// stagingMark begins the comment that a load gives its staging table, and by which its next try knows that the table is
// its own to replace. It therefore stays until the exchange.
const stagingMark = "synctl staging "

func (r *relation) marked() bool {
	return r.Comment != nil && strings.HasPrefix(*r.Comment, stagingMark)
}

func (r *relation) loading() bool {
	return r.marked() && strings.Contains(*r.Comment, `"state":"loading"`)
}

func (s *situation) judgeStaging(draft bool) {
	n := s.new
	switch {
	case n.Kind != "r":
		s.refuse("staging %s is no table but %s", n.display(), kindName(n.Kind))
	case n.Persistence == "t":
		s.refuse("staging %s is a temporary table", n.display())
	case n.loading() && !draft:
		s.refuse("staging %s is not complete: a load is filling it, or did not end; load it again", n.display())
	case n.Partition:
		s.refuse("staging %s is already a partition of a table", n.display())
	case s.old != nil && n.OID == s.old.OID, s.parent != nil && n.OID == s.parent.OID:
		s.refuse("staging and live table are both %s", n.display())
	}
	if m := s.model(); n.Method != m.Method && m.Kind == "r" {
		s.refuse("staging %s uses table access method %s, %s uses %s", n.display(), n.Method, m.display(), m.Method)
	}
}

// judgeWriters refuses a staging table that is still being written: what is not committed yet would be missed by the
// checks, and older than nobody's snapshot.
func (s *situation) judgeWriters(ctx context.Context, tx pgx.Tx) error {
	writers, err := strings1(ctx, tx, `SELECT format('session %s (%s)', l.pid, a.application_name) FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
		WHERE l.locktype = 'relation' AND l.relation = $1 AND l.mode = 'RowExclusiveLock' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
		AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())`, s.new.OID)
	if err != nil {
		return err
	}
	for _, w := range writers {
		s.refuse("staging %s is still being written by %s", s.new.display(), w)
	}
	return nil
}

// judgeColumns holds the newcomer's columns against the live table's. What a later step can set (defaults, NOT NULL,
// storage) is not looked at here.
func (s *situation) judgeColumns() {
	live, n := s.live(), s.new
	var common []string
	for _, c := range live.Columns {
		x := n.column(c.Name)
		if x == nil {
			s.refuse("staging %s lacks column %s", n.display(), c.Name)
			continue
		}
		common = append(common, c.Name)
		if x.Type != c.Type {
			s.refuse("column %s is %s in staging and %s in %s", c.Name, x.Type, c.Type, live.display())
		}
		if x.Collation != c.Collation {
			s.refuse("column %s has collation %q in staging and %q in %s", c.Name, x.Collation, c.Collation, live.display())
		}
		if x.Generated != c.Generated || c.Generated != "" && x.Default != c.Default {
			s.refuse("column %s is generated %s in %s and %s in staging: make staging with LIKE … INCLUDING GENERATED", c.Name, generation(c), live.display(), generation(*x))
		}
		if x.Identity != "" && (s.parent != nil || c.Identity == "") {
			s.refuse("column %s of staging is an identity column: drop the identity", c.Name)
		}
	}
	for _, c := range n.Columns {
		if live.column(c.Name) == nil {
			s.refuse("column %s of staging does not exist in %s", c.Name, live.display())
		}
	}
	if s.parent != nil || len(common) != len(live.Columns) || len(common) != len(n.Columns) {
		return
	}
	// INSERT without a column list and SELECT * go by position.
	for i := range n.Columns {
		if n.Columns[i].Name != live.Columns[i].Name {
			s.refuse("columns of staging are in another order: %s stands where %s has %s", n.Columns[i].Name, live.display(), live.Columns[i].Name)
			return
		}
	}
}

func generation(c column) string {
	if c.Generated == "" {
		return "not"
	}
	return "as " + c.Default
}

// Everything that depends on a table or its row type and that no step carries over. What is of the table itself, or
// has a step (views, sequences, publications), is left out.
const dependentSQL = `
SELECT DISTINCT pg_describe_object(d.classid, d.objid, d.objsubid)
FROM pg_depend d JOIN pg_class c ON c.oid = $1
LEFT JOIN pg_type t ON t.oid = c.reltype
WHERE d.deptype IN ('n', 'a', 'i', 'e', 'x')
  AND (d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (c.reltype, t.typarray) AND d.refobjid <> 0)
  AND NOT (d.classid = 'pg_class'::regclass AND (
       EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = d.objid AND i.indrelid = c.oid) OR d.objid = c.oid OR d.objid = c.reltoastrelid
    OR EXISTS (SELECT FROM pg_class s WHERE s.oid = d.objid AND s.relkind = 'S' AND d.deptype IN ('a', 'i'))
    OR EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = d.objid AND h.inhparent = c.oid)))
  AND NOT (d.classid = 'pg_constraint'::regclass AND EXISTS (SELECT FROM pg_constraint k WHERE k.oid = d.objid AND (k.conrelid = c.oid OR k.contype = 'f')))
  AND NOT (d.classid = 'pg_attrdef'::regclass AND EXISTS (SELECT FROM pg_attrdef a WHERE a.oid = d.objid AND a.adrelid = c.oid))
  AND NOT (d.classid = 'pg_trigger'::regclass AND EXISTS (SELECT FROM pg_trigger g WHERE g.oid = d.objid AND (g.tgrelid = c.oid OR g.tgisinternal)))
  AND NOT (d.classid = 'pg_policy'::regclass AND EXISTS (SELECT FROM pg_policy p WHERE p.oid = d.objid AND p.polrelid = c.oid))
  AND NOT (d.classid = 'pg_rewrite'::regclass AND EXISTS (SELECT FROM pg_rewrite r JOIN pg_class v ON v.oid = r.ev_class WHERE r.oid = d.objid AND (v.relkind IN ('v', 'm') OR v.oid = c.oid)))
  AND NOT (d.classid = 'pg_statistic_ext'::regclass AND EXISTS (SELECT FROM pg_statistic_ext x WHERE x.oid = d.objid AND x.stxrelid = c.oid))
  AND d.classid <> 'pg_publication_rel'::regclass
  AND NOT (d.classid = 'pg_type'::regclass AND d.objid IN (c.reltype, t.typarray))
ORDER BY 1`

// Properties of a table that are not in relation, as sentences.
const oddSQL = `
SELECT format('%s belongs to an extension', $1::oid::regclass) FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = $1 AND deptype = 'e'
UNION ALL SELECT format('%s has rule %s', $1::oid::regclass, rulename) FROM pg_rewrite WHERE ev_class = $1
UNION ALL SELECT format('%s is the target of a subscription', $1::oid::regclass) FROM pg_subscription_rel WHERE srrelid = $1
UNION ALL SELECT format('%s has a security label of provider %s', $1::oid::regclass, provider) FROM pg_seclabel WHERE classoid = 'pg_class'::regclass AND objoid = $1
UNION ALL SELECT format('%s is made OF a type', $1::oid::regclass) FROM pg_class WHERE oid = $1 AND reloftype <> 0
UNION ALL SELECT format('%s has inheritance children', $1::oid::regclass) FROM pg_class c WHERE c.oid = $1 AND c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = $1)
UNION ALL SELECT format('%s inherits from a table', $1::oid::regclass) FROM pg_class c WHERE c.oid = $1 AND NOT c.relispartition AND EXISTS (SELECT FROM pg_inherits WHERE inhrelid = $1)`

func (s *situation) judgeDependents(ctx context.Context, tx pgx.Tx, r *relation, leaves bool) error {
	odd, err := strings1(ctx, tx, oddSQL, r.OID)
	if err != nil {
		return err
	}
	for _, o := range odd {
		if leaves || r.Kind != "p" {
			s.refuse("%s, which cannot be carried over", o)
		}
	}
	if !leaves {
		return nil
	}
	dependents, err := strings1(ctx, tx, dependentSQL, r.OID)
	if err != nil {
		return err
	}
	for _, d := range dependents {
		s.refuse("%s depends on %s and would stay with the former table", d, r.display())
	}
	return nil
}

func strings1(ctx context.Context, q querier, sql string, args ...any) ([]string, error) {
	r, err := q.Query(ctx, sql, args...)
	if err == nil {
		var list []string
		if list, err = pgx.CollectRows(r, pgx.RowTo[string]); err == nil {
			return list, nil
		}
	}
	return nil, fmt.Errorf("read dependencies: %w", err)
}

type incoming struct {
	Name     string
	From     uint32
	FromName string
	Own      bool   // made on the table itself, not inherited from its parent
	Join     string // f.a = p.b AND …
}

// judgeForeignKeys looks at keys in both directions. Keys that point at a partition through its parent survive as long
// as no row refers to it; keys that point at the very table that leaves would go on pointing at it.
func (s *situation) judgeForeignKeys(ctx context.Context, tx pgx.Tx) error {
	if s.parent != nil {
		if slices.ContainsFunc(s.parent.Constraints, func(k constraint) bool { return k.Type == "f" && k.Ref == s.parent.OID }) {
			s.refuse("%s has a foreign key to itself: the rows of a partition can only be checked against the others once it is attached", s.parent.display())
			return nil
		}
	}
	for _, r := range []*relation{s.old, s.parent} {
		if r == nil {
			continue
		}
		list, err := rows[incoming](ctx, tx, "foreign keys", `SELECT k.conname, k.conrelid, format('%I.%I', n.nspname, c.relname), k.conparentid = 0,
			(SELECT string_agg(format('f.%I = p.%I', fa.attname, pa.attname), ' AND ') FROM unnest(k.conkey, k.confkey) x(f, p)
			 JOIN pg_attribute fa ON fa.attrelid = k.conrelid AND fa.attnum = x.f JOIN pg_attribute pa ON pa.attrelid = k.confrelid AND pa.attnum = x.p)
			FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
			WHERE k.contype = 'f' AND k.confrelid = $1 AND k.conrelid <> $1 ORDER BY 1`, r.OID)
		if err != nil {
			return err
		}
		for _, k := range list {
			s.refs[k.From] = k.FromName
			switch {
			case r != s.old:
			case k.Own:
				s.refuse("foreign key %s of %s points at %s: it would go on pointing at the former table, and could only be moved unvalidated; drop it before and add it again after the swap", k.Name, k.FromName, r.display())
			default:
				var found bool
				if err := tx.QueryRow(ctx, fmt.Sprintf(`SELECT EXISTS (SELECT FROM %s f JOIN %s p ON %s)`, k.FromName, r.ident(), k.Join)).Scan(&found); err != nil {
					return fmt.Errorf("look for references: %w", err)
				}
				if found {
					s.refuse("rows of %s refer to rows of partition %s by foreign key %s, and PostgreSQL detaches no partition that is referred to", k.FromName, r.display(), k.Name)
				}
			}
		}
		for _, k := range r.Constraints {
			if k.Type == "f" && k.Ref != r.OID {
				s.refs[k.Ref] = k.RefName
			}
		}
	}
	return s.findLockable(ctx, tx)
}

// findLockable keeps those tables at the other end of foreign keys that our role may lock beforehand; the rest is
// locked by the statements that need it.
func (s *situation) findLockable(ctx context.Context, tx pgx.Tx) error {
	for oid, name := range s.refs {
		var may bool
		if err := tx.QueryRow(ctx, `SELECT has_table_privilege($1::oid, 'UPDATE') OR has_table_privilege($1::oid, 'DELETE') OR has_table_privilege($1::oid, 'TRUNCATE')`, oid).Scan(&may); err != nil {
			return fmt.Errorf("read privileges: %w", err)
		}
		if may {
			s.lockable = append(s.lockable, name)
		}
	}
	slices.Sort(s.lockable)
	return nil
}

// judgeModel names properties of the live table that have no step.
func (s *situation) judgeModel(o Options) {
	if s.old == nil {
		return
	}
	for _, v := range s.old.Views {
		if v.Kind == "m" {
			s.refuse("materialized view %s reads %s: it would have to be filled anew under the lock; drop it before and create it after the swap", displayName(v.Schema, v.Name), s.old.display())
		}
	}
	for _, x := range s.old.Indexes {
		if !x.Valid {
			s.refuse("index %s of %s is invalid: drop or rebuild it", x.Name, s.old.display())
		}
	}
	if o.KeepUnlogged && s.new != nil && s.new.Persistence == "u" && len(s.old.Publications) > 0 {
		s.refuse("%s is in publication %s, which cannot have an unlogged table: leave --keep-unlogged out", s.old.display(), s.old.Publications[0].Name)
	}
	if s.old.Persistence == "u" {
		s.warn("%s was unlogged; its successor is %s", s.old.display(), map[bool]string{true: "unlogged", false: "logged"}[o.KeepUnlogged && s.new != nil && s.new.Persistence == "u"])
	}
}

// judgeRights makes sure that the exchange will not stop at a missing right after everything was prepared.
func (s *situation) judgeRights(ctx context.Context, tx pgx.Tx) error {
	need := map[string]string{} // role → what it owns
	for _, r := range []*relation{s.parent, s.old, s.new, s.deflt} {
		if r != nil {
			need[r.Owner] = r.display()
		}
	}
	if s.old != nil {
		for _, v := range s.old.Views {
			need[v.Owner] = "view " + displayName(v.Schema, v.Name)
		}
		for _, p := range s.old.Publications {
			need[p.Owner] = "publication " + p.Name
		}
		for _, g := range s.old.Grants {
			need[g.Grantor] = "a privilege on " + s.old.display()
		}
	}
	for role, what := range need {
		var member bool
		if err := tx.QueryRow(ctx, `SELECT pg_has_role($1::name, 'USAGE')`, role).Scan(&member); err != nil {
			return fmt.Errorf("read roles: %w", err)
		}
		if !member {
			s.refuse("the role that synctl connects with is not a member of %s, which owns %s", role, what)
		}
	}
	var create bool
	if err := tx.QueryRow(ctx, `SELECT has_schema_privilege($1::text, 'CREATE')`, s.schema).Scan(&create); err != nil {
		return fmt.Errorf("read schema privileges: %w", err)
	}
	if !create {
		s.refuse("the role that synctl connects with may not create indexes in schema %s: GRANT CREATE ON SCHEMA %s", s.schema, pg.Ident(s.schema))
	}
	return nil
}

// fingerprint changes with every change of the definition of the tables: their catalog rows are versioned by xmin,
// which statistics (updated in place) leave alone.
func fingerprint(ctx context.Context, q querier, oids []uint32) (string, error) {
	var sum string
	err := q.QueryRow(ctx, fingerprintSQL(oids)).Scan(&sum)
	if err != nil {
		return "", fmt.Errorf("read fingerprint: %w", err)
	}
	return sum, nil
}

func fingerprintSQL(oids []uint32) string {
	list := make([]string, len(oids))
	for i, o := range oids {
		list[i] = fmt.Sprint(o)
	}
	in := "(" + strings.Join(list, ", ") + ")"
	return `SELECT md5(string_agg(t, ',' ORDER BY t)) FROM (
      SELECT 'r' || oid || ':' || xmin FROM pg_catalog.pg_class WHERE oid IN ` + in + `
      UNION ALL SELECT 'a' || attrelid || '.' || attnum || ':' || xmin FROM pg_catalog.pg_attribute WHERE attrelid IN ` + in + `
      UNION ALL SELECT 'k' || oid || ':' || xmin FROM pg_catalog.pg_constraint WHERE conrelid IN ` + in + `
      UNION ALL SELECT 'i' || indexrelid || ':' || xmin FROM pg_catalog.pg_index WHERE indrelid IN ` + in + `
      UNION ALL SELECT 'g' || oid || ':' || xmin FROM pg_catalog.pg_trigger WHERE tgrelid IN ` + in + `
      UNION ALL SELECT 'p' || oid || ':' || xmin FROM pg_catalog.pg_policy WHERE polrelid IN ` + in + `
      UNION ALL SELECT 's' || oid || ':' || xmin FROM pg_catalog.pg_statistic_ext WHERE stxrelid IN ` + in + `
      UNION ALL SELECT 'u' || oid || ':' || xmin FROM pg_catalog.pg_publication_rel WHERE prrelid IN ` + in + `
      UNION ALL SELECT 'h' || inhrelid || ':' || xmin FROM pg_catalog.pg_inherits WHERE inhparent IN ` + in + `
      UNION ALL SELECT 'd' || classid || '.' || objid || '.' || objsubid || ':' || xmin FROM pg_catalog.pg_depend
        WHERE refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND refobjid IN ` + in + `
    ) x(t)`
}
