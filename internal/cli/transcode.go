package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/server"
	"weir/internal/vod"
	"weir/internal/weir"
)

// transcodeCmd is `weir transcode INPUT OUTDIR`.
type transcodeCmd struct {
	Input  string `arg:"" help:"File to read, or an http(s), s3+http(s), ipfs or ar URL."`
	OutDir string `arg:"" name:"outdir" help:"Folder to write to; made if it is not there."`

	Profile       []string `sep:"none" placeholder:"NAME[:BITRATE]" help:"A rendition, such as 720p:3M, 1280x720:2500k:hevc or 480p:1M:crf26; may be given several times. Default: a ladder that suits the source."`
	Outputs       []string `placeholder:"LIST" help:"What to write, of hls, mp4 and fmp4. Default: hls,mp4"`
	Segment       float64  `placeholder:"SECONDS" help:"Length of a segment to aim at, 2 to 20. Default: 6"`
	GOP           string   `name:"gop" placeholder:"SECONDS" help:"Distance of key frames, or intra for key frames only. Default: 2"`
	NoPassthrough bool     `help:"Encode also what could be copied from the source as it is."`
	C2PA          bool     `name:"c2pa" help:"Sign what is written, with --c2pa-key and --c2pa-cert. HLS has CMAF segments then."`
	Yes           bool     `help:"Overwrite files of the folder without a question."`
	JSON          bool     `name:"json" help:"Write one JSON object a line to standard output: progress, then the result or the error."`
}

// Help is what `weir transcode --help` shows below the usage.
func (transcodeCmd) Help() string {
	return `Makes HLS, MP4 or fragmented MP4 from a video, without a server and without a database.

Example:
  weir transcode film.mov out --profile 1080p:6M --profile 720p:3M --profile 360p:800k
  ffplay out/index.m3u8

A rendition is NAME[:BITRATE][:CODEC][:crfN]. NAME is a height (1080p, 720p, 480p, 360p …) or WxH; BITRATE has
the suffix k or M; CODEC is h264 (the default), hevc, vp9 or av1; crfN asks for constant quality with BITRATE as the cap.

If the folder is not empty, the command asks before it writes; --yes overwrites without a question.
Ctrl-C stops and removes what was begun. A command that was killed goes on where it was when it is given again.

Exit codes: 0 done, 1 it failed and may work later, 2 the request or the source is wrong, 130 interrupted.`
}

// Exit statuses of `weir transcode` beside 0 and 1.
const (
	exitInvalid     = 2
	exitInterrupted = 130
)

func (c transcodeCmd) Run(ctx context.Context, cfg *config.Config) error {
	out := newReporter(c.JSON, os.Stdout, os.Stderr)
	o, err := c.options(cfg)
	if err == nil {
		err = newConsent(c.Yes, c.JSON).folder(ctx, c.OutDir, workFolder)
	}
	begun := time.Now()
	var result weir.TranscodeOutput
	if err == nil {
		o.Progress, o.Warn = out.progress, out.warn
		result, err = c.transcode(ctx, o)
	}
	if err != nil {
		return out.fail(ctx, err)
	}
	return out.finish(result, c.OutDir, time.Since(begun))
}

// workFolder is the folder for unfinished files, in that of the outputs.
const workFolder = ".weir-work"

// transcode opens the folder for the outputs and runs the engine.
func (c transcodeCmd) transcode(ctx context.Context, o vod.RunOptions) (result weir.TranscodeOutput, err error) {
	before, statErr := os.Stat(c.OutDir)
	if statErr == nil && !before.IsDir() {
		return result, weir.Errorf(weir.Invalid, "%s: is a file; name a folder", c.OutDir)
	}
	if err := os.MkdirAll(c.OutDir, 0o777); err != nil {
		return result, weir.Errorf(weir.Invalid, "%s: can't be made: %s", c.OutDir, err.Error())
	}
	store, err := blob.NewUserDisk(c.OutDir)
	if err != nil {
		return result, err
	}
	o.Dest = blob.NewDest(store, (&url.URL{Scheme: "file", Path: filepath.ToSlash(filepath.Dir(o.Dir))}).String())
	result, err = vod.Run(ctx, o)
	err = errors.Join(err, store.Close())
	// The store's own folders, if they are empty.
	for _, folder := range []string{".weir/tmp", ".weir/upload", ".weir"} {
		_ = os.Remove(filepath.Join(c.OutDir, folder))
	}
	if err != nil && statErr != nil {
		_ = os.Remove(c.OutDir) // this run made it, and it is empty
	}
	return result, err
}

