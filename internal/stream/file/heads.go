package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// heads is the file that says up to where every shard is durable. Its first page holds the generation that readers may
// go by; two slots hold generations, even and odd ones, each with the ends of all shards under one checksum. A commit
// writes the slot that is not published, flushes it, and publishes it by its number: so there is always one whole slot,
// whatever moment the power fails, and a reader never sees what could still be taken back.
const (
	headsName  = "heads"
	headsMagic = "synctlH1"
	pageBytes  = 4096 // slots begin on pages of their own: a torn page spoils one of them at most
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errNoHeads: the file is missing, or holds no whole slot.
var errNoHeads = errors.New("no readable generation")

// head is the durable end of one shard.
type head struct {
	base   uint64 // first ordinal of the last segment, in its name
	length int64  // durable bytes of that segment; those before it are durable whole
	next   uint64 // ordinal of the record to come
	last   int64  // arrival of the newest record, µs since 1970; 0: there was none
}

const headBytes = 4 * 8

type headsFile struct {
	f      *os.File
	shards int
	gen    uint64 // last generation written or read
	buf    []byte
}

func slotBytes(shards int) int64 {
	n := int64(8 + 4 + shards*headBytes + 4)
	return (n + pageBytes - 1) / pageBytes * pageBytes
}

func createHeads(path string, heads []head) (*headsFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	h := &headsFile{f: f, shards: len(heads)}
	// Allocated in full now: a commit must not fail for want of space.
	_, err = f.WriteAt(make([]byte, pageBytes+2*slotBytes(h.shards)), 0)
	for range 2 {
		if err == nil {
			err = h.commit(heads)
		}
	}
	if err == nil {
		err = h.publish()
	}
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return h, nil
}

func openHeads(path string, shards, flag int) (*headsFile, error) {
	f, err := os.OpenFile(path, flag, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, errNoHeads)
	}
	if err != nil {
		return nil, err
	}
	return &headsFile{f: f, shards: shards}, nil
}

func (h *headsFile) close() error { return h.f.Close() }

// commit makes the ends of all shards durable as the next generation. What they cover must be durable before.
func (h *headsFile) commit(heads []head) error {
	gen := h.gen + 1
	b := binary.LittleEndian.AppendUint64(h.buf[:0], gen)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(heads)))
	for _, x := range heads {
		b = binary.LittleEndian.AppendUint64(b, x.base)
		b = binary.LittleEndian.AppendUint64(b, uint64(x.length))
		b = binary.LittleEndian.AppendUint64(b, x.next)
		b = binary.LittleEndian.AppendUint64(b, uint64(x.last))
	}
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	h.buf = b
	if _, err := h.f.WriteAt(b, h.slot(gen)); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(h.f.Fd())); err != nil {
		return &os.PathError{Op: "fdatasync", Path: h.f.Name(), Err: err}
	}
	h.gen = gen
	return nil
}

// publish shows the generation that was committed last to readers.
func (h *headsFile) publish() error {
	b := append(h.buf[:0], headsMagic...)
	b = binary.LittleEndian.AppendUint64(b, h.gen)
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	h.buf = b
	_, err := h.f.WriteAt(b, 0)
	return err
}

func (h *headsFile) slot(gen uint64) int64 { return pageBytes + int64(gen%2)*slotBytes(h.shards) }

// readSlot reads slot number gen%2 into heads, whatever generation is in it.
func (h *headsFile) readSlot(gen uint64, heads []head) (uint64, error) {
	n := 8 + 4 + h.shards*headBytes + 4
	if cap(h.buf) < n {
		h.buf = make([]byte, n)
	}
	b := h.buf[:n]
	if _, err := h.f.ReadAt(b, h.slot(gen)); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	} else if err != nil {
		return 0, errNoHeads
	}
	body := b[:n-4]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[n-4:]) || int(binary.LittleEndian.Uint32(b[8:])) != h.shards {
		return 0, errNoHeads
	}
	for i := range heads {
		p := body[12+i*headBytes:]
		heads[i] = head{
			base:   binary.LittleEndian.Uint64(p),
			length: int64(binary.LittleEndian.Uint64(p[8:])),
			next:   binary.LittleEndian.Uint64(p[16:]),
			last:   int64(binary.LittleEndian.Uint64(p[24:])),
		}
	}
	return binary.LittleEndian.Uint64(b), nil
}

// newest is what was committed last, published or not. Only the writer may call it.
func (h *headsFile) newest() ([]head, error) {
	var best []head
	for gen := range uint64(2) {
		heads := make([]head, h.shards)
		found, err := h.readSlot(gen, heads)
		if errors.Is(err, errNoHeads) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if best == nil || found > h.gen {
			best, h.gen = heads, found
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s: %w", h.f.Name(), errNoHeads)
	}
	return best, nil
}

// published reads what readers may see into heads, and tells whether it is newer than at the last call. It may be
// called while another process commits.
func (h *headsFile) published(heads []head) (changed bool, err error) {
	var b [len(headsMagic) + 8 + 4]byte
	for range 200 {
		_, err := h.f.ReadAt(b[:], 0)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		body := b[:len(b)-4]
		if err == nil && string(b[:len(headsMagic)]) == headsMagic &&
			crc32.Checksum(body, castagnoli) == binary.LittleEndian.Uint32(b[len(b)-4:]) {
			gen := binary.LittleEndian.Uint64(b[len(headsMagic):])
			if gen == h.gen {
				return false, nil
			}
			found, err := h.readSlot(gen, heads)
			if err == nil && found == gen {
				h.gen = gen
				return true, nil
			}
			if err != nil && !errors.Is(err, errNoHeads) {
				return false, err
			}
		}
		// The slot is being overwritten: two commits have passed since its number was read, or the page is half new.
		time.Sleep(time.Millisecond)
	}
	return false, fmt.Errorf("%s: %w", h.f.Name(), errNoHeads)
}
