package stream

import (
	"errors"

	"synctl/internal/fault"
)

// Sentinels that streams wrap in faults.
var (
	ErrNotFound = errors.New("stream does not exist")
	ErrExists   = errors.New("stream exists already")
	// ErrTrimmed: the position asked for has been trimmed away; what lay between is lost to this reader.
	ErrTrimmed = errors.New("position has been trimmed away")
	// ErrForeignSequence: the sequence number belongs to no record that this shard could have.
	ErrForeignSequence = errors.New("sequence number is not this shard's")
)

// NotFound is the fault for a stream that does not exist; url is the one that was asked for, without secrets.
func NotFound(url string) error {
	return fault.New(fault.Check, "Create it: synctl stream create "+url+" --shards N", "%s: %w", url, ErrNotFound)
}

// Exists is the fault of creating a stream where there is one.
func Exists(url string) error {
	return fault.New(fault.Check, "See what is there: synctl stream describe "+url, "%s: %w", url, ErrExists)
}

// NoShard is the fault for a shard that the stream does not have.
func NoShard(url, shard string) error {
	return fault.New(fault.Usage, "List its shards: synctl stream describe "+url, "%s has no shard %q", url, shard)
}

// Trimmed is the fault for a position older than what the shard still holds; oldest is its oldest sequence number,
// empty where it holds none or that is unknown.
func Trimmed(url, shard, at, oldest string) error {
	hint := "The records before were removed by retention or trim. Go on from the oldest with --from-beginning."
	if oldest != "" {
		hint = "The records before " + oldest + " were removed by retention or trim. Go on there with --from-beginning."
	}
	return fault.New(fault.Check, hint, "%s: shard %s at %s: %w", url, shard, at, ErrTrimmed)
}

// Foreign is the fault for a sequence number that the shard cannot have; reason says how that is known.
func Foreign(url, shard, sequence, reason string) error {
	return fault.New(fault.Failed, "Take the number from a record of this shard, or see its oldest and newest: synctl stream describe "+url,
		"%s: shard %s: sequence number %q: %w: %s", url, shard, sequence, ErrForeignSequence, reason)
}
