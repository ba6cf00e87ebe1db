package record

import (
	"encoding/json"
	"strings"
	"testing"
)

// small is a table with a key and a TOASTable column.
func small(key bool) *Table {
	return NewTable("public", "orders", 1, []Column{{Name: "id", Type: tInt, Key: key}, {Name: "status", Type: tText}, {Name: "note", Type: tJSON}})
}

const head = `{"v":1,"id":"7412345678901234567.1.00000000016B3700.0`
const tail = `"lsn":"0/16B3748","row_lsn":"0/16B3700","xid":751,"committed_at":"2026-11-30T19:58:00.123456Z"`

// ops is one record of every operation, and of every field, with the line that is due.
func ops() map[string]struct {
	r    *Record
	want string
} {
	type c = struct {
		r    *Record
		want string
	}
	keyed, keyless := small(true), small(false)
	with := func(r *Record, f func(*Record)) *Record { f(r); return r }
	const pub = `"schema":"public","table":"orders",`
	unchanged := Value{Kind: Unchanged}
	return map[string]c{
		"insert": {change(Insert, keyed, nil, []Value{text("42"), text("new"), null}),
			head + `","op":"insert",` + pub + `"key":{"id":42},"after":{"id":42,"status":"new","note":null},` + tail + `}`},
		"read": {&Record{Op: Read, Pos: pos(NoSuffix), Table: keyed, After: []Value{text("42"), text("new"), null}},
			head + `","op":"read",` + pub + `"key":{"id":42},"after":{"id":42,"status":"new","note":null},"lsn":"0/16B3748","row_lsn":"0/16B3700"}`},
		"read of a snapshot": {&Record{Op: Read, Pos: pos(NoSuffix), Table: keyed, After: []Value{text("42"), text("new"), null}, Snapshot: 0x16B3600, Floor: 0x16B3650},
			head + `","op":"read",` + pub + `"key":{"id":42},"after":{"id":42,"status":"new","note":null},"lsn":"0/16B3748","row_lsn":"0/16B3700","snapshot":"0/16B3600","floor":"0/16B3650"}`},
		"update with key tuple": {change(Update, keyed, []Value{text("42"), {}, {}}, []Value{text("42"), text("paid"), unchanged}),
			head + `","op":"update",` + pub + `"key":{"id":42},"before":{"id":42},"after":{"id":42,"status":"paid"},"unchanged":["note"],` + tail + `}`},
		"update filled from the old row": {change(Update, keyed, []Value{text("42"), text("new"), text("[1]")}, []Value{text("42"), text("paid"), unchanged}),
			head + `","op":"update",` + pub + `"key":{"id":42},"before":{"id":42,"status":"new","note":[1]},"after":{"id":42,"status":"paid","note":[1]},` + tail + `}`},
		"update, literals on both sides": {change(Update, keyless, []Value{text("42"), null, text("null")}, []Value{text("42"), null, text(`"\u0000"`)}),
			head + `","op":"update",` + pub + `"before":{"id":42,"status":null,"note":null},"after":{"id":42,"status":null,"note":"\u0000"},"literal":{"note":"\"\\u0000\""},"literal_before":{"note":"null"},` + tail + `}`},
		"delete": {change(Delete, keyless, []Value{text("42"), null, text("null")}, nil),
			head + `","op":"delete",` + pub + `"before":{"id":42,"status":null,"note":null},"literal":{"note":"null"},` + tail + `}`},
		"moved out": {with(change(Delete, keyed, []Value{text("42"), {}, {}}, nil), func(r *Record) { r.Pos.Suffix = MovedOut; r.Floor = 0x16B3650 }),
			head + `d","op":"delete",` + pub + `"key":{"id":42},"before":{"id":42},"moved":true,` + tail + `,"floor":"0/16B3650"}`},
		"moved in": {with(change(Insert, keyed, nil, []Value{text("43"), unchanged, text("7")}), func(r *Record) { r.Pos.Suffix = MovedIn; r.LookedUp = []int32{2} }),
			head + `i","op":"insert",` + pub + `"key":{"id":43},"after":{"id":43,"note":7},"unchanged":["status"],"moved":true,"looked_up":["note"],` + tail + `}`},
		"truncate": {with(change(Truncate, nil, nil, nil), func(r *Record) {
			r.Truncate = &TruncateInfo{Tables: []*Table{keyed, NewTable(`a"b`, "c", 2, nil)}, Cascade: true}
		}), head + `","op":"truncate","tables":[{"schema":"public","table":"orders"},{"schema":"a\"b","table":"c"}],"cascade":true,"restart_identity":false,` + tail + `}`},
		"message": {with(change(Message, nil, nil, nil), func(r *Record) {
			r.Pos.Suffix = MessageEnd
			r.Message = &MessageInfo{Prefix: "p", Content: []byte("hello\x00"), Transactional: true}
		}), head + `m","op":"message","prefix":"p","content":"hello\u0000","transactional":true,` + tail + `}`},
		"binary message outside of a transaction": {&Record{Op: Message, Pos: pos(MessageEnd), Message: &MessageInfo{Prefix: "p", Content: []byte{0xff}}},
			head + `m","op":"message","prefix":"p","content":"/w==","transactional":false,"encoding":"base64","lsn":"0/16B3748","row_lsn":"0/16B3700"}`},
		"begin": {with(change(Begin, nil, nil, nil), func(r *Record) { r.Pos.Suffix = TxBegin }),
			head + `b","op":"begin",` + tail + `}`},
		"commit": {with(change(Commit, nil, nil, nil), func(r *Record) { r.Pos.Suffix = TxCommit }),
			head + `c","op":"commit",` + tail + `}`},
		"n and stream": {with(change(Insert, keyed, nil, []Value{text("1"), null, null}), func(r *Record) {
			r.Pos.N = 3
			r.Stream, r.StreamLine = &StreamInfo{"s", "shard-0", "17", "public.orders.1", committed}, 2
		}), strings.TrimSuffix(head, "0") + `3","op":"insert",` + pub + `"key":{"id":1},"after":{"id":1,"status":null,"note":null},` +
			`"lsn":"0/16B3748","row_lsn":"0/16B3700","n":3,"xid":751,"committed_at":"2026-11-30T19:58:00.123456Z",` +
			`"stream":{"name":"s","shard":"shard-0","sequence":"17","line":2,"partition_key":"public.orders.1","arrived_at":"2026-11-30T19:58:00.123456Z"}}`},
	}
}

