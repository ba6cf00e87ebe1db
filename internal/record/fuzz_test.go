package record

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"
	"unicode/utf8"
)

// FuzzParse: Parse never panics, takes only JSON, and AppendLine gives back what it took.
func FuzzParse(f *testing.F) {
	for _, c := range ops() {
		f.Add([]byte(c.want))
	}
	f.Add([]byte(`{"floor":"0/2" , "stream":{}, "v":1,"id":"x","op":"data","data":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		_, _, bad := scanDocument(line)
		if valid := json.Valid(line) && utf8.Valid(line); valid != (bad == "") {
			t.Fatalf("encoding/json says %t, the scan %q", valid, bad)
		}
		var r Record
		if err := Parse(line, &r); err != nil {
			return
		}
		if bad != "" || bytes.IndexByte(line, '\n') >= 0 {
			t.Fatalf("took a line that is not JSON: %s", bad)
		}
		again, err := AppendLine(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		want := append(slices.Clone(line), '\n')
		if s := r.Line.StreamField; s.Len > 0 {
			want = slices.Delete(want, int(s.Off), int(s.Off+s.Len))
		}
		if !bytes.Equal(again, want) {
			t.Fatalf("got  %s\nwant %s", again, want)
		}
		// Another floor and a stream, taken away again, leave the fields and their values.
		r.Floor, r.Stream = r.Floor+1, &StreamInfo{Name: "s"}
		other, err := AppendLine(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		var r2 Record
		if err := Parse(other[:len(other)-1], &r2); err != nil {
			t.Fatalf("%s: %v", other, err)
		}
		if r2.Floor != r.Floor && r.Floor != 0 || r2.Pos != r.Pos || !sameParts(&r, &r2) {
			t.Fatalf("%+v\n%+v", r, r2)
		}
		key, err := AppendPartitionKey(nil, &r2)
		if err != nil && r.Op != Begin && r.Op != Commit {
			t.Fatal(err)
		}
		if utf8.RuneCount(key) > maxKeyChars || !utf8.Valid(key) {
			t.Fatalf("partition key %q", key)
		}
	})
}

func sameParts(a, b *Record) bool {
	parts := func(r *Record) (p [][]byte) {
		l := &r.Line
		for _, s := range []Span{l.ID, l.Schema, l.Table, l.Key, l.Before, l.After, l.Unchanged, l.Literal, l.LiteralBefore,
			l.LookedUp, l.Tables, l.Prefix, l.Content, l.Data} {
			p = append(p, l.Get(s))
		}
		return p
	}
	return slices.EqualFunc(parts(a), parts(b), bytes.Equal)
}

// fuzzTable has a column of every kind, two of them its key.
func fuzzTable(keyed bool) *Table {
	types := []*Type{tText, tInt, tBool, tDate, tTS, tTZ, tJSON, tJSONB, tInts, tTexts, tPair, array(tDeep), tHst, array(tJSON)}
	var cols []Column
	for i, typ := range types {
		cols = append(cols, Column{Name: typ.Name + string(rune('a'+i)), Type: typ, Key: keyed && (i == 0 || i == 10)})
	}
	return NewTable(`sch"ema`, "ta.ble", 1, cols)
}

// FuzzRoundTrip builds records, writes them, and reads them back.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint8(Insert), uint8(0), "a.b\\c", "(1,a)", "[1]", int64(committed), uint64(1), uint32(0), uint64(3), true)
	f.Add(uint8(Update), uint8(1), "é\"", "(,)", "null", int64(0), uint64(1<<63), uint32(7), uint64(0), true)
	f.Add(uint8(Delete), uint8(0), "", `(1,"x y")`, `"\u0000"`, int64(1), uint64(0), uint32(1<<31), uint64(1<<40), false)
	f.Add(uint8(Message), uint8(0), "p.q", "\xff", "", int64(1), uint64(9), uint32(1), uint64(1<<40), true)
	keyed, keyless := fuzzTable(true), fuzzTable(false)
	f.Fuzz(func(t *testing.T, op, suffix uint8, s, pair, js string, at int64, row uint64, n uint32, floor uint64, flag bool) {
		r := fuzzRecord(op, suffix, s, pair, js, flag, keyed, keyless)
		r.Pos = Pos{System: row * 31, Timeline: n / 3, Commit: LSN(row + 8), Row: LSN(row), N: n, Suffix: r.Pos.Suffix}
		r.CommittedAt, r.XID, r.Floor, r.Snapshot = Micros(at), n, LSN(floor), LSN(floor/2)
		line, err := AppendLine(nil, r)
		if err != nil {
			return // AppendLine refuses what has no JSON form
		}
		if !json.Valid(line) || !utf8.Valid(line) || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("not one line of JSON: %q", line)
		}
		var back Record
		if err := Parse(line[:len(line)-1], &back); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if r.Op == Read && r.Pos.Commit == 0 || r.Op == Message && !r.Message.Transactional || r.Op == Read {
			back.CommittedAt, back.XID = r.CommittedAt, r.XID // not written
		}
		if back.Op != r.Op || back.Pos != r.Pos || back.CommittedAt != r.CommittedAt || back.XID != r.XID || back.Floor != r.Floor || back.Snapshot != r.Snapshot {
			t.Fatalf("wrote %+v\nread %+v", r, back)
		}
		if back.SchemaName() != r.SchemaName() || back.TableName() != r.TableName() || back.Moved() != r.Moved() {
			t.Fatalf("%s reads as %s.%s", line, back.SchemaName(), back.TableName())
		}
		again, err := AppendLine(nil, &back)
		if err != nil || !bytes.Equal(again, line) {
			t.Fatalf("got  %s (%v)\nwant %s", again, err, line)
		}
		k1, err1 := AppendPartitionKey(nil, r)
		k2, err2 := AppendPartitionKey(nil, &back)
		if (err1 == nil) != (err2 == nil) || !bytes.Equal(k1, k2) {
			t.Fatalf("partition key %q (%v) and %q (%v)", k1, err1, k2, err2)
		}
	})
}

