package file

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"time"

	"synctl/internal/record"
	"synctl/internal/stream"
)

var _ stream.Stream = (*Stream)(nil)

// Stream is a stream in a directory, to read and to manage. Its methods may be called from several goroutines, while
// another process writes.
type Stream struct {
	dir string
	m   *meta
}

// Open opens the stream in dir. One that does not exist is stream.ErrNotFound.
func Open(dir string) (*Stream, error) {
	m, err := loadMeta(dir)
	if err != nil {
		return nil, err
	}
	return &Stream{dir: dir, m: m}, nil
}

// Name is the name of the directory in which the stream was created; it stays when the directory is moved, as it is in
// every record.
func (s *Stream) Name() string { return s.m.Name }

// Close does nothing: readers are closed on their own.
func (s *Stream) Close() error { return nil }

// heads reads what is durable now.
func (s *Stream) heads() ([]head, error) {
	h, err := openHeads(filepath.Join(s.dir, headsName), s.m.Shards, os.O_RDONLY)
	if err != nil {
		return nil, s.headsFault(err)
	}
	defer h.close()
	heads := make([]head, s.m.Shards)
	if _, err := h.published(heads); err != nil {
		return nil, s.headsFault(err)
	}
	return heads, nil
}

// Describe tells what the stream is and holds.
func (s *Stream) Describe(ctx context.Context) (stream.Description, error) {
	shards, err := s.Shards(ctx)
	return stream.Description{
		Name: s.m.Name, URL: URL(s.dir), Status: "ACTIVE", Shards: shards,
		Retention: s.m.retention, RetentionBytes: s.m.RetentionBytes, MaxRecordBytes: MaxRecordBytes,
	}, err
}

// Shards lists the shards, with what they hold: all of them open, as a file stream is not resharded.
func (s *Stream) Shards(ctx context.Context) ([]stream.Shard, error) {
	heads, err := s.heads()
	if err != nil {
		return nil, err
	}
	ranges := stream.EqualRanges(s.m.Shards)
	shards := make([]stream.Shard, s.m.Shards)
	for i := range shards {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		shards[i] = stream.Shard{ID: shardID(i), HashLow: ranges[i].Big(), HashTop: ranges.Top(i).Big(), Open: true}
		if err := s.measure(&shards[i], i, heads[i]); err != nil {
			return nil, fmt.Errorf("describe shard %s: %w", shardID(i), err)
		}
	}
	return shards, nil
}

// measure fills in what a shard holds. Ordinals have no gaps, so records need no counting.
func (s *Stream) measure(sh *stream.Shard, shard int, h head) error {
	files := s.m.files(s.dir, shard)
	bases, err := files.visible(h)
	if err != nil {
		return err
	}
	sh.Bytes = h.length
	oldest := h.base
	for i := len(bases) - 2; i >= 0; i-- {
		info, err := os.Stat(files.path(bases[i]))
		if missing(err) { // removed meanwhile, and all before it
			break
		}
		if err != nil {
			return err
		}
		sh.Bytes += info.Size()
		oldest = bases[i]
	}
	if sh.Records = int64(h.next - oldest); sh.Records == 0 {
		return nil
	}
	sh.Oldest, sh.Newest = s.m.sequence(shard, oldest), s.m.sequence(shard, h.next-1)
	sh.NewestAt = time.UnixMicro(h.last).UTC()
	first, err := files.first(oldest, h)
	if missing(err) {
		return nil
	}
	sh.OldestAt = first.arrived.Time()
	return err
}

// first reads the first record of a segment, which must not be empty.
func (s *shardFiles) first(base uint64, h head) (place, error) {
	f, err := os.Open(s.path(base))
	if err != nil {
		return place{}, err
	}
	defer f.Close()
	end, err := s.durable(f, base, h)
	if err != nil {
		return place{}, err
	}
	p, _, err := s.lineAt(f, 0, end)
	return p, err
}

