package ffmpeg

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// probed is the part of a probe that the tests look at.
type probed struct {
	Format string
	Video  []string // codec, profile, pixel format
	Audio  []string // codec, language
	Other  int
	Stills int
}

func TestProbe(t *testing.T) {
	e := engine(t, Require)
	cover := clip(t, "cover.jpg", "-f", "lavfi", "-i", "testsrc2=s=64x64", "-frames:v", "1", "-update", "1")
	for _, tt := range []struct {
		name  string // of the file
		args  []string
		want  probed
		check func(t *testing.T, p Probe)
	}{
		{
			name: "plain.mp4", args: small("-metadata:s:a", "language=deu"),
			want: probed{Format: "mp4", Video: []string{"h264 Constrained Baseline yuv420p"}, Audio: []string{"aac deu"}},
			check: func(t *testing.T, p Probe) {
				v, a := p.Video[0], p.Audio[0]
				if d := (p.Duration - 2*time.Second).Abs(); d > 100*time.Millisecond || p.Size == 0 || p.BitRate == 0 {
					t.Errorf("duration %v, size %d, bit rate %d", p.Duration, p.Size, p.BitRate)
				}
				if v.Rate != (Ratio{25, 1}) || v.Width != 320 || v.Height != 180 || v.BitDepth != 8 || !v.Extradata || v.Frames != 50 || v.FieldOrder != "progressive" || v.Interlaced() || v.Transfer == "smpte2084" {
					t.Errorf("video = %+v", v)
				}
				if a.SampleRate != 44100 || a.Channels != 1 || a.Layout != "mono" || a.BitRate == 0 {
					t.Errorf("audio = %+v", a)
				}
			},
		},
		{
			name: "film.mov", args: small("-r", "30000/1001"),
			want: probed{Format: "mov", Video: []string{"h264 Constrained Baseline yuv420p"}, Audio: []string{"aac "}},
			check: func(t *testing.T, p Probe) {
				if p.Video[0].Rate != (Ratio{30000, 1001}) {
					t.Errorf("rate = %v", p.Video[0].Rate)
				}
			},
		},
		{
			name: "hdr.mkv",
			args: []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:d=1", "-c:v", "libx265", "-pix_fmt", "yuv420p10le", "-color_primaries", "bt2020", "-color_trc", "smpte2084", "-colorspace", "bt2020nc", "-x265-params", "log-level=0"},
			want: probed{Format: "matroska", Video: []string{"hevc Main 10 yuv420p10le"}},
			check: func(t *testing.T, p Probe) {
				v := p.Video[0]
				if v.Transfer != "smpte2084" || v.BitDepth != 10 || v.Primaries != "bt2020" || v.Matrix != "bt2020nc" || v.Range != "tv" || v.Reorder == 0 {
					t.Errorf("video = %+v", v)
				}
			},
		},
		{
			name: "late.ts", args: small("-output_ts_offset", "5", "-muxdelay", "0"),
			want: probed{Format: "mpegts", Video: []string{"h264 Constrained Baseline yuv420p"}, Audio: []string{"aac "}},
			check: func(t *testing.T, p Probe) {
				if p.Start < 4*time.Second || p.Start > 6*time.Second || p.Video[0].TimeBase != (Ratio{1, 90000}) {
					t.Errorf("start %v, time base %v", p.Start, p.Video[0].TimeBase)
				}
			},
		},
		{
			name: "interlaced.mkv", args: []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:d=1", "-vf", "interlace", "-c:v", "mpeg2video", "-flags", "+ilme+ildct", "-top", "1"},
			want: probed{Format: "matroska", Video: []string{"mpeg2video Main yuv420p"}},
			check: func(t *testing.T, p Probe) {
				if !p.Video[0].Interlaced() {
					t.Errorf("field order = %q", p.Video[0].FieldOrder)
				}
			},
		},
		{
			name: "wide.mp4", args: []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:d=1", "-vf", "setsar=2/1", "-c:v", "libx264", "-pix_fmt", "yuv444p"},
			want: probed{Format: "mp4", Video: []string{"h264 High 4:4:4 Predictive yuv444p"}},
			check: func(t *testing.T, p Probe) {
				if w, h := p.Video[0].Shown(); w != 640 || h != 180 {
					t.Errorf("shown as %dx%d", w, h)
				}
			},
		},
		{
			name: "languages.mkv",
			args: []string{
				"-f", "lavfi", "-i", "sine=d=1", "-f", "lavfi", "-i", "sine=d=1", "-map", "0", "-map", "1", "-c:a", "libopus", "-metadata:s:a:0", "language=fra", "-metadata:s:a:0", "title=Voix",
				"-metadata:s:a:1", "language=eng", "-disposition:a:0", "0", "-disposition:a:1", "default+forced",
			},
			want: probed{Format: "matroska", Audio: []string{"opus eng", "opus fra"}},
			check: func(t *testing.T, p Probe) {
				if a := p.Audio; !a[0].Default || !a[0].Forced || a[0].Index != 1 || a[1].Default || a[1].Title != "Voix" {
					t.Errorf("audio = %+v", a)
				}
			},
		},
		{
			name: "song.mp3", args: []string{"-f", "lavfi", "-i", "sine=d=1", "-i", cover, "-map", "0", "-map", "1", "-c:a", "libmp3lame", "-c:v", "copy", "-disposition:v", "attached_pic"},
			want: probed{Format: "mp3", Audio: []string{"mp3 "}, Stills: 1},
		},
		{
			name: "lossless.wav", args: []string{"-f", "lavfi", "-i", "sine=d=1", "-c:a", "pcm_s24le"},
			want: probed{Format: "wav", Audio: []string{"pcm_s24le "}},
			check: func(t *testing.T, p Probe) {
				if tracks := p.VideoSpec().Tracks; tracks[0].BitDepth != 24 {
					t.Errorf("tracks = %+v", tracks)
				}
			},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := e.Probe(t.Context(), clip(t, tt.name, tt.args...))
			if err != nil {
				t.Fatal(err)
			}
			got := probed{Format: p.Format, Other: len(p.Other), Stills: len(p.Stills)}
			for _, s := range p.Video {
				got.Video = append(got.Video, s.Codec+" "+s.Profile+" "+s.PixelFormat)
			}
			for _, s := range p.Audio {
				got.Audio = append(got.Audio, s.Codec+" "+s.Language)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("probe differs (-want +got):\n%s", diff)
			}
			if tt.check != nil {
				tt.check(t, p)
			}
			// Nodes exchange it as JSON.
			var back Probe
			if data, err := json.Marshal(p); err != nil || json.Unmarshal(data, &back) != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p, back); diff != "" {
				t.Errorf("JSON changes it:\n%s", diff)
			}
		})
	}
}

