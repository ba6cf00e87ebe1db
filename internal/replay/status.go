package replay

import (
	"context"
	"slices"
	"strings"
	"time"

	"synctl/internal/stream"
)

// Status is what a run tells of itself at one moment.
type Status struct {
	Records, Bytes int64 // that the sink holds
	InFlight       int64 // records that were read and are not held yet
	Behind         time.Duration
	Position       string // of the shard that was read last, when there is one alone
	Retries        int64
	Running        int    // shards being read
	Trouble        string // why a shard does not get on; empty: all do
	Shards         []ShardStatus
}

// ShardStatus is where one shard stands.
type ShardStatus struct {
	ID     string
	Read   string // sequence number of the last record read; empty: none
	Behind time.Duration
	Ended  bool // the shard is closed and was read to its end
}

// Status may be called at any time.
func (r *Replay) Status() Status {
	st := Status{Records: r.stats.DoneRecords.Load(), Bytes: r.stats.DoneBytes.Load()}
	st.InFlight = max(0, r.stats.Records.Load()-st.Records)
	r.mu.Lock()
	defer r.mu.Unlock()
	st.Retries = r.retries
	for _, s := range r.shards {
		if s.state == running {
			st.Running++
		}
		if s.trouble != "" {
			st.Trouble = s.trouble
		}
		if s.src == nil {
			continue
		}
		row := ShardStatus{ID: s.ID, Behind: time.Duration(s.src.behind.Load()), Ended: s.state == closed}
		if p := s.src.position.Load(); p != nil {
			row.Read = *p
		}
		st.Behind = max(st.Behind, row.Behind)
		st.Shards = append(st.Shards, row)
	}
	if len(st.Shards) == 1 {
		st.Position = st.Shards[0].Read
	}
	return st
}

// Preview is what a run would do with a shard.
type Preview struct {
	ID      string   `json:"id"`
	Begin   string   `json:"begin"`   // where it would begin, had it no checkpoint
	Records int64    `json:"records"` // that it holds; -1: the stream does not tell
	Bytes   int64    `json:"bytes"`
	Oldest  string   `json:"oldest,omitempty"`
	Newest  string   `json:"newest,omitempty"`
	After   []string `json:"after,omitempty"` // parents that are read first
}

// Preview checks what can be checked without reading records, and says what a run would read.
func (r *Replay) Preview(ctx context.Context) ([]Preview, error) {
	if _, err := r.plan(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []Preview
	for _, s := range r.shards {
		if s.state == closed {
			continue
		}
		reader, err := r.o.Stream.Open(ctx, s.ID, s.from)
		if err != nil {
			return nil, err
		}
		reader.Close()
		p := Preview{ID: s.ID, Begin: beginning(s.from), Records: s.Records, Bytes: s.Bytes, Oldest: s.Oldest, Newest: s.Newest}
		for _, parent := range s.Parents {
			if r.shards[parent] != nil {
				p.After = append(p.After, parent)
			}
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b Preview) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func beginning(p stream.Position) string {
	switch p.Kind {
	case stream.Latest:
		return "tip"
	case stream.AtSequence:
		return "at " + p.Sequence
	case stream.AfterSequence:
		return "after " + p.Sequence
	case stream.AtTime:
		return p.Time.Format(time.RFC3339Nano)
	}
	return "oldest"
}
