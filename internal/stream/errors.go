package stream

import "errors"

// Sentinels that streams wrap in faults.
var (
	ErrNotFound = errors.New("stream does not exist")
	ErrExists   = errors.New("stream exists already")
	// ErrTrimmed: the position asked for has been trimmed away; what lay between is lost to this reader.
	ErrTrimmed = errors.New("position has been trimmed away")
	// ErrForeignSequence: the sequence number belongs to no record that this shard could have.
	ErrForeignSequence = errors.New("sequence number is not this shard's")
)
