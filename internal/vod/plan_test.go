package vod

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// evenSource is a source of frames that come at an even rate, with a key frame every
// so many, and no other oddities.
func evenSource(frames, rate, every int, seconds float64) (Source, cmaf.TrackIndex) {
	const timescale = 12_000
	duration := timescale / rate
	v := videoImport{video: &SourceVideo{Timescale: timescale}, seconds: seconds}
	var index cmaf.TrackIndex
	var open cmaf.Contents
	for i := range frames {
		at := int64(i * duration)
		sample := cmaf.Sample{Duration: uint32(duration), Size: 100, Sync: i%every == 0}
		if i == 0 || v.cut(open, at, sample) {
			index.Segments = append(index.Segments, cmaf.Segment{})
			open = cmaf.Contents{Start: at, Bytes: 1}
		}
		segment := &index.Segments[len(index.Segments)-1]
		if sample.Sync || len(segment.Parts) == 0 {
			segment.Parts = append(segment.Parts, cmaf.Part{Start: at})
		}
		part := &segment.Parts[len(segment.Parts)-1]
		part.Samples = append(part.Samples, sample)
	}
	video := &SourceVideo{
		Track: ffmpeg.Track{Width: 1920, Height: 1080, Profile: "High"}, Width: 1920, Height: 1080, Bitrate: 5_000_000,
		Timescale: timescale, End: int64(frames * duration), Frames: frames, MaxGOP: float64(every) / float64(rate),
	}
	return Source{Prefix: "work/1", Duration: float64(frames) / float64(rate), Video: video}, index
}

