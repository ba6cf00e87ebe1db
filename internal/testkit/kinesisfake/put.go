package kinesisfake

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

type entry struct {
	key, explicit []byte // parts of the body
	data          []byte // decoded in place
	hash          hash
	error         string
	message       string
	at            *shard
	seq           sequence

	keyAt, dataAt int // where copyOut put them
}

type putRequest struct {
	stream  string
	entries []entry
	body    *buffer
	out     []byte
	scan    scanner
}

var putRequests = sync.Pool{New: func() any { return new(putRequest) }}

func (q *putRequest) release() {
	if q.body != nil {
		q.body.release()
	}
	clear(q.entries)
	*q = putRequest{entries: q.entries[:0], out: q.out[:0]}
	putRequests.Put(q)
}

func (q *putRequest) parse(s *Server) error {
	q.scan = scanner{p: q.body.b}
	sc := &q.scan
	var e *entry
	field := func(name []byte) (err error) {
		var dst *[]byte
		switch string(name) {
		case "Data":
			dst = &e.data
		case "PartitionKey":
			dst = &e.key
		case "ExplicitHashKey":
			dst = &e.explicit
		default:
			return sc.skip()
		}
		if sc.peek() == 'n' {
			return sc.skip()
		}
		*dst, err = sc.text()
		return err
	}
	element := func() error {
		q.entries = append(q.entries, entry{})
		e = &q.entries[len(q.entries)-1]
		return sc.object(field)
	}
	return sc.object(func(name []byte) error {
		switch string(name) {
		case "Records":
			return sc.array(element)
		case "StreamName", "StreamARN":
			t, err := sc.text()
			q.stream = streamOfARN(string(t))
			return err
		}
		return sc.skip()
	})
}

func streamOfARN(s string) string {
	if strings.HasPrefix(s, "arn:") {
		return s[strings.LastIndexByte(s, '/')+1:]
	}
	return s
}

// check applies the limits of a request and decodes the data.
func (q *putRequest) check(maxKiB int) error {
	if n := len(q.entries); n < 1 || n > 500 {
		return bad("ValidationException", "1 validation error detected: Value of %d records at 'records' failed to satisfy constraint: Member must have length less than or equal to 500", n)
	}
	total := 0
	for i := range q.entries {
		e := &q.entries[i]
		if err := e.check(maxKiB); err != nil {
			return err
		}
		total += len(e.data) + len(e.key)
	}
	if total > 10<<20 {
		return bad("InvalidArgumentException", "Records size exceeds 10 MB limit")
	}
	return nil
}

func (e *entry) check(maxKiB int) error {
	n, err := base64.StdEncoding.Decode(e.data, e.data)
	if err != nil {
		return bad("SerializationException", "Data is not base64")
	}
	e.data = e.data[:n]
	if c := utf8.RuneCount(e.key); c < 1 || c > 256 {
		return bad("ValidationException", "1 validation error detected: Value at 'partitionKey' failed to satisfy constraint: Member must have length between 1 and 256")
	}
	if n+len(e.key) > maxKiB<<10 {
		return bad("InvalidArgumentException", "record of %d bytes exceeds the stream's limit of %d KiB", n+len(e.key), maxKiB)
	}
	if e.explicit != nil {
		h, ok := parseHash(string(e.explicit))
		if !ok {
			return bad("InvalidArgumentException", "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was %s", e.explicit)
		}
		e.hash = h
		return nil
	}
	sum := md5.Sum(e.key)
	e.hash = hash{binary.BigEndian.Uint64(sum[:8]), binary.BigEndian.Uint64(sum[8:])}
	return nil
}

func (s *Server) servePut(w http.ResponseWriter, r *http.Request, body *buffer) {
	q := putRequests.Get().(*putRequest)
	q.body = body
	if err := q.parse(s); err != nil {
		writeError(w, bad("SerializationException", "%v", err))
		q.release()
		return
	}
	v := s.verdict("PutRecords", len(q.entries))
	err := s.admit(q)
	if err == nil && v.Late > 0 {
		s.storeLate(r, q, v)
		panic(http.ErrAbortHandler)
	}
	if err == nil && s.interfere(w, r, v) {
		q.release()
		return
	}
	if err == nil {
		s.store(q, v)
	}
	s.sleep(r.Context(), v.Latency)
	if v.LoseAck {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		writeError(w, err)
		q.release()
		return
	}
	if s.opt.CheckOrder {
		s.order.acknowledged(q.entries)
	}
	q.answer()
	writeJSON(w, q.out)
	q.release()
}

