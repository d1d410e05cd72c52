package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"weir/internal/vod"
	"weir/internal/weir"
)

// reporter tells a person or a program about the progress of a command.
type reporter struct {
	json     bool
	terminal bool
	out, err io.Writer
	last     time.Time
	step     string
}

func newReporter(json bool, out, err *os.File) *reporter {
	info, statErr := err.Stat()
	terminal := statErr == nil && info.Mode()&os.ModeCharDevice != 0
	return &reporter{json: json, terminal: terminal, out: out, err: err}
}

// Intervals of progress on a terminal, and in lines.
const (
	redrawEvery = 200 * time.Millisecond
	lineEvery   = 5 * time.Second
)

// line is one line of --json.
type line struct {
	Event    string                `json:"event"` // progress, result or error
	Step     string                `json:"step,omitempty"`
	Fraction *float64              `json:"fraction,omitempty"`
	FPS      float64               `json:"fps,omitempty"`
	Speed    float64               `json:"speed,omitempty"` // 2 = twice as fast as it plays
	ETA      float64               `json:"eta,omitempty"`   // seconds from now
	Kind     weir.Kind             `json:"kind,omitempty"`
	Message  string                `json:"message,omitempty"`
	Result   *weir.TranscodeOutput `json:"result,omitempty"`
}

// progress is called by the engine, never twice at once.
func (r *reporter) progress(p vod.Progress) {
	every := lineEvery
	if r.terminal && !r.json {
		every = redrawEvery
	}
	if p.Step == r.step && p.Fraction < 1 && time.Since(r.last) < every {
		return
	}
	r.last, r.step = time.Now(), p.Step
	fraction := math.Round(p.Fraction*1000) / 1000
	if r.json {
		r.write(line{
			Event: "progress", Step: p.Step, Fraction: &fraction, FPS: round1(p.FPS), Speed: round2(p.Speed), ETA: round1(p.ETA.Seconds()),
		})
		return
	}
	text := fmt.Sprintf("%5.1f %%  %-10s", fraction*100, p.Step)
	if p.Speed > 0 {
		text += fmt.Sprintf("  %6.2fx", p.Speed)
	}
	if p.ETA > 0 {
		text += "  " + shortTime(p.ETA) + " left"
	}
	if r.terminal {
		const width = 30
		filled := int(fraction * width)
		_, _ = fmt.Fprintf(r.err, "\r[%s%s] %s\x1b[K", strings.Repeat("#", filled), strings.Repeat("-", width-filled), text)
		return
	}
	_, _ = fmt.Fprintln(r.err, strings.TrimRight(text, " "))
}

func (r *reporter) write(l line) {
	data, _ := json.Marshal(l)
	_, _ = r.out.Write(append(data, '\n'))
}

// fail reports an error and returns it with its exit status.
func (r *reporter) fail(ctx context.Context, err error) error {
	if r.terminal && !r.json && r.step != "" {
		_, _ = fmt.Fprintln(r.err)
	}
	e := &exitError{error: err, status: 1, shown: r.json}
	kind := weir.KindOf(err)
	switch {
	case ctx.Err() != nil:
		kind, e.status, e.error = "interrupted", exitInterrupted, errors.New("interrupted; what was begun is removed")
	case !weir.Retriable(err):
		e.status = exitInvalid
	}
	if r.json {
		r.write(line{Event: "error", Kind: kind, Message: e.Error()})
	}
	return e
}

// finish reports what was made.
func (r *reporter) finish(result weir.TranscodeOutput, dir string) error {
	if r.json {
		r.write(line{Event: "result", Result: &result})
		return nil
	}
	if r.terminal {
		_, _ = fmt.Fprintln(r.err)
	}
	for _, x := range result.Renditions {
		size := "audio"
		if x.Width > 0 {
			size = fmt.Sprintf("%dx%d", x.Width, x.Height)
		}
		if err := show(r.out, "%-14s %-10s %6.0f kb/s  %s\n", x.Name, size, float64(x.Bitrate)/1000, x.Codec); err != nil {
			return err
		}
	}
	if result.HLS != nil {
		if err := show(r.out, "HLS   %s\n", filepath.Join(dir, result.HLS.Path)); err != nil {
			return err
		}
	}
	for _, file := range result.MP4 {
		if err := show(r.out, "MP4   %s\n", filepath.Join(dir, file.Path)); err != nil {
			return err
		}
	}
	if result.FMP4 != nil {
		return show(r.out, "fMP4  %s\nDASH  %s\n", filepath.Join(dir, result.FMP4.Path), filepath.Join(dir, result.FMP4.DASH))
	}
	return nil
}

func round1(x float64) float64 { return math.Round(x*10) / 10 }
func round2(x float64) float64 { return math.Round(x*100) / 100 }

// shortTime returns a duration like 1:02:03 or 4:05.
func shortTime(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
