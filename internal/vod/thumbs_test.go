package vod

import (
	"bytes"
	"errors"
	"fmt"
	"image/jpeg"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
)

func object(t *testing.T, store blob.Store, key string) []byte {
	t.Helper()
	body, _, err := store.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	data, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestThumbnails(t *testing.T) {
	base := odd{name: "base.mp4", make: with(av, x264, []string{"-movflags", "+faststart"})}
	for _, tt := range []struct {
		name          string
		source        odd
		width, height int
	}{
		{"from the source", base, 320, 180},
		{"of open groups of pictures", odd{name: "open-60.mp4", make: with(moving, []string{
			"-r", "60", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-x264-params", "open-gop=1:keyint=120:scenecut=0:bframes=2",
		})}, 320, 180},
		{"upright", odd{name: "rotated90.mp4", sources: []odd{base}, make: []string{"-i", "@base.mp4", "-c", "copy", "-metadata:s:v:0", "rotate=90"}}, 180, 320},
		{"from a rendition", odd{name: "one-key.mp4", make: with(moving, []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "1000"})}, 320, 180},
		{"of a source that can't be demuxed", odd{name: "ffv1.mkv", make: with(moving, []string{"-c:v", "ffv1"})}, 320, 180},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := transcode(t, makeOdd(t, tt.source), Request{SegmentSeconds: 2, EncodeAll: tt.name != "from the source"})
			result, err := o.Thumbnails(t.Context(), o.plan, o.results)
			if err != nil {
				t.Fatal(err)
			}
			if want := (ThumbnailsResult{Images: 2, Sheets: 1, Width: tt.width, Height: tt.height}); result != want {
				t.Errorf("got %+v, want %+v", result, want)
			}
			var seen []string
			for n := range 2 {
				data := object(t, o.Store, fmt.Sprintf("work/1/thumbnails/keyframes_%d.jpg", n))
				seen = append(seen, string(data))
				if image, err := jpeg.Decode(bytes.NewReader(data)); err != nil || image.Bounds().Dx() != tt.width || image.Bounds().Dy() != tt.height {
					t.Errorf("image %d: error %v, size %v", n, err, image.Bounds())
				}
			}
			if seen[0] == seen[1] {
				t.Error("both images are the same")
			}
			if sheet, err := jpeg.Decode(bytes.NewReader(object(t, o.Store, "work/1/thumbnails/sprite_0.jpg"))); err != nil || sheet.Bounds().Dx() < 500 {
				t.Errorf("sprite sheet: error %v", err)
			}
			if _, err := jpeg.Decode(bytes.NewReader(object(t, o.Store, "work/1/poster.jpg"))); err != nil {
				t.Errorf("poster: %v", err)
			}
			want := "WEBVTT\n\n00:00:00.000 --> 00:00:02.000\nkeyframes_0.jpg\n\n00:00:02.000 --> 00:00:03.000\nkeyframes_1.jpg\n"
			if diff := cmp.Diff(want, string(object(t, o.Store, "work/1/thumbnails/thumbnails.vtt"))); diff != "" {
				t.Errorf("cues differ (-want +got):\n%s", diff)
			}
			if cues := string(object(t, o.Store, "work/1/thumbnails/sprite.vtt")); !strings.Contains(cues, "\nsprite_0.jpg#xywh=0,0,") || strings.Count(cues, "-->") != 2 {
				t.Errorf("cues of sprites are %q", cues)
			}
		})
	}
}

func TestSmallestEnough(t *testing.T) {
	for _, tt := range []struct {
		heights []int
		want    int
	}{
		{nil, -1},
		{[]int{180}, 0},
		{[]int{180, 240, 90}, 1},
		{[]int{1080, 720, 480, 240}, 2},
		{[]int{240, 1080, 720}, 2},
	} {
		var renditions []Rendition
		for _, height := range tt.heights {
			renditions = append(renditions, Rendition{Width: height * 2, Height: height})
		}
		if got := smallestEnough(renditions); got != tt.want {
			t.Errorf("of %v number %d was chosen, want %d", tt.heights, got, tt.want)
		}
	}
}

func TestCueTime(t *testing.T) {
	for _, tt := range []struct {
		ticks, timescale int64
		want             string
	}{
		{0, 1000, "00:00:00.000"},
		{59_9996, 10_000, "00:01:00.000"},
		{3_661_001, 1000, "01:01:01.001"},
		{24 * 1001, 24_000, "00:00:01.001"},
		{100 * 3600 * 90_000, 90_000, "100:00:00.000"},
	} {
		if got := cueTime(tt.ticks, tt.timescale); got != tt.want {
			t.Errorf("%d/%d is %s, want %s", tt.ticks, tt.timescale, got, tt.want)
		}
	}
}

func FuzzJPEGs(f *testing.F) {
	one := []byte{0xff, 0xd8, 0xff, 0xfe, 0, 4, 0xff, 0xd9, 0xff, 0xda, 0, 2, 1, 2, 0xff, 0, 0xff, 0xd1, 3, 0xff, 0xd9}
	f.Add(one)
	f.Add(append(bytes.Clone(one), one...))
	f.Fuzz(func(t *testing.T, data []byte) {
		total := 0
		_ = eachJPEG(bytes.NewReader(data), func(image []byte) error {
			if !bytes.HasPrefix(data[total:], image) || len(image) < 4 {
				t.Fatalf("an image of %d bytes that is not at byte %d", len(image), total)
			}
			total += len(image)
			return nil
		})
	})
}

func TestJPEGs(t *testing.T) {
	one := []byte{0xff, 0xd8, 0xff, 0xfe, 0, 4, 0xff, 0xd9, 0xff, 0xda, 0, 2, 1, 2, 0xff, 0, 0xff, 0xd1, 3, 0xff, 0xd9}
	count := 0
	err := eachJPEG(bytes.NewReader(append(bytes.Clone(one), one...)), func(image []byte) error {
		if count++; !bytes.Equal(image, one) {
			t.Errorf("image %d is % x", count, image)
		}
		return nil
	})
	if err != nil || count != 2 {
		t.Errorf("%d images, error %v, want 2", count, err)
	}
	if err := eachJPEG(bytes.NewReader(one[:15]), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v for half an image, want unexpected EOF", err)
	}
}
