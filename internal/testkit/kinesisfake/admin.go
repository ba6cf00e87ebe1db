package kinesisfake

import (
	"encoding/base64"
	"encoding/json"
	"math/big"
	"slices"
	"sort"
	"time"
)

// request is what the managing operations take; each reads its part.
type request struct {
	StreamName, StreamARN, NextToken, ExclusiveStartShardId, ExclusiveStartStreamName string
	ShardToSplit, ShardToMerge, AdjacentShardToMerge, NewStartingHashKey              string
	RecordDistributionStrategy                                                        string
	ShardCount, MaxRecordSizeInKiB, MaxResults, Limit, RetentionPeriodHours           *int
	StreamModeDetails                                                                 *struct{ StreamMode string }
	ShardFilter                                                                       *struct {
		Type, ShardId string
		Timestamp     *float64
	}
}

func read(body []byte) (in request, err error) {
	err = json.Unmarshal(body, &in)
	return in, err
}

func (in *request) stream() string {
	if in.StreamName != "" {
		return in.StreamName
	}
	return streamOfARN(in.StreamARN)
}

// active finds a stream that records can be put to and read from.
func (s *Server) active(name string) (*streamState, error) {
	st, err := s.lookup(name)
	if err != nil {
		return nil, err
	}
	if st.status(s.now()) != "ACTIVE" {
		return nil, bad("ResourceNotFoundException", "Stream %s under account 000000000000 not found: it is %s.", name, st.status(s.now()))
	}
	return st, nil
}

func (s *Server) lookup(name string) (*streamState, error) {
	st, ok := s.streams[name]
	if !ok {
		return nil, bad("ResourceNotFoundException", "Stream %s under account 000000000000 not found.", name)
	}
	return st, nil
}

func (s *Server) changing(body []byte) (in request, st *streamState, err error) {
	if in, err = read(body); err != nil {
		return in, nil, err
	}
	if st, err = s.lookup(in.stream()); err == nil && st.status(s.now()) != "ACTIVE" {
		err = bad("ResourceInUseException", "Stream %s under account 000000000000 not ACTIVE, instead in state %s", st.name, st.status(s.now()))
	}
	return in, st, err
}

func (s *Server) createStream(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	if in.StreamName == "" {
		return nil, bad("ValidationException", "streamName must not be null")
	}
	if _, ok := s.streams[in.StreamName]; ok {
		return nil, bad("ResourceInUseException", "Stream %s under account 000000000000 already exists.", in.StreamName)
	}
	onDemand := in.StreamModeDetails != nil && in.StreamModeDetails.StreamMode == "ON_DEMAND"
	shards, maxKiB := 4, 1024
	if !onDemand {
		if in.ShardCount == nil || *in.ShardCount < 1 || *in.ShardCount > 100_000 {
			return nil, bad("ValidationException", "ShardCount must be at least 1 for a provisioned stream")
		}
		shards = *in.ShardCount
	}
	if in.MaxRecordSizeInKiB != nil {
		if maxKiB = *in.MaxRecordSizeInKiB; maxKiB < 1024 || maxKiB > 10240 {
			return nil, bad("ValidationException", "MaxRecordSizeInKiB must be between 1024 and 10240")
		}
	}
	s.streams[in.StreamName] = s.newStream(in.StreamName, shards, maxKiB, onDemand, in.RecordDistributionStrategy == "AUTO")
	return nil, nil
}

func (s *Server) deleteStream(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	if _, err := s.lookup(in.stream()); err != nil {
		return nil, err
	}
	delete(s.streams, in.stream())
	return nil, nil
}

func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }

func (st *streamState) summary(now time.Time) map[string]any {
	mode, strategy := "PROVISIONED", "USER_PARTITION_KEY"
	if st.onDemand {
		mode = "ON_DEMAND"
	}
	if st.auto {
		strategy = "AUTO"
	}
	return map[string]any{
		"StreamName": st.name, "StreamARN": "arn:aws:kinesis:us-east-1:000000000000:stream/" + st.name,
		"StreamStatus": st.status(now), "StreamModeDetails": map[string]string{"StreamMode": mode},
		"RetentionPeriodHours": st.hours, "StreamCreationTimestamp": seconds(st.createdAt),
		"EnhancedMonitoring": []any{map[string]any{"ShardLevelMetrics": []string{}}}, "EncryptionType": "NONE",
		"OpenShardCount": len(st.open), "ConsumerCount": 0, "MaxRecordSizeInKiB": st.maxKiB,
		"RecordDistributionStrategy": strategy,
	}
}

