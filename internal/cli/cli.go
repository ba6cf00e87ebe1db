// Package cli is what every command shares: the three streams, logging, progress, signals, exit codes, configuration.
//
// Invariants: stdout is data and nothing else (promise 10); errors end with the next step (promise 11); secrets are
// redacted (promise 9). It knows no job: those are in cdc, replay, bulk and swap, and cmd wires them.
package cli

import (
	"io"
	"os"

	"golang.org/x/term"
)

// IO is where a command reads and writes. Tests put buffers in.
type IO struct {
	In       io.Reader
	Out      io.Writer // data alone
	Err      io.Writer // everything for people
	InIsTTY  bool
	OutIsTTY bool
	ErrIsTTY bool
	Getenv   func(string) string
}

// System is the process's own streams and environment.
func System() IO {
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InIsTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		OutIsTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrIsTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Getenv:   os.Getenv,
	}
}
