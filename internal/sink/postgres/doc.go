// Package postgres applies records to PostgreSQL tables, each change exactly once.
//
// A Target is one database under one checkpoint name; a Shard of it is the pipeline.Sink for one shard of the stream. Data and
// checkpoint commit in one transaction (promise 3). Changes are applied by sets: one statement per table, operation and set of
// columns, over json_to_recordset, in rounds that keep each key's order (promise 2). A set that fails is taken back to a
// savepoint and halved until the record at fault stands alone; so the fast path and the exact path are the same code.
//
// Invariants: a duplicate, told by floor and id, is not applied (promise 3, dedupe.go); what memory holds depends on the
// options, not on the stream (promise 4); no value passes through a Go number (promise 5); a record that cannot be applied
// ends the run or is held, whole, in synctl.held (promise 6, hold.go); a kill at any instant leaves data and checkpoint of
// the same transaction (promise 7). Nothing is created outside schema synctl.
//
// It does not read streams, does not create or alter the user's tables, and does not retry: an error for which Retryable is true
// asks for the shard to be opened again from its last committed checkpoint.
package postgres
