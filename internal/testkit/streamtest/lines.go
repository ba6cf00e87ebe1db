package streamtest

import (
	"fmt"
	"strings"
	"testing"

	"synctl/internal/record"
)

// row is the line of change number n of the row with this key, which is JSON.
func row(key string, n int) string {
	return fmt.Sprintf(`{"v":1,"id":"7412345678901234567.1.%016X.0","op":"insert","schema":"public","table":"orders","key":{"id":%s},"after":{"id":%s,"n":%d},"lsn":"0/%X","row_lsn":"0/%X","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
		n*16+16, key, key, n, n*16+24, n*16+16)
}

func rows(from, to int) []string {
	var lines []string
	for i := from; i < to; i++ {
		lines = append(lines, row(fmt.Sprint(i), i))
	}
	return lines
}

func truncate(n int) string {
	return fmt.Sprintf(`{"v":1,"id":"7412345678901234567.1.%016X.0","op":"truncate","tables":[{"schema":"public","table":"orders"}],"cascade":false,"restart_identity":false,"lsn":"0/%X","row_lsn":"0/%X","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`,
		n*16+16, n*16+24, n*16+16)
}

// keyOf is the partition key of a line, as package record makes it.
func keyOf(t *testing.T, line string) string {
	t.Helper()
	var r record.Record
	if err := record.Parse([]byte(line), &r); err != nil {
		t.Fatalf("parse %s: %v", line, err)
	}
	key, err := record.AppendPartitionKey(nil, &r)
	if err != nil {
		t.Fatalf("partition key of %s: %v", line, err)
	}
	return string(key)
}

// lines are the lines of stream records, in order. One record can hold several.
func lines(t *testing.T, got []entry) []string {
	t.Helper()
	var all []string
	for _, e := range got {
		if !strings.HasSuffix(e.data, "\n") {
			t.Fatalf("record %s does not end with a line feed: %q", e.Sequence, e.data)
		}
		all = append(all, strings.Split(strings.TrimSuffix(e.data, "\n"), "\n")...)
	}
	return all
}

// byKey sorts lines into their partition keys, keeping the order.
func byKey(t *testing.T, all []string) map[string][]string {
	t.Helper()
	m := map[string][]string{}
	for _, line := range all {
		key := keyOf(t, line)
		m[key] = append(m[key], line)
	}
	return m
}

// sameByKey fails when got is not want, keys apart.
func sameByKey(t *testing.T, got, want []string) {
	t.Helper()
	g, w := byKey(t, got), byKey(t, want)
	for key, lines := range w {
		if strings.Join(g[key], "\n") != strings.Join(lines, "\n") {
			t.Errorf("key %s:\nread  %s\nwrote %s", key, strings.Join(g[key], "\n      "), strings.Join(lines, "\n      "))
		}
	}
	if len(got) != len(want) {
		t.Errorf("read %d lines, wrote %d", len(got), len(want))
	}
}
