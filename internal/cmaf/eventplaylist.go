package cmaf

import "time"

// EventPlaylist is the playlist of everything that there is of a track which grows. It
// is written segment by segment, so that a long one costs no more than a short one when
// something is added. Segments are "<n>.m4s" and init segments "init-<k>.mp4" beside it.
// Its zero value has no segments.
type EventPlaylist struct {
	list    playlist
	longest int64 // microseconds
	inits   int   // the one in force, and 1
	gaps    bool  // there are some
}

// Add appends segment n, which needs init segment k of that track.
func (e *EventPlaylist) Add(n int64, s Segment, k int, t Track) {
	e.list.track = t
	duration := e.list.duration(s)
	e.longest = max(e.longest, duration)
	if s.Discontinuity && len(e.list.text) > 0 {
		e.list.line("#EXT-X-DISCONTINUITY")
	}
	if e.inits != k+1 {
		e.inits = k + 1
		e.list.line(`#EXT-X-MAP:URI="init-%d.mp4"`, k)
	}
	e.list.date(s.Wall, t.Delay)
	if s.Gap() {
		e.gaps = true
		e.list.line("#EXT-X-GAP")
	}
	e.list.line("#EXTINF:%s,", inSeconds(duration))
	e.list.line("%d.m4s", n)
}

// Text returns the playlist as it is now. First is the number of its first segment, before
// which there were so many discontinuities; target is the least target duration.
func (e *EventPlaylist) Text(first, discontinuities int64, target time.Duration, ended bool) []byte {
	var p playlist
	p.head(PlaylistOptions{
		Type: Event, First: first, DiscontinuitySequence: discontinuities, Target: target, Gaps: e.gaps, Init: func(int64) string { return "" },
	}, []int64{e.longest})
	p.text = append(p.text, e.list.text...)
	if ended {
		p.line("#EXT-X-ENDLIST")
	}
	return p.text
}
