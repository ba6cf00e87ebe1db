package cdc

import (
	"context"
	"fmt"
	"math"
	"net"

	"synctl/internal/record"
)

// history is what a server says of itself. On a standby it holds up to sure alone: the server can be promoted, or follow
// one that was, without a word to those that read from it.
type history struct {
	identity
	timelines timelines
	sure      record.LSN
}

// history asks in an order that keeps the answer true: what was replayed before the timeline was read is part of it.
func (r *replication) history(ctx context.Context) (h history, err error) {
	h.sure = math.MaxUint64
	res, err := r.pg.Exec(ctx, "SELECT CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') END").ReadAll()
	if err != nil {
		return h, fmt.Errorf("ask whether the server is a standby: %w", err)
	}
	if at := res[0].Rows[0][0]; at != nil {
		if h.sure, err = record.ParseLSN(string(at)); err != nil {
			return h, fmt.Errorf("ask how far the standby is: %w", err)
		}
	}
	if h.identity, err = r.identify(ctx); err != nil {
		return h, err
	}
	h.timelines, err = readTimelines(ctx, r.pg, h.timeline)
	return h, err
}

func (s *Source) setHistory(h history) {
	s.timelines, s.sure = h.timelines, h.sure
	s.timeline.Store(h.timelines.current)
	s.serverEnd(h.end)
}

// settle makes sure of the timelines up to lsn before anything there gets an id or is confirmed. A promoted standby goes
// on sending through the connection that it had: with the timeline of before, its changes would come under other ids
// after a restart, and its positions would not be found in its history. One question answers for all that the standby
// has replayed by then; a server that is no standby is never asked.
func (s *Source) settle(ctx context.Context, lsn record.LSN) (err error) {
	if lsn <= s.sure {
		return nil
	}
	if s.asker == nil {
		cfg := s.meta.cfg.Copy()
		// With several hosts in the DSN another one could answer.
		dial, network, address := cfg.DialFunc, s.conn.network, s.conn.address
		cfg.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, network, address) }
		cfg.ValidateConnect = nil
		if s.asker, err = connectReplication(ctx, cfg); err != nil {
			return fmt.Errorf("ask the standby for its timeline: %w", err)
		}
	}
	h, err := s.asker.history(ctx)
	if err != nil {
		s.dropAsker()
		return fmt.Errorf("ask the standby for its timeline: %w", err)
	}
	if h.timeline != s.timelines.current {
		s.log.Info("the server is on a new timeline", "timeline", h.timeline, "before", s.timelines.current)
	}
	s.setHistory(h)
	if s.sure == math.MaxUint64 {
		s.dropAsker()
	}
	return nil
}

func (s *Source) dropAsker() {
	if s.asker != nil {
		s.asker.leave()
		s.asker.drop()
		s.asker = nil
	}
}
