package swap

import (
	"context"
	"fmt"
	"strings"
	"time"

	"synctl/internal/fault"
)

// snapshotSQL lists who may still hold a snapshot from before the last rewrite of the newcomer's rows. Such a
// transaction would find the new table empty, without an error. A snapshot is older if its xmin is not past the
// rewrite's number and its transaction began before the rewrite had committed; a session that hides its start from us
// is taken for old. Sessions of other databases cannot read the table.
func snapshotSQL(t *target) string {
	w := "(SELECT rewrite_xid, rewritten_at FROM synctl.swap WHERE " + stateKey(t) + " AND rewrite_xid IS NOT NULL) w\nWHERE true"
	return `SELECT format('session %s (%s, user %s, %s, transaction open for %s)', a.pid, coalesce(nullif(a.application_name, ''), 'no application name'),
       coalesce(a.usename, '?'), coalesce(a.state, a.backend_type, '?'), coalesce((clock_timestamp() - a.xact_start)::interval(0)::text, '?'))
FROM pg_catalog.pg_stat_activity a, ` + w + ` AND a.pid <> pg_backend_pid() AND (a.datname = current_database() OR a.backend_type = 'walsender') AND coalesce(a.backend_type, '') <> 'autovacuum worker'
  AND age(a.backend_xmin) >= age(w.rewrite_xid::xid) AND (a.xact_start IS NULL OR a.xact_start < w.rewritten_at)
UNION ALL
SELECT format('prepared transaction %s of %s', p.gid, p.owner) FROM pg_catalog.pg_prepared_xacts p, ` + w + ` AND p.database = current_database() AND age(p.transaction) >= age(w.rewrite_xid::xid) AND p.prepared < w.rewritten_at
UNION ALL
SELECT format('a standby behind replication slot %s', s.slot_name) FROM pg_catalog.pg_replication_slots s, ` + w + ` AND s.slot_type = 'physical' AND age(s.xmin) >= age(w.rewrite_xid::xid)`
}

const blindStandbySQL = `SELECT coalesce(nullif(r.application_name, ''), r.client_addr::text, r.pid::text) FROM pg_stat_replication r
WHERE r.backend_xmin IS NULL AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND (s.slot_type = 'logical' OR s.xmin IS NOT NULL))
ORDER BY 1`

// waitSnapshots waits, at most SnapshotWait, until nobody could see the newcomer empty.
func (s *session) waitSnapshots(ctx context.Context, sql string, res *Result) error {
	blind, err := strings1(ctx, s, blindStandbySQL)
	if err != nil {
		return err
	}
	if len(blind) > 0 {
		res.warn(s.log, fmt.Sprintf("standby %s does not send hot_standby_feedback: its older transactions cannot be seen, and may find the new table empty", strings.Join(blind, ", ")))
	}
	begin, told := time.Now(), false
	defer func() { res.SnapshotSeconds = seconds(time.Since(begin)) }()
	for {
		old, err := strings1(ctx, s, sql)
		if err != nil {
			return err
		}
		switch {
		case len(old) == 0:
			return nil
		case s.opts.IgnoreSnapshots:
			res.warn(s.log, "older snapshots remain and will find the new table empty: "+strings.Join(old, "; "))
			return nil
		case time.Since(begin) >= s.opts.SnapshotWait:
			return fault.New(fault.Check, "End those transactions, raise --snapshot-wait, or accept it with --ignore-snapshots; the same command goes on where this one stopped.",
				"after %s there are still snapshots from before the data was written, which would find the new table empty: %s", s.opts.SnapshotWait, strings.Join(old, "; "))
		case !told:
			s.log.Info("waiting for older snapshots", "holders", strings.Join(old, "; "), "at_most", s.opts.SnapshotWait)
			told = true
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