// storeLate cuts the connection, at once or when the client leaves, and stores the request after v.Late.
func (s *Server) storeLate(r *http.Request, q *putRequest, v Verdict) {
	if v.Hang {
		select {
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
	}
	s.late.Add(1)
	go func() {
		defer s.late.Done()
		t := time.NewTimer(v.Late)
		defer t.Stop()
		select {
		case <-t.C:
			s.store(q, v)
		case <-s.ctx.Done():
		}
		q.release()
	}()
}

// admit checks a request and notes its entries.
func (s *Server) admit(q *putRequest) error {
	s.mu.Lock()
	st, err := s.active(q.stream)
	maxKiB := 0
	if err == nil {
		maxKiB = st.maxKiB
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := q.check(maxKiB); err != nil {
		return err
	}
	if s.opt.CheckOrder {
		s.order.arrived(q.entries)
	}
	return nil
}

// store puts the entries of a request into their shards, or marks them as failed.
func (s *Server) store(q *putRequest, v Verdict) {
	if v.Entry != nil {
		for i := range q.entries {
			e := &q.entries[i]
			e.error = v.Entry(i, string(e.key))
		}
	}
	var arena []byte
	var keys string
	if !s.opt.Discard {
		arena, keys = q.copyOut()
	}
	var order []int
	if v.Shuffle != nil {
		order = v.Shuffle.Perm(len(q.entries))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.streams[q.stream]
	if st == nil {
		return // deleted while the request was late
	}
	now := s.now()
	for i := range q.entries {
		if order != nil {
			i = order[i]
		}
		e := &q.entries[i]
		s.storeEntry(st, e, now)
		if e.error == "" && !s.opt.Discard {
			end := e.dataAt + len(e.data)
			e.at.records = append(e.at.records, stored{counter: e.seq.counter, arrived: now,
				key: keys[e.keyAt : e.keyAt+len(e.key)], data: arena[e.dataAt:end:end]})
		}
	}
}

func (s *Server) storeEntry(st *streamState, e *entry, now time.Time) {
	if e.error != "" {
		e.message = "fault on demand"
		return
	}
	e.at = st.route(e.hash)
	size := len(e.data) + len(e.key)
	if s.opt.RateLimits && !e.at.rate.take(now, size) {
		e.error = "ProvisionedThroughputExceededException"
		e.message = fmt.Sprintf("Rate exceeded for shard %s in stream %s under account 000000000000.", e.at.id(), st.name)
		return
	}
	e.seq = st.sequence(e.at, st.counter, now)
	st.counter++
	e.at.put++
	e.at.bytes += int64(size)
}

// copyOut copies data and keys out of the body, in two pieces for the whole request.
func (q *putRequest) copyOut() (data []byte, keys string) {
	var text strings.Builder
	n := 0
	for i := range q.entries {
		e := &q.entries[i]
		e.dataAt, e.keyAt = n, text.Len()
		n += len(e.data)
		text.Write(e.key)
	}
	data = make([]byte, 0, n)
	for i := range q.entries {
		data = append(data, q.entries[i].data...)
	}
	return data, text.String()
}

func (q *putRequest) answer() {
	failed := 0
	out := append(q.out[:0], `{"EncryptionType":"NONE","Records":[`...)
	for i := range q.entries {
		e := &q.entries[i]
		if i > 0 {
			out = append(out, ',')
		}
		if e.error != "" {
			failed++
			out = fmt.Appendf(out, `{"ErrorCode":%q,"ErrorMessage":%q}`, e.error, e.message)
			continue
		}
		out = append(out, `{"SequenceNumber":"`...)
		out = e.seq.append(out)
		out = append(out, `","ShardId":"`...)
		out = appendShardID(out, e.at.number)
		out = append(out, `"}`...)
	}
	q.out = fmt.Appendf(out, `],"FailedRecordCount":%d}`, failed)
}

func appendShardID(dst []byte, number int) []byte {
	dst = append(dst, "shardId-000000000000"...)
	for i := len(dst) - 1; number > 0; i-- {
		dst[i] = byte('0' + number%10)
		number /= 10
	}
	return dst
}

func (s *Server) putRecord(body []byte) (any, error) {
	var in struct {
		StreamName, StreamARN, PartitionKey, ExplicitHashKey string
		Data                                                 []byte
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	st, err := s.active(in.StreamName + streamOfARN(in.StreamARN))
	if err != nil {
		return nil, err
	}
	e := entry{key: []byte(in.PartitionKey), data: base64.StdEncoding.AppendEncode(nil, in.Data)}
	if in.ExplicitHashKey != "" {
		e.explicit = []byte(in.ExplicitHashKey)
	}
	if err := e.check(st.maxKiB); err != nil {
		return nil, err
	}
	now := s.now()
	s.storeEntry(st, &e, now)
	if e.error != "" {
		return nil, bad(e.error, "%s", e.message)
	}
	if !s.opt.Discard {
		e.at.records = append(e.at.records, stored{e.seq.counter, now, in.PartitionKey, slices.Clone(e.data)})
	}
	return map[string]string{"ShardId": e.at.id(), "SequenceNumber": e.seq.String(), "EncryptionType": "NONE"}, nil
}
