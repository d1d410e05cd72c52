package live

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/weir"
)

// When the disk of this node runs full, live streams give way in steps, so that nothing that was
// promised is lost: neither what is recorded nor the database. Each step includes those before it.
// Streams that are affected have an issue, and the log has a line for each change of the step.

// step is what the hub does about the free space.
type step int32

const (
	normal   step = iota
	scarce        // playlists are short, what they do not show is deleted at once, and nothing is recorded
	refusing      // new encoders are refused
	cutting       // one stream after the other loses all but the end of its playlists
	full          // nothing is written
)

// stepsBelow are fractions of --min-free: a step begins when less is free. They are far enough apart for
// each step to have an effect before the next one. Media leaves the last quarter to the database (see
// blob.ReserveAt).
var stepsBelow = [...]float64{scarce: 1, refusing: 0.75, cutting: 0.5, full: 0.25}

// stepNames are what the steps do, for the log.
var stepNames = [...]string{
	scarce:   "playlists are shorter and nothing is recorded",
	refusing: "new encoders are refused too",
	cutting:  "playlists are cut to their last segments, stream by stream",
	full:     "the media of encoders is dropped",
}

const (
	// spaceEvery is how often the free space is read, which is one system call. A hundred streams of
	// 20 Mbit/s write 50 MB meanwhile.
	spaceEvery = 200 * time.Millisecond
	// A step ends when backAbove times its limit is free for calmFor. Otherwise what it has deleted
	// would end it, and it would begin again.
	backAbove = 1.25
	calmFor   = 30 * time.Second

	// shortWindow is the duration of short playlists: six segments, of which players hold back three.
	// HLS demands three segments, also if they are longer.
	shortWindow   = 6 * SegmentTarget
	shortSegments = 3
	// leastWindow is the duration of playlists that are cut: a player loads one of two segments while
	// the next one is written.
	leastWindow = 2 * SegmentTarget
)

// errDiskFull is why nothing is written.
var errDiskFull = weir.Errorf(weir.Full, "the disk of this server is full")

// Space is the free space of a disk, in bytes.
type Space struct {
	Free int64
	Keep int64 // how much should be free: --min-free
}

// below reports whether less than a fraction of Keep is free.
func (s Space) below(fraction float64) bool { return float64(s.Free) < fraction*float64(s.Keep) }

// step returns the step that the free space demands, if the limits are multiplied by a factor.
func (s Space) step(factor float64) step {
	found := normal
	for next := scarce; next <= full && s.below(factor*stepsBelow[next]); next++ {
		found = next
	}
	return found
}

// space is the step of a hub. One goroutine updates it.
type space struct {
	current atomic.Int32
	calm    time.Time // since when the step need not be as high; zero = it must
}

func (s *space) step() step { return step(s.current.Load()) }

// update returns the step for the free space.
func (s *space) update(left Space, now time.Time) step {
	current, worse, better := s.step(), left.step(1), left.step(backAbove)
	switch {
	case worse > current:
		current, s.calm = worse, time.Time{}
	case better >= current:
		s.calm = time.Time{}
	case current == full: // nothing is written, so it can't be full again at once
		current = better
	case s.calm.IsZero():
		s.calm = now
	case now.Sub(s.calm) >= calmFor:
		current, s.calm = better, time.Time{}
	}
	s.current.Store(int32(current))
	return current
}

// checkSpace does what the free space demands.
func (h *Hub) checkSpace(now time.Time) {
	if h.o.Space == nil {
		return
	}
	left, err := h.o.Space()
	if err != nil {
		h.spaceUnknown.Do(func() { h.o.Log.Warn("the free space of the disk can't be read", "err", err) })
		return
	}
	before := h.space.step()
	current := h.space.update(left, now)
	switch {
	case current > before:
		h.o.Log.Warn("disk space is low", "now", stepNames[current], "free", left.Free, "minFree", left.Keep)
	case current < before:
		h.o.Log.Info("more disk space is free", "now", cmp.Or(stepNames[current], "no restrictions"), "free", left.Free, "minFree", left.Keep)
	}
	if before == normal && current == normal {
		return
	}
	h.mu.Lock()
	sessions := h.withEnded()
	h.mu.Unlock()
	sessions = slices.DeleteFunc(sessions, func(s *session) bool { return !s.shrink(func(r *renditions) { r.applyStep(current) }) })
	// When playlists become shorter there may be space enough, so recordings go on until the next check.
	if before >= scarce && left.below(stepsBelow[scarce]) {
		for _, s := range sessions {
			s.endRecording(noDiskSpace)
		}
	}
	if current >= cutting && left.below(stepsBelow[cutting]) {
		cutOne(sessions)
	}
}

const (
	// noDiskSpace is why recordings end when the disk is nearly full.
	noDiskSpace = "the server has not enough disk space"
	// endedBefore is why there is no recording any more after a restart.
	endedBefore = "the recording has ended before a restart of the server, for want of space"
)

// shrink lets a session take less space; false = it is over and becomes an asset, so its files are
// being read.
func (s *session) shrink(do func(*renditions)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped && s.info.Recorded() {
		return false
	}
	do(&s.renditions)
	return true
}

