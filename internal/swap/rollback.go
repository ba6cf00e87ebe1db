package swap

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
)

// Rollback brings back the table or partition that the last swap put aside, with the same steps and the same care. The
// one that leaves is kept in its turn. Where the last swap added a partition that was not there before, it is taken out.
func Rollback(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	// What was live may be empty, and was checked when it came.
	o.MinRows, o.Checks, o.WaitFor, o.Staging = 0, nil, "", ""
	return run(ctx, o, actionRollback, findKept)
}

// findKept chooses what comes back: the newest table that a swap, and not a rollback, has put aside.
func findKept(ctx context.Context, s *session, t *target) (string, error) {
	nothing := fault.New(fault.Check, "'synctl swap list' shows what is kept.", "nothing of %s is kept that could be brought back", displayName(t.schema, t.name))
	if there, err := stateExists(ctx, s); err != nil || !there {
		return "", errors.Join(err, nothing)
	}
	list, err := records(ctx, s, t)
	if err != nil {
		return "", err
	}
	var last *record
	for i := range list {
		if list[i].State != "preparing" {
			last = &list[i]
			break
		}
	}
	if last == nil {
		return "", nothing
	}
	live, err := s.liveOID(ctx, t)
	if err != nil {
		return "", err
	}
	back := last.Action == actionRollback && (last.Newcomer == nil && live == 0 || last.Newcomer != nil && *last.Newcomer == live)
	if back && last.State == "exchanged" {
		return "finished", nil
	}
	tables, err := keptTables(ctx, s, t)
	if err != nil {
		return "", err
	}
	for _, k := range tables {
		if k.Action != actionSwap {
			continue
		}
		schema, _ := k.live()
		t.staging, t.stagingSchema, t.stagingName = k.OID, schema, *k.Kept
		if live == 0 {
			s.opts.Values = strings.TrimPrefix(k.Bound, "FOR VALUES ")
		}
		return "", nil
	}
	switch {
	case back:
		s.log.Warn("nothing to do: the last swap was rolled back before", "exchanged_at", last.Exchanged)
		return "already", nil
	case last.Action == actionSwap && last.Former == nil && last.Newcomer != nil && *last.Newcomer == live && t.partition() != "":
		return "", nil // take the new partition out; nothing comes in its place
	}
	return "", nothing
}

func (s *session) liveOID(ctx context.Context, t *target) (uint32, error) {
	var oid uint32
	err := s.QueryRow(ctx, `SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`, t.schema, t.name).Scan(&oid)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look for the live table: %w", err)
	}
	return oid, nil
}
