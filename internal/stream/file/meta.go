package file

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"synctl/internal/fault"
	"synctl/internal/stream"
)

const (
	metaName = "stream.json"
	lockName = "writer.lock"

	// MaxShards bounds a stream's shards: its number has four digits in a sequence number.
	MaxShards = 10_000
	// MaxRecordBytes is the largest line that a stream takes: what one row of PostgreSQL can be, by far.
	MaxRecordBytes = 1 << 30

	defaultSegmentBytes = 64 << 20
)

// Options say how to make a stream.
type Options struct {
	Shards         int           // 0 means 1
	Retention      time.Duration // older segments are removed; 0: never
	RetentionBytes int64         // of all shards together: the oldest segments beyond are removed; 0: never
	SegmentBytes   int64         // a segment that has reached this size is followed by a new one; 0 means 64 MiB
}

// meta is stream.json.
type meta struct {
	Format         int       `json:"format"`
	Name           string    `json:"name"`
	Shards         int       `json:"shards"`
	Epoch          int       `json:"epoch"` // begins every sequence number: a number of an earlier stream at the same place is recognised
	Retention      string    `json:"retention"`
	RetentionBytes int64     `json:"retention_bytes"`
	SegmentBytes   int64     `json:"segment_bytes"`
	CreatedAt      time.Time `json:"created_at"`

	retention time.Duration
}

// Create makes a stream in dir, which must not exist or be empty. The stream's name is the directory's.
func Create(dir string, o Options) error {
	m, err := newMeta(dir, o)
	if err != nil {
		return err
	}
	if exists(dir) { // also while it is being written
		return stream.Exists(URL(dir))
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return diskFault("create stream", err)
	}
	lock, err := lockWriter(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := checkVacant(dir); err != nil {
		return err
	}
	if err := m.make(dir); err != nil {
		return diskFault("create stream", err)
	}
	return nil
}

func newMeta(dir string, o Options) (*meta, error) {
	if o.Shards == 0 {
		o.Shards = 1
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.Shards < 1 || o.Shards > MaxShards || o.SegmentBytes < 1 || o.Retention < 0 || o.RetentionBytes < 0 {
		return nil, fault.New(fault.Usage, fmt.Sprintf("A stream has 1 to %d shards; sizes and retention are not negative.", MaxShards),
			"create %s: %d shards, retention %v, retention bytes %d, segment bytes %d", URL(dir), o.Shards, o.Retention, o.RetentionBytes, o.SegmentBytes)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find directory %s: %w", dir, err)
	}
	name := filepath.Base(abs)
	if !utf8.ValidString(name) {
		return nil, fault.New(fault.Usage, "Name the directory in UTF-8: its name is in every record.", "create %q: the name is not UTF-8", URL(dir))
	}
	epoch, err := rand.Int(rand.Reader, big.NewInt(900_000))
	if err != nil {
		return nil, fmt.Errorf("draw the stream's epoch: %w", err)
	}
	return &meta{
		Format: 1, Name: name, Shards: o.Shards, Epoch: 100_000 + int(epoch.Int64()),
		Retention: o.Retention.String(), RetentionBytes: o.RetentionBytes, SegmentBytes: o.SegmentBytes,
		CreatedAt: time.Now().UTC().Truncate(time.Microsecond), retention: o.Retention,
	}, nil
}

func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, metaName))
	return err == nil
}

// checkVacant refuses a directory that holds a stream, or anything else but what a Create that was killed left behind.
func checkVacant(dir string) error {
	if exists(dir) {
		return stream.Exists(URL(dir))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return diskFault("create stream", err)
	}
	for _, e := range entries {
		switch n := e.Name(); {
		case n == lockName, n == headsName, n == metaName+".tmp":
			continue
		case e.IsDir() && strings.HasPrefix(n, shardPrefix):
			if empty, err := holdsNothing(filepath.Join(dir, n)); err != nil || empty {
				if err != nil {
					return diskFault("create stream", err)
				}
				continue
			}
		}
		return fault.New(fault.Usage, "Name a directory that is empty or does not exist.",
			"create %s: the directory holds %s and no %s", URL(dir), e.Name(), metaName)
	}
	return nil
}

// holdsNothing tells whether a shard's directory has no byte of data in it.
func holdsNothing(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return false, err
		}
		if info.IsDir() || info.Size() > 0 {
			return false, nil
		}
		// Of a Create that was killed; its name has another epoch.
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return false, err
		}
	}
	return true, err
}

// make writes everything, stream.json last: a directory without it is no stream yet.
func (m *meta) make(dir string) error {
	heads := make([]head, m.Shards)
	for i := range heads {
		heads[i] = head{base: 1, next: 1}
		shardDir := filepath.Join(dir, shardID(i))
		if err := os.MkdirAll(shardDir, 0o777); err != nil {
			return err
		}
		f, err := os.OpenFile(filepath.Join(shardDir, m.segmentName(i, 1)), os.O_CREATE|os.O_WRONLY, 0o666)
		if err != nil {
			return err
		}
		if err := errors.Join(f.Sync(), f.Close(), syncDir(shardDir)); err != nil {
			return err
		}
	}
	h, err := createHeads(filepath.Join(dir, headsName), heads)
	if err != nil {
		return err
	}
	if err := h.close(); err != nil {
		return err
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, metaName+".tmp")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, metaName)); err != nil {
		return err
	}
	return errors.Join(syncDir(dir), syncDir(filepath.Dir(dir)))
}

func loadMeta(dir string) (*meta, error) {
	path := filepath.Join(dir, metaName)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err != nil && isNotDir(err) {
		return nil, stream.NotFound(URL(dir))
	}
	if err != nil {
		return nil, diskFault("open stream", err)
	}
	m := new(meta)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, damaged(path, "it is not the description that stream create wrote: %v", err)
	}
	if m.Format != 1 {
		return nil, fault.New(fault.Failed, "It was written by another version of synctl; use that one.", "open %s: format %d is not known", path, m.Format)
	}
	if m.retention, err = time.ParseDuration(m.Retention); err != nil {
		return nil, damaged(path, "retention: %v", err)
	}
	if m.Shards < 1 || m.Shards > MaxShards || m.Epoch < 100_000 || m.Epoch > 999_999 || m.SegmentBytes < 1 {
		return nil, damaged(path, "%d shards, epoch %d, segment bytes %d are not possible", m.Shards, m.Epoch, m.SegmentBytes)
	}
	return m, nil
}

// URL is the form in which a directory is named on the command line.
func URL(dir string) string { return "file:" + dir }
