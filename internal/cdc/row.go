package cdc

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"synctl/internal/record"
)

// movedBytes is what the second record of a key update takes beside its values.
const movedBytes = 1024

// rowMessage handles an insert, update or delete. The message stays in the buffer until the batch has taken it, so that
// a full batch can be handed on first.
func (s *Source) rowMessage(ctx context.Context, b *record.Batch, h head, lsn record.LSN, body []byte, whole bool) error {
	f := s.conn.frame
	if len(body) < xlogHeader+rowHeader {
		return errShort
	}
	if !s.tx.open {
		return fmt.Errorf("a row at %s outside of any transaction", lsn)
	}
	kind := body[xlogHeader]
	oid := binary.BigEndian.Uint32(body[xlogHeader+1:])
	rel := s.relations[oid]
	if rel == nil {
		return fmt.Errorf("a row of relation %d, which the server has not described", oid)
	}
	if rel.skip || s.tx.skip || rel.job != nil && s.snaps.run.LeaveOut(rel.job, s.tx.xid) {
		s.row.next(lsn)
		return f.discard(ctx, h, whole)
	}
	columns := len(rel.table.Columns)
	values, bytes := columns, h.size
	if kind == 'U' {
		values, bytes = 3*columns, bytes+movedBytes
	}
	if s.found != nil {
		bytes += s.found.bytes
	}
	if !b.Fits(bytes, values) {
		if len(b.Records) > 0 {
			return errFull
		}
		if err := b.Reserve(ctx, bytes, values); err != nil {
			return err
		}
	}
	if whole && kind == 'U' && s.found == nil && len(body) > xlogHeader+rowHeader && body[xlogHeader+rowHeader] == 'K' {
		// Whether a row must be looked up is found out before the batch takes it: what comes back needs room as well.
		s.scratch.Reset()
		t, err := parseRow(kind, body[xlogHeader+rowHeader:], columns, s.scratch)
		if err != nil {
			return fmt.Errorf("read a row of %s.%s at %s: %w", rel.table.Schema, rel.table.Name, lsn, err)
		}
		if s.found, err = s.lookUp(ctx, rel, t); err != nil {
			return err
		}
		return s.rowMessage(ctx, b, h, lsn, body, whole)
	}
	var data []byte
	if whole {
		data = b.Copy(body[xlogHeader+rowHeader:])
	} else {
		data = b.Alloc(h.size)
		if err := f.readInto(ctx, data); err != nil {
			return err
		}
		data = data[xlogHeader+rowHeader:]
	}
	t, err := parseRow(kind, data, columns, b)
	if err != nil {
		return fmt.Errorf("read a row of %s.%s at %s: %w", rel.table.Schema, rel.table.Name, lsn, err)
	}
	if !whole && kind == 'U' && t.old != nil && !t.full {
		if s.found, err = s.lookUp(ctx, rel, t); err != nil {
			return err
		}
	}
	n := s.row.next(lsn)
	table := rel.table
	first := len(b.Records)
	if rel.composite {
		if table, err = s.fitting(ctx, rel, t); err != nil {
			return err
		}
	}
	switch kind {
	case 'I':
		if pos := s.pos(lsn, n, record.NoSuffix); !s.delivered(pos) {
			r := s.add(b, record.Insert, pos)
			r.Table, r.After = table, t.new
		}
	case 'D':
		if pos := s.pos(lsn, n, record.NoSuffix); !s.delivered(pos) {
			markKey(table, t)
			r := s.add(b, record.Delete, pos)
			r.Table, r.Before = table, t.old
		}
	default:
		s.update(b, table, lsn, n, t)
	}
	if rel.job != nil {
		s.beside(rel, kind, t)
		if rel.job.Incomplete() {
			for i := range b.Records[first:] {
				b.Records[first+i].Snapshot = s.snaps.run.Epoch()
			}
		}
	}
	if whole {
		f.skip(h)
	}
	s.found = nil
	return nil
}

// update makes one record of an update, or two of one that changes the row's key.
func (s *Source) update(b *record.Batch, table *record.Table, lsn record.LSN, n uint32, t tuples) {
	markKey(table, t)
	fill(t)
	if !keyChanged(table, t) {
		if pos := s.pos(lsn, n, record.NoSuffix); !s.delivered(pos) {
			r := s.add(b, record.Update, pos)
			r.Table, r.Before, r.After = table, t.old, t.new
		}
		return
	}
	// Both halves go into one batch, so that a lost connection cannot come between them.
	out := s.pos(lsn, n, record.MovedOut)
	if s.delivered(out) {
		return
	}
	r := s.add(b, record.Delete, out)
	r.Table, r.Before = table, t.old
	r = s.add(b, record.Insert, s.pos(lsn, n, record.MovedIn))
	r.Table, r.After = table, t.new
	if s.found != nil {
		for i, v := range s.found.values {
			if t.new[i].Kind != record.Unchanged || v.Kind == record.Absent {
				continue
			}
			if v.Kind == record.Text {
				v.Data = b.Copy(v.Data)
			}
			t.new[i] = v
			r.LookedUp = append(r.LookedUp, int32(i))
		}
	}
}

// markKey makes the key's columns of a key tuple that were sent as null into nulls: the others are not null but absent.
// The columns of an identity index are NOT NULL, so this concerns none; under FULL every column was sent.
func markKey(table *record.Table, t tuples) {
	if t.old == nil || t.full {
		return
	}
	for _, i := range table.Key {
		if t.old[i].Kind == record.Absent {
			t.old[i].Kind = record.Null
		}
	}
}

// fill completes the new row from the old one: values that did not change and were not sent.
func fill(t tuples) {
	if t.old == nil {
		return
	}
	for i := range t.new {
		if t.new[i].Kind == record.Unchanged && (t.old[i].Kind == record.Text || t.old[i].Kind == record.Null && t.full) {
			t.new[i] = t.old[i]
		}
	}
}

// keyChanged compares the key's texts. That an old key was sent proves nothing: PostgreSQL sends one for a TOASTed key
// that stayed as it was.
func keyChanged(table *record.Table, t tuples) bool {
	if t.old == nil {
		return false
	}
	for _, i := range table.Key {
		before, after := t.old[i], t.new[i]
		if after.Kind == record.Unchanged || before.Kind == record.Absent {
			continue
		}
		if before.Kind != after.Kind || !bytes.Equal(before.Data, after.Data) {
			return true
		}
	}
	return false
}
