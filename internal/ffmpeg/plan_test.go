package ffmpeg

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const testLead = 10 * time.Second

var update = flag.Bool("update", false, "write testdata/plan/*.txt again")

// sourceTrack makes a small film and remuxes it as an import does.
func sourceTrack(t *testing.T, codec string, args ...string) []byte {
	t.Helper()
	name := "in.mp4"
	if codec == "vp9" {
		name = "in.webm"
	}
	film := made(t, name, args...)
	return plain(t, Remux{Lead: testLead, Input: film, Tracks: []Copy{{Track: 0, Codec: codec}}}.Args(), nil, 1)[0]
}

func timescale(t *testing.T, path string) int64 {
	t.Helper()
	_, den, _ := strings.Cut(ffprobe(t, "-show_entries", "stream=time_base", path), "/")
	var scale int64
	if _, err := fmt.Sscan(den, &scale); err != nil {
		t.Fatal(err)
	}
	return scale
}

// TestEncodeIsExact cuts a film into chunks and expects every frame once, at its
// own time, with key frames where they were asked for and one set of headers.
func TestEncodeIsExact(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	even := []string{"-f", "lavfi", "-i", "testsrc2=s=256x144:r=24:d=4", "-c:v", "libx264", "-preset", "ultrafast", "-bf", "2", "-g", "30"}
	uneven := []string{
		"-f", "lavfi", "-i", "testsrc2=s=256x144:r=60:d=4", "-vf", "select='not(mod(n,3))+not(mod(n,7))'", "-fps_mode", "vfr",
		"-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "30", "-video_track_timescale", "90000",
	}
	for _, codec := range []Codec{H264, HEVC, VP9, AV1} {
		for name, film := range map[string][]string{"even": even, "uneven": uneven} {
			t.Run(fmt.Sprintf("%s/%s", codec, name), func(t *testing.T) {
				track := sourceTrack(t, "h264", film...)
				path := written(t, track)
				scale := timescale(t, path)
				lead := 10 * scale
				want := shown(packets(t, path), lead)
				encode := Encode{Lead: testLead, Video: VideoFormat{Width: 256, Height: 144}, Timescale: scale, Rate: Ratio{24, 1}, Threads: 1}
				if name == "even" {
					encode.Tick = Ratio{1, 24}
				} else {
					encode.Tick = Ratio{1500, 90000}
				}
				middle := want[len(want)/2]
				var got, gotKeys, wantKeys []int64
				var headers []string
				for i, window := range [][2]int64{{0, middle}, {middle, 0}} {
					first := slices.IndexFunc(want, func(pts int64) bool { return pts >= window[0] })
					encode.Start, encode.End, encode.Threads = window[0], window[1], 2-i
					asked := []int64{want[first], want[first+17]}
					encode.Renditions = []Rendition{
						{Codec: codec, Width: 128, Height: 72, Bitrate: 100_000 + i*20_000, Peak: 200_000, Buffer: 200_000, Keys: asked},
					}
					if i == 1 { // as the rate control does
						encode.Renditions[0].Bitrate, encode.Renditions[0].Quality = 0, 23.45
					}
					data := plain(t, encode.Args(), track, 1)[0]
					out := written(t, data)
					all := packets(t, out)
					if s := timescale(t, out); s != scale {
						t.Errorf("timescale = %d, want %d", s, scale)
					}
					got = append(got, shown(all, lead)...)
					gotKeys = append(gotKeys, keys(all, lead)...)
					wantKeys = append(wantKeys, asked...)
					entry := data[bytes.Index(data, []byte("stsd")):bytes.Index(data, []byte("stts"))]
					headers = append(headers, fmt.Sprintf("%x", entry))
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("times differ (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantKeys, gotKeys); diff != "" {
					t.Errorf("key frames differ (-want +got):\n%s", diff)
				}
				if headers[0] != headers[1] {
					t.Errorf("headers of chunks differ: %s, %s", headers[0], headers[1])
				}
			})
		}
	}
}

// TestPlans compares plans with the golden files in testdata/plan; -update writes them again.
func TestPlans(t *testing.T) {
	sd := VideoFormat{Width: 1920, Height: 1080, PixelFormat: "yuv420p", Range: "tv", Primaries: "bt709", Transfer: "bt709", Matrix: "bt709"}
	ladder := []Rendition{
		{Codec: H264, Width: 1920, Height: 1080, Bitrate: 6_000_000, Peak: 9_000_000, Buffer: 12_000_000, GOP: 48, Keys: []int64{73728, 147456}},
		{Codec: H264, Width: 640, Height: 360, Quality: 27.5, Peak: 1_200_000, Buffer: 1_600_000, Profile: "H264Baseline", Keys: []int64{73728, 147456}},
	}
	chunk := Encode{Lead: testLead, Video: sd, Timescale: 12288, Tick: Ratio{512, 12288}, Rate: Ratio{24, 1}, Start: 73728, End: 221184, Threads: 1, Renditions: ladder}
	other := func(change func(*Encode)) Encode {
		e := chunk
		e.Renditions = slices.Clone(ladder[:1])
		change(&e)
		return e
	}
	for name, plan := range map[string]interface{ Args() []string }{
		"encode-ladder": chunk,
		"encode-codecs": other(func(e *Encode) {
			e.Renditions = nil
			for _, codec := range []Codec{HEVC, VP9, AV1} {
				e.Renditions = append(e.Renditions, Rendition{Codec: codec, Width: 1280, Height: 720, Bitrate: 3_000_000, Peak: 4_500_000, Buffer: 6_000_000, Keys: []int64{73728}})
			}
		}),
		"encode-file": other(func(e *Encode) {
			e.Input, e.Track, e.Start, e.End = "/spool/film.wmv", 1, 0, 0
			e.Renditions[0].Keys, e.Renditions[0].KeyEvery = nil, 10*time.Second
		}),
		"encode-rate": other(func(e *Encode) { e.Renditions[0].Rate = Ratio{30000, 1001} }),
		"encode-odd": other(func(e *Encode) {
			e.Video = VideoFormat{Width: 1920, Height: 1080, Rotation: 90, Mirrored: true, Interlaced: true, PixelFormat: "yuvj422p"}
			e.Renditions[0].Width, e.Renditions[0].Height = 720, 1280
			e.Renditions[0].GOP = 1
		}),
		"encode-hdr": other(func(e *Encode) {
			e.Video = VideoFormat{Width: 3840, Height: 2160, PixelFormat: "yuv420p10le", Primaries: "bt2020", Transfer: "smpte2084", Matrix: "bt2020nc"}
		}),
		"edge": Edge{
			Lead: testLead, Codec: H264, Pixels: "yuv420p", Timescale: 12288, Start: 73728, End: 110592, Tick: Ratio{512, 12288}, Rate: Ratio{24, 1},
			Profile: "high", Level: 41, SetID: 31, Keys: 96, Threads: 3,
		},
		"edge-hevc": Edge{
			Lead: testLead, Codec: HEVC, Pixels: "yuv420p10le", Timescale: 90000, Start: 90000, End: 180000, Profile: "main10", Level: 123, SetID: 15, Keys: 120, Threads: 1,
		},
		"encode-rgb": other(func(e *Encode) { e.Video = VideoFormat{Width: 1920, Height: 1080, PixelFormat: "gbrp"} }),
		"live-ladder": LiveEncode{Video: VideoFormat{Width: 1920, Height: 1080}, Rate: 30, Timescale: 90000, Rungs: []LiveRung{
			{Width: 1280, Height: 720, Bitrate: 3_000_000, Preset: PresetBest, Profile: "H264ConstrainedHigh"},
			{Width: 640, Height: 360, Bitrate: 800_000, Preset: PresetBest, Profile: "H264Main", GOP: 60, Quality: 27},
		}},
		"live-slower": LiveEncode{Video: VideoFormat{Width: 1280, Height: 720}, Rate: 59.94, Timescale: 90000, Rungs: []LiveRung{
			{Width: 426, Height: 240, Bitrate: 250_000, Preset: PresetFastest, Profile: "H264Baseline", Rate: 29.97},
			{Width: 426, Height: 240, Bitrate: 150_000, Preset: PresetFastest, GOP: 1, Rate: 15},
		}},
		"live-interlaced": LiveEncode{
			Video: VideoFormat{Width: 1920, Height: 1080, Interlaced: true, Primaries: "bt709", Transfer: "bt709", Matrix: "bt709"}, Rate: 25, Timescale: 90000,
			Rungs: []LiveRung{{Width: 1280, Height: 720, Bitrate: 3_000_000, Preset: PresetFast}},
		},
		"live-hdr": LiveEncode{
			Video: VideoFormat{Width: 3840, Height: 2160, Primaries: "bt2020", Transfer: "arib-std-b67", Matrix: "bt2020nc"}, Rate: 30, Timescale: 90000,
			Rungs: []LiveRung{{Width: 640, Height: 360, Bitrate: 800_000, Preset: PresetFast}, {Width: 1280, Height: 720, Bitrate: 3_000_000, Preset: PresetFast}},
		},
		"poster": Poster{Video: VideoFormat{Width: 1920, Height: 1080}, MaxWidth: 1280, MaxHeight: 720},
		"poster-hdr": Poster{
			Video:    VideoFormat{Width: 3840, Height: 2160, Primaries: "bt2020", Transfer: "smpte2084", Matrix: "bt2020nc"},
			MaxWidth: 1280, MaxHeight: 720,
		},
		"remux":        Remux{Lead: testLead, Input: "/spool/film.mov", Strict: true, Tracks: []Copy{{Track: 0, Codec: "hevc"}, {Track: 2, Codec: "aac"}, {Track: 3, Codec: "ac3", Matroska: true}}},
		"remux-part":   Remux{Lead: testLead, Input: "/spool/film.mkv", Tracks: []Copy{{Track: 0, Codec: "h264"}}, From: 90500 * time.Millisecond, To: 2 * time.Minute},
		"remux-prores": Remux{Lead: testLead, Input: "/spool/film.mov", Tracks: []Copy{{Track: 0, Codec: "prores"}}},
		"audio":        Audio{Lead: testLead, Input: "/spool/film.mkv", Track: 1, Channels: 6, SampleRate: 48_000},
		"audio-part":   Audio{Lead: testLead, Format: "matroska", Channels: 2, SampleRate: 44_100, First: 90500 * time.Millisecond},
		"audio-mono":   Audio{Lead: testLead, Format: "matroska", Channels: 1, SampleRate: 22_050, Bitrate: 48_000},
		"thumbnails":   Thumbnails{Lead: testLead, Video: sd, Timescale: 12288, Width: 640, Height: 360},
		"thumbnails-all": Thumbnails{
			Lead:  testLead,
			Video: sd, Timescale: 12288, Width: 640, Height: 360,
			Columns: 5, Rows: 4, SpriteWidth: 160, SpriteHeight: 90, Poster: 2, PosterWidth: 1280, PosterHeight: 720,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := lines(plan.Args())
			path := filepath.Join("testdata", "plan", name+".txt")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("arguments differ (-want +got); run with -update and read the diff:\n%s", diff)
			}
		})
	}
}

// lines puts every option on a line of its own, with its value.
func lines(args []string) string {
	var text strings.Builder
	for i, arg := range args {
		switch {
		case i == 0:
		case strings.HasPrefix(arg, "-") && arg != "-1":
			text.WriteString("\n")
		default:
			text.WriteString(" ")
		}
		text.WriteString(arg)
	}
	return text.String() + "\n"
}

func TestFit(t *testing.T) {
	for _, tt := range []struct{ width, height, wantWidth, wantHeight int }{
		{1920, 1080, 640, 360},
		{1080, 1920, 202, 360},
		{320, 180, 320, 180},
		{853, 479, 640, 358},
		{16, 4000, 2, 360},
		{0, 0, 640, 360},
	} {
		if w, h := Fit(tt.width, tt.height, 640, 360); w != tt.wantWidth || h != tt.wantHeight {
			t.Errorf("Fit(%d, %d) = %d, %d, want %d, %d", tt.width, tt.height, w, h, tt.wantWidth, tt.wantHeight)
		}
	}
}