// Open begins to read a shard.
func (s *Stream) Open(ctx context.Context, shard string, at stream.Position) (stream.Reader, error) {
	i, ok := s.m.shardIndex(shard)
	if !ok {
		return nil, stream.NoShard(URL(s.dir), shard)
	}
	hf, err := openHeads(filepath.Join(s.dir, headsName), s.m.Shards, os.O_RDONLY)
	if err != nil {
		return nil, s.headsFault(err)
	}
	r := &Reader{s: s, files: s.m.files(s.dir, i), hf: hf, heads: make([]head, s.m.Shards)}
	// A segment can be removed between being listed and being opened: then look again.
	for try := 0; ; try++ {
		_, err := r.refresh()
		if err == nil {
			err = r.seek(at)
		}
		if err == nil {
			return r, nil
		}
		if !missing(err) || try == 10 || ctx.Err() != nil {
			r.Close()
			return nil, fmt.Errorf("open shard %s: %w", shard, err)
		}
	}
}

// seek finds where to begin and opens that segment.
func (r *Reader) seek(at stream.Position) error {
	switch at.Kind {
	case stream.Latest:
		return r.enter(r.head.base, r.head.length, r.head.next)
	case stream.AtSequence, stream.AfterSequence:
		return r.seekSequence(at)
	case stream.AtTime:
		return r.seekTime(record.MicrosOf(at.Time))
	}
	bases, err := r.files.visible(r.head)
	if err != nil {
		return err
	}
	return r.enter(bases[0], 0, bases[0])
}

func (r *Reader) seekSequence(at stream.Position) error {
	url, id := URL(r.s.dir), shardID(r.files.shard)
	n, reason := r.s.m.ordinal(r.files.shard, at.Sequence)
	newest := r.head.next - 1
	if reason == "" && n > newest {
		reason = "the shard has no record yet"
		if newest > 0 {
			reason = "the shard's newest is " + r.s.m.sequence(r.files.shard, newest)
		}
	}
	if reason != "" {
		return stream.Foreign(url, id, at.Sequence, reason)
	}
	if at.Kind == stream.AfterSequence {
		n++
	}
	bases, err := r.files.visible(r.head)
	if err != nil {
		return err
	}
	if n < bases[0] {
		oldest := ""
		if bases[0] < r.head.next {
			oldest = r.s.m.sequence(r.files.shard, bases[0])
		}
		return stream.Trimmed(url, id, at.Sequence, oldest)
	}
	if n == r.head.next {
		return r.enter(r.head.base, r.head.length, n)
	}
	base := bases[sort.Search(len(bases), func(i int) bool { return bases[i] > n })-1]
	return r.enterAt(base, func(p place) bool { return p.ordinal >= n })
}

// seekTime finds the segment by the arrival of its first record, then the record within the one before it.
func (r *Reader) seekTime(t record.Micros) error {
	bases, err := r.files.visible(r.head)
	if err != nil {
		return err
	}
	if r.head.next == r.head.base { // an empty last segment has no first record
		bases = bases[:len(bases)-1]
	}
	var failed error
	i := sort.Search(len(bases), func(i int) bool {
		if failed != nil {
			return true
		}
		p, err := r.files.first(bases[i], r.head)
		failed = err
		return err != nil || p.arrived >= t
	})
	switch {
	case failed != nil:
		return failed
	case i > 0: // the first that is late enough can be in the segment before; if not, i is where it is
		return r.enterAt(bases[i-1], func(p place) bool { return p.arrived >= t })
	case len(bases) > 0:
		return r.enter(bases[0], 0, bases[0])
	}
	return r.enter(r.head.base, r.head.length, r.head.next)
}

func (s *Stream) headsFault(err error) error {
	return diskFault("read stream "+URL(s.dir), fmt.Errorf("%w (the next publish to it makes this file anew from the segments)", err))
}
