package cdc

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"synctl/internal/fault"
	"synctl/internal/record"
)

// storeEvery is how often at most the state file is written while tokens keep coming.
const storeEvery = 200 * time.Millisecond

// confirmer owns the way of a token upstream: acknowledged by the engine, stored in the state file, told to the server.
// Its goroutine writes the status messages whatever the reader and the sink do, so that a slow sink never makes the
// server end the connection.
type confirmer struct {
	log      *slog.Logger
	interval time.Duration // between status messages
	poll     bool          // ask for keepalives, to learn when the end is reached
	store    func(record.LSN) error

	acked  atomic.Uint64 // what the sink holds
	given  atomic.Uint64 // the last token handed out
	stored atomic.Uint64 // what the state file says, and so may be confirmed

	mu   sync.Mutex
	conn *replication // nil while there is none
	err  error

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
}

func (c *confirmer) start(log *slog.Logger, interval time.Duration, from record.LSN, store func(record.LSN) error) {
	c.log, c.interval, c.store = log, interval, store
	c.acked.Store(uint64(from))
	c.stored.Store(uint64(from))
	c.given.Store(uint64(from))
	c.wake, c.stop, c.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go c.run()
}

func (c *confirmer) handed(t record.LSN) { c.given.Store(uint64(t)) }

// ack notes what the sink holds.
func (c *confirmer) ack(t record.LSN) {
	if uint64(t) > c.acked.Load() {
		c.acked.Store(uint64(t))
	}
	c.kick()
}

// kick makes the goroutine look at once.
func (c *confirmer) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// interrupt wakes a reader that waits for the server: its connection is lost to it.
func (c *confirmer) interrupt() {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn != nil {
		conn.drop()
	}
}

// attach gives status messages their connection; nil takes it away.
func (c *confirmer) attach(r *replication) {
	c.mu.Lock()
	c.conn = r
	c.mu.Unlock()
	if r != nil {
		c.kick()
	}
}

func (c *confirmer) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *confirmer) run() {
	defer close(c.done)
	timer := time.NewTicker(c.interval)
	defer timer.Stop()
	store := time.NewTicker(storeEvery)
	defer store.Stop()
	var lastStored time.Time
	for {
		due, asked := false, false
		select {
		case <-c.stop:
			return
		case <-timer.C:
			due, asked = true, true
		case <-store.C:
			due = c.poll
		case <-c.wake:
			// A keepalive may have asked for an answer, or a connection is new; that costs nothing beside a write.
			due = c.acked.Load() == c.stored.Load()
		}
		if c.acked.Load() != c.stored.Load() && (due || time.Since(lastStored) >= storeEvery) {
			if !c.save() {
				return
			}
			lastStored, due = time.Now(), true
		}
		if due {
			// An answer shows that the server is there, and where it stands.
			c.tell(c.poll || asked)
		}
	}
}

// save stores what is acknowledged. From here on it may be confirmed.
func (c *confirmer) save() bool {
	lsn := c.acked.Load()
	if err := c.store(record.LSN(lsn)); err != nil {
		c.mu.Lock()
		c.err = fault.Wrap(fault.Failed, "Nothing more was confirmed to the server; what was not is delivered again next time.", err)
		conn := c.conn
		c.mu.Unlock()
		if conn != nil {
			conn.drop() // wakes a reader that waits for the server
		}
		return false
	}
	c.stored.Store(lsn)
	return true
}

// tell sends a status message. A connection that fails is the reader's to notice.
func (c *confirmer) tell(reply bool) {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return
	}
	if err := conn.status(record.LSN(c.stored.Load()), reply); err != nil {
		c.log.Debug("status message failed", "error", err)
		conn.drop()
	}
}

// finish stops the goroutine and stores and tells what is acknowledged.
func (c *confirmer) finish(ctx context.Context) error {
	close(c.stop)
	<-c.done
	if err := c.failure(); err != nil {
		return err
	}
	if c.acked.Load() != c.stored.Load() && !c.save() {
		return c.failure()
	}
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return nil
	}
	if err := conn.status(record.LSN(c.stored.Load()), false); err != nil {
		return fmt.Errorf("confirm %s: %w", record.LSN(c.stored.Load()), err)
	}
	return conn.finish(ctx)
}
