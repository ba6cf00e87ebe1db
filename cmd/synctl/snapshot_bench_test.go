package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"synctl/internal/testkit"
)

// BenchmarkSnapshot compares a table's snapshot into a stream on disk, with one worker and with two, with COPY of the same table
// into a file by psql. The run's start, with its slot and publication, is part of its time.
func BenchmarkSnapshot(b *testing.B) {
	rows := benchRows(b)
	synctl, err := benchBinary()
	if err != nil {
		b.Fatal(err)
	}
	cluster := testkit.Own(b, testkit.Options{Settings: map[string]string{"max_wal_size": "8GB"}})
	dsn := cluster.Database(b)
	conn := testkit.Connect(b, dsn)
	testkit.Exec(b, conn, benchTable)
	testkit.Exec(b, conn, fmt.Sprintf(benchInsert, 1, rows))
	testkit.Exec(b, conn, "VACUUM (FREEZE, ANALYZE) bench")
	testkit.Exec(b, conn, "CHECKPOINT")
	publish := func(workers int) usage {
		dir := b.TempDir()
		u := timed(b, nil, synctl, "cdc", "publish", "--from", dsn, "--table", "public.bench", "--snapshot", "only", "--snapshot-workers", fmt.Sprint(workers),
			"--to", "file:"+filepath.Join(dir, "stream"), "--create-stream", "4", "--progress", "none")
		if err := os.RemoveAll(dir); err != nil {
			b.Fatal(err)
		}
		return u
	}
	compare(b, rows, []contestant{
		{"snapshot", func(int) usage { return publish(1) }},
		{"two-workers", func(int) usage { return publish(2) }},
		{"copy", func(int) usage {
			f, err := os.Create(filepath.Join(b.TempDir(), "copy"))
			if err != nil {
				b.Fatal(err)
			}
			defer os.Remove(f.Name())
			defer f.Close()
			return timed(b, f, filepath.Join(cluster.Bin, "psql"), "-X", "-d", dsn, "-c", "COPY bench TO STDOUT")
		}},
	})
	var n int
	if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM bench").Scan(&n); err != nil || n != rows {
		b.Fatalf("%d rows, %v", n, err)
	}
}
