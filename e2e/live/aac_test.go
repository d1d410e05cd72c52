package live

import (
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"weir/e2e/harness"
)

// newHeardStream makes a stream that is recorded, and sent on to a server of others under a
// key.
func newHeardStream(w *harness.Weir, server *rtmpServer, key string) *liveStream {
	w.T.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{
		"name": "heard", "record": true, "profiles": []any{},
		"multistream": map[string]any{"targets": []any{map[string]any{"profile": "source", "spec": map[string]any{"url": "rtmp://" + server.addr + "/live/" + key}}}},
	}, &made)
	return &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, ""}
}

// checkHeard looks whether the recording of a stream that was sent with Opus, and what a
// target got of it, have AAC with something to hear, as long as the picture.
func (s *liveStream) checkHeard(server *rtmpServer, key string) {
	s.w.T.Helper()
	t := s.w.T
	sources := map[string]string{"the recording": s.waitRecorded("ready").MP4URL}
	for _, file := range server.recordings(key) {
		sources["the target"] = file
	}
	if len(sources) != 2 {
		t.Errorf("the target got nothing:\n%s", server.said)
	}
	for name, source := range sources {
		all := harness.FFprobe(t, source, "-show_packets", "-show_streams")
		var kinds []string
		for _, stream := range all.Streams {
			if stream.Type == "video" || stream.Type == "audio" {
				kinds = append(kinds, stream.Codec)
			}
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []string{"aac", "h264"}) {
			t.Errorf("%s has %q, want AAC and H.264", name, kinds)
			continue
		}
		ends := map[string]float64{}
		for _, kind := range []string{"video", "audio"} {
			for _, p := range packets(all, kind) {
				ends[kind] = max(ends[kind], p.Time())
			}
		}
		if apart := ends["audio"] - ends["video"]; apart < -0.5 || apart > 0.5 || ends["video"] < 3 {
			t.Errorf("in %s, sound and picture end at %v s", name, ends)
		}
		if peak, err := loudest(source); err != nil || peak < -40 {
			t.Errorf("%s is as loud as %v dB: %v", name, peak, err)
		}
	}
}

// loudest returns the peak of a file's audio, in dB.
func loudest(source string) (float64, error) {
	out, err := exec.Command("ffmpeg", "-nostdin", "-i", source, "-map", "0:a", "-af", "volumedetect", "-f", "null", "-").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	found := regexp.MustCompile(`max_volume: (\S+) dB`).FindStringSubmatch(string(out))
	if found == nil {
		return 0, fmt.Errorf("ffmpeg tells no volume:\n%s", strings.TrimSpace(string(out)))
	}
	return strconv.ParseFloat(found[1], 64)
}
