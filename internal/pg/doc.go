// Package pg is the ground that everything that speaks to PostgreSQL stands on: connections and their strings,
// redaction, identifiers, the catalogue of types, which errors are worth a retry, advisory locks.
//
// Invariants: no password leaves it in an error or a log (promise 9); identifiers are always quoted.
package pg
