// Package bigquery reads a BigQuery table as a data set of bulk, through the Storage Read API: the streams of one read
// session are read at once, as Arrow batches with LZ4 buffers.
//
// Invariants: a broken stream goes on at the row offset that was reached, so no row comes twice or never (promise 1);
// RESOURCE_EXHAUSTED is waited out for as long as the server says, with fewer streams; every response's row count is held
// against what was decoded (promise 6).
//
// The row restriction is BigQuery's own predicate and is passed on as it is. The server's row counts of a whole table are
// estimates: they serve the ETA and nothing else. Views cannot be read through this API.
package bigquery
