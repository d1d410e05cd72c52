package live

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// meteredEncoder sends 30 video frames and as many audio frames a second to a meter, on a clock of its own.
type meteredEncoder struct {
	meter meter
	now   time.Time
	media time.Duration // how far it is

	keyEvery   time.Duration
	lastKey    time.Duration
	frameSize  int
	audioAhead time.Duration // of its video
	pace       float64
	every      time.Duration // between video frames
	noAudio    bool
	noVideo    bool
	silent     bool
}

func newMeteredEncoder(tracks ...cmaf.Kind) *meteredEncoder {
	e := &meteredEncoder{now: time.Unix(1_800_000_000, 0), keyEvery: 2 * time.Second, lastKey: -time.Hour, frameSize: 20_000, pace: 1, every: time.Second / 30}
	e.connect(tracks...)
	return e
}

func (e *meteredEncoder) connect(kinds ...cmaf.Kind) {
	var tracks []cmaf.Track
	for _, k := range kinds {
		tracks = append(tracks, cmaf.Track{Kind: k})
	}
	e.meter.connected(tracks, true, e.now)
}

// run sends for a time, measures every two seconds, and returns the issues at the end.
func (e *meteredEncoder) run(d time.Duration) []string {
	nextMeasure := e.now.Add(beatEvery)
	for end := e.now.Add(d); e.now.Before(end); {
		e.now = e.now.Add(e.every)
		if !e.silent {
			e.send()
		}
		if !e.now.Before(nextMeasure) {
			e.meter.measure(0, 0, e.now)
			nextMeasure = nextMeasure.Add(beatEvery)
		}
	}
	return e.meter.issues(e.now)
}

func (e *meteredEncoder) send() {
	e.media += time.Duration(float64(e.every) * e.pace)
	if e.meter.hasAudio && !e.noAudio {
		e.meter.frame(true, true, false, e.media+e.audioAhead, 200, e.now)
	}
	if e.meter.hasVideo && !e.noVideo {
		key := e.media-e.lastKey >= e.keyEvery
		if key {
			e.lastKey = e.media
		}
		e.meter.frame(false, key, false, e.media, e.frameSize, e.now)
	}
}

func TestHealthIssues(t *testing.T) {
	for _, tt := range []struct {
		name string
		sick func(e *meteredEncoder) []string
		want string // "" = nothing
	}{
		{"well", func(e *meteredEncoder) []string { return e.run(2 * time.Minute) }, ""},
		{"rare key frames", func(e *meteredEncoder) []string { e.keyEvery = 8300 * time.Millisecond; return e.run(40 * time.Second) }, "key frames every 8.3 s; set the encoder's key-frame interval to 2 s"},
		{"no more key frames", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.keyEvery = time.Hour
			return e.run(30 * time.Second)
		}, "key frames every 3"},
		{"no audio", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.noAudio = true
			return e.run(12 * time.Second)
		}, "no audio for 12 s"},
		{"never any audio", func(e *meteredEncoder) []string { e.noAudio = true; return e.run(12 * time.Second) }, "no audio for 12 s"},
		{"no video", func(e *meteredEncoder) []string { e.noVideo = true; return e.run(12 * time.Second) }, "no video for 12 s"},
		{"nothing", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.silent = true
			return e.run(7 * time.Second)
		}, "the encoder is connected but has sent nothing for 7 s"},
		{"bitrate falls", func(e *meteredEncoder) []string {
			e.run(30 * time.Second)
			e.frameSize = 1000
			return e.run(10 * time.Second)
		}, "the bitrate fell from 4.8 to 0.3 Mbit/s"},
		{"frames are dropped", func(e *meteredEncoder) []string {
			e.run(30 * time.Second)
			e.every, e.frameSize = time.Second/10, 60_000
			return e.run(12 * time.Second)
		}, "the frame rate fell from 29 to 10 a second"},
		{"slow", func(e *meteredEncoder) []string { e.pace = 0.7; return e.run(30 * time.Second) }, "the encoder sends only 0.7 s of media a second"},
		{"drift", func(e *meteredEncoder) []string {
			var issues []string
			for range 60 {
				e.audioAhead -= 10 * time.Millisecond
				issues = e.run(2 * time.Second)
			}
			return issues
		}, "audio and video have drifted apart by 5"},
		{"audio late", func(e *meteredEncoder) []string {
			e.audioAhead = -1500 * time.Millisecond
			return e.run(12 * time.Second)
		}, "the audio is 1.5 s behind the video"},
		{"video late", func(e *meteredEncoder) []string {
			e.audioAhead = 1500 * time.Millisecond
			return e.run(12 * time.Second)
		}, "the video is 1.5 s behind the audio"},
		{"gap", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.media += 1500 * time.Millisecond
			return e.run(4 * time.Second)
		}, "2 gaps without frames in the last minute"},
		{"gap long ago", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.media += 1500 * time.Millisecond
			return e.run(70 * time.Second)
		}, ""},
		{"jump", func(e *meteredEncoder) []string {
			e.run(20 * time.Second)
			e.meter.frame(false, false, true, e.media, 100, e.now)
			return e.run(4 * time.Second)
		}, "1 jump of the encoder's timestamps in the last minute;"},
		{"comes again and again", func(e *meteredEncoder) []string {
			for range 3 {
				e.run(4 * time.Second)
				e.connect(cmaf.Video, cmaf.Audio)
			}
			return e.run(4 * time.Second)
		}, "the encoder connected 4 times in the last minute"},
		{"comes back with less", func(e *meteredEncoder) []string {
			e.run(30 * time.Second)
			e.connect(cmaf.Video, cmaf.Audio)
			e.frameSize = 1000
			return e.run(40 * time.Second)
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			issues := tt.sick(newMeteredEncoder(cmaf.Video, cmaf.Audio))
			switch {
			case tt.want == "" && len(issues) > 0:
				t.Errorf("issues %q, want none", issues)
			case tt.want != "" && (len(issues) != 1 || !strings.HasPrefix(issues[0], tt.want)):
				t.Errorf("issues %q, want one that begins %q", issues, tt.want)
			}
		})
	}
}

