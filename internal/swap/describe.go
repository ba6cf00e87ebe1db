package swap

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

const relationSQL = `
SELECT c.oid, n.nspname, c.relname, pg_get_userbyid(c.relowner), c.relkind::text, c.relpersistence::text,
       coalesce(am.amname, ''), coalesce(ts.spcname, ''), c.relreplident::text, c.relrowsecurity, c.relforcerowsecurity,
       c.relispartition, coalesce(pg_get_expr(c.relpartbound, c.oid), ''), coalesce(c.reloptions, '{}'),
       coalesce((SELECT t.reloptions FROM pg_class t WHERE t.oid = c.reltoastrelid), '{}'),
       obj_description(c.oid, 'pg_class'), c.reltype, c.reltuples
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_am am ON am.oid = c.relam LEFT JOIN pg_tablespace ts ON ts.oid = c.reltablespace
WHERE c.oid = $1`

const columnSQL = `
SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod),
       coalesce((SELECT quote_ident(n.nspname) || '.' || quote_ident(l.collname) FROM pg_collation l
                 JOIN pg_namespace n ON n.oid = l.collnamespace WHERE l.oid = a.attcollation), ''),
       a.attnotnull, a.attidentity::text, a.attgenerated::text, coalesce(pg_get_expr(d.adbin, d.adrelid), ''),
       a.attstorage::text, a.attcompression::text, coalesce(a.attstattarget::int, -1), coalesce(a.attoptions, '{}'),
       col_description(a.attrelid, a.attnum)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

const grantSQL = `
SELECT ''::text, pg_get_userbyid(x.grantor), CASE x.grantee WHEN 0 THEN '' ELSE pg_get_userbyid(x.grantee) END, x.privilege_type, x.is_grantable
FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner))) x WHERE c.oid = $1
UNION ALL
SELECT a.attname, pg_get_userbyid(x.grantor), CASE x.grantee WHEN 0 THEN '' ELSE pg_get_userbyid(x.grantee) END, x.privilege_type, x.is_grantable
FROM pg_attribute a, aclexplode(a.attacl) x WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY 1, 3, 4`

// The prefix of an index's definition has the names of index and table; what follows it is what two tables can share.
const indexSQL = `
SELECT i.indexrelid, ic.relname, i.indisunique, i.indisvalid, i.indisclustered, i.indisreplident,
       substr(pg_get_indexdef(i.indexrelid), 1 + length(format('CREATE %sINDEX %I ON %s%I.%I ',
         CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END, ic.relname, CASE ic.relkind WHEN 'I' THEN 'ONLY ' ELSE '' END, n.nspname, c.relname))),
       coalesce(ts.spcname, ''), obj_description(i.indexrelid, 'pg_class'),
       coalesce((SELECT array_agg(a.attnum || '=' || a.attstattarget ORDER BY a.attnum) FROM pg_attribute a
                 WHERE a.attrelid = i.indexrelid AND a.attstattarget >= 0), '{}'),
       coalesce(k.contype::text, ''), coalesce(k.conname, ''), coalesce(pg_get_constraintdef(k.oid), ''),
       coalesce(k.condeferrable, false), coalesce(k.condeferred, false), obj_description(k.oid, 'pg_constraint'),
       coalesce((SELECT h.inhparent FROM pg_inherits h WHERE h.inhrelid = i.indexrelid), 0)
FROM pg_index i JOIN pg_class ic ON ic.oid = i.indexrelid JOIN pg_class c ON c.oid = i.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace LEFT JOIN pg_tablespace ts ON ts.oid = ic.reltablespace
LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = i.indrelid AND k.contype IN ('p', 'u', 'x')
WHERE i.indrelid = $1 ORDER BY k.contype IS DISTINCT FROM 'p', ic.relname`

// A foreign key to a partitioned table has rows for that table's partitions too; they belong to the one that was made.
const constraintSQL = `
SELECT k.conname, k.contype::text, pg_get_constraintdef(k.oid), k.convalidated, k.confrelid,
       coalesce((SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = k.confrelid), ''),
       k.coninhcount > 0 OR k.conparentid <> 0, obj_description(k.oid, 'pg_constraint')
