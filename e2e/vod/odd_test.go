package vod

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/e2e/harness"
)

// flashes are when the picture of a flash clip is bright and its audio loud.
var flashes = []float64{1.0, 3.4, 5.0}

// flashClip is black and silent, but for flashes with a tone, and has a corner of each
// colour.
func flashClip(t *testing.T, name string, args ...string) string {
	t.Helper()
	at := func(t string) string {
		var terms []string
		for _, f := range flashes {
			terms = append(terms, fmt.Sprintf(`between(%s\,%g\,%g)`, t, f-0.001, f+0.3))
		}
		return strings.Join(terms, "+")
	}
	picture := "color=black:size=320x180:rate=25:duration=6," +
		"drawbox=x=100:y=40:w=120:h=100:color=white:t=fill:enable='" + at("t") + "'," +
		"drawbox=x=0:y=0:w=40:h=40:color=red:t=fill,drawbox=x=280:y=0:w=40:h=40:color=green:t=fill," +
		"drawbox=x=0:y=140:w=40:h=40:color=blue:t=fill,drawbox=x=280:y=140:w=40:h=40:color=yellow:t=fill"
	audio := "aevalsrc='sin(1000*2*PI*t)*(" + at("t") + ")':s=48000:d=6"
	return harness.MakeClip(t, name, append([]string{"-f", "lavfi", "-i", picture, "-f", "lavfi", "-i", audio}, args...)...)
}

// TestInStep transcodes sources whose times or pictures are not straightforward, and
// measures in every kind of output whether video and audio belong together, and
// whether the colours are where they are in the source. What else can be odd about a
// source is a test of internal/vod.
func TestInStep(t *testing.T) {
	t.Parallel()
	x264 := []string{"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "50", "-bf", "3", "-b:v", "500k"}
	with := func(more ...string) []string { return append(append([]string{}, x264...), more...) }
	plain := flashClip(t, "flash.mp4", with("-c:a", "aac")...)
	sources := map[string]string{
		"plain":   plain,
		"rotated": harness.MakeClip(t, "flash-rotated.mov", "-i", plain, "-c", "copy", "-metadata:s:v:0", "rotate=90"),
		"preroll": harness.MakeClip(t, "flash-preroll.mp4", "-ss", "0.5", "-i", plain, "-c", "copy"),
		"offset":  harness.MakeClip(t, "flash-offset.ts", "-i", plain, "-c", "copy", "-output_ts_offset", "3000", "-mpegts_copyts", "1"),
		"opus":    flashClip(t, "flash-opus.mkv", with("-c:a", "libopus")...),
		"vfr":     flashClip(t, "flash-vfr.mp4", with("-vf", `select=not(mod(n\,3))+not(mod(n\,4))`, "-fps_mode", "vfr", "-c:a", "aac")...),
		"hevc10":  flashClip(t, "flash-hevc10.mp4", "-c:v", "libx265", "-preset", "ultrafast", "-x265-params", "log-level=error", "-pix_fmt", "yuv420p10le", "-tag:v", "hvc1", "-c:a", "ac3"),
	}
	w := harness.NewWeir(t)
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			out := t.TempDir()
			args := []string{"transcode", source, out, "--outputs", "hls,mp4,fmp4", "--segment", "2", "--profile", "180p:900k", "--profile", "144p:300k"}
			if name == "preroll" || name == "opus" {
				args = append(args, "--profile", "128p:200k:vp9") // so that HLS is CMAF
			}
			w.Run(args...)
			want := measure(t, source)
			files := []string{"index.m3u8", "fmp4/master.m3u8"}
			mp4, err := filepath.Glob(filepath.Join(out, "*.mp4"))
			if err != nil || len(mp4) < 2 {
				t.Fatalf("MP4 files: %q %v", mp4, err)
			}
			for _, file := range mp4 {
				files = append(files, filepath.Base(file))
			}
			for _, file := range files {
				compare(t, file, want, measure(t, filepath.Join(out, file)))
			}
		})
	}
}

// measured is what can be seen and heard of a flash clip.
type measured struct {
	bright, loud []float64 // when it begins to be
	corners      [4][3]byte
}

// measure watches and listens. Of a master playlist that is the first rendition with
// its audio.
func measure(t *testing.T, file string) (m measured) {
	t.Helper()
	input := []string{"-hide_banner", "-nostdin", "-allowed_extensions", "ALL", "-i", file}
	if filepath.Ext(file) != ".m3u8" {
		input = append(input[:2], "-i", file)
	}
	// One after the other: the filters tell what they find in the log.
	watch := exec.CommandContext(t.Context(), "ffmpeg", append(input, "-map", "0:v:0", "-map", "0:a:0",
		"-vf", "crop=iw*0.3:ih*0.3,blackdetect=d=0.05:pix_th=0.4:pic_th=0.9", "-af", "silencedetect=noise=-20dB:d=0.05", "-f", "null", "-")...)
	said, err := watch.CombinedOutput()
	if err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, said)
	}
	for _, found := range regexp.MustCompile(`black_end:([0-9.]+)`).FindAllSubmatch(said, -1) {
		m.bright = append(m.bright, harness.Number(string(found[1])))
	}
	for _, found := range regexp.MustCompile(`silence_end: ([0-9.]+)`).FindAllSubmatch(said, -1) {
		m.loud = append(m.loud, harness.Number(string(found[1])))
	}
	// The last dark and silent part ends with the file.
	if len(m.bright) <= len(flashes)-1 || len(m.loud) <= len(flashes)-1 {
		t.Fatalf("%s: bright at %v, loud at %v:\n%s", file, m.bright, m.loud, said)
	}
	m.bright, m.loud = m.bright[:len(flashes)], m.loud[:len(flashes)]
	pixels := exec.CommandContext(t.Context(), "ffmpeg", append(append([]string{}, input...), "-v", "error", "-map", "0:v:0", "-frames:v", "1", "-vf", "scale=16:16:flags=area", "-f", "rawvideo", "-pix_fmt", "rgb24", "-")...)
	var stderr bytes.Buffer
	pixels.Stderr = &stderr
	data, err := pixels.Output()
	if err != nil || len(data) != 16*16*3 {
		t.Fatalf("ffmpeg: %v, %d bytes\n%s", err, len(data), &stderr)
	}
	for i, at := range []int{0, 15, 15 * 16, 16*16 - 1} {
		copy(m.corners[i][:], data[3*at:])
	}
	return m
}

func compare(t *testing.T, file string, want, got measured) {
	t.Helper()
	for i := range flashes {
		if apart := got.bright[i] - got.loud[i] - (want.bright[i] - want.loud[i]); math.Abs(apart) > harness.InStep {
			t.Errorf("%s: the picture of flash %d comes %.3f s after its sound", file, i, apart)
		}
		// Players begin with the first frame, wherever the clock of the file stands.
		if moved := got.bright[i] - got.bright[0] - (want.bright[i] - want.bright[0]); math.Abs(moved) > 0.002 {
			t.Errorf("%s: flash %d comes %.3f s too late", file, i, moved)
		}
	}
	for i, name := range []string{"top left", "top right", "bottom left", "bottom right"} {
		for c := range 3 {
			if d := int(want.corners[i][c]) - int(got.corners[i][c]); d > 24 || d < -24 {
				t.Errorf("%s: %s is %v, want %v", file, name, got.corners[i], want.corners[i])
				break
			}
		}
	}
}
