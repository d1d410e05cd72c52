package cmaf

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"weir/internal/codec"
	"weir/internal/weir"
)

// Change is a change of a track's codec configuration, because its encoder reconnected with other
// settings. The segments from First on need another init segment, and their times are in ticks of
// its timescale.
type Change struct {
	First int   `json:"first"` // the number of the segment
	Track Track `json:"track"`
}

// InitOf returns which init segment segment n needs: 0 is that of the track itself, k is that of
// change k-1.
func (t TrackIndex) InitOf(n int) int {
	k := len(t.Changes)
	for k > 0 && t.Changes[k-1].First > n {
		k--
	}
	return k
}

// Coded returns the track as init segment k describes it; ok is false if there is none.
func (t TrackIndex) Coded(k int) (track Track, ok bool) {
	switch {
	case k == 0:
		return t.Track, true
	case k < 0 || k > len(t.Changes):
		return Track{}, false
	}
	return t.Changes[k-1].Track, true
}

// TrackOf returns the track as the init segment of segment n describes it.
func (t TrackIndex) TrackOf(n int) Track {
	track, _ := t.Coded(t.InitOf(n))
	return track
}

// Configs returns the configurations of all segments.
func (t TrackIndex) Configs() []codec.Config {
	configs := []codec.Config{t.Track.Config()}
	for _, c := range t.Changes {
		configs = append(configs, c.Track.Config())
	}
	return configs
}

// Between returns which segments have frames between two times, from first up to end.
func (t TrackIndex) Between(from, to time.Duration) (first, end int) {
	for n, s := range t.Segments {
		track := t.TrackOf(n)
		if track.Time(s.End()) <= from && first == n {
			first = n + 1
		}
		if track.Time(s.Start()) < to {
			end = n + 1
		}
	}
	return min(first, end), end
}

// stretch is a run of segments of a track without a gap.
type stretch struct {
	track, first, end int           // segments of which track
	from, to          time.Duration // on the timeline
	gaps              time.Duration // all gaps before it
}

// stretches returns the stretches of all tracks by their start, and how much of the timeline they
// fill together. A gap is where no track has a segment.
func stretches(tracks []TrackIndex) (all []stretch, filled time.Duration) {
	for i, t := range tracks {
		for n, s := range t.Segments {
			if len(s.Parts) == 0 {
				continue
			}
			coded := t.TrackOf(n)
			from, to := coded.Time(s.Start()), coded.Time(s.ShownUntil())
			if n == 0 {
				from += coded.Time(coded.Priming)
			}
			if last := len(all) - 1; last >= 0 && all[last].track == i && !s.Discontinuity {
				all[last].end, all[last].to = n+1, to
				continue
			}
			all = append(all, stretch{track: i, first: n, end: n + 1, from: from, to: to})
		}
	}
	slices.SortStableFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	var reached, gaps time.Duration
	for i := range all {
		r := &all[i]
		if i == 0 {
			filled, reached = -r.from, r.from
		}
		gaps += max(0, r.from-reached)
		r.gaps, reached = gaps, max(reached, r.to)
	}
	return all, filled + reached - gaps
}

// ShownUntil returns when the last frame of a segment ends, in ticks. That is after the segment's
// end if the connection was lost after a frame and before the B-frames that are shown before it.
func (s Segment) ShownUntil() int64 {
	end := s.End()
	for _, p := range s.Parts {
		at := p.Start
		for _, sample := range p.Samples {
			end = max(end, at+int64(sample.Offset)+int64(sample.Duration))
			at += int64(sample.Duration)
		}
	}
	return end
}

// Played returns the duration of a presentation without the gaps between connections of the
// encoder.
func Played(tracks []TrackIndex) time.Duration {
	_, filled := stretches(tracks)
	return filled
}

// closeGaps returns tracks on a timeline without gaps: all tracks move forward together by the
// duration of each gap.
func closeGaps(tracks []TrackIndex) []TrackIndex {
	all, _ := stretches(tracks)
	if len(all) <= len(tracks) {
		return tracks
	}
	closed := slices.Clone(tracks)
	for i := range closed {
		closed[i].Segments = slices.Clone(closed[i].Segments)
	}
	for _, r := range all {
		t := &closed[r.track]
		for n := r.first; n < r.end; n++ {
			s := &t.Segments[n]
			s.Parts = slices.Clone(s.Parts)
			by := t.TrackOf(n).Ticks(r.gaps)
			for p := range s.Parts {
				s.Parts[p].Start -= by
			}
		}
	}
	return closed
}