func (s *Server) describeSummary(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	st, err := s.lookup(in.stream())
	if err != nil {
		return nil, err
	}
	return map[string]any{"StreamDescriptionSummary": st.summary(s.now())}, nil
}

func (st *streamState) describe(sh *shard) map[string]any {
	numbers := map[string]string{"StartingSequenceNumber": sequence{sh.created, sh.created, sh.first, sh.number}.String()}
	if sh.closedCounter != 0 {
		numbers["EndingSequenceNumber"] = st.sequence(sh, sh.closedCounter, sh.closedAt).String()
	}
	d := map[string]any{"ShardId": sh.id(), "HashKeyRange": hashRange(sh), "SequenceNumberRange": numbers}
	for i, p := range sh.parents {
		d[[]string{"ParentShardId", "AdjacentParentShardId"}[i]] = st.shards[p].id()
	}
	return d
}

func (s *Server) describeStream(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	st, err := s.lookup(in.stream())
	if err != nil {
		return nil, err
	}
	limit := 100
	if in.Limit != nil {
		limit = *in.Limit
	}
	d := st.summary(s.now())
	shards := []any{}
	more := false
	for _, sh := range st.shards {
		if sh.id() <= in.ExclusiveStartShardId || !st.listed(sh, s.now()) {
			continue
		}
		if more = len(shards) == limit; more {
			break
		}
		shards = append(shards, st.describe(sh))
	}
	d["Shards"], d["HasMoreShards"] = shards, more
	return map[string]any{"StreamDescription": d}, nil
}

