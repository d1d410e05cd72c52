package vod

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// A moving test pattern, and a tone that begins after a second.
var (
	moving = []string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=3"}
	tone   = []string{"-f", "lavfi", "-i", "aevalsrc='if(gte(t,1),sin(880*t*2*PI)/2,0)':d=3:s=48000"}
	av     = slices.Concat(moving, tone)
	x264   = []string{"-c:v", "libx264", "-preset", "veryfast", "-g", "24", "-bf", "3", "-pix_fmt", "yuv420p", "-c:a", "aac"}
)

// odd is a source and what must come of it.
type odd struct {
	name    string
	make    []string // arguments of ffmpeg
	sources []odd    // that are made first
	cut     float64  // share of the bytes that is kept; 0 = all
	shorten uint32   // milliseconds of the video that the edit list shows; 0 = as it is

	size       [2]int // of the largest rendition; none = 320x180
	reference  string // filters that bring the source to the form of the rendition
	sequential bool
	silent     bool    // has no tone to look for
	toneAt     float64 // 0 = after a second
	noVideo    bool
	encode     string // part of the reason why it can't pass through; "-" = it can
	audio      int    // tracks; -1 = none, 0 = one
	frames     int    // 0 = what ffmpeg finds in the source
	fails      string
	noSSIM     bool
}

func with(lists ...[]string) []string { return slices.Concat(lists...) }

