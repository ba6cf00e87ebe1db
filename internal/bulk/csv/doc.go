// Package csv reads CSV files as a data set of bulk: a quote at the beginning of a value opens it, two inside are one, an
// empty value without quotes is null and "" is the empty string.
//
// Invariants: a record with too few or too many values, or with text behind a closing quote, is an error of that record,
// never shifted or padded; values are taken as they stand, blanks included; a quote in the middle of a value is
// a character (COPY … CSV would drop it in silence).
package csv
