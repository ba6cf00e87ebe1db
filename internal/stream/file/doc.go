// Package file is a stream in a directory: shards by the MD5 of the partition key as Kinesis cuts them, each a row of
// NDJSON segments that jq reads, with sequence numbers, retention, one writer and any number of readers in other processes.
//
//	DIR/stream.json                            what the stream is, written once
//	DIR/heads                                  up to where every shard is durable: committed, then published
//	DIR/writer.lock                            locked while a process writes; holds its PID
//	DIR/shardId-000000000000/SEQUENCE.ndjson   a segment, named after the first sequence number in it
//
// How a batch becomes durable: its lines are written to the segments of their shards; the committer flushes all
// segments that several batches have touched (fsync, shards in parallel), then writes the new ends of all shards as one
// checksummed record into heads and flushes that, then publishes it to readers, then calls done. So what readers may see
// is, over all shards at once, a prefix of what was written, in order: no reader finds the insert of a key update while
// its delete is missing, and a crash cannot part them (promise 2).
//
// Invariants: done means flushed, and nothing flushed is lost by a crash, a full disk or the next open (promise 1); what
// lies beyond the committed ends was never acknowledged nor seen and is cut off by the next writer (promise 7), so a
// torn line is never read; a failed flush is never tried again, as the kernel may by then have forgotten the lost pages;
// a reader whose segment is gone gets ErrTrimmed, it never jumps (promise 6); memory is a page for each reader and a
// buffer for each shard of the writer (promise 4).
//
// It does not compress, does not coalesce lines into one record, and knows nothing of consumers' positions.
package file
