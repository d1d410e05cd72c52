package live

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// livePoster looks at the picture of a stream while it is on air, which follows what is
// sent, and after it. The stream is recorded, its encoder goes and comes back, and the
// recording gets the rendition that the stream wants of it, with every frame in it.
func livePoster(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{
		"name": "pictured", "record": true, "profiles": []any{},
		"recordingSpec": map[string]any{"profiles": []any{map[string]any{"name": "low", "bitrate": 5_000}}},
	}, &made)
	s := &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
	if status, text := s.get("poster.jpg"); status != http.StatusNotFound {
		t.Errorf("a stream that never started has a picture: %d %s", status, text)
	}
	films := numbered(t, 2)
	e := s.send(films[0])
	first := s.waitPoster(0)
	second := s.waitPoster(first + 1)
	if s.answersPoster().Header.Get("Cache-Control") != "public, max-age=2" {
		t.Error("the picture of a stream on air may be kept for long")
	}
	t.Logf("frames %d and %d were shown", first, second)
	e.stop()
	e = s.send(films[1])
	e.untilSent(80)
	s.waitPoster(firstNumber(1))
	e.stop()
	w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)
	kept := s.waitRecorded("ready")
	if status, _ := s.get("poster.jpg"); status != http.StatusOK {
		t.Errorf("after the broadcast there is no picture of it: %d", status)
	}
	s.checkRenditions(kept)
	w.Stop()
}

// answersPoster fetches the picture of the stream.
func (s *liveStream) answersPoster() *http.Response {
	s.w.T.Helper()
	response, err := http.Get(s.url("poster.jpg"))
	if err != nil {
		s.w.T.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		s.w.T.Fatal(err)
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response
}

// waitPoster waits for a picture of a frame with such a number or a higher one, and returns
// that.
func (s *liveStream) waitPoster(least int) (number int) {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() error {
		response := s.answersPoster()
		if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "image/jpeg" || response.Header.Get("ETag") == "" {
			return fmt.Errorf("the picture is %s with %v", response.Status, response.Header)
		}
		picture, err := jpeg.Decode(response.Body)
		if err != nil {
			s.w.T.Fatal(err)
		}
		if picture.Bounds() != image.Rect(0, 0, numberedW, numberedH) {
			s.w.T.Fatalf("the picture has %v", picture.Bounds())
		}
		number = 0
		for bit := range 16 {
			if r, _, _, _ := picture.At(bit%8*block+block/2, bit/8*block+block/2).RGBA(); r > 0x8000 {
				number |= 1 << bit
			}
		}
		if number < least {
			return fmt.Errorf("the picture is of frame %d, want %d or a later one", number, least)
		}
		return nil
	})
	return number
}

// checkRenditions waits for the rendition of a recording, and looks whether it has what the
// recording has.
func (s *liveStream) checkRenditions(kept recordedSession) {
	s.w.T.Helper()
	t := s.w.T
	base := strings.TrimSuffix(kept.RecordingURL, "index.m3u8")
	get := func(name string) []byte {
		t.Helper()
		response, err := http.Get(base + name)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %.200s, error %v", name, response.Status, body, err)
		}
		return body
	}
	harness.Eventually(t, func() error {
		if master := get("index.m3u8"); !bytes.Contains(master, []byte("\nlow/index.m3u8\n")) {
			return fmt.Errorf("the recording has no rendition:\n%s", master)
		}
		return nil
	})
	var numbers [2][]int
	for i, name := range []string{"source", "low"} {
		file := get(name + ".mp4")
		numbers[i] = frameNumbers(t, file)
		streams := harness.FFprobe(t, mediaFile(t, file)).Streams
		if apart := harness.Number(streams[0].Duration) - harness.Number(streams[1].Duration); apart < -0.3 || apart > 0.3 || len(streams) != 2 {
			t.Errorf("%s.mp4: picture and sound have %s and %s s", name, streams[0].Duration, streams[1].Duration)
		}
	}
	same := 0
	for i := range min(len(numbers[0]), len(numbers[1])) {
		if apart := numbers[0][i] - numbers[1][i]; apart > -25 && apart < 25 {
			same++
		}
	}
	// With so few bits many pictures of the rendition are still those of up to a second before.
	if len(numbers[0]) < 100 || len(numbers[0]) != len(numbers[1]) || same < len(numbers[0])*3/4 {
		t.Errorf("the rendition has the frames\n%v, the recording\n%v", numbers[1], numbers[0])
	}
	var begins [2]time.Time
	var lists [2]string // breaks, and how much later than the first segment each begins
	for i, name := range []string{"source", "low"} {
		if frames := len(harness.FrameSums(t, base+name+"/index.m3u8")); frames != len(numbers[0]) {
			t.Errorf("%s/index.m3u8 has %d frames, its file has %d", name, frames, len(numbers[0]))
		}
		for line := range strings.Lines(string(get(name + "/index.m3u8"))) {
			date, dated := strings.CutPrefix(strings.TrimSpace(line), "#EXT-X-PROGRAM-DATE-TIME:")
			switch {
			case strings.HasPrefix(line, "#EXT-X-DISCONTINUITY"):
				lists[i] += line
			case dated:
				at, err := time.Parse(time.RFC3339, date)
				if err != nil {
					t.Fatal(err)
				}
				if begins[i].IsZero() {
					begins[i] = at
				}
				lists[i] += fmt.Sprintln(at.Sub(begins[i]))
			}
		}
	}
	// Dates are of decode times; only the rendition has B-frames, which are decoded early.
	if early := begins[0].Sub(begins[1]); early < 0 || early > 200*time.Millisecond {
		t.Errorf("the rendition begins at %v, the recording at %v", begins[1], begins[0])
	}
	if lists[0] != lists[1] || strings.Count(lists[0], "DISCONTINUITY") != 1 {
		t.Errorf("the rendition is cut at\n%s, the recording at\n%s", lists[1], lists[0])
	}
	for _, name := range []string{"poster.jpg", "thumbnails/keyframes_1.jpg"} {
		if _, err := jpeg.Decode(bytes.NewReader(get(name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	var tasks []struct {
		OutputAssetID string
		Status        struct{ Phase string }
	}
	s.w.Must("GET", "/api/task", nil, &tasks)
	if len(tasks) != 1 || tasks[0].OutputAssetID != kept.ID || tasks[0].Status.Phase != "completed" {
		t.Errorf("the tasks are %+v, want one of the recording", tasks)
	}
}
