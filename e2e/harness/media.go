package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// MakeClip makes media with ffmpeg's own sources. What comes out depends on the
// arguments alone, so each is made once in a run of the tests; name is that of the
// file and gives the container.
func MakeClip(t *testing.T, name string, args ...string) string {
	t.Helper()
	return MakeOnce(t, name, func(path string) { FFmpeg(t, append(append([]string{"-y"}, args...), path)...) })
}

// MakeOnce makes a file once in a run of the tests. Tests run side by side: the file is there whole
// or not at all.
func MakeOnce(t *testing.T, name string, write func(path string)) string {
	t.Helper()
	path := filepath.Join(clips, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(clips, 0o700); err != nil {
		t.Fatal(err)
	}
	temp := filepath.Join(t.TempDir(), name)
	write(temp)
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Pictures are the arguments for moving pictures that no two frames of are equal,
// with a tone beside them.
func Pictures(size string, fps int, seconds float64) []string {
	length := strconv.FormatFloat(seconds, 'f', -1, 64)
	return []string{
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%s:rate=%d:duration=%s", size, fps, length),
		"-f", "lavfi", "-i", "sine=frequency=440:sample_rate=48000:duration=" + length,
	}
}

// SmallClip is what most tests send: H.264 and AAC in MP4, key frames every second,
// 250 frames.
func SmallClip(t *testing.T) string {
	t.Helper()
	return MakeClip(t, "small.mp4", append(Pictures("320x180", 25, 10),
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "25", "-b:v", "500k",
		"-c:a", "aac", "-b:a", "96k", "-movflags", "+faststart")...)
}

// LoopedClip is a video of at least so many bytes: the same seconds again and again,
// and so much noise in them that they are large.
func LoopedClip(t *testing.T, size int64) string {
	t.Helper()
	once := MakeClip(t, "noise.mp4", append([]string{"-f", "lavfi", "-i", "testsrc2=size=320x180:rate=25:duration=4,noise=alls=100:allf=t"},
		"-f", "lavfi", "-i", "sine=duration=4", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-qp", "1", "-g", "50", "-c:a", "aac")...)
	times := size/FileSize(t, once) + 1
	return MakeClip(t, fmt.Sprintf("looped%d.mp4", times), "-stream_loop", fmt.Sprint(times-1), "-i", once, "-c", "copy", "-movflags", "+faststart")
}

// FFmpeg runs ffmpeg, which must have nothing to say, and returns its output.
func FFmpeg(t *testing.T, args ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-hide_banner", "-nostdin", "-v", "error", "-xerror"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("ffmpeg %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return out
}

// IPFSCar runs the ipfs-car tool, which others wrote, and returns what it prints.
func IPFSCar(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "node", append([]string{filepath.Join("..", "ucan", "node_modules", "ipfs-car", "bin.js")}, args...)...)
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ipfs-car %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// Probed is what ffprobe tells of media.
type Probed struct {
	Streams []struct {
		Index     int    `json:"index"`
		Type      string `json:"codec_type"`
		Codec     string `json:"codec_name"`
		Profile   string `json:"profile"`
		Width     int    `json:"width"`
		Height    int    `json:"height"`
		PixFmt    string `json:"pix_fmt"`
		Channels  int    `json:"channels"`
		StartTime string `json:"start_time"`
		Duration  string `json:"duration"`
		Frames    string `json:"nb_read_packets"`
	} `json:"streams"`
	Format struct {
		Duration string `json:"duration"`
		Start    string `json:"start_time"`
	} `json:"format"`
	Packets []Packet `json:"packets"`
}

// Packet is a compressed frame.
type Packet struct {
	Type     string `json:"codec_type"`
	PTS      string `json:"pts_time"`
	Duration string `json:"duration_time"`
	Flags    string `json:"flags"`
	Hash     string `json:"data_hash"` // with -show_data_hash
}

func (p Packet) Key() bool { return strings.HasPrefix(p.Flags, "K") }

func (p Packet) Time() float64 { return Number(p.PTS) }

func Number(text string) float64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return -1
	}
	return f
}

// FFprobe runs ffprobe, which must have nothing to complain about.
func FFprobe(t *testing.T, input string, args ...string) Probed {
	t.Helper()
	args = append([]string{"-v", "error", "-show_streams", "-show_format", "-of", "json"}, append(args, input)...)
	cmd := exec.CommandContext(t.Context(), "ffprobe", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("ffprobe %s: %v\n%s", input, err, &stderr)
	}
	var p Probed
	if err := json.Unmarshal(out, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// FrameSums decodes media, which must go without a complaint, and returns the
// checksum of each frame of its first video track.
func FrameSums(t *testing.T, input string, args ...string) []string {
	t.Helper()
	// Without audio, ffmpeg decodes the video for the second output again: there, too, it must not
	// round times to a frame rate, because then two frames around a reconnect can be one. Nor must
	// it close the hole of a reconnect that took more than 10 s, its default for HLS: it places the
	// next frame a little too early.
	args = append(args, "-dts_delta_threshold", "3600", "-i", input, "-map", "0:v:0", "-fps_mode", "passthrough", "-f", "framemd5", "-")
	return Sums(FFmpeg(t, append(args, "-map", "0:a?", "-fps_mode", "passthrough", "-f", "null", "-")...))
}

// Sums returns the checksums in ffmpeg's framemd5 format.
func Sums(text []byte) []string {
	var list []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, ",")
		list = append(list, strings.TrimSpace(fields[len(fields)-1]))
	}
	return list
}

// TinyClip is two seconds of video.
func TinyClip(t *testing.T) string {
	t.Helper()
	return MakeClip(t, "tiny.mp4", append(Pictures("228x128", 25, 2),
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "25", "-b:v", "600k", "-c:a", "aac", "-movflags", "+faststart")...)
}

// InStep is how far video and audio may be apart, in seconds.
const InStep = 0.040
