package live

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/e2e/harness"
)

// TestLive sends to weir with ffmpeg and watches with clients that know the rules. Its
// tests run side by side, because most of their time is that of the pictures, but
// beside no others: those that encode leave no time for a clock. The longest are the first.
func TestLive(t *testing.T) {
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		liveWatch(t)
	})
	t.Run("webrtc", func(t *testing.T) {
		t.Parallel()
		liveWebRTC(t)
	})
	t.Run("official", func(t *testing.T) {
		t.Parallel()
		liveOfficial(t)
	})
	t.Run("nodes", func(t *testing.T) {
		t.Parallel()
		liveNodes(t)
	})
	t.Run("sdk", func(t *testing.T) {
		t.Parallel()
		liveSDK(t)
	})
	t.Run("recording", func(t *testing.T) {
		t.Parallel()
		liveRecording(t)
	})
	t.Run("gaps", func(t *testing.T) {
		t.Parallel()
		liveGaps(t)
	})
	t.Run("ladder", func(t *testing.T) {
		t.Parallel()
		liveLadder(t)
	})
	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		liveBrowser(t)
	})
	t.Run("relay", func(t *testing.T) {
		t.Parallel()
		liveRelay(t)
	})
	t.Run("watch clips", func(t *testing.T) {
		t.Parallel()
		liveWatchClips(t)
	})
	t.Run("whole", func(t *testing.T) {
		t.Parallel()
		liveWhole(t)
	})
	t.Run("srt", func(t *testing.T) {
		t.Parallel()
		liveSRT(t)
	})
	t.Run("pull on two nodes", func(t *testing.T) {
		t.Parallel()
		livePullNodes(t)
	})
	t.Run("multistream", func(t *testing.T) {
		t.Parallel()
		liveMultistream(t)
	})
	t.Run("pull", func(t *testing.T) {
		t.Parallel()
		livePull(t)
	})
	t.Run("beat", func(t *testing.T) {
		t.Parallel()
		liveBeat(t)
	})
	t.Run("poster", func(t *testing.T) {
		t.Parallel()
		livePoster(t)
	})
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		liveControl(t)
	})
}

// liveWhole sends a stream and reads it with ffmpeg while it is live, from its first
// segment to its end. What comes out must be what was sent, and what the API and the
// events tell of it must be true.
func liveWhole(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp := harness.FreeAddr(t)
	w.Start("--rtmp", rtmp, "--session-timeout", "3s")
	events := harness.Listen(t, w, "")
	s := newStream(w, rtmp)
	if status, _ := s.get("index.m3u8"); status != http.StatusNotFound {
		t.Errorf("a stream that never started has a playlist: %d", status)
	}

	// The encoder writes a copy of what it sends.
	sent := filepath.Join(t.TempDir(), "sent.flv")
	began := time.Now()
	e := s.encode("-re", "-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=10", "-re", "-f", "lavfi", "-i", "sine=sample_rate=48000:duration=10",
		"-map", "0:v", "-map", "1:a", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", "2", "-b_strategy", "0", "-g", "50",
		"-c:a", "aac", "-flags", "+global_header", "-f", "tee", "[f=flv]"+s.ingest()+"|[f=flv]"+sent)
	started := ofStream(events, t)
	if started.Event != "stream.started" || started.Stream.ID != s.id || started.Payload.Session.ID == "" || !started.Stream.IsActive {
		t.Errorf("the first event is %+v, want stream.started of stream %s with a session", started, s.id)
	}
	s.waitSegments(1)
	seen := time.Now()
	s.checkMaster()
	shown := ffmpegReads(t, s.url("index.m3u8")) // returns at the end of the stream
	if err := e.wait(); err != nil {
		t.Errorf("the encoder ended with %v", err)
	}

	source := harness.FFprobe(t, sent, "-count_packets", "-show_packets")
	recorded := map[string]string{}
	for kind, name := range map[string]string{"video": "source", "audio": "audio"} {
		list := s.plainPlaylist(name)
		checkWalls(t, name, list, began, seen)
		recorded[kind] = s.download(t, name, list.segments)
		count := packets(source, kind)
		if got := packets(harness.FFprobe(t, recorded[kind], "-show_packets"), kind); len(got) != len(count) {
			t.Errorf("%s has %d frames, %d were sent", name, len(got), len(count))
		}
		if shown[kind] != len(count) {
			t.Errorf("ffmpeg read %d frames of %s, %d were sent", shown[kind], name, len(count))
		}
	}
	if diff := cmp.Diff(harness.FrameSums(t, sent), harness.FrameSums(t, recorded["video"])); diff != "" {
		t.Errorf("the pictures are not those that were sent (-sent +recorded):\n%s", diff)
	}
	checkStep(t, source, recorded)

	idle := ofStream(events, t)
	if idle.Event != "stream.idle" || idle.Payload.Session.ID != started.Payload.Session.ID || idle.Stream.IsActive {
		t.Errorf("the second event is %+v, want stream.idle with session %s", idle, started.Payload.Session.ID)
	}
	s.checkCounters(started.Payload.Session.ID, sent)
	w.Stop()
}

