// Package stream says what a durable stream is: shards, records in them, sequence numbers, reading from a position.
// The streams themselves are its folders: kinesis and file; each exports a Stream to read and manage and a Sink to publish to.
//
// Invariants: records of one partition key are read in the order in which they were acknowledged (promise 2); what was
// acknowledged stays readable until it is trimmed (promise 1); a floor is only ever claimed of what is durable (promise 3).
//
// Floors: a sink asks for the floor when it encodes a record, before the record is sent. What it is given must be an LSN
// up to which every commit was acknowledged by this very stream. A floor that a record brought from another stream says
// nothing about this one and is dropped unless the caller knows better.
//
// Faults: a stream or position that is missing (ErrNotFound, ErrExists, ErrTrimmed) is a failed check; a shard that the
// stream does not have is wrong usage; a sequence number of another shard (ErrForeignSequence), a record that is too
// large, a full disk are failures; a stream that another process writes, or a service that refuses us, is unreachable.
//
// This package also holds what both kinds share: the hash by which a partition key finds its shard (Hash, Ranges), and the
// sketch of the hottest keys (Sketch). It starts no goroutine and does no input or output.
package stream

import (
	"context"
	"math/big"
	"time"
)

// Stream is one stream, to read and to manage.
type Stream interface {
	// Name is the stream's name, as in record.md's "stream".
	Name() string
	// Describe tells what the stream is and holds. A stream that does not exist is a fault with the command that creates it.
	Describe(ctx context.Context) (Description, error)
	// Shards lists every shard that can still be read, closed ones too, parents before children.
	Shards(ctx context.Context) ([]Shard, error)
	// Open begins to read a shard at a position. A sequence number that is not the shard's is a fault of class Failed;
	// one that has been trimmed away is ErrTrimmed.
	Open(ctx context.Context, shard string, at Position) (Reader, error)
	Close() error
}

// Reader reads one shard, in order, from one goroutine.
type Reader interface {
	// Next blocks until there are records, the tip was seen, or the shard's end was reached. The page is valid until the
	// next call. A page without records that is neither AtTip nor Closed does not occur.
	Next(ctx context.Context) (*Page, error)
	Close() error
}

// Page is what one read gave.
type Page struct {
	Records []Record
	AtTip   bool          // nothing more was in the shard at the moment of this read
	Behind  time.Duration // by the stream's clock: how far these records are behind the tip
	Closed  bool          // the shard is closed and read to its end: no page follows; Children take over
	// Children are the shards that continue a closed one, as far as the stream says so here.
	Children []Shard
}

// Record is one record of a stream. Its bytes are valid as long as its page.
type Record struct {
	Sequence     string
	PartitionKey []byte
	ArrivedAt    time.Time
	Data         []byte // NDJSON, one line or several, or whatever another producer wrote
}

// Shard is one shard of a stream.
type Shard struct {
	ID               string
	Parents          []string // none, one (split) or two (merge)
	HashLow, HashTop *big.Int // the range of MD5 hashes of partition keys that it holds, both ends included
	Open             bool     // records are still appended to it
	Oldest           string   // sequence number of the oldest readable record; empty where unknown or none
	Newest           string   // sequence number of the newest record; empty where unknown or none
	Records, Bytes   int64    // -1 where the stream does not tell
	OldestAt         time.Time
	NewestAt         time.Time
}

// Description is what stream describe prints.
type Description struct {
	Name           string
	URL            string // without secrets
	Status         string
	Shards         []Shard
	Retention      time.Duration // 0: for ever
	RetentionBytes int64         // 0: unbounded
	MaxRecordBytes int           // largest data of one record, in bytes
}

// PositionKind says what a Position means.
type PositionKind uint8

const (
	Beginning     PositionKind = iota // the oldest record that is still there
	Latest                            // only what comes after now
	AtSequence                        // at Sequence, itself included
	AfterSequence                     // after Sequence
	AtTime                            // the first record that arrived at or after Time
)

// Position is where in a shard to begin.
type Position struct {
	Kind     PositionKind
	Sequence string
	Time     time.Time
}

// Summary is what a Sink did.
type Summary struct {
	Records     int64 // synctl records, the lines
	Entries     int64 // stream records that hold them
	Bytes       int64 // data and keys, as the stream counts them
	Retries     int64 // entries sent again
	Throttled   int64 // entries refused for a shard's rate
	DeadLetters int64
	InFlight    int64 // entries sent and not yet acknowledged, now
	Shards      []ShardLoad
	HotKeys     []KeyLoad // the hottest partition keys by records, hottest first, estimates
}

// ShardLoad is what one shard was given.
type ShardLoad struct {
	ID             string
	Records, Bytes int64
	Throttled      int64
}

// KeyLoad is what one partition key was given, estimated by a bounded sketch.
type KeyLoad struct {
	PartitionKey   string
	Records, Bytes int64
}
