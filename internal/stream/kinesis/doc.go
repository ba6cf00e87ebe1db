// Package kinesis publishes to and reads from Kinesis Data Streams.
//
// Publishing (Sink) keeps the order of each partition key: at most one stream record of a key is unacknowledged; what
// waits for the key meanwhile leaves together, as several lines of one stream record; only what failed is sent again, as
// the very bytes that were sent before (promise 2). A batch is done when every line of it was acknowledged or lies in the
// dead-letter file (promises 1 and 6). Waiting bytes are the caller's batches; besides, the sink holds the requests in
// flight and a bounded store of entries that wait to be sent again (promise 4).
//
// Reading (Reader) gives a shard's records in order, KPL aggregates taken apart, renews iterators after the last record
// that was read, and says when a position has been trimmed away instead of going on at the oldest record in silence.
//
// A request that its client gave up can be stored later, even after a newer record of the same key: the service offers
// no way to prevent it. Consumers recognise it by floor and id (promise 3).
//
// It does not do: enhanced fan-out, leases, KPL aggregation when publishing, consumers of several shards (package replay).
package kinesis
