package cdc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"

	"synctl/internal/cdc/snapshot"
	"synctl/internal/fault"
	"synctl/internal/record"
)

// stateFile remembers what was confirmed. It is written before the server is told, so the slot never stands ahead of
// it, unless somebody moved the slot or made it anew: then changes are missing, and only this file can tell.
type stateFile struct {
	path string
	last savedState
}

type savedState struct {
	Version   int    `json:"version"`
	System    string `json:"system"`
	Slot      string `json:"slot"`
	Timeline  uint32 `json:"timeline"`
	Confirmed string `json:"confirmed_lsn"`

	Snapshot *snapshot.State `json:"snapshot,omitempty"` // of the tables that were asked for, as of Confirmed
}

// StatePath is where the state of a slot is kept unless --state says otherwise: by system and slot, below the state
// directory ($XDG_STATE_HOME/synctl).
func StatePath(stateDir string, system uint64, slot string) string {
	return filepath.Join(stateDir, "cdc", strconv.FormatUint(system, 10)+"-"+slot+".json")
}

// read loads the state; ok is false when there is none yet.
func (f *stateFile) read() (saved savedState, lsn record.LSN, ok bool, err error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return saved, 0, false, nil
	}
	if err != nil {
		return saved, 0, false, fault.New(fault.Failed, "Make the file readable, or name another with --state.", "read the state: %w", err)
	}
	if err = json.Unmarshal(b, &saved); err == nil && saved.Version != 1 {
		err = fmt.Errorf("version %d is not known, only 1", saved.Version)
	}
	if err == nil {
		lsn, err = record.ParseLSN(saved.Confirmed)
	}
	if err != nil {
		return saved, 0, false, fault.New(fault.Failed,
			"The file does not come from synctl, or was damaged. Name another with --state; removing it makes synctl begin where the slot stands, unable to tell a gap.",
			"read the state file %s: %w", f.path, err)
	}
	return saved, lsn, true, nil
}

// write stores the state durably: a new file beside the old one takes its place once it is on the disk.
func (f *stateFile) write(s savedState) (err error) {
	if reflect.DeepEqual(s, f.last) {
		return nil
	}
	dir := filepath.Dir(f.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f.writeFault(err)
	}
	b, err := json.Marshal(s)
	if err != nil {
		return f.writeFault(err)
	}
	tmp, err := os.OpenFile(f.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return f.writeFault(err)
	}
	_, err = tmp.Write(append(b, '\n'))
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.path)
	}
	if err == nil {
		err = syncDir(dir)
	}
	if err != nil {
		return f.writeFault(err)
	}
	f.last = s
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (f *stateFile) writeFault(err error) error {
	return fault.New(fault.Failed, "Make room or mend the directory's rights, or name another place with --state and copy the file there; then run the same command again.",
		"write the state file %s: %w", f.path, err)
}
