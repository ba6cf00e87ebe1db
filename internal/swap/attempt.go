package swap

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/pg"
)

// errChanged: a definition is no longer the one that the exchange was planned for.
var errChanged = errors.New("the definition of a table changed since the exchange was planned")

// message sends statements as one message, BEGIN to COMMIT, so that no round trip happens between them. failed is the
// number of the statement that failed.
func (s *session) message(ctx context.Context, statements []string) (failed int, err error) {
	results := s.PgConn().Exec(ctx, "BEGIN;\n"+strings.Join(statements, ";\n")+";\nCOMMIT")
	done := 0
	for results.NextResult() {
		if _, err := results.ResultReader().Close(); err == nil {
			done++
		}
	}
	if err := results.Close(); err != nil {
		if !s.IsClosed() && s.PgConn().TxStatus() != 'I' {
			if _, rollback := s.Exec(ctx, "ROLLBACK"); rollback != nil {
				err = errors.Join(err, fmt.Errorf("roll back: %w", rollback))
			}
		}
		return done - 1, err
	}
	return len(statements), nil
}

// attempts are what it took to get locks on live tables.
type attempts struct {
	retries int
	waited  time.Duration // the longest that one attempt lasted
	last    time.Duration // the successful attempt, from sending to answer
}

// guarded carries out statements that lock live tables: within the lock timeout in all, again after a pause when that did not
// suffice. Between two attempts everybody who waited behind us gets through. oids are the tables locked.
func (s *session) guarded(ctx context.Context, what string, statements []string, oids []uint32) (a attempts, err error) {
	var way blockers
	var stuck string
	for {
		skipped := false
		if a.retries%2 == 0 && a.retries < s.opts.LockRetries {
			// One that has been there for long will be there for a while: queueing behind it would only make others wait.
			if skipped, err = s.crowded(ctx, oids, &way); err != nil {
				return a, err
			}
		}
		if !skipped {
			begin := time.Now()
			failed, err := s.watched(ctx, statements, &way)
			a.last = time.Since(begin)
			if err == nil {
				return a, nil
			}
			if hasCode(err, changedCode) {
				return a, errChanged
			}
			if !hasCode(err, "57014", "55P03", "40P01") || ctx.Err() != nil {
				return a, fmt.Errorf("%s: %w", what, err)
			}
			a.waited = max(a.waited, a.last)
			stuck = statementAt(statements, failed)
			s.log.Info("locks not granted in time, rolled back", "step", what, "attempt", a.retries+1, "in_the_way", way.String(), "statement", stuck)
		}
		if a.retries == s.opts.LockRetries {
			return a, fault.New(fault.Failed, "End what is in the way, or raise --lock-timeout or --lock-retries; the same command goes on where this one stopped.",
				"%s: gave up after %d attempts of at most %s each, the last at %q: in the way %s; the live table is as it was", what, a.retries+1, s.opts.LockTimeout, stuck, way.String())
		}
		a.retries++
		if err := sleep(ctx, pause(a.retries, s.opts.LockTimeout)); err != nil {
			return a, err
		}
	}
}

func statementAt(statements []string, i int) string {
	if i < 0 || i >= len(statements) {
		return ""
	}
	lines := strings.Split(statements[i], "\n")
	if at := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "LOCK TABLE") }); at > 0 {
		return strings.TrimSpace(lines[at]) // of a block, what it is there for
	}
	return lines[0]
}

// pause is at least as long as an attempt, so that others have the tables half of the time or more, grows to two
// seconds, and differs between runs.
func pause(retry int, timeout time.Duration) time.Duration {
	base := max(timeout, 50*time.Millisecond) << min(retry-1, 3)
	base = min(base, max(timeout, 2*time.Second))
	return base/2 + rand.N(base)
}

// watched sends statements while a second connection asks who is in the way.
func (s *session) watched(ctx context.Context, statements []string, way *blockers) (int, error) {
	watch, err := s.watcher(ctx)
	if err != nil {
		return 0, err
	}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for sleep(watching, max(s.opts.LockTimeout/5, 5*time.Millisecond)) == nil {
			// Not under watching: cancelling a query closes its connection.
			list, err := strings1(ctx, watch, blockerSQL, int32(s.pid))
			switch {
			case err != nil:
				s.log.Warn("cannot ask who is in the way", "error", err)
				return
			case len(list) > 0:
				way.set(list)
			}
		}
	})
	failed, err := s.message(ctx, statements)
	stop()
	wg.Wait()
	return failed, err
}

func (s *session) watcher(ctx context.Context) (*pgx.Conn, error) {
	if s.watch == nil || s.watch.IsClosed() {
		conn, err := dial(ctx, s.opts)
		if err != nil {
			return nil, err
		}
		s.watch = conn
	}
	return s.watch, nil
}

const describeSession = `format('session %s (%s, user %s, %s, transaction open for %s: %s)', a.pid, coalesce(nullif(a.application_name, ''), coalesce(a.backend_type, 'no application name')),
  coalesce(a.usename, '?'), coalesce(a.state, '?'), coalesce((clock_timestamp() - a.xact_start)::interval(0)::text, '?'), left(regexp_replace(coalesce(a.query, '?'), '\s+', ' ', 'g'), 80))`

// A prepared transaction blocks as process 0; of its locks, the one on its own number says which it is.
const blockerSQL = `SELECT ` + describeSession + ` FROM unnest(pg_blocking_pids($1)) b JOIN pg_stat_activity a ON a.pid = b
UNION SELECT format('prepared transaction %s of %s', p.gid, p.owner) FROM pg_prepared_xacts p
  JOIN pg_locks x ON x.locktype = 'transactionid' AND x.pid IS NULL AND x.transactionid = p.transaction
  JOIN pg_locks l ON l.pid IS NULL AND l.granted AND l.virtualtransaction = x.virtualtransaction
  JOIN pg_locks w ON w.pid = $1 AND NOT w.granted AND w.relation = l.relation AND w.database = l.database
WHERE 0 = ANY (pg_blocking_pids($1))`

const holderSQL = `SELECT DISTINCT ` + describeSession + ` FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY ($1) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND a.pid <> $2 AND a.xact_start < clock_timestamp() - $3::float8 * interval '1 second'`

// crowded tells whether somebody has held the tables for so long that an attempt is hopeless.
func (s *session) crowded(ctx context.Context, oids []uint32, way *blockers) (bool, error) {
	if len(oids) == 0 {
		return false, nil
	}
	long := max(5*time.Second, 10*s.opts.LockTimeout)
	list, err := strings1(ctx, s, holderSQL, oids, int32(s.pid), long.Seconds())
	if err != nil {
		return false, err
	}
	if len(list) > 0 {
		way.set(list)
		s.log.Info("somebody has had the table for long; not queueing behind them", "in_the_way", way.String())
	}
	return len(list) > 0, nil
}

// blockers are who was last seen in the way.
type blockers struct {
	mu   sync.Mutex
	list []string
}

func (b *blockers) set(list []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range list {
		list[i] = pg.Redact(list[i])
	}
	slices.Sort(list)
	b.list = list
}

func (b *blockers) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.list) == 0 {
		return "nobody that could be seen (the statements themselves took longer than the timeout, or the holder came and went)"
	}
	return strings.Join(b.list, "; ")
}
