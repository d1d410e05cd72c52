package cmaf

import (
	"fmt"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestTSAudio: each segment of audio is in one segment in MPEG-TS, and in the right one.
func TestTSAudio(t *testing.T) {
	type span struct {
		start, end  int64 // milliseconds
		reconnected bool  // a new connection of the encoder begins with it
	}
	index := func(timescale uint32, spans []span) TrackIndex {
		x := TrackIndex{Track: Track{Timescale: timescale}}
		for _, s := range spans {
			ticks := func(ms int64) int64 { return ms * int64(timescale) / 1000 }
			part := Part{Start: ticks(s.start), Samples: []Sample{{Duration: uint32(ticks(s.end) - ticks(s.start))}}}
			x.Segments = append(x.Segments, Segment{Parts: []Part{part}, Discontinuity: s.reconnected})
		}
		return x
	}
	film := []span{{0, 2000, false}, {2000, 4000, false}, {4000, 6000, false}}
	broken := []span{{0, 2000, false}, {10_000, 12_000, true}}
	for _, tt := range []struct {
		name         string
		video, audio []span
		want         []string // the segments of audio in each segment
	}{
		{"aligned", film, film, []string{"0-1", "1-2", "2-3"}},
		{"starts late", film, []span{{1000, 2010, false}, {2010, 4010, false}}, []string{"0-1", "1-2", "2-2"}},
		{"starts before", film, []span{{-500, -10, false}, {-10, 2010, false}, {2010, 4010, false}}, []string{"0-2", "2-3", "3-3"}},
		{"shorter segments", film, []span{{0, 900, false}, {900, 1990, false}, {1990, 3990, false}, {3990, 6000, false}}, []string{"0-3", "3-4", "4-4"}},
		{"longer segments", film, []span{{0, 5000, false}, {5000, 6000, false}}, []string{"0-1", "1-1", "1-2"}},
		{"longer than the video", film, []span{{0, 5000, false}, {5000, 6000, false}, {6000, 8000, false}, {8000, 9000, false}}, []string{"0-1", "1-1", "1-2", "2-3", "3-4"}},
		{"after the video", film, []span{{7000, 8000, false}}, []string{"0-0", "0-0", "0-0", "0-1"}},
		{"no audio", film, nil, []string{"0-0", "0-0", "0-0"}},
		{"a reconnect", broken, []span{{0, 1990, false}, {10_020, 12_000, true}}, []string{"0-1", "1-2"}},
		{"a reconnect with audio first", broken, []span{{0, 1990, false}, {9950, 12_000, true}}, []string{"0-1", "1-2"}},
		{"a reconnect after video was lost", broken, []span{{0, 1990, false}, {2010, 4000, false}, {4000, 5000, false}, {9950, 12_000, true}}, []string{"0-3", "3-4"}},
		{"a reconnect without video", broken, []span{{0, 1990, false}, {5000, 6000, true}, {9950, 12_000, true}}, []string{"0-2", "2-3"}},
		{"a gap in the video", []span{{0, 2000, false}, {3000, 5000, false}}, []span{{0, 2500, false}, {2500, 5000, false}}, []string{"0-2", "2-2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			video, audio := index(90000, tt.video), index(44100, tt.audio)
			extra := TSExtra(video, audio)
			var got []string
			for n := range len(tt.video) + len(extra) {
				first, end := TSAudio(video, audio, n)
				got = append(got, fmt.Sprintf("%d-%d", first, end))
			}
			if diff := gocmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for i, d := range extra {
				s := tt.audio[len(tt.audio)-len(extra)+i]
				if want := time.Duration(s.end-s.start) * time.Millisecond; d != want {
					t.Errorf("extra segment %d of %v, want %v", i, d, want)
				}
			}
			if first, end := TSAudio(video, audio, len(tt.want)); first != len(tt.audio) || end != first {
				t.Errorf("a segment after the last has audio %d-%d", first, end)
			}
		})
	}
}
