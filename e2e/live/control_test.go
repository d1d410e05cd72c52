package live

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"weir/e2e/harness"
)

// liveControl has streams that nobody may send to, that their owner ends, and that two
// want to send to.
func liveControl(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	t.Run("refused", func(t *testing.T) { liveRefused(t, in(w, t), rtmp) })
	var wg sync.WaitGroup
	for name, test := range map[string]func(*testing.T, *liveStream){
		"terminated": liveTerminated, "suspended": liveSuspended, "deleted": liveDeleted, "taken over": liveTakenOver,
	} {
		// Side by side without regard to how many tests may be: most of it is waiting.
		wg.Go(func() { t.Run(name, func(t *testing.T) { test(t, newStream(in(w, t), rtmp)) }) })
	}
	wg.Wait()
	w.Stop()
}

// in returns weir for another test than the one that started it.
func in(w *harness.Weir, t *testing.T) *harness.Weir {
	other := *w
	other.T = t
	return &other
}

// liveRefused sends to streams that do not take anything: the encoder must learn it
// before it has sent a frame.
func liveRefused(t *testing.T, w *harness.Weir, rtmp string) {
	unknown, suspended, deleted := newStream(w, rtmp), newStream(w, rtmp), newStream(w, rtmp)
	unknown.key = "0000-0000-0000-0000"
	w.Must("PATCH", "/api/stream/"+suspended.id, map[string]any{"suspended": true}, nil)
	w.Must("DELETE", "/api/stream/"+deleted.id, nil, nil)
	for name, s := range map[string]*liveStream{"unknown": unknown, "suspended": suspended, "deleted": deleted} {
		e := s.send(liveClip(t))
		if err := e.wait(); err == nil {
			t.Errorf("%s: the encoder was let in", name)
		}
		if n := e.frames.Load(); n > 0 {
			t.Errorf("%s: the encoder sent %d frames before it was refused", name, n)
		}
		if status, _ := s.get("index.m3u8"); status < 400 {
			t.Errorf("%s: there is something to watch: %d", name, status)
		}
		if strings.Contains(w.Output.String(), s.key) {
			t.Errorf("%s: the log has the stream key", name)
		}
	}
	var all []liveState
	if w.Must("GET", "/api/session", nil, &all); len(all) > 0 {
		t.Errorf("there are sessions: %+v", all)
	}
}

// liveTerminated ends a stream, whose encoder may come back at once: with a new session
// that goes on with the numbers of the old one.
func liveTerminated(t *testing.T, s *liveStream) {
	e := s.send(liveClip(t))
	s.waitSegments(1)
	s.w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	s.cut(t, e)
	s.hasEnded(t)
	old := s.plainPlaylist("source")

	s.send(liveClip(t))
	harness.Eventually(t, func() error {
		if list := s.plainPlaylist("source"); list.ended || len(list.segments) == 0 {
			return fmt.Errorf("the encoder is back, and the playlist is %+v", list)
		}
		return nil
	})
	list := s.plainPlaylist("source")
	if end := old.sequence + int64(len(old.segments)); list.sequence < end {
		t.Errorf("the second session begins with segment %d, the first one ended before %d", list.sequence, end)
	}
	if all := s.sessions(); len(all) != 2 || all[0].ID == all[1].ID {
		t.Errorf("sessions: %+v, want two", all)
	}
}

// liveSuspended suspends a stream: nobody can send to it until that is taken back.
func liveSuspended(t *testing.T, s *liveStream) {
	e := s.send(liveClip(t))
	s.waitSegments(1)
	s.w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"suspended": true}, nil)
	s.cut(t, e)
	s.unwatchable(t)
	if err := s.send(liveClip(t)).wait(); err == nil {
		t.Error("the encoder was let in again")
	}
	s.w.Must("PATCH", "/api/stream/"+s.id, map[string]any{"suspended": false}, nil)
	s.send(liveClip(t))
	s.waitLive()
}

// liveDeleted deletes a stream.
func liveDeleted(t *testing.T, s *liveStream) {
	e := s.send(liveClip(t))
	s.waitSegments(1)
	s.w.Must("DELETE", "/api/stream/"+s.id, nil, nil)
	if err := e.wait(); err == nil {
		t.Error("the encoder sent to the end")
	}
	s.unwatchable(t)
}

// liveTakenOver sends to a stream while another encoder does: it takes over, within the
// same session.
func liveTakenOver(t *testing.T, s *liveStream) {
	first := s.send(liveClip(t))
	s.waitSegments(1)
	second := s.send(liveClip(t))
	if err := first.wait(); err == nil {
		t.Error("the first encoder sent to the end")
	}
	old := s.plainPlaylist("source")
	harness.Eventually(t, func() error {
		if err := second.running(); err != nil {
			t.Fatal(err)
		}
		if list := s.plainPlaylist("source"); len(list.segments) < len(old.segments)+2 {
			return fmt.Errorf("the second encoder sends, and the playlist is %+v", list)
		}
		return nil
	})
	list := s.plainPlaylist("source")
	var breaks []int64
	for _, segment := range list.segments {
		if segment.discontinuity {
			breaks = append(breaks, segment.number)
		}
	}
	if len(breaks) != 1 || list.ended {
		t.Errorf("segments %v are discontinuous, want one; the playlist is %+v", breaks, list)
	}
	if all := s.sessions(); len(all) != 1 || !s.now().IsActive {
		t.Errorf("sessions: %+v, want one of an active stream", all)
	}
}

// cut expects the encoder to have been cut off and the stream to be at rest.
func (s *liveStream) cut(t *testing.T, e *encoder) {
	t.Helper()
	if err := e.wait(); err == nil {
		t.Error("the encoder sent to the end")
	}
	harness.Eventually(t, func() error {
		if now := s.now(); now.IsActive {
			return fmt.Errorf("the stream was ended, and is %+v", now)
		}
		return nil
	})
}

// hasEnded waits until players are told that nothing will come.
func (s *liveStream) hasEnded(t *testing.T) {
	t.Helper()
	for _, name := range []string{"source", "audio"} {
		harness.Eventually(t, func() error {
			if status, text := s.get(name + "/index.m3u8"); status != http.StatusOK || !bytes.Contains(text, []byte("\n#EXT-X-ENDLIST\n")) {
				return fmt.Errorf("the stream was ended, and the playlist of %s is %d %s", name, status, text)
			}
			return nil
		})
	}
}

// unwatchable waits until nobody can watch the stream any more.
func (s *liveStream) unwatchable(t *testing.T) {
	t.Helper()
	for _, path := range []string{"index.m3u8", "source/index.m3u8", "source/0.m4s"} {
		harness.Eventually(t, func() error {
			if status, text := s.get(path); status < 400 || status > 499 {
				return fmt.Errorf("nobody may watch the stream, and %s is %d %q", path, status, text[:min(len(text), 500)])
			}
			return nil
		})
	}
}

// waitSegments waits until there are some whole segments.
func (s *liveStream) waitSegments(n int) {
	s.w.T.Helper()
	s.waitLive()
	harness.Eventually(s.w.T, func() error {
		if list := s.plainPlaylist("source"); len(list.segments) < n {
			return fmt.Errorf("%d segments are to come, and the playlist is %+v", n, list)
		}
		return nil
	})
}

// liveClip is something to send for longer than a test takes.
func liveClip(t *testing.T) string {
	t.Helper()
	return harness.MakeClip(t, "live.mp4", append(harness.Pictures("160x90", 25, 240),
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "50", "-b:v", "200k", "-c:a", "aac", "-b:a", "64k")...)
}
