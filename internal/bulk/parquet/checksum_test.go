package parquet

import (
	"os"
	"testing"

	pqgo "github.com/parquet-go/parquet-go"
)

// writeChecksummed writes rows by another writer, which puts checksums on its pages.
func writeChecksummed(t *testing.T, path string, rows int) {
	t.Helper()
	type row struct {
		ID int64 `parquet:"id"`
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := pqgo.NewGenericWriter[row](f)
	all := make([]row, rows)
	for i := range all {
		all[i].ID = int64(i) * 1_000_003
	}
	if _, err := w.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}
