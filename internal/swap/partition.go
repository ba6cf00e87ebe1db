package swap

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// twinSiblings is up to how many partitions a bound is tried against a copy of the parent; beyond it an overlap is
// found by the exchange itself, which then rolls back.
const twinSiblings = 500

type sibling struct {
	OID   uint32
	Name  string
	Bound string
}

// findPartition looks for the partition to replace, and has the server say what its bound means.
func (s *situation) findPartition(ctx context.Context, tx pgx.Tx, values string) error {
	if s.parent.Kind != "p" {
		s.refuse("%s is not partitioned: leave --partition out to exchange the whole table", s.parent.display())
		return nil
	}
	var strategy string
	var key, constraint string
	if err := tx.QueryRow(ctx, `SELECT partstrat::text, pg_get_partkeydef(partrelid), coalesce(pg_get_partition_constraintdef(partrelid), '')
		FROM pg_partitioned_table WHERE partrelid = $1`, s.parent.OID).Scan(&strategy, &key, &constraint); err != nil {
		return fmt.Errorf("read partition key: %w", err)
	}
	if strategy == "h" {
		s.refuse("%s is partitioned by hash: a data set has rows for every remainder, so one partition cannot be exchanged for it; swap the whole table under a plain table, or partition by list or range", s.parent.display())
		return nil
	}
	siblings, err := rows[sibling](ctx, tx, "partitions", `SELECT c.oid, c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid)
		FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = $1 ORDER BY c.oid`, s.parent.OID)
	if err != nil {
		return err
	}
	if err := s.findOld(ctx, tx, siblings); err != nil || len(s.refusals) > 0 {
		return err
	}
	if s.old == nil && values == "" {
		return fault.New(fault.Usage, `Add --values "IN (…)" or --values "FROM (…) TO (…)".`, "partition %s does not exist yet, and no bounds are given", displayName(s.schema, s.name))
	}
	if s.old == nil && strings.EqualFold(values, "DEFAULT") {
		s.refuse("a default partition can be replaced, not added: create it first, empty")
		return nil
	}
	if err := s.readBound(ctx, tx, key, values, siblings); err != nil || len(s.refusals) > 0 {
		return err
	}
	if constraint != "" {
		// The parent is itself a partition: what its own bound demands is demanded of the newcomer too.
		s.within = "(" + s.only + ") AND (" + constraint + ")"
	}
	return nil
}

func (s *situation) findOld(ctx context.Context, tx pgx.Tx, siblings []sibling) error {
	var oid *uint32
	if err := tx.QueryRow(ctx, `SELECT to_regclass($1)::oid`, pg.Ident(s.schema, s.name)).Scan(&oid); err != nil {
		return fmt.Errorf("look for partition: %w", err)
	}
	if oid != nil {
		i := slices.IndexFunc(siblings, func(x sibling) bool { return x.OID == *oid })
		if i < 0 {
			s.refuse("%s exists and is no partition of %s", displayName(s.schema, s.name), s.parent.display())
			return nil
		}
		old, err := describe(ctx, tx, s.version, *oid)
		if err != nil {
			return err
		}
		s.old = old
		switch old.Kind {
		case "r":
		case "p":
			s.refuse("%s is itself partitioned: give it as --table and swap its partitions", old.display())
		default:
			s.refuse("%s is %s", old.display(), kindName(old.Kind))
		}
	}
	if i := slices.IndexFunc(siblings, func(x sibling) bool { return x.Bound == "DEFAULT" }); i >= 0 && (oid == nil || siblings[i].OID != *oid) {
		deflt, err := describe(ctx, tx, s.version, siblings[i].OID)
		if err != nil {
			return err
		}
		if deflt.Kind == "f" {
			s.refuse("the default partition %s is a foreign table: it cannot be shown to hold no rows of the new partition", deflt.display())
		}
		s.deflt = deflt
	}
	return nil
}

// readBound has the server parse --values and say which expression a partition with them enforces, on a temporary
// copy of the parent's shape: the live table is only looked at.
func (s *situation) readBound(ctx context.Context, tx pgx.Tx, key, values string, siblings []sibling) error {
	if s.old != nil && s.old.Bound == "DEFAULT" {
		if values != "" && !strings.EqualFold(values, "DEFAULT") {
			s.refuse("%s is the default partition, --values says %s", s.old.display(), values)
			return nil
		}
		s.bound = "DEFAULT"
		var within string
		if err := tx.QueryRow(ctx, `SELECT coalesce(pg_get_partition_constraintdef($1), 'true')`, s.old.OID).Scan(&within); err != nil {
			return fmt.Errorf("read partition constraint: %w", err)
		}
		s.within, s.only = within, within
		return nil
	}
	bound := "FOR VALUES " + values
	if values == "" {
		bound = s.old.Bound
	}
	twin, err := tx.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer twin.Rollback(ctx)
	if _, err := twin.Exec(ctx, fmt.Sprintf(`CREATE TEMPORARY TABLE synctl_twin (LIKE %s) PARTITION BY %s`, s.parent.ident(), key)); err != nil {
		return fmt.Errorf("try the bounds on a temporary table: %w", err)
	}
	// The bound of a partition that exists overlaps with no other.
	if s.old == nil && len(siblings) <= twinSiblings {
		for i, x := range siblings {
			if x.Bound == "DEFAULT" {
				continue
			}
			if _, err := twin.Exec(ctx, fmt.Sprintf(`CREATE TEMPORARY TABLE synctl_twin_%d PARTITION OF pg_temp.synctl_twin %s`, i, x.Bound)); err != nil {
				return fmt.Errorf("try the bounds of %s on a temporary table: %w", x.Name, err)
			}
		}
	}
	if _, err := twin.Exec(ctx, `CREATE TEMPORARY TABLE synctl_twin_new PARTITION OF pg_temp.synctl_twin `+bound); err != nil {
		return s.boundFault(err, bound, siblings)
	}
	if err := twin.QueryRow(ctx, `SELECT pg_get_expr(relpartbound, oid), pg_get_partition_constraintdef(oid) FROM pg_class WHERE oid = 'pg_temp.synctl_twin_new'::regclass`).Scan(&s.bound, &s.only); err != nil {
		return fmt.Errorf("read partition constraint: %w", err)
	}
	s.within = s.only
	if s.old != nil && s.old.Bound != s.bound {
		s.refuse("partition %s holds %s, --values says %s", s.old.display(), s.old.Bound, s.bound)
	}
	return nil
}

func (s *situation) boundFault(err error, bound string, siblings []sibling) error {
	pgErr, ok := asPgError(err)
	if !ok {
		return fmt.Errorf("try the bounds on a temporary table: %w", err)
	}
	msg := pgErr.Message
	for i, x := range siblings {
		msg = strings.ReplaceAll(msg, fmt.Sprintf(`"synctl_twin_%d"`, i), x.Name)
	}
	msg = strings.ReplaceAll(msg, "synctl_twin_new", s.name)
	msg = strings.ReplaceAll(msg, "synctl_twin", s.parent.Name)
	if strings.Contains(msg, "overlap") {
		s.refuse("%s: %s", bound, msg)
		return nil
	}
	return fault.New(fault.Usage, `Give --values as CREATE TABLE … PARTITION OF has them after FOR VALUES: IN ('a') or FROM ('2026-01-01') TO ('2026-02-01').`,
		"bounds %s of partition %s: %s", bound, displayName(s.schema, s.name), msg)
}
