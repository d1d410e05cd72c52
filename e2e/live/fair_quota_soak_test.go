//go:build soak

package live

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"weir/e2e/harness"
)

// fairQuota lets an account with a quota of 1 MB record five broadcasts of 16 Mbit/s at once for 20 s,
// and then another one.
func fairQuota(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	const (
		quota   = 1e6
		streams = 5
		rate    = 2_000_000 // bytes a second
		length  = 20 * time.Second
		overrun = 4 // seconds: the interval of the checks, the segment that is open, thumbnails
	)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--session-timeout", "2s")
	attacker := newAccount(w, "attacker@example.com")
	w.Run("user", "quota", "attacker@example.com", "storage=1MB")
	clip := harness.MakeClip(t, "noise16M.mp4", "-f", "lavfi", "-i", "testsrc2=size=480x270:rate=25:duration=10,noise=alls=100:allf=t",
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-b:v", "16M", "-maxrate", "16M", "-bufsize", "16M", "-g", "50", "-sc_threshold", "0")
	var all []*liveStream
	broadcast := func(n int, during func()) {
		t.Helper()
		var encoders []*encoder
		var begun []*liveStream
		for range n {
			var made struct{ ID, StreamKey, PlaybackID string }
			if status := attacker.do("POST", "/api/stream", map[string]any{
				"name": "recorded", "record": true, "profiles": []any{}, "recordingSpec": map[string]any{"profiles": []any{}},
			}, &made); status >= 300 {
				t.Fatalf("a stream is answered with %d", status)
			}
			s := &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
			begun = append(begun, s)
			encoders = append(encoders, s.encode("-re", "-stream_loop", "-1", "-i", clip, "-c", "copy", "-f", "flv", s.ingest()))
		}
		all = append(all, begun...)
		for _, s := range begun {
			harness.Eventually(t, func() error {
				if status, _ := s.get("index.m3u8"); status != http.StatusOK {
					return fmt.Errorf("the stream does not play: %d", status)
				}
				return nil
			})
		}
		time.Sleep(length)
		during()
		for _, e := range encoders {
			e.stop()
		}
	}
	told := 0
	broadcast(streams, func() {
		for _, s := range all {
			var health struct{ Issues []string }
			attacker.do("GET", "/api/stream/"+s.id+"/health", nil, &health)
			for _, issue := range health.Issues {
				if issue == "the account has reached its storage quota: the stream continues without recording" {
					told++
				}
			}
		}
	})
	kept := func() (bytes int64, last string) {
		t.Helper()
		harness.Eventually(t, func() error {
			for _, s := range all {
				var sessions []struct{ RecordingStatus string }
				attacker.do("GET", "/api/stream/"+s.id+"/sessions", nil, &sessions)
				if len(sessions) != 1 || sessions[0].RecordingStatus == "waiting" {
					return fmt.Errorf("the sessions of a stream are %+v, want one whose recording has ended", sessions)
				}
				last = sessions[0].RecordingStatus
			}
			return nil
		})
		var quotas struct{ Storage struct{ Used int64 } }
		attacker.do("GET", "/api/user/quota", nil, &quotas)
		return quotas.Storage.Used, last
	}
	mb := func(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
	five, _ := kept()
	row("five recordings of 20 s beyond the quota", "-", mb(five-quota), mb(streams*rate*overrun), five-quota <= streams*rate*overrun)
	row("streams whose health says so", "-", fmt.Sprint(told), fmt.Sprint(streams), told == streams)
	broadcast(1, func() {})
	_, sixth := kept()
	row("recording of a sixth one, begun beyond it", "-", sixth, "none", sixth == "none")
	w.Stop()
}
