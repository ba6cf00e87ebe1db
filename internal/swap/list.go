package swap

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"synctl/internal/pg"
)

// Kept is a former table that a swap or rollback has put aside.
type Kept struct {
	Table     string    `json:"table"`
	Partition string    `json:"partition,omitempty"`
	Bound     string    `json:"bound,omitempty"`
	Name      string    `json:"name"`
	By        string    `json:"by"` // swap or rollback
	Since     time.Time `json:"since"`
	Rows      int64     `json:"estimated_rows"` // the server's estimate, -1 unknown
	Bytes     int64     `json:"bytes"`
}

// Unfinished is a swap that has begun and not exchanged, or has exchanged and not finished.
type Unfinished struct {
	Table     string    `json:"table"`
	Partition string    `json:"partition,omitempty"`
	Staging   string    `json:"staging,omitempty"`
	State     string    `json:"state"` // preparing or exchanged
	Since     time.Time `json:"since"`
	Running   bool      `json:"running"` // somebody holds the table's advisory lock
}

// Listing is what synctl remembers in one database.
type Listing struct {
	Kept       []Kept       `json:"kept"`
	Unfinished []Unfinished `json:"unfinished"`
}

// List reads what is kept and what is unfinished.
func List(ctx context.Context, dsn pg.DSN, log *slog.Logger) (*Listing, error) {
	o := Defaults()
	o.To, o.Log = dsn, log
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	l, _, err := s.listing(ctx)
	return l, serverFault(err)
}

func (s *session) listing(ctx context.Context) (*Listing, []record, error) {
	l := &Listing{Kept: []Kept{}, Unfinished: []Unfinished{}}
	if err := s.planning(ctx); err != nil {
		return nil, nil, err
	}
	if there, err := stateExists(ctx, s); err != nil || !there {
		return l, nil, err
	}
	tables, err := keptTables(ctx, s, nil)
	if err != nil {
		return nil, nil, err
	}
	for _, k := range tables {
		schema, _ := k.live()
		x := Kept{Table: displayName(k.TableSchema, k.TableName), Bound: k.Bound, Name: displayName(schema, *k.Kept), By: k.Action, Rows: int64(k.Rows), Bytes: k.Size}
		if k.PartName != "" {
			x.Partition = k.display()
		}
		if k.Exchanged != nil {
			x.Since = *k.Exchanged
		}
		l.Kept = append(l.Kept, x)
	}
	open, err := rows[record](ctx, s, "synctl.swap", recordSQL+`WHERE state <> 'done' ORDER BY started_at`)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range open {
		x := Unfinished{Table: displayName(r.TableSchema, r.TableName), Staging: displayName(r.StagingSchema, r.StagingNam), State: r.State, Since: r.Started}
		if r.StagingNam == "" {
			x.Staging = ""
		}
		if r.PartName != "" {
			x.Partition = r.display()
		}
		free, err := s.tryLock(ctx, lockKey(r.target()), 0)
		if err != nil {
			return nil, nil, err
		}
		if x.Running = !free; free {
			if _, err := s.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, lockKey(r.target())); err != nil {
				return nil, nil, fmt.Errorf("unlock: %w", err)
			}
		}
		l.Unfinished = append(l.Unfinished, x)
	}
	return l, open, nil
}

func (r *record) target() *target {
	t := &target{tableSchema: r.TableSchema, tableName: r.TableName, stagingSchema: r.StagingSchema, stagingName: r.StagingNam}
	t.schema, t.name = r.live()
	return t
}

// CleanupOptions say what to clear away.
type CleanupOptions struct {
	To          pg.DSN
	Table       string // only of this table; empty: of all
	KeepOld     int    // kept tables to leave of each table or partition
	LockTimeout time.Duration
	LockRetries int
	DryRun      bool // only say what would be dropped
	Log         *slog.Logger
}

