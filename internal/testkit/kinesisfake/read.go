package kinesisfake

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"sort"
	"strconv"
	"time"
)

const (
	iteratorLife   = 300 * time.Second
	maxReadRecords = 10_000
	maxReadBytes   = 10 << 20
)

// iterator is what a shard iterator says: from which counter on.
type iterator struct {
	Stream      string
	Incarnation int64
	Shard       int
	Counter     uint64
	Made        int64 // Unix nanoseconds
}

func (it iterator) String() string {
	p, _ := json.Marshal(it) // a struct of numbers and a string always marshals
	return base64.StdEncoding.EncodeToString(p)
}

func (s *Server) getShardIterator(body []byte) (any, error) {
	var in struct {
		StreamName, StreamARN, ShardId, ShardIteratorType, StartingSequenceNumber string
		Timestamp                                                                 *float64
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	st, err := s.active(in.StreamName + streamOfARN(in.StreamARN))
	if err != nil {
		return nil, err
	}
	sh := st.find(in.ShardId)
	if sh == nil || !st.listed(sh, s.now()) {
		return nil, bad("ResourceNotFoundException", "Shard %s in stream %s under account 000000000000 does not exist", in.ShardId, st.name)
	}
	it := iterator{Stream: st.name, Incarnation: st.incarnation, Shard: sh.number, Made: s.now().UnixNano()}
	switch in.ShardIteratorType {
	case "TRIM_HORIZON":
	case "LATEST":
		it.Counter = st.counter
	case "AT_TIMESTAMP":
		if in.Timestamp == nil {
			return nil, bad("InvalidArgumentException", "Must specify timestamp parameter for iterator type AT_TIMESTAMP")
		}
		at := time.UnixMicro(int64(*in.Timestamp * 1e6))
		it.Counter = st.counter
		if i := sort.Search(len(sh.records), func(i int) bool { return !sh.records[i].arrived.Before(at) }); i < len(sh.records) {
			it.Counter = sh.records[i].counter
		}
	case "AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER":
		q, ok := parseSequence(in.StartingSequenceNumber)
		if !ok || q.shard != sh.number || q.counter >= st.counter {
			return nil, bad("InvalidArgumentException", "StartingSequenceNumber %s used in GetShardIterator on shard %s in stream %s under account 000000000000 is invalid because it did not come from this stream.", in.StartingSequenceNumber, sh.id(), st.name)
		}
		it.Counter = q.counter
		if in.ShardIteratorType == "AFTER_SEQUENCE_NUMBER" {
			it.Counter++
		}
	default:
		return nil, bad("ValidationException", "shardIteratorType %q", in.ShardIteratorType)
	}
	return map[string]string{"ShardIterator": it.String()}, nil
}

func (s *Server) serveGet(w http.ResponseWriter, r *http.Request, body []byte) {
	v := s.verdict("GetRecords", 0)
	if s.interfere(w, r, v) {
		return
	}
	s.sleep(r.Context(), v.Latency)
	if v.LoseAck {
		panic(http.ErrAbortHandler)
	}
	out, err := s.getRecords(body, v.Expired)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, out)
}

