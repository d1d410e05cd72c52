package playback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// mux is what becomes MPEG-TS: a rendition of video and the audio that belongs to it,
// or a rendition of audio alone.
type mux struct {
	picture, audio *rendition // one may be nil
}

// muxed returns what is in the MPEG-TS segments of a rendition.
func (t *tracks) muxed(r rendition) mux {
	if r.Index().Track.Kind == cmaf.Audio {
		return mux{audio: &r}
	}
	if audio, ok := t.defaultAudio(); ok {
		return mux{picture: &r, audio: &audio}
	}
	return mux{picture: &r}
}

// fitsTS reports whether MPEG-TS has a place for the codec of a rendition. If the codec
// changes, the clock of the track must not.
func fitsTS(r rendition) bool {
	index := r.Index()
	for k := range len(index.Changes) + 1 {
		track, _ := index.Coded(k)
		var err error
		if track.Kind == cmaf.Audio {
			_, err = cmaf.NewTS(nil, &track)
		} else {
			_, err = cmaf.NewTS(&track, nil)
		}
		if err != nil || track.Timescale != index.Track.Timescale {
			return false
		}
	}
	return true
}

// extra returns the lengths of the segments in which the picture is over and there is
// only audio.
func (m mux) extra() (lengths []time.Duration) {
	if m.picture == nil || m.audio == nil || !m.picture.Complete {
		return nil
	}
	audio := m.audio.Index()
	first, _ := m.audioOf(len(m.picture.Index().Segments))
	for _, segment := range audio.Segments[first:] {
		lengths = append(lengths, audio.Track.Time(segment.Duration()))
	}
	return lengths
}

// audioOf returns which segments of audio belong to segment n, from first up to end:
// those that start in it. Audio before the first picture is in the first segment.
func (m mux) audioOf(n int) (first, end int) {
	picture, audio := m.picture.Index(), m.audio.Index()
	before := func(ticks int64) int {
		i, _ := slices.BinarySearchFunc(audio.Segments, picture.Track.Time(ticks), func(s cmaf.Segment, t time.Duration) int {
			return cmp.Compare(audio.Track.Time(s.Start()), t)
		})
		return i
	}
	if count := len(picture.Segments); n >= count { // audio alone
		first = min(before(picture.End())+n-count, len(audio.Segments))
		return first, min(first+1, len(audio.Segments))
	}
	if n > 0 {
		first = before(picture.Segments[n].Start())
	}
	return first, max(first, before(picture.Segments[n].End()))
}

// length returns how long segment n is, and whether there is one.
func (m mux) length(n int) (time.Duration, bool) {
	main := m.picture
	if main == nil {
		main = m.audio
	}
	index := main.Index()
	if n < len(index.Segments) {
		return index.Track.Time(index.Segments[n].Duration()), true
	}
	extra := m.extra()
	if n -= len(index.Segments); n < len(extra) {
		return extra[n], true
	}
	return 0, false
}

// transportStream answers with a segment as MPEG-TS, which is rendered now.
func (s *Server) transportStream(w *answer, v *visit, m mux, n int) error {
	length, ok := m.length(n)
	if !ok {
		return weir.ErrNotFound()
	}
	file, err := s.render(v.Context(), m, n)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeTS)
	s.immutable(w, v, fmt.Sprintf("%s.ts %d", v.path, info.Size()))
	serveFile(w, v, file)
	kind := cmaf.Audio
	if m.picture != nil {
		kind = cmaf.Video
	}
	s.watched(w, v, kind, length, info.Size())
	return nil
}

// render writes segment n into a file without a name: a viewer may take long to read
// it, and memory is dear.
func (s *Server) render(ctx context.Context, m mux, n int) (file *os.File, err error) {
	select {
	case s.rendering <- struct{}{}:
		defer func() { <-s.rendering }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var picture, audio *cmaf.Track
	var frames, packets []cmaf.Fragment
	var state cmaf.TSState
	first, end := n, n+1
	if m.picture != nil {
		index := m.picture.Index()
		picture, state = new(index.TrackOf(n)), cmaf.TSAlone(index)
		if n < len(index.Segments) {
			if frames, err = m.picture.Fragments(ctx, n); err != nil {
				return nil, storageError(err)
			}
		}
	}
	if m.audio != nil {
		index := m.audio.Index()
		if m.picture == nil {
			state = cmaf.TSAlone(index)
		} else {
			first, end = m.audioOf(n)
		}
		audio = new(index.TrackOf(first))
		for i := first; i < end; i++ {
			more, err := m.audio.Fragments(ctx, i)
			if err != nil {
				return nil, storageError(err)
			}
			packets = append(packets, more...)
		}
	}
	ts, err := cmaf.RestoreTS(picture, audio, state)
	if err != nil {
		return nil, weir.Wrap(weir.NotFound, err, "the rendition has no form that MPEG-TS can carry; use index.m3u8")
	}
	if file, err = os.CreateTemp(s.Dir, "weir-*.ts"); err != nil {
		return nil, err
	}
	if err := errors.Join(os.Remove(file.Name()), ts.Segment(file, frames, packets)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
