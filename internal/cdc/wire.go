package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// wireBuffer is how much is read from the server at once. Messages longer than this go straight into their batch.
const wireBuffer = 256 << 10

// maxMessage is what PostgreSQL can send at most in one message.
const maxMessage = 1<<30 - 1

// frame reads the server's messages from a connection. It serves two masters: as an io.Reader it gives pgproto3 never
// more than the rest of the message at hand, so that nothing of the replication stream is left in pgproto3's buffer
// when we take over; afterwards peek, skip and readInto take whole messages from the buffer without copying.
type frame struct {
	conn net.Conn  // for deadlines; set when the replication stream begins
	r    io.Reader // the connection
	buf  []byte
	pos  int // first byte not consumed
	end  int // first byte not read

	rest int // Read: bytes left of the message at hand
}

func newFrame(r io.Reader) *frame { return &frame{r: r, buf: make([]byte, wireBuffer)} }

// Read gives at most the rest of one message.
func (f *frame) Read(p []byte) (int, error) {
	if f.rest == 0 {
		for f.end-f.pos < 5 {
			if err := f.more(); err != nil {
				return 0, err
			}
		}
		n := int(binary.BigEndian.Uint32(f.buf[f.pos+1:]))
		if n < 4 || n > maxMessage {
			return 0, fmt.Errorf("message length %d from the server makes no sense", n)
		}
		f.rest = n + 1
	}
	if f.pos == f.end {
		if err := f.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, f.buf[f.pos:min(f.end, f.pos+f.rest)])
	f.pos += n
	f.rest -= n
	return n, nil
}

// more reads once from the connection, making room in the buffer first.
func (f *frame) more() error {
	if f.pos == f.end {
		f.pos, f.end = 0, 0
	} else if f.end == len(f.buf) {
		copy(f.buf, f.buf[f.pos:f.end])
		f.pos, f.end = 0, f.end-f.pos
	}
	n, err := f.r.Read(f.buf[f.end:])
	f.end += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// head is the start of a CopyData message: its body's length, and as much of the body as is needed to judge it.
type head struct {
	kind byte
	size int // of the body
}

// ready tells whether a whole message lies in the buffer, so that reading it cannot block.
func (f *frame) ready() bool {
	have := f.end - f.pos
	return have >= 5 && have >= 1+int(binary.BigEndian.Uint32(f.buf[f.pos+1:]))
}

// peek waits until the next message is in the buffer, or, when it is longer than the buffer, its beginning of at least
// want bytes. It consumes nothing. Past the deadline it gives os.ErrDeadlineExceeded; a zero deadline is none.
func (f *frame) peek(ctx context.Context, deadline time.Time, want int) (h head, body []byte, whole bool, err error) {
	if f.end-f.pos < 5 {
		if err := f.fill(ctx, deadline, 5); err != nil {
			return h, nil, false, err
		}
	}
	h.kind = f.buf[f.pos]
	n := int(binary.BigEndian.Uint32(f.buf[f.pos+1:]))
	if n < 4 || n > maxMessage {
		return h, nil, false, fmt.Errorf("message length %d from the server makes no sense", n)
	}
	h.size = n - 4
	if 1+n <= len(f.buf) {
		if err := f.fill(ctx, deadline, 1+n); err != nil {
			return h, nil, false, err
		}
		return h, f.buf[f.pos+5 : f.pos+1+n], true, nil
	}
	if err := f.fill(ctx, deadline, 5+want); err != nil {
		return h, nil, false, err
	}
	return h, f.buf[f.pos+5 : f.end], false, nil
}

// fill waits until need bytes are in the buffer.
func (f *frame) fill(ctx context.Context, deadline time.Time, need int) error {
	if f.end-f.pos >= need {
		return nil
	}
	if f.pos+need > len(f.buf) {
		copy(f.buf, f.buf[f.pos:f.end])
		f.pos, f.end = 0, f.end-f.pos
	}
	stop, err := f.arm(ctx, deadline)
	if err != nil {
		return err
	}
	defer stop()
	for f.end-f.pos < need {
		if err := f.more(); err != nil {
			return f.reason(ctx, err)
		}
	}
	return nil
}

// arm makes reads end at the deadline and when ctx does.
func (f *frame) arm(ctx context.Context, deadline time.Time) (stop func() bool, err error) {
	if f.conn == nil {
		return func() bool { return true }, nil
	}
	if err := f.conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	conn := f.conn
	return context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) }), nil
}

func (f *frame) reason(ctx context.Context, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF // the end of the connection is not the end of the input
	}
	return err
}

// skip consumes a message that is whole in the buffer.
func (f *frame) skip(h head) { f.pos += 5 + h.size }

// readInto consumes a message that is not whole in the buffer, its body going to dst, which has the body's size. An
// error or the end of ctx in the middle makes the connection useless.
func (f *frame) readInto(ctx context.Context, dst []byte) error {
	f.pos += 5
	n := copy(dst, f.buf[f.pos:f.end])
	f.pos += n
	if n == len(dst) {
		return nil
	}
	stop, err := f.arm(ctx, time.Time{})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := io.ReadFull(f.r, dst[n:]); err != nil {
		return f.reason(ctx, err)
	}
	return nil
}

// discard consumes a message without looking at it.
func (f *frame) discard(ctx context.Context, h head, whole bool) error {
	if whole {
		f.skip(h)
		return nil
	}
	rest := h.size - (f.end - f.pos - 5)
	f.pos, f.end = 0, 0
	stop, err := f.arm(ctx, time.Time{})
	if err != nil {
		return err
	}
	defer stop()
	if _, err := io.CopyN(io.Discard, f.r, int64(rest)); err != nil {
		return f.reason(ctx, err)
	}
	return nil
}
