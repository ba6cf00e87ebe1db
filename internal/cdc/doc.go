// Package cdc captures changes from PostgreSQL by logical replication: slot, publication, the checks before either is
// made, the decoding of pgoutput into records, and the pipeline Source that brings them.
//
// Invariants: the LSN confirmed to the server is exactly a commit's or a message's end, or a keepalive's while no
// transaction is open, and only once the sink holds everything up to it and the state file says so (promise 1). An id
// is made of nothing but the system, the timeline and the WAL position of the change (promise 3). Memory does not depend
// on a transaction's size: rows go from the socket's buffer to the batch (promise 4). Values keep PostgreSQL's text
// (promise 5). What is made for one run, slot and publication, is gone after it, or recognised and dropped by the next
// (promise 7).
//
// It does not write records anywhere and does not know streams. Protocol: the chapters "Streaming Replication Protocol"
// and "Logical Replication Message Formats" of PostgreSQL's manual.
package cdc
