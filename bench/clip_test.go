//go:build bench

package bench

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

var (
	clipRounds = flag.Int("clip-rounds", 3,
		"interleaved measurements of clips of a file, of which the median counts")
	clipLengths = flag.String("clip-lengths", "10,30,60,600,3600",
		"lengths of the clips of a file in seconds, even numbers up to 3600")
	clipLive = flag.Int("clip-live", 10, "clips of a stream on air; 0 = leave them out")
)

const (
	clipFilmSeconds = 3720
	clipStart       = 7.25 // seconds: a frame in the middle between two key frames
	clipCompared    = 30   // seconds of the clip that others make too
	clipKey         = 2    // seconds between key frames

	clipMaxCPU   = 1.0 / 8 // of a stream on air, as a ratio to the whole re-encode
	clipAimReady = 3.0     // seconds
)

// TestClip measures clips: out of a 1080p film against a whole re-encode and against a copy from the
// key frame before, by length, and out of a stream on air.
func TestClip(t *testing.T) {
	t.Run("file", benchClipFile)
	t.Run("live", benchClipLive)
}

// clipRun is one clip.
type clipRun struct {
	measured
	encoded, copied int // frames
}

// clipRow is what is measured of a way to cut.
type clipRow struct {
	who     string
	seconds int
	runs    []clipRun
	frames  int     // in the file
	ssim    float64 // of the worst frame, beside those of the film; NaN = there are not as many
}

func (r *clipRow) String() string {
	last := r.runs[len(r.runs)-1]
	counted := ""
	if last.encoded+last.copied > 0 {
		counted = fmt.Sprintf("%7d %7d", last.encoded, last.copied)
	}
	exact := "-"
	switch {
	case math.IsNaN(r.ssim):
		exact = "other frames"
	case r.ssim > 0:
		exact = fmt.Sprintf("%.3f", r.ssim)
	}
	return fmt.Sprintf("%-22s %6d s | %8.2f %8.2f | %15s | %6d of %6d | %s", r.who, r.seconds,
		median(r.runs, func(c clipRun) float64 { return c.wall.Seconds() }),
		median(r.runs, func(c clipRun) float64 { return c.cpu.Seconds() }),
		counted, r.frames, r.seconds*filmRate, exact)
}

// benchClipFile cuts clips out of a long film.
func benchClipFile(t *testing.T) {
	b := newVODBench(t)
	film := b.clipFilm(t)
	var rows []*clipRow
	for length := range strings.SplitSeq(*clipLengths, ",") {
		seconds, err := strconv.Atoi(length)
		if err != nil || seconds < 2 || seconds%2 != 0 || seconds > 3600 {
			t.Fatalf("-clip-lengths %s: %q is no even number up to 3600", *clipLengths, length)
		}
		rows = append(rows, &clipRow{who: "weir clip", seconds: seconds})
		if seconds == clipCompared {
			rows = append(rows, &clipRow{who: "ffmpeg, all encoded", seconds: seconds}, &clipRow{who: "ffmpeg, key-frame copy", seconds: seconds})
		}
	}
	for round := range *clipRounds {
		for _, r := range rows {
			out := filepath.Join(b.folder(t), "clip.mp4")
			args := r.args(b, film, out)
			m := b.quietlyClip(t, fmt.Sprintf("round %d %d s %s", round+1, r.seconds, r.who), args)
			m.dir = filepath.Dir(out)
			r.runs = append(r.runs, m)
			if round == *clipRounds-1 {
				r.frames = b.probe(t, out).frames
				if r.seconds == clipCompared {
					r.ssim = b.worstFrame(t, out, film, r.frames)
				}
			}
			b.remove(t, m.measured)
		}
	}
	fmt.Printf("\nClips of a film of 1080p, %d frames a second, a key frame every 2 s; medians of %d rounds.\n", filmRate, *clipRounds)
	fmt.Printf("%-22s %8s | %8s %8s | %7s %7s | %-16s | %s\n", "", "clip", "wall, s", "CPU, s", "encoded", "copied", "frames", "worst SSIM")
	for _, r := range rows {
		fmt.Println(r)
		if !strings.HasPrefix(r.who, "weir") {
			continue
		}
		last := r.runs[len(r.runs)-1]
		if r.frames != r.seconds*filmRate || last.encoded+last.copied != r.frames || r.seconds == clipCompared && !(r.ssim > 0.8) {
			t.Errorf("the clip of %d s has %d frames, SSIM at worst %.3f", r.seconds, r.frames, r.ssim)
		}
		// At its end, a clip needs none if no frame depends on a later one there.
		if most := 2 * clipKey * filmRate; last.encoded > most {
			t.Errorf("for %d s %d frames are encoded, at most %d are needed", r.seconds, last.encoded, most)
		}
	}
}

