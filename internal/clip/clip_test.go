package clip

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/media/mediatest"
	"weir/internal/vod"
	"weir/internal/weir"
)

// clipFilms are films of different coding: the arguments that encode six seconds.
var clipFilms = map[string][]string{
	"b-frames":  {"-r", "30", "-c:v", "libx264", "-preset", "veryfast", "-g", "30", "-bf", "3", "-sc_threshold", "0"},
	"none":      {"-r", "60", "-c:v", "libx264", "-preset", "ultrafast", "-profile:v", "baseline", "-g", "120", "-bf", "0"},
	"open":      {"-r", "24", "-c:v", "libx264", "-preset", "veryfast", "-x264-params", "open-gop=1:keyint=24:scenecut=0"},
	"variable":  {"-vf", "select='not(eq(mod(n,7),3))'", "-fps_mode", "vfr", "-c:v", "libx264", "-preset", "veryfast", "-g", "25", "-bf", "2"},
	"hevc":      {"-r", "30", "-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "keyint=30:scenecut=0:open-gop=0:log-level=error"},
	"full":      {"-r", "25", "-pix_fmt", "yuvj420p", "-c:v", "libx264", "-preset", "veryfast", "-g", "25", "-aspect", "4:3"},
	"ten bits":  {"-r", "25", "-pix_fmt", "yuv420p10le", "-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "keyint=25:scenecut=0:open-gop=0:log-level=error"},
	"other":     {"-r", "25", "-pix_fmt", "yuv422p", "-c:v", "libx264", "-preset", "veryfast", "-g", "25"},
	"only keys": {"-r", "25", "-c:v", "libx264", "-preset", "ultrafast", "-g", "1"},
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(mediatest.Runner{M: m})
}

func newEngine(t *testing.T) vod.Engine {
	t.Helper()
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	return vod.Engine{FFmpeg: engine, Store: store}
}

func TestClip(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, args := range clipFilms {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEngine(t)
			film := mediatest.Film(t, "clip "+name+".mp4", append([]string{
				"-f", "lavfi", "-i", "testsrc2=s=320x180:r=60:d=6", "-f", "lavfi", "-i", "sine=d=6:r=48000", "-c:a", "aac",
			}, args...)...)
			src, err := e.Import(t.Context(), vod.ImportOptions{File: film, Prefix: "film", SegmentSeconds: 2})
			if err != nil {
				t.Fatal(err)
			}
			source, err := sourceOf(t.Context(), e, src)
			if err != nil {
				t.Fatal(err)
			}
			last, all := source.Video.Index().Frames(), pictures(t, film)
			for _, window := range [][2]int{{0, last}, {17, last - 20}, {31, 40}, {last / 2, last/2 + 1}, {0, last / 2}} {
				cut := cutFilm(t, e, source, window[0], window[1])
				cut.pictures = all
				cut.check(t)
				if index := cut.video.Index(); len(index.Changes) > 0 || slices.ContainsFunc(index.Segments, func(s cmaf.Segment) bool { return s.Discontinuity }) {
					t.Errorf("frames %d to %d: players need another init segment in the middle", window[0], window[1])
				}
				if delay := cut.video.Index().Track.Delay; cut.result.Copied == 0 && delay > 0 {
					t.Errorf("frames %d to %d: players begin %d ticks before the first frame, want 0: none is reordered", window[0], window[1], delay)
				}
				if name == "only keys" && cut.result.Encoded > 0 || name == "none" && cut.result.Encoded > 120 {
					t.Errorf("%d frames were encoded", cut.result.Encoded)
				}
				if whole := name == "other"; whole != (cut.result.Whole != "") && name != "open" {
					t.Errorf("encoded as a whole: %q", cut.result.Whole)
				}
			}
		})
	}
}

// Where key frames are far apart, frames need one that is many segments before them.
func TestClipFarFromKeyFrame(t *testing.T) {
	e := newEngine(t)
	film := mediatest.Film(t, "one key frame.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=10:d=16", "-c:v", "libx264", "-preset", "ultrafast",
		"-g", "1000", "-sc_threshold", "0", "-bf", "2", "-pix_fmt", "yuv420p")
	src, err := e.Import(t.Context(), vod.ImportOptions{File: film, Prefix: "film", SegmentSeconds: 2})
	if err != nil {
		t.Fatal(err)
	}
	source, err := sourceOf(t.Context(), e, src)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(source.Video.Index().Segments); n < 4 {
		t.Fatalf("the film has %d segments", n)
	}
	cut := cutFilm(t, e, source, 130, 140)
	cut.pictures = pictures(t, film)
	cut.check(t)
}

// cutClip is a clip of frames first up to last of a source.
type cutClip struct {
	vod.Engine
	prefix      string
	source      Source
	times       []int64 // of all frames of the source
	first, last int
	result      Result
	video       *media.Track
	pictures    [][]byte // of the source
}

