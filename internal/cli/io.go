package cli

import (
	"io"
	"os"
	"path/filepath"

	"golang.org/x/term"

	"synctl/internal/fault"
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
	// Width is the columns of the terminal that Err is, 0 where unknown. Nil means unknown.
	Width func() int
}

// System is the process's own streams and environment.
func System() IO {
	return IO{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		InIsTTY:  term.IsTerminal(int(os.Stdin.Fd())),
		OutIsTTY: term.IsTerminal(int(os.Stdout.Fd())),
		ErrIsTTY: term.IsTerminal(int(os.Stderr.Fd())),
		Getenv:   os.Getenv,
		Width: func() int {
			w, _, err := term.GetSize(int(os.Stderr.Fd()))
			if err != nil {
				return 0
			}
			return w
		},
	}
}

// StateDir is where state that must last is kept unless a flag says otherwise: $XDG_STATE_HOME/synctl, or
// ~/.local/state/synctl. It is not created.
func (o IO) StateDir() (string, error) {
	return o.xdg("XDG_STATE_HOME", ".local/state", "Set XDG_STATE_HOME or HOME, or name the file with a flag such as --state.")
}

func (o IO) configDir() (string, error) {
	return o.xdg("XDG_CONFIG_HOME", ".config", "Set XDG_CONFIG_HOME or HOME, or name the file with --config.")
}

func (o IO) xdg(variable, underHome, hint string) (string, error) {
	// The XDG specification has relative paths ignored: they would depend on where the command was started.
	if dir := o.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "synctl"), nil
	}
	if home := o.Getenv("HOME"); home != "" {
		return filepath.Join(home, underHome, "synctl"), nil
	}
	return "", fault.New(fault.Usage, hint, "neither %s nor HOME is set", variable)
}
