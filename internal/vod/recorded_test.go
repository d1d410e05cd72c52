package vod

import (
	"bytes"
	"fmt"
	"image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/publish"
	"weir/internal/weir"
)

// record makes a recording of files, each of which is imported first, so that it is in weir's form.
func record(t *testing.T, e Engine, prefix string, files ...string) cmaf.TrackIndex {
	t.Helper()
	var tracks []*media.Track
	for k, file := range files {
		from := fmt.Sprintf("%s-%d", prefix, k)
		if _, err := e.Import(t.Context(), ImportOptions{File: file, Prefix: from, SegmentSeconds: 2}); err != nil {
			t.Fatal(err)
		}
		track, err := media.Open(t.Context(), e.Store, from+"/"+sourceDir)
		if err != nil {
			t.Fatal(err)
		}
		tracks = append(tracks, track)
	}
	return mediatest.Record(t, e.Store, prefix, tracks...)
}

// otherwise is plain in the same size with other parameter sets and other frames.
func otherwise(t *testing.T) string {
	t.Helper()
	return mediatest.Film(t, "otherwise.mp4", "-f", "lavfi", "-i", "testsrc=s=320x180:r=24:d=5", "-c:v", "libx264", "-preset", "veryfast", "-profile:v", "main", "-g", "24", "-bf", "2",
		"-pix_fmt", "yuv420p")
}

