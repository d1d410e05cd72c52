package vod

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

func indexOf(t *testing.T, results []ChunkResult, name string) cmaf.TrackIndex {
	t.Helper()
	var index cmaf.TrackIndex
	for _, result := range results {
		r := result.rendition(t, name)
		segments, err := r.segments()
		if err != nil {
			t.Fatal(err)
		}
		index.Track = r.Track
		index.Segments = append(index.Segments, segments...)
	}
	return index
}

func TestPlainFile(t *testing.T) {
	file := mediatest.Plain(t)
	o := transcode(t, file, Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{
		{Name: "a", Width: 320, Height: 180, Bitrate: 400_000},
		{Name: "b", Width: 160, Height: 90, Bitrate: 100_000},
	}})
	if len(o.plan.Chunks) < 2 {
		t.Fatalf("one chunk only: %+v", o.plan.Chunks)
	}
	want := frameSums(t, file, "-map", "0:v")
	for _, name := range []string{"a", "b"} {
		checkFrames(t, o, name, want)
	}
	if _, similar := compare(t, export(t, o.track(t, "a")), file, "null"); similar < 0.95 {
		t.Errorf("SSIM is %f", similar)
	}
}

// checkFrames compares the frames of a rendition with those that ffmpeg finds in the
// source: as many, at the same times.
func checkFrames(t *testing.T, o outcome, name string, want []decoded) {
	t.Helper()
	track := o.track(t, name)
	if got := len(frameSums(t, export(t, track))); got != len(want) {
		t.Errorf("ffmpeg finds %d frames in %s, %d in the source", got, name, len(want))
	}
	checkTimes(t, track.Index(), want)
}

// checkTimes compares the times of the frames of a track with those in the source.
func checkTimes(t *testing.T, index cmaf.TrackIndex, want []decoded) {
	t.Helper()
	for _, segment := range index.Segments {
		for _, part := range segment.Parts {
			for _, s := range part.Samples {
				if delay := index.Track.Delay; int64(s.Offset) < -delay {
					t.Errorf("a frame is shown %d ticks before it is decoded, with a delay of %d", -s.Offset, delay)
				}
			}
		}
	}
	times := shownTimes(index)
	if len(times) != len(want) {
		t.Fatalf("there are %d frames, in the source %d", len(times), len(want))
	}
	first := want[0].seconds - times[0]
	if math.Abs(first) > 0.03 {
		t.Errorf("it starts at %f, in the source at %f", times[0], want[0].seconds)
	}
	for i := range times {
		if math.Abs(times[i]+first-want[i].seconds) > 0.001 {
			t.Fatalf("frame %d is at %f, in the source at %f", i, times[i]+first, want[i].seconds)
		}
	}
}

// shownTimes returns when the frames of a track are shown, in seconds.
func shownTimes(index cmaf.TrackIndex) []float64 {
	var times []float64
	for _, segment := range index.Segments {
		for _, part := range segment.Parts {
			for _, shown := range (cmaf.Fragment{Start: part.Start, Samples: part.Samples}).PTS() {
				times = append(times, float64(shown)/float64(index.Track.Timescale))
			}
		}
	}
	slices.Sort(times)
	return times
}

// A rendition with another frame rate has the same frames as from one run of ffmpeg over the whole
// file, whatever the chunks are.
func TestFrameRates(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	file := mediatest.Plain(t)
	for _, tt := range []struct {
		fps, den int
		filter   string
	}{
		{30, 1, "30"},
		{30000, 1001, "30000/1001"},
		{24, 1, "24"}, // that of the source
	} {
		t.Run(tt.filter, func(t *testing.T) {
			t.Parallel()
			o := transcode(t, file, Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{
				{Name: "a", Width: 320, Height: 180, Bitrate: 1_000_000, FPS: new(tt.fps), FPSDen: tt.den},
				{Name: "b", Width: 160, Height: 90, Bitrate: 100_000},
			}})
			if got, want := o.plan.Renditions[0].converts(), tt.fps != 24; got != want {
				t.Errorf("converts: %v, want %v", got, want)
			}
			filter := "fps=" + tt.filter + ":start_time=0:round=near"
			checkFrames(t, o, "a", frameSums(t, file, "-map", "0:v", "-vf", filter))
			checkFrames(t, o, "b", frameSums(t, file, "-map", "0:v"))
			if _, similar := compare(t, export(t, o.track(t, "a")), file, filter); similar < 0.97 {
				t.Errorf("SSIM is %f", similar)
			}
			if a, b := len(o.track(t, "a").Index().Segments), len(o.track(t, "b").Index().Segments); a != b {
				t.Errorf("renditions have %d and %d segments", a, b)
			}
		})
	}
}

