package playback

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"weir/internal/cmaf"
	"weir/internal/endpoint"
	"weir/internal/media"
	"weir/internal/weir"
)

// muxed returns the tracks in the MPEG-TS segments of a rendition.
func (t *tracks) muxed(r rendition) media.Muxed {
	if r.Index().Track.Kind == cmaf.Audio {
		return media.Muxed{Audio: r.Track}
	}
	return media.Muxed{Video: r.Track, Audio: t.defaultAudio().Track}
}

// fitsTS reports whether MPEG-TS can carry the codecs of a rendition, with one timescale.
func fitsTS(r rendition) bool {
	index := r.Index()
	for k := range len(index.Changes) + 1 {
		track, _ := index.Coded(k)
		var err error
		if track.Kind == cmaf.Audio {
			_, err = cmaf.NewTS(nil, &track, cmaf.TSState{})
		} else {
			_, err = cmaf.NewTS(&track, nil, cmaf.TSState{})
		}
		if err != nil || track.Timescale != index.Track.Timescale {
			return false
		}
	}
	return true
}

// extraTS returns the durations of the last segments of a rendition, which have audio only.
func (t *tracks) extraTS(r rendition) []time.Duration {
	m := t.muxed(r)
	if m.Video == nil || m.Audio == nil || !r.Complete {
		return nil
	}
	return cmaf.TSExtra(m.Video.Index(), m.Audio.Index())
}

// transportStream answers with segment n of a rendition as MPEG-TS.
func (s *Server) transportStream(w *endpoint.Response, req *request, r rendition, n int) error {
	index := r.Index()
	var length time.Duration
	if count := len(index.Segments); n < count {
		length = index.Track.Time(index.Segments[n].Duration())
	} else if extra := req.title.extraTS(r); n-count < len(extra) {
		length = extra[n-count]
	} else {
		return weir.ErrNotFound()
	}
	file, err := s.renderTS(req.Context(), req.title.muxed(r), cmaf.TSAlone(index), n)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeTS)
	s.immutable(w, req, fmt.Sprintf("%s.ts %d", req.path, info.Size()))
	err = serveFile(w, req, file)
	s.countWatched(w, req, index.Track.Kind, length, info.Size())
	return err
}

// renderTS writes segment n to an unlinked temporary file: in memory it would take much space while
// a slow viewer reads it.
func (s *Server) renderTS(ctx context.Context, m media.Muxed, state cmaf.TSState, n int) (*os.File, error) {
	select {
	case s.rendering <- struct{}{}:
		defer func() { <-s.rendering }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	video, audio, err := m.Fragments(ctx, n)
	if err != nil {
		return nil, storageError(err)
	}
	videoTrack, audioTrack := m.Tracks(n)
	ts, err := cmaf.NewTS(videoTrack, audioTrack, state)
	if err != nil {
		return nil, weir.Wrap(weir.NotFound, err, "the codecs of the rendition are not supported in MPEG-TS; use index.m3u8")
	}
	file, err := os.CreateTemp(s.Dir, "weir-*.ts")
	if err != nil {
		return nil, spoolError(err)
	}
	if err := errors.Join(os.Remove(file.Name()), ts.Segment(file, video, audio)); err != nil {
		return nil, spoolError(errors.Join(err, file.Close()))
	}
	return file, nil
}

// spoolError returns an error of a temporary file with its kind.
func spoolError(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return weir.Wrap(weir.Full, err, "the disk of this server is full; use index.m3u8")
	}
	return err
}
