package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"synctl/internal/fault"
	"synctl/internal/ndjson"
	"synctl/internal/pg"
)

// stopped is a run that was forced to end by a signal, or by the drain that it asked for taking too long.
type stopped struct {
	signal  syscall.Signal
	timeout bool // the drain took too long
	live    bool
	err     error // what the command returned
}

func (s *stopped) Unwrap() error { return s.err }

func (s *stopped) Error() string {
	name := signalName(s.signal)
	msg := "interrupted by " + name
	switch {
	case s.timeout:
		msg = "drain after " + name + " took longer than --drain-timeout"
	case s.live:
		msg = "forced to stop by a second signal"
	}
	// What a cancelled call has to say about its cancellation is no news.
	if s.err != nil && !errors.Is(s.err, context.Canceled) {
		msg += ": " + s.err.Error()
	}
	return msg
}

// signalName is the name that a person types: syscall.Signal prints "interrupt".
func signalName(s syscall.Signal) string {
	if s == syscall.SIGINT {
		return "SIGINT"
	}
	return "SIGTERM"
}

// ExitCode is the number that a run which ended with err exits with; see docs/exit-codes.md.
func ExitCode(err error) int {
	var s *stopped
	switch {
	case err == nil, errors.Is(err, ndjson.ErrReaderGone):
		return 0
	case errors.As(err, &s):
		return 128 + int(s.signal)
	}
	return int(fault.ClassOf(err))
}

// Finish prints err, with its next step, and gives the exit code. command is the path of the command that failed.
func (a *App) Finish(command string, err error) int {
	if err != nil && !a.started && fault.HintOf(err) == "" && fault.ClassOf(err) == fault.Failed {
		// No command has begun, so the words on the command line are wrong: cobra's own errors have no class.
		err = fault.Wrap(fault.Usage, fmt.Sprintf("See '%s --help'.", command), err)
	}
	code := ExitCode(err)
	if code == 0 {
		return 0
	}
	hint := fault.HintOf(err)
	if s, ok := errors.AsType[*stopped](err); ok {
		hint = "Run the same command again."
		if s.live {
			hint = "Run the same command again: what was not acknowledged is delivered again."
		}
	}
	fmt.Fprintf(a.console, "synctl: error: %s\n", oneLine(pg.Redact(err.Error())))
	if hint != "" {
		fmt.Fprintf(a.console, "next: %s\n", oneLine(pg.Redact(hint)))
	}
	return code
}

// oneLine joins what drivers and joined errors spread over lines, so that an error is always a line that a log can hold
// and grep can find. A line that says the same as the one before is left out: drivers try an address twice.
func oneLine(s string) string {
	var b strings.Builder
	last := ""
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line == "" || line == last {
			continue
		}
		switch {
		case last == "":
		case strings.HasSuffix(last, ":"):
			b.WriteByte(' ')
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
		last = line
	}
	return b.String()
}

// readerGone turns the error of a write to stdout into ndjson.ErrReaderGone where that is what it means.
func readerGone(err error) error {
	if errors.Is(err, syscall.EPIPE) {
		return fmt.Errorf("write result: %w", ndjson.ErrReaderGone)
	}
	return err
}
