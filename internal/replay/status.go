package replay

import (
	"time"
)

// Status is what a run tells of itself at one moment.
type Status struct {
	Records, Bytes int64 // that the sink holds
	InFlight       int64 // records that were read and are not held yet
	Behind         time.Duration
	Position       string // of the shard that was read last, when there is one alone
	Retries        int64
	Running        int // shards being read
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
