package csv

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"synctl/internal/bulk"
	"synctl/internal/pg"
	"synctl/internal/testkit"
)

// TestConformance loads every CSV file below SYNCTL_CONFORMANCE_DIR that has its meaning in a JSON file beside it.
func TestConformance(t *testing.T) {
	dir := os.Getenv("SYNCTL_CONFORMANCE_DIR")
	if dir == "" {
		t.Skip("SYNCTL_CONFORMANCE_DIR names no folder: see 'make conformance'")
	}
	var files []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if _, statErr := os.Stat(strings.TrimSuffix(path, ".csv") + ".json"); err == nil && strings.HasSuffix(path, ".csv") && statErr == nil {
			files = append(files, path)
		}
		return err
	})
	if len(files) == 0 {
		t.Fatalf("no CSV file with a JSON file beside it below %s", dir)
	}
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			src, err := Open(context.Background(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			var ddl []string
			for _, n := range src.names {
				ddl = append(ddl, pg.Ident(n)+" text")
			}
			testkit.Exec(t, conn, "DROP TABLE IF EXISTS c, c_staging; CREATE TABLE c ("+strings.Join(ddl, ", ")+")")
			if _, err := bulk.New(src, bulk.Options{To: pg.DSN(dsn), Table: "c", Readers: 1, Writers: 1}).Run(context.Background()); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(strings.TrimSuffix(path, ".csv") + ".json")
			if err != nil {
				t.Fatal(err)
			}
			var want []map[string]string
			if err := json.Unmarshal(b, &want); err != nil {
				one := map[string]string{}
				if err := json.Unmarshal(b, &one); err != nil {
					t.Fatal(err)
				}
				want = append(want, one)
			}
			rows, err := conn.Query(context.Background(), `SELECT to_json("the row") FROM c_staging "the row" ORDER BY ctid`)
			if err != nil {
				t.Fatal(err)
			}
			got, err := pgx.CollectRows(rows, pgx.RowTo[map[string]string]) // null, which JSON's author did not know, is ""
			if err != nil {
				t.Fatal(err)
			}
			unify(got)
			unify(want)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// unify leaves out what a file and its meaning are known to differ in: line ends inside of values, which a
// checkout may have changed in one of them, and a number that the meaning's author made up.
func unify(rows []map[string]string) {
	for _, row := range rows {
		delete(row, "Contact Phone Number")
		for k, v := range row {
			row[k] = strings.ReplaceAll(v, "\r\n", "\n")
		}
	}
}
