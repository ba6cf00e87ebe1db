// Package lines gives text files, plain or compressed, in blocks of whole records, for several readers at once: finding
// where records end is done by whoever takes the next block, taking them apart in parallel.
//
// Invariants: a record is in exactly one block; records and lines are numbered as they stand in their file; memory is a
// block for every reader, or the longest record (promise 4).
package lines