// An encode with one thread gives the same bytes again.
func TestEncodeTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	file := mediatest.Plain(t)
	req := Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{
		{Name: "a", Width: 320, Height: 180, Bitrate: 400_000},
		{Name: "b", Width: 160, Height: 90, Bitrate: 100_000},
	}}
	first, err1 := transcodeBy(t, engineOf(t, 1), file, req)
	second, err2 := transcodeBy(t, engineOf(t, 1), file, req)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first.plan, second.plan); diff != "" {
		t.Errorf("plans differ (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(first.results, second.results); diff != "" {
		t.Errorf("results differ (-first +second):\n%s", diff)
	}
	if diff := cmp.Diff(first.audio, second.audio); diff != "" {
		t.Errorf("audio differs (-first +second):\n%s", diff)
	}
}

// A source that meets a rendition is copied, and all renditions have its segments.
func TestSourcePassesThrough(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	file := mediatest.Plain(t)
	o := transcode(t, file, Request{SegmentSeconds: 2})
	if o.source.Video.Encode != "" {
		t.Fatalf("it can't pass through: %s", o.source.Video.Encode)
	}
	want := frameSums(t, file, "-map", "0:v")
	var copied int
	for _, r := range o.plan.Renditions {
		checkFrames(t, o, r.Name, want)
		track := o.track(t, r.Name)
		var starts []int64
		for _, segment := range track.Index().Segments {
			starts = append(starts, segment.Start())
		}
		if diff := cmp.Diff(o.plan.Starts, starts); diff != "" {
			t.Errorf("%s is cut elsewhere (-plan +track):\n%s", r.Name, diff)
		}
		if r.Copy {
			copied++
			if diff := cmp.Diff(want, frameSums(t, export(t, track)), cmp.Comparer(func(a, b decoded) bool { return a.sum == b.sum })); diff != "" {
				t.Errorf("frames differ (-source +copy):\n%s", diff)
			}
		}
	}
	if copied != 1 {
		t.Errorf("%d renditions are copied, want 1", copied)
	}
}

// A source that would be the only rendition, and whose key frames can't be decoded, is not copied.
func TestUndecodableSource(t *testing.T) {
	data, err := os.ReadFile(mediatest.Plain(t))
	if err != nil {
		t.Fatal(err)
	}
	// The first IDR slice keeps its length and its type.
	at := bytes.Index(data, []byte("mdat")) + 4
	for data[at+4]&0x1f != 5 {
		at += 4 + int(binary.BigEndian.Uint32(data[at:]))
	}
	slice := data[at+5 : at+4+int(binary.BigEndian.Uint32(data[at:]))]
	for i := range slice {
		slice[i] = 0x55
	}
	file := filepath.Join(t.TempDir(), "undecodable.mp4")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	request := Request{SegmentSeconds: 2, Profiles: []weir.Profile{{Name: "a", Width: 320, Height: 180, Bitrate: 5_000_000}}}
	for _, tt := range []struct {
		file   string
		copied bool
	}{{mediatest.Plain(t), true}, {file, false}} {
		src, err := e.Import(t.Context(), ImportOptions{File: tt.file, Prefix: filepath.Base(tt.file), SegmentSeconds: 2})
		if err != nil {
			t.Fatal(err)
		}
		plan, err := e.Plan(t.Context(), src, request)
		if err != nil {
			t.Fatal(err)
		}
		if plan.Renditions[0].Copy != tt.copied {
			t.Errorf("%s: copied is %v, want %v", filepath.Base(tt.file), plan.Renditions[0].Copy, tt.copied)
		}
	}
}

