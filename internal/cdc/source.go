package cdc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/pg"
	"synctl/internal/pipeline"
	"synctl/internal/record"
)

var _ pipeline.Source = (*Source)(nil)

// Token is the resume position of a batch: everything that ends at or below it has been read.
type Token record.LSN

// keepaliveEvery is how often at most a keepalive's position alone becomes a batch: a server that decodes much which is
// not published sends hundreds a second.
const keepaliveEvery = 250 * time.Millisecond

// Source is a stream of changes. ReadBatch is for one goroutine; Ack, Close and the accessors for any.
type Source struct {
	opt           Options
	log           *slog.Logger
	system        uint64
	filter        *filter
	meta          *session
	types         *pg.Catalogue
	state         *stateFile      // nil for a temporary slot
	savedSnapshot *snapshot.State // what the state file had of snapshots when the run began
	slot          string
	temp          bool // the slot is this run's alone
	tmpPub        string

	publication string
	tables      []TableName
	until       record.LSN // 0: none

	// What follows belongs to ReadBatch's goroutine.
	conn      *replication // nil: to be made
	timelines timelines
	sure      record.LSN   // timelines holds up to it
	asker     *replication // nil: to be made when a standby has to be asked
	relations map[uint32]*relation
	tx        transaction
	row       rowCounter
	read      record.LSN // every transaction that ends at or below it has been read whole
	token     record.LSN // to go with the batch at hand; 0: nothing new
	lastEmpty time.Time
	records   int64 // read, for Limit
	full      bool  // Limit is reached, the transaction's end is not
	ended     bool
	broken    error // ends the run, once what was read before it is handed on
	resume    resume
	found     *lookedUp     // of the message at hand, kept while it waits for an empty batch
	scratch   *record.Batch // for looking at a message before the batch takes it
	probe     []byte        // for trying values of composite types
	retries   backoff
	silence   time.Duration // after which a server that says nothing is given up; 0: never

	snaps snapshots

	confirm  confirmer
	timeline atomic.Uint32 // the server's own, for the state file
	stats    counters
	close    sync.Once
}

// transaction is the one that is being read.
type transaction struct {
	open  bool
	skip  bool // it was read before the connection was lost
	first record.LSN
	begin
}

// rowCounter numbers changes that share an LSN: the rows of one COPY's WAL record. It counts rows that are not
// delivered too, so that filters do not change an id.
type rowCounter struct {
	lsn record.LSN
	n   uint32
}

func (c *rowCounter) next(lsn record.LSN) uint32 {
	if c.lsn != lsn {
		c.lsn, c.n = lsn, 0
		return 0
	}
	c.n++
	return c.n
}

// resume says what to leave out when a transaction is sent again after a lost connection: what of it was delivered.
type resume struct {
	on   bool       // the transaction at hand is sent for the second time
	last record.Pos // the last record delivered; its Commit names the transaction
}

type counters struct {
	records, transactions, reconnects atomic.Int64
	serverEnd                         atomic.Uint64 // the server's WAL end as it last said
	readEnd                           atomic.Uint64
	lastCommit                        atomic.Int64 // commit time of the last transaction read, in microseconds
	progress                          atomic.Int64 // when something last moved, in nanoseconds
	waiting                           atomic.Bool  // ReadBatch waits for the server
	connected                         atomic.Bool  // replication runs
	stalled                           atomic.Int64 // for how long Watch has seen no progress although there is work, in nanoseconds
	walHeld                           atomic.Int64 // bytes that the slot holds back, as Watch last saw
}

// errFull says that the batch has no room for the message at hand.
var errFull = errors.New("batch is full")

// ReadBatch implements pipeline.Source. It returns what the server has sent as soon as nothing more lies ready.
func (s *Source) ReadBatch(ctx context.Context, b *record.Batch) error {
	s.stats.waiting.Store(true)
	defer s.stats.waiting.Store(false)
	for {
		if err := s.failure(); err != nil {
			return err
		}
		if len(b.Records) == 0 && s.token == 0 && s.ended {
			return io.EOF
		}
		if s.ended || s.broken != nil || s.complete(b) {
			if len(b.Records) == 0 && s.token == 0 {
				return s.broken
			}
			s.hand(b)
			return nil
		}
		err := s.step(ctx, b)
		switch {
		case err == nil:
		case errors.Is(err, errFull):
			s.hand(b)
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			s.broken = s.lost(ctx, b, err)
		}
	}
}

// failure is what ended the run from aside.
func (s *Source) failure() error {
	if err := s.confirm.failure(); err != nil || s.snaps.run == nil {
		return err
	}
	return s.snaps.run.Err()
}

