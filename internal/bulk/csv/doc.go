// Package csv reads CSV files as a data set of bulk, as PostgreSQL's COPY … CSV reads them: a quote anywhere begins or
// ends quoting, two are one, an empty value without quotes is null and "" is the empty string.
//
// Invariants: a record with too few or too many values is an error of that record, never shifted or padded; values are
// taken as they stand, blanks included.
package csv
