// Package bulk moves a data set into a staging table of PostgreSQL: readers of a source's parts make COPY rows, a
// queue bounded in bytes holds them, writers send them over connections of their own.
//
// Invariants: the source's schema is held against the live table before a row is read; a value arrives exact or is an
// error with file, row and column (promise 5); memory is bounded by QueueBytes and by what one reader decodes at a
// time (promise 4); rows read = rows copied + rows in the dead-letter file, or the run fails (promise 6); a run that
// fails or is killed leaves nothing that the next one trips over (promise 7): its staging table is known by its comment, and
// an advisory lock guards the live ones.
//
// It does not make the staging table live: that is package swap's. The sources are in the folders below it; each reads
// one kind of data set and knows no PostgreSQL.
package bulk
