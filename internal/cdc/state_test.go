package cdc

import (
	"path/filepath"
	"strings"
	"testing"

	"synctl/internal/fault"
)

// TestStateFileCannotBeWritten: the error names the file and says what to do.
func TestStateFileCannotBeWritten(t *testing.T) {
	path := filepath.Join("/dev/null", "s.json")
	err := (&stateFile{path: path}).write(savedState{Version: 1})
	if fault.ClassOf(err) != fault.Failed || !strings.Contains(err.Error(), path) || !strings.Contains(fault.HintOf(err), "--state") {
		t.Errorf("error %v, hint %q", err, fault.HintOf(err))
	}
}
