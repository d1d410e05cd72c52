package live

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

var update = flag.Bool("update", false, "write testdata/ladder/*.txt anew")

// TestLadderPlans holds the ways to make a ladder in testdata/ladder, the best first;
// -update writes them anew.
func TestLadderPlans(t *testing.T) {
	for name, tt := range map[string]struct {
		profiles      []weir.Profile
		width, height int
		rate          float64
	}{
		"default-1080p":  {weir.DefaultProfiles(), 1920, 1080, 30},
		"default-480p":   {weir.DefaultProfiles(), 854, 480, 60},
		"default-tiny":   {weir.DefaultProfiles(), 320, 180, 15},
		"portrait":       {weir.DefaultProfiles()[1:3], 1080, 1920, 29.97},
		"as-asked":       {[]weir.Profile{{Name: "a", Width: 640, Height: 360, Bitrate: 700_000, FPS: new(30000), FPSDen: 1001, GOP: "2.0", Quality: new(30), Profile: "H264Main"}}, 1280, 720, 60},
		"more-than-sent": {[]weir.Profile{{Name: "a", Width: 640, Height: 360, Bitrate: 700_000, FPS: new(60), GOP: "intra"}}, 640, 360, 30},
	} {
		t.Run(name, func(t *testing.T) {
			var text strings.Builder
			for i, p := range ladderPlans(tt.profiles, cmaf.Track{Kind: cmaf.Video, Width: tt.width, Height: tt.height, Timescale: 90000}, tt.rate) {
				fmt.Fprintf(&text, "%d: cost %d\n", i, p.encode.Cost())
				for j, r := range p.encode.Rungs {
					fmt.Fprintf(&text, "   %s %+v\n", tt.profiles[p.rungs[j]].Name, r)
				}
				for _, issue := range p.issues {
					fmt.Fprintf(&text, "   ! %s\n", issue)
				}
			}
			path := filepath.Join("testdata", "ladder", name+".txt")
			if *update {
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text.String()), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text.String()); diff != "" {
				t.Errorf("plans differ (-want +got); run with -update and read the diff:\n%s", diff)
			}
		})
	}
}

// Encoders that write milliseconds, B-frames and a dropped frame must not confuse what
// rate a source is taken to have.
func TestFrameRate(t *testing.T) {
	times := func(rate float64, round time.Duration, order ...int) (all []time.Duration) {
		for _, i := range order {
			all = append(all, time.Duration(float64(i)/rate*float64(time.Second)).Round(round))
		}
		return all
	}
	for name, tt := range map[string]struct {
		shown []time.Duration
		want  float64
	}{
		"30 in milliseconds": {times(30, time.Millisecond, 0, 1, 2, 3, 4, 5, 6, 7, 8), 30},
		"60 with B-frames":   {times(60, time.Millisecond, 0, 3, 1, 2, 6, 4, 5, 9, 7), 60},
		"25 with a hole":     {times(25, time.Nanosecond, 0, 1, 2, 3, 5, 6, 7, 8, 9), 25},
		"15":                 {times(15, time.Millisecond, 0, 1, 2, 3, 4, 5, 6), 15},
		"one frame":          {times(15, time.Millisecond, 0), 30},
		"all at once":        {times(15, time.Hour, 0, 1, 2), 30},
	} {
		if got := frameRate(tt.shown); math.Abs(got-tt.want) > 0.01 {
			t.Errorf("%s: %v frames a second, want %v", name, got, tt.want)
		}
	}
}

// What the parameter sets say of the picture gets to the encoder.
func TestFormatOf(t *testing.T) {
	// 1920x1080, interlaced, BT.709.
	sps := []byte{
		0x67, 0x4d, 0x40, 0x28, 0xf4, 0x03, 0xc0, 0x22, 0x7e, 0xf0, 0x16, 0xa0, 0x20, 0x20, 0x28, 0x00, 0x00, 0x03, 0x00, 0x08, 0x00, 0x00, 0x03, 0x01, 0x90, 0xf8, 0xb1, 0x75,
	}
	track := newTrack(t)(codec.H264Config(sps, []byte{0x68, 0xde, 0x0f, 0xc8}))
	want := ffmpeg.VideoFormat{Width: 1920, Height: 1080, Interlaced: true, Primaries: "bt709", Transfer: "bt709", Matrix: "bt709"}
	if diff := cmp.Diff(want, formatOf(track)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTimeline(t *testing.T) {
	l := newTimeline()
	at := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	if _, found, err := l.segment(t.Context(), 0); found || err != nil {
		t.Errorf("before anything came there is a segment (%v)", err)
	}
	l.addStart(segmentStart{number: 4, at: at(10)})
	l.settle(at(11))
	if in, found, err := l.segment(t.Context(), at(10.5)); !found || err != nil || in.number != 4 {
		t.Errorf("10.5 s is in segment %+v, %v, %v", in, found, err)
	}
	if _, found, _ := l.segment(t.Context(), at(9)); found {
		t.Error("there is a segment before the first one")
	}
	// What is not decided is waited for.
	done := make(chan segmentStart)
	go func() {
		in, _, _ := l.segment(t.Context(), at(12.1))
		done <- in
	}()
	l.settle(at(12))
	l.addStart(segmentStart{number: 5, at: at(12), discontinuity: true})
	l.settle(at(12.2))
	if in := <-done; in.number != 5 || !in.discontinuity {
		t.Errorf("12.1 s is in segment %+v, want 5", in)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := l.segment(ctx, at(13)); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a segment ended with %v", err)
	}
	l.pause()
	if in, found, err := l.segment(t.Context(), at(13)); !found || err != nil || in.number != 5 {
		t.Errorf("when the encoder is gone, 13 s is in segment %+v, %v, %v", in, found, err)
	}
	for n := range int64(2 * maxStarts) {
		l.addStart(segmentStart{number: 6 + n, at: at(14 + float64(n))})
	}
	if len(l.starts) != maxStarts {
		t.Errorf("%d starts are remembered", len(l.starts))
	}
}
