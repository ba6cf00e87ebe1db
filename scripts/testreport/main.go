// Command testreport runs go test with the arguments that it is given and prints what somebody who waits for it wants to
// know: a line for each package, the output of what failed, the names of what was skipped, and the count of tests. It fails
// when a test failed, a package did not build, or no test ran at all.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	r := newReport(out)
	readErr := r.read(events)
	testErr := cmd.Wait()
	return r.verdict(readErr, testErr)
}

// verdict prints the summary, last, so that a look at the end of a log tells how it went.
func (r *report) verdict(readErr, testErr error) error {
	for _, s := range r.skips {
		fmt.Fprintln(r.out, s)
	}
	var err error
	switch {
	case readErr != nil:
		err = readErr
	case r.failed > 0:
		err = fmt.Errorf("tests failed")
	case testErr != nil:
		err = fmt.Errorf("go test: %w", testErr)
	case r.passed == 0:
		err = fmt.Errorf("no test ran")
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	return err
}

// event is one line of go test -json; see 'go doc test2json'.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type report struct {
	out            io.Writer
	output         map[string][]string // of tests that have not ended, by package and test
	blamed         map[string]bool     // packages with a failed test
	passed, failed int
	skips          []string
}

func newReport(out io.Writer) *report {
	return &report{out: out, output: map[string][]string{}, blamed: map[string]bool{}}
}

func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				r.out.Write(line) // go test's own words, such as a bad flag
			} else {
				r.take(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read go test's output: %w", err)
		}
	}
}

func (r *report) take(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		return
	case "build-output":
		fmt.Fprint(r.out, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	lines := r.output[key]
	delete(r.output, key)
	if e.Test == "" {
		r.packageEnd(e, lines)
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skips = append(r.skips, fmt.Sprintf("skipped: %s %s: %s", e.Package, e.Test, why(lines)))
	case "fail":
		r.failed++
		r.blamed[e.Package] = true
		fmt.Fprintf(r.out, "--- FAIL %s %s\n%s", e.Package, e.Test, strings.Join(lines, ""))
	}
}

func (r *report) packageEnd(e event, lines []string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %-40s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		if !r.blamed[e.Package] {
			r.failed++ // it did not build, or broke down outside of its tests: no test of it passed for that
		}
		fmt.Fprintf(r.out, "FAIL  %-40s %6.1fs\n%s", e.Package, e.Elapsed, strings.Join(lines, ""))
	}
}

// why is what a skipped test said.
func why(lines []string) string {
	for _, l := range lines {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			return l
		}
	}
	return "no reason given"
}
