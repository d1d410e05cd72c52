package ffmpeg

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A faster preset and fewer frames must each cost less, and the costs must match the measured ones.
func TestLiveCost(t *testing.T) {
	ladder := func(preset string, rate float64) LiveEncode {
		return LiveEncode{Video: VideoFormat{Width: 1920, Height: 1080}, Rate: 30, Timescale: 90000, Rungs: []LiveRung{
			{Width: 1280, Height: 720, Preset: preset, Rate: rate}, {Width: 854, Height: 480, Preset: preset, Rate: rate}, {Width: 640, Height: 360, Preset: preset, Rate: rate},
		}}
	}
	costs := []int{ladder(PresetBest, 0).Cost(), ladder(PresetFast, 0).Cost(), ladder(PresetFastest, 0).Cost(), ladder(PresetFastest, 15).Cost()}
	for i := 1; i < len(costs); i++ {
		if costs[i] >= costs[i-1] {
			t.Errorf("costs %v do not fall", costs)
		}
	}
	if costs[0] < 1400 || costs[0] > 1700 || costs[1] < 950 || costs[1] > 1150 || costs[2] < 600 || costs[2] > 750 {
		t.Errorf("costs %v are not those that were measured: 1540, 1040, 670", costs)
	}
}

func TestReserve(t *testing.T) {
	l := newLedger(2)
	chosen, release := l.reserve([]int{1600, 1100, 600})
	if chosen != 1 {
		t.Fatalf("of two cores a live encode got offer %d, want that of 1.1 cores", chosen)
	}
	second, releaseSecond := l.reserve([]int{600, 300})
	if second != 1 {
		t.Errorf("the second got offer %d, want that of 0.3 cores", second)
	}
	if third, _ := l.reserve([]int{200}); third != -1 {
		t.Errorf("the third got offer %d, and there is none left", third)
	}
	if s := l.stats(); s.Running[Live] != 2 || s.Busy != 2 {
		t.Errorf("stats: %+v", s)
	}
	// Others may do one thing at a time beside it.
	synctest.Test(t, func(t *testing.T) {
		first, err := l.acquire(t.Context(), Batch)
		if err != nil {
			t.Fatal(err)
		}
		defer first()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := l.acquire(ctx, Batch); err == nil {
			t.Error("two got cores beside a machine full of live streams")
		}
	})
	release()
	release()
	releaseSecond()
	if s := l.stats(); s.Busy != 0 || s.Running[Live] != 0 {
		t.Errorf("stats after all were released: %+v", s)
	}
}

// Interlaced frames are deinterlaced, and HDR colours are mapped to BT.709;
// no frame and no key frame gets lost.
func TestLiveInterlacedAndHDR(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	live := func(t *testing.T, track []byte, format VideoFormat) string {
		t.Helper()
		format.Width, format.Height = 256, 144
		path := written(t, track)
		scale := timescale(t, path)
		e := LiveEncode{Video: format, Rate: 25, Timescale: scale, Rungs: []LiveRung{{Width: 256, Height: 144, Preset: PresetFastest, Bitrate: 4_000_000}}}
		made := written(t, plain(t, e.Args(), track, 1)[0])
		sent, got := packets(t, path), packets(t, made)
		if diff := cmp.Diff(shown(sent, 0), shown(got, 0)); diff != "" {
			t.Errorf("times of frames (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(keys(sent, 0), keys(got, 0)); diff != "" {
			t.Errorf("times of key frames (-want +got):\n%s", diff)
		}
		return made
	}
	t.Run("interlaced", func(t *testing.T) {
		track := sourceTrack(t, "h264", "-f", "lavfi", "-i", "testsrc2=s=256x144:r=50:d=2", "-vf", "interlace", "-c:v", "libx264", "-preset", "ultrafast",
			"-flags", "+ildct+ilme", "-g", "10", "-bf", "0", "-pix_fmt", "yuv420p")
		combs := func(path string) (sum int) { // by how much lines differ from both that are beside them
			raw := plain(t, []string{"-i", path, "-f", "rawvideo", "-pix_fmt", "gray", "pipe:3"}, nil, 1)[0]
			for y := 1; y < len(raw)/256-1; y++ {
				for x := range 256 {
					above, here, below := int(raw[(y-1)*256+x]), int(raw[y*256+x]), int(raw[(y+1)*256+x])
					if up, down := here-above, here-below; up*down > 0 {
						sum += min(max(up, -up), max(down, -down))
					}
				}
			}
			return sum
		}
		before, after := combs(live(t, track, VideoFormat{})), combs(live(t, track, VideoFormat{Interlaced: true}))
		if after > before/2 {
			t.Errorf("lines stand out by %d after deinterlacing, %d before", after, before)
		}
	})
	t.Run("HDR", func(t *testing.T) {
		track := sourceTrack(t, "hevc", "-f", "lavfi", "-i", "color=c=0x949494:s=256x144:r=25:d=1,drawbox=w=128:h=144:c=black:t=fill", "-pix_fmt", "yuv420p10le",
			"-c:v", "libx265", "-x265-params", "log-level=error:bframes=0:keyint=10:colorprim=bt2020:colormatrix=bt2020nc:transfer=smpte2084")
		path := live(t, track, VideoFormat{Primaries: "bt2020", Transfer: "smpte2084", Matrix: "bt2020nc"})
		if got, want := ffprobe(t, "-show_entries", "stream=pix_fmt,color_space,color_transfer,color_primaries", path), "yuv420p,bt709,bt709,bt709"; got != want {
			t.Errorf("tags = %s, want %s", got, want)
		}
		raw := plain(t, []string{"-i", path, "-f", "rawvideo", "-pix_fmt", "gray", "pipe:3"}, nil, 1)[0]
		if black, white := raw[72*256+64], raw[72*256+192]; black > 10 || white < 120 || white > 250 {
			t.Errorf("black is %d and white is %d", black, white)
		}
	})
}

// The speed of a machine is measured once and stored, and the ledger uses it.
func TestMeasure(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	file := filepath.Join(t.TempDir(), "speed.json")
	open := func() *Engine {
		t.Helper()
		e, err := New(Options{Sandbox: Off, Cores: 2, Speed: file})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open()
	if speed, known := e.Speed(t.Context()); known || speed != 1 {
		t.Errorf("before it was measured, the speed is %v (%v)", speed, known)
	}
	e.Measure(t.Context())
	speed, known := e.Speed(t.Context())
	if !known || e.ledger.speed != speed {
		t.Fatalf("the speed is %v (%v), and %v in the ledger", speed, known, e.ledger.speed)
	}
	runs := e.Stats().Runs
	e.Measure(t.Context())
	if again := e.Stats().Runs; again != runs {
		t.Errorf("%d runs of ffmpeg to find out what is known", again-runs)
	}

	keep := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	keep(fmt.Sprintf(`{"machine":%q,"speed":0.5}`, e.machine(t.Context())))
	e = open()
	e.Measure(t.Context())
	if chosen, _ := e.Reserve([]int{800, 700}); chosen != 1 || e.Stats().Busy != 2 {
		t.Errorf("of two cores of half the speed, a live encode got offer %d, and %d are busy", chosen, e.Stats().Busy)
	}
	for _, other := range []string{`{"machine":"another","speed":0.5}`, fmt.Sprintf(`{"machine":%q,"speed":0}`, e.machine(t.Context())), "broken"} {
		keep(other)
		if speed, known := e.Speed(t.Context()); known {
			t.Errorf("%s is taken for the speed of this machine: %v", other, speed)
		}
	}
}
