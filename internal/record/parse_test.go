package record

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

type badLine struct {
	in, want     string
	beyondSchema bool // a JSON Schema cannot say it
}

// malformed is a line for each thing that Parse refuses.
func malformed() map[string]badLine {
	good := `{"v":1,"id":"1.1.0000000000000010.0","op":"insert","schema":"s","table":"t","key":{"id":1},"after":{"id":1},` +
		`"lsn":"0/20","row_lsn":"0/10","xid":7,"committed_at":"2026-11-30T19:58:00.123456Z"}`
	swap := func(old, new string) string {
		if !strings.Contains(good, old) {
			panic(old)
		}
		return strings.Replace(good, old, new, 1)
	}
	add := func(field string) string { return strings.TrimSuffix(good, "}") + "," + field + "}" }
	out := map[string]badLine{
		"empty":              {"", "byte 0: a record is a JSON object, {…}", true},
		"array":              {"[]", "byte 0: a record is a JSON object", false},
		"not closed":         {good[:len(good)-1], "object goes on without , or }", true},
		"trailing":           {good + "x", fmt.Sprintf("byte %d: text after the end of the record", len(good)), true},
		"line feed":          {strings.Replace(good, ",", ",\n", 1), "byte 7: line feed inside a line", true},
		"empty object":       {"{}", "name is missing", false},
		"comma at the end":   {swap("Z\"}", "Z\",}"), "name is missing", true},
		"UTF-8":              {swap(`"id":1}`, "\"id\":\"\xff\"}"), "invalid UTF-8", true},
		"bad escape":         {swap(`"id":1}`, `"id":"\x"}`), "unknown escape", true},
		"control character":  {swap(`"id":1}`, "\"id\":\"\t\"}"), "control character", true},
		"version":            {swap(`"v":1`, `"v":2`), `byte 5: field "v": version 2 is not known, only 1`, false},
		"no version":         {swap(`"v":1,`, ``), `field "v": is missing, which every insert record has`, false},
		"no op":              {swap(`"op":"insert",`, ``), `field "op": is missing, which every record has`, false},
		"op":                 {swap(`"insert"`, `"upsert"`), `field "op": operation "upsert" is not known`, false},
		"op type":            {swap(`"insert"`, `1`), `field "op": want a string`, false},
		"twice":              {add(`"v":1`), `field "v": appears twice`, true},
		"twice, escaped":     {add(`"\u0076":1`), `field "v": appears twice`, true},
		"id empty":           {swap(`"1.1.0000000000000010.0"`, `""`), `byte 12: field "id": is empty`, false},
		"id form":            {swap(`.0000000000000010.`, `.10.`), `field "id": want system.timeline.row_lsn.n`, false},
		"id lower case":      {swap(`0000000000000010`, `000000000000000a`), `field "id": want`, false},
		"id leading zero":    {swap(`"1.1.`, `"01.1.`), `field "id": want`, true},
		"id without n":       {swap(`0010.0`, `0010.`), `field "id": want`, false},
		"id and row_lsn":     {swap(`"row_lsn":"0/10"`, `"row_lsn":"0/11"`), `field "id": does not go with row_lsn 0/11 and n 0`, true},
		"id and n":           {add(`"n":1`), `field "id": does not go with row_lsn 0/10 and n 1`, true},
		"id and moved":       {add(`"moved":true`), `field "id": does not go with moved true`, true},
		"id suffix and op":   {swap(`0010.0"`, `0010.0d"`), `does not go with op insert`, true},
		"key not an object":  {swap(`{"id":1}`, `[1]`), `field "key": want an object`, false},
		"key empty":          {swap(`{"id":1}`, `{}`), `field "key": has no columns`, false},
		"key surrogate":      {swap(`{"id":1}`, `{"id":"\ud800"}`), `field "key": half of a surrogate pair`, true},
		"after null":         {swap(`"after":{"id":1}`, `"after":null`), `field "after": want an object`, false},
		"no after":           {swap(`"after":{"id":1},`, ``), `field "after": is missing`, false},
		"table type":         {swap(`"t"`, `null`), `field "table": want a string`, false},
		"table surrogate":    {swap(`"t"`, `"\udc00"`), `field "table": half of a surrogate pair`, true},
		"unchanged":          {add(`"unchanged":[1]`), `field "unchanged": want an array of column names`, false},
		"unchanged object":   {add(`"unchanged":{}`), `field "unchanged": want an array of column names`, false},
		"literal":            {add(`"literal":{"a":null}`), `field "literal": want an object of strings`, false},
		"moved type":         {add(`"moved":"yes"`), `field "moved": want true or false`, false},
		"lsn":                {swap(`"0/20"`, `"20"`), `field "lsn": want an LSN such as "0/16B3748", found "20"`, false},
		"lsn digits":         {swap(`"0/20"`, `"0/123456789"`), `field "lsn": want an LSN`, false},
		"lsn empty":          {swap(`"0/20"`, `"/1"`), `field "lsn": want an LSN`, false},
		"xid negative":       {swap(`"xid":7`, `"xid":-7`), `field "xid": want a whole number`, false},
		"xid large":          {swap(`"xid":7`, `"xid":4294967296`), `field "xid": want a whole number`, false},
		"xid fraction":       {swap(`"xid":7`, `"xid":7.5`), `field "xid": want a whole number`, false},
		"xid huge":           {swap(`"xid":7`, `"xid":18446744073709551616`), `field "xid": want a whole number`, false},
		"time zone":          {swap(`456Z`, `456+00:00`), `field "committed_at": time`, false},
		"time month":         {swap(`2026-11-30`, `2026-13-30`), `field "committed_at": time`, true},
		"time day":           {swap(`2026-11-30`, `2026-02-29`), `field "committed_at": time`, true},
		"time decimals":      {swap(`123456Z`, `1234567Z`), `field "committed_at": time`, false},
		"floor zero":         {add(`"floor":"0/0"`), `field "floor": a floor is not 0/0`, true},
		"stream type":        {add(`"stream":1`), `field "stream": want an object`, false},
		"encoding":           {add(`"encoding":"hex"`), `field "encoding": encoding "hex" is not known`, false},
		"deep":               {add(`"x":` + strings.Repeat("[", 10001) + strings.Repeat("]", 10001)), "nested more than 10000 deep", true},
		"delete, no old row": {`{"v":1,"id":"1.1.0000000000000010.0","op":"delete","schema":"s","table":"t","lsn":"0/20","row_lsn":"0/10","xid":7,"committed_at":"2026-11-30T19:58:00Z"}`, `field "key": is missing`, false},
		"truncate, no table": {`{"v":1,"id":"1.1.0000000000000010.0","op":"truncate","tables":[],"lsn":"0/20","row_lsn":"0/10","xid":7,"committed_at":"2026-11-30T19:58:00Z"}`, `field "tables": names no table`, false},
		"truncate, half":     {`{"v":1,"id":"1.1.0000000000000010.0","op":"truncate","tables":[{"schema":"s"}]}`, `field "tables": want {"schema":…,"table":…}`, false},
		"message, no m":      {`{"v":1,"id":"1.1.0000000000000010.0","op":"message","prefix":"p","content":"c","lsn":"0/20","row_lsn":"0/10"}`, `does not go with op message`, true},
		"message in a transaction without one": {`{"v":1,"id":"1.1.0000000000000010.0m","op":"message","prefix":"p","content":"c","transactional":true,"lsn":"0/20","row_lsn":"0/10"}`,
			`field "xid": is missing`, false},
		"data, encoded number": {`{"v":1,"id":"x","op":"data","data":1,"encoding":"base64"}`, `field "data": want a string, as encoding is base64`, true},
		"data missing":         {`{"v":1,"id":"x","op":"data"}`, `field "data": is missing`, false},
	}
	var r Record
	if err := Parse([]byte(good), &r); err != nil {
		panic(err)
	}
	return out
}

