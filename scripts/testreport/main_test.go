package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const pass = `{"Action":"output","Package":"p","Test":"TestA","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Elapsed":1.5}
`
	for _, c := range []struct {
		name, events string
		testErr      error
		ok           bool
		want         []string
		not          string
	}{
		{"passed", pass, nil, true, []string{"ok    p ", "\n1 passed, 0 failed, 0 skipped\n"}, "noise"},
		{"failed", pass + `{"Action":"output","Package":"q","Test":"TestB","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Package":"q","Test":"TestB"}
{"Action":"fail","Package":"q"}
`, errors.New("exit status 1"), false, []string{"--- FAIL q TestB\n    b_test.go:1: wrong\n", "1 passed, 1 failed, 0 skipped\n"}, "noise"},
		{"skipped", pass + `{"Action":"output","Package":"p","Test":"TestS","Output":"=== RUN   TestS\n"}
{"Action":"output","Package":"p","Test":"TestS","Output":"    s_test.go:9: no server here\n"}
{"Action":"skip","Package":"p","Test":"TestS"}
`, nil, true, []string{"skipped: p TestS: s_test.go:9: no server here\n1 passed, 0 failed, 1 skipped\n"}, ""},
		{"did not build", pass + `{"Action":"build-output","ImportPath":"q","Output":"q.go:1: syntax error\n"}
{"Action":"build-fail","ImportPath":"q"}
{"Action":"output","Package":"q","Output":"FAIL q [build failed]\n"}
{"Action":"fail","Package":"q"}
`, errors.New("exit status 1"), false, []string{"q.go:1: syntax error\n", "FAIL q [build failed]", "1 passed, 1 failed, 0 skipped\n"}, ""},
		{"no test", `{"Action":"skip","Package":"p"}` + "\n", nil, false, []string{"0 passed, 0 failed, 0 skipped\n"}, ""},
		{"go test failed by itself", "flag provided but not defined: -x\n", errors.New("exit status 2"), false, []string{"flag provided but not defined: -x\n0 passed"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out bytes.Buffer
			r := newReport(&out)
			err := r.verdict(r.read(strings.NewReader(c.events)), c.testErr)
			if (err == nil) != c.ok {
				t.Errorf("error %v, want ok %v", err, c.ok)
			}
			for _, want := range c.want {
				if !strings.Contains(out.String(), want) {
					t.Errorf("output lacks %q:\n%s", want, out.String())
				}
			}
			if c.not != "" && strings.Contains(out.String(), c.not) {
				t.Errorf("output has %q:\n%s", c.not, out.String())
			}
		})
	}
}
