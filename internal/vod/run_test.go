package vod

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// runOptions are those of a run that writes everything.
func runOptions(t *testing.T, source string, dest *mediatest.Destination, profiles ...weir.Profile) RunOptions {
	t.Helper()
	return RunOptions{
		FFmpeg: newEngine(t).FFmpeg, Source: source, Dest: dest,
		Outputs: weir.TranscodeOutputs{HLS: &weir.PathParam{Path: "/v/hls"}, MP4: &weir.PathParam{Path: "/v/mp4"}, FMP4: &weir.PathParam{Path: "/"}},
		Request: Request{Profiles: profiles, SegmentSeconds: 2}, Dir: filepath.Join(t.TempDir(), "run"),
	}
}

var (
	same  = weir.Profile{Name: "same", Width: 320, Height: 180, Bitrate: 5_000_000}
	small = weir.Profile{Name: "small", Width: 160, Height: 90, Bitrate: 100_000}
)

func removed(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", filepath.Base(dir), err)
	}
}

func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	const frames = 144
	for _, tt := range []struct {
		name      string
		encodeAll bool
	}{
		{"source passes through", false},
		{"all is encoded", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, dest := mediatest.NewDestination(t)
			o := runOptions(t, mediatest.Plain(t), dest, same, small)
			o.Request.EncodeAll = tt.encodeAll
			var reports []Progress
			o.Progress = func(p Progress) { reports = append(reports, p) }
			out, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			removed(t, o.Dir)
			mediatest.WantFrames(t, dir, frames, "v/hls/index.m3u8", "v/mp4/same.mp4", "v/mp4/small.mp4", "fmp4/master.m3u8", "fmp4/index-stream2.mp4")
			mediatest.WantFrames(t, "", frames, mediatest.Concatenate(t, dir, "v/hls/same", ".ts"), mediatest.Concatenate(t, dir, "v/hls/small", ".ts"))
			if last := dest.Puts()[len(dest.Puts())-1]; last != "v/hls/index.m3u8" {
				t.Errorf("the last thing put is %s, want the master playlist", last)
			}
			if len(out.Renditions) != 2 || out.Renditions[0].Name != "same" || out.Renditions[1].FPS != 24 || out.InputVideo.Duration < 6 || out.InputVideo.Size == 0 || out.VideoSpec.Format != "mp4" || len(out.RequestID) != 8 || out.BaseURL != "file://"+dir {
				t.Errorf("output: %+v", out)
			}
			if !slices.IsSortedFunc(reports, func(a, b Progress) int { return int(1e6 * (a.Fraction - b.Fraction)) }) || reports[len(reports)-1].Fraction != 1 {
				t.Errorf("progress: %+v", reports)
			}
		})
	}
}

// A killed run is continued, and gives the same bytes.
func TestRunContinues(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	_, undisturbed := mediatest.NewDestination(t)
	o := runOptions(t, mediatest.Plain(t), undisturbed, same, small)
	o.FFmpeg, o.Request.EncodeAll = engineOf(t, 1).FFmpeg, true
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	all := o.FFmpeg.Stats().Runs

	_, dest := mediatest.NewDestination(t)
	dest.FailAt = len(undisturbed.Puts()) - 1
	o = runOptions(t, mediatest.Plain(t), dest, same, small)
	o.FFmpeg, o.Request.EncodeAll = engineOf(t, 1).FFmpeg, true
	if _, err := Run(t.Context(), o); !errors.Is(err, mediatest.ErrInjected) {
		t.Fatalf("error %v, want that of the store", err)
	}
	before := o.FFmpeg.Stats().Runs
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if again := o.FFmpeg.Stats().Runs - before; before != all || again != 0 {
		t.Errorf("%d runs of ffmpeg, then %d to continue; want %d and none", before, again, all)
	}
	removed(t, o.Dir)
	want, got := undisturbed.Contents(t), dest.Contents(t)
	for key := range want {
		if want[key] != got[key] {
			t.Errorf("%s differs from that of an undisturbed run", key)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d files, want %d", len(got), len(want))
	}
}

// The folder of another job is not used.
func TestRunOfAnotherJob(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	_, dest := mediatest.NewDestination(t)
	dest.FailAt = 3
	o := runOptions(t, mediatest.Plain(t), dest, small)
	if _, err := Run(t.Context(), o); !errors.Is(err, mediatest.ErrInjected) {
		t.Fatalf("error %v, want that of the store", err)
	}
	other := small
	other.Name = "other"
	o.Request.Profiles = []weir.Profile{other}
	out, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if out.Renditions[0].Name != "other" {
		t.Errorf("made %+v", out.Renditions)
	}
}

func TestRunCancelled(t *testing.T) {
	t.Parallel()
	_, dest := mediatest.NewDestination(t)
	o := runOptions(t, mediatest.Plain(t), dest, same, small)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o.Progress = func(p Progress) {
		if p.Step == "encoding" && len(dest.Puts()) > 0 {
			cancel()
		}
	}
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was cancelled", err)
	}
	removed(t, o.Dir)
	if left := dest.Contents(t); len(left) > 0 {
		t.Errorf("%d files were left", len(left))
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text.mp4")
	if err := os.WriteFile(text, []byte(strings.Repeat("no video at all\n", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, source string
		kind         weir.Kind
	}{
		{"no file", filepath.Join(t.TempDir(), "none.mp4"), weir.NotFound},
		{"a folder", t.TempDir(), weir.Invalid},
		{"no video", text, weir.Invalid},
		{"a URL", "https://example.com/video.mp4", weir.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, dest := mediatest.NewDestination(t)
			o := runOptions(t, tt.source, dest, small)
			_, err := Run(t.Context(), o)
			if weir.KindOf(err) != tt.kind || err == nil {
				t.Errorf("error %v of kind %s, want %s", err, weir.KindOf(err), tt.kind)
			}
			removed(t, o.Dir)
			if diff := cmp.Diff(map[string]string{}, dest.Contents(t)); diff != "" {
				t.Errorf("left behind: %s", diff)
			}
		})
	}
}

func TestRunOtherSources(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for _, tt := range []struct {
		name   string
		file   func(t *testing.T) string
		frames int
		paths  []string
	}{
		{
			"sound only",
			func(t *testing.T) string {
				return mediatest.Film(t, "sound.mp3", "-f", "lavfi", "-i", "sine=d=5:r=44100", "-c:a", "libmp3lame")
			},
			-200,
			[]string{"v/hls/index.m3u8", "v/mp4/audio0.mp4", "fmp4/master.m3u8"},
		},
		{
			"video only",
			func(t *testing.T) string {
				return mediatest.Film(t, "silent.mkv", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=30:d=3", "-c:v", "libx264", "-preset", "ultrafast")
			},
			90,
			[]string{"v/hls/index.m3u8", "v/mp4/small.mp4", "fmp4/master.m3u8"},
		},
		{
			"can't be demuxed",
			func(t *testing.T) string {
				return mediatest.Film(t, "huff.avi", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3", "-f", "lavfi", "-i", "sine=d=3", "-c:v", "huffyuv", "-c:a", "pcm_s16le")
			},
			75,
			[]string{"v/hls/index.m3u8", "v/mp4/small.mp4", "fmp4/master.m3u8"},
		},
		{
			"audio longer than video",
			func(t *testing.T) string {
				return mediatest.Film(t, "longsound.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=25:d=3", "-f", "lavfi", "-i", "sine=d=9", "-c:v", "libx264", "-c:a", "aac")
			},
			75,
			[]string{"v/hls/index.m3u8", "v/mp4/small.mp4", "fmp4/master.m3u8"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir, dest := mediatest.NewDestination(t)
			if _, err := Run(t.Context(), runOptions(t, tt.file(t), dest, small)); err != nil {
				t.Fatal(err)
			}
			mediatest.WantFrames(t, dir, tt.frames, tt.paths...)
		})
	}
}
