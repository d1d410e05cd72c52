package live

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/wait"
)

// tones returns some seconds of Opus with a tone of 0.1 s at the beginning of each, in
// packets of 20 ms.
func tones(t *testing.T, seconds string) (cmaf.Track, [][]byte) {
	t.Helper()
	track, frames := framesOf(t, "-f", "lavfi", "-i", "aevalsrc='if(lt(mod(t,1),0.1),sin(2*PI*1000*t),0)':s=48000:d="+seconds, "-c:a", "libopus", "-ac", "2")
	var packets [][]byte
	for _, f := range frames {
		packets = append(packets, f.Data)
	}
	return track, packets
}

// opusPublisher sends video, and Opus with a tone each second, as fast as it can.
type opusPublisher struct {
	*testHub
	*Publisher
	packets [][]byte
	frame   int
}

func newOpusPublisher(t *testing.T, cores int) *opusPublisher {
	t.Helper()
	return newRecordedOpusPublisher(t, cores, true)
}

func newRecordedOpusPublisher(t *testing.T, cores int, record bool) *opusPublisher {
	t.Helper()
	s := newTestHub(t, record)
	s.stop()
	var err error
	if s.engine, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: cores}); err != nil {
		t.Fatal(err)
	}
	s.start()
	return &opusPublisher{testHub: s}
}

func (c *opusPublisher) connect() {
	c.Helper()
	audio, packets := tones(c.T, "20")
	p, err := c.testHub.hub.Publish(c.Context(), c.testHub.stream.StreamKey.Reveal(), Source{Protocol: "test"})
	if err == nil {
		err = p.SetTracks(c.Context(), []cmaf.Track{testTracks(c.T)[0], audio})
	}
	if err != nil {
		c.Fatal(err)
	}
	c.Publisher, c.packets, c.frame = p, packets, 0
}

// send sends so many seconds, with audio at the times that audio selects.
func (c *opusPublisher) send(seconds int, audio func(at time.Duration) bool) {
	c.Helper()
	for range seconds * 25 {
		at := time.Duration(c.frame) * 40 * time.Millisecond
		all := []Frame{{Track: 0, PTS: at, DTS: at, Sync: c.frame%50 == 0, Data: make([]byte, 100)}}
		for i := 2 * c.frame; i < 2*c.frame+2; i++ {
			if at := time.Duration(i) * 20 * time.Millisecond; audio(at) {
				all = append(all, Frame{Track: 1, PTS: at, DTS: at, Data: c.packets[i]})
			}
		}
		for _, f := range all {
			if err := c.Write(f); err != nil {
				c.Fatal(err)
			}
		}
		c.frame++
	}
}

func always(time.Duration) bool { return true }
func never(time.Duration) bool  { return false }

// until waits for a state of the AAC encoder.
func (c *opusPublisher) until(what string, is func(m *aacEncoder) bool) {
	c.Helper()
	s := c.session
	wait.Until(c, what, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.audio.aac.mu.Lock()
		defer s.audio.aac.mu.Unlock()
		return is(s.audio.aac)
	})
}

// toneTimes returns when tones begin in the audio of players, in seconds after the first video frame.
// All frames must follow one another.
func (c *opusPublisher) toneTimes() []float64 {
	c.Helper()
	b := c.broadcast()
	r, err := b.rendition(audioName)
	if err != nil {
		c.Fatal(err)
	}
	if r.track.Codec != "mp4a.40.2" {
		c.Fatalf("the audio is %s, want AAC", r.track.Codec)
	}
	data, err := b.Init(audioName, 0)
	if err != nil {
		c.Fatal(err)
	}
	next := r.segments[0].Start()
	for n, s := range r.segments {
		for _, part := range s.Parts {
			if part.Start != next {
				c.Errorf("a part of segment %d starts at %d, the one before it ended at %d", n, part.Start, next)
			}
			for _, sample := range part.Samples {
				if sample.Duration != 1024 {
					c.Errorf("a frame of segment %d lasts %d", n, sample.Duration)
				}
			}
			next = part.Start + cmaf.Span(part.Samples)
		}
		body, _, err := b.Segment(audioName, int64(n))
		if err != nil {
			c.Fatal(err)
		}
		segment, err := io.ReadAll(body)
		if err := errors.Join(err, body.Close()); err != nil {
			c.Fatal(err)
		}
		data = append(data, segment...)
	}
	path := filepath.Join(c.TempDir(), "sound.mp4")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		c.Fatal(err)
	}
	raw, err := exec.CommandContext(c.Context(), "ffmpeg", "-v", "error", "-i", path, "-ac", "1", "-f", "s16le", "pipe:1").Output()
	if err != nil {
		c.Fatal(err)
	}
	video, err := b.rendition(videoName)
	if err != nil {
		c.Fatal(err)
	}
	first := r.track.Time(r.segments[0].Start()) - video.track.Time(video.segments[0].Start())
	var onsets []float64
	quiet := 48000
	for i := 0; i+1 < len(raw); i += 2 {
		level := int16(binary.LittleEndian.Uint16(raw[i:]))
		if level < 3000 && level > -3000 {
			quiet++
			continue
		}
		if quiet > 4800 {
			onsets = append(onsets, first.Seconds()+float64(i/2)/48000)
		}
		quiet = 0
	}
	return onsets
}

