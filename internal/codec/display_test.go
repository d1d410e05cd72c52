package codec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// displays are streams of all codings, and what their configurations say of their frames.
var displays = map[string]struct {
	options, format string
	want            Display
}{
	"H.264": {video + " -c:v libx264 -pix_fmt yuv420p -preset ultrafast", "h264", Display{}},
	"H.264 interlaced": {
		video + " -vf scale=160:96,interlace -c:v libx264 -pix_fmt yuv420p -preset ultrafast -flags +ildct+ilme -colorspace bt709 -color_primaries bt709 -color_trc bt709", "h264",
		Display{Interlaced: true, Primaries: 1, Transfer: 1, Matrix: 1},
	},
	"H.264 full range": {video + " -c:v libx264 -pix_fmt yuvj420p -preset ultrafast", "h264", Display{FullRange: true}},
	"HEVC HDR": {
		video + " -c:v libx265 -pix_fmt yuv420p10le -preset ultrafast -x265-params log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc", "hevc",
		Display{Primaries: 9, Transfer: 16, Matrix: 9},
	},
	"AV1 HLG": {
		video + " -c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p10le -usage realtime -color_primaries bt2020 -color_trc arib-std-b67 -colorspace bt2020nc", "obu",
		Display{Primaries: 9, Transfer: 18, Matrix: 9},
	},
}

// configOf returns the configuration that a stream of a format begins with.
func configOf(t testing.TB, stream []byte, format string) Config {
	t.Helper()
	var c Config
	var err error
	switch format {
	case "h264":
		sets := setsOf(unitsOf(t, stream), H264NAL, NALSPS, NALPPS)
		c, err = H264Config(sets[0], sets[1])
	case "hevc":
		sets := setsOf(unitsOf(t, stream), H265NAL, NALVPS, NALSPS, NALPPS)
		c, err = H265Config(sets[0], sets[1], sets[2])
	default:
		c, err = AV1Config(stream)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDisplay(t *testing.T) {
	for name, tt := range displays {
		t.Run(name, func(t *testing.T) {
			config := configOf(t, ffmpeg(t, tt.options, tt.format), tt.format)
			if diff := cmp.Diff(tt.want, config.Display()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	audio, err := OpusConfig(2)
	if err != nil || audio.Display() != (Display{}) {
		t.Errorf("display of audio: %+v, %v", audio.Display(), err)
	}
}

// FuzzDisplay reads configurations that may be anything.
func FuzzDisplay(f *testing.F) {
	for _, tt := range displays {
		f.Add(configOf(f, ffmpeg(f, tt.options, tt.format), tt.format).Record)
	}
	f.Add([]byte(nil))
	f.Fuzz(func(_ *testing.T, record []byte) {
		for _, name := range []string{H264, H265, AV1} {
			Config{Codec: name, Record: record}.Display()
		}
	})
}
