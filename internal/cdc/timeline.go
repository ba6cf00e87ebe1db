package cdc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"synctl/internal/record"
)

// timelines says to which timeline an LSN belongs. After a failover the server's history up to the switch is that of
// the timelines before, and a slot may still have to deliver some of it.
type timelines struct {
	current uint32
	ends    []timelineEnd // of those before, oldest first
}

type timelineEnd struct {
	timeline uint32
	at       record.LSN // the first LSN that is not of it any more
}

func (t timelines) of(lsn record.LSN) uint32 {
	for _, e := range t.ends {
		if lsn < e.at {
			return e.timeline
		}
	}
	return t.current
}

// contains tells whether history up to lsn on the given timeline is this server's own.
func (t timelines) contains(timeline uint32, lsn record.LSN) bool {
	if timeline == t.current {
		return true
	}
	for _, e := range t.ends {
		if e.timeline == timeline {
			return lsn <= e.at
		}
	}
	return false
}

func readTimelines(ctx context.Context, conn *pgconn.PgConn, current uint32) (timelines, error) {
	t := timelines{current: current}
	if current <= 1 {
		return t, nil
	}
	h, err := pglogrepl.TimelineHistory(ctx, conn, int32(current))
	if err != nil {
		return t, fmt.Errorf("read the history of timeline %d: %w", current, err)
	}
	t.ends, err = parseHistory(string(h.Content))
	return t, err
}

// parseHistory reads a timeline history file: lines of timeline, switch point and reason, with comments.
func parseHistory(content string) (ends []timelineEnd, err error) {
	for line := range strings.Lines(content) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) < 2 {
			return nil, fmt.Errorf("read timeline history: line %q has no switch point", line)
		}
		id, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil {
			return nil, fmt.Errorf("read timeline history: %w", err)
		}
		at, err := record.ParseLSN(f[1])
		if err != nil {
			return nil, fmt.Errorf("read timeline history: %w", err)
		}
		ends = append(ends, timelineEnd{uint32(id), at})
	}
	return ends, nil
}
