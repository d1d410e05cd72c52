package ffmpeg

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// usualEffort is the CPU time that the picture to measure with takes where the costs of
	// live encoding were measured.
	usualEffort = 500 * time.Millisecond
	// measureTimes is how often it is encoded: the best time counts.
	measureTimes = 3
	// measureLimit is how long that may take on a machine that has a lot to do.
	measureLimit = time.Minute
	// The slowest and the fastest that a machine is believed to be.
	slowestSpeed, fastestSpeed = 0.1, 8.0
)

// measured is what the file of the speed says.
type measured struct {
	Machine string  `json:"machine"` // what was measured: of others it says nothing
	Speed   float64 `json:"speed"`
}

// Speed returns how fast a core of this machine encodes, against one that the costs of live
// encoding are reckoned in, if that was measured before.
func (e *Engine) Speed(ctx context.Context) (speed float64, known bool) {
	var m measured
	data, err := os.ReadFile(e.speedFile)
	if err != nil || json.Unmarshal(data, &m) != nil || m.Machine != e.machine(ctx) || m.Speed < slowestSpeed || m.Speed > fastestSpeed {
		return 1, false
	}
	return m.Speed, true
}

// Measure finds out how fast this machine is, if it was not before, with a short encode on one
// core that gives way to everything else, and lets the ledger know. Until then and if it can't
// be found out, it counts as one that is usual.
func (e *Engine) Measure(ctx context.Context) {
	if e.speedFile == "" {
		return
	}
	e.speedLock.Lock()
	defer e.speedLock.Unlock()
	if e.measured {
		return
	}
	speed, known := e.Speed(ctx)
	if !known {
		var err error
		if speed, err = e.measure(ctx); err == nil {
			err = e.keepSpeed(ctx, speed)
		}
		if ctx.Err() != nil {
			return // the next one may have the time
		}
		if err != nil {
			e.log.WarnContext(ctx, "the speed of this machine could not be measured or kept", "err", err)
		} else {
			e.log.InfoContext(ctx, "the speed of this machine was measured", "speed", speed)
		}
	}
	e.measured = true
	if speed > 0 {
		e.ledger.mu.Lock()
		e.ledger.speed = speed
		e.ledger.mu.Unlock()
	}
}

// measure encodes a picture that moves, as a rung of a ladder is encoded.
func (e *Engine) measure(ctx context.Context) (speed float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, measureLimit)
	defer cancel()
	rung := LiveRung{Width: 960, Height: 540, Preset: PresetBest, Bitrate: 2_000_000}
	plan := LiveEncode{Rate: 30, Rungs: []LiveRung{rung}}
	args := []string{
		"-hide_banner", "-nostdin", "-v", "error", "-progress", "pipe:4", "-f", "lavfi", "-i", "testsrc2=s=960x540:r=30:d=2",
		"-threads", "1", "-pix_fmt", "yuv420p",
	}
	args = append(append(args, rung.x264Args(plan)...), "-f", "h264", "pipe:3")
	// Whatever else runs makes it slower, never faster.
	least := measureLimit
	for range measureTimes {
		var used time.Duration
		err := e.execute(ctx, process{
			program: e.ffmpeg, args: args, grant: grant{Memory: memoryFor(960*540*2, 1), CPU: measureLimit, Nice: true},
			outputs: []io.Writer{io.Discard}, used: &used,
		})
		if err != nil {
			return 0, err
		}
		least = min(least, max(used, time.Millisecond))
	}
	return min(max(float64(usualEffort)/float64(least), slowestSpeed), fastestSpeed), nil
}

func (e *Engine) keepSpeed(ctx context.Context, speed float64) error {
	data, err := json.Marshal(measured{e.machine(ctx), speed})
	if err != nil {
		return err
	}
	// Another process may read it.
	file, err := os.CreateTemp(filepath.Dir(e.speedFile), ".speed")
	if err != nil {
		return err
	}
	_, err = file.Write(append(data, '\n'))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Rename(file.Name(), e.speedFile)
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}

// machine says what the speed is that of: another processor and another ffmpeg have another.
func (e *Engine) machine(ctx context.Context) string {
	processor := "unknown processor"
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	for line := range bytes.Lines(cpus) {
		if name, value, ok := strings.Cut(string(line), ":"); ok && strings.TrimSpace(name) == "model name" {
			processor = strings.TrimSpace(value)
			break
		}
	}
	version := "unknown"
	if c, err := e.Capabilities(ctx); err == nil {
		version = c.Version
	}
	return fmt.Sprintf("%s, ffmpeg %s", processor, version)
}
