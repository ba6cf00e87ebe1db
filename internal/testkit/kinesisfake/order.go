package kinesisfake

import (
	"fmt"
	"hash/maphash"
	"sync"
)

// orderCheck watches the publisher's law. Of each key the data of the last entry that no answer acknowledged is known;
// what arrives for the key until then must be that entry again.
type orderCheck struct {
	mu         sync.Mutex
	seed       maphash.Seed
	pending    map[string]uint64
	violations []string
}

// An entry with an explicit hash key is not of its partition key's queue: it addresses a shard.
func orderKey(e *entry) string { return string(e.key) + "\x00" + string(e.explicit) }

func (o *orderCheck) arrived(entries []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending == nil {
		o.pending, o.seed = map[string]uint64{}, maphash.MakeSeed()
	}
	seen := make(map[string]bool, len(entries))
	for i := range entries {
		k := orderKey(&entries[i])
		if seen[k] {
			o.violate("two entries of key %q in one request", k)
		}
		seen[k] = true
		h := maphash.Bytes(o.seed, entries[i].data)
		if was, ok := o.pending[k]; ok && was != h {
			o.violate("a new entry of key %q was sent before the one before it was acknowledged", k)
		}
		o.pending[k] = h
	}
}

func (o *orderCheck) acknowledged(entries []entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range entries {
		if entries[i].error == "" {
			delete(o.pending, orderKey(&entries[i]))
		}
	}
}

func (o *orderCheck) violate(format string, args ...any) {
	const enough = 20
	if len(o.violations) < enough {
		o.violations = append(o.violations, fmt.Sprintf(format, args...))
	}
}

// Violations lists what broke the publisher's law so far, the first twenty.
func (s *Server) Violations() []string {
	s.order.mu.Lock()
	defer s.order.mu.Unlock()
	return append([]string(nil), s.order.violations...)
}
