package cdc

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// Status is where a source stands. It is read at any time and from any goroutine.
type Status struct {
	Records, Transactions int64
	Reconnects            int64
	Connected             bool          // replication runs; while it does not, the source tries to connect again
	Read                  record.LSN    // every transaction that ends at or below it has been read
	Confirmed             record.LSN    // stored, and so what the server may be told
	ServerEnd             record.LSN    // the server's end of WAL as it last said; 0: it has not
	Behind                time.Duration // age of the last transaction read while there is more to read; 0 when there is not
	Idle                  time.Duration // since something last moved
	Stalled               time.Duration // without progress although there is work, as Watch last saw; 0 while it is too short to tell
	WALHeld               int64         // bytes that the slot holds back, as of the last look; 0 without a look
}

// Confirmed is the position up to which every change is durable in the sink and stored as such.
func (s *Source) Confirmed() record.LSN { return record.LSN(s.confirm.stored.Load()) }

// Floor is the highest LSN of which it is known that every change with a commit LSN at or below it is durable in the
// sink; 0 for none. It is one byte below what is confirmed: that is where a commit record ends, and the next one can
// begin on the very byte. A consumer would take the next transaction for a duplicate.
func (s *Source) Floor() record.LSN {
	if c := s.Confirmed(); c > 0 {
		return c - 1
	}
	return 0
}

// Tables lists what the publication publishes, of what was asked for, as it was at the start.
func (s *Source) Tables() []TableName { return slices.Clone(s.tables) }

// Plan names what is read: publication and slot.
func (s *Source) Plan() Plan {
	return Plan{Tables: s.Tables(), Publication: s.publication, Slot: s.slot}
}

// Status tells where the source stands.
func (s *Source) Status() Status {
	st := Status{
		Records: s.stats.records.Load(), Transactions: s.stats.transactions.Load(), Reconnects: s.stats.reconnects.Load(),
		Connected: s.stats.connected.Load(), Stalled: time.Duration(s.stats.stalled.Load()),
		Read: record.LSN(s.stats.readEnd.Load()), Confirmed: s.Confirmed(), ServerEnd: record.LSN(s.stats.serverEnd.Load()),
		Idle: time.Since(time.Unix(0, s.stats.progress.Load())), WALHeld: s.stats.walHeld.Load(),
	}
	if last := s.stats.lastCommit.Load(); last != 0 && st.Read < st.ServerEnd {
		st.Behind = max(0, time.Since(time.UnixMicro(last)))
	}
	return st
}

// lookEvery is how often Watch asks the server.
const lookEvery = 5 * time.Second

// stallNotice is how long a run may stand still with work to do before it says so, in the log and to probes. A shorter
// StallTimeout is announced at half time.
const stallNotice = 30 * time.Second

// Watch ends with an error when the run does not get on: when nothing has moved for StallTimeout although there is work,
// or when the slot holds back more than MaxWALHeld. It returns nil when ctx ends. The caller ends the run with its error;
// a slow or dead sink is noticed here, too, since the slot then stays where it is.
func (s *Source) Watch(ctx context.Context) error {
	look, notice := lookEvery, stallNotice
	if s.opt.StallTimeout > 0 {
		notice = min(notice, s.opt.StallTimeout/2)
		look = min(look, max(s.opt.StallTimeout/4, 50*time.Millisecond))
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	idleSince := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		held, end, err := s.lookAtSlot(ctx)
		if err == nil { // a server that is away is for the reader to report; while it is, there is a stall all the same
			s.stats.walHeld.Store(held)
			s.serverEnd(end)
		}
		// Work is what was handed out and is not acknowledged, or what the sink does not come to fetch. A server that has
		// nothing for us is no stall, however long; one that is away for that long is.
		work := err != nil || s.confirm.given.Load() > s.confirm.acked.Load() || !s.stats.waiting.Load()
		if moved := time.Unix(0, s.stats.progress.Load()); moved.After(idleSince) {
			idleSince = moved
		}
		if !work {
			idleSince = time.Now()
		}
		st := s.Status()
		idle := time.Since(idleSince)
		s.noteStall(st, idle, notice)
		switch {
		case s.opt.MaxWALHeld > 0 && held > s.opt.MaxWALHeld:
			return fault.New(fault.Failed, "Find out what keeps the sink or a long transaction, or raise --max-wal-held. The slot stays; the same command goes on where it stands.",
				"slot %s holds back %d bytes of WAL, more than --max-wal-held %d; confirmed %s, the server is at %s", s.slot, held, s.opt.MaxWALHeld, st.Confirmed, end)
		case s.opt.StallTimeout > 0 && work && idle >= s.opt.StallTimeout:
			return fault.New(fault.Failed, "See whether the sink takes records and the server answers. The slot stays; the same command goes on where it stands.",
				"no progress for %s, --stall-timeout is %s: confirmed %s, read up to %s, the server is at %s, %d bytes of WAL held back",
				idle.Round(time.Millisecond), s.opt.StallTimeout, st.Confirmed, st.Read, st.ServerEnd, st.WALHeld)
		}
	}
}

// noteStall tells of a run that stands still, once for each time that it does, so that probes and logs do not look well
// while the server's disk fills.
func (s *Source) noteStall(st Status, idle, notice time.Duration) {
	if idle < notice {
		s.stats.stalled.Store(0)
		return
	}
	if s.stats.stalled.Swap(int64(idle)) == 0 {
		s.log.Warn("no progress although there is work: the sink takes nothing, or the server does not answer", "for", idle.Round(time.Second).String(),
			"confirmed", st.Confirmed.String(), "read", st.Read.String(), "server", st.ServerEnd.String(), "wal_held", st.WALHeld)
	}
}

func (s *Source) lookAtSlot(ctx context.Context) (held int64, end record.LSN, err error) {
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	err = s.meta.do(ctx, func(conn *pgx.Conn) error {
		slot, err := findSlot(ctx, conn, s.slot)
		if err != nil {
			return err
		}
		if slot == nil {
			return fmt.Errorf("slot %s is gone", s.slot)
		}
		held = slot.WALHeld
		var at string
		if err := conn.QueryRow(ctx, `SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END)::text`).Scan(&at); err != nil {
			return err
		}
		end, err = record.ParseLSN(at)
		return err
	})
	return held, end, err
}
