//go:build soak

package live

import (
	"testing"
	"time"

	"weir/e2e/harness"
)

// TestPauseSoak plays a stream in hls.js, directly and through the caches, while its encoder pauses for 20 s
// and while weir is killed and started again. Playlists and errors are kept for a second in both; the page
// must go on by itself.
func TestPauseSoak(t *testing.T) {
	for name, start := range map[string]func(*testing.T, string) string{
		"directly": func(_ *testing.T, origin string) string { return origin }, "nginx": nginxCache, "varnish": varnishCache,
	} {
		t.Run(name, func(t *testing.T) {
			w := harness.NewWeir(t)
			rtmp := harness.FreeAddr(t)
			w.Start("--rtmp", rtmp)
			origin := newCountingOrigin(t, w.URL) // stays where it is when weir is restarted
			address := start(t, origin.URL)
			s := newStream(w, rtmp)
			e := s.send(liveClip(t))
			s.waitLive()
			b := harness.NewBrowser(t, t.TempDir())
			watch(b, address+"/hls/"+s.playback+"/index.m3u8")
			plays(b, e, watched{}, 3)

			again := func(what string, away func()) {
				t.Helper()
				e.kill()
				away()
				back := time.Now()
				e = s.send(liveClip(t))
				last := watchState(b)
				now := plays(b, e, watched{Date: float64(back.UnixMilli()), Frames: last.Frames, SoundBytes: last.SoundBytes}, 3)
				t.Logf("%s: hls.js plays what was sent after it %.1f s after the encoder was back; errors that it got over: %v", what, time.Since(back).Seconds(), now.Errors)
			}
			again("a pause of 20 s", func() { time.Sleep(20 * time.Second) })
			again("a restart", func() {
				w.Kill()
				time.Sleep(3 * time.Second)
				w.Start("--rtmp", rtmp)
				origin.moveTo(t, w.URL)
			})
		})
	}
}
