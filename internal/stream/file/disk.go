package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"synctl/internal/fault"
)

// syncDir makes the names in dir durable. A file whose name is not can be gone after a power cut, data and all.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// diskFault says what to do about an error of the file system.
func diskFault(verb string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		hint = "The disk or the quota is full. Free space (stream trim, or a retention) and run the same command again: what was acknowledged is safe, what was not is sent again."
	case errors.Is(err, syscall.EFBIG):
		hint = "A file may not grow further here (ulimit -f). Raise the limit and run the same command again: what was acknowledged is safe."
	case errors.Is(err, syscall.EIO):
		hint = "The disk failed. See the kernel's log before anything is written there again."
	case errors.Is(err, syscall.EROFS), errors.Is(err, os.ErrPermission):
		hint = "Give this user the right to write there, or name another directory."
	}
	return fault.New(fault.Failed, hint, "%s: %w", verb, err)
}

// damaged is the fault for a file that does not hold what was made durable in it.
func damaged(path, format string, args ...any) error {
	return fault.New(fault.Failed, "The file was changed or the disk lost data that it had confirmed. Restore the directory from a copy, or publish anew to another one.",
		"%s is damaged: %s", path, fmt.Sprintf(format, args...))
}

func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }

// lockWriter makes this process the stream's writer until the file is closed, by the kernel also when it is killed.
func lockWriter(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockName)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, diskFault("lock stream", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, diskFault("lock "+path, err)
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		return nil, fault.New(fault.Unreachable, "A stream has one writer at a time. Stop that process, or publish to another directory.",
			"%s is being written by process %s", URL(dir), orUnknown(strings.TrimSpace(string(pid))))
	}
	// The PID is for the message above only; a disk too full to hold it does not matter.
	_ = f.Truncate(0)
	_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return f, nil
}

func orUnknown(pid string) string {
	if pid == "" {
		return "(unknown)"
	}
	return pid
}