func TestAppendLine(t *testing.T) {
	for name, c := range ops() {
		t.Run(name, func(t *testing.T) {
			line, err := AppendLine([]byte("x"), c.r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := string(line), "x"+c.want+"\n"; got != want {
				t.Fatalf("got  %s\nwant %s", got, want)
			}
			if !json.Valid([]byte(c.want)) {
				t.Fatal("not JSON")
			}
		})
	}
}

// TestParseBack reads every operation's line and writes it again.
func TestParseBack(t *testing.T) {
	for name, c := range ops() {
		t.Run(name, func(t *testing.T) {
			var r Record
			if err := Parse([]byte(c.want), &r); err != nil {
				t.Fatal(err)
			}
			if r.Op != c.r.Op || r.Pos != c.r.Pos || r.XID != c.r.XID || r.CommittedAt != c.r.CommittedAt || r.Floor != c.r.Floor {
				t.Errorf("parsed %+v\nwritten %+v", r, *c.r)
			}
			if r.Stream != nil {
				t.Error("stream was read")
			}
			r.Stream, r.StreamLine = c.r.Stream, c.r.StreamLine
			again, err := AppendLine(nil, &r)
			if err != nil {
				t.Fatal(err)
			}
			if string(again) != c.want+"\n" {
				t.Errorf("got  %s\nwant %s", again, c.want)
			}
			if c.r.Op == Begin || c.r.Op == Commit {
				return
			}
			direct, err := AppendPartitionKey(nil, c.r)
			if err != nil {
				t.Fatal(err)
			}
			parsed, err := AppendPartitionKey(nil, &r)
			if err != nil {
				t.Fatal(err)
			}
			if string(direct) != string(parsed) {
				t.Errorf("partition key %s from PostgreSQL, %s from the line", direct, parsed)
			}
		})
	}
}

func TestAppendLineErrors(t *testing.T) {
	keyed := small(true)
	for name, c := range map[string]struct {
		r    *Record
		want string
	}{
		"bad value":    {change(Insert, keyed, nil, []Value{text("42"), text("a\xff"), null}), `insert of public.orders, row {"id":42}: column "status": type text: text is not valid UTF-8`},
		"bad key":      {change(Insert, keyed, nil, []Value{text("4x"), null, null}), `insert of public.orders, row id="4x" : column "id": type int4: want a number, found "4x"`},
		"binary":       {change(Insert, keyed, nil, []Value{text("1"), {Kind: Binary}, null}), `column "status": a value of kind 4 has no JSON form`},
		"key not sent": {change(Update, keyed, nil, []Value{{Kind: Unchanged}, null, null}), `key column "id" was not sent`},
		"too few":      {change(Insert, keyed, nil, []Value{text("1")}), "a new row of 1 values for the table's 3 columns"},
		"no tuple":     {change(Insert, keyed, nil, nil), "a new row without columns"},
		"suffix":       {&Record{Op: Update, Pos: pos(MovedIn), Table: keyed, After: []Value{text("1"), null, null}}, "does not go with op update"},
		"column name":  {change(Insert, NewTable("s", "t", 1, []Column{{Name: "a\xff", Type: tInt}}), nil, []Value{text("1")}), `name "a\xff": text is not valid UTF-8`},
		"table name": {&Record{Op: Truncate, Pos: pos(NoSuffix), Truncate: &TruncateInfo{Tables: []*Table{NewTable("s", "\xff", 1, nil)}}},
			`encode truncate record 7412345678901234567.1.00000000016B3700.0: name "\xff": text is not valid UTF-8`},
		"field name": {change(Insert, NewTable("s", "t", 1, []Column{{Name: "a", Type: &Type{Name: "c", Kind: KindComposite, Fields: []Field{{"\xff", tInt}}}}}), nil, []Value{text("(1)")}), `field "\xff": text is not valid`},
		"keyless":    {change(Delete, small(false), []Value{text("1"), text("\xff"), null}, nil), "no key; record 7412345678901234567.1.00000000016B3700.0"},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := AppendLine([]byte("kept"), c.r)
			if err == nil {
				t.Fatalf("no error, wrote %s", out)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q lacks %q", err, c.want)
			}
			if string(out) != "kept" {
				t.Errorf("left %q behind", out)
			}
		})
	}
}

