package record

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestAppendJSON(t *testing.T) {
	vec := func(e *Type) *Type { return &Type{Name: "vector", Kind: KindVector, Elem: e} }
	none := &Type{Name: "none", Kind: KindComposite}
	one := &Type{Name: "one", Kind: KindComposite, Fields: []Field{{`q"`, tText}}}
	wrapped := &Type{Name: "wrapped", Kind: KindComposite, Fields: []Field{{"j", tJSON}, {"a", tInts}}}
	for _, c := range []struct {
		t        *Type
		in, want string
		literal  bool
	}{
		{tBool, "t", "true", false}, {tBool, "f", "false", false},
		{tInt, "-12", "-12", false}, {tNum, "12.30", "12.30", false}, {tNum, "-0", "-0", false}, {tNum, "1e+300", "1e+300", false},
		{tNum, "12345678901234567890.00", "12345678901234567890.00", false},
		{tNum, "NaN", `"NaN"`, false}, {tNum, "Infinity", `"Infinity"`, false}, {tNum, "-Infinity", `"-Infinity"`, false},
		{tText, "", `""`, false}, {tText, "a\"b\\c\n\t\r\b\f\x01\x7f/é😀", "\"a\\\"b\\\\c\\n\\t\\r\\b\\f\\u0001\x7f/é😀\"", false},
		{tText, strings.Repeat("x", 30) + "\"", `"` + strings.Repeat("x", 30) + `\""`, false},
		{tDate, "2026-11-30", `"2026-11-30"`, false}, {tDate, "0044-03-15 BC", `"0044-03-15 BC"`, false},
		{tDate, "infinity", `"infinity"`, false}, {tDate, "5874897-12-31", `"5874897-12-31"`, false},
		{tTS, "2026-11-30 19:58:00", `"2026-11-30T19:58:00"`, false}, {tTS, "-infinity", `"-infinity"`, false},
		{tTS, "294276-12-31 23:59:59.999999", `"294276-12-31T23:59:59.999999"`, false},
		{tTS, "4713-01-01 00:00:00 BC", `"4713-01-01T00:00:00 BC"`, false},
		{tTZ, "2026-11-30 19:58:00.5+00", `"2026-11-30T19:58:00.5+00:00"`, false},
		{tTZ, "2026-11-30 19:58:00-05:30", `"2026-11-30T19:58:00-05:30"`, false},
		{tTZ, "1890-01-01 00:00:00+00:53:28", `"1890-01-01T00:00:00+00:53:28"`, false},
		{tTZ, "0001-01-01 00:00:00+00 BC", `"0001-01-01T00:00:00+00:00 BC"`, false}, {tTZ, "infinity", `"infinity"`, false},
		{tJSON, "{\"a\": 1,\r\n \"a\":\t2}", "{\"a\": 1, \"a\":\t2}", false}, {tJSON, ` [1] `, ` [1] `, false},
		{tJSON, " null\n", " null", true}, {tJSON, `{"n":null}`, `{"n":null}`, false},
		{tJSON, `["\u0000"]`, `["\u0000"]`, true}, {tJSON, `["\ud800"]`, `["\ud800"]`, true}, {tJSON, `["\ud83d\ude00"]`, `["\ud83d\ude00"]`, false},
		{tJSON, `{"\u0000":1}`, `{"\u0000":1}`, true}, {tJSON, `"a\/b"`, `"a\/b"`, true}, {tJSON, `"a"`, `"a"`, false},
		{tJSONB, `{"a": 1.50}`, `{"a": 1.50}`, false}, {tJSONB, `null`, `null`, true}, {tJSONB, `"a\nb"`, `"a\nb"`, false},
		{tInts, "{}", "[]", false}, {tInts, "{1,NULL,-3}", "[1,null,-3]", false}, {tInts, "{{1,2},{3,4}}", "[[1,2],[3,4]]", false},
		{tInts, "[0:1]={1,2}", "[1,2]", true}, {tInts, "[-2:-1][5:5]={{1},{2}}", "[[1],[2]]", true},
		{tInts, "{{{{{{1}}}}}}", "[[[[[[1]]]]]]", false},
		{tTexts, `{"",a,"a b","NULL",null,"{}","a\"b\\c",é}`, `["","a","a b","NULL",null,"{}","a\"b\\c","é"]`, false},
		{array(tBool), "{t,f}", "[true,false]", false}, {array(tBox), "{(1,1),(0,0);(2,2),(1,1)}", `["(1,1),(0,0)","(2,2),(1,1)"]`, false},
		{array(tTS), `{"2026-11-30 19:58:00"}`, `["2026-11-30T19:58:00"]`, false},
		{array(tJSONB), `{"{\"a\": \"b\"}",NULL}`, `[{"a": "b"},null]`, false}, {array(tJSONB), `{"null"}`, `[null]`, true},
		{array(tInts), `{"{1,2}","{}"}`, `[[1,2],[]]`, true}, // of a domain over int[]
		{vec(tInt), "1 2 -3", "[1,2,-3]", true}, {vec(tOid), "1 2", `["1","2"]`, true}, {vec(tOid), "", "[]", true},
		{tPair, "(1,a)", `{"n":1,"t":"a"}`, false}, {tPair, "(,)", `{"n":null,"t":null}`, false}, {tPair, `(1,"")`, `{"n":1,"t":""}`, false},
		{tPair, `(1,"a ""b"" \\ (,)")`, `{"n":1,"t":"a \"b\" \\ (,)"}`, false},
		{none, "()", "{}", false}, {one, "()", `{"q\"":null}`, false}, {one, `(é)`, `{"q\"":"é"}`, false},
		{wrapped, `(null,)`, `{"j":null,"a":null}`, true}, {wrapped, `(,"[0:0]={1}")`, `{"j":null,"a":[1]}`, true}, {wrapped, `(,{1})`, `{"j":null,"a":[1]}`, false},
		{array(tPair), `{"(1,a)",NULL,"(2,\"b \"\" c\")"}`, `[{"n":1,"t":"a"},null,{"n":2,"t":"b \" c"}]`, false},
		{array(tDeep), string(renderSpeed()["nested"].text), `[{"p":[{"n":1,"t":"a b"}],"j":{"a": 1},"h":{"a": "1"}}]`, false},
		{tHst, "", "{}", false}, {tHst, `"a"=>"1", "b\"\\"=>NULL, ""=>"NULL"`, `{"a": "1", "b\"\\": null, "": "NULL"}`, false},
	} {
		got, literal, err := c.t.AppendJSON([]byte("x"), []byte(c.in))
		if err != nil || string(got) != "x"+c.want || literal != c.literal {
			t.Errorf("%s %s\ngot  %s, literal %t, %v\nwant %s, literal %t", c.t.Name, c.in, got, literal, err, c.want, c.literal)
		}
		if !json.Valid(got[1:]) {
			t.Errorf("%s %s is not JSON: %s", c.t.Name, c.in, got)
		}
	}
}

