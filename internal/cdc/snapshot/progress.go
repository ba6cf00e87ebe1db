package snapshot

import (
	"fmt"
	"log/slog"
	"time"
)

// tellEvery is how often the log says how far the tables are.
const tellEvery = 10 * time.Second

// tell says how far the tables are: rows, bytes, and, where the planner has an estimate, percent and the time that is left.
func (r *Run) tell() {
	before := map[*Job]int64{}
	for sleep(r.ctx, tellEvery) {
		r.mu.Lock()
		for _, j := range r.jobs {
			if j.Done || j.Rows == before[j] {
				continue
			}
			rate := float64(j.Rows-before[j]) / tellEvery.Seconds()
			before[j] = j.Rows
			at := []any{"table", j.Schema + "." + j.Table, "rows", j.Rows, "bytes", j.Bytes, "rate", int64(rate)}
			if j.estimate > 0 && j.Where == "" {
				left := max(0, float64(j.estimate-j.Rows))
				at = append(at, "percent", fmt.Sprintf("%.1f", min(100, 100*float64(j.Rows)/float64(j.estimate))),
					"eta", time.Duration(left/rate*float64(time.Second)).Round(time.Second).String())
			}
			r.cfg.Log.Log(r.ctx, slog.LevelInfo, "snapshot", at...)
		}
		r.mu.Unlock()
	}
}
