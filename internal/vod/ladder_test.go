package vod

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestDefaultLadder(t *testing.T) {
	for _, tt := range []struct {
		width, height, bitrate int
		want                   []string // name:bitrate size
	}{
		{1920, 1080, 5_000_000, []string{"360p0:666666 640x360", "720p0:2666666 1280x720", "1080p0:6000000 1920x1080"}},
		{1920, 1080, 1_100_000, []string{"360p0:146666 640x360", "1080p0:1320000 1920x1080"}},
		{1280, 720, 4_000_001, []string{"360p0:1000000 640x360", "720p0:4800001 1280x720"}},
		{1200, 720, 1_000_001, []string{"360p0:320000 640x360", "720p0:1200001 1200x720"}},
		{640, 360, 500_000, []string{"low-bitrate:250000 640x360", "360p0:600000 640x360"}},
		{400, 239, 517_099, []string{"low-bitrate:258549 400x240", "240p0:620518 400x240"}},
		{1920, 1080, 500_000_000, []string{"360p0:1000000 640x360", "720p0:4000000 1280x720", "1080p0:288000000 1920x1080"}},
		{1920, 1080, 0, []string{"360p0:533333 640x360", "1080p0:4800000 1920x1080"}},
		{320, 180, 120_000, []string{"low-bitrate:100000 320x180", "180p0:144000 320x180"}},
		{320, 180, 6_000, []string{"low-bitrate:5000 320x180", "180p0:7200 320x180"}},
		// A portrait video has the rungs of a landscape one.
		{1080, 1920, 5_000_000, []string{"360p0:666666 640x360", "720p0:2666666 1280x720", "1080p0:6000000 1080x1920"}},
		{360, 640, 5_000_000, []string{"low-bitrate:2500000 360x640", "360p0:6000000 360x640"}},
		// From 720p to 4K in one step is too far.
		{3840, 2160, 40_000_000, []string{"360p0:1000000 640x360", "720p0:4000000 1280x720", "1080p0:8000000 1920x1080", "2160p0:48000000 3840x2160"}},
	} {
		t.Run(fmt.Sprintf("%dx%d@%d", tt.width, tt.height, tt.bitrate), func(t *testing.T) {
			var got []string
			for _, p := range defaultLadder(tt.width, tt.height, tt.bitrate) {
				got = append(got, fmt.Sprintf("%s:%d %dx%d", p.Name, p.Bitrate, p.Width, p.Height))
				if p.Quality == nil || *p.Quality != 27 {
					t.Errorf("%s has quality %v, want 27", p.Name, p.Quality)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ladder differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFit(t *testing.T) {
	for _, tt := range []struct{ width, height, askedWidth, askedHeight, wantWidth, wantHeight int }{
		{1920, 1080, 1280, 720, 1280, 720},
		{1080, 1920, 1280, 720, 720, 1280},
		{1920, 1080, 640, 360, 640, 360},
		{640, 480, 1280, 720, 1280, 960},
		{853, 479, 854, 480, 854, 480},
		{853, 479, 640, 360, 640, 360},
		{400, 239, 400, 240, 400, 240},
		{1998, 1080, 1280, 720, 1280, 692},
		{16, 4000, 640, 360, 16, 640},
		{1000, 1000, 640, 360, 640, 640},
	} {
		t.Run(fmt.Sprintf("%dx%d as %dx%d", tt.width, tt.height, tt.askedWidth, tt.askedHeight), func(t *testing.T) {
			width, height := weir.Profile{Width: tt.askedWidth, Height: tt.askedHeight}.Fit(tt.width, tt.height)
			if width != tt.wantWidth || height != tt.wantHeight {
				t.Errorf("got %dx%d, want %dx%d", width, height, tt.wantWidth, tt.wantHeight)
			}
		})
	}
}

func TestProfiles(t *testing.T) {
	asked := []weir.Profile{{Bitrate: 900_000, FPS: new(25), GOP: "2.0", Profile: "H264Main", Encoder: "HEVC"}}
	got, err := profiles(asked, 853, 479, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	want := []weir.Profile{{
		Name: "480p0", Width: 854, Height: 480, Bitrate: 900_000, Quality: new(27),
		FPS: new(25), GOP: "2.0", Profile: "H264Main", Encoder: "HEVC",
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a profile with only a bitrate (-want +got):\n%s", diff)
	}

	asked = []weir.Profile{
		{Width: 640, Height: 360, Bitrate: 500_000},
		{Width: 640, Height: 360, Bitrate: 500_000},
		{Name: "custom_640x360_500000_2", Width: 320, Height: 180, Bitrate: 200_000},
	}
	got, err = profiles(asked, 1920, 1080, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range got {
		names = append(names, p.Name)
	}
	if diff := cmp.Diff([]string{"custom_640x360_500000", "custom_640x360_500000_3", "custom_640x360_500000_2"}, names); diff != "" {
		t.Errorf("default names (-want +got):\n%s", diff)
	}
}