// complete tells whether the batch should go now rather than wait for the server.
func (s *Source) complete(b *record.Batch) bool {
	if s.snaps.chunk != nil {
		return false
	}
	if s.conn != nil && s.conn.ready() {
		return false
	}
	return len(b.Records) > 0 || s.token != 0 && time.Since(s.lastEmpty) >= keepaliveEvery
}

func (s *Source) hand(b *record.Batch) {
	if s.token != 0 {
		b.Token = Token(s.token)
		s.confirm.handed(s.token)
		s.token = 0
	}
	if len(b.Records) == 0 {
		s.lastEmpty = time.Now()
	}
	s.stats.records.Add(int64(len(b.Records)))
	s.stats.readEnd.Store(uint64(s.read))
	s.stats.progress.Store(time.Now().UnixNano())
}

// step takes one message from the server.
func (s *Source) step(ctx context.Context, b *record.Batch) error {
	if s.conn == nil {
		if len(b.Records) > 0 {
			return errFull
		}
		return s.connect(ctx)
	}
	if s.snaps.chunk != nil {
		return s.deliver(ctx, b)
	}
	f := s.conn.frame
	deadline, last := s.patience(f)
	h, body, whole, err := f.peek(ctx, deadline, xlogHeader+rowHeader)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if last {
			return fmt.Errorf("%w for %s, and status messages were not answered", errSilent, s.silence)
		}
		return nil
	}
	if err != nil {
		return err
	}
	if h.kind != 'd' {
		return s.control(h, body, whole)
	}
	if len(body) == 0 {
		return errShort
	}
	if body[0] == 'k' {
		err = s.keepalive(ctx, body[1:])
		f.skip(h)
		return err
	}
	if body[0] != 'w' || len(body) < xlogHeader+1 {
		return fmt.Errorf("replication message of unknown kind %q", body[0])
	}
	lsn := record.LSN(binary.BigEndian.Uint64(body[1:]))
	if kind := body[xlogHeader]; kind == 'I' || kind == 'U' || kind == 'D' {
		return s.rowMessage(ctx, b, h, lsn, body, whole)
	}
	if !whole {
		// A logical message, or the description of a table with very many columns.
		if len(b.Records) > 0 {
			return errFull
		}
		if err := b.Reserve(ctx, h.size, 0); err != nil {
			return err
		}
		body = b.Alloc(h.size)
		if err := f.readInto(ctx, body); err != nil {
			return err
		}
		return s.message(ctx, b, lsn, body[xlogHeader], body[xlogHeader+1:], true)
	}
	if err := s.message(ctx, b, lsn, body[xlogHeader], body[xlogHeader+1:], false); err != nil {
		return err
	}
	f.skip(h)
	return nil
}

// patience is until when to wait for the next message, and whether the server is given up then. It counts from now: while
// nobody read, what the server said lay in the socket.
func (s *Source) patience(f *frame) (deadline time.Time, last bool) {
	switch {
	case f.ready():
		return deadline, false
	case s.token != 0:
		return s.lastEmpty.Add(keepaliveEvery), false
	case s.silence > 0:
		return time.Now().Add(s.silence), true
	}
	return deadline, false
}

// message handles what is no row. owned tells that p lies in the batch already.
func (s *Source) message(ctx context.Context, b *record.Batch, lsn record.LSN, kind byte, p []byte, owned bool) error {
	switch kind {
	case 'B':
		return s.begin(ctx, b, lsn, p)
	case 'C':
		return s.commit(b, p)
	case 'R':
		return s.relation(ctx, p)
	case 'T':
		return s.truncate(b, lsn, p)
	case 'M':
		return s.logical(ctx, b, p, owned)
	case 'Y', 'O': // a type's name, an origin's: we ask the catalogue for types, and have no use for origins
		return nil
	}
	return fmt.Errorf("pgoutput message of unknown kind %q", kind)
}

func (s *Source) begin(ctx context.Context, b *record.Batch, lsn record.LSN, p []byte) error {
	m, err := parseBegin(p)
	if err != nil {
		return fmt.Errorf("read BEGIN: %w", err)
	}
	if s.reached(m.commit) || s.full && !s.temp {
		s.ended = true
		return nil
	}
	if err := s.settle(ctx, m.commit); err != nil {
		return err
	}
	tx := transaction{open: true, begin: m, first: lsn}
	if s.resume.on {
		switch cut := s.resume.last.Commit; {
		case m.commit < cut:
			tx.skip = true
		case m.commit > cut:
			return s.divergence(cut, m.commit)
		}
	}
	if m.commit < s.read {
		tx.skip = true // the server starts no later than asked; it may start earlier
	}
	if s.opt.Transactions && !tx.skip {
		if !b.Fits(0, 0) {
			return errFull
		}
		s.tx = tx
		if pos := s.pos(lsn, 0, record.TxBegin); !s.delivered(pos) {
			s.add(b, record.Begin, pos)
		}
	}
	s.tx, s.row = tx, rowCounter{}
	return nil
}

