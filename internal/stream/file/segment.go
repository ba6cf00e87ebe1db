package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"synctl/internal/record"
)

// shardFiles are the segments of one shard on disk.
type shardFiles struct {
	m      *meta
	shard  int
	dir    string // of the shard
	layout layout
}

func (m *meta) files(dir string, shard int) shardFiles {
	return shardFiles{m: m, shard: shard, dir: filepath.Join(dir, shardID(shard)), layout: m.layout(shard)}
}

func (s *shardFiles) path(base uint64) string {
	return filepath.Join(s.dir, s.m.segmentName(s.shard, base))
}

// bases lists the first ordinals of the segments, ascending.
func (s *shardFiles) bases() ([]uint64, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var bases []uint64
	for _, e := range entries {
		if base, ok := s.m.segmentBase(s.shard, e.Name()); ok {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// visible lists the segments up to the head's; those after it do not exist for readers.
func (s *shardFiles) visible(h head) ([]uint64, error) {
	bases, err := s.bases()
	if err != nil {
		return nil, err
	}
	i, found := slices.BinarySearch(bases, h.base)
	if !found {
		// Removed since h was read, or by hand; a caller that looks again can tell.
		return nil, &fs.PathError{Op: "open segment", Path: s.path(h.base), Err: fs.ErrNotExist}
	}
	return bases[:i+1], nil
}

// durable is the durable length of an open segment.
func (s *shardFiles) durable(f *os.File, base uint64, h head) (int64, error) {
	if base == h.base {
		return h.length, nil
	}
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// place is a record found in a segment.
type place struct {
	off     int64 // of its line
	ordinal uint64
	arrived record.Micros
}

const probeBytes = 16 << 10

// lineAt reads the line that begins at off, its line feed at before end at the latest, and returns its length with it.
func (s *shardFiles) lineAt(f *os.File, off, end int64) (place, int64, error) {
	for size := int64(probeBytes); ; size *= 4 {
		buf := make([]byte, min(size, end-off))
		if _, err := f.ReadAt(buf, off); err != nil {
			return place{}, 0, readError(f, err)
		}
		n := bytes.IndexByte(buf, '\n')
		if n < 0 && off+int64(len(buf)) < end {
			continue
		}
		t, ok := tail{}, false
		if n >= 0 {
			t, ok = s.layout.parse(buf[:n])
		}
		arrived, err := record.ParseMicros(t.arrived)
		if !ok || err != nil {
			return place{}, 0, damaged(f.Name(), "no whole record of this shard at byte %d", off)
		}
		return place{off: off, ordinal: t.ordinal, arrived: arrived}, int64(n) + 1, nil
	}
}

// nextLine is where the first line begins that begins after off; end if none does.
func nextLine(f *os.File, off, end int64) (int64, error) {
	buf := make([]byte, probeBytes)
	for off < end {
		b := buf[:min(int64(len(buf)), end-off)]
		if _, err := f.ReadAt(b, off); err != nil {
			return 0, readError(f, err)
		}
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			return off + int64(i) + 1, nil
		}
		off += int64(len(b))
	}
	return end, nil
}

// lastLine reads the last record before end, which must be the end of a line.
func (s *shardFiles) lastLine(f *os.File, end int64) (place, error) {
	for size := int64(probeBytes); ; size *= 4 {
		from := max(0, end-size)
		buf := make([]byte, end-from)
		if _, err := f.ReadAt(buf, from); err != nil {
			return place{}, readError(f, err)
		}
		if i := bytes.LastIndexByte(buf[:len(buf)-1], '\n'); i >= 0 {
			p, _, err := s.lineAt(f, from+int64(i)+1, end)
			return p, err
		}
		if from == 0 {
			p, _, err := s.lineAt(f, 0, end)
			return p, err
		}
	}
}

// find is the first record of [0, end) for which reached is true; ordinals and arrivals ascend, so a binary search over
// bytes finds it. ok is false when there is none.
func (s *shardFiles) find(f *os.File, end int64, reached func(place) bool) (p place, ok bool, err error) {
	low, high := int64(0), end // the line sought begins in [low, high]; high is where one does, or end
	for high-low > probeBytes {
		mid, err := nextLine(f, low+(high-low)/2, high)
		if err != nil {
			return p, false, err
		}
		if mid >= high { // one line reaches from the middle to high
			break
		}
		q, _, err := s.lineAt(f, mid, end)
		if err != nil {
			return p, false, err
		}
		if reached(q) {
			high = mid
		} else {
			low = mid
		}
	}
	for off := low; off < end; {
		q, n, err := s.lineAt(f, off, end)
		if err != nil || reached(q) {
			return q, err == nil, err
		}
		off += n
	}
	return p, false, nil
}

func readError(f *os.File, err error) error {
	if errors.Is(err, io.EOF) {
		return damaged(f.Name(), "it is shorter than its durable length")
	}
	return fmt.Errorf("read segment: %w", err)
}

func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
