package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestBudgetOrder: what fits waits behind what came first, and what is too large waits for nothing else to be in flight.
func TestBudgetOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		if err := b.join(10); err != nil {
			t.Fatal(err)
		}
		acquire := func(n int64) <-chan struct{} {
			got := make(chan struct{})
			go func() {
				if err := b.acquire(t.Context(), 0, n); err != nil {
					t.Error(err)
				}
				close(got)
			}()
			synctest.Wait()
			return got
		}
		granted := func(c <-chan struct{}) bool {
			synctest.Wait()
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		first := acquire(50)
		large := acquire(500)
		small := acquire(10)
		if !granted(first) || granted(large) || granted(small) {
			t.Fatal("only the first fits")
		}
		b.release(50)
		if !granted(large) || granted(small) {
			t.Fatal("the large one travels alone")
		}
		b.release(500)
		if !granted(small) {
			t.Fatal("the small one's turn has come")
		}
		b.release(10)
		b.leave(10)
		if b.inFlight != 0 || b.filling != 0 {
			t.Errorf("%d and %d bytes are left over", b.inFlight, b.filling)
		}
	})
}

// TestBudgetGivesUp: a wait that is cancelled leaves the account as it was and lets those behind it through.
func TestBudgetGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(100)
		if err := b.acquire(t.Context(), 0, 60); err != nil {
			t.Fatal(err)
		}
		if err := b.acquire(t.Context(), 0, 20); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone, behind := make(chan error, 1), make(chan error, 1)
		go func() { gone <- b.acquire(ctx, 20, 100) }()
		synctest.Wait()
		go func() { behind <- b.acquire(t.Context(), 0, 15) }()
		synctest.Wait()
		cause := errors.New("drained")
		cancel(cause)
		if err := <-gone; err != cause {
			t.Errorf("error %v", err)
		}
		if err := <-behind; err != nil {
			t.Error(err)
		}
		if b.inFlight != 60+20+15 {
			t.Errorf("%d bytes in flight, want 95", b.inFlight)
		}
	})
}
