package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"synctl/internal/pg"
	"synctl/internal/record"
)

// errStreamEnded says that the server ended the replication of its own accord: it shuts down.
var errStreamEnded = errors.New("the server ended the replication stream")

// errSilent says that the server is not there any more although the connection stands.
var errSilent = errors.New("nothing came from the server")

// writeTimeout is how long a status message may take. The server reads them also while it is blocked by a reader that
// has stopped, so one that takes longer has lost its connection.
const writeTimeout = 30 * time.Second

// replication is a connection in replication mode.
type replication struct {
	pg    *pgconn.PgConn
	sock  *gatherConn
	frame *frame
	mu    sync.Mutex // writes
	buf   [39]byte

	network, address string // of the server, as dialled
}

// identity is what IDENTIFY_SYSTEM says.
type identity struct {
	system   uint64
	timeline uint32
	end      record.LSN
}

// connectReplication opens a connection that takes replication commands.
func connectReplication(ctx context.Context, cfg *pgx.ConnConfig) (*replication, error) {
	c := cfg.Config.Copy()
	c.RuntimeParams["replication"] = "database"
	unlimited(c.RuntimeParams)
	r := &replication{}
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		r.network, r.address = network, addr
		r.sock = newGatherConn(conn)
		return r.sock, nil
	}
	c.BuildFrontend = func(in io.Reader, out io.Writer) *pgproto3.Frontend {
		r.frame = newFrame(in)
		return pgproto3.NewFrontend(r.frame, out)
	}
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, c)
	if err != nil {
		return nil, pg.ConnectFault(c, err)
	}
	r.pg = conn
	return r, nil
}

func (r *replication) identify(ctx context.Context) (identity, error) {
	res, err := pglogrepl.IdentifySystem(ctx, r.pg)
	if err != nil {
		return identity{}, fmt.Errorf("identify the system: %w", err)
	}
	system, err := strconv.ParseUint(res.SystemID, 10, 64)
	if err != nil {
		return identity{}, fmt.Errorf("identify the system: %w", err)
	}
	return identity{system, uint32(res.Timeline), record.LSN(res.XLogPos)}, nil
}

// start begins the replication; from then on the frame is read from directly.
func (r *replication) start(ctx context.Context, slot string, from record.LSN, publication string) error {
	// The replication grammar knows no escapes but the doubled quote.
	names := strings.ReplaceAll(pg.Ident(publication), "'", "''")
	args := []string{"proto_version '1'", "publication_names '" + names + "'", "messages 'true'"}
	// Binary and streaming stay off: values are wanted as text, and a transaction whole after its commit, so that memory
	// does not depend on its size.
	err := pglogrepl.StartReplication(ctx, r.pg, pg.Ident(slot), pglogrepl.LSN(from),
		pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: args})
	if err != nil {
		return err
	}
	r.frame.conn = r.pg.Conn()
	r.sock.on.Store(true)
	return r.frame.conn.SetDeadline(time.Time{})
}

// status tells the server what is durable. reply asks for a keepalive in answer.
func (r *replication) status(durable record.LSN, reply bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buf[:0]
	b = append(b, 'd')
	b = binary.BigEndian.AppendUint32(b, 4+1+8+8+8+8+1)
	b = append(b, pglogrepl.StandbyStatusUpdateByteID)
	for range 3 { // written, flushed, applied: a synchronous commit that waits for us waits for the sink
		b = binary.BigEndian.AppendUint64(b, uint64(durable))
	}
	b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixMicro()-pgEpoch))
	if reply {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	return r.write(b)
}

func (r *replication) write(b []byte) error {
	conn := r.pg.Conn()
	if err := conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := conn.Write(b)
	return err
}

// ready tells whether something of the server's can be read without waiting for the server. With TLS what lies in the
// buffer may be the beginning of a record; its end is on its way then.
func (r *replication) ready() bool {
	return r.frame.ready() || r.sock != nil && r.sock.buffered()
}

// finish ends the replication in order: CopyDone makes the server process all status messages before it lets go of the
// slot, and its own end says that it has. Rows still on their way are thrown away; they were not confirmed.
func (r *replication) finish(ctx context.Context) error {
	r.mu.Lock()
	err := r.write([]byte{'c', 0, 0, 0, 4})
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("end the replication: %w", err)
	}
	for {
		h, _, whole, err := r.frame.peek(ctx, time.Time{}, 1)
		if err != nil {
			return fmt.Errorf("end the replication: %w", err)
		}
		if err := r.frame.discard(ctx, h, whole); err != nil {
			return fmt.Errorf("end the replication: %w", err)
		}
		if h.kind == 'Z' || h.kind == 'E' {
			r.leave()
			return nil
		}
	}
}

// leave says goodbye and waits until the server has closed the connection: then, and not before, a temporary slot is gone
// and a durable one is free for the next reader. A server that does not close it in time does so later.
func (r *replication) leave() {
	r.mu.Lock()
	err := r.write([]byte{'X', 0, 0, 0, 4})
	r.mu.Unlock()
	conn := r.pg.Conn()
	if err != nil || conn.SetReadDeadline(time.Now().Add(2*time.Second)) != nil {
		return
	}
	_, _ = io.Copy(io.Discard, conn)
}

// drop closes the connection without ceremony.
func (r *replication) drop() {
	if r.pg != nil {
		r.pg.Conn().Close()
	}
}

// parseError reads an ErrorResponse or a NoticeResponse.
func parseError(body []byte) (*pgconn.PgError, error) {
	var m pgproto3.ErrorResponse
	if err := m.Decode(body); err != nil {
		return nil, fmt.Errorf("read the server's error: %w", err)
	}
	return pgconn.ErrorResponseToPgError(&m), nil
}

// lostConnection tells errors of the connection, which a new one mends, from all others.
func lostConnection(err error) bool {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		// Shutdowns and crashes, connection exceptions, a slot still held by our own connection that has just died.
		return pg.Retryable(err) || strings.HasPrefix(e.Code, "57P")
	}
	var n net.Error
	return errors.Is(err, errStreamEnded) || errors.Is(err, errSilent) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.As(err, &n) || errors.Is(err, net.ErrClosed) || pg.Retryable(err)
}