// The times of all stored tracks are later than the timeline by the same lead, also with reordered
// frames.
func TestStoredTimes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	o := transcode(t, mediatest.Plain(t), Request{SegmentSeconds: 2, EncodeAll: true})
	lead := cmaf.Lead.Seconds()
	for _, r := range o.plan.Renditions {
		got := frameSums(t, export(t, o.track(t, r.Name)), "-copyts")[0].seconds
		if math.Abs(got-lead) > 0.001 {
			t.Errorf("%s starts at %f, want %f", r.Name, got, lead)
		}
	}
}

// Progress increases up to one.
func TestProgress(t *testing.T) {
	o := Engine(newEngine(t))
	var shares []float64
	report := func(share float64) { shares = append(shares, share) }
	check := func(step string) {
		t.Helper()
		if len(shares) == 0 || shares[len(shares)-1] < 0.9 || !slices.IsSorted(shares) {
			t.Errorf("%s reports %v", step, shares)
		}
		shares = nil
	}
	src, err := o.Import(t.Context(), ImportOptions{File: mediatest.Plain(t), Prefix: "p", SegmentSeconds: 2, Progress: report})
	if err != nil {
		t.Fatal(err)
	}
	check("import")
	plan, err := o.Plan(t.Context(), src, Request{SegmentSeconds: 2, EncodeAll: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Chunks) < 2 {
		t.Fatalf("one chunk only: %+v", plan.Chunks)
	}
	seen := make([]float64, len(plan.Chunks))
	progress := func(chunk int, share float64) {
		seen[chunk] = share
		sum := 0.0
		for _, s := range seen {
			sum += s
		}
		report(sum / float64(len(seen)))
	}
	done := func(ChunkResult) error { return nil }
	if err := o.Encode(t.Context(), plan, 0, EncodeOptions{Progress: progress, Done: done}); err != nil {
		t.Fatal(err)
	}
	check("encode")
}

// An encode that was killed goes on with the first chunk that has no result, in a folder of its own.
// No chunk is made twice, and the result has all frames.
func TestResumedEncode(t *testing.T) {
	file := mediatest.Plain(t)
	o := outcome{Engine: newEngine(t), file: file}
	src, err := o.Import(t.Context(), ImportOptions{File: file, Prefix: "p", SegmentSeconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	o.plan, err = o.Plan(t.Context(), src, Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{
		{Name: "a", Width: 320, Height: 180, Bitrate: 400_000},
		{Name: "b", Width: 160, Height: 90, Bitrate: 100_000, FPS: new(10)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.plan.Chunks) < 3 || o.plan.Chunks[0].Continues || !o.plan.Chunks[2].Continues {
		t.Fatalf("it is not one encode of several chunks: %+v", o.plan.Chunks)
	}
	killed := errors.New("killed")
	add := func(r ChunkResult) error {
		o.results = append(o.results, again(t, r))
		if len(o.results) == 2 {
			return killed
		}
		return nil
	}
	err = o.Encode(t.Context(), o.plan, 0, EncodeOptions{Done: add})
	if !errors.Is(err, killed) || len(o.results) != 2 {
		t.Fatalf("error %v after %d chunks", err, len(o.results))
	}
	if err := o.Encode(t.Context(), o.plan, 2, EncodeOptions{Done: add, Folder: "2-1"}); err != nil {
		t.Fatal(err)
	}
	if len(o.results) != len(o.plan.Chunks) {
		t.Errorf("%d results of %d chunks", len(o.results), len(o.plan.Chunks))
	}
	video, _, err := o.ResultTracks(t.Context(), o.plan, o.results, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckFrames(o.plan, video); err != nil {
		t.Error(err)
	}
	// Thumbnails of a source that can't be demuxed come from a rendition.
	whole := o.plan
	whole.Source.Sequential = "it is a test"
	if track, _, err := o.thumbnailTrack(t.Context(), whole, o.results); err != nil {
		t.Error(err)
	} else if _, err := track.Fragments(t.Context(), 2); err != nil || !strings.Contains(track.SegmentKey(2), "/2-1/") {
		t.Errorf("thumbnails read %s: %v", track.SegmentKey(2), err)
	}
	for _, s := range video {
		want := []cmaf.Folder{{First: 2, Name: "2-1"}}
		if diff := cmp.Diff(want, s.Index.Folders); diff != "" {
			t.Errorf("folders of %s (-want +got):\n%s", s.Name, diff)
		}
		if err := media.Seal(t.Context(), o.Store, s.Prefix, s.Index); err != nil {
			t.Fatal(err)
		}
		track, err := media.Open(t.Context(), o.Store, s.Prefix)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name == "a" {
			frames := frameSums(t, file, "-map", "0:v")
			if got := len(frameSums(t, export(t, track))); got != len(frames) {
				t.Errorf("ffmpeg finds %d frames, %d in the source", got, len(frames))
			}
			checkTimes(t, track.Index(), frames)
		}
	}
}

// Chunks of every codec can be joined: same sample entry, all frames, no error of ffmpeg.
func TestCodecs(t *testing.T) {
	file := mediatest.Film(t, "short.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=4.5", "-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p")
	want := frameSums(t, file)
	for _, tt := range []struct{ encoder, codec string }{{"HEVC", "hvc1."}, {"VP9", "vp09."}, {"AV1", "av01."}} {
		t.Run(tt.encoder, func(t *testing.T) {
			t.Parallel()
			profile := weir.Profile{Name: "a", Width: 160, Height: 90, Bitrate: 300_000, Encoder: tt.encoder}
			if tt.encoder == "AV1" {
				profile.Encoder, profile.Codec = "", "AV1"
			}
			o := transcode(t, file, Request{SegmentSeconds: 2, Profiles: []weir.Profile{profile}})
			if len(o.plan.Chunks) < 2 || o.plan.TS() {
				t.Errorf("%d chunks, TS: %v", len(o.plan.Chunks), o.plan.TS())
			}
			checkFrames(t, o, "a", want)
			track := o.track(t, "a")
			if got := track.Index().Track.Codec; !strings.HasPrefix(got, tt.codec) {
				t.Errorf("codec is %q, want %s…", got, tt.codec)
			}
			if _, similar := compare(t, export(t, track), file, "scale=160:90:flags=area"); similar < 0.9 {
				t.Errorf("SSIM is %f", similar)
			}
		})
	}
}

// A video with missing frames is an error, and not a shorter result.
func TestDamagedVideo(t *testing.T) {
	data, err := os.ReadFile(mediatest.Plain(t))
	if err != nil {
		t.Fatal(err)
	}
	start := bytes.Index(data, []byte("mdat"))
	for i := start + (len(data)-start)/3; i < start+(len(data)-start)/2; i++ {
		data[i] = 0
	}
	file := filepath.Join(t.TempDir(), "damaged.mp4")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = tryTranscode(t, file, Request{SegmentSeconds: 2, EncodeAll: true})
	if weir.KindOf(err) != weir.Invalid || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("error %v of kind %q, want one that says that it is damaged", err, weir.KindOf(err))
	}
}

// Cancelled work ends, and leaves nothing running.
func TestCancel(t *testing.T) {
	e := newEngine(t)
	src, err := e.Import(t.Context(), ImportOptions{File: mediatest.Plain(t), Prefix: "p", SegmentSeconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := e.Plan(t.Context(), src, Request{SegmentSeconds: 2, EncodeAll: true})
	if err != nil {
		t.Fatal(err)
	}
	cancelled := errors.New("not needed any more")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := func(ChunkResult) error { return nil }
	err = e.Encode(ctx, plan, 0, EncodeOptions{Done: done, Progress: func(int, float64) { cancel(cancelled) }})
	cancel(cancelled)
	if err != nil && !errors.Is(err, cancelled) {
		t.Errorf("error %v, want %v", err, cancelled)
	}
	if err := e.Encode(ctx, plan, 1, EncodeOptions{Done: done}); !errors.Is(err, cancelled) {
		t.Errorf("error %v, want %v", err, cancelled)
	}
	if _, err := e.Import(ctx, ImportOptions{File: mediatest.Plain(t), Prefix: "q"}); !errors.Is(err, cancelled) {
		t.Errorf("error %v, want %v", err, cancelled)
	}
}

// brokenStore refuses to take segments.
type brokenStore struct{ blob.Store }

var errRefused = weir.Errorf(weir.Full, "there is no room")

func (s brokenStore) Put(ctx context.Context, key string, r io.Reader, size int64, o blob.PutOptions) error {
	if strings.HasSuffix(key, "1.m4s") {
		return errRefused
	}
	return s.Store.Put(ctx, key, r, size, o)
}

// An error of the store is not reported as one of the source.
func TestStoreFails(t *testing.T) {
	e := newEngine(t)
	broken := Engine{FFmpeg: e.FFmpeg, Store: brokenStore{e.Store}}
	if _, err := broken.Import(t.Context(), ImportOptions{File: mediatest.Plain(t), Prefix: "p", SegmentSeconds: 2}); !errors.Is(err, errRefused) {
		t.Errorf("import: error %v, want %v", err, errRefused)
	}
	src, err := e.Import(t.Context(), ImportOptions{File: mediatest.Plain(t), Prefix: "p", SegmentSeconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := e.Plan(t.Context(), src, Request{SegmentSeconds: 2, EncodeAll: true})
	if err != nil {
		t.Fatal(err)
	}
	done := func(ChunkResult) error { return nil }
	if err := broken.Encode(t.Context(), plan, 1, EncodeOptions{Done: done}); !errors.Is(err, errRefused) {
		t.Errorf("chunk: error %v, want %v", err, errRefused)
	}
}

// No frame of a stored track is decoded after it is shown, with any frame rate. Around a pause that can't be had,
// so clips are not copied of such a track.
func TestDecodedInTime(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	x264 := []string{"-fps_mode", "passthrough", "-c:v", "libx264", "-preset", "veryfast", "-g", "30", "-bf", "3", "-x264-params", "b-adapt=0:scenecut=0"}
	film := func(name string, rate int, filter string) string {
		source := fmt.Sprintf("testsrc2=s=320x180:r=%d:d=6", rate)
		return mediatest.Film(t, name, append([]string{"-f", "lavfi", "-i", source, "-vf", filter}, x264...)...)
	}
	for _, tt := range []struct {
		file   string
		passes int
		late   bool
	}{
		{film("constant.mp4", 30, "null"), 1, false},
		{film("constant.mkv", 30, "null"), 1, false}, // with times in milliseconds
		{film("missing.mp4", 60, "select='not(eq(mod(n,7),3)+eq(mod(n,11),5))'"), 2, false},
		{film("short pause.mp4", 60, "setpts='PTS+if(gt(N,100),0.03/TB,0)'"), 2, false},
		{film("pause.mp4", 30, "setpts='PTS+if(gt(N,100),2/TB,0)'"), 1, true},
	} {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			e := newEngine(t)
			passes, last := 1, 0.0
			progress := func(share float64) {
				if share < last {
					passes++
				}
				last = share
			}
			src, err := e.Import(t.Context(), ImportOptions{File: tt.file, Prefix: "p", SegmentSeconds: 2, Progress: progress})
			if err != nil {
				t.Fatal(err)
			}
			track, err := media.Open(t.Context(), e.Store, "p/"+sourceDir)
			if err != nil {
				t.Fatal(err)
			}
			late := 0
			for _, part := range src.Video.frames(track.Index()).Parts {
				if part.Delay > track.Index().Track.Delay {
					late++
				}
			}
			if late > 0 != tt.late || (src.Video.NoCopy == tooLate) != tt.late {
				t.Errorf("%d parts have frames that are decoded after they are shown; in clips: %q", late, src.Video.NoCopy)
			}
			if passes != tt.passes {
				t.Errorf("the file was read %d times, want %d", passes, tt.passes)
			}
			if !tt.late {
				said, err := exec.Command("ffmpeg", "-nostdin", "-v", "warning", "-i", export(t, track), "-f", "null", "-").CombinedOutput()
				if err != nil || len(said) > 0 {
					t.Errorf("ffmpeg says: %v %s", err, said)
				}
			}
		})
	}
}
