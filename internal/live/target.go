package live

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// targetMargin is by how much segments may be longer than the first before they exceed the target
	// duration: timestamps of encoders vary by some milliseconds.
	targetMargin = 100 * time.Millisecond
	// unknownTarget is the target duration if players want a playlist before the first segment has ended:
	// many encoders send a key frame every 250 frames unless they are told otherwise.
	unknownTarget = 10 * time.Second
)

// targetDuration is the target duration of the playlists of a session, the same for all renditions. It
// never changes, because players and caches rely on the first they see, so the first whole segment
// decides. A segment that turns out longer is listed with its true duration, and an issue of the stream
// says so: a larger target would break the rule for all players, a cut without a key frame those that
// begin there.
type targetDuration struct{ fixed atomic.Int64 }

// get returns the target duration; 0 = there is none yet.
func (t *targetDuration) get() time.Duration { return time.Duration(t.fixed.Load()) }

// set sets what another node, or this one before a restart, has shown; 0 = nothing.
func (t *targetDuration) set(target time.Duration) { t.fixed.Store(int64(target)) }

// decide derives the target duration from a segment, unless there is one.
func (t *targetDuration) decide(segment time.Duration) {
	target := max(SegmentTarget, (segment + targetMargin).Round(time.Second))
	t.fixed.CompareAndSwap(0, int64(target))
}

// shown returns the target duration for a playlist, which decides it at the latest.
func (t *targetDuration) shown() time.Duration {
	t.decide(unknownTarget)
	return t.get()
}

// exceeded returns the issue of segments that are longer than the target duration; "" = there are none.
func (a *renditions) exceeded() string {
	target, longest := a.target.get(), time.Duration(0)
	for _, r := range a.source() {
		r.mu.Lock()
		for i, s := range r.segments {
			longest = max(longest, r.tracks[i].Time(s.Duration()))
		}
		r.mu.Unlock()
	}
	if target == 0 || longest.Round(time.Second) <= target {
		return ""
	}
	return fmt.Sprintf("a segment has %.1f s, but players were told that none is longer than %.0f s: "+
		"set the encoder to a constant key-frame interval of 2 s", longest.Seconds(), target.Seconds())
}