// clipFilm is an hour and two minutes of film with a key frame every 2 s.
func (b *vodBench) clipFilm(t *testing.T) string {
	t.Helper()
	short := b.encode(t, "clip-30.mp4", "-t", "30", "-i", b.bunny(t), "-sc_threshold", "0", "-keyint_min", "48")
	return b.clip(t, fmt.Sprintf("clip-%d.mp4", clipFilmSeconds), func(file string) []string {
		again := strconv.Itoa(clipFilmSeconds/30 - 1)
		// The audio of a file is a little longer than its video, so each is repeated alone.
		return []string{
			"-stream_loop", again, "-an", "-i", short, "-stream_loop", again, "-vn", "-i", short,
			"-map", "0:v", "-map", "1:a", "-c:v", "copy", "-c:a", "aac", "-b:a", "192k",
			"-t", strconv.Itoa(clipFilmSeconds), "-movflags", "+faststart", file,
		}
	})
}

// args are those of a way to cut.
func (r *clipRow) args(b *vodBench, film, out string) []string {
	start, length := strconv.FormatFloat(clipStart, 'f', -1, 64), strconv.Itoa(r.seconds)
	plain := []string{"ffmpeg", "-nostdin", "-v", "error", "-y", "-ss", start, "-i", film, "-t", length}
	switch r.who {
	case "weir clip":
		return []string{b.weir, "clip", film, start, strconv.FormatFloat(clipStart+float64(r.seconds), 'f', -1, 64), out, "--yes"}
	case "ffmpeg, key-frame copy":
		return append(plain, "-c", "copy", out)
	}
	return append(plain, "-c:v", "libx264", "-preset", "veryfast", "-b:v", "5500k", "-maxrate", "8M", "-bufsize", "11M", "-c:a", "copy", "-movflags", "+faststart", out)
}

var clipCounts = regexp.MustCompile(`encoded (\d+) frames?, copied (\d+)`)

// quietlyClip measures a command until others leave the machine alone.
func (b *vodBench) quietlyClip(t *testing.T, name string, args []string) (c clipRun) {
	t.Helper()
	c.measured = b.quietly(t, name, func() (m measured) {
		foreign := startForeign(t, func(*testing.T) float64 { return 0 })
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		var out, problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problems
		start := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, &out, &problems)
		}
		m.wall = time.Since(start)
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		m.cpu, m.foreign = time.Duration(usage.Utime.Nano()+usage.Stime.Nano()), foreign()
		m.dir = filepath.Join(b.out, "none")
		if found := clipCounts.FindStringSubmatch(out.String()); found != nil {
			c.encoded, _ = strconv.Atoi(found[1])
			c.copied, _ = strconv.Atoi(found[2])
		} else if args[0] == b.weir {
			t.Fatalf("weir clip does not say what it encoded:\n%s", &out)
		}
		return m
	})
	return c
}

// worstFrame compares a clip with the film, frame by frame.
func (b *vodBench) worstFrame(t *testing.T, clip, film string, frames int) float64 {
	t.Helper()
	if frames != clipCompared*filmRate {
		return math.NaN()
	}
	graph := fmt.Sprintf("[0:v]setpts=N/%[1]d/TB[a];[1:v]setpts=N/%[1]d/TB[b];[a][b]ssim=stats_file=-", filmRate)
	text := command(t, b.out, "ffmpeg", "-nostdin", "-v", "error", "-i", clip, "-ss", strconv.FormatFloat(clipStart, 'f', -1, 64),
		"-t", strconv.Itoa(clipCompared), "-i", film, "-filter_complex", graph, "-f", "null", "-")
	worst := math.NaN()
	for line := range strings.Lines(text) {
		if _, all, found := strings.Cut(line, "All:"); found {
			if value := harness.Number(strings.Fields(all)[0]); math.IsNaN(worst) || value < worst {
				worst = value
			}
		}
	}
	return worst
}

