package swap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// lockWait is how long a start waits for the advisory lock: the server notices within half a second that a killed
// client is gone, but a commit or a catalog change may have to end first.
const lockWait = 2 * time.Second

func lockKey(t *target) string   { return "synctl swap " + t.display() }
func helperKey(t *target) string { return "synctl swap helper " + t.display() }

// exclusive takes the advisory lock of the table, and waits until index builds of a killed run have ended.
func (s *session) exclusive(ctx context.Context, t *target) error {
	got, err := s.tryLock(ctx, lockKey(t), lockWait)
	if err != nil {
		return err
	}
	if !got {
		return fault.New(fault.Check, "Wait for it to end, then run the command again.", "another swap of %s is running: %s", t.display(), s.lockHolder(ctx, lockKey(t)))
	}
	if got, err = s.tryLock(ctx, helperKey(t), 10*time.Second); err != nil {
		return err
	}
	if !got {
		return fault.New(fault.Check, "End that session with pg_terminate_backend, then run the command again.",
			"an index build of an earlier swap of %s is still running: %s", t.display(), s.lockHolder(ctx, helperKey(t)))
	}
	if _, err := s.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, helperKey(t)); err != nil {
		return fmt.Errorf("unlock: %w", err)
	}
	return nil
}

func (s *session) tryLock(ctx context.Context, key string, patience time.Duration) (bool, error) {
	for begin := time.Now(); ; {
		var got bool
		if err := s.QueryRow(ctx, `SELECT pg_try_advisory_lock(hashtextextended($1, 0))`, key).Scan(&got); err != nil {
			return false, fmt.Errorf("take advisory lock: %w", err)
		}
		if got || time.Since(begin) > patience {
			return got, nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return false, err
		}
	}
}

func (s *session) lockHolder(ctx context.Context, key string) string {
	list, err := strings1(ctx, s, `SELECT `+describeSession+` FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid, hashtextextended($1, 0) k
		WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.classid::bigint = (k >> 32) & 4294967295 AND l.objid::bigint = k & 4294967295`, key)
	if err != nil || len(list) == 0 {
		return "it has just ended"
	}
	return list[0]
}

// helperLock marks a connection that builds an index. It is shared: several build at once.
func (s *session) helperLock(ctx context.Context, conn *pgx.Conn, t *target) error {
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock_shared(hashtextextended($1, 0))`, helperKey(t)); err != nil {
		return fmt.Errorf("take advisory lock: %w", err)
	}
	return nil
}

// takeUp is for a staging table that is not there under its name: an earlier run may have moved or exchanged it.
func (s *session) takeUp(ctx context.Context, t *target) (string, error) {
	missing := fault.New(fault.Check, "Load the data first (synctl bulk load), or check --staging.", "staging table %s does not exist", displayName(t.stagingSchema, t.stagingName))
	if there, err := stateExists(ctx, s); err != nil || !there {
		return "", errors.Join(err, missing)
	}
	list, err := records(ctx, s, t)
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.StagingNam != t.stagingName || !t.stagingBare && r.StagingSchema != t.stagingSchema || r.Newcomer == nil || r.Action != actionSwap {
			continue
		}
		var schema, name string
		err := s.QueryRow(ctx, `SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1`, *r.Newcomer).Scan(&schema, &name)
		if errors.Is(err, pgx.ErrNoRows) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look for the newcomer: %w", err)
		}
		live := schema == t.schema && name == t.name
		switch {
		case r.State == "preparing" && name == r.StagingNam:
			t.staging, t.stagingSchema = *r.Newcomer, schema
			return "", nil
		case r.State == "exchanged" && live:
			return "finished", nil
		case r.State == "done" && live:
			s.log.Warn("nothing to do: this staging table was brought live before", "exchanged_at", r.Exchanged)
			return "already", nil
		}
	}
	return "", missing
}

// clearLeftovers removes what a killed run left on live tables: exclusions on a default partition, which make it refuse
// rows. The swap that is about to go on keeps its own.
func (s *session) clearLeftovers(ctx context.Context, t *target) error {
	list, err := rows[record](ctx, s, "synctl.swap", recordSQL+`WHERE state = 'preparing' AND table_schema = $1 AND table_name = $2`, t.tableSchema, t.tableName)
	if err != nil {
		return err
	}
	schema, name := partKey(t)
	for _, r := range list {
		if r.PartSchema == schema && r.PartName == name && r.Newcomer != nil && *r.Newcomer == t.staging {
			continue
		}
		if err := s.clearLeftover(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// clearLeftover undoes what an unfinished swap did to a live table, and forgets the swap if its staging table is gone.
func (s *session) clearLeftover(ctx context.Context, r record) error {
	if r.Newcomer == nil {
		_, err := s.Exec(ctx, `DELETE FROM synctl.swap WHERE id = $1 AND state = 'preparing'`, r.ID)
		return err
	}
	if r.Default != nil {
		if err := s.dropConstraint(ctx, *r.Default, fmt.Sprintf("synctl_exclude_%d", *r.Newcomer)); err != nil {
			return err
		}
	}
	if _, err := s.Exec(ctx, `DELETE FROM synctl.swap w WHERE id = $1 AND state = 'preparing' AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = w.newcomer)`, r.ID); err != nil {
		return fmt.Errorf("forget unfinished swap: %w", err)
	}
	return nil
}

// dropConstraint drops a constraint of ours from a live table if it is there.
func (s *session) dropConstraint(ctx context.Context, table uint32, name string) error {
	var ident string
	err := s.QueryRow(ctx, `SELECT format('%I.%I', n.nspname, c.relname) FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE k.conrelid = $1 AND k.conname = $2`, table, name).Scan(&ident)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for constraint %s: %w", name, err)
	}
	s.log.Info("dropping the exclusion that a swap had put on the default partition", "table", ident, "constraint", name)
	_, err = s.guarded(ctx, "drop exclusion", []string{
		fmt.Sprintf("SET LOCAL statement_timeout = %d", s.opts.LockTimeout.Milliseconds()),
		fmt.Sprintf("ALTER TABLE %s DROP CONSTRAINT IF EXISTS %s", ident, pg.Ident(name))}, nil)
	return err
}

// retain carries out the DROP TABLEs of retention. A table that cannot be dropped now is left for the next swap or
// cleanup, and said.
func (s *session) retain(ctx context.Context, drops []string) (dropped, failed []string, err error) {
	for _, sql := range drops {
		name := strings.ReplaceAll(strings.TrimPrefix(sql, "DROP TABLE "), `"`, "")
		_, err := s.guarded(ctx, "drop kept table", []string{fmt.Sprintf("SET LOCAL statement_timeout = %d", s.opts.LockTimeout.Milliseconds()), sql}, nil)
		switch {
		case err == nil:
			dropped = append(dropped, name)
		case s.IsClosed() || ctx.Err() != nil:
			return dropped, failed, err
		default:
			failed = append(failed, fmt.Sprintf("kept table %s was not dropped: %v", name, err))
		}
	}
	return dropped, failed, nil
}