// A recording whose encoder reconnected with other settings gets renditions with all frames of the source, at the
// same times, and with the same gaps.
func TestRecorded(t *testing.T) {
	e := newEngine(t)
	ctx := t.Context()
	index := record(t, e, "asset/1", mediatest.Plain(t), otherwise(t))
	e.MaxDuration = time.Second // a bound of files, not of recordings
	src, err := e.Recorded(ctx, "asset/1", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	src = again(t, src)
	plan, noRenditions, err := e.PlanRecorded(ctx, src, Request{Profiles: []weir.Profile{
		{Name: "small", Width: 160, Height: 90, Bitrate: 100_000},
		{Name: "slow", Width: 160, Height: 90, Bitrate: 80_000, FPS: new(10)},
		{Name: "same", Width: 320, Height: 180, Bitrate: 100_000_000},
	}})
	if err != nil || noRenditions != "" {
		t.Fatalf("error %v, noRenditions because %q", err, noRenditions)
	}
	plan = again(t, plan)
	if names := []string{plan.Renditions[0].Name, plan.Renditions[1].Name, plan.Renditions[2].Name}; len(plan.Renditions) != 3 || !cmp.Equal(names, []string{"source", "small", "slow"}) {
		t.Fatalf("renditions are %+v", plan.Renditions)
	}
	for n, chunk := range plan.Chunks {
		for s := chunk.First + 1; s < chunk.First+chunk.Segments; s++ {
			if index.Segments[s].Discontinuity {
				t.Errorf("chunk %d extends beyond a gap", n)
			}
		}
		if index.Segments[chunk.First].Discontinuity && chunk.Continues {
			t.Errorf("the encode of chunk %d began before the gap", n)
		}
	}
	chunks, err := e.encode(t, plan, "")
	if err != nil {
		t.Fatal(err)
	}
	video, _, err := e.ResultTracks(ctx, plan, chunks, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckFrames(plan, video); err != nil {
		t.Error(err)
	}
	pub := &publish.Asset{Store: e.Store, Prefix: "asset/1"}
	for range 2 { // done again, it is the same
		shown, err := pub.AddRenditions(ctx, video)
		if err != nil {
			t.Fatal(err)
		}
		if len(shown.Renditions) != 3 || shown.Renditions[0].Name != sourceDir || shown.Renditions[1].Name != "small" || !shown.Renditions[1].Complete || !shown.Complete {
			t.Errorf("the presentation is %+v", shown)
		}
	}
	checkRecorded(t, e, index)
}

// checkRecorded compares the renditions of a recording with what was recorded.
func checkRecorded(t *testing.T, e Engine, source cmaf.TrackIndex) {
	t.Helper()
	for _, name := range []string{"small", "slow"} {
		track, err := media.Open(t.Context(), e.Store, "asset/1/"+name)
		if err != nil {
			t.Fatal(err)
		}
		index := track.Index()
		if len(index.Segments) != len(source.Segments) {
			t.Fatalf("%s has %d segments, the recording has %d", name, len(index.Segments), len(source.Segments))
		}
		for n, s := range index.Segments {
			want := source.Segments[n]
			start := index.Track.Time(s.Start()) - source.Track.Time(want.Start())
			end := index.Track.Time(s.End()) - source.Track.Time(want.End())
			limit := time.Duration(0)
			if name == "slow" {
				limit = time.Second / 10
			}
			if start < 0 || start > limit || end.Abs() > limit || s.Discontinuity != want.Discontinuity || !s.Wall.Equal(want.Wall) {
				t.Errorf("segment %d of %s starts %v and ends %v off, %+v", n, name, start, end, s.Discontinuity)
			}
			if name == "small" && s.Frames() != want.Frames() {
				t.Errorf("segment %d of %s has %d frames, want %d", n, name, s.Frames(), want.Frames())
			}
		}
		layout, err := cmaf.Progressive([]cmaf.TrackIndex{index}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		file, err := media.NewFile(layout, []*media.Track{track})
		if err != nil {
			t.Fatal(err)
		}
		reader := file.Reader(t.Context())
		path := filepath.Join(t.TempDir(), "file.mp4")
		written, err := os.Create(path)
		if err == nil {
			_, err = written.ReadFrom(reader)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = reader.Close(), written.Close()
		out, err := exec.Command("ffmpeg", "-nostdin", "-v", "error", "-xerror", "-i", path, "-fps_mode", "passthrough", "-f", "framemd5", "-").CombinedOutput()
		frames := 0
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(line, "#") {
				frames++
			}
		}
		if err != nil || frames != index.Frames() {
			t.Errorf("ffmpeg reads %d frames of %s, want %d; error %v", frames, name, index.Frames(), err)
		}
	}
}

// Thumbnails of a recording have the times of players, which play it without the gaps.
func TestRecordedThumbnails(t *testing.T) {
	e := newEngine(t)
	ctx := t.Context()
	larger := mediatest.Film(t, "larger.mp4", "-f", "lavfi", "-i", "testsrc2=s=640x360:r=24:d=2", "-c:v", "libx264", "-preset", "veryfast", "-g", "24", "-pix_fmt", "yuv420p")
	for _, tt := range []struct {
		name  string
		files []string
		want  string
	}{
		{"other settings", []string{mediatest.Plain(t), otherwise(t)}, "00:00:00.000 --> 00:00:06.000 00:00:06.000 --> 00:00:11.000"},
		{"another size", []string{mediatest.Plain(t), larger}, "00:00:00.000 --> 00:00:06.000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			prefix := "asset/" + tt.name
			record(t, e, prefix, tt.files...)
			src, err := e.Recorded(ctx, prefix, t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			plan, noRenditions, err := e.PlanRecorded(ctx, src, Request{SourceOnly: true})
			if err != nil || noRenditions != "" || len(plan.Renditions) != 1 || len(plan.Chunks) != 0 {
				t.Fatalf("plan %+v, noRenditions %q, error %v", plan.Renditions, noRenditions, err)
			}
			if _, err := e.Thumbnails(ctx, again(t, plan), nil); err != nil {
				t.Fatal(err)
			}
			var times []string
			for line := range strings.Lines(string(object(t, e.Store, prefix+"/thumbnails/thumbnails.vtt"))) {
				if strings.Contains(line, "-->") {
					times = append(times, strings.TrimSpace(line))
				}
			}
			if got := strings.Join(times, " "); got != tt.want {
				t.Errorf("thumbnails are shown %s, want %s", got, tt.want)
			}
			for n := range times {
				if _, err := jpeg.Decode(bytes.NewReader(object(t, e.Store, fmt.Sprintf("%s/thumbnails/keyframes_%d.jpg", prefix, n)))); err != nil {
					t.Errorf("thumbnail %d: %v", n, err)
				}
			}
			if _, err := jpeg.Decode(bytes.NewReader(object(t, e.Store, prefix+"/poster.jpg"))); err != nil {
				t.Errorf("poster: %v", err)
			}
		})
	}
}

// If renditions can't have the frames of the source, there are none.
func TestRecordedAlone(t *testing.T) {
	track := cmaf.Track{Kind: cmaf.Video, Codec: "avc1.64001f", Timescale: 90_000, Width: 320, Height: 180, Entry: []byte("....avc1")}
	// segment has frames a tenth of a second long, shown that many ticks later than decoded.
	segment := func(start int64, offsets ...int32) cmaf.Segment {
		part := cmaf.Part{Start: start}
		for i, offset := range offsets {
			part.Samples = append(part.Samples, cmaf.Sample{Duration: 9000, Offset: offset, Size: 10, Sync: i == 0})
		}
		return cmaf.Segment{Parts: []cmaf.Part{part}}
	}
	broken := func(s cmaf.Segment) cmaf.Segment { s.Discontinuity = true; return s }
	good := []cmaf.Segment{segment(0, 0, 0, 0), segment(27000, 0, 0), broken(segment(90000, 0, 0, 0))}
	changed := func(change func(*cmaf.Track)) []cmaf.Change {
		other := track
		change(&other)
		return []cmaf.Change{{First: 2, Track: other}}
	}
	for name, tt := range map[string]struct {
		index cmaf.TrackIndex
		want  string
	}{
		"good":              {cmaf.TrackIndex{Segments: good}, ""},
		"other settings":    {cmaf.TrackIndex{Segments: good, Changes: changed(func(t *cmaf.Track) { t.Codec = "avc1.4d001f" })}, ""},
		"another size":      {cmaf.TrackIndex{Segments: good, Changes: changed(func(t *cmaf.Track) { t.Width = 640 })}, "the video changes from avc1.64001f at 320x180 to avc1.64001f at 640x180"},
		"another coding":    {cmaf.TrackIndex{Segments: good, Changes: changed(func(t *cmaf.Track) { t.Codec, t.Entry = "hvc1.1", []byte("....hvc1") })}, "the video changes from avc1.64001f at 320x180 to hvc1.1 at 320x180"},
		"frames of before":  {cmaf.TrackIndex{Segments: []cmaf.Segment{segment(0, 0, 0), broken(segment(90000, 0, -18000))}}, "1 of 4 frames have times outside of all segments"},
		"one after the gap": {cmaf.TrackIndex{Segments: []cmaf.Segment{segment(0, 0, 90000), broken(segment(90000, 0, 0))}}, "segment 1 starts before the previous segment ends"},
		"two at once":       {cmaf.TrackIndex{Segments: []cmaf.Segment{segment(0, 0, 0, -9000)}}, "two frames have the same presentation time"},
	} {
		t.Run(name, func(t *testing.T) {
			index := tt.index
			index.Track = track
			src := Source{Prefix: "x", Duration: 1, Video: &SourceVideo{Timescale: 90_000, Width: 320, Height: 180, Bitrate: 1_000_000}}
			src.Video.Track.Codec, src.Video.Track.Width, src.Video.Track.Height = "h264", 320, 180
			for _, s := range index.Segments {
				src.Video.End = max(src.Video.End, s.ShownUntil())
			}
			plan, noRenditions, err := newRecordedPlan(src, index, Request{})
			if err != nil || noRenditions != tt.want {
				t.Fatalf("noRenditions because %q, want %q; error %v", noRenditions, tt.want, err)
			}
			if (len(plan.encoded()) == 0) != (tt.want != "") || (len(plan.Chunks) == 0) != (tt.want != "") {
				t.Errorf("%d renditions are encoded in %d chunks", len(plan.encoded()), len(plan.Chunks))
			}
		})
	}
}
