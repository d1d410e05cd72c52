package cmaf

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"weir/internal/weir"
)

// movieFile returns a file of two seconds with audio and B-frames, and the body of its
// moov box.
func movieFile(t testing.TB) (path string, data, moov []byte) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "x.mp4")
	out, err := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=160x90:r=25:d=2",
		"-f", "lavfi", "-i", "sine=440:r=48000:d=2", "-c:v", "libx264", "-preset", "veryfast", "-bf", "2", "-g", "25", "-threads", "1", "-c:a", "aac", path).CombinedOutput()
	if err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, out)
	}
	if data, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	return path, data, child(data, "moov")
}

// TestMovie holds the samples of a file against what ffprobe finds in it.
func TestMovie(t *testing.T) {
	path, data, moov := movieFile(t)
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "packet=codec_type,pts_time,dts_time,flags,pos,size", "-of", "json", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var found struct {
		Packets []struct {
			Kind  string `json:"codec_type"`
			PTS   string `json:"pts_time"`
			DTS   string `json:"dts_time"`
			Pos   string `json:"pos"`
			Size  string `json:"size"`
			Flags string `json:"flags"`
		}
	}
	if err := json.Unmarshal(out, &found); err != nil {
		t.Fatal(err)
	}
	type place struct{ offset, size int64 }
	m, err := ReadMovie(moov)
	if err != nil {
		t.Fatal(err)
	}
	tracks := m.Tracks()
	samples := map[place]MovieSample{}
	last := int64(-1)
	for {
		s, ok, err := m.Next()
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			break
		}
		if s.Offset <= last || s.Offset+s.Size > int64(len(data)) {
			t.Fatalf("a sample at %d after one at %d", s.Offset, last)
		}
		last = s.Offset
		samples[place{s.Offset, s.Size}] = s
	}
	if len(tracks) != 2 || len(samples) != len(found.Packets) {
		t.Fatalf("%d tracks, %d samples, want 2 and %d", len(tracks), len(samples), len(found.Packets))
	}
	for _, p := range found.Packets {
		number := func(text string) int64 {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		seconds := func(text string) time.Duration {
			f, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return time.Duration(f * float64(time.Second))
		}
		s, ok := samples[place{number(p.Pos), number(p.Size)}]
		if !ok || string(tracks[s.Track].Kind) != p.Kind || s.Sync != (p.Flags[0] == 'K') ||
			(s.PTS-seconds(p.PTS)).Abs() > time.Millisecond || (s.DTS-seconds(p.DTS)).Abs() > time.Millisecond {
			t.Fatalf("sample %+v of %s, ffprobe says %+v", s, tracks[s.Track].Kind, p)
		}
	}
}

// FuzzMovie reads what may be anything.
func FuzzMovie(f *testing.F) {
	_, _, moov := movieFile(f)
	f.Add(moov)
	f.Add(bytes.ReplaceAll(moov, []byte("stco"), []byte("co64")))
	f.Fuzz(func(t *testing.T, moov []byte) {
		m, err := ReadMovie(moov)
		for n := 0; err == nil; n++ {
			var s MovieSample
			var ok bool
			if s, ok, err = m.Next(); !ok || n > 100_000 {
				break
			}
			if s.Offset < 0 || s.Size < 0 || s.Track >= len(m.Tracks()) {
				t.Fatalf("sample %+v", s)
			}
		}
		if err != nil && weir.KindOf(err) != weir.Invalid {
			t.Errorf("an error that is not about the file: %v", err)
		}
	})
}
