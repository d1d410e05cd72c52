// Package mediatest has what tests of several packages need of media: films made with ffmpeg, what
// ffmpeg decodes of a file, recordings, and a destination that notes what it gets.
//
// Only tests import this package.
package mediatest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
)

// films are the files that the tests of a process share, made once.
var films = struct {
	sync.Mutex
	dir  string
	made map[string]*sync.Once
}{made: map[string]*sync.Once{}}

// Runner runs the tests of M and then deletes the films. It is the argument of
// goleak.VerifyTestMain.
type Runner struct {
	M interface{ Run() int }
}

func (r Runner) Run() int {
	code := r.M.Run()
	if err := os.RemoveAll(films.dir); err != nil { // of "", nothing
		fmt.Fprintf(os.Stderr, "delete the films: %v\n", err)
		return max(code, 1)
	}
	return code
}

// Film makes a file with ffmpeg, once in a process; name has the extension, and args make it.
// Arguments that start with @ are other films.
func Film(t *testing.T, name string, args ...string) string {
	t.Helper()
	films.Lock()
	if films.dir == "" {
		dir, err := os.MkdirTemp("", "weir-films")
		if err != nil {
			t.Fatal(err)
		}
		films.dir = dir
	}
	once := films.made[name]
	if once == nil {
		once = new(sync.Once)
		films.made[name] = once
	}
	films.Unlock()
	path := filepath.Join(films.dir, name)
	once.Do(func() {
		all := []string{"-nostdin", "-v", "error", "-y"}
		for _, arg := range args {
			if other, ok := strings.CutPrefix(arg, "@"); ok {
				arg = filepath.Join(films.dir, other)
			}
			all = append(all, arg)
		}
		if out, err := exec.Command("ffmpeg", append(all, path)...).CombinedOutput(); err != nil {
			t.Fatalf("making %s: %v\n%s", name, err, out)
		}
	})
	return path
}

// Plain is a plain H.264 and AAC file of six seconds.
func Plain(t *testing.T) string {
	t.Helper()
	return Film(t, "plain.mp4", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=24:d=6", "-f", "lavfi", "-i", "sine=d=6:r=48000",
		"-c:v", "libx264", "-preset", "veryfast", "-g", "24", "-bf", "3", "-pix_fmt", "yuv420p", "-c:a", "aac", "-movflags", "+faststart")
}

// AllFrames decodes everything strictly and returns the times and checksums of all frames, as ffmpeg
// writes them; any complaint of ffmpeg is an error.
func AllFrames(t *testing.T, path string) string {
	t.Helper()
	var complaints bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-xerror", "-allowed_extensions", "ALL", "-i", path,
		"-map", "0:v:0?", "-map", "0:a?", "-fps_mode", "passthrough", "-f", "framemd5", "-")
	if !strings.HasSuffix(path, ".m3u8") {
		cmd.Args = slices.DeleteFunc(cmd.Args, func(a string) bool { return a == "-allowed_extensions" || a == "ALL" })
	}
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil || complaints.Len() > 0 {
		t.Errorf("decode %s: %v: %s", path, err, complaints.String())
	}
	return string(out)
}

// Frames returns the number of frames of the first stream of a file.
func Frames(t *testing.T, path string) int {
	t.Helper()
	frames := 0
	for text := range strings.Lines(AllFrames(t, path)) {
		if strings.HasPrefix(text, "0,") {
			frames++
		}
	}
	return frames
}

// WantFrames decodes files, two at a time, and compares the number of frames of their first stream;
// a negative number is the least there may be.
func WantFrames(t *testing.T, dir string, want int, files ...string) {
	t.Helper()
	var group errgroup.Group
	group.SetLimit(2)
	for _, file := range files {
		group.Go(func() error {
			if got := Frames(t, filepath.Join(dir, file)); got != want && (want >= 0 || got < -want) {
				t.Errorf("%s has %d frames, want %d", file, got, want)
			}
			return nil
		})
	}
	_ = group.Wait() // they return nothing
}

// Concatenate joins the segments of a rendition, which have an init segment before them if they are
// not MPEG-TS.
func Concatenate(t *testing.T, dir, rendition, extension string) string {
	t.Helper()
	joined, err := os.ReadFile(filepath.Join(dir, rendition, "init.mp4"))
	if (err == nil) != (extension == ".m4s") {
		t.Fatalf("init segment: %v", err)
	}
	for n := 0; ; n++ {
		data, err := os.ReadFile(filepath.Join(dir, rendition, strconv.Itoa(n)+extension))
		if err != nil {
			break
		}
		joined = append(joined, data...)
	}
	path := filepath.Join(t.TempDir(), "joined"+extension)
	if err := os.WriteFile(path, joined, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// gap is how long the encoder of a recording is away.
const gap = 20 * time.Second

// Record makes a recording of tracks in a store, one after the other, as an encoder sends that goes
// and comes back.
func Record(t *testing.T, store blob.Store, prefix string, tracks ...*media.Track) cmaf.TrackIndex {
	t.Helper()
	ctx := t.Context()
	var index cmaf.TrackIndex
	end := int64(0)
	for k, track := range tracks {
		coded := track.Index().Track
		switch {
		case k == 0:
			index.Track, end = coded, coded.Ticks(1030*time.Millisecond) // the first frame comes a while after the connection
		case !bytes.Equal(coded.Entry, index.Track.Entry):
			index.Changes = append(index.Changes, cmaf.Change{First: len(index.Segments), Track: coded})
		}
		shift := end
		for n := range track.Index().Segments {
			fragments, err := track.Fragments(ctx, n)
			if err != nil {
				t.Fatal(err)
			}
			segment := cmaf.Segment{Wall: time.Unix(int64(1000*k+n), 0).UTC(), Discontinuity: k > 0 && n == 0}
			var data []byte
			for _, f := range fragments {
				f.Start += shift
				part, written := cmaf.EncodePart(uint32(len(index.Segments)*100+len(segment.Parts)+1), coded, f)
				segment.Parts, data = append(segment.Parts, part), append(data, written...)
			}
			if err := media.Put(ctx, store, prefix+"/"+media.RecordedVideo, len(index.Segments), segment, data); err != nil {
				t.Fatal(err)
			}
			index.Segments, end = append(index.Segments, segment), segment.End()
		}
		end += coded.Ticks(gap)
	}
	if err := media.Seal(ctx, store, prefix+"/"+media.RecordedVideo, index); err != nil {
		t.Fatal(err)
	}
	shown := media.Presentation{Complete: true, Renditions: []media.Rendition{{Name: media.RecordedVideo, Dir: media.RecordedVideo, Complete: true}}}
	if err := media.SavePresentation(ctx, store, prefix, shown); err != nil {
		t.Fatal(err)
	}
	return index
}
