package ffmpeg

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	// referenceTime is the CPU time of the test video on the machine where the costs of live
	// encoding were measured.
	referenceTime = 500 * time.Millisecond
	measureRuns   = 3           // the fastest counts
	measureLimit  = time.Minute // for one run, on a busy machine
	// Speeds outside of these bounds are measured wrongly, and not used.
	minSpeed, maxSpeed = 0.1, 8.0
)

// measured is the content of the speed file.
type measured struct {
	Machine string  `json:"machine"` // see Engine.machine
	Speed   float64 `json:"speed"`
}

// Speed returns the speed of a core of this machine, relative to one of the machine where the costs
// of live encoding were measured, if it was measured before.
func (e *Engine) Speed(ctx context.Context) (speed float64, known bool) {
	var m measured
	data, err := os.ReadFile(e.speedFile)
	if err != nil || json.Unmarshal(data, &m) != nil || m.Machine != e.machine(ctx) || m.Speed < minSpeed || m.Speed > maxSpeed {
		return 1, false
	}
	return m.Speed, true
}

// Measure measures the speed of this machine, if it was not before, with a short encode on one core
// at the lowest priority, and gives it to the ledger. Until then and if it fails, the speed is 1.
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
			return // the next call tries again
		}
		if err != nil {
			e.log.WarnContext(ctx, "speed of this machine could not be measured or saved; live renditions are planned for a standard core", "err", err)
		} else {
			e.log.InfoContext(ctx, "speed of this machine measured", "speed", speed)
		}
	}
	e.measured = true
	if speed > 0 {
		e.ledger.mu.Lock()
		e.ledger.speed = speed
		e.ledger.mu.Unlock()
	}
}

// measure encodes a moving test pattern as a rung of a ladder.
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
	// Other processes can only make it slower.
	least := measureLimit
	for range measureRuns {
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
	return min(max(float64(referenceTime)/float64(least), minSpeed), maxSpeed), nil
}

func (e *Engine) keepSpeed(ctx context.Context, speed float64) error {
	data, err := json.Marshal(measured{e.machine(ctx), speed})
	if err != nil {
		return err
	}
	// Another process may read it at the same time.
	temp := e.speedFile + ".tmp"
	if err := os.WriteFile(temp, append(data, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temp, e.speedFile)
}

// machine returns what the speed depends on: the processor and the version of ffmpeg.
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
		version = c.version
	}
	return fmt.Sprintf("%s, ffmpeg %s", processor, version)
}