// checkHeard holds when tones are heard against the seconds at which they were sent.
func (c *opusPublisher) checkHeard(want ...float64) {
	c.Helper()
	got := c.toneTimes()
	ok := slices.EqualFunc(got, want, func(a, b float64) bool { return a-b < 0.03 && b-a < 0.03 })
	if !ok {
		c.Errorf("tones are heard at %.3f, want %v", got, want)
	}
}

// Opus becomes AAC in one line, heard when it was sent, with silence where there is none:
// in a hole, while no audio comes, and between the two. Readers have it as they want.
func TestAAC(t *testing.T) {
	c := newOpusPublisher(t, 2)
	c.connect()
	c.send(1, always)
	plain, pushed := c.session.tap(TapOptions{}), c.session.tap(TapOptions{Audio: AudioAAC})
	defer plain.Close()
	defer pushed.Close()
	c.send(5, func(at time.Duration) bool { return at < 2500*time.Millisecond || at >= 3500*time.Millisecond })
	c.until("all sound is made", func(m *aacEncoder) bool { return m.idle && m.timeline.begun })
	c.send(5, never)
	if end := c.session.conn.end; c.session.audio.aac.track.Time(c.session.audio.aac.timeline.next) < end-maxAudioPause-100*time.Millisecond {
		t.Errorf("no audio came, and silence ends at %v of %v", c.session.audio.aac.track.Time(c.session.audio.aac.timeline.next), end)
	}
	c.send(3, always)
	c.Close(true)
	c.checkHeard(0, 1, 2, 4, 5, 11, 12, 13)
	if running := c.engine.Stats().Running; running != [3]int{} {
		t.Errorf("the encoder has ended, and %v run", running)
	}

	for name, tap := range map[string]*Tap{"opus": plain, "mp4a.40.2": pushed} {
		item, err := tap.Next(t.Context())
		if err != nil || len(item.Tracks) != 2 || item.Tracks[1].Codec != name {
			t.Fatalf("the reader of %s begins with %+v, %v", name, item, err)
		}
		tap.end(io.EOF)
		var last time.Duration
		audios := 0
		for {
			item, err := tap.Next(t.Context())
			if err != nil {
				break
			}
			if item.Track == 0 {
				continue
			}
			audios++
			if name == "opus" && !slices.ContainsFunc(c.packets, func(p []byte) bool { return bytes.Equal(p, item.Data) }) {
				t.Errorf("the packet at %v is not one that was sent", item.PTS)
			}
			if step := item.PTS - last; name != "opus" && last > 0 && (step < 21*time.Millisecond || step > 22*time.Millisecond) {
				t.Errorf("a frame is %v after the one before it", step)
			}
			last = item.PTS
		}
		if least := map[string]int{"opus": 300, "mp4a.40.2": 500}[name]; audios < least {
			t.Errorf("the reader of %s has got %d frames, want %d", name, audios, least)
		}
	}
}

// An encoder of audio that dies is started again: what it had is silence, what comes after is
// heard when it should be, and the owner of the stream sees an issue.
func TestAACSurvivesItsEncoder(t *testing.T) {
	c := newOpusPublisher(t, 2)
	c.connect()
	c.send(2, always)
	c.until("sound is made", func(m *aacEncoder) bool { return m.timeline.begun })
	for !killChild(t, "aresample=osr") {
		c.send(1, always) // it rests
	}
	c.until("the failure is known", func(m *aacEncoder) bool { return m.failed })
	c.session.mu.Lock()
	issues := strings.Join(c.session.audio.issues(), "\n")
	c.session.mu.Unlock()
	if !strings.Contains(issues, "the audio is missing") {
		t.Errorf("the issues are %q", issues)
	}
	killed := float64(c.frame / 25)
	c.send(4, always)
	c.until("the sound is back", func(m *aacEncoder) bool { return !m.failed })
	c.Close(true)
	got := c.toneTimes()
	for _, want := range []float64{killed + 1, killed + 2, killed + 3} {
		if !slices.ContainsFunc(got, func(at float64) bool { return at > want-0.03 && at < want+0.03 }) {
			t.Errorf("no tone is heard at %v, but at %.3f", want, got)
		}
	}
}

