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
	// checkEvery is how often it is looked whether a viewer over WebRTC may still watch.
	checkEvery = 2 * time.Second
	// reordered is from how long before it is shown a frame is decoded only with B-frames;
	// below it are the roundings of encoders.
	reordered = 5 * time.Millisecond
)

// Why a viewing over WebRTC ends.
var (
	errLeft = errors.New("the viewer left")
	errStop = errors.New("shutting down")
)

// WHEP returns who answers viewers over WebRTC, who post their offers to
// /webrtc/<playbackId>; nil = there is no WebRTC here.
func (s *Server) WHEP() http.Handler {
	if s.whep == nil {
		return nil
	}
	return s.whep
}

func (s *Server) newWHEP() *rtc.Endpoint {
	return &rtc.Endpoint{Open: s.watch, Route: rtc.EndpointPath + "{playbackId}", Log: s.Log, Observe: s.Observe}
}

// watch lets a viewer watch a stream over WebRTC.
func (s *Server) watch(r *http.Request, id, offer string) (rtc.Session, error) {
	v := &visit{Request: r, id: id, at: rtc.EndpointPath + id}
	if err := s.enter(v); err != nil {
		return nil, err
	}
	if !v.title.live() {
		return nil, weir.Errorf(weir.Unacceptable, "only live streams are sent over WebRTC; use /hls/%s/index.m3u8", id)
	}
	broadcast, ok := s.Live.Find(id)
	if !ok {
		return nil, errOffAir(v.title)
	}
	rendition, err := forBrowsers(broadcast.Master())
	if err != nil {
		return nil, err
	}
	sender, err := s.RTC.Send(r.Context(), weir.ClientAddr(r.RemoteAddr, r.Header.Values("X-Forwarded-For"), s.TrustedProxies), offer)
	if err != nil {
		return nil, err
	}
	s.views.begin(v, s.viewer(v))
	// The viewing outlives the request, and goes on with a token if one is needed.
	ctx, end := context.WithCancelCause(context.WithoutCancel(r.Context()))
	v.Request, v.broadcast = r.WithContext(ctx), broadcast
	if v.token != nil {
		v.text, v.inPath = v.token.text, true
	}
	w := &watcher{Sender: sender, rendition: rendition, server: s, visit: v, end: end, over: make(chan struct{}), log: s.Log.With("stream", v.title.streamID)}
	go w.run(ctx)
	return w, nil
}

// forBrowsers returns the rendition that is sent over WebRTC: the source, or the largest
// other one if browsers don't show the source.
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

// sendableTracks says why browsers don't show tracks over WebRTC, if so.
func sendableTracks(tracks []cmaf.Track) error {
	for _, t := range tracks {
		switch {
		case t.Kind == cmaf.Video && !isH264(t):
			return weir.Errorf(weir.Unacceptable, "the pictures of the stream are in %s, and only H.264 is sent over WebRTC; use HLS", t.Codec)
		case t.Kind == cmaf.Video && t.Time(t.Delay) > reordered:
			return errReordered()
		}
	}
	return nil
}

func errReordered() error {
	return weir.Errorf(weir.Unacceptable, "the stream has B-frames, which browsers don't show over WebRTC; turn them off in the encoder, or use HLS")
}

func isH264(t cmaf.Track) bool { return strings.HasPrefix(t.Codec, "avc") }

func isOpus(t cmaf.Track) bool { return strings.EqualFold(t.Codec, "opus") && t.Channels <= 2 }

// watcher is one viewer over WebRTC.
type watcher struct {
	*rtc.Sender
	rendition string // that is sent
	server    *Server
	visit     *visit
	log       *slog.Logger
	sent      atomic.Int64 // nanoseconds of media
	end       context.CancelCauseFunc
	over      chan struct{}
}

// Leave ends the viewing because the viewer says so.
func (w *watcher) Leave() { w.end(errLeft) }

// Stop ends it because this server does.
func (w *watcher) Stop() { w.end(errStop) }

// Done is closed when nothing of it is left.
func (w *watcher) Done() <-chan struct{} { return w.over }

// run sends the stream until somebody has enough.
func (w *watcher) run(ctx context.Context) {
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
	level := slog.LevelDebug // who never came fills no log
	err := w.Connected(ctx)
	if err == nil {
		level = slog.LevelInfo
		err = w.send(ctx)
	}
	w.end(err)
	watch.Wait()
	w.Close()
	w.log.Log(context.WithoutCancel(ctx), level, "viewer over WebRTC left", "reason", err, "watched", time.Duration(w.sent.Load()).Round(time.Second))
}

// check looks now and then whether the viewer may still watch, and counts what was
// watched.
func (w *watcher) check(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	s, v, counted := w.server, w.visit, time.Duration(0)
	who, of := s.viewer(v), &v.title.content // which is gone from the visit when it may not go on
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			switch err := s.enter(v); {
			case err == nil, ctx.Err() != nil:
			case weir.Retriable(err):
				w.log.WarnContext(ctx, "it could not be looked whether a viewer may watch; it is tried again", "err", err)
			default:
				w.end(err)
			}
		}
		if sent := time.Duration(w.sent.Load()); sent > counted {
			s.views.note(of, who, new(sent-counted), time.Now())
			counted = sent
		}
	}
}

// send sends the frames of the stream, and returns why there are no more.
func (w *watcher) send(ctx context.Context) error {
	tap := w.visit.broadcast.Tap(live.TapOptions{Rendition: w.rendition, Audio: live.AudioOpus})
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
			if err := w.begin(tracks); err != nil {
				return err
			}
			continue
		}
		if err := w.frame(tracks[f.Track], f); err != nil {
			return err
		}
		if last > 0 && f.PTS > last {
			w.sent.Add(int64(f.PTS - last))
		}
		last = max(last, f.PTS)
	}
}

// begin looks at what comes from here on.
func (w *watcher) begin(tracks []cmaf.Track) error {
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

func (w *watcher) frame(track cmaf.Track, f live.Tapped) error {
	switch {
	case track.Kind == cmaf.Video && f.PTS-f.DTS > reordered:
		return errReordered()
	case track.Kind == cmaf.Video:
		return w.WriteVideo(f.PTS, f.Sync, f.Data)
	case isOpus(track):
		return w.WriteAudio(f.PTS, f.Data)
	}
	return nil
}
