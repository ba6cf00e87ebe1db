package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synctl/internal/cli"
	"synctl/internal/record"
	"synctl/internal/stream/file"
	"synctl/internal/testkit"
)

// replayed is a stream of two shards with an insert of each of n rows and an update of row 1, and a home for state.
func replayed(t *testing.T, n int) (dir string, synctl func(args ...string) (code int, out, errs string)) {
	t.Helper()
	home := t.TempDir()
	dir = filepath.Join(t.TempDir(), "shop")
	if err := file.Create(dir, file.Options{Shards: 2}); err != nil {
		t.Fatal(err)
	}
	sk, err := file.OpenSink(context.Background(), dir, file.SinkOptions{Floor: func() record.LSN { return 0x100 }})
	if err != nil {
		t.Fatal(err)
	}
	b := record.NewBatch(1<<20, nil, nil)
	add := func(op string, id, lsn int, note string) {
		line := fmt.Sprintf(`{"v":1,"id":"7.1.%016X.0","op":%q,"schema":"public","table":"t","key":{"id":%d},"after":{"id":%d,"note":%q},"lsn":"0/%X","row_lsn":"0/%X","xid":1,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
			lsn, op, id, id, note, lsn+8, lsn)
		if err := record.Parse(b.Copy([]byte(line)), b.Add()); err != nil {
			t.Fatal(err)
		}
	}
	for i := 1; i <= n; i++ {
		add("insert", i, 0x1000+16*i, "new")
	}
	add("update", 1, 0x9000, "changed")
	done := make(chan error, 1)
	if err := sk.Write(context.Background(), b, func(err error) { done <- err }); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := sk.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := run(cli.IO{In: strings.NewReader(""), Out: &out, Err: &errs, Getenv: func(k string) string {
			return map[string]string{"HOME": home}[k]
		}}, args)
		return code, out.String(), errs.String()
	}
}

func TestReplayIntoPostgres(t *testing.T) {
	dir, synctl := replayed(t, 9)
	dsn := testkit.Shared(t).Database(t)
	conn := testkit.Connect(t, dsn)
	ok := func(args ...string) string {
		t.Helper()
		code, out, errs := synctl(args...)
		if code != 0 {
			t.Fatalf("%v: exit %d\n%s", args, code, errs)
		}
		return out
	}
	testkit.Exec(t, conn, "CREATE SCHEMA archive; CREATE TABLE archive.t (id int PRIMARY KEY, note text)")
	if out := ok("replay", "--from", "file:"+dir, "--to", dsn, "-n"); !strings.Contains(out, "shardId-000000000001") {
		t.Errorf("the plan is %s", out)
	}
	var made bool
	if err := conn.QueryRow(context.Background(), "SELECT to_regnamespace('synctl') IS NOT NULL").Scan(&made); err != nil || made {
		t.Fatalf("a dry run made schema synctl (%v)", err)
	}
	args := []string{"replay", "--from", "file:" + dir, "--to", dsn, "--map", "public.*=archive.*", "--output", "json"}
	for _, want := range []int64{10, 0} {
		var sum struct{ Applied, Records int64 }
		if err := json.Unmarshal([]byte(ok(args...)), &sum); err != nil || sum.Applied != want {
			t.Fatalf("applied %d, want %d (%v)", sum.Applied, want, err)
		}
	}
	var rows, changed int
	if err := conn.QueryRow(context.Background(), "SELECT count(*), count(*) FILTER (WHERE note = 'changed') FROM archive.t").Scan(&rows, &changed); err != nil || rows != 9 || changed != 1 {
		t.Errorf("%d rows, %d changed (%v)", rows, changed, err)
	}
	list := ok("checkpoint", "list", "--store", dsn)
	if strings.Count(list, "default") != 2 || !strings.Contains(list, "shop") {
		t.Errorf("checkpoints:\n%s", list)
	}
	ok("checkpoint", "delete", "default", "--store", dsn, "--stream", "shop")
	code, _, errs := synctl(args...)
	if code != 1 || !strings.Contains(errs, "exists in") || !strings.Contains(errs, "--existing-row overwrite") {
		t.Errorf("exit %d: %s", code, errs)
	}
	ok(append(args, "--existing-row", "overwrite")...)
}

func TestReplayIntoAnotherStream(t *testing.T) {
	dir, synctl := replayed(t, 5)
	copied := filepath.Join(t.TempDir(), "copy")
	if err := file.Create(copied, file.Options{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second goes on at the checkpoint, where nothing is left
		if code, _, errs := synctl("replay", "--from", "file:"+dir, "--to", "file:"+copied, "--checkpoint", "copy"); code != 0 {
			t.Fatalf("exit %d: %s", code, errs)
		}
	}
	code, out, errs := synctl("replay", "--from", "file:"+copied)
	if code != 0 || strings.Count(out, "\n") != 6 || strings.Contains(out, `"floor"`) || strings.Contains(out, `"name":"shop"`) || !strings.Contains(out, `"stream":{"name":"copy"`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	code, out, errs = synctl("checkpoint", "list", "--output", "json")
	if code != 0 || !strings.Contains(out, `"name":"copy","stream":"shop"`) {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
}

func TestReplayPositions(t *testing.T) {
	dir, synctl := replayed(t, 20)
	_, all, _ := synctl("replay", "--from", "file:"+dir)
	last := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(all), "\n") {
		var r struct {
			Stream struct{ Shard, Sequence string }
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		last[r.Stream.Shard] = r.Stream.Sequence
	}
	zero, one := last["shardId-000000000000"], last["shardId-000000000001"]
	if _, out, errs := synctl("replay", "--from", "file:"+dir, "--shard", "shardId-000000000001", "--from-sequence", one); strings.Count(out, "\n") != 1 {
		t.Errorf("from the last sequence: %s%s", out, errs)
	}
	for _, c := range []struct {
		code  int
		words string
		args  []string
	}{
		{1, "not this shard's", []string{"--shard", "shardId-000000000001", "--from-sequence", zero}},
		{1, "not this shard's", []string{"--shard", "shardId-000000000001", "--until-sequence", zero}},
		{2, "--shard ID", []string{"--from-sequence", zero}},
		{2, "were all set", []string{"--from-beginning", "--from-latest"}},
		{2, "were all set", []string{"--follow", "--until-time", "2026-01-01T00:00:00Z"}},
		{2, "no shard", []string{"--shard", "nope"}},
		{2, "--map", []string{"--map", "a.b=c.d"}},
		{2, "is not an operation", []string{"--op", "upsert"}},
		{2, "not a glob", []string{"--only", "orders"}},
		{2, "--checkpoint-store", []string{"--checkpoint-store", "file:x"}},
		{3, "connect to PostgreSQL", []string{"--to", "postgres://u:secret@127.0.0.1:1/x"}},
		{4, "does not exist", []string{"--from", "file:" + dir + "-none"}},
	} {
		code, _, errs := synctl(append([]string{"replay", "--from", "file:" + dir}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.words) || !strings.Contains(errs, "next: ") {
			t.Errorf("%v: exit %d, want %d and %q: %s", c.args, code, c.code, c.words, errs)
		}
		if strings.Contains(errs, "secret") {
			t.Errorf("%v: the password is in: %s", c.args, errs)
		}
	}
}

func TestReplayRepairsTheFileThatItAppendsTo(t *testing.T) {
	dir, _ := replayed(t, 3)
	path := filepath.Join(t.TempDir(), "out.ndjson")
	if err := os.WriteFile(path, []byte(`{"v":1,"id":"7.1.0`), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var errs bytes.Buffer
	if code := run(cli.IO{In: strings.NewReader(""), Out: f, Err: &errs, Getenv: func(string) string { return "" }}, []string{"replay", "--from", "file:" + dir}); code != 0 {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.Count(text, []byte("\n")) != 4 || !bytes.HasPrefix(text, []byte(`{"v":1,"id":"7.1.0000`)) {
		t.Errorf("%s (%v)", text, err)
	}
}
