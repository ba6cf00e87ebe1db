package file

import (
	"bytes"
	"testing"
	"unicode/utf8"

	"synctl/internal/record"
)

// FuzzLine: whatever a record and its key hold, also what looks like a stream field, the field is found where it was put.
func FuzzLine(f *testing.F) {
	m := &meta{Name: `a "name"`, Shards: 2, Epoch: 123_456}
	l := m.layout(1)
	f.Add([]byte(`{"v":1`), "public.orders.1", uint64(1))
	f.Add([]byte(`{"v":1,"stream":{"name":"x"}`), `a"b\`, uint64(999_999_999_999_999))
	f.Add(l.append([]byte(`{"v":1`), 7, []byte("k"), []byte("2026-11-30T19:58:00.123456Z")), `","arrived_at":"`, uint64(8))
	f.Add([]byte(`"}}`), `\\"`, uint64(0))
	f.Fuzz(func(t *testing.T, body []byte, key string, ordinal uint64) {
		l.parse(body) // must not panic
		body = bytes.ReplaceAll(body, []byte("\n"), nil)
		if ordinal %= 1e15; len(body) == 0 || !utf8.ValidString(key) {
			return
		}
		arrived := []byte("2026-11-30T19:58:00.123456Z")
		line := l.append(bytes.Clone(body), ordinal, []byte(key), arrived)
		if line[len(line)-1] != '\n' || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line: %q", line)
		}
		got, ok := l.parse(line[:len(line)-1])
		if !ok || got.at != len(body) || got.ordinal != ordinal || !bytes.Equal(got.arrived, arrived) {
			t.Fatalf("parsed %+v, %v from %q", got, ok, line)
		}
		if k, err := record.AppendUnquoted(nil, got.key); err != nil || string(k) != key {
			t.Fatalf("key %q, %v, want %q", k, err, key)
		}
	})
}

// Every byte that is changed in the stream field's fixed parts is noticed.
func TestLineNoticesDamage(t *testing.T) {
	m := &meta{Name: "orders", Shards: 1, Epoch: 123_456}
	l := m.layout(0)
	line := bytes.TrimSpace(l.append([]byte(`{"v":1`), 7, []byte("key"), []byte("2026-11-30T19:58:00.123456Z")))
	for i := len(`{"v":1`); i < len(line); i++ {
		bad := bytes.Clone(line)
		bad[i] = '#'
		got, ok := l.parse(bad)
		if ok {
			if _, err := record.ParseMicros(got.arrived); err == nil && string(got.key) == `"key"` {
				t.Errorf("a changed byte %d went unnoticed: %s", i, bad)
			}
		}
	}
}
