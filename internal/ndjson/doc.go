// Package ndjson moves records between pipelines and files or pipes of NDJSON: a Source that reads lines, and a Sink
// that writes them. The format itself is package record's.
//
// Invariants: a line that is not a record ends the run and is named with its input and number (promise 6); lines are done
// once they are written, in a regular file once they are on the disk (promise 1); a line that a killed writer left
// unfinished is never taken for a record (promise 7).
//
// What is in a pipe when its reader dies is lost, and nobody is told: who needs more publishes to a stream. A pipe
// cannot be read twice, so the source has nothing to acknowledge to.
package ndjson
