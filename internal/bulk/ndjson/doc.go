// Package ndjson reads files of one JSON object a line, or stdin, as a data set of bulk: plain objects, or synctl's own
// records, of which it takes "after".
//
// The columns are the members that the first block of lines has, all of them together. A member that a later line lacks is null, one
// that only a later line has is an error of that row: nothing is dropped in silence (promise 6).
package ndjson
