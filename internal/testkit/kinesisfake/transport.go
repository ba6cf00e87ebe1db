package kinesisfake

import (
	"bytes"
	"io"
	"net/http"
)

// Transport reaches the server without a socket, so that a client and the server can share a testing/synctest bubble.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ s *Server }

// RoundTrip serves r in a goroutine of its own, as a real server would: it goes on when the client leaves.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close() // it was read to its end
	}
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(bytes.NewReader(body))
	in.ContentLength = int64(len(body))
	w := &answer{header: http.Header{}, status: http.StatusOK}
	done := make(chan bool, 1)
	t.s.late.Add(1)
	go func() {
		defer t.s.late.Done()
		ok := false
		defer func() {
			if p := recover(); p != nil && p != http.ErrAbortHandler {
				panic(p)
			}
			done <- ok
		}()
		t.s.ServeHTTP(w, in)
		ok = true
	}()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case ok := <-done:
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
	}
	return &http.Response{StatusCode: w.status, Header: w.header, Body: io.NopCloser(&w.body), Request: r,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(w.body.Len())}, nil
}

type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }
