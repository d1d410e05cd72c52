package clip

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/vod"
	"weir/internal/weir"
)

// excerptFilms are files of 40 seconds: how they are made, and whether a part can be read alone.
var excerptFilms = map[string]struct {
	args   []string
	whole  bool // it can't
	either bool // of some windows
	all    bool // every window is tried: one film of each container
}{
	"b-frames.mp4":   {args: []string{"-c:v", "libx264", "-g", "48", "-bf", "3", "-c:a", "aac"}, all: true},
	"open.mp4":       {args: []string{"-c:v", "libx264", "-x264-params", "open-gop=1:keyint=48:scenecut=0", "-c:a", "aac"}},
	"variable.mp4":   {args: []string{"-vf", "select='not(eq(mod(n,7),3))'", "-fps_mode", "vfr", "-c:v", "libx264", "-g", "25", "-bf", "2", "-c:a", "aac"}},
	"hidden.mp4":     {args: []string{"-ss", "1.3", "-i", "@part b-frames.mp4", "-map", "0", "-c", "copy"}}, // an edit list hides frames
	"late.mp4":       {args: []string{"-c:v", "libx264", "-g", "48", "-c:a", "aac", "-output_ts_offset", "7.3"}},
	"fragmented.mp4": {args: []string{"-c:v", "libx264", "-g", "48", "-bf", "2", "-c:a", "aac", "-movflags", "frag_keyframe+empty_moov+default_base_moof"}},
	"hevc.mp4":       {args: []string{"-c:v", "libx265", "-tag:v", "hvc1", "-x265-params", "keyint=48:log-level=error", "-c:a", "aac"}},
	"b-frames.mkv":   {args: []string{"-c:v", "libx264", "-g", "48", "-bf", "3", "-c:a", "aac"}, all: true},
	"late.mkv":       {args: []string{"-c:v", "libx264", "-g", "48", "-c:a", "aac", "-output_ts_offset", "7.3"}},
	"ac3.mkv":        {args: []string{"-c:v", "libx264", "-g", "48", "-c:a", "ac3"}},
	"no index.mkv":   {args: []string{"-c:v", "libx264", "-g", "48", "-c:a", "aac", "-live", "1"}, whole: true},
	"sparse.mp4":     {args: []string{"-c:v", "libx264", "-g", "100000", "-sc_threshold", "0", "-c:a", "aac"}},
	"b-frames.ts":    {args: []string{"-c:v", "libx264", "-g", "48", "-bf", "3", "-c:a", "aac", "-output_ts_offset", "100"}, whole: true},
	"silent.mp4":     {args: []string{"-af", "aselect=gte(t\\,30)", "-c:v", "libx264", "-g", "48", "-c:a", "aac"}, either: true}, // no audio for 30 s
	"no cues.mkv":    {args: []string{"-c:v", "libx264", "-g", "48", "-bf", "2", "-c:a", "aac"}},
}

func excerptFilm(t *testing.T, name string) string {
	t.Helper()
	args := excerptFilms[name].args
	if name == "hidden.mp4" {
		excerptFilm(t, "b-frames.mp4")
	} else {
		args = append([]string{"-f", "lavfi", "-i", "testsrc2=s=160x90:r=24:d=40", "-f", "lavfi", "-i", "sine=d=40:r=48000", "-preset", "ultrafast"}, args...)
	}
	file := mediatest.Film(t, "part "+name, args...)
	if name != "no cues.mkv" {
		return file
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	index, unknown := []byte{0x1C, 0x53, 0xBB, 0x6B}, []byte{0x1C, 0x53, 0xBB, 0x6A}
	if !bytes.Contains(data, index) {
		t.Fatal("the file has no cues")
	}
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, bytes.ReplaceAll(data, index, unknown), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A clip of an excerpt of a file has the same frames at the same times as one of the whole file.
func TestImportExcerpt(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, film := range excerptFilms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			file := excerptFilm(t, name)
			whole, err := e.Import(t.Context(), vod.ImportOptions{File: file, Prefix: "whole"})
			if err != nil {
				t.Fatal(err)
			}
			end := time.Duration(whole.Duration * float64(time.Second))
			type window struct {
				vod.Excerpt
				from, to bool // it is an excerpt of the file there
			}
			windows := []window{
				{vod.Excerpt{Start: 0, End: 3 * time.Second}, false, true},
				{vod.Excerpt{Start: 16_730 * time.Millisecond, End: 22_210 * time.Millisecond}, true, true},
				{vod.Excerpt{Start: 30_333 * time.Millisecond, End: 0}, true, false},
			}
			if film.all {
				windows = append(windows,
					window{vod.Excerpt{Start: 22 * time.Second, End: 22_050 * time.Millisecond}, true, true},
					window{vod.Excerpt{Start: 19_990 * time.Millisecond, End: 37 * time.Second}, true, false},
					window{vod.Excerpt{Start: end - 10*time.Millisecond, End: end}, true, false},
				)
			}
			for i, window := range windows {
				needed := vod.Excerpt{Start: window.Start - slack, End: window.End}
				excerpt, err := e.Import(t.Context(), vod.ImportOptions{File: file, Prefix: fmt.Sprintf("excerpt%d", i), Excerpt: &needed})
				if err != nil {
					t.Fatalf("%v: %v", window.Excerpt, err)
				}
				if from, to := window.from && !film.whole, window.to && !film.whole; !film.either && (from != (excerpt.From > 0) || to != (excerpt.To > 0)) {
					t.Errorf("%v: read from %v to %v", window.Excerpt, excerpt.From, excerpt.To)
				}
				if excerpt.To == 0 && excerpt.Duration != whole.Duration {
					t.Errorf("%v: the file ends at %v s, want %v s", window.Excerpt, excerpt.Duration, whole.Duration)
				}
				if window.End == 0 {
					window.End = end + slack
				}
				want, got := cutExcerpt(t, e, whole, window.Excerpt), cutExcerpt(t, e, excerpt, window.Excerpt)
				want.compare(t, got, name)
			}
		})
	}
}

// excerptClip is a clip of an imported file.
type excerptClip struct {
	vod.Excerpt
	result       Result
	err          error
	video, audio *media.Track
}

func cutExcerpt(t *testing.T, e vod.Engine, src vod.Source, excerpt vod.Excerpt) (c excerptClip) {
	t.Helper()
	source, err := sourceOf(t.Context(), e, src)
	if err != nil {
		t.Fatal(err)
	}
	prefix := fmt.Sprintf("clip of %s from %v to %v", src.Prefix, excerpt.Start, excerpt.End)
	c.Excerpt = excerpt
	c.result, c.err = Cut(t.Context(), e, source, Options{Prefix: prefix, Start: excerpt.Start, End: excerpt.End, Dir: t.TempDir()})
	if c.err != nil {
		return c
	}
	if c.video, err = media.Open(t.Context(), e.Store, prefix+"/"+media.RecordedVideo); err != nil {
		t.Fatal(err)
	}
	if c.audio, err = media.Open(t.Context(), e.Store, prefix+"/"+audioName(0)); err != nil && !weir.IsNotFound(err) {
		t.Fatal(err)
	}
	return c
}

func (c excerptClip) compare(t *testing.T, got excerptClip, film string) {
	t.Helper()
	if c.err != nil || got.err != nil {
		if diff := cmp.Diff(fmt.Sprint(c.err), fmt.Sprint(got.err)); diff != "" {
			t.Errorf("%v: %s", c.Excerpt, diff)
		}
		return
	}
	if c.result.Encoded != got.result.Encoded || c.result.Copied != got.result.Copied || c.result.Whole != got.result.Whole {
		t.Errorf("%v: %d frames encoded, %d copied (%s), want %d and %d (%s)", c.Excerpt,
			got.result.Encoded, got.result.Copied, got.result.Whole, c.result.Encoded, c.result.Copied, c.result.Whole)
	}
	times, places := timesOf(c.video.Index())
	gotTimes, gotPlaces := timesOf(got.video.Index())
	if diff := cmp.Diff(times, gotTimes); diff != "" {
		t.Fatalf("%v: times (-whole +excerpt):\n%s", c.Excerpt, diff)
	}
	if end, gotEnd := c.video.Index().End(), got.video.Index().End(); end != gotEnd {
		t.Errorf("%v: the last frame ends at %d, want %d", c.Excerpt, gotEnd, end)
	}
	other := 0
	for _, at := range times {
		if !bytes.Equal(cutClip{}.sample(t, c.video, places[at]), cutClip{}.sample(t, got.video, gotPlaces[at])) {
			other++
		}
	}
	if other > got.result.Encoded {
		t.Errorf("%v: %d frames differ, of which %d were encoded", c.Excerpt, other, got.result.Encoded)
	}
	if (c.audio == nil) != (got.audio == nil) {
		t.Fatalf("%v: audio is missing", c.Excerpt)
	}
	if c.audio == nil {
		return
	}
	heard := func(index cmaf.TrackIndex) (from, to time.Duration) {
		return index.Track.Time(index.Start() + index.Track.Priming), index.Track.Time(index.End())
	}
	from, to := heard(c.audio.Index())
	gotFrom, gotTo := heard(got.audio.Index())
	// Audio that is encoded has packets at other times, and Matroska rounds times to milliseconds.
	slack := time.Millisecond
	if film == "ac3.mkv" {
		slack = 22 * time.Millisecond
	}
	if (from-gotFrom).Abs() > time.Millisecond || (to-gotTo).Abs() > slack {
		t.Errorf("%v: audio is heard from %v to %v, want %v to %v", c.Excerpt, gotFrom, gotTo, from, to)
	}
}

// What is wrong with a window is said in the same way whatever part of the file was read.
func TestClipFileOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	e := newEngine(t)
	file := excerptFilm(t, "b-frames.mp4")
	for _, tt := range []struct {
		start, end time.Duration
		want       string
	}{
		{41 * time.Second, 42 * time.Second, "the clip starts at 41s, but the file ends at 40s"},
		{time.Hour, 0, "the clip starts at 1h0m0s, but the file ends at 40s"},
		{30 * time.Second, 41 * time.Second, "the clip ends at 41s, but the file ends at 40s"},
		{time.Second, time.Hour, "the clip ends at 1h0m0s, but the file ends at 40s"},
		{25 * time.Second, 26 * time.Second, ""},
		{39 * time.Second, 40*time.Second + 50*time.Millisecond, ""},
	} {
		dir := t.TempDir()
		_, err := CutFile(t.Context(), FileOptions{
			FFmpeg: e.FFmpeg, Source: file, Out: filepath.Join(dir, "clip.mp4"), Start: tt.start, End: tt.end, Dir: filepath.Join(dir, "work"),
		})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || err.Error() != tt.want || weir.KindOf(err) != weir.Invalid) {
			t.Errorf("%v to %v: %v, want %q", tt.start, tt.end, err, tt.want)
		}
	}
}
