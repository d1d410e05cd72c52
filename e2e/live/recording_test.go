package live

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
)

// liveRecording sends to a stream that is recorded. Its encoder is lost three times and
// comes back, then weir is killed, and the encoder comes back once more. All of it must
// be one asset, with every frame that was received.
func liveRecording(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	args := []string{"--rtmp", rtmp}
	w.Start(args...)
	events := harness.Listen(t, w, "")
	s := newRecordedStream(w, rtmp)

	films := numbered(t, 5)
	var encoders []*encoder
	send := func() *encoder {
		e := s.send(films[len(encoders)])
		encoders = append(encoders, e)
		e.untilSent(80)
		return e
	}
	for range 3 {
		send().kill()
	}
	cursor := recording(events, t, "recording.started", s.session().ID)
	e := send()
	// While the encoder holds its breath, everything that it has sent is received.
	harness.Suspend(t, e.cmd.Process.Pid)
	allReceived(t, rtmp)
	w.Kill()
	e.kill()
	w.Start(args...)
	e = send()
	s.checkDVR(len(encoders))
	e.stop()
	session := s.session()
	w.Must("DELETE", "/api/stream/"+s.id+"/terminate", nil, nil)

	kept := s.waitRecorded("ready")
	if kept.ID != session.ID {
		t.Errorf("the recording is that of session %s, want %s", kept.ID, session.ID)
	}
	s.checkEvents(harness.Listen(t, w, cursor), session.ID)
	frames := s.checkRecording(kept, encoders)
	s.checkPlayback(kept, frames)

	w.Must("DELETE", "/api/asset/"+kept.ID, nil, nil)
	if after := s.waitRecorded("none"); after.RecordingURL != "" || after.MP4URL != "" {
		t.Errorf("the recording was deleted, and the session is %+v", after)
	}
	w.Stop()
}

// newRecordedStream makes a stream that is recorded.
func newRecordedStream(w *harness.Weir, rtmp string) *liveStream {
	w.T.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{
		"name": "recorded", "record": true, "profiles": []any{}, "recordingSpec": map[string]any{"profiles": []any{}},
	}, &made)
	return &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
}

// untilSent waits until an encoder has sent so many frames.
func (e *encoder) untilSent(frames int64) {
	e.t.Helper()
	harness.Eventually(e.t, func() error {
		if err := e.running(); err != nil {
			e.t.Fatal(err)
		}
		if sent := e.frames.Load(); sent < frames {
			return fmt.Errorf("%d of %d frames were sent", sent, frames)
		}
		return nil
	})
}

// recordedSession is what the API tells of a session that is recorded.
type recordedSession struct {
	ID, RecordingStatus, RecordingURL, MP4URL string
	CreatedAt                                 int64
}

// waitRecorded waits until the only session of the stream says so of its recording.
func (s *liveStream) waitRecorded(status string) (session recordedSession) {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() error {
		var all []recordedSession
		s.w.Must("GET", "/api/stream/"+s.id+"/sessions?record=true", nil, &all)
		if len(all) != 1 || all[0].RecordingStatus != status {
			return fmt.Errorf("the sessions are %+v, want one whose recording is %s", all, status)
		}
		session = all[0]
		return nil
	})
	return session
}

// checkDVR looks at the playlist of the whole broadcast while it is on.
func (s *liveStream) checkDVR(connections int) {
	s.w.T.Helper()
	t := s.w.T
	var info struct {
		Meta struct{ DVRPlayback []struct{ URL string } }
	}
	harness.Eventually(t, func() error {
		s.w.Must("GET", "/api/playback/"+s.playback+"?recordings=true", nil, &info)
		if len(info.Meta.DVRPlayback) != 1 || info.Meta.DVRPlayback[0].URL != s.url("dvr.m3u8") {
			return fmt.Errorf("the whole broadcast is at %+v, want %s", info.Meta.DVRPlayback, s.url("dvr.m3u8"))
		}
		return nil
	})
	if status, text := s.get("dvr.m3u8"); status != http.StatusOK || !strings.Contains(string(text), "\nsource/dvr.m3u8\n") || !strings.Contains(string(text), `URI="audio/dvr.m3u8"`) {
		t.Errorf("dvr.m3u8: %d %s", status, text)
	}
	for _, name := range []string{"source", "audio"} {
		status, text := s.get(name + "/dvr.m3u8")
		// A live playlist never has this line.
		live := strings.Replace(string(text), "#EXT-X-PLAYLIST-TYPE:EVENT\n", "", 1)
		list, err := parseLive([]byte(live))
		if status != http.StatusOK || err != nil || live == string(text) {
			t.Fatalf("%s/dvr.m3u8: %d, error %v: %s", name, status, err, text)
		}
		begins := 1
		for i, segment := range list.segments {
			if segment.discontinuity && i > 0 {
				begins++
			}
			if status, _ := s.get(name + "/" + segment.uri); status != http.StatusOK {
				t.Errorf("segment %s of %s: %d", segment.uri, name, status)
			}
		}
		if begins != connections || list.ended || strings.Contains(string(text), "EXT-X-PART") {
			t.Errorf("%s was sent by %d encoders, and its list is\n%s", name, connections, text)
		}
	}
}

