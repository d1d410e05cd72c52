package live

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// film is a test video of 320x180 at 15 frames a second, with B-frames and a key frame
// every second.
type film struct {
	track  cmaf.Track
	frames []Frame
}

var testVideo = sync.OnceValues(func() (f film, err error) {
	var out bytes.Buffer
	command := exec.Command("ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=15:d=40", "-c:v", "libx264", "-preset", "ultrafast",
		"-bf", "2", "-g", "15", "-sc_threshold", "0", "-video_track_timescale", "90000", "-movflags", "frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "pipe:1")
	command.Stdout = &out
	if err := command.Run(); err != nil {
		return f, err
	}
	r := cmaf.NewReader(&out)
	tracks, err := r.Tracks()
	if err != nil {
		return f, err
	}
	f.track = tracks[0]
	for {
		fragment, err := r.Next()
		if errors.Is(err, io.EOF) {
			return f, nil
		}
		if err != nil {
			return f, err
		}
		at, data := fragment.Start, fragment.Data
		for _, s := range fragment.Samples {
			f.frames = append(f.frames, Frame{
				DTS: f.track.Time(at), PTS: f.track.Time(at + int64(s.Offset)), Sync: s.Sync, Data: data[:s.Size:s.Size],
			})
			at, data = at+int64(s.Duration), data[s.Size:]
		}
	}
})

// ladderTest is a hub with a ladder, and an encoder that sends a video in real time.
type ladderTest struct {
	*testHub
	film      film
	publisher *Publisher
	sent      int
}

func newLadderTest(t *testing.T, profiles ...weir.Profile) *ladderTest {
	t.Helper()
	film, err := testVideo()
	if err != nil {
		t.Fatal(err)
	}
	th := &ladderTest{film: film, testHub: &testHub{T: t, database: storetest.SQLite(t, store.Open, storeOptions("")), dir: t.TempDir()}}
	th.testHub.engine, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	th.start()
	u := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(time.Now())}
	th.stream, err = weir.NewStream{Name: "x", Profiles: &profiles}.Stream(&weir.Caller{UserID: u.ID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	th.write(func(tx *store.Tx) error {
		return errors.Join(tx.CreateUser(t.Context(), &u), tx.CreateStream(t.Context(), &th.stream))
	})
	t.Cleanup(func() { th.stop() })
	return th
}

// connect begins the video again.
func (th *ladderTest) connect() {
	th.Helper()
	var err error
	th.publisher, err = th.hub.Publish(th.Context(), th.stream.StreamKey.Reveal(), Source{Protocol: "test"})
	if err == nil {
		err = th.publisher.SetTracks(th.Context(), []cmaf.Track{th.film.track})
	}
	if err != nil {
		th.Fatal(err)
	}
	th.sent = 0
}

// send sends so many seconds of frames, as an encoder does that never hurries: after a halt of the
// machine the ladder has nothing to catch up with.
func (th *ladderTest) send(seconds int) {
	th.Helper()
	for range 15 * seconds {
		f := th.film.frames[th.sent%len(th.film.frames)]
		around := time.Duration(th.sent/len(th.film.frames)) * 40 * time.Second
		f.DTS, f.PTS = f.DTS+around, f.PTS+around
		time.Sleep(time.Second / 15)
		if err := th.publisher.Write(f); err != nil {
			th.Fatal(err)
		}
		th.sent++
	}
}

// sendUntil sends whole seconds until something is so.
func (th *ladderTest) sendUntil(what string, holds func() bool) {
	th.Helper()
	wait.Until(th, what, func() bool {
		th.send(1)
		return holds()
	})
}

// rendition returns a rendition; nil = there is none.
func (th *ladderTest) rendition(name string) *rendition {
	r, err := th.broadcast().rendition(name)
	if err != nil {
		return nil
	}
	return r
}

func (th *ladderTest) whole(name string) []cmaf.Segment {
	th.Helper()
	r := th.rendition(name)
	if r == nil {
		th.Fatalf("there is no rendition %s", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.segments
}

// finish ends the stream and waits for the ladder.
func (th *ladderTest) finish() {
	th.Helper()
	th.publisher.Close(true)
	s := th.broadcast().session
	if err := s.stop(errEnded, true); err != nil {
		th.Fatal(err)
	}
	s.ladder.wait()
}

// aligned holds a rung against the source: same numbers, same starts, same lengths. It
// returns how many segments are gaps, and how many are not whole.
func (th *ladderTest) aligned(name string, allFrames bool) (gaps, short int) {
	th.Helper()
	source, rung := th.whole(videoName), th.whole(name)
	if len(source) != len(rung) {
		th.Errorf("%s has %d segments, the source %d", name, len(rung), len(source))
	}
	for i := range min(len(source), len(rung)) {
		a, b := source[i], rung[i]
		if a.Start() != b.Start() || a.Discontinuity != b.Discontinuity {
			th.Errorf("%s/%d starts at %d (discontinuity %v), the source at %d (%v)", name, i, b.Start(), b.Discontinuity, a.Start(), a.Discontinuity)
		}
		switch {
		case b.Gap():
			gaps++
		case !b.Sync():
			th.Errorf("%s/%d does not start with a key frame", name, i)
		case a.Duration() != b.Duration() || allFrames && a.Frames() != b.Frames():
			short++
		}
	}
	return gaps, short
}

// decode returns how many frames a player would show of a rendition.
func (th *ladderTest) decode(name string) int {
	th.Helper()
	r := th.rendition(name)
	files := map[int][]byte{} // by their init segment
	for i, s := range th.whole(name) {
		if s.Gap() {
			continue
		}
		if files[r.inits[i]] == nil {
			init, err := th.broadcast().Init(name, r.inits[i])
			if err != nil {
				th.Fatal(err)
			}
			files[r.inits[i]] = init
		}
		body, _, err := th.broadcast().Segment(name, r.base+r.first+int64(i))
		if err != nil {
			th.Fatal(err)
		}
		segment, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil {
			th.Fatal(err)
		}
		files[r.inits[i]] = append(files[r.inits[i]], segment...)
	}
	frames := 0
	for _, data := range files {
		frames += th.countFrames(data)
	}
	return frames
}

// countFrames returns how many frames a player would show of a file.
func (th *ladderTest) countFrames(data []byte) int {
	th.Helper()
	path := filepath.Join(th.TempDir(), "rung.mp4")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		th.Fatal(err)
	}
	out, err := exec.Command("ffprobe", "-v", "error", "-count_frames", "-show_entries", "stream=nb_read_frames", "-of", "csv=p=0", path).CombinedOutput()
	if err != nil {
		th.Fatalf("%v: %s", err, out)
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.Trim(strings.TrimSpace(string(out)), ",")))
	if err != nil {
		th.Fatalf("ffprobe said %q", out)
	}
	return n
}

// frameCount returns how many frames there are of the source.
func (th *ladderTest) frameCount() int {
	th.Helper()
	return frames(th.whole(videoName))
}

// frames returns how many frames segments have, but for gaps.
func frames(segments []cmaf.Segment) (n int) {
	for _, s := range segments {
		if !s.Gap() {
			n += s.Frames()
		}
	}
	return n
}

// tapped returns how many frames there are in a tap whose session is over.
func (th *ladderTest) tapped(tap *Tap) (frames int) {
	th.Helper()
	var tracks []cmaf.Track
	for {
		f, err := tap.Next(th.Context())
		switch {
		case err != nil:
			return frames
		case len(f.Tracks) > 0:
			tracks = f.Tracks
		case len(tracks) != 1 || tracks[0].Width != 256 || f.PTS < f.DTS:
			th.Fatalf("frame at %v, %v of %+v", f.DTS, f.PTS, tracks)
		default:
			frames++
		}
	}
}

// kill ends the ffmpeg of this test, which is the only one with this bitrate,
// and reports whether there was one.
func kill(t *testing.T, bitrate int) bool {
	t.Helper()
	return killChild(t, strconv.Itoa(bitrate))
}

// killChild ends a child of this process that has an argument.
func killChild(t *testing.T, argument string) bool {
	t.Helper()
	entries, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		children, _ := os.ReadFile(entry)
		for child := range strings.FieldsSeq(string(children)) {
			line, _ := os.ReadFile("/proc/" + child + "/cmdline")
			pid, err := strconv.Atoi(child)
			if err == nil && bytes.Contains(line, []byte(argument)) {
				return syscall.Kill(pid, syscall.SIGKILL) == nil
			}
		}
	}
	return false
}

var testProfiles = []weir.Profile{
	{Name: "144p", Width: 256, Height: 144, Bitrate: 300_000, FPS: new(0)},
	{Name: "slow", Width: 192, Height: 108, Bitrate: 100_000, FPS: new(7), Profile: "H264Main"},
	{Name: "large", Width: 1280, Height: 720, Bitrate: 3_000_000, FPS: new(0)},
}

func TestLadder(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	th := newLadderTest(t, testProfiles...)
	th.connect()
	b := th.broadcast
	tap := b().Tap(TapOptions{Rendition: "144p"})
	defer tap.Close()
	th.sendUntil("there are two renditions after three seconds", func() bool {
		return th.sent >= 45 && th.rendition("144p") != nil && th.rendition("slow") != nil
	})
	names := ""
	for _, r := range b().Master().Video {
		names += r.Name + " "
	}
	if names != "source 144p slow " && names != "source slow 144p " {
		t.Errorf("the master playlist has %s", names)
	}
	// The encoder goes, and comes back.
	th.publisher.Close(false)
	th.connect()
	th.send(2)
	// A reader does not get what was in the encoder at the end.
	th.publisher.Close(false)
	session := b().session
	th.stop()
	c := session.beat(time.Now()).Counters
	if c.TranscodedSegments == 0 || c.TranscodedBytes == 0 || c.TranscodedSegmentsDuration < 3 || c.TranscodedSegmentsDuration > c.SourceSegmentsDuration {
		t.Errorf("counters: %+v", c)
	}
	if n, sent := th.tapped(tap), th.frameCount(); n > sent || n == 0 {
		t.Errorf("a reader of the rung got %d frames, %d were sent", n, sent)
	}
	// weir is started again, and the encoder comes back once more.
	th.start()
	th.connect()
	th.send(2)
	th.finish()

	for _, name := range []string{"144p", "slow"} {
		if gaps, short := th.aligned(name, name == "144p"); gaps > 0 || short > 0 {
			t.Errorf("%s has %d gaps, and %d segments that are not as long as the source's", name, gaps, short)
		}
	}
	sent := th.frameCount()
	if n := th.decode("144p"); n != sent {
		t.Errorf("the rung shows %d frames, %d were sent", n, sent)
	}
	if n := th.decode("slow"); n < sent*7/15-5 || n > sent*9/15+5 {
		t.Errorf("the slow rung shows %d frames of %d", n, sent)
	}
	playlist := th.playlist("144p", Query{Low: true, Segment: -1})
	for _, want := range []string{"#EXT-X-DISCONTINUITY\n", "#EXT-X-ENDLIST", ".m4s"} {
		if !strings.Contains(playlist, want) {
			t.Errorf("the playlist of the rung has no %s:\n%s", want, playlist)
		}
	}
	for name, want := range map[string]float64{"144p": 15, "slow": 7} {
		if got := th.rendition(name).rate; got != want {
			t.Errorf("the encoder of %s aims at %g frames a second, want %g", name, got, want)
		}
	}
}

// What was transcoded is as long as the longest rung, and never longer than the source.
func TestLadderCounts(t *testing.T) {
	l := &ladder{rungs: []*rung{{}, {}}}
	for i, r := range l.rungs {
		r.segments.Store(3)
		r.bytes.Store(100)
		r.nanoseconds.Store(int64(time.Duration(6+i) * time.Second))
	}
	for source, want := range map[float64]float64{20: 17, 16: 16} {
		b := store.Beat{Counters: weir.Counters{SourceSegmentsDuration: source, TranscodedSegmentsDuration: 10, TranscodedSegments: 5, TranscodedBytes: 50}}
		l.count(&b)
		if c := b.Counters; c.TranscodedSegmentsDuration != want || c.TranscodedSegments != 11 || c.TranscodedBytes != 250 {
			t.Errorf("of %g s of source: %+v, want %g s transcoded in 11 segments of 250 bytes", source, c, want)
		}
	}
}

func TestLadderSurvivesItsEncoder(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	only := testProfiles[0]
	only.Bitrate = 234_567
	th := newLadderTest(t, only)
	th.connect()
	th.sendUntil("there is a rendition", func() bool { return th.sent >= 45 && th.rendition("144p") != nil })
	session := th.broadcast().session
	for killed := 0; killed < 3; killed++ {
		th.sendUntil("there is an encoder to kill", func() bool { return kill(t, only.Bitrate) })
		// Nothing is sent meanwhile, so that no encoder can start again.
		wait.Until(t, "the owner is told", func() bool { return len(session.ladder.issues()) > 0 })
	}
	th.sendUntil("the rendition is back", func() bool {
		all := th.whole("144p")
		return len(all) > 3 && !all[len(all)-1].Gap() && len(session.ladder.issues()) == 0
	})
	th.finish()
	if gaps, short := th.aligned("144p", true); gaps == 0 || short > 4 {
		t.Errorf("there are %d gaps, and %d segments that are not whole, where an encoder was killed", gaps, short)
	}
	source := th.whole(videoName)
	for i, s := range source[1:] {
		if s.Start() != source[i].End() {
			t.Errorf("the source has a hole before segment %d", i+1)
		}
	}
	th.decode("144p")
	if playlist := th.playlist("144p", Query{Segment: -1}); !strings.Contains(playlist, "#EXT-X-GAP\n#EXTINF") {
		t.Errorf("the playlist has no gap:\n%s", playlist)
	}
}

// A server that has room for one rung only makes the smallest, and says so. When there is
// room again, an encoder that comes back has all of them; what was left out is a gap.
func TestLadderOnABusyServer(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	th := newLadderTest(t, testProfiles[:2]...)
	plans := ladderPlans(testProfiles[:2], th.film.track, 15)
	_, release := th.engine.Reserve([]int{2*750 - plans[len(plans)-1].encode.Cost()})
	th.connect()
	th.sendUntil("there is a rendition", func() bool { return th.sent >= 45 && th.rendition("slow") != nil })
	if issues := strings.Join(th.broadcast().session.ladder.issues(), "\n"); !strings.Contains(issues, "144p is left out") || th.rendition("144p") != nil {
		t.Errorf("the issues are %q, the rendition 144p is %v", issues, th.rendition("144p"))
	}
	release()
	th.publisher.Close(false)
	th.connect()
	th.send(2)
	wait.Until(t, "there is room again, and no issue", func() bool { return len(th.broadcast().session.ladder.issues()) == 0 })
	th.finish()
	for name, want := range map[string]int{"144p": 2, "slow": 0} {
		if gaps, short := th.aligned(name, false); gaps != want || short > 0 {
			t.Errorf("%s has %d gaps, want %d, and %d segments that are not as long as the source's", name, gaps, want, short)
		}
	}
}

// A ladder that was made cheaper goes up again while the stream is on air, step by step, and
// no frame is lost where one encoder takes over from the other.
func TestLadderClimbs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	th := newLadderTest(t, testProfiles[:2]...)
	plans := ladderPlans(testProfiles[:2], th.film.track, 15)
	_, release := th.engine.Reserve([]int{2*750 - plans[len(plans)-1].encode.Cost()})
	th.connect()
	th.sendUntil("there is a rendition", func() bool { return th.sent >= 45 && th.rendition("slow") != nil })
	l := th.broadcast().session.ladder
	if issues := l.issues(); len(issues) == 0 || th.rendition("144p") != nil {
		t.Fatalf("the issues are %q, the rendition 144p is %v", issues, th.rendition("144p"))
	}
	release()
	l.mu.Lock()
	l.climb.wait, l.climb.freeTime = 0, 0
	l.mu.Unlock()
	th.sendUntil("the ladder is up again", func() bool { return len(l.issues()) == 0 && th.rendition("144p") != nil && th.sent%30 == 0 })
	th.send(3)
	th.finish()
	if gaps, short := th.aligned("slow", false); gaps > 0 || short > 0 {
		t.Errorf("slow has %d gaps, and %d segments that are not as long as the source's", gaps, short)
	}
	if gaps, short := th.aligned("144p", true); gaps == 0 || short > 0 {
		t.Errorf("144p has %d gaps, and %d segments that are not as the source's", gaps, short)
	}
	there := false
	for i, s := range th.whole("144p") {
		if there = there || !s.Gap(); there && s.Gap() {
			t.Errorf("144p is there, and segment %d is a gap", i)
		}
	}
	if n, want := th.decode("slow"), frames(th.whole("slow")); n != want {
		t.Errorf("slow shows %d frames, it has %d", n, want)
	}
	if n, want := th.decode("144p"), frames(th.whole("144p")); n != want {
		t.Errorf("144p shows %d frames, it has %d", n, want)
	}
}