// options checks the command line and returns the engine's options.
func (c transcodeCmd) options(cfg *config.Config) (o vod.RunOptions, err error) {
	for _, text := range c.Profile {
		p, err := parseProfile(text)
		if err != nil {
			return o, err
		}
		p.GOP = c.GOP
		o.Request.Profiles = append(o.Request.Profiles, p)
	}
	if err := weir.CheckFileProfiles(o.Request.Profiles); err != nil {
		return o, err
	}
	if c.GOP != "" && len(c.Profile) == 0 {
		return o, weir.Errorf(weir.Invalid, "--gop: needs a --profile that it applies to")
	}
	if c.Segment != 0 && (c.Segment < 2 || c.Segment > 20) {
		return o, weir.Errorf(weir.Invalid, "--segment: %g is not between 2 and 20 seconds", c.Segment)
	}
	if o.Outputs, err = parseOutputs(c.Outputs); err != nil {
		return o, err
	}
	o.Request.SegmentSeconds = cmp.Or(c.Segment, 6)
	o.Request.EncodeAll = c.NoPassthrough
	cores := cmp.Or(cfg.Workers, runtime.NumCPU())
	o.Request.Encoders = vod.Encoders(cores)

	dir, err := filepath.Abs(c.OutDir)
	if err != nil {
		return o, err
	}
	o.Source, o.Dir, o.MaxDuration = c.Input, filepath.Join(dir, workFolder), cfg.MaxDuration
	// A person on this machine may read from all networks.
	everywhere := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	o.Fetcher = &blob.Fetcher{
		Guard: guard.New(everywhere), MaxSize: cfg.MaxUpload, MaxDuration: cfg.MaxDuration,
		Gateways: blob.Gateways{IPFS: cfg.IPFSGateways, Arweave: cfg.ArweaveGateways},
	}
	if c.C2PA {
		if cfg.C2PAKey == "" {
			return o, weir.Errorf(weir.Invalid, "--c2pa: needs --c2pa-key and --c2pa-cert")
		}
		if o.Signer, err = server.OpenSigner(cfg); err != nil {
			return o, err
		}
	}
	o.FFmpeg, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Mode(cfg.Sandbox), Cores: cores})
	return o, err
}

// parseOutputs parses the value of --outputs. All outputs have the same folder.
func parseOutputs(names []string) (o weir.TranscodeOutputs, err error) {
	if len(names) == 0 {
		names = []string{"hls", "mp4"}
	}
	here := &weir.PathParam{Path: "/"}
	for _, name := range names {
		switch name {
		case "hls":
			o.HLS = here
		case "mp4":
			o.MP4 = here
		case "fmp4":
			o.FMP4 = here
		default:
			return o, weir.Errorf(weir.Invalid, "--outputs: %q is not an output; use hls, mp4, fmp4", name)
		}
	}
	return o, nil
}

func parseProfile(text string) (weir.Profile, error) {
	p, err := weir.ParseProfile(text)
	if err != nil {
		err = weir.Errorf(weir.Invalid, "--profile %s: %s", text, err)
	}
	return p, err
}

// reporter prints the progress of a command, for a person or a program.
type reporter struct {
	json     bool
	terminal bool
	out, err io.Writer
	last     time.Time
	step     string
	// interrupted is the error after Ctrl-C.
	interrupted string
}

func newReporter(json bool, out, err *os.File) *reporter {
	return &reporter{json: json, terminal: isTerminal(err), out: out, err: err, interrupted: "interrupted; unfinished files are removed"}
}

// Intervals of progress on a terminal, and in lines.
const (
	redrawEvery = 200 * time.Millisecond
	lineEvery   = 5 * time.Second
)

