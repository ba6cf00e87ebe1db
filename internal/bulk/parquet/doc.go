// Package parquet reads Parquet files as a data set of bulk: one schema for all files of a glob, row groups as the parts
// that are read at once, their statistics to know of nulls and to skip what a filter cannot match.
//
// Invariants: a file whose schema differs is named before anything is read; a damaged file is an error that names it, never
// a panic; memory is what one batch of rows and the pages it lies on need, for every reader (promise 4).
//
// A writer decides how large a page is: a page and its dictionary are decoded whole, so a file of huge pages needs
// that much memory for every reader.
package parquet
