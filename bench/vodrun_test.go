//go:build bench

package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// measured is one run of a command, or of a task of the service.
type measured struct {
	wall, cpu time.Duration
	foreign   float64                  // share of the machine's CPU time that others used
	segment   map[string]time.Duration // until the first one of a rendition was complete
	peak      float64                  // bytes of memory of the processes together
	beside    time.Duration            // CPU time of the database and the storage of nodes
	dir       string                   // all that it made
	mp4       string                   // the folder of the MP4 files in it
}

// playable is when the first segment of any rendition was complete.
func (m measured) playable() time.Duration {
	first := m.wall
	for _, at := range m.segment {
		first = min(first, at)
	}
	return first
}

// begun is when the first segment of every rendition was complete.
func (m measured) begun() time.Duration {
	var last time.Duration
	for _, at := range m.segment {
		last = max(last, at)
	}
	return last
}

func (m measured) String() string {
	text := fmt.Sprintf("wall %6.1f s  CPU %6.1f s  others %4.1f %%  peak %4.0f MB",
		m.wall.Seconds(), m.cpu.Seconds(), 100*m.foreign, m.peak/1e6)
	if len(m.segment) > 0 {
		text += fmt.Sprintf("  first segment %5.2f s, of all renditions %5.1f s",
			m.playable().Seconds(), m.begun().Seconds())
	}
	return text
}

// quietly measures until others leave the machine alone.
func (b *vodBench) quietly(t *testing.T, name string, run func() measured) measured {
	t.Helper()
	for try := 1; ; try++ {
		m := run()
		if m.foreign <= *vodForeign {
			fmt.Printf("# %-16s %v\n", name, m)
			return m
		}
		fmt.Printf("# %-16s others used %.1f %% of the CPU, once more (wall %.1f s)\n",
			name, 100*m.foreign, m.wall.Seconds())
		b.remove(t, m)
		if try == 12 {
			t.Fatalf("others use too much of this machine")
		}
	}
}

