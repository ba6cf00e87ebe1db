package cli

import (
	"bytes"
	"io"
	"sync"
)

// console is the one writer of a terminal (or of stderr, where that is none). It keeps a status line at the bottom and takes it
// away while something else is written, so that log lines and the status line never tear each other.
type console struct {
	mu     sync.Mutex
	w      io.Writer
	status string
	shown  bool
	midway bool // the last write did not end its line: a prompt. The status line waits for the end.
}

const clearLine = "\r\x1b[K"

func (c *console) Write(p []byte) (int, error) { return c.writeTo(c.w, p) }

func (c *console) writeTo(w io.Writer, p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	n, err := w.Write(p)
	if len(p) > 0 {
		c.midway = !bytes.HasSuffix(p, []byte("\n"))
	}
	c.show()
	return n, err
}

// setStatus replaces the status line; empty takes it away.
func (c *console) setStatus(s string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	c.status = s
	c.show()
}

func (c *console) hide() {
	if c.shown {
		_, _ = io.WriteString(c.w, clearLine)
		c.shown = false
	}
}

func (c *console) show() {
	if c.status != "" && !c.midway {
		_, _ = io.WriteString(c.w, c.status)
		c.shown = true
	}
}

// sharedTerminal is stdout when it is a terminal that the status line may be on, too.
type sharedTerminal struct {
	c   *console
	out io.Writer
}

func (t sharedTerminal) Write(p []byte) (int, error) { return t.c.writeTo(t.out, p) }
