package ffmpeg

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
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

// TestLogLeavesErrors expects that lines of the level info do not displace errors.
func TestLogLeavesErrors(t *testing.T) {
	said := tail{levels: true}
	said.read(strings.NewReader("[info] one\n[libx264 @ 0x1] [warning] two\n[mp4 @ 0x2] [error] three\n"))
	if got := said.String(); got != "[mp4 @ 0x2] three" {
		t.Errorf("kept %q", got)
	}
}
