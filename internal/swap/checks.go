package swap

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// mustFill are the columns that staging does not yet hold against null, though the live table does.
func (p *plan) mustFill() []string {
	var list []string
	for _, c := range p.s.model().Columns {
		if c.NotNull && !p.s.new.column(c.Name).NotNull {
			list = append(list, c.Name)
		}
	}
	return list
}

// rowQuery counts in one scan: the rows, nulls where none may be, rows outside the bounds.
func (p *plan) rowQuery() string {
	counts := []string{"count(*)"}
	for _, c := range p.mustFill() {
		counts = append(counts, fmt.Sprintf("count(*) FILTER (WHERE %s IS NULL)", pg.Ident(c)))
	}
	if p.s.within != "" {
		counts = append(counts, fmt.Sprintf("count(*) FILTER (WHERE (%s) IS NOT TRUE)", p.s.within))
	}
	return "SELECT ARRAY[" + strings.Join(counts, ", ") + "] FROM ONLY " + p.staging()
}

func (s *session) checkRows(ctx context.Context, p *plan, sql string, minRows int64) (int64, error) {
	var counts []int64
	if err := s.QueryRow(ctx, sql).Scan(&counts); err != nil {
		return 0, fmt.Errorf("count staging: %w", err)
	}
	n := p.s.new.display()
	var wrong []string
	if counts[0] < minRows {
		wrong = append(wrong, fmt.Sprintf("it has %d rows, and at least %d are demanded (--min-rows)", counts[0], minRows))
	}
	for i, c := range p.mustFill() {
		if counts[1+i] > 0 {
			wrong = append(wrong, fmt.Sprintf("column %s is null in %d rows, and %s allows no null there", c, counts[1+i], p.s.model().display()))
		}
	}
	if outside := counts[len(counts)-1]; p.s.within != "" && outside > 0 {
		wrong = append(wrong, fmt.Sprintf("%d rows are outside the partition's bounds %s; find them with SELECT * FROM %s WHERE (%s) IS NOT TRUE", outside, p.s.bound, n, p.s.within))
	}
	if len(wrong) > 0 {
		return counts[0], fault.New(fault.Check, "Nothing of the live table was changed. Correct the data set and load it again.", "staging %s failed its checks: %s", n, strings.Join(wrong, "; "))
	}
	return counts[0], nil
}

func (s *session) checkDefault(ctx context.Context, p *plan, sql string) error {
	var n int64
	if err := s.QueryRow(ctx, sql).Scan(&n); err != nil {
		return fmt.Errorf("look into the default partition: %w", err)
	}
	if n > 0 {
		return fault.New(fault.Check, fmt.Sprintf("Move them into the staging table or delete them: DELETE FROM %s WHERE %s.", p.s.deflt.ident(), p.s.only),
			"%d rows in the default partition %s belong to the new partition %s %s", n, p.s.deflt.display(), displayName(p.s.schema, p.s.name), p.s.bound)
	}
	return nil
}

// asUser runs the user's own queries: on a connection with the role's own settings, so that names mean what they mean
// elsewhere, and read-only.
func (s *session) asUser(ctx context.Context, f func(ask func(sql string) (bool, error)) error) error {
	conn, err := pg.Connect(ctx, s.opts.To, application)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(func(sql string) (bool, error) { return askTrue(ctx, conn, sql) })
}

func askTrue(ctx context.Context, conn *pgx.Conn, sql string) (bool, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback(ctx)
	r, err := tx.Query(ctx, sql, pgx.QueryExecModeExec)
	if err != nil {
		return false, err
	}
	list, err := pgx.CollectRows(r, pgx.RowTo[*bool])
	if err != nil {
		return false, err
	}
	if len(list) != 1 {
		return false, fmt.Errorf("it returned %d rows, not one", len(list))
	}
	return list[0] != nil && *list[0], nil
}

// queryFault is the fault of a query of the user's. A server that went away, or the end of the run, says nothing about the query.
func queryFault(ctx context.Context, hint string, err error) error {
	if ctx.Err() != nil || pg.Retryable(err) {
		return err
	}
	return fault.Wrap(fault.Check, hint, err)
}

func (s *session) checkQueries(ctx context.Context, queries []string) error {
	return s.asUser(ctx, func(ask func(string) (bool, error)) error {
		for _, sql := range queries {
			ok, err := ask(sql)
			if err != nil {
				return queryFault(ctx, "A check is a query of one row and one boolean column.", fmt.Errorf("check %q: %w", sql, err))
			}
			if !ok {
				return fault.New(fault.Check, "Nothing of the live table was changed. Correct the data or the check.", "check %q did not return true", sql)
			}
		}
		return nil
	})
}

const waitInterval = time.Second

func (s *session) waitFor(ctx context.Context, sql string) error {
	return s.asUser(ctx, func(ask func(string) (bool, error)) error {
		begin, told := time.Now(), time.Time{}
		for {
			ok, err := ask(sql)
			if err != nil {
				return queryFault(ctx, "--wait-for is a query of one row and one boolean column.", fmt.Errorf("wait for %q: %w", sql, err))
			}
			if ok {
				return nil
			}
			if s.opts.WaitTimeout > 0 && time.Since(begin) >= s.opts.WaitTimeout {
				return fault.New(fault.Check, "Everything is prepared: run the same command again when the service is ready.",
					"%q did not become true within %s", sql, s.opts.WaitTimeout)
			}
			if time.Since(told) > 10*time.Second {
				s.log.Info("waiting until the query returns true", "sql", sql, "waited", time.Since(begin).Round(time.Second))
				told = time.Now()
			}
			if err := sleep(ctx, waitInterval); err != nil {
				return err
			}
		}
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
