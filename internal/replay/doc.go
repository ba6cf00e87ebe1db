// Package replay consumes a stream: it plans which shards are read and when, runs one bounded engine for each, and keeps
// where each stands.
//
// Invariants: a checkpoint covers only what the sink holds for good (promise 1); a child shard begins once all its parents
// are at their end or gone, so order per key outlives a resharding (promise 2); each shard has a share of the queue of its
// own, so a shard that waits at a truncate takes nothing that another needs to get there (promise 4); records of other
// producers come out whole, as op data (promise 6).
//
// It does not know how a stream is stored or how a sink writes, and starts no handler.
package replay
