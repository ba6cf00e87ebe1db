package snapshot

import "slices"

// State is how far the snapshot of each table is, as the state file keeps it.
type State struct {
	Tables []TableState `json:"tables"`
}

// TableState is one table's snapshot.
type TableState struct {
	Schema  string `json:"schema"`
	Table   string `json:"table"`
	Request string `json:"request"`           // what asked for it: "initial", or a request's id
	Where   string `json:"where,omitempty"`   // rows to read; empty: all
	Keyless bool   `json:"keyless,omitempty"` // it has no key by which its rows could be told apart: it is read whole
	Done    bool   `json:"done"`
	Rows    int64  `json:"rows"`
	Bytes   int64  `json:"bytes"`
	// After is the key of the last row below which all are delivered; nil: none yet. Again are keys that were read and have
	// to be read again.
	After []string   `json:"after,omitempty"`
	Again [][]string `json:"again,omitempty"`
	// Seen is the snapshot in which a table without a key was read whole: changes that it sees are left out of the feed.
	Seen string `json:"seen,omitempty"`
}

func (s State) clone() State {
	c := State{Tables: slices.Clone(s.Tables)}
	for i := range c.Tables {
		c.Tables[i].Again = slices.Clone(c.Tables[i].Again)
	}
	return c
}

// Has tells whether a table's rows were asked for already.
func (s State) Has(schema, table string) bool {
	return slices.ContainsFunc(s.Tables, func(t TableState) bool { return t.Schema == schema && t.Table == table })
}
