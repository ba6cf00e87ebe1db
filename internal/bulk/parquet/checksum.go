package parquet

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/parquet/metadata"
)

// verifyChecksums reads the pages of the wanted columns of a row group once before they are decoded, where the writer
// put checksums on them: the decoder does not look at them, and flipped bits may decode to other values. A column
// whose first page has none is left alone. The second reading finds the pages in the system's cache.
func verifyChecksums(path string, group *metadata.RowGroupMetaData, leaves []int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, leaf := range leaves {
		chunk, err := group.ColumnChunk(leaf)
		if err != nil {
			return err
		}
		start := chunk.DataPageOffset()
		if d := chunk.DictionaryPageOffset(); chunk.HasDictionaryPage() && d > 0 && d < start {
			start = d
		}
		if err := verifyChunk(f, start, chunk.TotalCompressedSize()); err != nil {
			return fmt.Errorf("column %s: %w", chunk.PathInSchema(), err)
		}
	}
	return nil
}

func verifyChunk(f *os.File, start, size int64) error {
	in := &counter{r: bufio.NewReaderSize(io.NewSectionReader(f, start, size), 64<<10)}
	for page := 1; in.n < size; page++ {
		h, err := readPageHeader(in)
		if err != nil || h.size < 0 || h.size > size-in.n {
			return nil // not for us to judge: the decoder says what is wrong
		}
		if !h.hasCRC {
			if page == 1 {
				return nil
			}
			if _, err := io.CopyN(io.Discard, in, h.size); err != nil {
				return nil
			}
			continue
		}
		sum := crc32.NewIEEE()
		if _, err := io.CopyN(sum, in, h.size); err != nil {
			return nil
		}
		if sum.Sum32() != h.crc {
			return fmt.Errorf("page %d: checksum is %08x, the writer's was %08x", page, sum.Sum32(), h.crc)
		}
	}
	return nil
}

// counter counts what was read.
type counter struct {
	r *bufio.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counter) ReadByte() (byte, error) {
	b, err := c.r.ReadByte()
	if err == nil {
		c.n++
	}
	return b, err
}

// pageHeader is what we want of a page's header: field 3 is the size behind it, field 4 the checksum of that.
type pageHeader struct {
	size   int64
	crc    uint32
	hasCRC bool
}

var errHeader = errors.New("page header cannot be read")

// Thrift's compact protocol, as much as a page header needs.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftI8     = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftStruct = 12
)

func readPageHeader(in *counter) (h pageHeader, err error) {
	err = eachField(in, 0, func(id int, v int64) {
		switch id {
		case 3:
			h.size = v
		case 4:
			h.crc, h.hasCRC = uint32(int32(v)), true
		}
	})
	return h, err
}

// eachField walks a struct and gives its top-level integers.
func eachField(in *counter, depth int, f func(id int, v int64)) error {
	id := 0
	for {
		b, err := in.ReadByte()
		if err != nil {
			return err
		}
		if b == 0 {
			return nil
		}
		if delta := int(b >> 4); delta > 0 {
			id += delta
		} else {
			v, err := zigzag(in)
			if err != nil {
				return err
			}
			id = int(v)
		}
		if err := skipThrift(in, int(b&0xf), depth, func(v int64) { f(id, v) }); err != nil {
			return err
		}
	}
}

func skipThrift(in *counter, kind, depth int, integer func(v int64)) error {
	if depth > 8 {
		return errHeader
	}
	switch kind {
	case thriftTrue, thriftFalse:
		return nil
	case thriftI8:
		_, err := in.ReadByte()
		return err
	case thriftI16, thriftI32, thriftI64:
		v, err := zigzag(in)
		integer(v)
		return err
	case thriftDouble:
		_, err := io.CopyN(io.Discard, in, 8)
		return err
	case thriftBinary:
		n, err := uvarint(in)
		if err != nil || n > 1<<20 {
			return errHeader
		}
		_, err = io.CopyN(io.Discard, in, int64(n))
		return err
	case thriftStruct:
		return eachField(in, depth+1, func(int, int64) {})
	case thriftList, thriftSet:
		return skipList(in, depth)
	}
	return errHeader
}

func skipList(in *counter, depth int) error {
	b, err := in.ReadByte()
	if err != nil {
		return err
	}
	n := uint64(b >> 4)
	if n == 15 {
		if n, err = uvarint(in); err != nil || n > 1<<16 {
			return errHeader
		}
	}
	for range n {
		kind := int(b & 0xf)
		if kind == thriftTrue || kind == thriftFalse {
			kind = thriftI8 // in a list a boolean is a byte
		}
		if err := skipThrift(in, kind, depth+1, func(int64) {}); err != nil {
			return err
		}
	}
	return nil
}

func zigzag(in *counter) (int64, error) {
	u, err := uvarint(in)
	return int64(u>>1) ^ -int64(u&1), err
}

func uvarint(in *counter) (uint64, error) {
	v := uint64(0)
	for shift := 0; shift < 64; shift += 7 {
		b, err := in.ReadByte()
		if err != nil {
			return 0, err
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errHeader
}
