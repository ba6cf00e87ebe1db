// Package snapshot decides which rows of a table's chunk may go into a feed of its changes, and when.
//
// A chunk is read between two marks in the write-ahead log: low, written before its rows are read, and high, written after.
// The rows go into the feed where the high mark stands. A row whose key was changed between the marks by a transaction that
// the chunk's snapshot does not see is older than that change, which is in the feed already: it stays out. So no row is
// ever delivered after a change that it predates (promise 2), changes never wait for a read, and no transaction is open for longer
// than a chunk takes. What a chunk has seen is decided by transaction ids, not by positions: a commit can be in the log, and
// decoded, before a snapshot sees it.
//
// mvcc.go and window.go decide and are pure: no server, no goroutine, no clock. run.go has the tables' jobs and their state, work.go
// the workers, read.go and layout.go their queries, whole.go tables without a key.
package snapshot