FROM pg_constraint k
WHERE k.conrelid = $1 AND k.contype IN ('c', 'f', 'n')
  AND NOT EXISTS (SELECT FROM pg_constraint p WHERE p.oid = k.conparentid AND p.conrelid = k.conrelid)
  AND NOT (k.contype = 'f' AND EXISTS (SELECT FROM pg_constraint p, pg_inherits h WHERE p.conrelid = k.conrelid AND p.contype = 'f'
           AND p.conkey = k.conkey AND h.inhrelid = k.confrelid AND h.inhparent = p.confrelid))
ORDER BY k.contype, k.conname`

const triggerSQL = `
SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, t.tgparentid <> 0, obj_description(t.oid, 'pg_trigger')
FROM pg_trigger t WHERE t.tgrelid = $1 AND (NOT t.tgisinternal OR t.tgparentid <> 0)
  AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.oid = t.tgconstraint AND k.contype <> 't')
ORDER BY t.tgname`

const policySQL = `
SELECT p.polname, p.polpermissive, p.polcmd::text,
       ARRAY(SELECT CASE r WHEN 0 THEN '' ELSE pg_get_userbyid(r) END FROM unnest(p.polroles) r ORDER BY 1),
       coalesce(pg_get_expr(p.polqual, p.polrelid), ''), coalesce(pg_get_expr(p.polwithcheck, p.polrelid), ''),
       obj_description(p.oid, 'pg_policy')
FROM pg_policy p WHERE p.polrelid = $1 ORDER BY p.polname`

const statisticSQL = `
SELECT n.nspname, s.stxname, pg_get_userbyid(s.stxowner), pg_get_statisticsobjdef(s.oid), coalesce(s.stxstattarget::int, -1),
       obj_description(s.oid, 'pg_statistic_ext')
FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace WHERE s.stxrelid = $1 ORDER BY s.stxname`

// Column lists and row filters came with 15.
const publicationSQL = `
SELECT p.pubname, pg_get_userbyid(p.pubowner), %s, %s
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid WHERE r.prrelid = $1 ORDER BY p.pubname`

const sequenceSQL = `
SELECT s.oid, n.nspname, s.relname, a.attname, d.deptype = 'i', pg_get_userbyid(s.relowner),
       format('START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s%s', q.seqstart, q.seqincrement, q.seqmin, q.seqmax, q.seqcache,
              CASE WHEN q.seqcycle THEN ' CYCLE' ELSE '' END)
FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' JOIN pg_namespace n ON n.oid = s.relnamespace
JOIN pg_sequence q ON q.seqrelid = s.oid JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND d.deptype IN ('a', 'i')
ORDER BY s.relname`

const viewSQL = `
SELECT v.oid, n.nspname, v.relname, pg_get_userbyid(v.relowner), v.relkind::text, coalesce(v.reloptions, '{}'), pg_get_viewdef(v.oid)
FROM pg_class v JOIN pg_namespace n ON n.oid = v.relnamespace
WHERE v.relkind IN ('v', 'm') AND EXISTS (SELECT FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
  WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND r.ev_class = v.oid)
