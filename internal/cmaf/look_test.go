package cmaf

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// looks are films of all codings, and what their configurations say of their pictures.
var looks = map[string]struct {
	options string
	want    Look
}{
	"H.264": {picture + " -c:v libx264 -pix_fmt yuv420p -preset ultrafast", Look{}},
	"H.264 interlaced": {
		picture + " -vf scale=160:96,interlace -c:v libx264 -pix_fmt yuv420p -preset ultrafast -flags +ildct+ilme -colorspace bt709 -color_primaries bt709 -color_trc bt709",
		Look{Interlaced: true, Primaries: 1, Transfer: 1, Matrix: 1},
	},
	"H.264 full range": {picture + " -c:v libx264 -pix_fmt yuvj420p -preset ultrafast", Look{FullRange: true}},
	"HEVC HDR": {
		picture + " -c:v libx265 -pix_fmt yuv420p10le -preset ultrafast -tag:v hvc1 -x265-params log-level=none:colorprim=bt2020:transfer=smpte2084:colormatrix=bt2020nc",
		Look{Primaries: 9, Transfer: 16, Matrix: 9},
	},
	"AV1 HLG": {
		picture + " -c:v libaom-av1 -cpu-used 8 -pix_fmt yuv420p10le -usage realtime -color_primaries bt2020 -color_trc arib-std-b67 -colorspace bt2020nc",
		Look{Primaries: 9, Transfer: 18, Matrix: 9},
	},
	"sound": {audio + " -c:a aac", Look{}},
}

func TestLook(t *testing.T) {
	for name, tt := range looks {
		t.Run(name, func(t *testing.T) {
			tracks, err := NewReader(bytes.NewReader(generate(t, tt.options))).Tracks()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, tracks[0].Look()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// FuzzLook reads configurations that may be anything.
func FuzzLook(f *testing.F) {
	for _, tt := range looks {
		tracks, err := NewReader(bytes.NewReader(generate(f, tt.options))).Tracks()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(tracks[0].DecoderConfig())
	}
	f.Fuzz(func(_ *testing.T, config []byte) {
		lookAVC(config)
		lookHEVC(config)
		lookAV1(config)
	})
}