func cutFilm(t *testing.T, e vod.Engine, source Source, first, last int) cutClip {
	t.Helper()
	c := cutClip{Engine: e, prefix: fmt.Sprintf("clip-%d-%d", first, last), source: source, first: first, last: last}
	track := source.Video.Index().Track
	c.times, _ = timesOf(source.Video.Index())
	o := Options{Prefix: c.prefix, Start: track.Time(c.times[first]).Round(time.Millisecond), End: time.Hour, Dir: t.TempDir()}
	if last < len(c.times) {
		o.End = track.Time(c.times[last]).Round(time.Millisecond)
	}
	var err error
	if c.result, err = Cut(t.Context(), e, source, o); err != nil {
		t.Fatalf("frames %d to %d: %v", first, last, err)
	}
	if c.video, err = media.Open(t.Context(), e.Store, c.prefix+"/"+media.RecordedVideo); err != nil {
		t.Fatal(err)
	}
	return c
}

// timesOf returns the presentation times of a track in ascending order, and the bytes of each frame's place.
func timesOf(index cmaf.TrackIndex) (times []int64, places map[int64][3]int) {
	places = map[int64][3]int{}
	for n, s := range index.Segments {
		for p, part := range s.Parts {
			for i, at := range (cmaf.Fragment{Start: part.Start, Samples: part.Samples}).PTS() {
				times = append(times, at)
				places[at] = [3]int{n, p, i}
			}
		}
	}
	slices.Sort(times)
	return times, places
}

// check compares a clip with its source.
func (c cutClip) check(t *testing.T) {
	t.Helper()
	want := c.times[c.first:c.last]
	got, places := timesOf(c.video.Index())
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("frames %d to %d: times (-want +got):\n%s", c.first, c.last, diff)
	}
	_, sources := timesOf(c.source.Video.Index())
	other := 0
	for _, at := range want {
		if !bytes.Equal(c.sample(t, c.source.Video, sources[at]), c.sample(t, c.video, places[at])) {
			other++
		}
	}
	if other != c.result.Encoded || c.result.Encoded+c.result.Copied != len(want) {
		t.Errorf("frames %d to %d: %d differ, %d were encoded and %d copied", c.first, c.last, other, c.result.Encoded, c.result.Copied)
	}
	c.checkFile(t)
	c.checkSegments(t)
	c.checkAudio(t)
}

func (c cutClip) sample(t *testing.T, track *media.Track, at [3]int) []byte {
	t.Helper()
	data, err := track.Sample(t.Context(), at[0], at[1], at[2])
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// checkFile decodes the clip as an MP4 file and compares its pictures with those of the source.
func (c cutClip) checkFile(t *testing.T) {
	t.Helper()
	if c.result.Recording.NoMP4 != "" {
		t.Fatalf("there is no MP4 file: %s", c.result.Recording.NoMP4)
	}
	file, err := media.RecordingFile(t.Context(), c.Store, c.prefix)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "clip.mp4")
	if err := writeFile(path, file.Reader(t.Context())); err != nil {
		t.Fatal(err)
	}
	got, all := pictures(t, path), c.pictures
	if len(got) != c.last-c.first {
		t.Fatalf("frames %d to %d: the file shows %d frames", c.first, c.last, len(got))
	}
	for i, picture := range got {
		is := difference(picture, all[c.first+i])
		for n := max(c.first+i-2, 0); n <= min(c.first+i+2, len(all)-1); n++ {
			if difference(picture, all[n]) < is {
				t.Errorf("frames %d to %d: frame %d of the clip shows frame %d of the source", c.first, c.last, i, n)
			}
		}
	}
}

// pictures decodes a file to small pictures. Any message of ffmpeg is an error.
func pictures(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	const width, height = 64, 36
	command := exec.Command("ffmpeg", "-nostdin", "-v", "repeat+warning", "-i", path, "-map", "0:v", "-fps_mode", "passthrough",
		"-vf", fmt.Sprintf("scale=%d:%d:flags=area,format=gray", width, height), "-f", "rawvideo", "-")
	var messages bytes.Buffer
	command.Stderr = &messages
	data, err := command.Output()
	// About the format of the pictures that this makes, not about the file.
	lines := slices.DeleteFunc(strings.Split(messages.String(), "\n"), func(line string) bool {
		return line == "" || strings.Contains(line, "deprecated pixel format used")
	})
	if err != nil || len(lines) > 0 {
		t.Errorf("ffmpeg: %v\n%s", err, strings.Join(lines, "\n"))
	}
	return slices.Collect(slices.Chunk(data, width*height))
}

func difference(a, b []byte) (sum float64) {
	for i := range a {
		sum += math.Abs(float64(a[i]) - float64(b[i]))
	}
	return sum
}

