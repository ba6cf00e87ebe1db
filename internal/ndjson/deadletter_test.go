package ndjson

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDeadLettersAreWholeAndSurviveAKilledRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead")
	ctx := context.Background()
	put := func(n int, reason string) {
		t.Helper()
		d, err := OpenDeadLetters(path)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := d.Put(ctx, []byte(line(n)+"\n"), "public.t.\"1\"", reason); err != nil {
			t.Fatal(err)
		}
		if d.Count() != 1 {
			t.Fatalf("count is %d after one record", d.Count())
		}
	}
	put(1, "too large: \"9\" bytes\n\xff")
	// A run that was killed in the middle of its second line.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"reason":"too la`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	put(2, "later")

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want 2:\n%s", len(lines), text)
	}
	for i, l := range lines {
		var letter struct {
			Reason       string
			PartitionKey string `json:"partition_key"`
			Record       json.RawMessage
		}
		if err := json.Unmarshal([]byte(l), &letter); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		if string(letter.Record) != line(i+1) || letter.PartitionKey != `public.t."1"` || letter.Reason == "" {
			t.Errorf("line %d is %s", i+1, l)
		}
	}
}

func TestDeadLettersLeaveAnotherFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notes")
	if err := os.WriteFile(path, []byte("remember the milk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDeadLetters(path); err == nil {
		t.Fatal("a file that ends in the middle of somebody's line was taken")
	}
}
