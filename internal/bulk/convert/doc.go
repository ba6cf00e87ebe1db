// Package convert turns the values of a data set into the rows of a COPY: from Arrow arrays, from text and from JSON, by
// the type of the target column, into PostgreSQL's binary form, or into COPY's text form where a type has none that is
// known here.
//
// Invariants: a value arrives exact or is an error that says which value and why (promise 5): nothing is rounded, cut,
// wrapped or turned into null, also where PostgreSQL itself would (numeric and timestamp precision, nanoseconds). No value passes through
// float64 unless the target is a float. Nothing is allocated or boxed per value of a flat column.
//
// It does not read data sets and speaks to no server: package bulk looks the types up and sends the rows.
package convert