func fuzzRecord(op, suffix uint8, s, pair, js string, flag bool, keyed, keyless *Table) *Record {
	r := &Record{Op: Op(op%uint8(Commit) + 1), Table: keyless}
	if flag {
		r.Table = keyed
	}
	row := func() []Value {
		v := make([]Value, len(r.Table.Columns))
		for i := range v {
			v[i] = Value{Kind: []ValueKind{Null, Unchanged, Absent}[(int(suffix)+i)%3]}
		}
		v[0], v[6], v[7], v[10] = text(s), text(js), text(js), text(pair)
		v[13] = text(`{"` + js + `"}`)
		return v
	}
	switch r.Op {
	case Insert, Read:
		r.After = row()
	case Update:
		r.Before, r.After = row(), row()
		r.After[0] = text(s + "x")
	case Delete:
		r.Before = row()
	case Truncate:
		r.Table, r.Truncate = nil, &TruncateInfo{Tables: []*Table{keyed, keyless}, Cascade: flag, RestartIdentity: !flag}
	case Message:
		r.Table, r.Message = nil, &MessageInfo{Prefix: s, Content: []byte(pair), Transactional: flag}
		r.Pos.Suffix = MessageEnd
	default:
		r.Table = nil
	}
	if suffix%4 == 0 {
		switch r.Op {
		case Insert:
			r.Pos.Suffix, r.LookedUp = MovedIn, []int32{6}
		case Delete:
			r.Pos.Suffix = MovedOut
		}
	}
	return r
}

// FuzzRender: rendering never panics, what it gives is JSON on one line, and the same text gives the same again.
func FuzzRender(f *testing.F) {
	types := []*Type{tText, tInt, tBool, tDate, tTS, tTZ, tJSON, tJSONB, tInts, tTexts, tPair, array(tPair), tDeep, array(tDeep),
		tHst, array(tBox), array(tInts), {Name: "v", Kind: KindVector, Elem: tOid}, {Name: "none", Kind: KindComposite}}
	for i, s := range []string{"a\"b", "1e5", "t", "0044-03-15 BC", "2026-11-30 19:58:00", "2026-11-30 19:58:00+00", `{"a":[1,"\u0000"]}`,
		"null", "[0:1]={1,2}", `{"a b",NULL}`, `(1,"a ""b""")`, `{"(1,\"a\")"}`, `("{""(1,a)""}",1,"""a""=>NULL")`,
		string(renderSpeed()["nested"].text), `"a"=>"1"`, "{(1,1);(2,2)}", `{"{1}"}`, "1 2", "()"} {
		f.Add(uint8(i), []byte(s))
	}
	f.Fuzz(func(t *testing.T, which uint8, text []byte) {
		typ := types[int(which)%len(types)]
		out, literal, err := typ.AppendJSON(nil, text)
		if err != nil {
			if len(out) != 0 {
				t.Fatalf("left %q behind", out)
			}
			return
		}
		if !json.Valid(out) || !utf8.Valid(out) || bytes.ContainsAny(out, "\n\r") {
			t.Fatalf("%s %q gives %q", typ.Name, text, out)
		}
		again, l2, err := typ.AppendJSON([]byte("0123456789"), text)
		if err != nil || l2 != literal || !bytes.Equal(again[10:], out) {
			t.Fatalf("%s %q gives %q, then %q (%v)", typ.Name, text, out, again, err)
		}
	})
}
