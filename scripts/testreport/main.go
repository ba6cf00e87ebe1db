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
	r := &report{out: out, output: map[string][]string{}}
	readErr := r.read(events)
	testErr := cmd.Wait()
	for _, s := range r.skips {
		fmt.Fprintln(out, s)
	}
	// Last, so that a look at the end of a log tells how it went.
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	switch {
	case readErr != nil:
		return readErr
	case testErr != nil:
		return fmt.Errorf("go test: %w", testErr)
	case r.failed > 0:
		return fmt.Errorf("%d tests failed", r.failed)
	case r.passed == 0:
		return fmt.Errorf("no test ran")
	}
	return nil
}

// event is one line of go test -json; see 'go doc test2json'.
type event struct {
	Action, Package, Test, Output, ImportPath string
	Elapsed                                   float64
}

type report struct {
	out            io.Writer
	output         map[string][]string // of tests that have not ended, by package and test
	passed, failed int
	skips          []string
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
		fmt.Fprintf(r.out, "--- FAIL %s %s\n%s", e.Package, e.Test, strings.Join(lines, ""))
	}
}

func (r *report) packageEnd(e event, lines []string) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(r.out, "ok    %-40s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		// What a package says outside of its tests: a panic, a timeout, a failed build.
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