// TestAppendJSONMalformed: what a type's output function does not write is an error, and dst stays as it was.
func TestAppendJSONMalformed(t *testing.T) {
	for _, c := range []struct {
		t   *Type
		ins []string
	}{
		{tBool, []string{"", "true", "x", "T"}},
		{tInt, []string{"", "-", "+1", "01", "1 ", "0x1", "1e", "1.", "nan", "inf", "null"}},
		{tText, []string{"\xff", "a\xc3", "\xed\xa0\x80", strings.Repeat("a", 20) + "\x80"}},
		{tDate, []string{"", "30/11/2026", "2026-11-3", "2026-11-30 00:00:00", "2026-11-30BC", "today", "26-11-30"}},
		{tTS, []string{"2026-11-30", "2026-11-30T19:58:00", "2026-11-30 19:58", "2026-11-30 19:58:00+00", "2026-11-30 19:58:00.", "Mon Nov 30 19:58:00 2026"}},
		{tTZ, []string{"2026-11-30 19:58:00", "2026-11-30 19:58:00 UTC", "2026-11-30 19:58:00+0", "2026-11-30 19:58:00+00:", "2026-11-30 19:58:00+00:00:00:00"}},
		{tJSON, []string{"", " ", "{", "[1,]", "{\"a\"}", "nul", "\"\n\"", "\"\\x\"", "\"\\u12\"", "1 2", "\"\xff\"", "01"}},
		{tInts, []string{"", "{", "}", "{1", "{1}}", "{{1},2}", "{1,{2}}", "{{1},{2,3}}", "{,}", "{1,}", "{1}x", "1", "{ 1}", "{{}}",
			"[0:1]={1}", "[0:1]=", "[0:0]={}", "[1:0]={1}", "[a:b]={1}", "[0:0][0:0]={1}", "[0:0]{1}", "[0:0", "{{{{{{{1}}}}}}}", "{1;2}", "{\"1}", `{"\`}},
		{tTexts, []string{`{a"b}`, `{a\b}`, "{a b}", `{"a"b}`, `{"a}`, `{"a\"}`}},
		{tPair, []string{"", "(", ")", "()", "(1)", "(1,a,b)", "(1,a", "1,a)", "(1,a)b)", "(1,a b)", `(1,"a)`, `(1,"a"b)`, `(1,a"")`, `(1,"\)`, `("`, `(1,"a"")`}},
		{tHst, []string{`a=>1`, `"a"`, `"a"=>`, `"a"=>1`, `"a"=>"1",`, `"a"=>"1" "b"=>"2"`, `"a"=>"1", `, `"a=>"1"`, `"a"=>null`, `"\`}},
		{&Type{Name: "v", Kind: KindVector, Elem: tInt}, []string{" ", "1 ", " 1", "1  2", "a"}},
		{&Type{Name: "none", Kind: KindComposite}, []string{"(a)", "(,)"}},
		{&Type{Name: "?", Kind: 200}, []string{"a"}},
	} {
		for _, in := range c.ins {
			out, _, err := c.t.AppendJSON([]byte("kept"), []byte(in))
			if err == nil {
				t.Errorf("%s %q: no error, gave %s", c.t.Name, in, out[4:])
				continue
			}
			if string(out) != "kept" {
				t.Errorf("%s %q left %q behind", c.t.Name, in, out)
			}
			if !strings.Contains(err.Error(), c.t.Name) {
				t.Errorf("%s %q: error %q does not name the type", c.t.Name, in, err)
			}
		}
	}
}