func (s *Server) listStreams(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	limit := 100
	if in.Limit != nil {
		limit = *in.Limit
	}
	after := in.ExclusiveStartStreamName + in.NextToken
	names, summaries := []string{}, []any{}
	for name := range s.streams {
		if name > after {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	out := map[string]any{"HasMoreStreams": len(names) > limit}
	if len(names) > limit {
		names = names[:limit]
		out["NextToken"] = names[limit-1]
	}
	for _, name := range names {
		d := s.streams[name].summary(s.now())
		summaries = append(summaries, map[string]any{"StreamName": name, "StreamARN": d["StreamARN"],
			"StreamStatus": d["StreamStatus"], "StreamModeDetails": d["StreamModeDetails"]})
	}
	out["StreamNames"], out["StreamSummaries"] = names, summaries
	return out, nil
}

// token of ListShards: the stream, and the shard after which to go on.
type shardToken struct{ Stream, After string }

func (s *Server) listShards(body []byte) (any, error) {
	in, err := read(body)
	if err != nil {
		return nil, err
	}
	name, after := in.stream(), in.ExclusiveStartShardId
	if in.NextToken != "" {
		if name != "" {
			return nil, bad("InvalidArgumentException", "NextToken and StreamName cannot be provided together.")
		}
		var t shardToken
		raw, err := base64.StdEncoding.DecodeString(in.NextToken)
		if err != nil || json.Unmarshal(raw, &t) != nil {
			return nil, bad("InvalidArgumentException", "NextToken is invalid.")
		}
		name, after = t.Stream, t.After
	}
	st, err := s.lookup(name)
	if err != nil {
		return nil, err
	}
	limit := s.opt.PageShards
	if in.MaxResults != nil {
		limit = min(limit, *in.MaxResults)
	}
	out := map[string]any{}
	list := []any{}
	last := ""
	for _, sh := range st.shards {
		if sh.id() <= after || !st.listed(sh, s.now()) || !st.passes(sh, &in, s.now()) {
			continue
		}
		if len(list) == limit {
			p, _ := json.Marshal(shardToken{name, last}) // strings always marshal
			out["NextToken"] = base64.StdEncoding.EncodeToString(p)
			break
		}
		list = append(list, st.describe(sh))
		last = sh.id()
	}
	out["Shards"] = list
	return out, nil
}

// passes applies ListShards' filter.
func (st *streamState) passes(sh *shard, in *request, now time.Time) bool {
	f := in.ShardFilter
	if f == nil {
		return true
	}
	at := now.Add(-time.Duration(st.hours) * time.Hour)
	if f.Timestamp != nil {
		at = time.UnixMicro(int64(*f.Timestamp * 1e6))
	}
	openAt := sh.closedCounter == 0 || sh.closedAt.After(at)
	madeBy := !time.Unix(sh.created, 0).After(at)
	switch f.Type {
	case "AFTER_SHARD_ID":
		return sh.id() > f.ShardId
	case "AT_LATEST":
		return sh.closedCounter == 0
	case "FROM_TIMESTAMP", "FROM_TRIM_HORIZON":
		return openAt
	case "AT_TIMESTAMP":
		return openAt && madeBy
	case "AT_TRIM_HORIZON":
		return openAt && (madeBy || len(sh.parents) == 0)
	}
	return true
}

func (s *Server) splitShard(body []byte) (any, error) {
	in, st, err := s.changing(body)
	if err != nil {
		return nil, err
	}
	sh := st.find(in.ShardToSplit)
	if sh == nil || sh.closedCounter != 0 {
		return nil, bad("InvalidArgumentException", "Shard %s in stream %s is not open", in.ShardToSplit, st.name)
	}
	at, ok := parseHash(in.NewStartingHashKey)
	if !ok || !sh.low.less(at) || sh.top.less(at) {
		return nil, bad("InvalidArgumentException", "NewStartingHashKey %s is not inside the shard's range", in.NewStartingHashKey)
	}
	now := s.now()
	st.close(sh, now)
	st.addShard(now, sh.low, hashOf(new(big.Int).Sub(at.int(), big.NewInt(1))), sh.number)
	st.addShard(now, at, sh.top, sh.number)
	return nil, nil
}

func (s *Server) mergeShards(body []byte) (any, error) {
	in, st, err := s.changing(body)
	if err != nil {
		return nil, err
	}
	a, b := st.find(in.ShardToMerge), st.find(in.AdjacentShardToMerge)
	if a == nil || b == nil || a.closedCounter != 0 || b.closedCounter != 0 {
		return nil, bad("InvalidArgumentException", "shards %s and %s are not both open", in.ShardToMerge, in.AdjacentShardToMerge)
	}
	low, top := a, b
	if b.low.less(a.low) {
		low, top = b, a
	}
	if new(big.Int).Add(low.top.int(), big.NewInt(1)).Cmp(top.low.int()) != 0 {
		return nil, bad("InvalidArgumentException", "shards %s and %s are not adjacent", a.id(), b.id())
	}
	now := s.now()
	st.close(a, now)
	st.close(b, now)
	st.addShard(now, low.low, top.top, a.number, b.number)
	return nil, nil
}

func (s *Server) increaseRetention(body []byte) (any, error) { return s.retention(body, 1) }
func (s *Server) decreaseRetention(body []byte) (any, error) { return s.retention(body, -1) }

func (s *Server) retention(body []byte, direction int) (any, error) {
	in, st, err := s.changing(body)
	if err != nil {
		return nil, err
	}
	if in.RetentionPeriodHours == nil || *in.RetentionPeriodHours < 24 || *in.RetentionPeriodHours > 8760 {
		return nil, bad("InvalidArgumentException", "RetentionPeriodHours must be between 24 and 8760")
	}
	if (*in.RetentionPeriodHours-st.hours)*direction < 0 {
		return nil, bad("InvalidArgumentException", "Requested retention period %d is on the wrong side of the current one, %d", *in.RetentionPeriodHours, st.hours)
	}
	st.hours = *in.RetentionPeriodHours
	return nil, nil
}

// CreateStream makes a stream at once, without the API.
func (s *Server) CreateStream(name string, shards int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams[name] = s.newStream(name, shards, 1024, false, false)
	s.streams[name].activeAt = s.now()
}

// Split splits an open shard in the middle, without the API, and gives its children.
func (s *Server) Split(stream, shardID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[stream]
	sh := st.find(shardID)
	if sh == nil || !slices.Contains(st.open, sh) {
		return nil
	}
	mid := new(big.Int).Add(sh.low.int(), sh.top.int())
	mid.Rsh(mid, 1)
	now := s.now()
	st.close(sh, now)
	a := st.addShard(now, sh.low, hashOf(mid), sh.number)
	b := st.addShard(now, hashOf(mid.Add(mid, big.NewInt(1))), sh.top, sh.number)
	return []string{a.id(), b.id()}
}

// Merge merges two adjacent open shards, without the API, and gives their child.
func (s *Server) Merge(stream, shardA, shardB string) string {
	body, _ := json.Marshal(map[string]string{"StreamName": stream, "ShardToMerge": shardA, "AdjacentShardToMerge": shardB})
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.mergeShards(body); err != nil {
		return ""
	}
	st := s.streams[stream]
	return st.shards[len(st.shards)-1].id()
}