// checkMaster looks at the master playlist and at a media playlist of a live stream,
// with and without what low latency adds.
func (s *liveStream) checkMaster() {
	s.w.T.Helper()
	t := s.w.T
	status, text := s.get("index.m3u8")
	if status != http.StatusOK {
		t.Fatalf("master playlist: %d %s", status, text)
	}
	file := filepath.Join(t.TempDir(), "index.m3u8")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	m := harness.ReadMaster(t, filepath.Dir(file), "index.m3u8")
	v := m.Variants[0]
	if len(m.Variants) != 1 || !m.Independent || v.Resolution != "160x90" || v.FrameRate != 25 || v.Bandwidth < v.Average || v.Average < 10_000 ||
		!strings.HasPrefix(v.Codecs, "avc1.") || !strings.HasSuffix(v.Codecs, ",mp4a.40.2") || v.Uri != "source/index.m3u8" || m.Audio[v.Audio] != "audio/index.m3u8" {
		t.Errorf("the master playlist is not that of 160x90 at 25/s in H.264 with AAC:\n%s", text)
	}
	for _, name := range []string{"source", "audio"} {
		_, low := s.get(name + "/index.m3u8")
		_, plain := s.get(name + "/index.m3u8?ll=0")
		for _, tag := range []string{"PART:", "PART-INF", "SERVER-CONTROL", "PRELOAD-HINT", "RENDITION-REPORT"} {
			if !bytes.Contains(low, []byte("\n#EXT-X-"+tag)) {
				t.Errorf("the playlist of %s has no %s:\n%s", name, tag, low)
			}
			if bytes.Contains(plain, []byte("\n#EXT-X-"+tag)) {
				t.Errorf("with ll=0 the playlist of %s has %s:\n%s", name, tag, plain)
			}
		}
	}
	if _, text := s.get("index.m3u8?ll=0"); !bytes.Contains(text, []byte("\nsource/index.m3u8?ll=0\n")) || !bytes.Contains(text, []byte(`URI="audio/index.m3u8?ll=0"`)) {
		t.Errorf("with ll=0 the master playlist leads to playlists with parts:\n%s", text)
	}
}

// checkWalls looks whether the dates in a playlist follow the clock: the first segment
// begins between the start of the encoder and the moment when it was seen, and the
// others where those before them end.
func checkWalls(t *testing.T, name string, list *livePlaylist, began, seen time.Time) {
	t.Helper()
	first := list.segments[0].wall
	// Audio may come a moment earlier than the picture that the clock is set by.
	if first.Before(began.Add(-100*time.Millisecond)) || first.After(seen) {
		t.Errorf("%s: the first segment is dated %v, it came between %v and %v", name, first, began, seen)
	}
	for i := 1; i < len(list.segments); i++ {
		before, s := list.segments[i-1], list.segments[i]
		if off := s.wall.Sub(before.wall).Seconds() - before.seconds; off < -0.002 || off > 0.002 {
			t.Errorf("%s: segment %d is dated %.3f s off the end of the one before", name, s.number, off)
		}
	}
}

// checkStep looks whether audio and video are as far apart as they were sent, and
// start together.
func checkStep(t *testing.T, sent harness.Probed, recorded map[string]string) {
	t.Helper()
	apart := func(video, audio []harness.Packet) float64 {
		earliest := slices.MinFunc(video, func(a, b harness.Packet) int { return int((a.Time() - b.Time()) * 1e6) })
		return audio[0].Time() - earliest.Time()
	}
	want := apart(packets(sent, "video"), packets(sent, "audio"))
	got := apart(packets(harness.FFprobe(t, recorded["video"], "-show_packets"), "video"), packets(harness.FFprobe(t, recorded["audio"], "-show_packets"), "audio"))
	if got < want-0.002 || got > want+0.002 {
		t.Errorf("sound starts %.3f s after the picture, %.3f s were sent", got, want)
	}
	if got < -0.040 || got > 0.040 {
		t.Errorf("sound and picture start %.3f s apart", got)
	}
}

