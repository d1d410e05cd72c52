package weir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProfile(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Profile
	}{
		{"720p", Profile{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_000}},
		{"720p:3M", Profile{Name: "720p", Width: 1280, Height: 720, Bitrate: 3_000_000}},
		{"480p:1.5M", Profile{Name: "480p", Width: 854, Height: 480, Bitrate: 1_500_000}},
		{"360p:800k:hevc", Profile{Name: "360p", Width: 640, Height: 360, Bitrate: 800_000, Encoder: "HEVC"}},
		{"300p:vp9", Profile{Name: "300p", Width: 534, Height: 300, Bitrate: 800_000, Encoder: "VP9"}},
		{"1080p:av1:5M", Profile{Name: "1080p", Width: 1920, Height: 1080, Bitrate: 5_000_000, Codec: "AV1"}},
		{"720x1280:2500000:h264", Profile{Name: "720x1280", Width: 720, Height: 1280, Bitrate: 2_500_000, Encoder: "H.264"}},
		{"480p:1M:crf26", Profile{Name: "480p", Width: 854, Height: 480, Bitrate: 1_000_000, Quality: new(26)}},
		{"4000x3000", Profile{Name: "4000x3000", Width: 4000, Height: 3000, Bitrate: 16_000_000}},
	} {
		got, err := ParseProfile(tt.text)
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.text, diff)
		}
	}
	for text, want := range map[string]string{
		"":              "is not a size",
		"hd":            "is not a size",
		"720":           "is not a size",
		"../x:3M":       "is not a size",
		"100p":          "too small",
		"720p:":         "is neither a bitrate",
		"720p:3G":       "is neither a bitrate",
		"720p:3M:vp8":   "is neither a bitrate",
		"720p:100":      "not a usable bitrate",
		"720p:3M:crf60": "out of range",
	} {
		if _, err := ParseProfile(text); err == nil || !strings.Contains(err.Error(), want) || KindOf(err) != Invalid {
			t.Errorf("%q: error %v, want one with %q", text, err, want)
		}
	}
}