func (s *Source) commit(b *record.Batch, p []byte) error {
	commit, end, err := parseCommit(p)
	if err != nil {
		return fmt.Errorf("read COMMIT: %w", err)
	}
	if !s.tx.open {
		return errors.New("COMMIT without a BEGIN")
	}
	if s.opt.Transactions && !s.tx.skip {
		if !b.Fits(0, 0) {
			return errFull
		}
		s.add(b, record.Commit, s.pos(commit, 0, record.TxCommit))
	}
	if !s.tx.skip {
		s.resume = resume{}
		s.stats.transactions.Add(1)
		s.stats.lastCommit.Store(int64(s.tx.at))
	}
	s.tx = transaction{}
	s.advance(end)
	if s.snapshotEnded(end) || s.reached(end) || s.full {
		s.ended = true
	}
	return nil
}

// advance notes that everything which ends at or below lsn has been read.
func (s *Source) advance(lsn record.LSN) {
	if lsn > s.read {
		s.read, s.token = lsn, lsn
	}
}

func (s *Source) keepalive(ctx context.Context, p []byte) error {
	r := reader{b: p}
	end := r.lsn()
	r.uint64() // the server's clock
	reply := r.byte() == 1
	if r.err != nil {
		return fmt.Errorf("read keepalive: %w", r.err)
	}
	s.serverEnd(end)
	if reply {
		s.confirm.kick()
	}
	// In the middle of a transaction the position says nothing of what of it has been sent. While a lost transaction is
	// awaited, nothing may be passed over.
	if !s.tx.open && !s.resume.on {
		if err := s.settle(ctx, end); err != nil {
			return err
		}
		s.advance(end)
		if s.reached(end) || s.opt.Snapshot == SnapshotOnly && s.snaps.run.Done() {
			s.ended = true
		}
	}
	return nil
}

func (s *Source) serverEnd(end record.LSN) {
	if uint64(end) > s.stats.serverEnd.Load() {
		s.stats.serverEnd.Store(uint64(end))
	}
}

// pos makes the position of a change in the transaction at hand.
func (s *Source) pos(lsn record.LSN, n uint32, suffix record.Suffix) record.Pos {
	at := lsn
	if suffix == record.MessageEnd {
		at-- // the timeline to which the record belongs, not what begins at its end
	}
	return record.Pos{System: s.system, Timeline: s.timelines.of(at), Commit: s.tx.commit, Row: lsn, N: n, Suffix: suffix}
}

// delivered tells whether the record was given away before the connection was lost.
func (s *Source) delivered(pos record.Pos) bool {
	return s.tx.skip || s.resume.on && pos.Compare(s.resume.last) <= 0
}

// add appends a record of the transaction at hand.
func (s *Source) add(b *record.Batch, op record.Op, pos record.Pos) *record.Record {
	r := b.Add()
	r.Op, r.Pos, r.XID, r.CommittedAt = op, pos, s.tx.xid, s.tx.at
	if s.tx.open {
		s.resume = resume{last: pos}
	}
	s.records++
	if s.opt.Limit > 0 && s.records >= s.opt.Limit {
		s.full = true
		if s.temp {
			s.ended = true // nothing is confirmed, so there is no commit to wait for
		}
	}
	return r
}

// control handles what is not CopyData.
func (s *Source) control(h head, body []byte, whole bool) error {
	if !whole {
		return fmt.Errorf("message %q of %d bytes from the server", h.kind, h.size)
	}
	defer s.conn.frame.skip(h)
	switch h.kind {
	case 'N':
		if e, err := parseError(body); err == nil {
			// PostgreSQL 18 passes over the changes of a publication that is missing, with a warning.
			if e.Code == "55000" && strings.Contains(e.Detail+e.Message, "publication") {
				return s.missingPublication(e)
			}
			s.log.Warn("notice from the server", "message", e.Message, "detail", e.Detail)
		}
		return nil
	case 'S', 'A':
		return nil
	case 'E':
		e, err := parseError(body)
		if err != nil {
			return err
		}
		return s.explain(e)
	case 'c', 'C', 'Z':
		return errStreamEnded
	}
	return fmt.Errorf("unexpected message %q from the server", h.kind)
}