// checkSegments decodes the clip as players of HLS do: from one discontinuity to the next.
func (c cutClip) checkSegments(t *testing.T) {
	t.Helper()
	index := c.video.Index()
	for first := 0; first < len(index.Segments); {
		var file bytes.Buffer
		file.Write(cmaf.Init(index.TrackOf(first)))
		n, frames := first, 0
		for ; n < len(index.Segments) && (n == first || !index.Segments[n].Discontinuity); n++ {
			if index.InitOf(n) != index.InitOf(first) {
				t.Fatalf("frames %d to %d: the coding changes in segment %d without a discontinuity", c.first, c.last, n)
			}
			body, _, err := c.video.Segment(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(&file, body); err != nil {
				t.Fatal(err)
			}
			body.Close()
			frames += index.Segments[n].Frames()
		}
		path := filepath.Join(t.TempDir(), "run.mp4")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		if shown := len(pictures(t, path)); shown != frames {
			t.Errorf("frames %d to %d: segments %d to %d show %d frames, want %d", c.first, c.last, first, n, shown, frames)
		}
		first = n
	}
}

// checkAudio checks that the audio begins with the packet before the first one that is heard, and ends with
// the video.
func (c cutClip) checkAudio(t *testing.T) {
	t.Helper()
	for k := range c.source.Audio {
		track, err := media.Open(t.Context(), c.Store, c.prefix+"/"+audioName(k))
		if err != nil {
			t.Fatal(err)
		}
		index, video := track.Index(), c.video.Index()
		start, end := video.Track.Time(video.Start()), video.Track.Time(video.End())
		audible := index.Track.Time(index.Start() + index.Track.Priming)
		packet := index.Track.Time(1024)
		switch {
		case start > packet && (audible-start).Abs() > time.Millisecond:
			t.Errorf("frames %d to %d: audio is heard from %v on, video is shown from %v on", c.first, c.last, audible, start)
		case index.Track.Time(index.Track.Priming) > 2*packet:
			t.Errorf("frames %d to %d: %d ticks of audio are not heard", c.first, c.last, index.Track.Priming)
		case index.Track.Time(index.End()) > end+packet || c.last < len(c.times) && index.Track.Time(index.End()) < end:
			t.Errorf("frames %d to %d: audio ends at %v, video at %v", c.first, c.last, index.Track.Time(index.End()), end)
		}
		breaks := func(index cmaf.TrackIndex) (n int) {
			for _, s := range index.Segments {
				if s.Discontinuity {
					n++
				}
			}
			return n
		}
		if breaks(index) != breaks(video) && len(index.Segments) > 1 {
			t.Errorf("frames %d to %d: audio has %d discontinuities, video %d", c.first, c.last, breaks(index), breaks(video))
		}
	}
}

// A clip of a recording goes over the gap between two connections, which may have another coding.
func TestClipOfRecording(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	e := newEngine(t)
	again := mediatest.Film(t, "clip-again.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=4", "-c:v", "libx264", "-preset", "ultrafast", "-g", "48", "-bf", "0")
	var tracks []*media.Track
	for _, file := range []string{mediatest.Plain(t), again} {
		src, err := e.Import(t.Context(), vod.ImportOptions{File: file, Prefix: filepath.Base(file), SegmentSeconds: 2})
		if err != nil {
			t.Fatal(err)
		}
		video, _, err := e.Tracks(t.Context(), src)
		if err != nil {
			t.Fatal(err)
		}
		tracks = append(tracks, video)
	}
	mediatest.Record(t, e.Store, "asset", tracks...)
	track, err := media.Open(t.Context(), e.Store, "asset/"+media.RecordedVideo)
	if err != nil {
		t.Fatal(err)
	}
	source := Source{Video: track}
	times, _ := timesOf(track.Index())
	cut := cutFilm(t, e, source, 100, len(times)-30)
	got, _ := timesOf(cut.video.Index())
	if diff := cmp.Diff(times[100:len(times)-30], got); diff != "" {
		t.Errorf("times (-want +got):\n%s", diff)
	}
	cut.checkSegments(t)
	index := cut.video.Index()
	for n, s := range index.Segments {
		if s.Wall.IsZero() {
			t.Errorf("segment %d has no date", n)
		}
	}
	if diff := cmp.Diff(cmaf.Played([]cmaf.TrackIndex{index}).Seconds(), cut.result.Recording.Presentation.Duration); diff != "" || cut.result.Copied < 60 {
		t.Errorf("duration (-want +got):\n%s\n%d frames copied", diff, cut.result.Copied)
	}
}

func TestClipOfNothing(t *testing.T) {
	e := newEngine(t)
	src, err := e.Import(t.Context(), vod.ImportOptions{File: mediatest.Plain(t), Prefix: "film"})
	if err != nil {
		t.Fatal(err)
	}
	source, err := sourceOf(t.Context(), e, src)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Cut(t.Context(), e, source, Options{Prefix: "clip", Start: time.Minute, End: 2 * time.Minute, Dir: t.TempDir()})
	if weir.KindOf(err) != weir.NotFound {
		t.Errorf("a clip after the end: %v", err)
	}
}
