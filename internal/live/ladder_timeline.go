package live

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxStarts is how many starts of segments are kept: far more than a rung can be behind.
const maxStarts = 64

// timeline holds where the segments of the source start. The segments of rungs start there too and
// have the same numbers: players switch between renditions by both.
type timeline struct {
	mu      sync.Mutex
	starts  []segmentStart // the newest last
	settled time.Duration  // up to here all starts are known
	idle    bool           // no encoder is connected, so all starts are known
	changed chan struct{}
}

// segmentStart is the start of a segment of the source.
type segmentStart struct {
	number        int64 // on disk
	at            time.Duration
	discontinuity bool          // there is a discontinuity before it
	end           time.Duration // where the encoder disconnected in it; 0 = it did not
}

func newTimeline() *timeline { return &timeline{idle: true, changed: make(chan struct{})} }

// addStart adds the start of a segment. A source without a ladder has no timeline.
func (l *timeline) addStart(s segmentStart) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, s)
	if len(l.starts) > maxStarts {
		l.starts = slices.Delete(l.starts, 0, 1)
	}
	l.advance(s.at, false)
}

// settle notes that all starts before a time are known.
func (l *timeline) settle(at time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(at, false)
}

// pause notes that the encoder has disconnected.
func (l *timeline) pause() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.starts) - 1; last >= 0 && !l.idle {
		l.starts[last].end = l.settled
	}
	l.advance(l.settled, true)
}

// advance notes how far the source is, and wakes the goroutines that wait for it.
func (l *timeline) advance(settled time.Duration, idle bool) {
	l.settled, l.idle = max(l.settled, settled), idle
	close(l.changed)
	l.changed = make(chan struct{})
}

// segment returns the segment of the source at a time, as soon as it is known; false = there is none.
func (l *timeline) segment(ctx context.Context, at time.Duration) (segmentStart, bool, error) {
	for {
		l.mu.Lock()
		if at < l.settled || l.idle {
			defer l.mu.Unlock()
			for _, s := range slices.Backward(l.starts) {
				if s.at <= at {
					return s, true, nil
				}
			}
			return segmentStart{}, false, nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return segmentStart{}, false, context.Cause(ctx)
		}
	}
}

// now returns how far the source is, and whether no encoder is connected.
func (l *timeline) now() (settled time.Duration, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled, l.idle
}