// benchClipLive cuts clips of 30 s out of a stream on air, and does the same with ffmpeg.
func benchClipLive(t *testing.T) {
	if *clipLive == 0 {
		t.Skip("-clip-live 0")
	}
	b := newVODBench(t)
	w := b.service(t, -1)
	rtmp := freeAddr(t)
	w.Start("--rtmp", rtmp)
	defer w.Stop()
	var stream struct{ ID, StreamKey, PlaybackID string }
	w.Must("POST", "/api/stream", map[string]any{"name": "clips", "record": true, "profiles": []any{}, "recordingSpec": map[string]any{"profiles": []any{}}}, &stream)
	ctx, cancel := context.WithCancel(t.Context())
	p := &publishers{film: b.liveFilm(t)}
	p.publish(ctx, t, broadcast{rtmp: "rtmp://" + rtmp + "/live#" + stream.StreamKey})
	defer func() {
		cancel()
		p.group.Wait()
	}()
	const seconds = 30
	if err := sleep(ctx, (seconds+10)*time.Second); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(w.Cmd.Process.Pid)

	var clips, encodes, copies []clipRun
	for round := range *clipLive {
		p.check(t)
		idle, began := cpuOf(t, pid), time.Now()
		if err := sleep(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		rate := (cpuOf(t, pid) - idle) / time.Since(began).Seconds()

		end := float64(time.Now().UnixMilli())
		before, asked := cpuOf(t, pid), time.Now()
		var made struct {
			Asset words.Asset
			Task  struct{ ID string }
		}
		w.Must("POST", "/api/clip", map[string]any{"playbackId": stream.PlaybackID, "startTime": end - 1000*seconds, "endTime": end}, &made)
		for !ready(t, w, upload{Asset: made.Asset}) {
			time.Sleep(20 * time.Millisecond)
		}
		c := clipRun{measured: measured{wall: time.Since(asked)}}
		w.Completed(made.Task.ID)
		time.Sleep(time.Second) // what else it does for the clip counts too
		c.cpu = time.Duration((cpuOf(t, pid) - before - rate*time.Since(asked).Seconds()) * float64(time.Second))
		clips = append(clips, c)

		var asset words.Asset
		w.Must("GET", "/api/asset/"+made.Asset.ID, nil, &asset)
		file := filepath.Join(b.out, fmt.Sprintf("clip-%d.mp4", round))
		if err := os.WriteFile(file, harness.Fetch(t, asset.DownloadURL), 0o600); err != nil {
			t.Fatal(err)
		}
		frames := b.probe(t, file).frames
		if frames < 30*seconds-1 || frames > 30*seconds+1 {
			t.Errorf("clip %d has %d frames, want %d", round, frames, 30*seconds)
		}
		source := b.liveFile(t, w.URL+"/hls/"+stream.PlaybackID+"/source/index.m3u8?ll=0")
		plain := []string{"ffmpeg", "-nostdin", "-v", "error", "-y", "-ss", "3.3", "-i", source, "-t", strconv.Itoa(seconds)}
		encode := b.timed(t, append(plain, "-c:v", "libx264", "-preset", "veryfast", "-b:v", "5M", "-maxrate", "8M", "-bufsize", "10M", "-f", "mp4", filepath.Join(b.out, "encoded.mp4")))
		keyCopy := b.timed(t, append(plain, "-c", "copy", "-f", "mp4", filepath.Join(b.out, "copied.mp4")))
		encodes, copies = append(encodes, encode), append(copies, keyCopy)
		fmt.Printf("# clip %2d: ready after %.2f s, CPU %.2f s, %d frames; all encoded: %.2f s, CPU %.2f s; key-frame copy %.2f s, CPU %.2f s; the stream alone uses %.1f %% of a core\n",
			round+1, c.wall.Seconds(), c.cpu.Seconds(), frames, encode.wall.Seconds(), encode.cpu.Seconds(), keyCopy.wall.Seconds(), keyCopy.cpu.Seconds(), 100*rate)
		w.Must("DELETE", "/api/asset/"+made.Asset.ID, nil, nil)
	}
	wall := func(c clipRun) float64 { return c.wall.Seconds() }
	cpu := func(c clipRun) float64 { return c.cpu.Seconds() }
	ratio := median(clips, cpu) / median(encodes, cpu)
	fmt.Printf("\nClips of %d s of a stream on air, 1080p, 30 frames a second, a key frame every 2 s; medians of %d.\n", seconds, len(clips))
	fmt.Printf("weir: ready after %.2f s (aim %.0f s), CPU %.2f s; all encoded: %.2f s, CPU %.2f s; key-frame copy: %.2f s, CPU %.2f s\nCPU ratio %.3f (at most %.3f)\n",
		median(clips, wall), clipAimReady, median(clips, cpu), median(encodes, wall), median(encodes, cpu), median(copies, wall), median(copies, cpu), ratio, clipMaxCPU)
	if ratio > clipMaxCPU {
		t.Errorf("a clip of a stream uses %.3f of the CPU of the whole re-encode, want at most %.3f", ratio, clipMaxCPU)
	}
}

// timed runs a command.
func (b *vodBench) timed(t *testing.T, args []string) (c clipRun) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	start := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	c.wall = time.Since(start)
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	c.cpu = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return c
}

// liveFile puts the segments of a media playlist into one file.
func (b *vodBench) liveFile(t *testing.T, playlist string) string {
	t.Helper()
	base, err := url.Parse(playlist)
	if err != nil {
		t.Fatal(err)
	}
	var media []byte
	add := func(uri string) {
		address, err := base.Parse(uri)
		if err != nil {
			t.Fatal(err)
		}
		media = append(media, harness.Fetch(t, address.String())...)
	}
	for line := range strings.Lines(string(harness.Fetch(t, playlist))) {
		line = strings.TrimSpace(line)
		if value, ok := strings.CutPrefix(line, "#EXT-X-MAP:"); ok && len(media) == 0 {
			add(harness.Attributes(value)["URI"])
		} else if line != "" && !strings.HasPrefix(line, "#") {
			add(line)
		}
	}
	file := filepath.Join(b.out, "live.mp4")
	if err := os.WriteFile(file, media, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
