package kinesisfake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options of a server. The zero value is a service without faults and without rate limits, on the real clock.
type Options struct {
	Now         func() time.Time // clock of arrival times, iterators and retention; default time.Now
	CreateDelay time.Duration    // how long a stream is CREATING; default none
	Script      Script           // decides about each call; default no faults
	RateLimits  bool             // the real limits per shard: 1000 records/s and 1 MiB/s in, 5 GetRecords/s out
	CheckOrder  bool             // assert the publisher's law, see Violations
	Discard     bool             // count records and keep none, for benchmarks
	PageShards  int              // shards in a page of ListShards; default 1000
}

// Server is the fake. Close it after its clients.
type Server struct {
	opt  Options
	http *http.Server
	url  string

	mu      sync.Mutex
	streams map[string]*streamState
	script  Script
	calls   map[string]int64
	order   orderCheck

	stop context.CancelFunc // ends what hangs
	ctx  context.Context
	late sync.WaitGroup // requests that will be stored later
}

// New makes a server that is reached by Transport only.
func New(opt Options) *Server {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.PageShards == 0 {
		opt.PageShards = 1000
	}
	s := &Server{opt: opt, streams: map[string]*streamState{}, script: opt.Script, calls: map[string]int64{}}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Start makes a server that listens on a free port of the loopback address.
func Start(opt Options) (*Server, error) {
	s := New(opt)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the fake: %w", err)
	}
	s.url = "http://" + l.Addr().String()
	s.http = &http.Server{Handler: s}
	s.late.Add(1)
	go func() {
		defer s.late.Done()
		_ = s.http.Serve(l) // ends with ErrServerClosed
	}()
	return s, nil
}

// URL is the endpoint.
func (s *Server) URL() string { return s.url }

// Close cuts every connection and waits until requests that are to be stored late are stored or dropped.
func (s *Server) Close() {
	s.stop()
	if s.http != nil {
		_ = s.http.Close()
	}
	s.late.Wait()
}

// SetScript replaces the script, from the next call on.
func (s *Server) SetScript(script Script) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// Calls is how often an operation was called.
func (s *Server) Calls(operation string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[operation]
}

func (s *Server) now() time.Time { return s.opt.Now() }

// apiError is an error answer.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func bad(code, format string, args ...any) error {
	return &apiError{400, code, fmt.Sprintf(format, args...)}
}

type operation func(s *Server, body []byte) (any, error)

var operations = map[string]operation{
	"CreateStream":                  (*Server).createStream,
	"DeleteStream":                  (*Server).deleteStream,
	"DescribeStream":                (*Server).describeStream,
	"DescribeStreamSummary":         (*Server).describeSummary,
	"ListStreams":                   (*Server).listStreams,
	"ListShards":                    (*Server).listShards,
	"GetShardIterator":              (*Server).getShardIterator,
	"SplitShard":                    (*Server).splitShard,
	"MergeShards":                   (*Server).mergeShards,
	"IncreaseStreamRetentionPeriod": (*Server).increaseRetention,
	"DecreaseStreamRetentionPeriod": (*Server).decreaseRetention,
	"PutRecord":                     (*Server).putRecord,
}

// ServeHTTP answers one call.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	op, ok := strings.CutPrefix(r.Header.Get("X-Amz-Target"), "Kinesis_20131202.")
	if !ok {
		writeError(w, bad("UnknownOperationException", "no x-amz-target"))
		return
	}
	body := takeBuffer()
	var err error
	if body.b, err = readAll(r.Body, body.b, r.ContentLength); err != nil {
		panic(http.ErrAbortHandler)
	}
	switch op {
	case "PutRecords":
		s.servePut(w, r, body) // keeps body when it stores late
		return
	case "GetRecords":
		s.serveGet(w, r, body.b)
	default:
		s.serveOther(w, r, op, body.b)
	}
	body.release()
}

func (s *Server) serveOther(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	run, ok := operations[op]
	if !ok {
		writeError(w, bad("UnknownOperationException", "%s is not in the fake", op))
		return
	}
	v := s.verdict(op, 0)
	if s.interfere(w, r, v) {
		return
	}
	s.mu.Lock()
	out, err := run(s, body)
	s.mu.Unlock()
	s.sleep(r.Context(), v.Latency)
	if v.LoseAck {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	var answer []byte
	if out != nil {
		if answer, err = json.Marshal(out); err != nil {
			panic(http.ErrAbortHandler)
		}
	}
	writeJSON(w, answer)
}

// writeJSON sends an answer with its length, as the service does.
func writeJSON(w http.ResponseWriter, answer []byte) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = w.Write(answer) // the client may have left
}

// verdict asks the script.
func (s *Server) verdict(op string, entries int) Verdict {
	s.mu.Lock()
	s.calls[op]++
	c := Call{Operation: op, Number: s.calls[op], Entries: entries}
	script := s.script
	s.mu.Unlock()
	if script == nil {
		return Verdict{}
	}
	return script(c)
}

// interfere carries out what a verdict says about the whole of a call that stores nothing late.
func (s *Server) interfere(w http.ResponseWriter, r *http.Request, v Verdict) bool {
	switch {
	case v.Hang:
		select {
		case <-r.Context().Done():
		case <-s.ctx.Done():
		}
		panic(http.ErrAbortHandler)
	case v.Drop:
		panic(http.ErrAbortHandler)
	case v.Status != 0:
		s.sleep(r.Context(), v.Latency)
		writeError(w, &apiError{v.Status, v.Code, v.Message})
		return true
	}
	return false
}

func (s *Server) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
}

func writeError(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*apiError](err)
	if !ok {
		e = &apiError{400, "SerializationException", err.Error()}
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	w.WriteHeader(e.status)
	body, _ := json.Marshal(map[string]string{"__type": e.code, "message": e.message}) // strings always marshal
	_, _ = w.Write(body)                                                               // the client may have left
}

type buffer struct{ b []byte }

var buffers = sync.Pool{New: func() any { return new(buffer) }}

func takeBuffer() *buffer { return buffers.Get().(*buffer) }

func (b *buffer) release() {
	if cap(b.b) <= 16<<20 {
		b.b = b.b[:0]
		buffers.Put(b)
	}
}

func readAll(r io.Reader, dst []byte, length int64) ([]byte, error) {
	if length >= 0 {
		dst = slices.Grow(dst[:0], int(length))[:length]
		_, err := io.ReadFull(r, dst)
		return dst, err
	}
	return io.ReadAll(r)
}
