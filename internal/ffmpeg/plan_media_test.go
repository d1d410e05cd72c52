package ffmpeg

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRateIsAbsolute changes the frame rate of a film in two chunks and expects the
// frames of one continuous grid, and all of them.
func TestRateIsAbsolute(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	track := sourceTrack(t, "h264", "-f", "lavfi", "-i", "testsrc2=s=128x72:r=24:d=4", "-c:v", "libx264", "-preset", "ultrafast", "-g", "30")
	for _, rate := range []Ratio{{30, 1}, {30000, 1001}, {15, 1}, {60, 1}} {
		t.Run(rate.String(), func(t *testing.T) {
			var got, want []int64
			var scale int64
			for _, window := range [][2]int64{{0, 30720}, {30720, 49152}} { // 2.5 s, then to 4 s
				encode := Encode{
					Lead:  testLead,
					Video: VideoFormat{Width: 128, Height: 72}, Timescale: 12288, Tick: Ratio{1, 24}, Rate: Ratio{24, 1}, Start: window[0], End: window[1], Threads: 1,
					Renditions: []Rendition{{Codec: H264, Width: 128, Height: 72, Rate: rate, Bitrate: 100_000}, {Codec: H264, Width: 64, Height: 36, Bitrate: 50_000}},
				}
				out := plain(t, encode.Args(), track, 2)
				path := written(t, out[0])
				scale = timescale(t, path)
				got = append(got, shown(packets(t, path), 10*scale)...)
				if n, frames := len(packets(t, written(t, out[1]))), int(window[1]-window[0])/512; n != frames {
					t.Errorf("rendition without a rate has %d frames, want %d", n, frames)
				}
			}
			for n := int64(0); n*rate.Den < 4*rate.Num; n++ {
				want = append(want, n*rate.Den*scale/rate.Num)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("times differ (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOrientationAndColour encodes frames with one red corner and expects it where a
// viewer would see it, in the right colour.
func TestOrientationAndColour(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	// The left upper quarter is red, the rest is blue.
	const card = "color=c=blue:s=256x144:r=10:d=1,drawbox=w=128:h=72:c=red:t=fill"
	upright := []corner{{32, 18, red}, {96, 18, blue}, {32, 54, blue}, {96, 54, blue}}
	for _, tt := range []struct {
		name   string
		codec  string
		film   []string
		format VideoFormat
		width  int
		height int
		want   []corner
	}{
		{name: "plain", codec: "h264", film: []string{"-c:v", "libx264"}, want: upright},
		{name: "10 bits", codec: "h264", film: []string{"-pix_fmt", "yuv420p10le", "-c:v", "libx264"}, want: upright},
		{name: "4:4:4", codec: "h264", film: []string{"-pix_fmt", "yuv444p", "-c:v", "libx264"}, format: VideoFormat{PixelFormat: "yuv444p"}, want: upright},
		{name: "full range", codec: "mjpeg", film: []string{"-pix_fmt", "yuvj422p", "-c:v", "mjpeg"}, format: VideoFormat{PixelFormat: "yuvj422p", Range: "pc"}, want: upright},
		{name: "interlaced", codec: "mpeg2video", film: []string{"-flags", "+ilme+ildct", "-top", "1", "-c:v", "mpeg2video"}, format: VideoFormat{Interlaced: true}, want: upright},
		{
			name: "turned by 90", codec: "h264", film: []string{"-c:v", "libx264"}, format: VideoFormat{Rotation: 90}, width: 72, height: 128,
			want: []corner{{18, 32, blue}, {54, 32, red}, {18, 96, blue}, {54, 96, blue}},
		},
		{
			name: "turned by 180", codec: "h264", film: []string{"-c:v", "libx264"}, format: VideoFormat{Rotation: 180},
			want: []corner{{32, 18, blue}, {96, 18, blue}, {32, 54, blue}, {96, 54, red}},
		},
		{
			name: "turned by 270", codec: "h264", film: []string{"-c:v", "libx264"}, format: VideoFormat{Rotation: 270}, width: 72, height: 128,
			want: []corner{{18, 32, blue}, {54, 32, blue}, {18, 96, red}, {54, 96, blue}},
		},
		{
			name: "mirrored", codec: "h264", film: []string{"-c:v", "libx264"}, format: VideoFormat{Mirrored: true},
			want: []corner{{32, 18, blue}, {96, 18, red}, {32, 54, blue}, {96, 54, blue}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			track := sourceTrack(t, tt.codec, append([]string{"-f", "lavfi", "-i", card, "-pix_fmt", "yuv420p"}, tt.film...)...)
			tt.format.Width, tt.format.Height = 256, 144
			if tt.width == 0 {
				tt.width, tt.height = 128, 72
			}
			scale := timescale(t, written(t, track))
			encode := Encode{
				Lead:  testLead,
				Video: tt.format, Timescale: scale, Rate: Ratio{10, 1}, Threads: 1,
				Renditions: []Rendition{{Codec: H264, Width: tt.width, Height: tt.height, Quality: 10}},
			}
			path := written(t, plain(t, encode.Args(), track, 1)[0])
			if n := len(packets(t, path)); n != 10 {
				t.Errorf("%d frames, want 10", n)
			}
			checkCorners(t, path, tt.width, tt.want)
			if got, want := ffprobe(t, "-show_entries", "stream=pix_fmt,sample_aspect_ratio,color_range,color_space", path), "1:1,yuv420p,tv,smpte170m"; got != want {
				t.Errorf("tags = %s, want %s", got, want)
			}
		})
	}
}

type corner struct {
	x, y   int
	colour string
}

const (
	red  = "red"
	blue = "blue"
)

// checkCorners decodes the last frame and looks at single pixels.
func checkCorners(t *testing.T, path string, width int, want []corner) {
	t.Helper()
	raw := plain(t, []string{"-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "pipe:3"}, nil, 1)[0]
	for _, c := range want {
		at := (c.y*width + c.x) * 3
		r, g, b := raw[at], raw[at+1], raw[at+2]
		wanted := r > 240 && g < 15 && b < 15
		if c.colour == blue {
			wanted = r < 15 && g < 15 && b > 240
		}
		if !wanted {
			t.Errorf("pixel at %d,%d is %d %d %d, want %s", c.x, c.y, r, g, b, c.colour)
		}
	}
}

// TestToneMap expects the white of an HDR film (203 nits) to be light, its black
// black and the result tagged for ordinary screens.
func TestToneMap(t *testing.T) {
	for _, transfer := range []string{"smpte2084", "arib-std-b67"} {
		t.Run(transfer, func(t *testing.T) {
			film := []string{
				"-f", "lavfi", "-i", "color=c=0x949494:s=256x144:r=10:d=1,drawbox=w=128:h=144:c=black:t=fill", "-pix_fmt", "yuv420p10le",
				"-c:v", "libx265", "-x265-params", "log-level=error:colorprim=bt2020:colormatrix=bt2020nc:transfer=" + transfer,
			}
			track := sourceTrack(t, "hevc", film...)
			encode := Encode{
				Lead:      testLead,
				Video:     VideoFormat{Width: 256, Height: 144, PixelFormat: "yuv420p10le", Primaries: "bt2020", Transfer: transfer, Matrix: "bt2020nc"},
				Timescale: 10240, Rate: Ratio{10, 1}, Threads: 1, Renditions: []Rendition{{Codec: H264, Width: 128, Height: 72, Quality: 10}},
			}
			path := written(t, plain(t, encode.Args(), track, 1)[0])
			if got, want := ffprobe(t, "-show_entries", "stream=pix_fmt,color_space,color_transfer,color_primaries", path), "yuv420p,bt709,bt709,bt709"; got != want {
				t.Errorf("tags = %s, want %s", got, want)
			}
			raw := plain(t, []string{"-i", path, "-f", "rawvideo", "-pix_fmt", "gray", "pipe:3"}, nil, 1)[0]
			if black, white := raw[36*128+32], raw[36*128+96]; black > 10 || white < 120 || white > 250 {
				t.Errorf("black is %d and white is %d", black, white)
			}
		})
	}
}

// TestRemuxKeepsTime takes files apart and expects every frame at its time, counted
// from where the presentation starts, hidden ones before 0.
func TestRemuxKeepsTime(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	film := []string{"-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=2", "-f", "lavfi", "-i", "sine=r=48000:d=2"}
	x264 := []string{"-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "20", "-c:a", "aac"}
	whole := made(t, "whole.mp4", append(slices.Clone(film), x264...)...)
	for _, tt := range []struct {
		file  string
		codec string
		args  []string
		first float64 // seconds
		audio float64
	}{
		{"film.mp4", "h264", append(slices.Clone(film), x264...), 0, -1024. / 48000},
		{"hidden.mp4", "h264", []string{"-ss", "1", "-i", whole, "-c", "copy"}, -0.2, -0.296},
		{"film.mkv", "h264", append(slices.Clone(film), x264...), 0.021, 0},
		{"film.ts", "h264", append(slices.Clone(film), x264...), 1920. / 90000, 0},
		{"film.mov", "prores", append(slices.Clone(film), "-c:v", "prores_ks", "-c:a", "aac"), 0, -1024. / 48000},
	} {
		t.Run(tt.file, func(t *testing.T) {
			path := made(t, tt.file, tt.args...)
			out := plain(t, Remux{Lead: testLead, Input: path, Tracks: []Copy{{Track: 0, Codec: tt.codec}, {Track: 1, Codec: "aac"}}}.Args(), nil, 2)
			for i, wantFirst := range []float64{tt.first, tt.audio} {
				track := written(t, out[i])
				scale := timescale(t, track)
				times := shown(packets(t, track), 10*scale)
				if diff := float64(times[0])/float64(scale) - wantFirst; diff > 0.03 || diff < -0.03 {
					t.Errorf("track %d starts at %d/%d s, want %g s", i, times[0], scale, wantFirst)
				}
				if i == 0 {
					if step := times[2] - times[1]; step*25-scale > scale/20 || step*25-scale < -scale/20 {
						t.Errorf("frames are %d/%d s apart", step, scale)
					}
				}
			}
		})
	}
}

// TestAudioStaysInStep encodes audio that starts late and has a gap, and expects it at the
// same times.
func TestAudioStaysInStep(t *testing.T) {
	// Audio from 0.5 s to 1 s and from 2 s to 3 s, in one track.
	film := made(t, "film.mkv", "-f", "lavfi", "-i", "testsrc2=s=64x36:r=25:d=3", "-f", "lavfi", "-i", "sine=f=1000:r=48000:d=3",
		"-af", "aselect='between(t,0.5,1)+gte(t,2)'", "-ac", "6", "-c:v", "libx264", "-c:a", "ac3", "-fps_mode", "passthrough")
	fromFile := plain(t, Audio{Lead: testLead, Input: film, Track: 1, Channels: 6, SampleRate: 48_000}.Args(), nil, 1)[0]
	spool := plain(t, Remux{Lead: testLead, Input: film, Tracks: []Copy{{Track: 1, Codec: "ac3", Matroska: true}}}.Args(), nil, 1)[0]
	fromPipe := plain(t, Audio{Lead: testLead, Format: "matroska", Channels: 6, SampleRate: 48_000}.Args(), spool, 1)[0]
	for name, track := range map[string][]byte{"file": fromFile, "pipe": fromPipe} {
		t.Run(name, func(t *testing.T) {
			path := written(t, track)
			all := packets(t, path)
			if all[0].pts != 480_000-1024 {
				t.Errorf("first packet is at %d, want the priming just before 480000", all[0].pts)
			}
			for i, p := range all[1:] {
				if p.pts-all[i].pts != 1024 {
					t.Fatalf("packet %d is %d after the one before it", i+1, p.pts-all[i].pts)
				}
			}
			// Loudness of each 100 ms, from the presentation's start.
			raw := plain(t, []string{"-copyts", "-i", path, "-ac", "1", "-ar", "8000", "-f", "s16le", "pipe:3"}, nil, 1)[0]
			raw = raw[2*8000*1024/48000:]
			var heard strings.Builder
			for window := range slices.Chunk(raw, 1600) {
				loud := byte('.')
				for i := 1; i < len(window); i += 2 {
					if int8(window[i]) > 2 {
						loud = '#'
					}
				}
				heard.WriteByte(loud)
			}
			if got := heard.String(); !strings.HasPrefix(got, ".....#####") || !strings.Contains(got[10:21], "........") || !strings.HasPrefix(got[21:], "########") {
				t.Errorf("audio is at %s", got)
			}
			if got := ffprobe(t, "-show_entries", "stream=codec_name,profile,channels,sample_rate", path); got != "aac,LC,48000,2" {
				t.Errorf("track is %s", got)
			}
		})
	}
}

// TestThumbnailsOfKeyFrames makes an image of every key frame.
func TestThumbnailsOfKeyFrames(t *testing.T) {
	track := sourceTrack(t, "h264", "-f", "lavfi", "-i", "testsrc2=s=256x144:r=10:d=5", "-c:v", "libx264", "-g", "1")
	out := plain(t, Thumbnails{
		Lead:  testLead,
		Video: VideoFormat{Width: 256, Height: 144}, Timescale: 10240, Width: 128, Height: 72,
		Columns: 5, Rows: 4, SpriteWidth: 64, SpriteHeight: 36, Poster: 7, PosterWidth: 256, PosterHeight: 144,
	}.Args(), track, 3)
	for i, want := range []struct {
		images int
		size   string
	}{{50, "128,72"}, {3, "320,144"}, {1, "256,144"}} {
		if n := bytes.Count(out[i], []byte("\xff\xd8\xff")); n != want.images {
			t.Errorf("pipe:%d has %d images, want %d", 3+i, n, want.images)
		}
		if size := ffprobe(t, "-f", "jpeg_pipe", "-show_entries", "stream=width,height", written(t, out[i])); size != want.size {
			t.Errorf("images of pipe:%d are %s, want %s", 3+i, size, want.size)
		}
	}
}