// recordingEvent is an event that tells of a recording, or of its asset.
type recordingEvent struct {
	Event   string
	Stream  struct{ ID string }
	Payload struct {
		RecordingURL, MP4URL string
		Session              struct{ ID, AssetID, RecordingStatus, RecordingURL, MP4URL string }
		Asset                struct {
			ID       string
			Snapshot struct{ Status struct{ Phase string } }
		}
	}
}

// next returns the next event of a kind, and its cursor.
func next(l *harness.Listener, t *testing.T, kinds ...string) (cursor string, e recordingEvent) {
	t.Helper()
	got := l.Next(t, fmt.Sprintf("an event of %q", kinds), func(e harness.Event) bool {
		kind, _, _ := strings.Cut(e.Name, ".")
		return slices.Contains(kinds, kind)
	})
	got.Read(t, &e)
	return got.Cursor, e
}

// recording expects an event about the recording of a session next, and returns its
// cursor.
func recording(l *harness.Listener, t *testing.T, name, session string) string {
	t.Helper()
	cursor, e := next(l, t, "recording", "asset")
	if e.Event != name || e.Payload.Session.ID != session || e.Payload.Session.RecordingStatus != "waiting" {
		t.Errorf("the event is %+v, want %s of session %s", e, name, session)
	}
	return cursor
}

// checkEvents looks at what is told of the end of a recording.
func (s *liveStream) checkEvents(events *harness.Listener, session string) {
	s.w.T.Helper()
	t := s.w.T
	recording(events, t, "recording.waiting", session)
	for _, want := range []string{"asset.created", "asset.updated", "asset.ready"} {
		_, e := next(events, t, "recording", "asset")
		if phase := e.Payload.Asset.Snapshot.Status.Phase; e.Event != want || e.Payload.Asset.ID != session || phase != "ready" && want == "asset.ready" {
			t.Errorf("the event is %+v, want %s of asset %s", e, want, session)
		}
	}
	_, e := next(events, t, "recording", "asset")
	told := e.Payload.Session
	if e.Event != "recording.ready" || e.Stream.ID != s.id || told.ID != session || told.AssetID != session || told.RecordingStatus != "ready" ||
		e.Payload.RecordingURL == "" || e.Payload.MP4URL == "" || told.RecordingURL != e.Payload.RecordingURL || told.MP4URL != e.Payload.MP4URL {
		t.Errorf("the event is %+v, want recording.ready of session %s of stream %s, with addresses", e, session, s.id)
	}
}