ORDER BY n.nspname, v.relname`

type relationRow struct {
	OID                              uint32
	Schema, Name, Owner              string
	Kind, Persistence, Method, Space string
	Identity                         string
	RowSecurity, ForceRLS, Partition bool
	Bound                            string
	Options, ToastOpts               []string
	Comment                          *string
	RowType                          uint32
	Tuples                           float32
}

// describe reads everything that has to be carried over. version is the server's major version.
func describe(ctx context.Context, q querier, version int, oid uint32) (*relation, error) {
	head, err := rows[relationRow](ctx, q, "table", relationSQL, oid)
	if err != nil {
		return nil, err
	}
	if len(head) == 0 {
		return nil, fmt.Errorf("read table %d: it is gone", oid)
	}
	h := head[0]
	r := &relation{OID: h.OID, Schema: h.Schema, Name: h.Name, Owner: h.Owner, Kind: h.Kind, Persistence: h.Persistence, Method: h.Method,
		Space: h.Space, Identity: h.Identity, RowSecurity: h.RowSecurity, ForceRLS: h.ForceRLS, Partition: h.Partition, Bound: h.Bound,
		Options: h.Options, ToastOpts: h.ToastOpts, Comment: h.Comment, RowType: h.RowType, Tuples: h.Tuples}
	if r.Columns, err = rows[column](ctx, q, "columns", columnSQL, oid); err != nil {
		return nil, err
	}
	if r.Grants, err = rows[grant](ctx, q, "privileges", grantSQL, oid); err != nil {
		return nil, err
	}
	if r.Indexes, err = rows[index](ctx, q, "indexes", indexSQL, oid); err != nil {
		return nil, err
	}
	if r.Constraints, err = rows[constraint](ctx, q, "constraints", constraintSQL, oid); err != nil {
		return nil, err
	}
	if r.Triggers, err = rows[trigger](ctx, q, "triggers", triggerSQL, oid); err != nil {
		return nil, err
	}
	if r.Policies, err = rows[policy](ctx, q, "policies", policySQL, oid); err != nil {
		return nil, err
	}
	if r.Statistics, err = rows[statistic](ctx, q, "extended statistics", statisticSQL, oid); err != nil {
		return nil, err
	}
	columns, filter := `'{}'::text[]`, `''`
	if version >= 15 {
		columns = `ARRAY(SELECT a.attname::text FROM unnest(r.prattrs) x JOIN pg_attribute a ON a.attrelid = r.prrelid AND a.attnum = x ORDER BY x)`
		filter = `coalesce(pg_get_expr(r.prqual, r.prrelid), '')`
	}
	if r.Publications, err = rows[publication](ctx, q, "publications", fmt.Sprintf(publicationSQL, columns, filter), oid); err != nil {
		return nil, err
	}
	if r.Sequences, err = sequences(ctx, q, oid); err != nil {
		return nil, err
	}
	if r.Views, err = rows[view](ctx, q, "views", viewSQL, oid); err != nil {
		return nil, err
	}
	return r, r.neutralize(ctx, q)
}

func sequences(ctx context.Context, q querier, oid uint32) ([]sequence, error) {
	type row struct {
		OID                  uint32
		Schema, Name, Column string
		Identity             bool
		Owner, Options       string
	}
	list, err := rows[row](ctx, q, "sequences", sequenceSQL, oid)
	if err != nil {
		return nil, err
	}
	var out []sequence
	for _, s := range list {
		grants, err := rows[grant](ctx, q, "privileges", grantSQL, s.OID)
		if err != nil {
			return nil, err
		}
		out = append(out, sequence{s.OID, s.Schema, s.Name, s.Column, s.Identity, s.Owner, s.Options, grants})
	}
	return out, nil
}

// neutralize takes the table's own name out of the texts that the server gives with it.
func (r *relation) neutralize(ctx context.Context, q querier) error {
	var ident string
	if err := q.QueryRow(ctx, `SELECT format('%I.%I', $1::text, $2::text)`, r.Schema, r.Name).Scan(&ident); err != nil {
		return fmt.Errorf("quote name: %w", err)
	}
	for i, t := range r.Triggers {
		r.Triggers[i].Def = strings.Replace(t.Def, " ON "+ident+" ", " ON "+tableMark+" ", 1)
	}
	for i, s := range r.Statistics {
		// CREATE STATISTICS schema.name (kinds) ON columns FROM table
		def := strings.TrimSuffix(s.Def, " FROM "+ident)
		var name string
		if err := q.QueryRow(ctx, `SELECT format('CREATE STATISTICS %I.%I', $1::text, $2::text)`, s.Schema, s.Name).Scan(&name); err != nil {
			return fmt.Errorf("quote name: %w", err)
		}
		r.Statistics[i].Def = strings.TrimPrefix(def, name)
	}
	for i, k := range r.Constraints {
		if k.Type == "f" && k.Ref == r.OID {
			r.Constraints[i].Def = strings.Replace(k.Def, " REFERENCES "+ident+"(", " REFERENCES "+tableMark+"(", 1)
		}
	}
	return nil
}

var _ querier = (*pgx.Conn)(nil)