// checkCounters looks at what the API tells of a stream that has ended.
func (s *liveStream) checkCounters(session, sent string) {
	s.w.T.Helper()
	t := s.w.T
	info, err := os.Stat(sent)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, func() error {
		if now := s.now(); now.IsActive || now.LastSeen == 0 || now.SourceSegments == 0 {
			return fmt.Errorf("the stream has ended, and is %+v", now)
		}
		return nil
	})
	now := s.session()
	if now.ID != session || now.ParentID != s.id {
		t.Errorf("the session is %+v, want %s", now, session)
	}
	c := now.liveCounters
	if diff := cmp.Diff(c, s.now().liveCounters); diff != "" {
		t.Errorf("the counters of the stream are not those of its session (-session +stream):\n%s", diff)
	}
	// The file has 15 bytes for each frame beside the frames.
	if c.SourceSegments != 5 || c.SourceSegmentsDuration < 9.9 || c.SourceSegmentsDuration > 10.1 ||
		c.SourceBytes > info.Size() || c.SourceBytes < info.Size()*8/10 {
		t.Errorf("counters of 10 s in %d bytes: %+v", info.Size(), c)
	}
}

// ffmpegReads lets ffmpeg play a playlist from its first segment to its end, without a
// complaint, and returns how many frames of each kind there were.
func ffmpegReads(t *testing.T, url string) map[string]int {
	t.Helper()
	dir := t.TempDir()
	video, audio := filepath.Join(dir, "video"), filepath.Join(dir, "audio")
	// Without -copyts ffmpeg takes a gap of more than 10 s out of the times of all tracks by
	// what one of them has lost: others may overlap then.
	harness.FFmpeg(t, "-copyts", "-live_start_index", "0", "-i", url,
		"-map", "0:v", "-fps_mode", "passthrough", "-f", "framemd5", video, "-map", "0:a", "-c", "copy", "-f", "framemd5", audio)
	count := map[string]int{}
	for kind, file := range map[string]string{"video": video, "audio": audio} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		count[kind] = len(harness.Sums(text))
	}
	return count
}

// packets returns those of one kind.
func packets(p harness.Probed, kind string) []harness.Packet {
	return slices.DeleteFunc(slices.Clone(p.Packets), func(p harness.Packet) bool { return p.Type != kind })
}

// liveStream is a stream of a weir that takes RTMP.
type liveStream struct {
	w                 *harness.Weir
	id, key, playback string
	rtmp              string // where weir listens
}

// newStream makes one without renditions, of a weir that listens at an address.
func newStream(w *harness.Weir, rtmp string) *liveStream {
	w.T.Helper()
	var made struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "live", "profiles": []any{}}, &made)
	return &liveStream{w, made.ID, made.StreamKey, made.PlaybackID, rtmp}
}

// ingest is the address that encoders send to.
func (s *liveStream) ingest() string { return "rtmp://" + s.rtmp + "/live/" + s.key }

// url is that of something that viewers fetch.
func (s *liveStream) url(path string) string { return s.w.URL + "/hls/" + s.playback + "/" + path }

// get fetches it.
func (s *liveStream) get(path string) (status int, body []byte) {
	s.w.T.Helper()
	response, err := http.Get(s.url(path))
	if err != nil {
		s.w.T.Fatal(err)
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	if err != nil {
		s.w.T.Fatal(err)
	}
	return response.StatusCode, body
}

// liveCounters are those that streams and sessions have.
type liveCounters struct {
	SourceSegments         int64
	SourceSegmentsDuration float64
	SourceBytes            int64
}

// liveState is what the API tells of a stream or a session.
type liveState struct {
	ID, ParentID string
	IsActive     bool
	LastSeen     int64
	IngestRate   float64
	liveCounters
}

// now returns what the API tells of the stream.
func (s *liveStream) now() (state liveState) {
	s.w.T.Helper()
	s.w.Must("GET", "/api/stream/"+s.id, nil, &state)
	return state
}

// sessions returns those of the stream.
func (s *liveStream) sessions() (all []liveState) {
	s.w.T.Helper()
	s.w.Must("GET", "/api/session?parentId="+s.id, nil, &all)
	return all
}

// session returns the only one of the stream.
func (s *liveStream) session() liveState {
	s.w.T.Helper()
	all := s.sessions()
	if len(all) != 1 {
		s.w.T.Fatalf("sessions: %+v, want one", all)
	}
	return all[0]
}

// waitLive waits until the stream can be watched and the API says so.
func (s *liveStream) waitLive() {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() error {
		if status, text := s.get("index.m3u8"); status != http.StatusOK {
			return fmt.Errorf("master playlist: %d %s", status, text)
		}
		if now := s.now(); !now.IsActive || now.IngestRate <= 0 || now.SourceBytes <= 0 {
			return fmt.Errorf("the stream is live, and is %+v", now)
		}
		return nil
	})
}