// checkRecording looks at the MP4 file of a recording: it has what each encoder sent, one
// after the other. It returns how many frames there are.
func (s *liveStream) checkRecording(kept recordedSession, encoders []*encoder) int {
	s.w.T.Helper()
	t := s.w.T
	response, err := http.Get(kept.MP4URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	file, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.HasPrefix(response.Header.Get("Content-Disposition"), "attachment") {
		t.Fatalf("%s: %s, error %v", kept.MP4URL, response.Status, err)
	}
	var numbers [8][]int // by encoder
	all := frameNumbers(t, file)
	for i, n := range all {
		if i > 0 && n <= all[i-1] {
			t.Fatalf("frame %d comes after frame %d", n, all[i-1])
		}
		numbers[n/firstNumber(1)] = append(numbers[n/firstNumber(1)], n)
	}
	for i, e := range encoders {
		got, sent, lost := numbers[i], int(e.frames.Load()), maxHeld
		if i == 3 { // weir was killed
			lost = maxLost
		}
		t.Logf("encoder %d sent at least %d frames, %d are in the recording", i, sent, len(got))
		if len(got) < sent-lost {
			t.Errorf("encoder %d sent %d frames, %d are in the recording", i, sent, len(got))
		}
		for j, n := range got {
			// Of two B-frames at the end, what they lead to may have come without them.
			if missing := n - firstNumber(i) - j; missing < 0 || missing > 2 || missing > 0 && j < len(got)-2 {
				t.Fatalf("frame %d of %d of encoder %d has the number %d, want %d", j, len(got), i, n, firstNumber(i)+j)
			}
		}
	}
	// Without the gaps it is as long as its frames.
	probed := harness.FFprobe(t, mediaFile(t, file))
	for _, stream := range probed.Streams {
		if length := harness.Number(stream.Duration); math.Abs(length-float64(len(all))/25) > 0.2*float64(len(encoders)) {
			t.Errorf("%s lasts %.3f s, and there are %d frames", stream.Type, length, len(all))
		}
	}
	if apart := harness.Number(probed.Streams[1].StartTime) - harness.Number(probed.Streams[0].StartTime); math.Abs(apart) > 0.040 {
		t.Errorf("sound and picture start %.3f s apart", apart)
	}
	s.checkRanges(kept.MP4URL, file)
	return len(all)
}

// checkRanges fetches ranges of a file.
func (s *liveStream) checkRanges(url string, file []byte) {
	s.w.T.Helper()
	for _, at := range []int{0, len(file) / 3, len(file) - 1000} {
		r, err := http.NewRequestWithContext(s.w.T.Context(), http.MethodGet, url, nil)
		if err != nil {
			s.w.T.Fatal(err)
		}
		r.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", at, at+999))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			s.w.T.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusPartialContent || string(got) != string(file[at:at+1000]) {
			s.w.T.Errorf("bytes from %d on: %s with %d bytes, error %v", at, response.Status, len(got), err)
		}
	}
}

// checkPlayback plays a recording, and looks at what the API tells of it.
func (s *liveStream) checkPlayback(kept recordedSession, frames int) {
	s.w.T.Helper()
	t := s.w.T
	for _, list := range []string{"index.m3u8", "ts.m3u8"} {
		url := strings.Replace(kept.RecordingURL, "index.m3u8", list, 1)
		if shown := ffmpegReads(t, url); shown["video"] != frames {
			t.Errorf("ffmpeg read %d frames of %s, %d are in the recording", shown["video"], list, frames)
		}
	}
	var asset struct {
		ID, Type    string
		CreatedAt   int64
		Size        int64
		PlaybackURL string
		DownloadURL string
		Source      map[string]string
		Status      struct{ Phase string }
		VideoSpec   struct{ Duration float64 }
	}
	s.w.Must("GET", "/api/asset/"+kept.ID, nil, &asset)
	if asset.Type != "video" || asset.Status.Phase != "ready" || asset.CreatedAt != kept.CreatedAt || asset.PlaybackURL != kept.RecordingURL || asset.DownloadURL != kept.MP4URL ||
		asset.Size == 0 || math.Abs(asset.VideoSpec.Duration-float64(frames)/25) > 1 {
		t.Errorf("the asset of the recording with %d frames is %+v", frames, asset)
	}
	if diff := cmp.Diff(map[string]string{"type": "recording", "sessionId": kept.ID}, asset.Source); diff != "" {
		t.Errorf("the source of the asset (-want +got):\n%s", diff)
	}
	var info struct {
		Type string
		Meta struct{ Source []struct{ HRN, URL string } }
	}
	s.w.Must("GET", "/api/playback/"+kept.ID, nil, &info)
	if info.Type != "recording" || len(info.Meta.Source) != 1 || info.Meta.Source[0].URL != kept.RecordingURL {
		t.Errorf("the playback of the session is %+v, want that of its recording", info)
	}
	id := filepath.Base(filepath.Dir(kept.RecordingURL))
	s.w.Must("GET", "/api/playback/"+id, nil, &info)
	for _, source := range info.Meta.Source {
		response, err := http.Head(source.URL)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s at %s: %s", source.HRN, source.URL, response.Status)
		}
	}
	if len(info.Meta.Source) < 2 {
		t.Errorf("a recording has a playlist and a file: %+v", info)
	}
}
