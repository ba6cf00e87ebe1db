package file

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sort"

	"synctl/internal/fault"
	"synctl/internal/record"
	"synctl/internal/stream"
)

// closedSegment is a segment that is no longer written to. Removing it removes all records before next.
type closedSegment struct {
	shard     int
	base      uint64
	path      string
	bytes     int64
	newest    record.Micros
	newestSeq uint64
}

// closedSegments lists the segments before the heads, each shard's oldest first.
func (m *meta) closedSegments(dir string, heads []head) ([]closedSegment, int64, error) {
	var segments []closedSegment
	total := int64(0)
	for i, h := range heads {
		s := m.files(dir, i)
		bases, err := s.bases()
		if err != nil {
			return nil, 0, err
		}
		total += h.length
		for _, base := range bases {
			if base >= h.base {
				break
			}
			seg, err := s.closed(base)
			if missing(err) { // removed meanwhile
				continue
			}
			if err != nil {
				return nil, 0, err
			}
			total += seg.bytes
			segments = append(segments, seg)
		}
	}
	return segments, total, nil
}

func (s *shardFiles) closed(base uint64) (closedSegment, error) {
	seg := closedSegment{shard: s.shard, base: base, path: s.path(base)}
	info, err := os.Stat(seg.path)
	if err != nil {
		return seg, err
	}
	last, err := s.lastOf(base)
	seg.bytes, seg.newest, seg.newestSeq = info.Size(), last.arrived, last.ordinal
	return seg, err
}

// retain removes what the stream's retention no longer keeps: whole segments, never the one that is written to.
func (s *Sink) retain() error {
	if s.m.retention == 0 && s.m.RetentionBytes == 0 {
		return nil
	}
	s.mu.Lock()
	heads := slices.Clone(s.committed)
	s.mu.Unlock()
	segments, total, err := s.m.closedSegments(s.dir, heads)
	if err != nil {
		return err
	}
	sort.SliceStable(segments, func(i, j int) bool { return segments[i].newest < segments[j].newest })
	cutoff := record.MicrosOf(s.o.Now().Add(-s.m.retention))
	kept := map[int]bool{}
	for _, seg := range segments {
		old := s.m.retention > 0 && seg.newest < cutoff
		much := s.m.RetentionBytes > 0 && total > s.m.RetentionBytes
		// Within a shard from the oldest on, without a hole.
		if kept[seg.shard] || !old && !much {
			kept[seg.shard] = true
			continue
		}
		if err := os.Remove(seg.path); err != nil && !missing(err) {
			return err
		}
		total -= seg.bytes
		s.log.Info("removed a segment by retention", "segment", seg.path, "bytes", seg.bytes, "newest", seg.newest.Time())
	}
	return nil
}

// Trimmed says what Trim removed.
type Trimmed struct {
	Segments int
	Records  int64
	Bytes    int64
}

// Trim removes whole segments of which every record is before the position: a time (of all shards) or a sequence number
// (of its shard). The segment that is written to stays, so some older records may. It may be called while another
// process writes.
func (s *Stream) Trim(ctx context.Context, before stream.Position) (Trimmed, error) {
	var t Trimmed
	heads, err := s.heads()
	if err != nil {
		return t, err
	}
	gone, err := s.trimRule(before)
	if err != nil {
		return t, err
	}
	segments, _, err := s.m.closedSegments(s.dir, heads)
	if err != nil {
		return t, diskFault("trim "+URL(s.dir), err)
	}
	for _, seg := range segments {
		if err := ctx.Err(); err != nil {
			return t, err
		}
		if !gone(seg) {
			continue
		}
		if err := os.Remove(seg.path); err != nil && !missing(err) {
			return t, diskFault("trim "+URL(s.dir), err)
		}
		t.Segments++
		t.Records += int64(seg.newestSeq - seg.base + 1)
		t.Bytes += seg.bytes
	}
	return t, nil
}

// trimRule tells which segments lie before a position.
func (s *Stream) trimRule(before stream.Position) (func(closedSegment) bool, error) {
	switch before.Kind {
	case stream.AtTime:
		at := record.MicrosOf(before.Time)
		return func(seg closedSegment) bool { return seg.newest < at }, nil
	case stream.AtSequence:
		for shard := range s.m.Shards {
			if n, reason := s.m.ordinal(shard, before.Sequence); reason == "" {
				return func(seg closedSegment) bool { return seg.shard == shard && seg.newestSeq < n }, nil
			}
		}
		_, reason := s.m.ordinal(0, before.Sequence)
		return nil, fault.New(fault.Failed, "See the shards' oldest and newest: synctl stream describe "+URL(s.dir),
			"trim %s before %q: %w: %s", URL(s.dir), before.Sequence, stream.ErrForeignSequence, reason)
	}
	return nil, fmt.Errorf("trim %s: want a time or a sequence number", URL(s.dir))
}
