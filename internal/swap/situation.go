package swap

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// situation is what a swap finds: the tables that take part, as they are now.
type situation struct {
	version int
	parent  *relation // the partitioned table; nil for a plain one
	old     *relation // who leaves; nil when a partition is new
	new     *relation // who comes; nil when a first load is rolled back
	deflt   *relation // the default partition, when there is one that has to be looked at

	schema, name string // under which the newcomer will live
	bound        string // FOR VALUES … or DEFAULT, as the server writes it
	within       string // the partition constraint as an expression; empty for a plain table
	only         string // the part of it that comes from bound alone, which the default partition must exclude

	lockable []string          // other tables that foreign keys tie in, qualified
	refs     map[uint32]string // their names
	kept     []string          // tables that earlier swaps put aside, the newest first
	refusals []string          // why it cannot be done; all of them
	warnings []string
	print    string // fingerprint of everything above
}

// model is the table whose description the newcomer takes over.
func (s *situation) model() *relation {
	if s.old != nil {
		return s.old
	}
	return s.parent
}

func (s *situation) refuse(format string, args ...any) {
	s.refusals = append(s.refusals, fmt.Sprintf(format, args...))
}

func (s *situation) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// live is the name of what readers use: the partitioned table, or the plain one.
func (s *situation) live() *relation {
	if s.parent != nil {
		return s.parent
	}
	return s.old
}

// refusal is the fault that names everything at once; nil when there is nothing.
func (s *situation) refusal() error {
	if len(s.refusals) == 0 {
		return nil
	}
	return fault.New(fault.Check, "Nothing was changed. Remove what is in the way, or exchange the table by hand.",
		"%s cannot be swapped:\n  - %s", displayName(s.schema, s.name), strings.Join(s.refusals, "\n  - "))
}

// target is what the user's words mean, found once under the role's own search_path.
type target struct {
	table   uint32 // live table
	staging uint32 // 0: there is none of that name
	schema  string // of what is exchanged: the partition, or the table
	name    string

	tableSchema, tableName     string
	stagingSchema, stagingName string
	stagingBare                bool // the user gave no schema
}

func (t *target) display() string { return displayName(t.tableSchema, t.tableName) }

// partition is the name by which the state table knows the part; empty for a whole table.
func (t *target) partition() string {
	if t.schema == t.tableSchema && t.name == t.tableName {
		return ""
	}
	return displayName(t.schema, t.name)
}

func (s *session) target(ctx context.Context) (*target, error) {
	t := &target{}
	var err error
	if t.table, err = s.resolve(ctx, s.opts.Table); err != nil {
		return nil, err
	}
	if t.table == 0 {
		return nil, fault.New(fault.Check, "Check --table and the search_path of the role, or give the schema: schema.table.", "table %s does not exist", s.opts.Table)
	}
	named := `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`
	if err := s.QueryRow(ctx, named, t.table).Scan(&t.tableSchema, &t.tableName); err != nil {
		return nil, fmt.Errorf("read table: %w", err)
	}
	t.schema, t.name = t.tableSchema, t.tableName
	if s.opts.Partition != "" {
		schema, name, err := s.parts(ctx, s.opts.Partition)
		if err != nil {
			return nil, err
		}
		if schema == "" {
			schema = t.tableSchema
		}
		t.schema, t.name = schema, name
	}
	if s.opts.Staging == "" {
		return t, nil
	}
	if t.stagingSchema, t.stagingName, err = s.parts(ctx, s.opts.Staging); err != nil {
		return nil, err
	}
	t.stagingBare = t.stagingSchema == ""
	if t.staging, err = s.resolve(ctx, s.opts.Staging); err != nil {
		return nil, err
	}
	if t.staging == 0 && t.stagingBare {
		t.staging, err = s.resolve(ctx, pg.Ident(t.tableSchema, t.stagingName))
		t.stagingSchema = t.tableSchema
	} else if t.staging != 0 {
		err = s.QueryRow(ctx, named, t.staging).Scan(&t.stagingSchema, &t.stagingName)
	}
	return t, err
}

// survey reads the situation. Everything that speaks against the swap is in refusals; an error is the server's.
func (s *session) survey(ctx context.Context, t *target) (*situation, error) {
	now := &situation{version: s.version, schema: t.schema, name: t.name, refs: map[uint32]string{}}
	tx, err := s.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(ctx)
	// One snapshot for all questions: the fingerprint must be of what was read.
	if _, err := tx.Exec(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`); err != nil {
		return nil, fmt.Errorf("set isolation: %w", err)
	}
	if err := s.draft(ctx, tx, t); err != nil {
		return nil, err
	}
	live, err := describe(ctx, tx, s.version, t.table)
	if err != nil {
		return nil, err
	}
	if t.staging != 0 {
		if now.new, err = describe(ctx, tx, s.version, t.staging); err != nil {
			return nil, err
		}
	}
	if t.partition() == "" {
		now.old = live
		now.refuseKinds(live)
	} else {
		now.parent = live
		if err := now.findPartition(ctx, tx, s.opts.Values); err != nil {
			return nil, err
		}
	}
	if len(now.refusals) > 0 {
		return now, nil // the rest would only repeat it
	}
	if err := now.judge(ctx, tx, s.opts); err != nil {
		return nil, err
	}
	if now.kept, err = keptNames(ctx, tx, t, t.staging); err != nil {
		return nil, err
	}
	now.print, err = fingerprint(ctx, tx, now.oids())
	return now, err
}

// drafted is the SQL of a staging table that is not there yet.
func (s *session) drafted() []string {
	if !s.opts.DryRun {
		return nil
	}
	return s.opts.Draft
}

// draft makes the staging table for the time of a survey.
func (s *session) draft(ctx context.Context, tx pgx.Tx, t *target) error {
	if len(s.drafted()) == 0 {
		return nil
	}
	for _, sql := range append([]string{"SET LOCAL lock_timeout = '5s'"}, s.drafted()...) {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return fmt.Errorf("make the staging table, to be rolled back: %s: %w", sql, err)
		}
	}
	err := tx.QueryRow(ctx, `SELECT $1::regclass::oid`, pg.Ident(t.stagingSchema, t.stagingName)).Scan(&t.staging)
	if err != nil {
		return fmt.Errorf("look for the staging table that was made: %w", err)
	}
	return nil
}

func (s *situation) refuseKinds(live *relation) {
	switch {
	case live.Kind == "p":
		s.refuse("%s is partitioned: name the partition that the data belong to with --partition and --values", live.display())
	case live.Kind != "r":
		s.refuse("%s is no table but %s", live.display(), kindName(live.Kind))
	case live.Persistence == "t":
		s.refuse("%s is a temporary table", live.display())
	case live.Partition:
		s.refuse("%s is a partition: name its parent with --table and it with --partition", live.display())
	}
}

func kindName(kind string) string {
	switch kind {
	case "v":
		return "a view"
	case "m":
		return "a materialized view"
	case "f":
		return "a foreign table"
	case "p":
		return "a partitioned table"
	case "S":
		return "a sequence"
	case "i", "I":
		return "an index"
	}
	return "of kind " + kind
}

// oids are the tables whose catalog rows must not change between plan and exchange.
func (s *situation) oids() []uint32 {
	var list []uint32
	for _, r := range []*relation{s.parent, s.old, s.new, s.deflt} {
		if r != nil {
			list = append(list, r.OID)
		}
	}
	return list
}