// A server without room for it leaves the audio as it is, and says so.
func TestAACWithoutCPU(t *testing.T) {
	c := newOpusPublisher(t, 1)
	_, release := c.engine.Reserve([]int{750})
	c.connect()
	c.send(3, always)
	if codec := c.session.renditions.audio.track.Codec; codec != "opus" && codec != "Opus" {
		t.Errorf("the audio is %s, want Opus", codec)
	}
	c.session.mu.Lock()
	issues := strings.Join(c.session.audio.issues(), "\n")
	c.session.mu.Unlock()
	if !strings.Contains(issues, "the audio stays Opus") {
		t.Errorf("the issues are %q", issues)
	}
	// With free CPU, the encoder that reconnects has AAC, and there is no issue.
	release()
	c.Close(true)
	c.connect()
	c.send(3, always)
	c.session.mu.Lock()
	issues = strings.Join(c.session.audio.issues(), "\n")
	c.session.mu.Unlock()
	if codec := c.session.renditions.audio.track.Codec; codec != "mp4a.40.2" || issues != "" {
		t.Errorf("with free CPU, the audio is %s, and the issues are %q", codec, issues)
	}
	c.Close(true)
}

// When there is room again the audio becomes AAC, with the encoder on air. In a recording it
// stays what it was.
func TestAACRetry(t *testing.T) {
	for name, record := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			c := newRecordedOpusPublisher(t, 1, record)
			_, release := c.engine.Reserve([]int{750})
			c.connect()
			c.send(5, always)
			release()
			c.send(5, always)
			want, breaks := "mp4a.40.2", 1
			if record {
				want, breaks = "opus", 0
			} else {
				c.until("sound is made", func(m *aacEncoder) bool { return m.timeline.begun })
			}
			c.send(3, always)
			c.Close(true)
			if codec := c.session.renditions.audio.track.Codec; !strings.EqualFold(codec, want) {
				t.Errorf("the audio is %s, want %s", codec, want)
			}
			for _, name := range []string{videoName, audioName} {
				list := c.playlist(name, plain)
				if n := strings.Count(list, "EXT-X-DISCONTINUITY\n"); n != breaks {
					t.Errorf("%s has %d discontinuities, want %d:\n%s", name, n, breaks, list)
				}
			}
			// Audio and video have the same segments, and nothing is missing of either.
			audio, video := c.session.renditions.audio, c.session.renditions.video
			if len(audio.segments) != len(video.segments) {
				t.Fatalf("%d segments of audio, %d of video", len(audio.segments), len(video.segments))
			}
			for i, s := range video.segments {
				from, to := video.tracks[i].Time(s.Start()), video.tracks[i].Time(s.End())
				heardFrom, heardTo := audio.tracks[i].Time(audio.segments[i].Start()), audio.tracks[i].Time(audio.segments[i].End())
				if (from-heardFrom).Abs() > 100*time.Millisecond || (to-heardTo).Abs() > 200*time.Millisecond {
					t.Errorf("segment %d is seen from %v to %v, and heard from %v to %v", i, from, to, heardFrom, heardTo)
				}
			}
		})
	}
}

// What the stream does without is an issue, as long as the encoder sends it.
func TestLeaveOut(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	e.SetIssue("the audio is left out: it is too loud")
	if err := e.send(1); err != nil {
		t.Fatal(err)
	}
	if issues := e.session.beat(time.Now()).Issues; !slices.Contains(issues, "the audio is left out: it is too loud") {
		t.Errorf("the issues are %q", issues)
	}
	e.SetIssue("")
	if issues := e.session.beat(time.Now()).Issues; len(issues) > 0 {
		t.Errorf("nothing is left out, and the issues are %q", issues)
	}
	e.Close(true)
}

func TestAACLine(t *testing.T) {
	var l aacTimeline
	for i, tt := range []struct {
		at, silence int64
		ok          bool
	}{
		{5000, 0, true},
		{5000 + 1024, 0, true},
		{5000 + 1500, 0, false},             // it was heard already
		{5000 + 2*1024 + 500, 0, true},      // near enough
		{5000 + 3*1024 - 500, 0, true},      // and so is this
		{5000 + 10*1024 + 100, 6, true},     // after a hole
		{5000 + 10*1024 + 100, 0, false},    // the same again
		{5000 + 11*1024 + 513 + 0, 1, true}, // nearer to the one after
	} {
		silence, ok := l.place(tt.at)
		if silence != tt.silence || ok != tt.ok {
			t.Errorf("%d: a frame at %d has %d before it (%v), want %d (%v)", i, tt.at, silence, ok, tt.silence, tt.ok)
		}
		if ok {
			l.next += (silence + 1) * codec.SilenceDuration
		}
	}
}