// InBand returns the parameter sets that must precede each sync sample of segment n so that it can
// be decoded with the init segment of the track; see inBand.
func (t TrackIndex) InBand(n int) ([]byte, error) {
	sets, err := t.inBand()
	if err != nil {
		return nil, err
	}
	return sets[t.InitOf(n)], nil
}

// inBand returns, for each init segment of a track, the parameter sets that must precede its sync
// samples in a file of the whole track. There are none up to the first change. A file has one
// sample entry, so it is an error if the codec or the size of frames changes.
func (t TrackIndex) inBand() ([][]byte, error) {
	sets := make([][]byte, len(t.Changes)+1)
	changed := false
	for k, c := range t.Changes {
		changed = changed || !bytes.Equal(c.Track.Entry, t.Track.Entry)
		if c.Track.Timescale != t.Track.Timescale || changed && !sameForm(c.Track, t.Track) {
			return nil, weir.Errorf(weir.Invalid, "there is no MP4 file of this recording: its %s changes from %s to %s, and an MP4 file can have only one of them; play index.m3u8",
				t.Track.Kind, t.Track.form(), c.Track.form())
		}
		if !changed {
			continue
		}
		parameters, err := c.Track.Config().ParameterSets()
		if err != nil {
			return nil, err
		}
		sets[k+1] = parameters.Prefixed()
	}
	return sets, nil
}

// oneEntry returns a sample entry with the parameter sets of all segments of a track; ok is false if
// there is none, because sets with the same id differ.
func (t TrackIndex) oneEntry() (entry []byte, ok bool) {
	changed := false
	for _, c := range t.Changes {
		if changed = changed || !bytes.Equal(c.Track.Entry, t.Track.Entry); c.Track.Timescale != t.Track.Timescale || !sameForm(c.Track, t.Track) {
			return nil, false
		}
	}
	if !changed {
		return t.Track.Entry, true
	}
	record, ok := codec.Merge(t.Configs()...)
	if !ok {
		return nil, false
	}
	track, ok := t.Track.WithRecord(record)
	return track.Entry, ok
}

// OneCoding returns a track whose segments share one init segment, which has the parameter sets of all of
// them; or the track as it is if there is none. ffmpeg reads only the first init segment of a playlist.
func (t TrackIndex) OneCoding() TrackIndex {
	for _, c := range t.Changes {
		if c.Track.Delay != t.Track.Delay {
			return t
		}
	}
	if entry, ok := t.oneEntry(); ok {
		t.Track.Entry, t.Changes = entry, nil
	}
	return t
}

// WithRecord returns a video track with another configuration record of the same codec; ok is false if its
// sample entry can't be read.
func (t Track) WithRecord(record []byte) (_ Track, ok bool) {
	const fields = 8 + 78 // before the boxes
	old, _, ok := nextBox(t.Entry)
	if !ok || t.Kind != Video || len(t.Entry) < fields {
		return t, false
	}
	name, _ := codecOf(old.name)
	w := new(boxWriter)
	w.container(old.name, func() {
		w.data = append(w.data, t.Entry[8:fields]...)
		for rest := entryBoxes(t.Kind, old.body); len(rest) > 0 && ok; {
			var b foreignBox
			if b, rest, ok = nextBox(rest); b.name == name {
				w.box(rawBox(name, record))
			} else {
				w.data = append(w.data, b.whole...)
			}
		}
	})
	t.Entry, t.Codec = w.data, codec.RFC6381(old.name, record)
	return t, ok
}

// sameForm reports whether two tracks differ only in parameter sets, which samples can carry.
func sameForm(a, b Track) bool {
	if a.Kind != Video || a.Width != b.Width || a.Height != b.Height || len(a.Entry) < 8 || len(b.Entry) < 8 {
		return false
	}
	one, err := a.Config().ParameterSets()
	other, otherErr := b.Config().ParameterSets()
	return err == nil && otherErr == nil && bytes.Equal(a.Entry[4:8], b.Entry[4:8]) && one.LengthSize == other.LengthSize
}

// form describes a track in an error.
func (t Track) form() string {
	if t.Kind == Video {
		return fmt.Sprintf("%s in %d x %d", t.Codec, t.Width, t.Height)
	}
	return fmt.Sprintf("%s at %d Hz", t.Codec, t.SampleRate)
}
