package swap

import (
	"fmt"
	"io"
	"strings"
)

// WriteScript writes a plan as SQL that psql could run, each step under a comment with its name and its locks.
func WriteScript(w io.Writer, plan []Step) error {
	for i, st := range plan {
		if _, err := fmt.Fprintf(w, "-- %d. %s\n", i+1, st.Name); err != nil {
			return err
		}
		notes := []string{}
		if st.Lock != "" {
			notes = append(notes, "locks: "+st.Lock)
		}
		if note := st.kind.note(); note != "" {
			notes = append(notes, note)
		}
		for _, n := range notes {
			fmt.Fprintf(w, "-- %s\n", n)
		}
		sql := strings.Join(st.SQL, ";\n") + ";\n"
		switch st.kind {
		case inTransaction, guarded, exchange:
			if len(st.SQL) > 1 {
				sql = "BEGIN;\n" + sql + "COMMIT;\n"
			}
		}
		if _, err := fmt.Fprintf(w, "%s\n", sql); err != nil {
			return err
		}
	}
	return nil
}

func (k stepKind) note() string {
	switch k {
	case parallel:
		return "each on a connection of its own"
	case guarded, exchange:
		return "one message; rolled back and tried again when the locks are not granted in time"
	case rowCheck:
		return "the first count must reach --min-rows, the others must be 0"
	case defaultCheck:
		return "must be 0"
	case userCheck:
		return "must return true"
	case userWait:
		return "asked every second until it returns true"
	case snapshotWait:
		return "asked until it returns no row, at most --snapshot-wait"
	}
	return ""
}
