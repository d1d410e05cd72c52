package live

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// The tracks of a source, as viewers see them.
const (
	videoName = media.RecordedVideo
	audioName = media.RecordedAudio
)

// renditions holds what viewers can fetch of a session: the tracks of the source, and the rungs of
// the ladder.
type renditions struct {
	dir        string // folder of the session on this node
	log        *slog.Logger
	record     bool                    // the source is kept, not only its last minute
	created    time.Time               // time 0 of the timeline
	lease      store.OnAir             // has the numbers of the first segment
	after      store.OnAir             // has the numbers to continue with after segments were lost; zero = none were
	earlier    *earlierPeriods         // nil = no other node carried the session before
	full       bool                    // recording has ended; guarded by the session
	unrecorded string                  // why; "" = it ended before a restart
	limit      diskLimit               // of the disk
	published  func(lag time.Duration) // see Options
	partTarget time.Duration           // maximum duration of a part; 0 = playlists have none
	target     targetDuration          // of all playlists

	// mu guards which renditions there are. It is never held for long, so that no viewer waits
	// for the disk. The session's lock is also held when video or audio changes.
	mu    sync.RWMutex
	video *rendition // nil = there was none so far
	audio *rendition
	rungs []*rendition
}

// recover opens the tracks of the source that are on disk, and returns where they end on the
// timeline.
func (a *renditions) recover() (end time.Duration, err error) {
	for name, to := range map[string]**rendition{videoName: &a.video, audioName: &a.audio} {
		recorder, err := media.Recover(filepath.Join(a.dir, name))
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err == nil {
			*to, err = a.newSource(name, recorder)
		}
		if err != nil {
			return 0, fmt.Errorf("recover %s of session %s: %w", name, filepath.Base(a.dir), err)
		}
		end = max(end, (*to).end())
	}
	for _, r := range a.source() {
		if a.record && (r.recorder.Ended() || r.recorder.HasTrimmed()) {
			a.full = true // it has ended before the restart
		}
	}
	for _, r := range a.source() {
		if a.record && a.full {
			a.protect(r) // a power cut may have lost the end of one track
		}
		r.record.Store(a.record && !a.full)
	}
	return end, a.skipLost()
}

// skipLost makes sure that no segment number is used twice. A power cut may have deleted segments
// of a stream that is not recorded after players saw them. A session that was only killed has all
// segments that it reported to the store in one track, and all but the last in the other, unless
// that track began later: then numbers are skipped without need.
func (a *renditions) skipLost() error {
	newest, oldest := a.lease.Sequence, a.lease.NextSequence
	for _, r := range a.source() {
		n, _ := r.totals()
		newest, oldest = max(newest, n), min(oldest, n)
	}
	if a.record || newest >= a.lease.NextSequence && oldest >= a.lease.NextSequence-1 {
		return nil
	}
	a.log.Warn("segments that were not synced to disk are lost", "up to", a.lease.NextSequence-1)
	a.after = a.lease
	a.after.SkipUnreported(a.lease.SeenAt.Time().Add(a.lease.Silent))
	for _, r := range a.source() {
		if err := r.skip(a.after.NextSequence-r.base, a.after.NextDiscontinuities); err != nil {
			return err
		}
	}
	return nil
}

// newSource returns a track of the source.
func (a *renditions) newSource(name string, recorder *media.Recorder) (*rendition, error) {
	r, err := newRendition(name, recorder, a.lease.Sequence, a.lease.Discontinuities, a.created, a.record && !a.full)
	if err != nil {
		return nil, err
	}
	a.adopt(r)
	if a.record && a.full {
		a.protect(r)
	}
	if a.earlier != nil {
		r.earlier = a.earlier
		r.setDiscontinuity(true)
	}
	if to := a.after.NextSequence - r.base; recorder.Next() < to {
		err = r.skip(to, a.after.NextDiscontinuities)
	}
	return r, err
}

// setTrack prepares a rendition of the source for a track: it creates or changes it. The caller
// holds the session's lock.
func (a *renditions) setTrack(name string, to **rendition, track cmaf.Track) error {
	if *to != nil {
		if err := (*to).EndSegment(); err != nil { // there is one if the disk was full
			return err
		}
		return (*to).change(track)
	}
	recorder, err := media.Record(filepath.Join(a.dir, name), track)
	if err != nil {
		return err
	}
	r, err := a.newSource(name, recorder)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	*to = r
	return nil
}

// adopt gives a rendition what it shares with the others.
func (a *renditions) adopt(r *rendition) {
	r.limit, r.published, r.partTarget, r.target = &a.limit, a.published, a.partTarget, &a.target
	if i := slices.IndexFunc(r.segments, func(s cmaf.Segment) bool { return !s.Gap() }); i >= 0 {
		a.target.decide(r.tracks[i].Time(r.segments[i].Duration()))
	}
}

// addRung adds a rung of the ladder.
func (a *renditions) addRung(profile weir.Profile, recorder *media.Recorder) (*rendition, error) {
	r, err := newRendition(profile.Name, recorder, a.lease.Sequence, a.lease.Discontinuities, a.created, false)
	if err != nil {
		return nil, err
	}
	r.bitrate, r.earlier = profile.Bitrate, a.earlier
	a.adopt(r)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rungs = append(a.rungs, r)
	return r, nil
}

// source returns the tracks of the source, video first. The caller holds the session's lock or mu.
func (a *renditions) source() []*rendition {
	return slices.DeleteFunc([]*rendition{a.video, a.audio}, func(r *rendition) bool { return r == nil })
}

// sourceVideo returns the video of the source; nil = there was none so far.
func (a *renditions) sourceVideo() *rendition {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.video
}

// all returns the source and the rungs.
func (a *renditions) all() []*rendition {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return append(a.source(), a.rungs...)
}

// hasMedia reports whether viewers can see something.
func (a *renditions) hasMedia() bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.ContainsFunc(a.source(), func(r *rendition) bool { return r.progress.Load() != nil })
}

// endRecording stops keeping the source; the recording so far is kept. The caller holds the
// session's lock.
func (a *renditions) endRecording(why string) {
	if a.full || !a.record {
		return
	}
	a.full, a.unrecorded = true, why
	for _, r := range a.source() {
		a.protect(r)
		r.record.Store(false)
	}
	a.log.Warn("the stream continues without recording", "reason", why)
}

// protect ends the recording of a track.
func (a *renditions) protect(r *rendition) {
	if err := r.recorder.Protect(); err != nil {
		a.log.Warn("the end of the recording could not be saved; a restart may move it", "err", err)
	}
}

// neverRecord says why nothing of the session is recorded although recording is on.
func (a *renditions) neverRecord(why string) {
	a.full, a.unrecorded = true, why
	a.log.Warn("the stream is not recorded", "reason", why)
}

// each calls do for every recorder.
func (a *renditions) each(do func(*media.Recorder) error) error {
	var failed error
	for _, r := range a.all() {
		failed = errors.Join(failed, do(r.recorder))
	}
	return failed
}
