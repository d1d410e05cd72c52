package publish

import (
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

func TestOutput(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	outputs := Outputs{Formats: allOutputs()}
	got := weir.TranscodeOutput{RequestID: "abcdefgh", InputVideo: weir.InputVideo{Duration: 7.6, Size: 1234}}
	outputs.Describe(&got, &State{Base: "https://s3.example/bucket"}, p.video, p.audio)
	for i := range got.Renditions {
		r := &got.Renditions[i]
		if r.Bitrate < 1000 || r.Size < 1000 {
			t.Errorf("%s: %d bit/s, %d bytes", r.Name, r.Bitrate, r.Size)
		}
		if !strings.HasPrefix(r.Codec, "avc1.") || !strings.HasSuffix(r.Codec, ",mp4a.40.2") {
			t.Errorf("%s: codec %s", r.Name, r.Codec)
		}
		r.Bitrate, r.Size, r.Codec = 0, 0, ""
	}
	want := weir.TranscodeOutput{
		BaseURL: "https://s3.example/bucket",
		HLS:     &weir.PathParam{Path: "/v/hls/index.m3u8"},
		MP4:     []weir.PathParam{{Path: "/v/mp4/320x180.mp4"}, {Path: "/v/mp4/160x90.mp4"}},
		FMP4:    &weir.FMP4Output{Path: "/fmp4/master.m3u8", DASH: "/fmp4/index.mpd"},
		Renditions: []weir.RenditionOutput{
			{Name: "320x180", Width: 320, Height: 180, FPS: 25, Playlist: "/v/hls/320x180/index.m3u8", MP4: "/v/mp4/320x180.mp4", FMP4: "/fmp4/index-stream1.mp4"},
			{Name: "160x90", Width: 160, Height: 90, FPS: 25, Playlist: "/v/hls/160x90/index.m3u8", MP4: "/v/mp4/160x90.mp4", FMP4: "/fmp4/index-stream2.mp4"},
		},
		RequestID:  "abcdefgh",
		InputVideo: weir.InputVideo{Duration: 7.6, Size: 1234},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if id := NewRequestID(); len(id) != 8 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		t.Errorf("request id %q", id)
	}
}

// Each output file starts at 0 and has the duration of the presentation, without the lead of stored times and the
// delay of B-frames.
func TestOutputsStartAtZero(t *testing.T) {
	t.Parallel()
	p := testPresentation(t, h264...)
	dir, dest := mediatest.NewDestination(t)
	outputs := Outputs{Store: p.store, Dest: dest, Formats: allOutputs(), Dir: t.TempDir()}
	var state State
	if err := outputs.Publish(t.Context(), &state, p.video, p.audio); err != nil {
		t.Fatal(err)
	}
	files := []string{
		filepath.Join(dir, "fmp4/index-stream0.mp4"), filepath.Join(dir, "fmp4/index-stream1.mp4"), filepath.Join(dir, "fmp4/index-stream2.mp4"),
	}
	for _, name := range []string{"320x180", "160x90", "audio0", "audio1"} {
		files = append(files, mediatest.Concatenate(t, dir, "v/hls/"+name, ".m4s"))
	}
	for _, file := range files {
		start, seconds := span(t, file)
		if math.Abs(start) > 0.0005 || math.Abs(seconds-testFrames/25.0) > 0.05 {
			t.Errorf("%s starts at %g and is %g s long, want 0 and %g", file, start, seconds, testFrames/25.0)
		}
	}
}

// span returns when a file starts and how long it is, in seconds, as ffprobe has it.
func span(t *testing.T, file string) (start, seconds float64) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffprobe", "-v", "error", "-show_entries", "format=start_time,duration", "-of", "csv=p=0", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(strings.ReplaceAll(string(out), ",", " "), "%g %g", &start, &seconds); err != nil {
		t.Fatalf("ffprobe says %q of %s: %v", out, file, err)
	}
	return start, seconds
}
