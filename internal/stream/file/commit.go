package file

import (
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	flushers       = 8           // segments that are flushed at the same time
	retainInterval = time.Minute // retention is looked at this often, and whenever a segment is full
)

// run commits what was written, as many batches at once as have gathered since the last commit, until Close.
func (s *Sink) run() {
	defer close(s.stopped)
	tick := time.NewTicker(retainInterval)
	defer tick.Stop()
	for {
		var retain bool
		select {
		case <-s.wake:
		case <-tick.C:
			retain = true
		}
		rolled, more := s.commit()
		if rolled || retain {
			if err := s.retain(); err != nil {
				// Nothing is lost by it and the next look tries again; a disk that fills up ends in an error of its own.
				s.log.Error("remove old segments", "stream", s.dir, "error", err)
			}
		}
		if !more {
			return
		}
	}
}

// commit makes the pending batches durable, shows them to readers and calls their done. more is false when the sink was
// closed before, so that nothing is left.
func (s *Sink) commit() (rolled, more bool) {
	s.mu.Lock()
	// Write and Close exclude each other: what is pending when closed is set is all there will be.
	batches, files, failed := s.pending, s.dirty, s.failed
	ends := slices.Clone(s.ends)
	s.pending, s.dirty = nil, nil
	closed := s.closed
	s.mu.Unlock()
	if len(batches) > 0 {
		if failed == nil {
			failed = s.flush(files, ends)
		}
		rolled = closeRetired(files)
		s.mu.Lock()
		if s.failed = failed; failed == nil {
			s.committed = ends
		}
		for _, p := range batches {
			s.sum.InFlight -= p.entries
		}
		s.mu.Unlock()
		for _, p := range batches {
			p.done(failed)
		}
	}
	return rolled, !closed
}

// flush makes files durable, then the ends that they reach, then readers see them. An error is final: the kernel
// reports a lost page once and takes it for clean afterwards, so a later flush that succeeds proves nothing.
func (s *Sink) flush(files []dirty, ends []head) error {
	var g errgroup.Group
	g.SetLimit(flushers)
	seen := make(map[any]bool, len(files))
	for _, d := range files {
		if d.dir != "" && !seen[d.dir] {
			seen[d.dir] = true
			g.Go(func() error { return syncDir(d.dir) })
		}
		if !seen[d.file] {
			seen[d.file] = true
			g.Go(func() error { return s.sync(d.file) })
		}
	}
	if err := g.Wait(); err != nil {
		return diskFault("flush segment", err)
	}
	if err := s.hf.commit(ends); err != nil {
		return diskFault("commit", err)
	}
	if err := s.hf.publish(); err != nil {
		return diskFault("publish what is durable", err)
	}
	return nil
}

func closeRetired(files []dirty) (any bool) {
	for _, d := range files {
		if d.retired {
			any = true
			d.file.Close() // it was flushed; nothing can be lost by it
		}
	}
	return any
}