// folder makes a folder for what a run makes.
func (b *vodBench) folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(b.out, "run-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// remove removes what runs have made: all of them together do not fit on every disk.
func (b *vodBench) remove(t *testing.T, runs ...measured) {
	t.Helper()
	for _, m := range runs {
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
	}
}

// runWeir runs `weir transcode`.
func (b *vodBench) runWeir(t *testing.T, c vodCase, w workers, film string) measured {
	t.Helper()
	dir := b.folder(t)
	args := []string{b.weir, "transcode", film, dir, "--segment", "6", "--gop", "2"}
	for _, r := range c.ladder {
		args = append(args, "--profile", fmt.Sprintf("%s:%d", r.name, r.bitrate))
	}
	if !c.passes {
		args = append(args, "--no-passthrough")
	}
	// A file of weir is there whole or not at all.
	first := func(r rung) string { return filepath.Join(dir, r.name, "0.ts") }
	return b.run(t, dir, firsts(c.ladder, first), slices.Concat(w.prefix(), args))
}

// runPlain runs one ffmpeg that makes the same.
func (b *vodBench) runPlain(t *testing.T, c vodCase, w workers, film string) measured {
	t.Helper()
	dir := b.folder(t)
	// ffmpeg has a segment in memory until it is complete, so its file is there whole as well.
	first := func(r rung) string { return filepath.Join(dir, r.name, "s0.ts") }
	args := plainArgs(t, c, film, dir, hlsAndMP4)
	return b.run(t, dir, firsts(c.ladder, first), slices.Concat(w.prefix(), args))
}

// firsts returns the file of each rendition that tells of its first segment.
func firsts(ladder []rung, file func(rung) string) map[string]string {
	files := map[string]string{}
	for _, r := range ladder {
		files[r.name] = file(r)
	}
	return files
}

// plainArgs is what a careful person would type: one decode, the audio copied, and a source that
// passes through copied as well.
func plainArgs(
	t *testing.T, c vodCase, film, dir string, muxer func(folder string) []string,
) []string {
	t.Helper()
	encoded := c.encoded()
	graph := fmt.Sprintf("[0:v]split=%d", len(encoded))
	for i := range encoded {
		graph += fmt.Sprintf("[s%d]", i)
	}
	for i, r := range encoded {
		filter := fmt.Sprintf("scale=-2:%d:flags=bicubic", r.height)
		if r.height == c.height {
			filter = "null"
		}
		graph += fmt.Sprintf(";[s%d]%s[v%d]", i, filter, i)
	}
	args := []string{"ffmpeg", "-nostdin", "-v", "error", "-y", "-i", film}
	args = append(args, "-filter_complex", graph)
	for _, r := range c.ladder {
		folder := filepath.Join(dir, r.name)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		i := slices.Index(encoded, r)
		if i < 0 {
			args = append(args, "-map", "0:v", "-map", "0:a", "-c", "copy")
		} else {
			args = append(args, "-map", fmt.Sprintf("[v%d]", i), "-map", "0:a?", "-c:a", "copy",
				"-c:v", "libx264", "-preset", "veryfast", "-b:v", strconv.Itoa(r.bitrate),
				"-maxrate", strconv.Itoa(r.bitrate*3/2), "-bufsize", strconv.Itoa(2*r.bitrate),
				"-g", "48", "-keyint_min", "48", "-sc_threshold", "0", "-flags", "+global_header")
		}
		args = append(args, muxer(folder)...)
	}
	return args
}

// hlsAndMP4 writes both at once, as weir does.
func hlsAndMP4(folder string) []string {
	return []string{"-f", "tee", fmt.Sprintf("[f=hls:hls_time=6:hls_playlist_type=vod:"+
		"hls_segment_filename=%[1]s/s%%d.ts]%[1]s/i.m3u8|"+
		"[f=mp4:movflags=+faststart]%[1]s.mp4", folder)}
}

// onlyCMAF writes what weir keeps of an asset.
func onlyCMAF(folder string) []string {
	return []string{
		"-f", "hls", "-hls_time", "6", "-hls_playlist_type", "vod", "-hls_segment_type", "fmp4",
		"-hls_segment_filename", folder + "/s%d.m4s", folder + "/i.m3u8",
	}
}

// run runs a command and watches it. firsts are the files that tell of first segments.
func (b *vodBench) run(t *testing.T, dir string, firsts map[string]string, args []string) measured {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	var problems bytes.Buffer
	cmd.Stderr = &problems
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	m := measured{dir: dir, mp4: dir}
	// What the command used is in what this process did when it has ended.
	foreign := startForeign(t, func(*testing.T) float64 { return 0 })
	start := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	type end struct {
		at  time.Time
		err error
	}
	ended := make(chan end, 1)
	go func() {
		err := cmd.Wait()
		ended <- end{time.Now(), err}
	}()
	m.watch(start, firsts, []int{cmd.Process.Pid}, func() (at time.Time, over bool) {
		select {
		case e := <-ended:
			if e.err != nil {
				t.Fatalf("%s: %v\n%s", strings.Join(args, " "), e.err, problems.String())
			}
			return e.at, true
		default:
			return at, false
		}
	})
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	m.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	m.foreign = foreign()
	return m
}

// watch notes when first segments are there and how much memory processes use, until it is over.
func (m *measured) watch(
	start time.Time, firsts map[string]string, pids []int, over func() (at time.Time, over bool),
) {
	m.segment = map[string]time.Duration{}
	looks, nextMemory := time.NewTicker(20*time.Millisecond), start
	defer looks.Stop()
	for range looks.C {
		for name, file := range firsts {
			if _, known := m.segment[name]; known {
				continue
			}
			if _, err := os.Stat(file); err == nil {
				m.segment[name] = time.Since(start)
			}
		}
		if now := time.Now(); now.After(nextMemory) {
			// Rarely: to look at an ffmpeg of many threads takes a millisecond.
			nextMemory = now.Add(time.Second)
			var total float64
			for _, pid := range pids {
				total += treeMemory(pid)
			}
			m.peak = max(m.peak, total)
		}
		if at, over := over(); over {
			m.wall = at.Sub(start)
			break
		}
	}
	for name := range firsts {
		if at, known := m.segment[name]; !known || at > m.wall { // one segment is all there is
			m.segment[name] = m.wall
		}
	}
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
		// Not idle, not waiting for the disk.
		if n, _ := strconv.ParseInt(field, 10, 64); i != 3 && i != 4 && i < 8 {
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / clockTick
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
