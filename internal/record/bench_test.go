package record

import "testing"

func BenchmarkAppendLine(b *testing.B) {
	r := change(Insert, orders(), nil, orderRow())
	r.Floor = 0x16B3650
	var dst []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = AppendLine(dst[:0], r); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(dst)))
}

func BenchmarkAppendLineFromLine(b *testing.B) {
	line := orderLine(b)
	var r Record
	if err := Parse(line, &r); err != nil {
		b.Fatal(err)
	}
	r.Floor++
	var dst []byte
	var err error
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if dst, err = AppendLine(dst[:0], &r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	line := orderLine(b)
	var r Record
	b.ReportAllocs()
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		if err := Parse(line, &r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPartitionKey(b *testing.B) {
	r := change(Insert, orders(), nil, orderRow())
	var dst []byte
	var err error
	b.ReportAllocs()
	for b.Loop() {
		if dst, err = AppendPartitionKey(dst[:0], r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendJSON(b *testing.B) {
	for name, c := range renderSpeed() {
		b.Run(name, func(b *testing.B) {
			var dst []byte
			var err error
			b.ReportAllocs()
			b.SetBytes(int64(len(c.text)))
			for b.Loop() {
				if dst, _, err = c.t.AppendJSON(dst[:0], c.text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func orderLine(tb testing.TB) []byte {
	r := change(Insert, orders(), nil, orderRow())
	r.Floor = 0x16B3650
	line, err := AppendLine(nil, r)
	if err != nil {
		tb.Fatal(err)
	}
	return line[:len(line)-1]
}

type typedText struct {
	t    *Type
	text []byte
}

func renderSpeed() map[string]typedText {
	return map[string]typedText{
		"int":       {tInt, []byte("1234567")},
		"text":      {tText, []byte("Leave it at the door, please, and ring twice.")},
		"quotes":    {tText, []byte("a \"quoted\" text\nof two lines")},
		"unicode":   {tText, []byte("Größe, 大きさ, розмір")},
		"timestamp": {tTZ, []byte("2026-11-30 19:58:00.123456+00")},
		"jsonb":     {tJSONB, []byte(`{"a": [1, 2, {"b": "text"}], "c": null}`)},
		"array":     {tInts, []byte("{1,2,NULL,4,5}")},
		"nested":    {array(tDeep), []byte(`{"(\"{\"\"(1,\\\\\"\"a b\\\\\"\")\"\"}\",\"{\"\"a\"\": 1}\",\"\"\"a\"\"=>\"\"1\"\"\")"}`)},
		"hstore":    {tHst, []byte(`"a"=>"1", "b"=>NULL, "c"=>"x\"y"`)},
	}
}

// TestNoAllocations: nothing is allocated per row, in any direction.
func TestNoAllocations(t *testing.T) {
	dst := make([]byte, 0, 1<<16)
	check := func(name string, f func() error) {
		t.Helper()
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Fatal(name, err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	for name, c := range ops() {
		check("AppendLine of "+name, func() (err error) { _, err = AppendLine(dst, c.r); return err })
		line := []byte(c.want)
		var r Record
		if c.r.Op == Truncate { // not of a row
			continue
		}
		check("Parse of "+name, func() error { return Parse(line, &r) })
		r.Floor++
		check("AppendLine of the line of "+name, func() (err error) { _, err = AppendLine(dst, &r); return err })
		if c.r.Op == Begin || c.r.Op == Commit {
			continue
		}
		check("AppendPartitionKey of "+name, func() (err error) { _, err = AppendPartitionKey(dst, c.r); return err })
		check("AppendPartitionKey of the line of "+name, func() (err error) { _, err = AppendPartitionKey(dst, &r); return err })
	}
	for name, c := range renderSpeed() {
		check("AppendJSON of "+name, func() (err error) { _, _, err = c.t.AppendJSON(dst, c.text); return err })
	}
}
