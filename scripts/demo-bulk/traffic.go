package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	readers = 4
	writers = 2
	pace    = 2 * time.Millisecond // between two statements of one connection, so that the load gets a share of the machine
)

// tally is what all connections have seen together.
type tally struct {
	mu      sync.Mutex
	count   map[string]int
	longest map[string]time.Duration
	failed  []error
}

func (t *tally) add(kind string, took time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failed = append(t.failed, err)
		return
	}
	t.count[kind]++
	t.longest[kind] = max(t.longest[kind], took)
}

// traffic is the application. It finds the server by the libpq environment.
func traffic(ctx context.Context) error {
	t := &tally{count: map[string]int{}, longest: map[string]time.Duration{}}
	var wg sync.WaitGroup
	for i := range readers + writers {
		conn, err := pgx.Connect(ctx, "")
		if err != nil {
			return fmt.Errorf("connect: %w", err)
		}
		defer conn.Close(context.WithoutCancel(ctx))
		kind, work := "reads", read
		if i >= readers {
			kind, work = "writes", write
		}
		wg.Go(func() {
			for ctx.Err() == nil {
				begin := time.Now()
				err := work(context.WithoutCancel(ctx), conn)
				t.add(kind, time.Since(begin), err)
				time.Sleep(pace)
			}
		})
	}
	wg.Wait()
	for _, kind := range []string{"reads", "writes"} {
		fmt.Printf("%d %s, the longest took %s\n", t.count[kind], kind, t.longest[kind].Round(100*time.Microsecond))
	}
	fmt.Printf("%d failed\n", len(t.failed))
	if len(t.failed) > 0 {
		fmt.Fprintln(os.Stderr, t.failed[0])
		return errors.New("not every statement succeeded")
	}
	return nil
}

// read looks a customer's orders up on both days, by index.
func read(ctx context.Context, conn *pgx.Conn) error {
	var n int
	return conn.QueryRow(ctx, `SELECT count(*) FROM (SELECT FROM orders WHERE customer = $1 AND day IN ('2026-11-29', '2026-11-30') LIMIT 50) o`, rand.IntN(10_007)).Scan(&n)
}

// write pays an order of today, or places one for tomorrow.
func write(ctx context.Context, conn *pgx.Conn) error {
	if rand.IntN(2) == 0 {
		_, err := conn.Exec(ctx, `UPDATE orders SET status = 'paid' WHERE day = '2026-11-30' AND id = $1`, 1+rand.IntN(200_000))
		return err
	}
	_, err := conn.Exec(ctx, `INSERT INTO orders (day, id, customer, total, status, placed_at) VALUES ('2026-12-01', nextval('order_id'), $1, 9.90, 'new', clock_timestamp())`, rand.IntN(10_007))
	return err
}
