package live

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
)

const (
	beatRate  = 15                     // pictures a second
	beatEvery = 2.0                    // seconds from one flash to the next
	beatPause = 300 * time.Millisecond // that is quiet before a beep
)

// beatSource is what ffmpeg makes flash and beep of. The first of them come after a
// second, in the middle between two key frames.
func beatSource(seconds int) []string {
	return []string{
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=640x360:rate=%d:duration=%d,lutyuv=y=val/2,drawbox=color=white:t=fill:enable='between(mod(n,%d),%d,%d)'",
			beatRate, seconds, 2*beatRate, beatRate, beatRate+1),
		"-f", "lavfi", "-i", fmt.Sprintf("aevalsrc='0.5*sin(2*PI*1000*t)*between(mod(t,2),1,1.1)':s=48000:d=%d", seconds),
	}
}

// beatClip is that as a film, with a key frame every two seconds and as many B-frames in
// a row as told; its name gives the container.
func beatClip(t *testing.T, name string, seconds, bFrames int) string {
	t.Helper()
	return harness.MakeClip(t, name, append(beatSource(seconds), "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-bf", strconv.Itoa(bFrames), "-b_strategy", "0",
		"-g", strconv.Itoa(2*beatRate), "-sc_threshold", "0", "-b:v", "500k", "-maxrate", "800k", "-bufsize", "800k", "-c:a", "aac", "-b:a", "96k")...)
}

// mark is how bright a picture is, or how loud a moment of audio, and when.
type mark struct {
	at    float64   // seconds
	level float64   // from 0 to 1
	seen  time.Time // when the player had decoded it; zero = not known
}

// beats are what a player has shown and let hear.
type beats struct{ pictures, audio []mark }

// onsets returns when a level rises from its lowest to its highest. Where there is no
// mark in the time before a rise, or it is not low for as long as quiet, it is not known
// when it was.
func onsets(marks []mark, before, quiet float64) (at []float64) {
	if len(marks) == 0 {
		return nil
	}
	lowest, highest := math.Inf(1), math.Inf(-1)
	for _, m := range marks {
		lowest, highest = min(lowest, m.level), max(highest, m.level)
	}
	if highest-lowest < 0.1 {
		return nil
	}
	half := lowest + (highest-lowest)/2
	low := math.Inf(1) // since when it is
	for i, m := range marks {
		switch {
		case m.level < half:
			low = min(low, m.at)
		case i > 0 && marks[i-1].level < half && m.at-marks[i-1].at <= before && m.at-low >= quiet:
			at = append(at, m.at)
			fallthrough
		default:
			low = math.Inf(1)
		}
	}
	return at
}

// offsets returns by how much each beep comes after its flash, in seconds.
func (b beats) offsets() []float64 {
	earlier := func(a, b mark) int { return cmpFloat(a.at, b.at) }
	slices.SortStableFunc(b.pictures, earlier)
	slices.SortStableFunc(b.audio, earlier)
	return pair(b.flashes(), onsets(b.audio, 0.05, beatPause.Seconds()))
}

func (b beats) flashes() []float64 { return onsets(b.pictures, 1.5/beatRate, beatPause.Seconds()) }

// pair returns by how much the nearest beep comes after each flash.
func pair(flashes, beeps []float64) (off []float64) {
	for _, flash := range flashes {
		nearest := math.Inf(1)
		for _, beep := range beeps {
			if math.Abs(beep-flash) < math.Abs(nearest) {
				nearest = beep - flash
			}
		}
		if math.Abs(nearest) < beatEvery/2 {
			off = append(off, nearest)
		}
	}
	return off
}

