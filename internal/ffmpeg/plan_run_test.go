package ffmpeg

import (
	"bytes"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// packet is a packet as ffprobe lists it; times in ticks of the track.
type packet struct {
	pts, dts int64
	key      bool
}

// plain runs ffmpeg with a plan's arguments, without the sandbox around it, and
// returns what came out of pipe:3 and so on.
func plain(t *testing.T, args []string, stdin []byte, outputs int) [][]byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin", "-y"}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	results := make([][]byte, outputs)
	var readers sync.WaitGroup
	var ends []*os.File
	for i := range outputs {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = append(cmd.ExtraFiles, w)
		ends = append(ends, w)
		readers.Go(func() {
			defer r.Close()
			results[i], _ = io.ReadAll(r)
		})
	}
	err := cmd.Start()
	for _, w := range ends {
		w.Close()
	}
	readers.Wait()
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		t.Fatalf("ffmpeg %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	if stderr.Len() > 0 {
		t.Logf("ffmpeg said: %s", stderr.String())
	}
	return results
}

// made returns a file that ffmpeg makes with the given arguments.
func made(t *testing.T, name string, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	out, err := exec.CommandContext(t.Context(), "ffmpeg", append(append([]string{"-v", "error"}, args...), "-y", path)...).CombinedOutput()
	if err != nil {
		t.Fatalf("ffmpeg %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return path
}

func written(t *testing.T, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func ffprobe(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "ffprobe", append([]string{"-v", "error", "-of", "csv=p=0"}, args...)...).Output()
	if err != nil {
		t.Fatalf("ffprobe %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}

func packets(t *testing.T, path string) []packet {
	t.Helper()
	var all []packet
	for line := range strings.Lines(ffprobe(t, "-show_entries", "packet=pts,dts,flags", path)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		pts, err1 := strconv.ParseInt(fields[0], 10, 64)
		dts, err2 := strconv.ParseInt(fields[1], 10, 64)
		if err1 != nil || err2 != nil {
			t.Fatalf("packet without times: %q", line)
		}
		all = append(all, packet{pts, dts, strings.Contains(fields[2], "K")})
	}
	return all
}

// shown returns the presentation times of a track, without the lead and in order.
func shown(all []packet, lead int64) []int64 {
	var times []int64
	for _, p := range all {
		times = append(times, p.pts-lead)
	}
	slices.Sort(times)
	return times
}

func keys(all []packet, lead int64) []int64 {
	var times []int64
	for _, p := range all {
		if p.key {
			times = append(times, p.pts-lead)
		}
	}
	return times
}

// TestRateFactors expects the quality that x264 logs, for the right encoder although others log none:
// one with a given quality, and one whose peak is near its bitrate.
func TestRateFactors(t *testing.T) {
	engine, err := New(Options{Sandbox: Off})
	if err != nil {
		t.Fatal(err)
	}
	track := sourceTrack(t, "h264", "-f", "lavfi", "-i", "testsrc2=s=256x144:r=24:d=2", "-c:v", "libx264", "-preset", "ultrafast")
	encode := Encode{Lead: testLead, Video: VideoFormat{Width: 256, Height: 144}, Timescale: 12288, Tick: Ratio{1, 24}, Rate: Ratio{24, 1}, Threads: 1}
	for _, r := range []Rendition{
		{Bitrate: 50_000, Peak: 75_000, Buffer: 100_000},
		{Quality: 30, Peak: 600_000, Buffer: 800_000},
		{Bitrate: 800_000, Peak: 1_200_000, Buffer: 1_600_000},
		{Bitrate: 590_000, Peak: 600_000, Buffer: 800_000},
		{Bitrate: 200_000, Peak: 300_000, Buffer: 400_000},
	} {
		r.Codec, r.Width, r.Height = H264, 256, 144
		encode.Renditions = append(encode.Renditions, r)
	}
	outputs := slices.Repeat([]io.Writer{io.Discard}, len(encode.Renditions))
	factors := map[int]float64{}
	err = engine.Run(t.Context(), Command{
		Args: encode.Args(), Stdin: bytes.NewReader(track), Outputs: outputs,
		Log: RateFactors(func(encoder int, factor float64) { factors[encoder] = factor }),
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 2, 4}, slices.Sorted(maps.Keys(factors))); diff != "" {
		t.Errorf("encoders with a factor (-want +got):\n%s", diff)
	}
	if factors[2] >= factors[4] || factors[4] >= factors[0] {
		t.Errorf("factors = %v, want the one of the least bitrate to be the worst and the one of the most the best", factors)
	}
	said := RateFactors(func(encoder int, factor float64) { t.Errorf("encoder %d has %v", encoder, factor) })
	for _, line := range []string{"", "final ratefactor: 20", "[libx264 @ 0x1] [info] final ratefactor: nought"} {
		said(line)
	}
}

// TestLogLeavesErrors expects that lines of the level info do not displace errors.
func TestLogLeavesErrors(t *testing.T) {
	var log []string
	said := tail{levels: true, log: func(line string) { log = append(log, line) }}
	said.read(strings.NewReader("[info] one\n[libx264 @ 0x1] [warning] two\n[mp4 @ 0x2] [error] three\n"))
	if got := said.String(); got != "[mp4 @ 0x2] three" || len(log) != 2 {
		t.Errorf("kept %q and logged %q", got, log)
	}
}
