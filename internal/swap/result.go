package swap

import (
	"log/slog"
	"slices"
	"time"
)

// Result is what a swap or rollback did.
type Result struct {
	Table     string `json:"table"`
	Partition string `json:"partition,omitempty"`
	Staging   string `json:"staging,omitempty"`
	Bound     string `json:"bound,omitempty"`
	// Outcome is swapped; rolled back; finished (an earlier run had exchanged, this one did what was left); already
	// (an earlier run had done everything); planned (a dry run).
	Outcome string `json:"outcome"`
	Rows    int64  `json:"rows"` // of the newcomer; -1 where they were not counted
	Kept    string `json:"kept,omitempty"`

	Steps    []StepTime `json:"steps"`
	Plan     []Step     `json:"plan,omitempty"` // of a dry run
	Dropped  []string   `json:"dropped,omitempty"`
	Warnings []string   `json:"warnings,omitempty"`

	// Times in seconds. LockHeld is the longest that locks on live tables were held, from when the last of them was granted until
	// the server's answer to COMMIT had come; LockWaited the longest that an attempt waited for them.
	LockHeld        float64 `json:"lock_held_seconds"`
	LockWaited      float64 `json:"lock_waited_seconds"`
	Retries         int     `json:"retries"`
	SnapshotSeconds float64 `json:"snapshot_wait_seconds"`
	Seconds         float64 `json:"seconds"`
}

// StepTime is how long a step took.
type StepTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

func (r *Result) warn(log *slog.Logger, text string) {
	if slices.Contains(r.Warnings, text) {
		return
	}
	log.Warn(text)
	r.Warnings = append(r.Warnings, text)
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Second)
}
