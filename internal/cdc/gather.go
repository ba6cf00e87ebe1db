package cdc

import (
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// gatherBuffer is how much is read from the socket at once, below TLS where there is TLS.
const gatherBuffer = 128 << 10

// gatherConn is the socket of a replication connection. The server sends each row by itself, and a wake-up for each costs
// more than its decoding. While rows come thick and fast, a little patience makes one read out of hundreds, and spares the
// server the wake-ups, too. It lies below TLS, whose records are a row each and would be waited for one by one.
//
// Reading is for one goroutine at a time.
type gatherConn struct {
	net.Conn
	on atomic.Bool // rows are expected; before that, every answer is waited for by somebody

	buf      []byte
	pos, end int
	lastRead time.Time
	small    bool // the last read returned little
}

func newGatherConn(conn net.Conn) *gatherConn {
	return &gatherConn{Conn: conn, buf: make([]byte, gatherBuffer)}
}

// buffered tells whether bytes have been read from the socket that nobody has taken yet.
func (g *gatherConn) buffered() bool { return g.pos < g.end }

func (g *gatherConn) Read(p []byte) (int, error) {
	if g.pos == g.end {
		g.settle()
		if len(p) >= len(g.buf) {
			n, err := g.Conn.Read(p)
			g.note(n)
			return n, err
		}
		n, err := g.Conn.Read(g.buf)
		g.note(n)
		g.pos, g.end = 0, n
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, g.buf[g.pos:g.end])
	g.pos += n
	return n, nil
}

func (g *gatherConn) note(n int) {
	g.lastRead, g.small = time.Now(), n < gatherBuffer/2
}

// settle waits a moment when little came last time, and that just now. The low-water mark keeps the kernel from waking
// the process for each row all the same.
func (g *gatherConn) settle() {
	if !g.on.Load() || !g.small || time.Since(g.lastRead) > 5*time.Millisecond {
		return
	}
	g.lowWater(gatherBuffer / 2)
	time.Sleep(2 * time.Millisecond)
	g.lowWater(1)
}

// lowWater sets from how many bytes on the socket counts as readable. Where that cannot be set, reads only cost more.
func (g *gatherConn) lowWater(bytes int) {
	s, ok := g.Conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