func TestVideoSpec(t *testing.T) {
	p := Probe{
		Format: "mp4", Duration: 2500 * time.Millisecond, BitRate: 9999,
		Video: []Track{{
			Kind: kindVideo, Codec: "h264", Width: 1920, Height: 1080, Rotation: 90, Sample: Ratio{1, 1}, PixelFormat: "yuv420p", BitDepth: 8,
			Rate: Ratio{30000, 1001}, BitRate: 1000, Start: 40 * time.Millisecond, Duration: 2 * time.Second,
		}},
		Audio:  []Track{{Kind: kindAudio, Codec: "aac", Channels: 2, SampleRate: 48000, BitRate: 100}},
		Stills: []Track{{Kind: kindVideo, Codec: "mjpeg"}},
		Other:  []Track{{Kind: "data"}},
	}
	want := weir.VideoSpec{Format: "mp4", Duration: 2.5, Bitrate: 1100, Tracks: []weir.Track{
		{Type: "video", Codec: "h264", StartTime: 0.04, Duration: 2, Bitrate: 1000, Width: 1080, Height: 1920, PixelFormat: "yuv420p", FPS: 30000.0 / 1001},
		{Type: "audio", Codec: "aac", Duration: 2.5, Bitrate: 100, Channels: 2, SampleRate: 48000},
	}}
	if diff := cmp.Diff(want, p.VideoSpec()); diff != "" {
		t.Errorf("spec differs (-want +got):\n%s", diff)
	}
	p.Audio[0].BitRate = 0 // not known: the rate of the whole file is all there is
	if got := p.VideoSpec().Bitrate; got != 9999 {
		t.Errorf("bitrate = %v, want 9999", got)
	}
}

