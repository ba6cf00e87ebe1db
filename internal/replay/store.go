package replay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"synctl/internal/fault"
	"synctl/internal/sink"
)

// FileStore keeps marks in one JSON file, which is replaced as a whole: a kill leaves the old one or the new one.
type FileStore struct {
	path         string
	name, stream string
	lock         *os.File
	mu           sync.Mutex
}

// StoredMark is one checkpoint of a file.
type StoredMark struct {
	Name      string    `json:"name"`
	Stream    string    `json:"stream"`
	Shard     string    `json:"shard"`
	Sequence  string    `json:"sequence"`        // everything up to this record was handled
	Lines     int       `json:"lines,omitempty"` // of that record, only so many lines; 0: all
	Ended     bool      `json:"ended,omitempty"` // the shard is closed and was read to its end
	UpdatedAt time.Time `json:"updated_at"`
}

// Mark is where the checkpoint stands.
func (s *StoredMark) Mark() sink.Mark {
	return sink.Mark{Sequence: s.Sequence, Lines: s.Lines, Ended: s.Ended}
}

type storeFile struct {
	Version     int          `json:"version"`
	Checkpoints []StoredMark `json:"checkpoints"`
}

// OpenFileStore takes a consumer's checkpoint in a file: one process at a time has it.
func OpenFileStore(path, name, stream string) (*FileStore, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the checkpoints: %w", err)
	}
	if _, err := readStore(path); err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(name + "\n" + stream))
	lock, err := lockFile(path+"."+hex.EncodeToString(sum[:6])+".lock", syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fault.New(fault.Unreachable, "Stop the other one, or give this one a checkpoint of its own with --checkpoint NAME.",
			"checkpoint %q of stream %s in %s is in use by another process", name, stream, path)
	}
	if err != nil {
		return nil, err
	}
	return &FileStore{path: path, name: name, stream: stream, lock: lock}, nil
}

func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// Close gives the checkpoint back.
func (s *FileStore) Close() error { return s.lock.Close() }

// Get reads a shard's mark.
func (s *FileStore) Get(_ context.Context, shard string) (m sink.Mark, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, err := readStore(s.path)
	if err != nil {
		return m, false, err
	}
	for i := range f.Checkpoints {
		if c := &f.Checkpoints[i]; c.Name == s.name && c.Stream == s.stream && c.Shard == shard {
			return c.Mark(), true, nil
		}
	}
	return m, false, nil
}

// Put stores a shard's mark.
func (s *FileStore) Put(_ context.Context, shard string, m sink.Mark) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh := StoredMark{Name: s.name, Stream: s.stream, Shard: shard, Sequence: m.Sequence, Lines: m.Lines, Ended: m.Ended, UpdatedAt: time.Now().UTC()}
	return changeStore(s.path, func(f *storeFile) {
		i := slices.IndexFunc(f.Checkpoints, func(c StoredMark) bool { return c.Name == s.name && c.Stream == s.stream && c.Shard == shard })
		if i < 0 {
			f.Checkpoints = append(f.Checkpoints, fresh)
		} else {
			f.Checkpoints[i] = fresh
		}
	})
}

// Delete removes the consumer's checkpoint, of one shard or, where shard is empty, of all; it gives the number of shards.
func (s *FileStore) Delete(shard string) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = changeStore(s.path, func(f *storeFile) {
		before := len(f.Checkpoints)
		f.Checkpoints = slices.DeleteFunc(f.Checkpoints, func(c StoredMark) bool {
			return c.Name == s.name && c.Stream == s.stream && (shard == "" || c.Shard == shard)
		})
		n = before - len(f.Checkpoints)
	})
	return n, err
}

// ListStore reads all checkpoints of a file; none where there is no file.
func ListStore(path string) ([]StoredMark, error) {
	f, err := readStore(path)
	return f.Checkpoints, err
}

func readStore(path string) (f storeFile, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return storeFile{Version: 1}, nil
	}
	if err != nil {
		return f, fmt.Errorf("read checkpoints: %w", err)
	}
	if err = json.Unmarshal(data, &f); err == nil && f.Version != 1 {
		err = fmt.Errorf("version %d is not known", f.Version)
	}
	if err != nil {
		return f, fault.New(fault.Failed, "It is replaced as a whole, so it was altered by something else. Mend it or move it away.",
			"read checkpoints of %s: %w", path, err)
	}
	return f, nil
}

// changeStore replaces the file by a changed one, durably. Consumers with other names share the file, so it is locked.
func changeStore(path string, change func(*storeFile)) error {
	lock, err := lockFile(path+".lock", syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	f, err := readStore(path)
	if err != nil {
		return err
	}
	change(&f)
	slices.SortFunc(f.Checkpoints, func(a, b StoredMark) int {
		return strings.Compare(a.Name+"\n"+a.Stream+"\n"+a.Shard, b.Name+"\n"+b.Stream+"\n"+b.Shard)
	})
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	if err := replaceFile(path, append(data, '\n')); err != nil {
		return fault.New(fault.Failed, "Make room, or mend the directory's rights; then run the same command again.", "store checkpoint in %s: %w", path, err)
	}
	return nil
}

func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
