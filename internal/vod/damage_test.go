package vod

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"weir/internal/ffmpeg"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// damage returns a copy of a file in which bytes in the middle of some packets of a stream are
// others.
func damage(t *testing.T, file, stream string, packets int) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-select_streams", stream,
		"-show_entries", "packet=pos,size", "-of", "csv=p=0", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Fields(string(out))
	for i := range packets {
		size, pos, _ := strings.Cut(strings.Trim(lines[(i+1)*len(lines)/(packets+1)], ","), ",")
		length, err1 := strconv.Atoi(size)
		start, err2 := strconv.Atoi(pos)
		if err1 != nil || err2 != nil || start+length > len(data) {
			t.Fatalf("packet at %q with %q bytes", pos, size)
		}
		copy(data[start+length/2:start+length], bytes.Repeat([]byte{0xa5}, length/4))
	}
	name := filepath.Join(t.TempDir(), "damaged"+filepath.Ext(file))
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A damaged file that still plays is transcoded, with a warning.
func TestDamagedSources(t *testing.T) {
	encode := Request{SegmentSeconds: 2, EncodeAll: true, Profiles: []weir.Profile{{Name: "top", Width: 320, Height: 180, Bitrate: 500_000}}}
	for _, tt := range []struct {
		name, stream string
		make         []string
		want         string // in the only warning
	}{
		{"h264.mp4", "v", with(av, x264), "frames of the video could not be decoded properly; they are missing or damaged in the output"},
		{"mpeg4.avi", "v", with(av, []string{"-c:v", "mpeg4", "-q:v", "3", "-c:a", "libmp3lame"}), "frames of the video could not be decoded properly"},
		{"audio.mkv", "a", with(av, x264, []string{"-c:a", "ac3"}), "parts of the audio could not be decoded; they are silent or damaged in the output"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := transcode(t, damage(t, mediatest.Film(t, "damage-"+tt.name, tt.make...), tt.stream, 5), encode)
			warnings := Warnings(o.plan, o.results, o.audio)
			if len(warnings) != 1 || !strings.Contains(warnings[0], tt.want) {
				t.Errorf("warnings = %q, want one with %q", warnings, tt.want)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	var many []RenditionResult
	for k := range 20 {
		many = append(many, RenditionResult{Name: "audio" + strconv.Itoa(k), Damage: ffmpeg.Damage{Packets: 1}})
	}
	var plan Plan
	for _, tt := range []struct {
		name   string
		chunks []ffmpeg.Damage
		audio  []RenditionResult
		want   int // sentences
		first  string
	}{
		{"none", []ffmpeg.Damage{{}, {}}, []RenditionResult{{Name: "audio0"}}, 0, ""},
		{"frames", []ffmpeg.Damage{{Errors: 7}, {Frames: 3}}, nil, 1, "some frames of the video could not be decoded properly"},
		{"packets", []ffmpeg.Damage{{Packets: 7}}, nil, 1, "some frames of the video"},
		{"errors", []ffmpeg.Damage{{Errors: 3}}, nil, 1, "the video has errors"},
		{"one of two audio tracks", nil, []RenditionResult{{Name: "audio0"}, many[1]}, 1, "parts of the audio track audio1"},
		{"many audio tracks", nil, many, maxWarnings, "parts of the audio track audio0"},
	} {
		var chunks []ChunkResult
		for _, d := range tt.chunks {
			chunks = append(chunks, ChunkResult{Damage: d})
		}
		got := Warnings(plan, chunks, tt.audio)
		if len(got) != tt.want || tt.want > 0 && !strings.HasPrefix(got[0], tt.first) {
			t.Errorf("%s: %q, want %d that start with %q", tt.name, got, tt.want, tt.first)
		}
	}
	plan.Source.Damage.Errors = 1
	if got := Warnings(plan, nil, nil); len(got) != 1 || !strings.HasPrefix(got[0], "the container of the file is damaged") {
		t.Errorf("damaged container: %q", got)
	}
}
