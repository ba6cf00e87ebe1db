package cdc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// backoff is the wait between attempts to reconnect: doubling from a tenth of a second to 15, with jitter.
type backoff struct{ attempts int }

func (b *backoff) next() time.Duration {
	d := min(100*time.Millisecond<<min(b.attempts, 10), 15*time.Second)
	b.attempts++
	return d/2 + rand.N(d/2)
}

// lost handles a failed step: a durable slot is connected to again, with what was read of a transaction that was cut
// remembered so that it is not delivered twice. Every other error ends the run.
func (s *Source) lost(ctx context.Context, b *record.Batch, err error) error {
	if ferr := s.failure(); ferr != nil {
		return ferr
	}
	if !lostConnection(err) {
		return err
	}
	s.disconnect()
	if s.temp {
		return fault.New(fault.Unreachable,
			"A temporary slot ends with its connection. Run the command again to go on from now on; --slot NAME --create makes one that lasts, and no change is missed.",
			"the connection to the server was lost; the last position read is %s: %w", s.read, err)
	}
	if s.tx.open && !s.tx.skip && s.resume.last.Commit == s.tx.commit {
		s.resume.on = true
	}
	s.tx = transaction{}
	s.meta.forget() // the same network may have swallowed it, and a query on it would wait
	wait := s.retries.next()
	s.log.Warn("the connection to the server was lost; connecting again", "error", err, "wait", wait.Round(time.Millisecond).String(), "from", s.read.String())
	if len(b.Records) > 0 {
		return nil // what has been read goes first
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(wait):
		return nil
	}
}

func (s *Source) disconnect() {
	s.stats.connected.Store(false)
	s.confirm.attach(nil)
	s.dropAsker()
	if s.conn != nil {
		s.conn.drop()
		s.conn = nil
	}
}

// connect makes a new replication connection and goes on where reading stopped.
func (s *Source) connect(ctx context.Context) error {
	r, err := connectReplication(ctx, s.meta.cfg)
	if err != nil {
		return err
	}
	s.conn = r
	h, err := r.history(ctx)
	if err != nil {
		return err
	}
	if h.system != s.system || !h.timelines.contains(s.timelines.current, s.read) {
		return fault.New(fault.Check,
			"What was delivered beyond the switch is no longer part of the server's history. Bring the target in line; the next start tells what the state file knows.",
			"the server that answers is system %d, timeline %d; position %s was read from system %d, timeline %d", h.system, h.timeline, s.read, s.system, s.timelines.current)
	}
	if err := s.checkAgain(ctx); err != nil {
		return err
	}
	s.setHistory(h)
	if err := s.startStream(ctx); err != nil {
		return err
	}
	s.retries = backoff{}
	s.stats.reconnects.Add(1)
	s.log.Info("connected again", "from", s.read.String())
	return nil
}

// checkAgain looks at the slot before it is used again: while we were away it may have been dropped, made anew or lost.
func (s *Source) checkAgain(ctx context.Context) error {
	return s.meta.do(ctx, func(conn *pgx.Conn) error {
		slot, err := findSlot(ctx, conn, s.slot)
		if err != nil {
			return err
		}
		if slot == nil {
			return fault.New(fault.Check, "Somebody dropped it; the changes since then are gone. Bring the target up to date and begin anew with --create.", "slot %s is gone", s.slot)
		}
		if slot.ActivePID != 0 {
			// Most often our own connection that the server has not given up yet.
			return fmt.Errorf("%w: slot %s is still in use by PID %d", errStreamEnded, slot.Name, slot.ActivePID)
		}
		if err := checkSlot(slot, conn.Config().Database); err != nil {
			return err
		}
		if stored := record.LSN(s.confirm.stored.Load()); slot.Confirmed > stored {
			return fault.New(fault.Check, "Changes between them were never delivered: bring the target up to date, then go on with --accept-gap.",
				"slot %s stands at %s, ahead of %s, the last position that was confirmed: it was moved, or dropped and made anew", s.slot, slot.Confirmed, stored)
		}
		return nil
	})
}

// divergence is a transaction that was delivered in part and does not come again.
func (s *Source) divergence(cut, next record.LSN) error {
	return fault.New(fault.Check, "The server was switched to one that lacks it. Bring the target in line before going on.",
		"the transaction with commit LSN %s was delivered in part and is no longer part of the server's history; the next is %s", cut, next)
}

// Ack implements pipeline.Source: the sink holds everything that t covers.
func (s *Source) Ack(ctx context.Context, t record.Token) error {
	if err := s.confirm.failure(); err != nil {
		return err
	}
	token, ok := t.(Token)
	if !ok {
		return fmt.Errorf("acknowledge a token of type %T", t)
	}
	s.confirm.ack(record.LSN(token))
	s.stats.progress.Store(time.Now().UnixNano())
	return nil
}

// midTransactionPatience is how long Close waits for the server's end within a transaction. The server sends a transaction
// to its end whatever it is told meanwhile, and that can take minutes. It reads status messages between two rows, so a
// second is plenty for the last one.
const midTransactionPatience = time.Second

// Close stores and confirms what is acknowledged, ends the replication so that the server has taken note of it, and
// removes what was made for this run alone. ReadBatch must have returned. ctx bounds all of it.
func (s *Source) Close(ctx context.Context) (err error) {
	s.close.Do(func() {
		if s.snaps.run != nil {
			s.snaps.run.Close()
		}
		fctx, cancel := ctx, context.CancelFunc(func() {})
		if s.tx.open {
			fctx, cancel = context.WithTimeout(ctx, midTransactionPatience)
		}
		defer cancel()
		err = s.confirm.finish(fctx)
		switch {
		case err != nil && s.tx.open && fctx.Err() != nil && ctx.Err() == nil:
			err = nil
		case err != nil && lostConnection(err):
			// The state file has the position; the server learns of it at the next start.
			s.log.Warn("the last position could not be confirmed to the server", "error", err)
			err = nil
		}
		err = errors.Join(err, s.release(ctx))
	})
	return err
}

// release closes the connections. The temporary slot goes with its own; the publication that goes with it is dropped.
func (s *Source) release(ctx context.Context) (err error) {
	if s.confirm.done != nil {
		select {
		case <-s.confirm.done:
		default:
			close(s.confirm.stop)
			<-s.confirm.done
		}
	}
	if s.snaps.run != nil {
		s.snaps.run.Close()
	}
	s.disconnect()
	if s.tmpPub != "" {
		err = s.meta.do(ctx, func(conn *pgx.Conn) error { return dropPublication(ctx, conn, s.tmpPub) })
		if err != nil {
			s.log.Warn("the temporary publication stays behind; the next start of synctl drops it", "publication", s.tmpPub, "error", err)
			err = nil
		}
	}
	s.meta.close(ctx)
	return err
}