func oddSources() []odd {
	base := odd{name: "base.mp4", make: with(av, x264, []string{"-movflags", "+faststart"})}
	late := odd{name: "late.mp4", make: with(av, x264)}
	return []odd{
		base,
		{name: "moov-at-end.mp4", make: with(av, x264), encode: "-"},
		{name: "vfr.mp4", make: with(av, []string{"-vf", "select='not(mod(n,3))+not(mod(n,7))'", "-fps_mode", "vfr"}, x264), encode: "-"},
		{name: "rotated90.mp4", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-metadata:s:v:0", "rotate=90"}, size: [2]int{180, 320}, encode: "rotated"},
		{name: "rotated180.mov", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-metadata:s:v:0", "rotate=180"}},
		{name: "odd-444.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc=s=427x239:r=24:d=2"}, []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv444p"}), size: [2]int{428, 240}, audio: -1, reference: "scale=428:240:flags=bicubic", encode: "yuv444p"},
		{name: "odd.avi", make: with([]string{"-f", "lavfi", "-i", "testsrc=s=427x239:r=25:d=2"}, []string{"-c:v", "mpeg4", "-q:v", "3", "-bf", "2"}), size: [2]int{428, 240}, audio: -1, reference: "scale=428:240:flags=bicubic", sequential: true},
		{name: "interlaced.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=50:d=3"}, []string{"-vf", "interlace", "-c:v", "libx264", "-preset", "veryfast", "-flags", "+ildct+ilme", "-pix_fmt", "yuv420p"}), audio: -1, reference: "bwdif=mode=send_frame", encode: "interlaced"},
		{name: "10bit.mp4", make: with(av, []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p10le", "-c:a", "aac"}), reference: "format=yuv420p", encode: "yuv420p10le"},
		{name: "hevc-hdr.mp4", make: with(moving, []string{"-vf", "setparams=color_primaries=bt709:color_trc=bt709:colorspace=bt709,zscale=p=bt2020:t=smpte2084:m=bt2020nc:r=tv:npl=100,format=yuv420p10le", "-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=error:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc"}), audio: -1, noSSIM: true},
		{name: "open-gop.mp4", make: with(av, []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-x264-params", "open-gop=1:keyint=20:bframes=3:b-adapt=0", "-c:a", "aac"}), encode: "open"},
		{name: "one-key-frame.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=5"}, tone, []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "10000", "-x264-params", "scenecut=0", "-c:a", "aac"}), encode: "key frame"},
		{name: "hidden.mp4", sources: []odd{base}, make: []string{"-ss", "1.3", "-i", "@base.mp4", "-c", "copy"}, silent: true, encode: "hidden"},
		{name: "hidden-both.mp4", sources: []odd{base}, make: []string{"-ss", "0.7", "-i", "@base.mp4", "-t", "2", "-c", "copy"}, silent: true},
		{name: "hidden-end.mp4", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy"}, shorten: 2100, frames: 51, encode: "hidden"},
		{name: "interlaced.ts", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=50:d=3"}, []string{"-vf", "interlace", "-c:v", "libx264", "-preset", "veryfast", "-flags", "+ildct+ilme", "-pix_fmt", "yuv420p"}), audio: -1, reference: "bwdif=mode=send_frame", sequential: true},
		{name: "offset.ts", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-mpegts_copyts", "1", "-output_ts_offset", "5000"}, encode: "-"},
		{name: "h264.mkv", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy"}, encode: "-"},
		{name: "h264.flv", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy"}},
		{name: "vp9.webm", make: with(av, []string{"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "500k", "-g", "30", "-c:a", "libopus"})},
		{name: "vp8.webm", make: with(av, []string{"-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-b:v", "800k", "-c:a", "libvorbis"}), sequential: true},
		{name: "hevc.mp4", make: with(av, []string{"-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=error:keyint=24", "-c:a", "ac3"}), encode: "hevc"},
		{name: "mpeg2.ts", make: with(av, []string{"-c:v", "mpeg2video", "-b:v", "2M", "-bf", "2", "-c:a", "mp2"})},
		{name: "mpeg2.mpg", make: with(av, []string{"-r", "25", "-c:v", "mpeg2video", "-b:v", "2M", "-bf", "2", "-c:a", "mp2"})},
		{name: "prores.mov", make: with(av, []string{"-c:v", "prores_ks", "-profile:v", "3", "-c:a", "pcm_s16le"})},
		{name: "mpeg4.avi", make: with(av, []string{"-c:v", "mpeg4", "-q:v", "3", "-bf", "2", "-c:a", "libmp3lame"}), sequential: true},
		{name: "wmv.asf", make: with(av, []string{"-c:v", "wmv2", "-b:v", "2M", "-c:a", "wmav2"}), sequential: true},
		{name: "theora.ogv", make: with(av, []string{"-c:v", "libtheora", "-q:v", "8", "-c:a", "libvorbis"}), sequential: true},
		{name: "screen.mkv", make: with(av, []string{"-c:v", "ffv1", "-c:a", "flac"}), sequential: true},
		{name: "anamorphic.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=240x180:r=24:d=2"}, []string{"-vf", "setsar=4/3"}, x264), size: [2]int{320, 180}, audio: -1, reference: "scale=320:180:flags=bicubic", encode: "square"},
		{name: "audio.m4a", make: with(tone, []string{"-c:a", "aac"}), noVideo: true},
		{name: "audio.mp3", make: with(tone, []string{"-c:a", "libmp3lame"}), noVideo: true},
		{name: "audio.wav", make: tone, noVideo: true},
		{name: "video-only.mp4", make: with(moving, x264), audio: -1, encode: "-"},
		{name: "three-audio.mkv", make: with(av, []string{"-f", "lavfi", "-i", "sine=d=4:r=44100:frequency=330", "-map", "0:v", "-map", "1:a", "-map", "2:a", "-map", "1:a"}, x264, []string{"-c:a:1", "libopus", "-metadata:s:a:0", "language=eng", "-metadata:s:a:1", "language=deu"}), audio: 3},
		{name: "he-aac-like.mp4", make: with(moving, []string{"-f", "lavfi", "-i", "aevalsrc='if(gte(t,1),sin(880*t*2*PI)/2,0)':d=3:s=22050"}, x264[:len(x264)-2], []string{"-c:a", "libmp3lame"})},
		{name: "late-audio.mp4", sources: []odd{late}, make: []string{"-i", "@late.mp4", "-itsoffset", "1.5", "-i", "@late.mp4", "-map", "0:v", "-map", "1:a", "-c", "copy"}, toneAt: 2.5},
		{name: "one-frame.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=1"}, []string{"-frames:v", "1"}, x264), audio: -1},
		{name: "narrow.mp4", make: with([]string{"-f", "lavfi", "-i", "testsrc2=s=16x2000:r=10:d=1"}, x264), size: [2]int{16, 2000}, audio: -1, noSSIM: true},
		{name: "no-frames.ts", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-bsf:v", "noise=drop=1"}, fails: "no frame"},
		{name: "no-packets.ts", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-bsf:a", "noise=drop=1"}, audio: -1},
		{name: "truncated.mp4", make: with(av, x264, []string{"-movflags", "+faststart"}), cut: 0.6, fails: "send the whole file"},
		{name: "no-moov.mp4", make: with(av, x264), cut: 0.7, fails: "truncated"},
		{name: "truncated.mkv", make: with(av, x264), cut: 0.5, fails: "send the whole file"},
		{name: "text.mp4", make: []string{"-f", "lavfi", "-i", "anullsrc", "-t", "0.1", "-f", "data", "-map", "0", "-c", "copy"}, fails: "failed to probe"},
	}
}

func makeOdd(t *testing.T, o odd) string {
	t.Helper()
	for _, source := range o.sources {
		makeOdd(t, source)
	}
	path := mediatest.Film(t, o.name, o.make...)
	if o.cut == 0 && o.shorten == 0 {
		return path
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if o.shorten > 0 { // the first edit list is that of the video
		binary.BigEndian.PutUint32(data[bytes.Index(data, []byte("elst"))+12:], o.shorten)
		o.cut = 1
	}
	short := t.TempDir() + "/" + o.name
	if err := os.WriteFile(short, data[:int(float64(len(data))*o.cut)], 0o600); err != nil {
		t.Fatal(err)
	}
	return short
}

// Every odd source gives the expected result, or the expected error.
func TestOddSources(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, tt := range oddSources() {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := makeOdd(t, tt)
			o, err := tryTranscode(t, file, Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{{Name: "top", Bitrate: 2_000_000}}})
			if tt.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fails) || weir.KindOf(err) != weir.Invalid {
					t.Errorf("error %v of kind %q, want one that says %q", err, weir.KindOf(err), tt.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if warnings := Warnings(o.plan, o.results, o.audio); len(warnings) > 0 {
				t.Errorf("warnings about a source without damage: %q", warnings)
			}
			if got := o.source.Sequential != ""; got != tt.sequential {
				t.Errorf("sequential: %q, want %v", o.source.Sequential, tt.sequential)
			}
			if want := max(cmp.Or(tt.audio, 1), 0); len(o.audio) != want {
				t.Errorf("%d audio tracks, want %d", len(o.audio), want)
			}
			if tt.encode != "" {
				if got := o.source.Video.Encode; (got == "") != (tt.encode == "-") || got != "" && !strings.Contains(got, tt.encode) {
					t.Errorf("it can't pass through because %q, want %q", got, tt.encode)
				}
			}
			start := 0.0
			if !tt.noVideo {
				start = checkVideo(t, o, tt)
			} else if len(o.plan.Renditions) > 0 {
				t.Errorf("there is video: %v", o.plan.Renditions)
			}
			if len(o.audio) > 0 && !tt.silent {
				if got := toneAt(t, o.track(t, "audio0")) - start; math.Abs(got-cmp.Or(tt.toneAt, 1)) > 0.04 {
					t.Errorf("the tone begins %.3f seconds after the video, want %.1f", got, cmp.Or(tt.toneAt, 1))
				}
			}
		})
	}
}

// checkVideo compares all renditions with the source, and returns when they start.
func checkVideo(t *testing.T, o outcome, tt odd) float64 {
	t.Helper()
	track := o.track(t, "top")
	checkTimes(t, track.Index(), frameSums(t, o.file, "-map", "0:v:0"))
	size := tt.size
	if size == [2]int{} {
		size = [2]int{320, 180}
	}
	if got := [2]int{track.Index().Track.Width, track.Index().Track.Height}; got != size {
		t.Errorf("it is %dx%d, want %dx%d", got[0], got[1], size[0], size[1])
	}
	reference := cmp.Or(tt.reference, "null") + ",format=yuv420p"
	if tt.noSSIM {
		reference = fmt.Sprintf("scale=%d:%d,format=yuv420p", size[0], size[1])
	}
	frames, similar := compare(t, export(t, track), o.file, reference)
	if tt.frames > 0 && frames != tt.frames {
		t.Errorf("%d frames, want %d", frames, tt.frames)
	}
	if frames != track.Index().Frames() {
		t.Errorf("ffmpeg decodes %d of %d frames", frames, track.Index().Frames())
	}
	if similar < 0.93 && !tt.noSSIM {
		t.Errorf("SSIM with the source is %f", similar)
	}
	return shownTimes(track.Index())[0]
}

// toneAt returns when the first loud sample of a track is heard.
func toneAt(t *testing.T, track *media.Track) float64 {
	t.Helper()
	const rate = 48000
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-i", export(t, track), "-f", "s16le", "-ac", "1", "-ar", "48000", "-")
	audio, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	index := track.Index()
	for i := 0; i+1 < len(audio); i += 2 {
		if v := int16(binary.LittleEndian.Uint16(audio[i:])); v > 4000 || v < -4000 {
			return float64(index.Start())/float64(index.Track.Timescale) + float64(i/2)/rate
		}
	}
	t.Fatal("there is no tone")
	return 0
}