func TestParseRefuses(t *testing.T) {
	for name, c := range malformed() {
		t.Run(name, func(t *testing.T) {
			var r Record
			err := Parse([]byte(c.in), &r)
			if err == nil {
				t.Fatalf("took %s", c.in)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q lacks %q", err, c.want)
			}
			if pe, ok := errors.AsType[*ParseError](err); !ok || pe.Offset < 0 || pe.Offset > len(c.in) {
				t.Errorf("offset of %#v", err)
			}
		})
	}
}

// TestParseTakes: what is unusual and all the same right.
func TestParseTakes(t *testing.T) {
	for name, line := range map[string]string{
		"white space and order":   " { \"op\" : \"read\",\t\"after\":{ } , \"id\":\"load/1\",\"v\":1,\"table\":\"t\",\"schema\":\"s\" } \r",
		"unknown fields":          `{"v":1,"id":"x","op":"data","data":null,"extra":{"v":2},"\ud800":1,"more":[{"op":1}]}`,
		"escaped names":           `{"\u0076":1,"id":"x","o\u0070":"data","data":[[]]}`,
		"json that no text holds": `{"v":1,"id":"x","op":"data","data":["\ud800","\u0000"]}`,
		"nothing in lists":        `{"v":1,"id":"x","op":"read","schema":"","table":"","after":{},"unchanged":[],"literal":{},"looked_up":[ ]}`,
	} {
		var r Record
		if err := Parse([]byte(line), &r); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var r Record
	deep := `{"v":1,"id":"x","op":"data","data":` + strings.Repeat("[", 9999) + strings.Repeat("]", 9999) + `}`
	if err := Parse([]byte(deep), &r); err != nil {
		t.Error(err)
	}
}

func TestAccessors(t *testing.T) {
	const line = `{"v":1,"id":"a\u002fb","op":"read","schema":"s\"1","table":"t\u00e9","key":{"i":1},"after":{}}`
	var r Record
	if err := Parse([]byte(line), &r); err != nil {
		t.Fatal(err)
	}
	if got := string(r.AppendID(nil)); got != "a/b" {
		t.Errorf("id %q", got)
	}
	if r.SchemaName() != `s"1` || r.TableName() != "té" || !r.FromLine() {
		t.Errorf("%q.%q", r.SchemaName(), r.TableName())
	}
	direct := change(Insert, orders(), nil, orderRow())
	if direct.SchemaName() != "public" || string(direct.AppendTable(nil)) != "orders" || direct.FromLine() ||
		string(direct.AppendID(nil)) != "7412345678901234567.1.00000000016B3700.0" {
		t.Error("accessors of a record with values")
	}
	truncate := ops()["truncate"]
	want := []TableID{{"public", "orders"}, {`a"b`, "c"}}
	if err := Parse([]byte(truncate.want), &r); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Record{truncate.r, &r} {
		if got, err := r.TruncatedTables(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%v, %v", got, err)
		}
	}
	if (&Record{}).SchemaName() != "" || (&Record{}).TableName() != "" {
		t.Error("names of a record without a table")
	}
}

func TestMicros(t *testing.T) {
	for m := minMicros; m < endMicros; m += 86400_000_000*997 + 12_345_678_901 {
		text := m.Append(nil)
		if want := m.Time().Format("2006-01-02T15:04:05.000000Z"); string(text) != want {
			t.Fatalf("%d is %s, want %s", m, text, want)
		}
		if back, err := ParseMicros(text); err != nil || back != m {
			t.Fatalf("%s reads as %d, %v; want %d", text, back, err, m)
		}
	}
	for _, day := range []string{"0000-01-01", "0000-02-29", "0000-03-01", "1600-02-29", "1900-02-28", "1900-03-01", "1969-12-31",
		"1970-01-01", "2000-02-29", "2024-02-29", "2100-02-28", "2100-03-01", "9999-12-31"} {
		for _, clock := range []string{"T00:00:00.000000Z", "T23:59:59.999999Z"} {
			m, err := ParseMicros([]byte(day + clock))
			want, _ := time.Parse(time.RFC3339, day+clock)
			if err != nil || m != MicrosOf(want) || string(m.Append(nil)) != day+clock {
				t.Errorf("%s%s reads as %s, %v", day, clock, m.Append(nil), err)
			}
		}
	}
	if m, err := ParseMicros([]byte("1970-01-01T00:00:01.5Z")); err != nil || m != 1_500_000 {
		t.Errorf("%d, %v", m, err)
	}
}

func TestPartitionKey(t *testing.T) {
	key := func(types []*Type, values ...Value) *Record {
		var cols []Column
		for i, typ := range types {
			cols = append(cols, Column{Name: string(rune('a' + i)), Type: typ, Key: true})
		}
		return change(Insert, NewTable("public", "t.1", 1, cols), nil, append([]Value{}, values...))
	}
	long := strings.Repeat("é", 300)
	for _, c := range []struct {
		r    *Record
		want string
	}{
		{key([]*Type{tInt}, text("42")), `public.t\.1.42`},
		{key([]*Type{tText, tText}, text("a.b"), text(`c\d`)), `public.t\.1.a\.b.c\\d`},
		{key([]*Type{tText}, text("a\"b\n")), "public.t\\.1.a\"b\n"},
		{key([]*Type{tText}, text("")), `public.t\.1.`},
		{key([]*Type{tNum, tBool, tTS}, text("NaN"), text("t"), text("2026-11-30 19:58:00")), `public.t\.1.NaN.true.2026-11-30T19:58:00`},
		{key([]*Type{tPair, tInts}, text("(1,a.b)"), text("{1}")), `public.t\.1.{"n":1,"t":"a\.b"}.[1]`},
		{key([]*Type{tJSONB}, text(`"x.y"`)), `public.t\.1.x\.y`},
		{key([]*Type{tText}, text(strings.Repeat("é", 244))), `public.t\.1.` + strings.Repeat("é", 244)},
		{key([]*Type{tText}, text(long)), "sha256:b5c0473921c66a4abce5ee86a99bbc6c2761a10d22be1fe6d3a0165432ccfd01"},
		{key(nil, []Value{}...), `public.t\.1`},
		{ops()["message"].r, "message.p"},
		{ops()["truncate"].r, "public.orders"},
	} {
		got, err := AppendPartitionKey([]byte("x"), c.r)
		if err != nil {
			t.Error(err)
			continue
		}
		if string(got) != "x"+c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
		line, err := AppendLine(nil, c.r)
		if err != nil {
			t.Fatal(err)
		}
		var back Record
		if err := Parse(line[:len(line)-1], &back); err != nil {
			t.Fatal(err)
		}
		if again, err := AppendPartitionKey([]byte("x"), &back); err != nil || string(again) != string(got) {
			t.Errorf("%s from PostgreSQL, %s from the line (%v)", got, again, err)
		}
	}
	for name, r := range map[string]*Record{"begin": ops()["begin"].r, "no table": {Op: Insert, Pos: pos(0)}, "no message": {Op: Message}} {
		if got, err := AppendPartitionKey([]byte("kept"), r); err == nil || string(got) != "kept" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}
