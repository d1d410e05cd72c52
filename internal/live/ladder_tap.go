package live

import (
	"slices"

	"weir/internal/cmaf"
)

// maxAudio is how much audio waits for the picture of a rung, in frames: some seconds.
const maxAudio = 500

// rung returns one by its name; nil = there is none.
func (l *ladder) rung(name string) *rung {
	if l == nil {
		return nil
	}
	i := slices.IndexFunc(l.rungs, func(r *rung) bool { return r.profile.Name == name })
	if i < 0 {
		return nil
	}
	return l.rungs[i]
}

// hold keeps what the encoder sends until the picture of the rung is as far. The caller
// has the lock of the session.
func (t *Tap) hold(f Tapped) {
	switch {
	case len(f.Tracks) > 0: // what waits is of the one before
		t.audio = nil
	case t.session.publisher.tracks[f.Track].Kind == cmaf.Video || len(t.audio) >= maxAudio:
	default:
		t.audio = append(t.audio, f)
	}
}

// announce tells readers what the rung is from now on: the tracks of the source, with its
// own picture in place of theirs.
func (r *rung) announce(source []cmaf.Track, position int, picture cmaf.Track) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	r.tracks, r.position = slices.Clone(source), position
	r.tracks[position] = picture
	for _, t := range s.taps {
		if t.rung == r {
			t.announce(r.tracks)
		}
	}
}

// share hands a frame of the rung to readers, after the audio that comes before it.
func (r *rung) share(track cmaf.Track, f sample) {
	at := track.Time(f.at)
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.taps {
		if t.rung != r {
			continue
		}
		ready := 0
		for ready < len(t.audio) && t.audio[ready].DTS <= at {
			t.add(t.audio[ready])
			ready++
		}
		t.audio = slices.Delete(t.audio, 0, ready)
		t.add(Tapped{Track: r.position, PTS: track.Time(f.at + int64(f.Offset)), DTS: at, Sync: f.Sync, Data: f.data})
	}
}
