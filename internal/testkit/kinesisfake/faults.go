package kinesisfake

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Call is what a Script decides about.
type Call struct {
	Operation string // PutRecords, GetRecords, …
	Number    int64  // of this operation, from 1
	Entries   int    // of PutRecords
}

// Verdict is what happens to one call; its zero value is that the call is served as it should be.
type Verdict struct {
	Latency time.Duration // before the answer, after storing
	// Status and Code answer the whole request with an error, storing nothing: 500 InternalFailure, 503 ServiceUnavailable,
	// 400 AccessDeniedException, …
	Status        int
	Code, Message string

	Drop    bool          // the connection is cut, nothing is stored
	LoseAck bool          // stored, then the connection is cut
	Late    time.Duration // with Drop or Hang: stored all the same, so much later
	Hang    bool          // no answer until the client leaves

	Entry   func(i int, key string) string // PutRecords: an error code for entry i, or ""
	Shuffle *rand.Rand                     // PutRecords: the order in which entries are stored
	Expired bool                           // GetRecords: ExpiredIteratorException
}

// Script decides about each call. It is called concurrently.
type Script func(Call) Verdict

// Faults are drawn at random, each with its probability between 0 and 1.
type Faults struct {
	Throttle, EntryFailure float64 // per entry: ProvisionedThroughputExceededException, InternalFailure
	Error500, Error503     float64 // per request
	Drop                   float64 // per request: cut before storing
	LoseAck                float64 // per PutRecords: stored, then cut
	Late                   float64 // per PutRecords: cut at once, stored up to LateBy later
	LateBy                 time.Duration
	Hang                   float64 // per PutRecords: no answer until the client leaves, then stored up to LateBy later
	ExpireIterator         float64 // per GetRecords
	ThrottleRead           float64 // per GetRecords
	Shuffle                bool    // entries of a request are stored in arbitrary order
	Latency                time.Duration
	OnlyData               bool // leave the operations alone that manage streams
}

// Random makes a script of faults; the same seed gives the same decisions for the same order of calls.
func Random(f Faults, seed uint64) Script {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, seed))
	return func(c Call) Verdict {
		mu.Lock()
		defer mu.Unlock()
		v := Verdict{Latency: f.Latency}
		put := c.Operation == "PutRecords"
		if f.OnlyData && !put && c.Operation != "GetRecords" {
			return v
		}
		hit := func(p float64) bool { return p > 0 && rng.Float64() < p }
		switch {
		case hit(f.Error500):
			v.Status, v.Code = 500, "InternalFailure"
		case hit(f.Error503):
			v.Status, v.Code = 503, "ServiceUnavailable"
		case hit(f.Drop):
			v.Drop = true
		case put && hit(f.LoseAck):
			v.LoseAck = true
		case put && hit(f.Late):
			v.Drop, v.Late = true, 1+time.Duration(rng.Int64N(int64(f.LateBy)+1))
		case put && hit(f.Hang):
			v.Hang, v.Late = true, 1+time.Duration(rng.Int64N(int64(f.LateBy)+1))
		case c.Operation == "GetRecords" && hit(f.ExpireIterator):
			v.Expired = true
		case c.Operation == "GetRecords" && hit(f.ThrottleRead):
			v.Status, v.Code = 400, "ProvisionedThroughputExceededException"
		}
		if !put {
			return v
		}
		if f.Shuffle {
			v.Shuffle = rand.New(rand.NewPCG(rng.Uint64(), 1))
		}
		if f.Throttle > 0 || f.EntryFailure > 0 {
			entries := rand.New(rand.NewPCG(rng.Uint64(), 2))
			v.Entry = func(int, string) string {
				switch x := entries.Float64(); {
				case x < f.Throttle:
					return "ProvisionedThroughputExceededException"
				case x < f.Throttle+f.EntryFailure:
					return "InternalFailure"
				}
				return ""
			}
		}
		return v
	}
}