// plainPlaylist returns the playlist of a rendition without parts.
func (s *liveStream) plainPlaylist(name string) *livePlaylist {
	s.w.T.Helper()
	status, text := s.get(name + "/index.m3u8?ll=0")
	if status != http.StatusOK {
		s.w.T.Fatalf("playlist of %s: %d %s", name, status, text)
	}
	list, err := parseLive(text)
	if err != nil {
		s.w.T.Fatalf("playlist of %s: %v\n%s", name, err, text)
	}
	return list
}

// download puts segments into one file, behind the init segment that they need.
func (s *liveStream) download(t *testing.T, name string, segments []liveSegment) string {
	t.Helper()
	var all bytes.Buffer
	fetch := func(file string) {
		status, body := s.get(name + "/" + file)
		if status != http.StatusOK {
			t.Fatalf("%s/%s: %d %s", name, file, status, body)
		}
		all.Write(body)
	}
	fetch(segments[0].init)
	for _, segment := range segments {
		if segment.init != segments[0].init {
			t.Fatalf("%s: segment %d needs %s, the first one %s", name, segment.number, segment.init, segments[0].init)
		}
		fetch(segment.uri)
	}
	path := filepath.Join(t.TempDir(), name+".mp4")
	if err := os.WriteFile(path, all.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// liveEvent is one that tells of a stream.
type liveEvent struct {
	Event   string
	Stream  liveState
	Payload struct{ Session liveState }
}

// ofStream returns the next event that tells of a stream.
func ofStream(l *harness.Listener, t *testing.T) (e liveEvent) {
	t.Helper()
	l.Next(t, "an event of a stream", func(e harness.Event) bool { return strings.HasPrefix(e.Name, "stream.") }).Read(t, &e)
	return e
}

// encoder is an ffmpeg that sends.
type encoder struct {
	t      *testing.T
	cmd    *exec.Cmd
	said   *harness.LockedBuffer
	frames atomic.Int64 // of the picture, that it has sent
	ended  chan struct{}
	err    error // once it has ended
}

// encode starts one.
func (s *liveStream) encode(args ...string) *encoder {
	s.w.T.Helper()
	e := &encoder{t: s.w.T, said: &harness.LockedBuffer{}, ended: make(chan struct{})}
	e.cmd = exec.Command("ffmpeg", append([]string{"-hide_banner", "-nostdin", "-v", "error", "-xerror", "-progress", "pipe:1", "-stats_period", "0.1"}, args...)...)
	e.cmd.Stderr = e.said
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() {
		defer close(e.ended)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if text, ok := strings.CutPrefix(lines.Text(), "frame="); ok {
				n, _ := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
				e.frames.Store(n)
			}
		}
		e.err = e.cmd.Wait()
	}()
	e.t.Cleanup(e.kill)
	return e
}

// send starts one that sends a file as it is, in its own time.
func (s *liveStream) send(file string) *encoder {
	s.w.T.Helper()
	return s.encode("-re", "-i", file, "-c", "copy", "-f", "flv", s.ingest())
}

// kill ends the encoder without a goodbye.
func (e *encoder) kill() {
	_ = e.cmd.Process.Kill()
	<-e.ended
}

// stop lets the encoder say goodbye.
func (e *encoder) stop() {
	e.t.Helper()
	_ = e.cmd.Process.Signal(syscall.SIGINT)
	// ffmpeg ends with 255 when it was asked to.
	if err, ok := errors.AsType[*exec.ExitError](e.wait()); ok && err.ExitCode() != 255 {
		e.t.Errorf("the encoder ended with %v", err)
	}
}

// wait returns how the encoder ended.
func (e *encoder) wait() error {
	e.t.Helper()
	harness.Eventually(e.t, func() error {
		select {
		case <-e.ended:
			return nil
		default:
			return fmt.Errorf("the encoder does not end; it sent %d frames:\n%s", e.frames.Load(), e.said)
		}
	})
	if e.err != nil {
		return fmt.Errorf("%w: %s", e.err, e.said)
	}
	return nil
}

// running fails if the encoder has ended.
func (e *encoder) running() error {
	select {
	case <-e.ended:
		return fmt.Errorf("the encoder ended (%v): %s", e.err, e.said)
	default:
		return nil
	}
}