// checkDisk returns an error if an encoder can't begin a session because the disk is nearly full. The
// encoders of open sessions may reconnect.
func (h *Hub) checkDisk(streamID string) error {
	if !h.RefusesNew() {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[streamID] != nil {
		return nil
	}
	return weir.Errorf(weir.Full, "this server has not enough disk space for another stream; try again later")
}

// RefusesNew reports whether encoders that begin a session are refused, because the disk is nearly
// full.
func (h *Hub) RefusesNew() bool { return h.space.step() >= refusing }

// cutOne cuts the playlists of the stream whose viewers lose least: one whose encoder is away,
// otherwise one that is not to be recorded, and of those the one that began first. Recordings stay.
func cutOne(sessions []*session) {
	rank := func(s *session) int {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case s.conn.publisher == nil:
			return 0
		case !s.info.Recorded():
			return 1
		}
		return 2
	}
	var first *session
	for _, s := range sessions {
		if s.renditions.limit.size.Load() == cutSize {
			continue
		}
		if first == nil || cmp.Or(cmp.Compare(rank(s), rank(first)), cmp.Compare(s.info.CreatedAt, first.info.CreatedAt)) < 0 {
			first = s
		}
	}
	if first != nil {
		first.log.Warn("the playlists of the stream are cut, because the disk is nearly full")
		first.shrink(func(r *renditions) { r.limitPlaylists(cutSize) })
	}
}

// How much playlists show.
const (
	wholeSize int32 = iota
	shortSize
	cutSize
)

// diskLimit limits what a session keeps on the disk.
type diskLimit struct {
	size    atomic.Int32 // of playlists
	stopped atomic.Bool  // nothing may be written
}

// applyStep limits a session as a step demands.
func (a *renditions) applyStep(current step) {
	a.limit.stopped.Store(current == full)
	size := wholeSize
	switch {
	case current >= cutting:
		size = max(shortSize, a.limit.size.Load())
	case current >= scarce:
		size = shortSize
	}
	a.limitPlaylists(size)
}

// limitPlaylists changes how much playlists show. It deletes what they do not show any more; larger ones
// grow with the next segments.
func (a *renditions) limitPlaylists(size int32) {
	if a.limit.size.Swap(size) >= size {
		return
	}
	for _, r := range a.all() {
		if err := r.shorten(); err != nil {
			a.log.Warn("old segments could not be deleted", "err", err)
		}
	}
}

// issues returns what viewers miss because of the disk, or would not expect; dropping = what the encoder sends can't be
// written. The caller holds the session's lock.
func (a *renditions) issues(dropping bool) []string {
	var issues []string
	size := a.limit.size.Load()
	switch {
	case dropping:
		issues = append(issues, "the disk of the server is full: the media of the encoder is dropped until there is space")
	case size == cutSize:
		issues = append(issues, "the server has hardly any disk space: playlists show the last segments only")
	case size == shortSize:
		issues = append(issues, "the server has little disk space: playlists are shorter than usual")
	}
	if issue := a.exceeded(); issue != "" {
		issues = append(issues, issue)
	}
	if a.full {
		issues = append(issues, cmp.Or(a.unrecorded, endedBefore)+": the stream continues without recording")
	}
	return issues
}

// length returns how much playlists show now. The caller holds mu.
func (r *rendition) length() time.Duration {
	switch r.limit.size.Load() {
	case shortSize:
		return min(window, max(shortWindow, shortSegments*r.longest))
	case cutSize:
		return leastWindow
	}
	return window
}

// shorten drops segments that playlists do not show any more.
func (r *rendition) shorten() error {
	r.mu.Lock()
	before := r.first
	r.drop(r.length())
	if r.first > before {
		r.publish()
	}
	needed := r.needed()
	r.mu.Unlock()
	return r.trim(needed)
}

// needed returns the number on disk of the first segment that players may request. One may be a
// whole playlist behind; if the disk is nearly full, that player must skip some. The caller holds mu.
func (r *rendition) needed() int64 {
	if r.limit.size.Load() != wholeSize {
		return r.first
	}
	return r.first - int64(len(r.segments))
}

// trim deletes the segments before a number on disk, unless they are recorded.
func (r *rendition) trim(before int64) error {
	if r.record.Load() || before <= 0 {
		return nil
	}
	return r.recorder.Trim(before)
}

// stopWriting drops what can't be written, because the disk is full. The encoder stays: the next frame
// that players can begin with is tried again. The caller holds the session's lock.
func (s *session) stopWriting(why error) {
	if !s.conn.dropping {
		s.log.Warn("the media of the encoder is dropped until there is disk space", "err", why)
		s.conn.dropping, s.conn.written = true, s.renditions.parts()
	}
	if s.conn.muxer == nil {
		return
	}
	for _, r := range s.renditions.source() {
		// The parts that players have seen stay. If the segment can't end now, it does when there is space.
		_ = r.EndSegment()
		r.setDiscontinuity(true)
	}
	s.audio.stopAAC()
	s.conn.muxer = nil
	s.ladder.sourceTimeline().pause()
}

// noteWritten notes that the media of the encoder is written again, if it is. The caller holds the
// session's lock.
func (s *session) noteWritten() {
	if s.conn.dropping && s.renditions.parts() != s.conn.written {
		s.conn.dropping = false
		s.log.Info("the media of the encoder is written again")
	}
}

// parts returns how many parts of the source were written.
func (a *renditions) parts() (sum uint32) {
	for _, r := range a.source() {
		r.mu.Lock()
		sum += r.parts
		r.mu.Unlock()
	}
	return sum
}