func TestGrid(t *testing.T) {
	for _, tt := range []struct {
		name    string
		times   []int64 // in milliseconds
		end     int64
		seconds float64
		want    []int64
	}{
		{"even", []int64{0, 1000, 2000, 3000, 4000, 5000}, 6000, 2, []int64{0, 2000, 4000}},
		{"does not start at 0", []int64{21, 1021, 2021, 3021}, 4021, 2, []int64{21, 2021}},
		{"late frame", []int64{0, 1900, 2100, 3900, 4100}, 6000, 2, []int64{0, 2100, 4100}},
		{"slides", []int64{0, 9000, 9500, 30000}, 40000, 2, []int64{0, 9000, 30000}},
		{"short end", []int64{0, 1000, 2000, 2500}, 2900, 2, []int64{0}},
		{"first one short", []int64{0, 2000, 4000, 6000, 8000, 10000, 12000, 14000, 16000}, 18000, 6, []int64{0, 4000, 10000, 16000}},
		{"two in a row", []int64{0, 3900, 4000, 4100, 8000}, 10000, 2, []int64{0, 3900, 8000}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := Plan{SegmentSeconds: tt.seconds, Timescale: 1000}
			got := p.grid(cmaf.Frames{Times: tt.times, End: tt.end})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("grid differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodes(t *testing.T) {
	for _, tt := range []struct {
		seconds  int
		segment  float64
		encoders int
		gop      string
		want     string // segments of each encode
	}{
		{6, 6, 1, "", "1"},
		{6, 6, 2, "", "1"},
		{30, 6, 1, "", "6"},
		{30, 6, 2, "", "3 3"},
		{120, 6, 2, "", "11 10"},
		{600, 6, 2, "", "11 10 10 10 10 10 10 10 10 10"},
		{600, 6, 1, "", "101"},
		{60, 6, 16, "", "3 3 2 3"},
		{7200, 10, 1, "", "361 360"},
		{600, 2, 1, "0.05", "100 100 100"},
	} {
		t.Run(fmt.Sprintf("%ds by %d", tt.seconds, tt.encoders), func(t *testing.T) {
			src, index := evenSource(tt.seconds*24, 24, 24, tt.segment)
			plan, err := newPlan(src, index, Request{
				SegmentSeconds: tt.segment, Encoders: tt.encoders, EncodeAll: true,
				Profiles: []weir.Profile{{Name: "a", Width: 640, Height: 360, Bitrate: 1_000_000, GOP: tt.gop}},
			})
			if err != nil {
				t.Fatal(err)
			}
			var encodes []int
			next, frames := 0, 0
			for _, c := range plan.Chunks {
				if !c.Continues {
					encodes = append(encodes, 0)
				}
				encodes[len(encodes)-1] += c.Segments
				if c.First != next || c.Start != plan.Starts[c.First] {
					t.Errorf("chunk %+v does not start at the end of the one before", c)
				}
				for n := range c.Segments {
					frames += plan.segmentFrames(plan.Renditions[0], c.First+n)
				}
				next += c.Segments
			}
			if got := strings.Trim(fmt.Sprint(encodes), "[]"); got != tt.want {
				t.Errorf("encodes have %s segments, want %s", got, tt.want)
			}
			if len(plan.Chunks) > 2*maxChunks {
				t.Errorf("%d chunks", len(plan.Chunks))
			}
			if next != len(plan.Starts) || frames != tt.seconds*24 || plan.Chunks[len(plan.Chunks)-1].End != plan.End {
				t.Errorf("chunks have %d of %d segments and %d of %d frames", next, len(plan.Starts), frames, tt.seconds*24)
			}
		})
	}
}

func TestPassThrough(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*SourceVideo)
		req    Request
		want   string // names of the copied renditions
	}{
		{"default ladder", nil, Request{}, "1080p0"},
		{"not wanted", nil, Request{EncodeAll: true}, ""},
		{"it can't", func(v *SourceVideo) { v.Encode = "it is interlaced" }, Request{}, ""},
		{"same size", nil, Request{Profiles: []weir.Profile{{Name: "a", Width: 1920, Height: 1080, Bitrate: 6_000_000}}}, "a"},
		{"only a bitrate", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000}}}, "a"},
		{"one is enough", nil, Request{Profiles: []weir.Profile{{Name: "a", Width: 1920, Height: 1080, Bitrate: 6_000_000}, {Name: "b", Width: 1920, Height: 1080, Bitrate: 7_000_000}}}, "a"},
		{"bitrate too high", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 4_000_000}}}, ""},
		{"other size", nil, Request{Profiles: []weir.Profile{{Name: "a", Width: 1280, Height: 720, Bitrate: 6_000_000}}}, ""},
		{"other codec", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, Encoder: "HEVC"}}}, ""},
		{"same rate", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, FPS: new(24)}}}, "a"},
		{"other rate", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, FPS: new(30)}}}, ""},
		{"profile too high", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, Profile: "H264Main"}}}, ""},
		{"profile low enough", func(v *SourceVideo) { v.Track.Profile = "Constrained Baseline" }, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, Profile: "H264Main"}}}, "a"},
		{"baseline is wanted and had", func(v *SourceVideo) { v.Track.Profile = "Constrained Baseline" }, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, Profile: "H264Baseline"}}}, "a"},
		{"unknown profile", func(v *SourceVideo) { v.Track.Profile = "High 10" }, Request{}, ""},
		{"every frame a key frame", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, GOP: "intra"}}}, ""},
		{"key frames too far apart", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, GOP: "0.5"}}}, ""},
		{"key frames near enough", nil, Request{Profiles: []weir.Profile{{Name: "a", Bitrate: 6_000_000, GOP: "3"}}}, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			src, index := evenSource(24*20, 24, 24*3/2, 4)
			if tt.change != nil {
				tt.change(src.Video)
			}
			tt.req.SegmentSeconds = 4
			plan, err := newPlan(src, index, tt.req)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range plan.Renditions {
				if r.Copy {
					got = append(got, r.Name)
					if r.Dir != sourceDir {
						t.Errorf("%s is in %q", r.Name, r.Dir)
					}
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("copied renditions differ (-want +got):\n%s", diff)
			}
			want := []int64{0, 48_000, 96_000, 144_000, 192_000} // every four seconds
			if tt.want != "" {
				want = []int64{0, 54_000, 108_000, 144_000, 198_000} // at key frames
			}
			if diff := cmp.Diff(want, plan.Starts); diff != "" {
				t.Errorf("grid differs (-want +got):\n%s", diff)
			}
			if encoded := len(plan.encoded()); encoded == 0 && len(plan.Chunks) > 0 || encoded > 0 && len(plan.Chunks) == 0 {
				t.Errorf("%d chunks for %d renditions", len(plan.Chunks), encoded)
			}
		})
	}
}

func TestFrameAt(t *testing.T) {
	for _, tt := range []struct {
		rate         ffmpeg.Ratio
		timescale, t int64
		want         int64
	}{
		{ffmpeg.Ratio{Num: 30, Den: 1}, 90_000, 0, 0},
		{ffmpeg.Ratio{Num: 30, Den: 1}, 90_000, 1, 1},
		{ffmpeg.Ratio{Num: 30, Den: 1}, 90_000, 3000, 1},
		{ffmpeg.Ratio{Num: 30, Den: 1}, 90_000, 3001, 2},
		{ffmpeg.Ratio{Num: 30_000, Den: 1001}, 30_000, 1001 * 7, 7},
		{ffmpeg.Ratio{Num: 30_000, Den: 1001}, 90_000, 36_000 * 90_000, 1_078_922}, // ten hours
		{ffmpeg.Ratio{Num: 1, Den: 10}, 1000, 10_001, 2},
	} {
		if got := frameAt(tt.rate, tt.timescale, tt.t); got != tt.want {
			t.Errorf("first frame of %v at or after %d/%d is %d, want %d", tt.rate, tt.t, tt.timescale, got, tt.want)
		}
	}
}

func TestSegmentSeconds(t *testing.T) {
	for asked, want := range map[float64]float64{0: 10, -1: 10, 1: 2, 6: 6, 6.5: 6.5, 20: 20, 100: 20} {
		if got := segmentSeconds(asked); got != want {
			t.Errorf("asked for %v, got %v, want %v", asked, got, want)
		}
	}
}
