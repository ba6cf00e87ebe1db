// Package record is what flows through synctl: a change, a row or a message (Record), the batch whose arena owns its
// bytes (Batch), the position that orders and names it (Pos), the shape of its table (Table, Type), and the NDJSON
// codec, version 1, both ways.
//
// Invariants: a value is rendered as PostgreSQL's to_json renders it, from text to text, never through a float
// (promise 5); an id depends only on the change (promise 3); what cannot be represented is an error with the row's key
// in it. Encoding and decoding allocate nothing per row.
//
// It does not read from or write to anything, and knows no catalogue: package pg builds Types.
package record
