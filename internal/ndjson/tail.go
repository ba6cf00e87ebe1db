package ndjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"synctl/internal/fault"
)

// lineStart is how every line that synctl writes begins.
const lineStart = `{"v":1,"id":"`

// RepairTail cuts off the line that a writer which was killed left unfinished at the end of a regular file, and leaves f
// positioned at its end. It returns how many bytes were cut: 0 for a file that is whole or empty, and for what is no
// regular file. The record was not confirmed, so it comes again.
//
// Only what can be the beginning of a record, or zeros from a crash of the machine, is cut; any other last line is an
// error, as the file may be somebody's notes. f may be open for writing only, as by the shell's >>.
func RepairTail(f *os.File) (cut int64, err error) { return repairTail(f, lineStart) }

// repairTail is RepairTail for lines that begin with start.
func repairTail(f *os.File, start string) (cut int64, err error) {
	if !isRegular(f) {
		return 0, nil
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil || end == 0 {
		return 0, wrapTail(f, err)
	}
	r, closer, err := readable(f)
	if err != nil {
		return 0, wrapTail(f, err)
	}
	defer closer()
	at, err := lastLine(r, end)
	if err != nil || at == end {
		return 0, wrapTail(f, err)
	}
	head := make([]byte, min(end-at, int64(len(start))))
	if _, err := r.ReadAt(head, at); err != nil && err != io.EOF {
		return 0, wrapTail(f, err)
	}
	if !strings.HasPrefix(start, string(head)) && head[0] != 0 {
		return 0, fault.New(fault.Failed, "Write to another file, or end this one's last line with a line feed if it belongs there.",
			"%s ends in the middle of a line that is no record: %q", f.Name(), head)
	}
	if err := f.Truncate(at); err != nil {
		return 0, wrapTail(f, err)
	}
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		return 0, wrapTail(f, err)
	}
	return end - at, wrapTail(f, f.Sync())
}

func wrapTail(f *os.File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("repair the last line of %s: %w", f.Name(), err)
}

// readable is f itself, or the same file opened for reading where f is not.
func readable(f *os.File) (r io.ReaderAt, closer func() error, err error) {
	var b [1]byte
	if _, err := f.ReadAt(b[:], 0); err == nil {
		return f, func() error { return nil }, nil
	}
	name := "/dev/fd/" + strconv.Itoa(int(f.Fd()))
	again, err := os.Open(name)
	if err != nil {
		return nil, nil, fmt.Errorf("read it: %w", err)
	}
	a, errA := again.Stat()
	b2, errB := f.Stat()
	if errA != nil || errB != nil || !os.SameFile(a, b2) {
		again.Close()
		return nil, nil, errors.Join(fmt.Errorf("%s is another file", name), errA, errB)
	}
	return again, again.Close, nil
}

// lastLine is the offset behind the last line feed before end, 0 where there is none.
func lastLine(r io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(buf)))
		if _, err := r.ReadAt(buf[:n], end-n); err != nil && err != io.EOF {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}
