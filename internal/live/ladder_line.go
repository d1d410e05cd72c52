package live

import (
	"context"
	"slices"
	"sync"
	"time"
)

// maxStarts is how many starts of segments are remembered: far more than a rung can be
// behind.
const maxStarts = 64

// timeline tells the rungs of a ladder where the segments of the source start, so that
// theirs start there too and have the same numbers. Players change between renditions
// by both.
type timeline struct {
	mu      sync.Mutex
	starts  []start       // the newest last
	settled time.Duration // before it, everything is decided
	idle    bool          // no encoder sends, so all is
	changed chan struct{}
}

// start is where a segment of the source begins.
type start struct {
	number int64 // on disk
	at     time.Duration
	broken bool          // it does not go on where the one before it ended
	end    time.Duration // when the encoder went away in it; 0 = it did not
}

func newTimeline() *timeline { return &timeline{idle: true, changed: make(chan struct{})} }

// opens says that a segment of the source begins. The frames of a source without a
// ladder have no timeline.
func (l *timeline) opens(s start) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts = append(l.starts, s)
	if len(l.starts) > maxStarts {
		l.starts = slices.Delete(l.starts, 0, 1)
	}
	l.move(s.at, false)
}

// settle says that there are no other segments before a time than are known.
func (l *timeline) settle(at time.Duration) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.move(at, false)
}

// pause says that the encoder is gone.
func (l *timeline) pause() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if last := len(l.starts) - 1; last >= 0 && !l.idle {
		l.starts[last].end = l.settled
	}
	l.move(l.settled, true)
}

// move wakes whoever waits.
func (l *timeline) move(settled time.Duration, idle bool) {
	l.settled, l.idle = max(l.settled, settled), idle
	close(l.changed)
	l.changed = make(chan struct{})
}

// segment returns the segment of the source that a time lies in, as soon as that is
// decided; false = there is none.
func (l *timeline) segment(ctx context.Context, at time.Duration) (start, bool, error) {
	for {
		l.mu.Lock()
		if at < l.settled || l.idle {
			defer l.mu.Unlock()
			for _, s := range slices.Backward(l.starts) {
				if s.at <= at {
					return s, true, nil
				}
			}
			return start{}, false, nil
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return start{}, false, context.Cause(ctx)
		}
	}
}

// now returns how far the source is, and whether its encoder is gone.
func (l *timeline) now() (settled time.Duration, idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled, l.idle
}
