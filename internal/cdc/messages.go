package cdc

import (
	"context"
	"errors"
	"fmt"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/record"
)

// logical is pg_logical_emit_message.
func (s *Source) logical(ctx context.Context, b *record.Batch, p []byte, owned bool) error {
	m, err := parseMessage(p)
	if err != nil {
		return fmt.Errorf("read logical message: %w", err)
	}
	if !owned && !b.Fits(len(m.content), 0) {
		if len(b.Records) > 0 {
			return errFull
		}
		if err := b.Reserve(ctx, len(m.content), 0); err != nil {
			return err
		}
	}
	if m.transactional != s.tx.open {
		if !m.transactional {
			// The server sends these when it decodes them, between transactions.
			return errors.New("a message outside of transactions within one")
		}
		return errors.New("a message of a transaction outside of any")
	}
	if !m.transactional {
		if err := s.settle(ctx, m.lsn); err != nil {
			return err
		}
	}
	if m.prefix == snapshot.Prefix {
		// What synctl says to itself through the log is for no consumer.
		if m.transactional {
			return s.own(m.content)
		}
		return nil
	}
	pos := s.pos(m.lsn, 0, record.MessageEnd)
	if !m.transactional {
		if s.until != 0 && m.lsn > s.until {
			s.ended = true
			return nil
		}
		if m.lsn <= s.read {
			return nil // sent again after a lost connection
		}
		pos.Commit = m.lsn
	}
	if m.transactional && s.delivered(pos) {
		return nil
	}
	content := m.content
	if !owned {
		content = b.Copy(content)
	}
	r := s.add(b, record.Message, pos)
	r.Message = &record.MessageInfo{Prefix: m.prefix, Content: content, Transactional: m.transactional}
	if !m.transactional {
		// Its end is a record's end outside of any transaction that has been sent: whatever commits later begins its commit
		// record there or behind. So it may be confirmed, and a restart does not bring the message again.
		s.advance(m.lsn)
		s.ended = s.ended || s.full
	}
	return nil
}

// truncate makes one record of the statement, with those of its tables that are asked for.
func (s *Source) truncate(b *record.Batch, lsn record.LSN, p []byte) error {
	m, err := parseTruncate(p)
	if err != nil {
		return fmt.Errorf("read TRUNCATE: %w", err)
	}
	if !b.Fits(16*len(m.relations), 0) && len(b.Records) > 0 {
		return errFull
	}
	pos := s.pos(lsn, s.row.next(lsn), record.NoSuffix)
	var run record.LSN
	info := &record.TruncateInfo{Cascade: m.cascade, RestartIdentity: m.restart}
	for _, oid := range m.relations {
		rel := s.relations[oid]
		if rel == nil {
			return fmt.Errorf("TRUNCATE of relation %d, which the server has not described", oid)
		}
		if rel.skip {
			continue
		}
		if rel.job != nil {
			if s.snaps.run.LeaveOut(rel.job, s.tx.xid) {
				continue
			}
			s.snaps.run.Truncate(rel.job, s.tx.xid)
			if rel.job.Incomplete() {
				run = s.snaps.run.Epoch()
			}
		}
		info.Tables = append(info.Tables, rel.table)
	}
	if len(info.Tables) == 0 || s.delivered(pos) {
		return nil
	}
	r := s.add(b, record.Truncate, pos)
	r.Truncate, r.Snapshot = info, run
	return nil
}