// TestHealthOfAudioAlone sees to it that a radio station is healthy.
func TestHealthOfAudioAlone(t *testing.T) {
	e := newMeteredEncoder(cmaf.Audio)
	if issues := e.run(time.Minute); len(issues) > 0 {
		t.Errorf("issues %q, want none", issues)
	}
	e.noAudio = true
	if issues := e.run(6 * time.Second); len(issues) != 1 || !strings.HasPrefix(issues[0], "the encoder is connected but has sent nothing for 6 s") {
		t.Errorf("issues %q, want one of silence", issues)
	}
}

func TestHealthSamples(t *testing.T) {
	e := newMeteredEncoder(cmaf.Video, cmaf.Audio)
	e.audioAhead = 250 * time.Millisecond
	begin := e.now
	e.run(25 * time.Second)
	if len(e.meter.unsaved) != 2 {
		t.Fatalf("%d samples of 25 s, want 2", len(e.meter.unsaved))
	}
	want := weir.HealthSample{Bitrate: 4_848_000, FPS: 30, Pace: 1, KeyFrameInterval: 2, Drift: 0.25}
	for i, got := range e.meter.unsaved {
		if age := got.Time.Time().Sub(begin) - time.Duration(i+1)*sampleEvery; age < 0 || age > time.Second {
			t.Errorf("sample %d is of %v after the start", i, got.Time.Time().Sub(begin))
		}
		got.Time, got.KeyFrameInterval = 0, float64(int(got.KeyFrameInterval*10+0.5))/10
		if got.Bitrate < want.Bitrate*0.99 || got.Bitrate > want.Bitrate*1.01 || got.FPS < 29.8 || got.FPS > 30.2 || got.Pace < 0.99 || got.Pace > 1.01 {
			t.Errorf("sample %d is %+v, want about %+v", i, got, want)
		}
		got.Bitrate, got.FPS, got.Pace = want.Bitrate, want.FPS, want.Pace
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("sample %d (-want +got):\n%s", i, diff)
		}
	}

	e.meter.saved(e.meter.unsaved[1].Time)
	if len(e.meter.unsaved) != 1 {
		t.Errorf("%d samples wait after the first was written, want 1", len(e.meter.unsaved))
	}
	e.run(20 * time.Minute)
	if n := len(e.meter.unsaved); n != maxSamples {
		t.Errorf("%d samples wait for a store that is away, want %d", n, maxSamples)
	}
	if n := len(e.meter.marks); n > int(healthWindow/beatEvery)+2 {
		t.Errorf("%d marks are kept", n)
	}
}

// The state of multistream targets goes to the store with the health of their session.
func TestHealthOfTargets(t *testing.T) {
	s := newTestHub(t, false)
	asked := ""
	s.hub.o.Targets = func(sessionID string) ([]weir.TargetHealth, []string) {
		asked = sessionID
		return []weir.TargetHealth{{ID: "x", Status: "error"}}, []string{"a target gets nothing"}
	}
	e := s.publish()
	beat := e.session.beat(time.Now())
	if asked != e.session.info.ID || len(beat.Pushes) != 1 || !slices.Contains(beat.Issues, "a target gets nothing") {
		t.Errorf("asked for session %q; the store gets %+v and %q", asked, beat.Pushes, beat.Issues)
	}
	s.hub.beat(t.Context())
	if kept, err := s.store.TargetHealth(t.Context(), s.stream.ID); err != nil || len(kept) != 1 || kept[0].Status != "error" {
		t.Errorf("the store has %+v, %v", kept, err)
	}
}
