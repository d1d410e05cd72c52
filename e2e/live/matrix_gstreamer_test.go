//go:build soak

package live

import (
	"bufio"
	"context"
	"math"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// playGStreamer lets GStreamer play, as fast as it is shown. Its elements tell how bright
// each picture is and how loud each moment of audio, and when they are shown and heard;
// when there is nothing to show, it says that it waits.
func playGStreamer(t *testing.T, s *matrixStream, base string) (o outcome) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*playTime+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "gst-launch-1.0", "-m", "playbin3", "uri="+base+"/hls/"+s.playback+"/index.m3u8",
		"video-sink=videoconvert ! videoscale ! video/x-raw,format=I420,width=64,height=36 ! videoanalyse ! fakesink sync=true",
		"audio-sink=audioconvert ! level interval=4000000 ! fakesink sync=true")
	var said harness.LockedBuffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var b beats
	var waits time.Time // since when it does; zero = it does not
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.Contains(line, "GstVideoAnalyse"):
			if at, level := told(line, brightness); at >= 0 {
				b.pictures = append(b.pictures, mark{at: at, level: level})
				if o.first.IsZero() {
					o.first = time.Now()
				}
				o.played = time.Duration((at - b.pictures[0].at) * float64(time.Second))
			}
		case strings.Contains(line, "): level,"):
			if at, level := told(line, loudness); at >= 0 {
				b.audio = append(b.audio, mark{at: at, level: math.Pow(10, level/20)})
			}
		case strings.HasPrefix(line, "Buffering, setting pipeline to PAUSED"):
			waits = time.Now()
		case strings.HasPrefix(line, "Done buffering, setting pipeline to PLAYING") && !waits.IsZero():
			o.stalls = append(o.stalls, stall{at: waits, length: time.Since(waits)})
			waits = time.Time{}
		case strings.HasPrefix(line, "ERROR"):
			t.Errorf("GStreamer: %s", line)
		}
		if o.played >= playTime {
			cancel()
		}
	}
	if !waits.IsZero() {
		o.stalls = append(o.stalls, stall{at: waits, length: time.Since(waits)})
	}
	if err := cmd.Wait(); o.played < playTime {
		t.Errorf("GStreamer ended with %v: %s", err, &said)
	}
	o.offsets = b.offsets()
	return o
}

var (
	runningTime = regexp.MustCompile(`running-time=\(guint64\)(\d+)`)
	brightness  = regexp.MustCompile(`luma-average=\(double\)([-+.\de]+)`)
	loudness    = regexp.MustCompile(`peak=\(GValueArray\)<\s*([-+.\dinfe]+)`)
)

// told returns when an element of GStreamer saw something, and what; -1 = it does not
// tell.
func told(line string, value *regexp.Regexp) (at, level float64) {
	when, what := runningTime.FindStringSubmatch(line), value.FindStringSubmatch(line)
	if when == nil || what == nil {
		return -1, 0
	}
	level, err := strconv.ParseFloat(what[1], 64)
	if err != nil {
		return -1, 0
	}
	return harness.Number(when[1]) / 1e9, level
}
