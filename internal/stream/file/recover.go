package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"synctl/internal/record"
)

// recoverHeads finds where writing goes on. What lies beyond the committed ends was never acknowledged and is cut off;
// where the heads are lost, every whole line counts as acknowledged. The caller holds the writer's lock.
func recoverHeads(dir string, m *meta, log *slog.Logger) (*headsFile, []head, error) {
	path := filepath.Join(dir, headsName)
	hf, err := openHeads(path, m.Shards, os.O_RDWR)
	var heads []head
	if err == nil {
		heads, err = hf.newest()
	}
	switch {
	case errors.Is(err, errNoHeads):
		if hf != nil {
			hf.close()
		}
		if heads, err = rebuild(dir, m, log); err != nil {
			return nil, nil, err
		}
		if hf, err = createHeads(path, heads); err == nil {
			err = syncDir(dir)
		}
		if err != nil {
			return nil, nil, diskFault("write "+path, err)
		}
		return hf, heads, nil
	case err != nil:
		return nil, nil, diskFault("open stream", err)
	}
	for i, h := range heads {
		if err := cutBack(m.files(dir, i), h, log); err != nil {
			hf.close()
			return nil, nil, fmt.Errorf("repair shard %s: %w", shardID(i), err)
		}
	}
	// Again, as the generation may have been written and not flushed by the writer that died, or flushed and not published.
	if err := errors.Join(hf.commit(heads), hf.publish()); err != nil {
		hf.close()
		return nil, nil, diskFault("write "+path, err)
	}
	return hf, heads, nil
}

// cutBack removes what a writer left beyond the committed end of a shard.
func cutBack(s shardFiles, h head, log *slog.Logger) error {
	bases, err := s.bases()
	if err != nil {
		return diskFault("list segments", err)
	}
	cut := int64(0)
	for _, base := range bases {
		if base <= h.base {
			continue
		}
		if info, err := os.Stat(s.path(base)); err == nil {
			cut += info.Size()
		}
		if err := os.Remove(s.path(base)); err != nil {
			return diskFault("remove segment", err)
		}
	}
	f, err := os.OpenFile(s.path(h.base), os.O_RDWR, 0)
	if err != nil {
		if missing(err) {
			return damaged(s.path(h.base), "the segment is missing")
		}
		return diskFault("open segment", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return diskFault("open segment", err)
	}
	if info.Size() < h.length {
		return damaged(f.Name(), "it has %d bytes, %d were durable", info.Size(), h.length)
	}
	if h.length > 0 {
		if last, err := s.lastLine(f, h.length); err != nil {
			return err
		} else if last.ordinal != h.next-1 {
			return damaged(f.Name(), "its durable part ends with record %s, want %s", s.m.sequence(s.shard, last.ordinal), s.m.sequence(s.shard, h.next-1))
		}
	}
	if cut += info.Size() - h.length; cut == 0 {
		return nil
	}
	if err := errors.Join(f.Truncate(h.length), f.Sync(), syncDir(s.dir)); err != nil {
		return diskFault("cut back segment", err)
	}
	log.Warn("cut off what an earlier writer had not made durable", "segment", f.Name(), "bytes", cut, "durable_bytes", h.length)
	return nil
}

// rebuild finds the ends of all shards without heads. All whole lines are kept: any of them may have been acknowledged.
func rebuild(dir string, m *meta, log *slog.Logger) ([]head, error) {
	heads := make([]head, m.Shards)
	for i := range heads {
		h, err := rebuildShard(m.files(dir, i), log)
		if err != nil {
			return nil, fmt.Errorf("repair shard %s: %w", shardID(i), err)
		}
		heads[i] = h
	}
	log.Warn("the file of durable ends was lost; made it anew from the segments, all whole lines kept", "stream", dir)
	return heads, nil
}

func rebuildShard(s shardFiles, log *slog.Logger) (head, error) {
	bases, err := s.bases()
	if err != nil {
		return head{}, diskFault("list segments", err)
	}
	if len(bases) == 0 {
		return head{}, damaged(s.dir, "it has no segment")
	}
	h := head{base: bases[len(bases)-1]}
	h.next = h.base
	for i, base := range bases[:len(bases)-1] {
		last, err := s.lastOf(base)
		if err != nil {
			return h, err
		}
		if last.ordinal+1 != bases[i+1] {
			return h, damaged(s.path(base), "it ends with record %s, the next segment begins with %s",
				s.m.sequence(s.shard, last.ordinal), s.m.sequence(s.shard, bases[i+1]))
		}
		h.last = int64(last.arrived)
	}
	f, err := os.OpenFile(s.path(h.base), os.O_RDWR, 0)
	if err != nil {
		return h, diskFault("open segment", err)
	}
	defer f.Close()
	if err := s.keepWholeLines(f, &h); err != nil {
		return h, err
	}
	info, err := f.Stat()
	if err != nil {
		return h, diskFault("open segment", err)
	}
	if cut := info.Size() - h.length; cut > 0 {
		log.Warn("cut off a torn end", "segment", f.Name(), "bytes", cut, "whole_bytes", h.length)
	}
	if err := errors.Join(f.Truncate(h.length), f.Sync()); err != nil {
		return h, diskFault("cut back segment", err)
	}
	return h, nil
}

// keepWholeLines moves h over the valid lines of a segment from its begin, and writes each of them again in its place:
// a flush by the writer that died may have failed, and the kernel then takes for clean what is not on the disk.
func (s *shardFiles) keepWholeLines(f *os.File, h *head) error {
	info, err := f.Stat()
	if err != nil {
		return diskFault("open segment", err)
	}
	size := int64(readBytes)
	for h.length < info.Size() {
		buf := make([]byte, min(size, info.Size()-h.length))
		if _, err := f.ReadAt(buf, h.length); err != nil {
			return readError(f, err)
		}
		valid := s.validLines(buf, h)
		if valid == 0 {
			if int64(len(buf)) == info.Size()-h.length || bytes.IndexByte(buf, '\n') >= 0 {
				return nil // a torn or foreign line
			}
			size *= 4
			continue
		}
		if _, err := f.WriteAt(buf[:valid], h.length); err != nil {
			return diskFault("write segment again", err)
		}
		h.length += int64(valid)
	}
	return nil
}

// validLines counts the bytes of the valid lines, in sequence, at the begin of buf.
func (s *shardFiles) validLines(buf []byte, h *head) (valid int) {
	for {
		n := bytes.IndexByte(buf[valid:], '\n')
		if n < 0 {
			return valid
		}
		line := buf[valid : valid+n]
		t, ok := s.layout.parse(line)
		if !ok || t.ordinal != h.next || !json.Valid(line) {
			return valid
		}
		arrived, err := record.ParseMicros(t.arrived)
		if err != nil {
			return valid
		}
		h.last = int64(arrived)
		h.next++
		valid += n + 1
	}
}

// lastOf is the last record of a segment that is not the last one.
func (s *shardFiles) lastOf(base uint64) (place, error) {
	f, err := os.Open(s.path(base))
	if err != nil {
		return place{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return place{}, err
	}
	if info.Size() == 0 {
		return place{}, damaged(f.Name(), "it is empty and not the last one")
	}
	return s.lastLine(f, info.Size())
}