// line is one line of --json.
type line struct {
	Event    string                `json:"event"` // progress, warning, result or error
	Step     string                `json:"step,omitempty"`
	Fraction *float64              `json:"fraction,omitempty"`
	FPS      float64               `json:"fps,omitempty"`
	Speed    float64               `json:"speed,omitempty"` // 2 = twice as fast as it plays
	ETA      float64               `json:"eta,omitempty"`   // seconds from now
	Kind     weir.Kind             `json:"kind,omitempty"`
	Message  string                `json:"message,omitempty"`
	Seconds  float64               `json:"seconds,omitempty"` // that it took
	Result   *weir.TranscodeOutput `json:"result,omitempty"`
}

// progress is called by the engine, one call at a time.
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

// write writes a line of --json: a line, or another type with an event.
func (r *reporter) write(l any) {
	data, _ := json.Marshal(l)
	_, _ = r.out.Write(append(data, '\n'))
}

func (r *reporter) warn(sentence string) {
	if r.json {
		r.write(line{Event: "warning", Message: sentence})
		return
	}
	if r.terminal {
		_, _ = fmt.Fprint(r.err, "\r\x1b[K")
	}
	_, _ = fmt.Fprintln(r.err, "warning:", sentence)
}

// endLine ends the line of the progress bar.
func (r *reporter) endLine() {
	if r.terminal && !r.json && r.step != "" {
		_, _ = fmt.Fprintln(r.err)
	}
	r.step = ""
}

// fail reports an error and returns it with its exit status.
func (r *reporter) fail(ctx context.Context, err error) error {
	r.endLine()
	e := &exitError{error: err, status: 1, shown: r.json}
	kind := weir.KindOf(err)
	switch {
	case ctx.Err() != nil:
		kind, e.status, e.error = "interrupted", exitInterrupted, errors.New(r.interrupted)
	case !weir.Retriable(err):
		e.status = exitInvalid
	}
	if r.json {
		r.write(line{Event: "error", Kind: kind, Message: e.Error()})
	}
	return e
}

func (r *reporter) finish(result weir.TranscodeOutput, dir string, took time.Duration) error {
	speed := result.InputVideo.Duration / max(took.Seconds(), 0.001)
	if r.json {
		r.write(line{Event: "result", Seconds: round1(took.Seconds()), Speed: round2(speed), Result: &result})
		return nil
	}
	if r.terminal {
		_, _ = fmt.Fprintln(r.err)
	}
	var text strings.Builder
	for _, x := range result.Renditions {
		size := "audio"
		if x.Width > 0 {
			size = fmt.Sprintf("%dx%d", x.Width, x.Height)
		}
		fmt.Fprintf(&text, "%-14s %-10s %6.0f kb/s  %9s  %s\n", x.Name, size, float64(x.Bitrate)/1000, shortSize(x.Size), x.Codec)
	}
	if result.HLS != nil {
		fmt.Fprintf(&text, "HLS   %s\n", filepath.Join(dir, result.HLS.Path))
	}
	for _, file := range result.MP4 {
		fmt.Fprintf(&text, "MP4   %s\n", filepath.Join(dir, file.Path))
	}
	if result.FMP4 != nil {
		fmt.Fprintf(&text, "fMP4  %s\nDASH  %s\n", filepath.Join(dir, result.FMP4.Path), filepath.Join(dir, result.FMP4.DASH))
	}
	length := time.Duration(result.InputVideo.Duration * float64(time.Second))
	fmt.Fprintf(&text, "%s of video in %.1f s, %.2fx\n", shortTime(length), took.Seconds(), speed)
	return show(r.out, "%s", text.String())
}

func round1(x float64) float64 { return math.Round(x*10) / 10 }
func round2(x float64) float64 { return math.Round(x*100) / 100 }

// shortSize returns a number of bytes like 12.3 MB.
func shortSize(bytes int64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if float64(bytes) >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(bytes)/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d B", bytes)
}

// shortTime returns a duration like 1:02:03 or 4:05.
func shortTime(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}