func TestErrorOfALineNamesTheRow(t *testing.T) {
	var r Record
	if err := Parse([]byte(ops()["insert"].want), &r); err != nil {
		t.Fatal(err)
	}
	r.Stream = &StreamInfo{Name: "\xff"}
	_, err := AppendLine(nil, &r)
	if want := `encode insert of public.orders, row {"id":42}: stream: text is not valid UTF-8`; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestReplaceFloorAndStream(t *testing.T) {
	body := `"v":1,"id":"x/0/1/0","op":"data","data":{"floor":1}`
	s := &StreamInfo{Name: "n"}
	const stream = `"stream":{"name":"n","shard":"","sequence":"","line":0,"partition_key":"","arrived_at":"1970-01-01T00:00:00.000000Z"}`
	for _, c := range []struct {
		in    string
		floor LSN
		s     *StreamInfo
		want  string
	}{
		{`{` + body + `}`, 0, nil, `{` + body + `}`},
		{` { ` + body + ` } `, 1, s, ` { ` + body + ` ,"floor":"0/1",` + stream + `} `},
		{`{"floor":"0/2",` + body + `}`, 0, nil, `{` + body + `}`},
		{`{"floor":"0/2",` + body + `}`, 2, nil, `{"floor":"0/2",` + body + `}`},
		{`{"floor":"0/2" , "stream":{}, ` + body + `}`, 0, nil, `{ ` + body + `}`},
		{`{"floor":"0/2","stream":{},` + body + `}`, 2, nil, `{"floor":"0/2",` + body + `}`},
		{`{"stream":{},"floor":"0/2",` + body + `}`, 2, nil, `{"floor":"0/2",` + body + `}`},
		{`{"stream":{},"floor":"0/2",` + body + `}`, 3, s, `{` + body + `,"floor":"0/3",` + stream + `}`},
		{`{` + body + `, "floor": "0/a","later":1,"stream":{"x":[1]}}`, 10, nil, `{` + body + `, "floor": "0/a","later":1}`},
		{`{` + body + `,"floor":"0/A","later":1,"stream":{}}`, 11, nil, `{` + body + `,"later":1,"floor":"0/B"}`},
		{`{"flo\u006fr":"0/A",` + body + `}`, 0, nil, `{` + body + `}`},
	} {
		var r Record
		if err := Parse([]byte(c.in), &r); err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		r.Floor, r.Stream = c.floor, c.s
		got, err := AppendLine(nil, &r)
		if err != nil || string(got) != c.want+"\n" {
			t.Errorf("%s\ngot  %s (%v)\nwant %s", c.in, got, err, c.want)
		}
	}
}