func (s *Server) getRecords(body []byte, expired bool) ([]byte, error) {
	var in struct {
		ShardIterator string
		Limit         *int
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	limit := maxReadRecords
	if in.Limit != nil {
		if limit = *in.Limit; limit < 1 || limit > maxReadRecords {
			return nil, bad("ValidationException", "limit must be between 1 and 10000")
		}
	}
	var it iterator
	raw, err := base64.StdEncoding.DecodeString(in.ShardIterator)
	if err == nil {
		err = json.Unmarshal(raw, &it)
	}
	if err != nil {
		return nil, bad("InvalidArgumentException", "Invalid ShardIterator.")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, err := s.active(it.Stream)
	if err != nil {
		return nil, err
	}
	if it.Incarnation != st.incarnation || it.Shard >= len(st.shards) {
		return nil, bad("ResourceNotFoundException", "Shard of the iterator does not exist")
	}
	now := s.now()
	if age := now.Sub(time.Unix(0, it.Made)); expired || age > iteratorLife {
		return nil, bad("ExpiredIteratorException", "Iterator expired. The iterator was created %s ago; it lives 300 s.", age)
	}
	sh := st.shards[it.Shard]
	if s.opt.RateLimits && !sh.reads.take(now) {
		return nil, bad("ProvisionedThroughputExceededException", "Rate exceeded for shard %s in stream %s under account 000000000000.", sh.id(), st.name)
	}
	return st.page(sh, it, limit, now), nil
}

// page is the answer of one GetRecords.
func (st *streamState) page(sh *shard, it iterator, limit int, now time.Time) []byte {
	st.expire(sh, now)
	i := sort.Search(len(sh.records), func(i int) bool { return sh.records[i].counter >= it.Counter })
	var out []byte
	out = append(out, `{"Records":[`...)
	bytes := 0
	for n := 0; i < len(sh.records) && n < limit; n++ {
		r := &sh.records[i]
		if bytes += len(r.data); bytes > maxReadBytes && n > 0 {
			break
		}
		if n > 0 {
			out = append(out, ',')
		}
		out = st.appendRecord(out, sh, r)
		it.Counter = r.counter + 1
		i++
	}
	behind := int64(0)
	if i < len(sh.records) {
		behind = max(1, now.Sub(sh.records[i].arrived).Milliseconds())
	}
	out = fmt.Appendf(out, `],"MillisBehindLatest":%d`, behind)
	if i == len(sh.records) && sh.closedCounter != 0 {
		out = append(out, `,"ChildShards":`...)
		return append(append(out, st.children(sh)...), '}')
	}
	it.Made = now.UnixNano()
	return fmt.Appendf(out, `,"NextShardIterator":%q}`, it.String())
}

func (st *streamState) appendRecord(out []byte, sh *shard, r *stored) []byte {
	out = append(out, `{"SequenceNumber":"`...)
	out = st.sequence(sh, r.counter, r.arrived).append(out)
	out = append(out, `","PartitionKey":`...)
	key, _ := json.Marshal(r.key) // strings always marshal
	out = append(out, key...)
	out = append(out, `,"ApproximateArrivalTimestamp":`...)
	out = strconv.AppendFloat(out, float64(r.arrived.UnixMilli())/1000, 'f', 3, 64)
	out = append(out, `,"Data":"`...)
	out = base64.StdEncoding.AppendEncode(out, r.data)
	return append(out, `"}`...)
}

func (st *streamState) children(sh *shard) []byte {
	type child struct {
		ShardId      string
		ParentShards []string
		HashKeyRange map[string]string
	}
	list := []child{}
	for _, c := range st.shards {
		var parents []string
		mine := false
		for _, p := range c.parents {
			parents = append(parents, st.shards[p].id())
			mine = mine || p == sh.number
		}
		if mine {
			list = append(list, child{c.id(), parents, hashRange(c)})
		}
	}
	p, _ := json.Marshal(list) // strings always marshal
	return p
}

func hashRange(sh *shard) map[string]string {
	return map[string]string{"StartingHashKey": sh.low.String(), "EndingHashKey": sh.top.String()}
}

// Records gives everything that a shard holds, without the API.
func (s *Server) Records(stream, shardID string) []Record { return s.RecordsFrom(stream, shardID, 0) }

// RecordsFrom is Records without the first n.
func (s *Server) RecordsFrom(stream, shardID string, n int) []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[stream]
	if st == nil {
		return nil
	}
	sh := st.find(shardID)
	if sh == nil {
		return nil
	}
	list := make([]Record, max(0, len(sh.records)-n))
	for i := range list {
		r := sh.records[n+i]
		list[i] = Record{st.sequence(sh, r.counter, r.arrived).String(), r.key, r.data, r.arrived}
	}
	return list
}

// Shards lists the IDs of a stream's shards, parents first.
func (s *Server) Shards(stream string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	if st := s.streams[stream]; st != nil {
		for _, sh := range st.shards {
			ids = append(ids, sh.id())
		}
	}
	return ids
}

// Stored is how many records and bytes (data and keys) a stream ever stored, also with Discard.
func (s *Server) Stored(stream string) (records, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[stream]; st != nil {
		for _, sh := range st.shards {
			records += sh.put
			bytes += sh.bytes
		}
	}
	return records, bytes
}

// Trim drops the oldest n records of a shard, as retention would.
func (s *Server) Trim(stream, shardID string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.streams[stream]; st != nil {
		if sh := st.find(shardID); sh != nil {
			sh.drop(min(n, len(sh.records)))
		}
	}
}
