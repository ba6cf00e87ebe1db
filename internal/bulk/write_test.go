package bulk

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestLineOfAnyLanguage(t *testing.T) {
	for where, want := range map[string]struct {
		line   int64
		column string
	}{
		"COPY t, line 5, column a":                                       {5, "a"},
		"COPY t, line 12, column a b: \"x, line 3\"":                     {12, "a b"},
		"COPY my, table, line 7":                                         {7, ""},
		"JSON data, line 1: {\nCOPY t, Zeile 2, Spalte j":                {2, "j"},
		"COPY t, ligne 9":                                                {9, ""},
		"SQL function \"f\" statement 1\nCOPY t, line 4, column k: \"\"": {4, "k"},
		"PL/pgSQL function f() line 3":                                   {0, ""},
	} {
		line, column := lineOf(&pgconn.PgError{Where: where})
		if line != want.line || column != want.column {
			t.Errorf("%q: line %d, column %q, want %d, %q", where, line, column, want.line, want.column)
		}
	}
}