// Cleared is what a cleanup did, or would do.
type Cleared struct {
	Dropped   []string `json:"dropped"`   // kept tables
	Withdrawn []string `json:"withdrawn"` // targets of unfinished swaps whose traces on live tables were removed
	Running   []string `json:"running"`   // tables that were left alone because a swap is running
	Warnings  []string `json:"warnings"`  // kept tables that could not be dropped
	DryRun    bool     `json:"dry_run"`   // nothing was changed
}

// Cleanup drops kept tables beyond KeepOld and removes what killed swaps left on live tables. It touches nothing that
// synctl.swap does not name.
func Cleanup(ctx context.Context, c CleanupOptions) (*Cleared, error) {
	o := Defaults()
	o.To, o.KeepOld, o.LockTimeout, o.LockRetries, o.DryRun, o.Log, o.Table = c.To, c.KeepOld, c.LockTimeout, c.LockRetries, c.DryRun, c.Log, "-"
	if err := o.check(); err != nil {
		return nil, err
	}
	s, err := open(ctx, o)
	if err != nil {
		return nil, err
	}
	defer s.close()
	out := &Cleared{Dropped: []string{}, Withdrawn: []string{}, Running: []string{}, Warnings: []string{}, DryRun: c.DryRun}
	return out, serverFault(s.cleanup(ctx, c, out))
}

func (s *session) cleanup(ctx context.Context, c CleanupOptions, out *Cleared) error {
	only := ""
	if c.Table != "" {
		s.opts.Table = c.Table
		t, err := s.target(ctx)
		if err != nil {
			return err
		}
		only = t.display()
	}
	_, open, err := s.listing(ctx)
	if err != nil {
		return err
	}
	for _, r := range open {
		t := r.target()
		if only != "" && t.display() != only || r.State != "preparing" {
			continue
		}
		if err := s.locked(ctx, t, out, func() error {
			out.Withdrawn = append(out.Withdrawn, r.display())
			if c.DryRun {
				return nil
			}
			return s.clearLeftover(ctx, r)
		}); err != nil {
			return err
		}
	}
	return s.dropKept(ctx, c, only, out)
}

func (s *session) dropKept(ctx context.Context, c CleanupOptions, only string, out *Cleared) error {
	if there, err := stateExists(ctx, s); err != nil || !there {
		return err
	}
	tables, err := keptTables(ctx, s, nil)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, k := range tables {
		t := k.target()
		key := t.display() + "\x00" + t.partition()
		if done[key] || only != "" && t.display() != only {
			continue
		}
		done[key] = true
		if err := s.locked(ctx, t, out, func() error { return s.dropKeptOf(ctx, t, c, out) }); err != nil {
			return err
		}
	}
	return nil
}

// dropKeptOf drops one target's kept tables. They are read again: until the lock was taken a swap may have added one.
func (s *session) dropKeptOf(ctx context.Context, t *target, c CleanupOptions, out *Cleared) error {
	names, err := keptNames(ctx, s, t, 0)
	if err != nil {
		return err
	}
	drops := dropKept(names, c.KeepOld)
	if c.DryRun {
		for _, sql := range drops {
			out.Dropped = append(out.Dropped, strings.ReplaceAll(strings.TrimPrefix(sql, "DROP TABLE "), `"`, ""))
		}
		return nil
	}
	dropped, failed, err := s.retain(ctx, drops)
	out.Dropped, out.Warnings = append(out.Dropped, dropped...), append(out.Warnings, failed...)
	return err
}

// locked does f under the advisory lock of a table, or notes that a swap of it is running.
func (s *session) locked(ctx context.Context, t *target, out *Cleared, f func() error) error {
	got, err := s.tryLock(ctx, lockKey(t), 0)
	if err != nil {
		return err
	}
	if !got {
		out.Running = append(out.Running, t.display())
		return nil
	}
	defer s.Exec(ctx, `SELECT pg_advisory_unlock(hashtextextended($1, 0))`, lockKey(t))
	return f()
}
