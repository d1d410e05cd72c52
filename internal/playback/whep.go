package playback

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/weir"
)

const (
	// checkEvery is how often it is checked whether a viewer over WebRTC may still watch.
	checkEvery = 2 * time.Second
	// maxRounding is the maximum of PTS-DTS that is a rounding of the encoder. A larger one means
	// that there are B-frames.
	maxRounding = 5 * time.Millisecond
)

// WHEP returns the handler for viewers over WebRTC, who post their offers to /webrtc/<playbackId>;
// nil = there is no WebRTC.
func (s *Server) WHEP() http.Handler {
	if s.whep == nil {
		return nil
	}
	return s.whep
}

func (s *Server) newWHEP() *rtc.Endpoint {
	return &rtc.Endpoint{Open: s.watch, Route: rtc.EndpointPath + "{playbackId}", Log: s.Log, Observe: s.Observe}
}

// watch starts a WebRTC session for a viewer.
func (s *Server) watch(r *http.Request, id, offer string) (rtc.Session, error) {
	req := &request{Request: r, server: s, id: id, at: rtc.EndpointPath + id}
	if err := s.admit(req); err != nil {
		return nil, err
	}
	if !req.title.live() {
		return nil, weir.Errorf(weir.Unacceptable, "only live streams can be played over WebRTC; use /hls/%s/index.m3u8", id)
	}
	broadcast, ok := s.Live.Find(id)
	if !ok {
		return nil, errOffAir(req.title)
	}
	rendition, err := forBrowsers(broadcast.Master())
	if err != nil {
		return nil, err
	}
	if err := s.mayBeginView(req); err != nil {
		return nil, err
	}
	sender, err := s.RTC.Send(r.Context(), req.Address(), offer)
	if err != nil {
		return nil, err
	}
	s.views.Start(&req.title.Title, req.viewer())
	// The session outlives the request, and continues with a token if one is needed.
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	req.Request, req.broadcast = r.WithContext(ctx), broadcast
	if req.token != nil {
		req.text, req.inPath = req.token.Text, true
	}
	w := &whepSession{Sender: sender, rendition: rendition, server: s, request: req, end: end, over: make(chan struct{}), log: s.Log.With("stream", req.title.StreamID)}
	go w.run(ctx)
	s.countStale()
	return w, nil
}

// forBrowsers returns the rendition that is sent over WebRTC: the source, or the largest other one
// if browsers can't play the source.
func forBrowsers(m cmaf.Master) (name string, err error) {
	if len(m.Video) == 0 && len(m.Audio) == 0 {
		return "", weir.Errorf(weir.NotFound, "the stream has not started yet")
	}
	for _, r := range m.Video {
		if r.Name == weir.SourceProfile {
			err = sendableTracks([]cmaf.Track{r.Index.Track})
		}
	}
	if err == nil {
		return weir.SourceProfile, nil
	}
	limit := 0
	for _, r := range m.Video {
		size := r.Index.Track.Width * r.Index.Track.Height
		if r.Name != weir.SourceProfile && len(r.Index.Segments) > 0 && size > limit && sendableTracks([]cmaf.Track{r.Index.Track}) == nil {
			name, limit = r.Name, size
		}
	}
	if name != "" {
		return name, nil
	}
	return "", err
}

// sendableTracks returns an error if browsers can't play tracks over WebRTC.
func sendableTracks(tracks []cmaf.Track) error {
	for _, t := range tracks {
		switch {
		case t.Kind == cmaf.Video && !strings.HasPrefix(t.Codec, "avc"):
			return weir.Errorf(weir.Unacceptable, "the video of the stream is %s, and WebRTC playback needs H.264; use HLS", t.Codec)
		case t.Kind == cmaf.Video && t.Time(t.Delay) > maxRounding:
			return errReordered()
		}
	}
	return nil
}

func errReordered() error {
	return weir.Errorf(weir.Unacceptable, "the stream has B-frames, which browsers do not support over WebRTC; turn them off in the encoder, or use HLS")
}

// whepSession is the session of a viewer over WebRTC.
type whepSession struct {
	*rtc.Sender
	rendition string
	server    *Server
	request   *request
	log       *slog.Logger
	sent      atomic.Int64 // nanoseconds of media
	end       context.CancelCauseFunc
	over      chan struct{}
}

// End ends the session.
func (w *whepSession) End(cause error) { w.end(cause) }

// Done is closed when the session has ended.
func (w *whepSession) Done() <-chan struct{} { return w.over }

// run sends the stream until the session ends.
func (w *whepSession) run(ctx context.Context) {
	defer close(w.over)
	var watch sync.WaitGroup
	watch.Go(func() { w.check(ctx) })
	watch.Go(func() {
		select {
		case <-w.Sender.Done():
			w.end(w.Err())
		case <-ctx.Done():
		}
	})
	level := slog.LevelDebug // for viewers that never connect
	err := w.Connected(ctx)
	if err == nil {
		level = slog.LevelInfo
		err = w.send(ctx)
	}
	w.end(err)
	watch.Wait()
	w.Close()
	w.log.Log(context.WithoutCancel(ctx), level, "WebRTC viewer left", "reason", err, "watched", time.Duration(w.sent.Load()).Round(time.Second))
}

// check regularly checks whether the viewer may still watch, and counts what was watched.
func (w *whepSession) check(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	s, req, counted := w.server, w.request, time.Duration(0)
	who, of := req.viewer(), &req.title.Title // enter clears req.title if the viewer may not watch any more
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			switch err := s.admit(req); {
			case err == nil, ctx.Err() != nil:
			case weir.Retriable(err):
				w.log.WarnContext(ctx, "access check of a WebRTC viewer failed; trying again", "err", err)
			default:
				w.end(err)
			}
		}
		if sent := time.Duration(w.sent.Load()); sent > counted {
			s.views.Note(of, who, sent-counted)
			counted = sent
		}
	}
}

// send sends the frames of the stream, and returns why there are no more.
func (w *whepSession) send(ctx context.Context) error {
	tap := w.request.broadcast.Tap(live.TapOptions{Rendition: w.rendition, Audio: live.AudioOpus})
	if tap == nil {
		return weir.ErrNotFound()
	}
	defer tap.Close()
	var tracks []cmaf.Track
	var last time.Duration
	for {
		f, err := tap.Next(ctx)
		if errors.Is(err, io.EOF) {
			return errors.New("the stream has ended")
		}
		if err != nil {
			return err
		}
		if len(f.Tracks) > 0 {
			tracks, last = f.Tracks, 0
			if err := w.setTracks(tracks); err != nil {
				return err
			}
			continue
		}
		if err := w.writeFrame(tracks[f.Track], f); err != nil {
			return err
		}
		if last > 0 && f.PTS > last {
			w.sent.Add(int64(f.PTS - last))
		}
		last = max(last, f.PTS)
	}
}

// setTracks checks the tracks of the frames that follow.
func (w *whepSession) setTracks(tracks []cmaf.Track) error {
	if err := sendableTracks(tracks); err != nil {
		return err
	}
	for _, t := range tracks {
		if t.Kind == cmaf.Video {
			return w.SetVideo(t)
		}
	}
	return nil
}

func (w *whepSession) writeFrame(track cmaf.Track, f live.TapItem) error {
	switch {
	case track.Kind == cmaf.Video && f.PTS-f.DTS > maxRounding:
		return errReordered()
	case track.Kind == cmaf.Video:
		return w.WriteVideo(f.PTS, f.Sync, f.Data)
	case strings.EqualFold(track.Codec, "opus") && track.Channels <= 2:
		return w.WriteAudio(f.PTS, f.Data)
	}
	return nil
}