func TestProbeExplainsUnusableFiles(t *testing.T) {
	e := engine(t, Require)
	good := clip(t, "good.mp4", small()...)
	content, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	subtitles := filepath.Join(t.TempDir(), "a.srt")
	if err := os.WriteFile(subtitles, []byte("1\n00:00:00,000 --> 00:00:01,000\nHello\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile(clip(t, "words.mkv", "-i", subtitles))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		content []byte
		words   []string
	}{
		{"empty", nil, []string{sentenceProbe, "empty"}},
		{"text", []byte("hello, this is a letter and not a film"), []string{sentenceProbe, "not a video or audio file"}},
		{"no index", content[:len(content)/2], []string{sentenceProbe, "truncated", "moov"}},
		{"subtitles", words, []string{InvalidSource, "no video and no audio"}},
		{"playlist", []byte("#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\nfile:" + good + "\n#EXT-X-ENDLIST\n"), []string{InvalidSource, "playlists"}},
		{"list of files", []byte("ffconcat version 1.0\nfile '" + good + "'\n"), []string{InvalidSource, "lists of files"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "source")
			if err := os.WriteFile(path, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := e.Probe(t.Context(), path)
			wantKind(t, err, weir.Invalid, tt.words...)
			if weir.Retriable(err) {
				t.Error("it is retried, though the source stays what it is")
			}
		})
	}
}

func TestProbeOfMissingFile(t *testing.T) {
	e := engine(t, Off)
	if _, err := e.Probe(t.Context(), filepath.Join(t.TempDir(), "no")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
	if _, err := e.Probe(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("error = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Probe(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
}

// A file that takes too long, or too much, to look into is refused for good.
func TestProbeIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, script string
		bounds       probing
		want         string
	}{
		{"CPU time", `while (1) {}`, probing{time.Hour, time.Second, 1 << 20}, "analyzing the file takes more than 1s of CPU time"},
		{"time", `sleep 1000`, probing{50 * time.Millisecond, time.Hour, 1 << 20}, "analyzing the file takes longer than 50ms"},
		{"memory", `$x = "x" x (1 << 20); push @a, $x . $_ while ++$_ < 2000; print "{}"`, probing{time.Hour, time.Hour, 1 << 20}, "analyzing the file takes more than 300 MB of memory"},
		{"description", `print "x" x 1000 while 1`, probing{time.Hour, time.Hour, 1 << 20}, "the descriptions of the tracks and tags of the file have more than 1 MB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "ffprobe")
			if err := os.WriteFile(program, []byte("#!/usr/bin/perl\n"+tt.script+"\n"), 0o700); err != nil {
				t.Fatal(err)
			}
			e := engine(t, Require)
			e.ffprobe, e.probing, e.memory = program, tt.bounds, 300e6
			_, err := e.Probe(t.Context(), path)
			wantKind(t, err, weir.Invalid, sentenceProbe, tt.want)
			if weir.Retriable(err) {
				t.Error("it is retried, though the source stays what it is")
			}
		})
	}
}

func TestUnreadableTracks(t *testing.T) {
	p, err := parseProbe([]byte(`{"streams":[{"index":0,"codec_type":"video","codec_name":"h264","width":0,"height":0},{"index":1,"codec_type":"audio","codec_name":"none"}],"format":{"format_name":"mpegts"}}`))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.check(), weir.Invalid, InvalidSource, "the video track of the file (codec h264) can't be decoded")

	p, err = parseProbe([]byte(`{"streams":[{"codec_type":"video","codec_name":"png","width":1,"height":1,"disposition":{"attached_pic":1}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, p.check(), weir.Invalid, InvalidSource, "only an image")
}

func TestOrientation(t *testing.T) {
	for _, tt := range []struct {
		name             string
		matrix, rotation string
		degrees          int
		mirrored         bool
	}{
		{"none", "", "", 0, false},
		{"upright", "\n00000000:        65536           0           0\n00000001:            0       65536           0\n", "0", 0, false},
		{"counterclockwise", "\n00000000:            0      -65536           0\n00000001:        65536           0           0\n", "90", 270, false},
		{"clockwise", "\n00000000:            0       65536           0\n00000001:       -65536           0           0\n", "-90", 90, false},
		{"upside down", "\n00000000:       -65536           0           0\n00000001:            0      -65536           0\n", "-180", 180, false},
		{"mirror", "\n00000000:       -65536           0           0\n00000001:            0       65536           0\n", "0", 0, true},
		{"standing mirror", "\n00000000:        65536           0           0\n00000001:            0      -65536           0\n", "0", 180, true},
		{"only the angle", "", "-90.00", 90, false},
		{"nearly", "", "91.5", 270, false},
		{"nonsense", "\n0: x y\n1: z\n", "NaN", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if degrees, mirrored := orientation(tt.matrix, tt.rotation); degrees != tt.degrees || mirrored != tt.mirrored {
				t.Errorf("got %d, %v, want %d, %v", degrees, mirrored, tt.degrees, tt.mirrored)
			}
		})
	}
}

// A probe reports the rotation that ffmpeg applies itself.
func TestProbeOfRotatedFile(t *testing.T) {
	e := engine(t, Require)
	flat := clip(t, "flat.mp4", small()...)
	for _, angle := range []string{"90", "180", "270"} {
		turned := clip(t, "turned.mp4", "-i", flat, "-c", "copy", "-metadata:s:v", "rotate="+angle)
		p, err := e.Probe(t.Context(), turned)
		if err != nil {
			t.Fatal(err)
		}
		v := p.Video[0]
		if v.Rotation == 0 {
			t.Skip("this ffmpeg writes no rotation that way")
		}
		if w, h := v.Shown(); angle != "180" && (w != 180 || h != 320) {
			t.Errorf("shown as %dx%d", w, h)
		}
		frame := func(args ...string) []byte {
			var out bytes.Buffer
			err := e.Run(t.Context(), Command{Args: append(args, "-frames:v", "1", "-pix_fmt", "gray", "-f", "rawvideo", "pipe:3"), Read: []string{turned}, Outputs: []io.Writer{&out}})
			if err != nil {
				t.Fatal(err)
			}
			return out.Bytes()
		}
		want := frame("-i", "file:"+turned)
		got := frame("-noautorotate", "-i", "file:"+turned, "-vf", strings.Join(v.VideoFormat().upright(), ","))
		if len(want) != 320*180 || !bytes.Equal(got, want) {
			t.Errorf("rotate=%s is read as %d degrees, which shows another frame than ffmpeg does", angle, v.Rotation)
		}
	}
}

func TestBitDepth(t *testing.T) {
	for format, want := range map[string]int{
		"": 0, "yuv420p": 8, "yuvj420p": 8, "nv12": 8, "yuv420p10le": 10, "yuv422p12be": 12, "p010le": 10, "gbrp16le": 16, "gray10le": 10, "gray": 8, "rgb24": 8, "rgb48le": 16, "yuva444p10le": 10, "pal8": 8, "yuv411p": 8,
	} {
		if got := bitDepth(format); got != want {
			t.Errorf("%s has %d bits, want %d", format, got, want)
		}
	}
}

func FuzzParseProbe(f *testing.F) {
	for _, seed := range []string{
		`{"streams":[{"index":0,"codec_name":"h264","codec_type":"video","width":1920,"height":1080,"sample_aspect_ratio":"4:3","avg_frame_rate":"24000/1001","r_frame_rate":"24/1","time_base":"1/90000","start_pts":-5,"start_time":"-0.1","bit_rate":"5860270","bits_per_raw_sample":"8","disposition":{"default":1},"tags":{"LANGUAGE":"eng"},"side_data_list":[{"displaymatrix":"\n0: 0 -65536 0\n1: 65536 0 0\n","rotation":90}]}],"format":{"format_name":"mov,mp4","duration":"30.022","tags":{"major_brand":"qt  "}}}`,
		`{"streams":[{"codec_type":"audio","codec_name":"aac","sample_rate":"48000","channels":2}],"format":{"duration":"1e300","bit_rate":"-1"}}`,
		`{"streams":[{"codec_type":"video","codec_name":"x","width":"99999999999999999999","sample_aspect_ratio":"0:1","side_data_list":[{"rotation":"1e999"}]}]}`,
		`{}`, `[]`, `{"streams":null,"format":{"duration":{}}}`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseProbe(data)
		if err != nil {
			return
		}
		_ = p.check()
		spec := p.VideoSpec()
		for _, number := range []float64{spec.Duration, spec.Bitrate} {
			if math.IsNaN(number) || math.IsInf(number, 0) || number < 0 {
				t.Fatalf("spec = %+v", spec)
			}
		}
		if _, err := json.Marshal(p); err != nil {
			t.Fatal(err)
		}
		for _, s := range p.Video {
			w, h := s.Shown()
			if s.Width <= 0 || s.Height <= 0 || w <= 0 || h <= 0 || w > 100*maxSide || h > 100*maxSide || s.Rotation%90 != 0 || s.Rotation < 0 || s.Rotation > 270 {
				t.Fatalf("track = %+v, shown as %dx%d", s, w, h)
			}
		}
	})
}

func FuzzProgress(f *testing.F) {
	f.Add("frame=10\nfps=0.0\nout_time_us=400000\nout_time_ms=400000\ntotal_size=N/A\nspeed=1.5x\nprogress=continue\nframe=20\nprogress=end\n")
	f.Add("=\nprogress\nprogress=\nout_time_us=99999999999999999999\nspeed=NaNx\nprogress=end")
	f.Fuzz(func(t *testing.T, text string) {
		moved, reports := 0, 0
		err := readProgress(strings.NewReader(text), func() { moved++ }, func(Progress) { reports++ })
		if moved > reports || err == nil && reports != 0 && !strings.Contains(text, "progress") {
			t.Errorf("%d moves, %d reports, %v", moved, reports, err)
		}
	})
}
