package ndjson

import (
	"context"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// input is a reader that a context can interrupt.
type input interface {
	read(ctx context.Context, p []byte) (int, error)
}

// plainInput looks at the context between reads only.
type plainInput struct{ r io.Reader }

func (in plainInput) read(ctx context.Context, p []byte) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	return in.r.Read(p)
}

// fileInput waits for a file descriptor and the context at once. Deadlines would not do: standard input has none,
// and giving it some by making it non-blocking would do so for every process that shares it.
type fileInput struct{ f *os.File }

func (in fileInput) read(ctx context.Context, p []byte) (int, error) {
	if err := in.wait(ctx); err != nil {
		return 0, err
	}
	return in.f.Read(p)
}

// wait returns once the file can be read without waiting, which includes its end.
func (in fileInput) wait(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if ready, err := in.poll(-1, 0); ready || err != nil {
		return err
	}
	// Only now is the price of a pipe paid, when there is time to wait anyway.
	wakeR, wakeW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("wait for input: %w", err)
	}
	defer wakeR.Close()
	stop := context.AfterFunc(ctx, func() { wakeW.Close() }) // the reading end becomes readable
	defer func() {
		if stop() {
			wakeW.Close()
		}
	}()
	if _, err := in.poll(int(wakeR.Fd()), -1); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// poll waits for the file, and for wake where that is not negative.
func (in fileInput) poll(wake, timeout int) (ready bool, err error) {
	conn, err := in.f.SyscallConn()
	if err != nil {
		return false, fmt.Errorf("wait for input: %w", err)
	}
	ctlErr := conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
		for {
			if _, err = unix.Poll(fds, timeout); err != unix.EINTR {
				break
			}
		}
		ready = fds[0].Revents != 0
	})
	if ctlErr != nil {
		err = ctlErr
	}
	if err != nil {
		return false, fmt.Errorf("wait for input: %w", err)
	}
	return ready, nil
}
