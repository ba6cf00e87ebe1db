// Package swap brings a loaded staging table live: as a partition of a partitioned table, or in the place of a plain
// one. It inspects the catalogs, plans named steps with their SQL, and carries them out.
//
// Invariants:
//   - The plan is computed from the catalogs alone, so a run that was killed is taken up by computing it again; the
//     few facts that catalogs do not keep (when the heap was last rewritten, whose place a kept table had) are in
//     synctl.swap, written in the transactions of the steps they describe (promise 7).
//   - What makes readers or writers of the live table wait happens in one message to the server, from BEGIN to
//     COMMIT, under a statement_timeout that shrinks with what is spent (promise 8). Everything that scans or builds is done before.
//   - Whatever cannot be carried over exactly is refused before anything is changed, all reasons at once (promises 6, 11).
//   - A dry run prints the statements that a run sends, built by the same code.
//
// It does not load data, and it does not exchange hash partitions, foreign tables or tables with inheritance children.
package swap