func cmpFloat(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// middle returns the median and the one that is furthest from zero.
func middle(off []float64) (median, worst time.Duration) {
	if len(off) == 0 {
		return 0, 0
	}
	sorted := slices.Sorted(slices.Values(off))
	seconds := func(s float64) time.Duration {
		return time.Duration(s * float64(time.Second)).Round(100 * time.Microsecond)
	}
	return seconds(sorted[len(sorted)/2]), seconds(slices.MaxFunc(sorted, func(a, b float64) int { return cmpFloat(math.Abs(a), math.Abs(b)) }))
}

// beatFilters let ffmpeg write down how bright each picture is and how loud each two
// milliseconds of audio, into two files or pipes.
func beatFilters(video, audio string) []string {
	return []string{
		"-map", "0:v:0?", "-vf", "scale=64:36:flags=area,signalstats,metadata=print:key=lavfi.signalstats.YAVG:direct=1:file='" + video + "'", "-fps_mode", "passthrough", "-f", "null", "-",
		"-map", "0:a:0?", "-af", "asetnsamples=n=96:p=0,astats=metadata=1:reset=1:measure_perchannel=none:measure_overall=Peak_level," +
			"ametadata=print:key=lavfi.astats.Overall.Peak_level:direct=1:file='" + audio + "'", "-f", "null", "-",
	}
}

// readMarks reads what they write, and tells of each mark.
func readMarks(from io.Reader, note func(mark)) {
	var m mark
	for lines := bufio.NewScanner(from); lines.Scan(); {
		line := lines.Text()
		if _, at, ok := strings.Cut(line, "pts_time:"); ok {
			m = mark{at: harness.Number(strings.TrimSpace(at)), seen: time.Now()}
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		level, err := strconv.ParseFloat(value, 64)
		switch {
		case err != nil:
			continue
		case strings.HasSuffix(name, "YAVG"):
			m.level = level / 255
		default: // decibels
			m.level = math.Pow(10, level/20)
		}
		note(m)
	}
}

// ffmpegBeats lets ffmpeg play something until its end or until ctx ends. note is told
// of each picture.
func ffmpegBeats(ctx context.Context, note func(mark), args ...string) (b beats, err error) {
	var pipes [2][2]*os.File
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return b, err
		}
	}
	command := append([]string{"-hide_banner", "-nostdin", "-v", "warning", "-copyts"}, args...)
	cmd := exec.CommandContext(ctx, "ffmpeg", append(command, beatFilters(`pipe\:3`, `pipe\:4`)...)...)
	cmd.ExtraFiles = []*os.File{pipes[0][1], pipes[1][1]}
	var said harness.LockedBuffer
	cmd.Stderr = &said
	err = cmd.Start()
	var reading sync.WaitGroup
	for i, to := range []*[]mark{&b.pictures, &b.audio} {
		_ = pipes[i][1].Close()
		reading.Go(func() {
			defer pipes[i][0].Close()
			readMarks(pipes[i][0], func(m mark) {
				*to = append(*to, m)
				if i == 0 {
					note(m)
				}
			})
		})
	}
	reading.Wait()
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil && ctx.Err() == nil {
		return b, fmt.Errorf("ffmpeg ended with %w: %s", err, &said)
	}
	return b, nil
}

// liveBeat sends flash and beep over RTMP and SRT, and looks whether ffmpeg gets them
// together. `make test-live-matrix` does so with every encoder and every player.
func liveBeat(t *testing.T) {
	w := harness.NewWeir(t)
	rtmp, srt := harness.FreeAddr(t), freeUDPAddr(t)
	w.Start("--rtmp", rtmp, "--srt", srt, "--session-timeout", "1s")
	const seconds = 8
	clip := beatClip(t, "beat.mkv", seconds, 2)
	overRTMP, overSRT := newStream(w, rtmp), newStream(w, "")
	encoders := []*encoder{
		overRTMP.send(clip),
		overSRT.encode("-re", "-i", clip, "-c", "copy", "-f", "mpegts", "srt://"+srt+"?linger=2&streamid="+overSRT.key),
	}
	var watching sync.WaitGroup
	for name, s := range map[string]*liveStream{"RTMP": overRTMP, "SRT": overSRT} {
		s.waitSegments(1)
		watching.Go(func() {
			b, err := ffmpegBeats(t.Context(), func(mark) {}, "-live_start_index", "0", "-i", s.url("index.m3u8"))
			off := b.offsets()
			median, worst := middle(off)
			if err != nil || len(off) != seconds/beatEvery || worst.Abs().Seconds() > harness.InStep {
				t.Errorf("over %s beeps come %v after their flashes, at worst %v, in %d pictures: %.3f, %v", name, median, worst, len(b.pictures), off, err)
			}
		})
	}
	watching.Wait()
	for _, e := range encoders {
		if err := e.wait(); err != nil {
			t.Error(err)
		}
	}
	w.Stop()
}
