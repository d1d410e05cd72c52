package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"weir/internal/clip"
	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// clipCmd is `weir clip INPUT START END OUT.mp4`.
type clipCmd struct {
	Input string `arg:"" help:"File to cut."`
	Start string `arg:"" help:"First frame: seconds (12.5) or [H:]M:S (1:02:03.25)."`
	End   string `arg:"" help:"First frame after the clip: a time like START, +DURATION, or end."`
	Out   string `arg:"" help:"MP4 file to write."`
	Yes   bool   `help:"Overwrite the file without a question."`
	JSON  bool   `name:"json" help:"Write one JSON object a line to standard output: progress, then the result or the error."`
}

// Help is what `weir clip --help` shows below the usage.
func (clipCmd) Help() string {
	return `Cuts a clip whose first and last frame are exactly those asked for. Only the frames before its first key
frame, and sometimes those after its last one, are encoded; all others are copied as they are. A video in
another codec than H.264 and H.265 is encoded as a whole, as H.264.

Example:
  weir clip film.mp4 1:02.5 +30 clip.mp4

A time within a millisecond of that of a frame means that frame. If there is a file to write already, the
command asks; --yes overwrites it without a question.

Exit codes: 0 done, 1 it failed and may work later, 2 the request or the source is wrong, 130 interrupted.`
}

func (c clipCmd) Run(ctx context.Context, cfg *config.Config) error {
	out := newReporter(c.JSON, os.Stdout, os.Stderr)
	o, err := c.options(cfg)
	if err == nil {
		err = newConsent(c.Yes, c.JSON).file(ctx, c.Out)
	}
	begun := time.Now()
	var result clip.Result
	if err == nil {
		o.Progress = out.progress
		result, err = clip.CutFile(ctx, o)
	}
	if err != nil {
		return out.fail(ctx, err)
	}
	if result.Whole != "" {
		out.warn("the whole clip was encoded: " + result.Whole)
	}
	return out.finishClip(result, c.Out, time.Since(begun))
}

// options checks the command line.
func (c clipCmd) options(cfg *config.Config) (o clip.FileOptions, err error) {
	if o.Start, err = parseTime(c.Start); err != nil {
		return o, weir.Errorf(weir.Invalid, "START: %s", err)
	}
	after, relative := strings.CutPrefix(c.End, "+")
	if c.End != "end" {
		if o.End, err = parseTime(after); err != nil {
			return o, weir.Errorf(weir.Invalid, "END: %s", err)
		}
		if relative {
			o.End += o.Start
		}
		if o.End <= o.Start {
			return o, weir.Errorf(weir.Invalid, "END: %s is not after START, %s", c.End, c.Start)
		}
	}
	info, err := os.Stat(c.Input)
	switch {
	case err != nil:
		return o, weir.Errorf(weir.Invalid, "%s: %s", c.Input, errors.Unwrap(err))
	case info.IsDir():
		return o, weir.Errorf(weir.Invalid, "%s: is a folder; name a file", c.Input)
	}
	if to, err := os.Stat(c.Out); err == nil && os.SameFile(info, to) {
		return o, weir.Errorf(weir.Invalid, "%s: is the input; name another file to write", c.Out)
	}
	if o.Out, err = filepath.Abs(c.Out); err != nil {
		return o, err
	}
	o.Source, o.MaxDuration, o.Dir = c.Input, cfg.MaxDuration, o.Out+".weir-work"
	o.FFmpeg, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Mode(cfg.Sandbox), Cores: cmp.Or(cfg.Workers, runtime.NumCPU())})
	return o, err
}

// parseTime reads seconds or [H:]M:S.
func parseTime(text string) (time.Duration, error) {
	const max = 1e6 // hours of any unit; times beyond are mistakes
	var seconds float64
	for part := range strings.SplitSeq(text, ":") {
		n, err := strconv.ParseFloat(part, 64)
		if err != nil || n < 0 || n > max || math.IsNaN(n) || strings.Count(text, ":") > 2 {
			return 0, fmt.Errorf("%q is not a time; use seconds (12.5) or [H:]M:S (1:02:03.25)", text)
		}
		seconds = seconds*60 + n
	}
	return time.Duration(math.Round(seconds * float64(time.Second))), nil
}

// clipLine is the result of a clip in --json.
type clipLine struct {
	Event    string  `json:"event"` // result
	File     string  `json:"file"`
	Duration float64 `json:"duration"` // seconds
	Encoded  int     `json:"encoded"`  // frames
	Copied   int     `json:"copied"`   // frames
	Whole    string  `json:"whole,omitempty"`
}

func (r *reporter) finishClip(result clip.Result, path string, took time.Duration) error {
	if r.json {
		r.write(clipLine{"result", path, result.Recording.Presentation.Duration, result.Encoded, result.Copied, result.Whole})
		return nil
	}
	if r.terminal {
		_, _ = fmt.Fprintln(r.err)
	}
	var size int64
	if info, err := os.Stat(path); err == nil {
		size = info.Size()
	}
	length := time.Duration(result.Recording.Presentation.Duration * float64(time.Second))
	return show(r.out, "%s  %s  %s\nencoded %d frames, copied %d, %.1f s\n", path, shortTime(length), shortSize(size), result.Encoded, result.Copied, took.Seconds())
}
