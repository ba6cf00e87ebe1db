package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"synctl/internal/cli"
	"synctl/internal/record"
	"synctl/internal/stream/file"
	"synctl/internal/testkit"
	"synctl/internal/testkit/kinesisfake"
)

// TestReplayKinesisThroughReshardings replays a stream whose shards are split and merged between the changes of the same
// keys, part of it before and part after, with requests that fail: the order of a key crosses shards.
func TestReplayKinesisThroughReshardings(t *testing.T) {
	fake, err := kinesisfake.Start(kinesisfake.Options{Script: kinesisfake.Random(kinesisfake.Faults{}, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	fake.CreateStream("shop", 2)
	to := "kinesis://shop?endpoint=" + fake.URL()
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	testkit.Exec(t, conn, "CREATE TABLE t (id int PRIMARY KEY, note text)")
	run := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		code := run(cli.IO{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(string) string { return "" }}, args)
		if code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, &errs)
		}
		return out.String()
	}
	const keys = 40
	round := 0
	publish := func() {
		t.Helper()
		dir := roundOnDisk(t, round, keys)
		run("replay", "--from", "file:"+dir, "--to", to)
		round++
	}
	consume := func(want int) {
		t.Helper()
		var sum struct {
			Applied                   int
			Duplicates, Records, Held int
			Shards                    map[string]string
		}
		if err := json.Unmarshal([]byte(run("replay", "--from", to, "--to", dsn, "--output", "json")), &sum); err != nil || sum.Applied != want {
			t.Fatalf("applied %+v, want %d (%v)", sum, want, err)
		}
		var rows int
		if err := conn.QueryRow(context.Background(), "SELECT count(*) FROM t WHERE note = $1", fmt.Sprint(round-1)).Scan(&rows); err != nil || rows != keys {
			t.Fatalf("round %d: %d rows of %d are current (%v)", round-1, rows, keys, err)
		}
	}
	publish()
	children := fake.Split("shop", fake.Shards("shop")[0])
	publish()
	consume(2 * keys)
	publish()
	fake.Merge("shop", children[0], children[1])
	publish()
	consume(2 * keys)
	publish()
	publish()
	consume(2 * keys)
	consume(0)
	// From the beginning again, through the whole graph of shards.
	if out := run("replay", "--from", to); strings.Count(out, "\n") != 6*keys {
		t.Errorf("%d records, want %d", strings.Count(out, "\n"), 6*keys)
	}
}

// roundOnDisk is a stream of one change of each key: inserts in round 0, updates later.
func roundOnDisk(t *testing.T, round, keys int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), fmt.Sprint("r", round))
	if err := file.Create(dir, file.Options{}); err != nil {
		t.Fatal(err)
	}
	sk, err := file.OpenSink(context.Background(), dir, file.SinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBatch(1<<20, nil, nil)
	for id := range keys {
		op := "update"
		if round == 0 {
			op = "insert"
		}
		lsn := 0x1000 + round*0x10000 + id*16
		line := fmt.Sprintf(`{"v":1,"id":"7.1.%016X.0","op":%q,"schema":"public","table":"t","key":{"id":%d},"after":{"id":%d,"note":"%d"},"lsn":"0/%X","row_lsn":"0/%X","xid":1,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
			lsn, op, id, id, round, lsn+8, lsn)
		if err := record.Parse(b.Copy([]byte(line)), b.Add()); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	if err := sk.Write(context.Background(), b, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	sk.Close()
	return dir
}
