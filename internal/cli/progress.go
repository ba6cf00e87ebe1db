package cli

import (
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
)

// Snapshot is what a run tells of itself at one moment. Its function is called from several goroutines.
type Snapshot struct {
	Records  int64  // held by the sink for good, since the start of the run
	Bytes    int64  // of those records
	Total    int64  // records expected in all; 0: unknown, and then there is no ETA
	InFlight int64  // records read and not yet held for good
	Position string // last one confirmed upstream: an LSN, a sequence number; empty: none yet
	Lag      *Lag   // nil: unknown

	Retries, Throttled, DeadLetters, Reconnects int64
	WALHeld                                     int64 // bytes of WAL that our slot holds back; 0: none or unknown

	Ready   bool   // everything is connected and data can flow: /readyz
	Trouble string // why the run does not get on though there is work; empty: it does: /healthz
}

// Lag is how far a run is behind its source.
type Lag struct {
	Bytes int64         // negative: unknown
	Age   time.Duration // negative: unknown
}

// ansi are the escape sequences that the bar puts around itself: the console has its own.
var ansi = regexp.MustCompile(`\x1b\[[0-9;]*[A-Za-z]`)

const (
	barInterval   = 200 * time.Millisecond
	plainInterval = 10 * time.Second
)

// Report shows the run's progress until stop is called, and serves its metrics when --metrics-addr asks for it. stop
// writes the last line; it may be called more than once.
func (r *Run) Report(snapshot func() Snapshot) (stop func(), err error) {
	closeMetrics := func() {}
	if r.live != nil && r.live.MetricsAddr != "" {
		if closeMetrics, err = serveMetrics(r.live.MetricsAddr, snapshot, r.Log); err != nil {
			return nil, err
		}
	}
	p := &progress{snapshot: snapshot, log: r.Log, console: r.app.console, width: r.Width, began: time.Now()}
	mode := r.app.progress.Value
	if mode == "auto" {
		mode = "plain"
		if r.ErrIsTTY && r.Getenv("TERM") != "dumb" {
			mode = "bar"
		}
	}
	end := p.start(mode)
	var once sync.Once
	return func() {
		once.Do(func() {
			end()
			closeMetrics()
		})
	}, nil
}

type progress struct {
	snapshot func() Snapshot
	log      *slog.Logger
	console  *console
	width    func() int
	began    time.Time

	bar  *progressbar.ProgressBar
	last Snapshot
	at   time.Time // of last
	rate float64   // records a second, smoothed on a bar
}

func (p *progress) start(mode string) (end func()) {
	if mode == "none" {
		return func() {}
	}
	interval, tick := plainInterval, p.logLine
	if mode == "bar" {
		interval, tick = barInterval, p.drawBar
	}
	p.at = p.began
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(interval)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				tick()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
		p.console.setStatus("")
		p.lastLine()
	}
}

// sample takes a snapshot and the rate since the one before.
func (p *progress) sample(smooth bool) Snapshot {
	s, now := p.snapshot(), time.Now()
	if d := now.Sub(p.at).Seconds(); d > 0 {
		rate := float64(s.Records-p.last.Records) / d
		if smooth && p.rate > 0 {
			rate = 0.8*p.rate + 0.2*rate
		}
		p.rate = rate
	}
	p.last, p.at = s, now
	return s
}

func (p *progress) logLine() {
	s := p.sample(false)
	p.log.Info("progress", append([]any{"records", s.Records, "rate", int64(p.rate)}, attrs(s)...)...)
}

func (p *progress) lastLine() {
	s, elapsed := p.snapshot(), time.Since(p.began)
	p.log.Info("finished", append([]any{"records", s.Records, "rate", int64(float64(s.Records) / max(elapsed.Seconds(), 1e-3)),
		"elapsed", elapsed.Round(time.Millisecond)}, attrs(s)...)...)
}

// attrs are the figures of s that say something.
func attrs(s Snapshot) []any {
	a := []any{"bytes", s.Bytes, "in_flight", s.InFlight}
	if s.Lag != nil && s.Lag.Bytes >= 0 {
		a = append(a, "lag_bytes", s.Lag.Bytes)
	}
	if s.Lag != nil && s.Lag.Age >= 0 {
		a = append(a, "lag", s.Lag.Age.Round(time.Millisecond))
	}
	if s.Position != "" {
		a = append(a, "position", s.Position)
	}
	for _, c := range []struct {
		name  string
		value int64
	}{{"wal_held", s.WALHeld}, {"retries", s.Retries}, {"throttled", s.Throttled}, {"dead_letters", s.DeadLetters}, {"reconnects", s.Reconnects}} {
		if c.value != 0 {
			a = append(a, c.name, c.value)
		}
	}
	if s.Trouble != "" {
		a = append(a, "trouble", s.Trouble)
	}
	return a
}

func (p *progress) drawBar() {
	s := p.sample(true)
	if p.bar == nil {
		// The bar is drawn into nothing and taken by String: the console alone writes to the terminal. Without an interval of
		// its own the spinner needs no goroutine that nobody could wait for.
		p.bar = progressbar.NewOptions64(-1, progressbar.OptionSetWriter(io.Discard), progressbar.OptionSetWidth(20),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(true),
			progressbar.OptionSpinnerType(14), progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionShowDescriptionAtLineEnd())
	}
	if s.Total > 0 {
		p.bar.ChangeMax64(s.Total)
		_ = p.bar.Set64(min(s.Records, s.Total-1)) // at its maximum the bar would end and never be drawn again
	}
	p.bar.Describe(p.words(s))
	width := 0
	if p.width != nil {
		width = p.width()
	}
	p.console.setStatus(cut(strings.Join(strings.Fields(ansi.ReplaceAllString(p.bar.String(), "")), " "), width))
}

func (p *progress) words(s Snapshot) string {
	parts := []string{FormatCount(s.Records) + " records", FormatCount(int64(p.rate)) + "/s", FormatBytes(s.Bytes)}
	if s.Lag != nil && (s.Lag.Bytes >= 0 || s.Lag.Age >= 0) {
		lag := "lag"
		if s.Lag.Bytes >= 0 {
			lag += " " + FormatBytes(s.Lag.Bytes)
		}
		if s.Lag.Age >= 0 {
			lag += " " + s.Lag.Age.Round(100*time.Millisecond).String()
		}
		parts = append(parts, lag)
	}
	if s.InFlight > 0 {
		parts = append(parts, FormatCount(s.InFlight)+" in flight")
	}
	if left := s.Total - s.Records; s.Total > 0 && left > 0 && p.rate >= 1 {
		parts = append(parts, "ETA "+(time.Duration(float64(left)/p.rate)*time.Second).String())
	}
	if s.Position != "" {
		parts = append(parts, "at "+s.Position)
	}
	if s.Trouble != "" {
		parts = append(parts, s.Trouble)
	}
	return strings.Join(parts, " · ")
}

// cut shortens a line to a terminal's width: one that wraps could not be taken away again.
func cut(line string, width int) string {
	runes := []rune(line)
	if width <= 1 || len(runes) < width {
		return line
	}
	return fmt.Sprint(string(runes[:width-2]), "…")
}
