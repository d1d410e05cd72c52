package ffmpeg

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"weir/internal/weir"
)

// Probe describes a file by its headers and first frames.
type Probe struct {
	Format   string        `json:"format"`   // for people: mp4, mov, or ffprobe's first name: matroska, mpegts …
	Demuxer  string        `json:"demuxer"`  // ffprobe's names: mov,mp4,m4a,3gp,3g2,mj2
	Duration time.Duration `json:"duration"` // as the file claims; 0 = it does not say
	Start    time.Duration `json:"start"`    // of the first packet; may be negative
	Size     int64         `json:"size"`     // bytes
	BitRate  int64         `json:"bitRate"`  // bits a second, of all together; 0 = not known

	Video  []Track `json:"video,omitempty"`    // the default one first
	Audio  []Track `json:"audio,omitempty"`    // the default one first
	Stills []Track `json:"pictures,omitempty"` // covers and thumbnails, which look like video
	Other  []Track `json:"other,omitempty"`    // subtitles, data, attachments, and what can't be decoded
}

// Track is one track of a file.
type Track struct {
	Index    int    `json:"index"`              // number in the file
	Kind     string `json:"kind"`               // video, audio, subtitle, data, attachment
	Codec    string `json:"codec"`              // ffprobe's name: h264, hevc, aac …; "" = unknown
	Tag      string `json:"tag,omitempty"`      // of the container: avc1, hvc1 …
	Profile  string `json:"profile,omitempty"`  // ffprobe's name: High, Main 10, LC …
	Level    int    `json:"level,omitempty"`    // as the codec counts
	Language string `json:"language,omitempty"` // as in the file; "" = unknown
	Title    string `json:"title,omitempty"`

	Default   bool `json:"default,omitempty"`
	Forced    bool `json:"forced,omitempty"`
	Deaf      bool `json:"deaf,omitempty"`      // text for viewers who do not hear
	Still     bool `json:"picture,omitempty"`   // a cover or a thumbnail
	Extradata bool `json:"extradata,omitempty"` // the container has the codec's parameters

	TimeBase      Ratio         `json:"timeBase"`           // seconds a tick of StartTicks and DurationTicks
	StartTicks    int64         `json:"startTicks"`         // may be negative
	DurationTicks int64         `json:"durationTicks"`      // 0 = the file does not say
	Start         time.Duration `json:"start"`              // of the first packet; may be negative
	Duration      time.Duration `json:"duration"`           // 0 = the file does not say
	BitRate       int64         `json:"bitRate,omitempty"`  // bits a second; 0 = the file does not say
	Frames        int64         `json:"frames,omitempty"`   // as the header claims, with hidden ones; not reliable
	BitDepth      int           `json:"bitDepth,omitempty"` // of a sample or a colour; 0 = not known

	// Of video.
	Width       int    `json:"width,omitempty"`    // as coded
	Height      int    `json:"height,omitempty"`   // as coded
	Sample      Ratio  `json:"sample,omitzero"`    // aspect ratio of a pixel; 1/1 when the file does not say
	Rotation    int    `json:"rotation,omitempty"` // degrees clockwise to rotate it for display: 0, 90, 180 or 270
	Mirrored    bool   `json:"mirrored,omitempty"` // left and right are swapped after the rotation
	PixelFormat string `json:"pixelFormat,omitempty"`
	Rate        Ratio  `json:"rate,omitzero"`        // frames a second, on average; not given = not known
	TopRate     Ratio  `json:"topRate,omitzero"`     // the lowest rate that has a slot for every frame, as ffprobe guesses it
	FieldOrder  string `json:"fieldOrder,omitempty"` // progressive, tt, bb, tb, bt; "" = not known
	Reorder     int    `json:"reorder,omitempty"`    // frames that are decoded before they are displayed (B-frames)
	Range       string `json:"range,omitempty"`      // tv or pc
	Primaries   string `json:"primaries,omitempty"`
	Transfer    string `json:"transfer,omitempty"`
	Matrix      string `json:"matrix,omitempty"`
	DolbyVision int    `json:"dolbyVision,omitempty"` // profile; 0 = none

	// Of audio.
	Channels     int    `json:"channels,omitempty"`
	Layout       string `json:"layout,omitempty"` // stereo, 5.1 …
	SampleRate   int    `json:"sampleRate,omitempty"`
	SampleFormat string `json:"sampleFormat,omitempty"`
}

// Interlaced reports whether a frame consists of two fields.
func (s Track) Interlaced() bool {
	return slices.Contains([]string{"tt", "bb", "tb", "bt"}, s.FieldOrder)
}

// Shown returns the size for display: upright and with square pixels.
func (s Track) Shown() (width, height int) {
	width, height = s.Width, s.Height
	if s.Sample.Num > s.Sample.Den && s.Sample.Den > 0 {
		width = int((int64(width)*s.Sample.Num + s.Sample.Den/2) / s.Sample.Den)
	} else if s.Sample.Num > 0 && s.Sample.Num < s.Sample.Den {
		height = int((int64(height)*s.Sample.Den + s.Sample.Num/2) / s.Sample.Num)
	}
	if s.Rotation == 90 || s.Rotation == 270 {
		width, height = height, width
	}
	return width, height
}

// VideoFormat returns what the planner needs.
func (s Track) VideoFormat() VideoFormat {
	return VideoFormat{
		Width: s.Width, Height: s.Height, Rotation: s.Rotation, Mirrored: s.Mirrored, Interlaced: s.Interlaced(),
		PixelFormat: s.PixelFormat, Range: s.Range, Primaries: s.Primaries, Transfer: s.Transfer, Matrix: s.Matrix,
	}
}

// VideoSpec returns the description of a source in the API.
func (p Probe) VideoSpec() weir.VideoSpec {
	spec := weir.VideoSpec{Format: p.Format, Duration: p.Duration.Seconds()}
	complete := true
	for _, s := range slices.Concat(p.Video, p.Audio) {
		t := weir.Track{
			Type: s.Kind, Codec: s.Codec, StartTime: s.Start.Seconds(), Duration: cmp.Or(s.Duration, p.Duration).Seconds(), Bitrate: float64(s.BitRate),
			PixelFormat: s.PixelFormat, Channels: s.Channels, SampleRate: s.SampleRate,
		}
		switch s.Kind {
		case kindVideo:
			t.Width, t.Height = s.Shown()
			t.FPS = s.Rate.Float()
		case kindAudio:
			t.BitDepth = s.BitDepth
		}
		spec.Tracks = append(spec.Tracks, t)
		spec.Bitrate += t.Bitrate
		complete = complete && s.BitRate > 0
	}
	if !complete { // many containers have only the total bitrate
		spec.Bitrate = float64(p.BitRate)
	}
	return spec
}

// probing has the bounds of a probe.
type probing struct {
	time   time.Duration
	cpu    time.Duration
	output int // bytes
}

// Files of people take tenths of a second.
func defaultProbing() probing {
	return probing{time: time.Minute, cpu: 20 * time.Second, output: 8 << 20}
}

// errTooMuch ends a probe that writes more than its bound.
var errTooMuch = errors.New("the output of ffprobe is too long")

// Probe describes a file. For an unusable file it returns an error of kind weir.Invalid.
func (e *Engine) Probe(ctx context.Context, path string) (Probe, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return Probe{}, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return Probe{}, fmt.Errorf("probe: %w", err)
	case !info.Mode().IsRegular():
		return Probe{}, fmt.Errorf("probe %s: not a regular file", path)
	case info.Size() == 0:
		return Probe{}, weir.Errorf(weir.Invalid, "%s: the file is empty", sentenceProbe)
	}
	limited, cancel := context.WithTimeout(ctx, e.probing.time)
	defer cancel()
	output := &bounded{limit: e.probing.output}
	args := []string{"-hide_banner", "-v", "error", "-probesize", "50000000", "-analyzeduration", "30000000"}
	args = append(args, InputOptions()...)
	memory := e.memoryLimit(defaultPixels, 1)
	err = e.execute(limited, process{
		program: e.ffprobe,
		args:    append(args, "-of", "json=compact=1", "-show_format", "-show_streams", "-i", "file:"+path),
		grant:   grant{Read: []string{path}, Memory: memory, CPU: e.probing.cpu},
		stdout:  output,
	})
	// A file that is beyond a bound stays so, however often it is probed: these errors are final.
	refuse := func(format string, args ...any) (Probe, error) {
		return Probe{}, weir.Wrap(weir.Invalid, err, "%s: "+format, append([]any{sentenceProbe}, args...)...)
	}
	switch {
	case ctx.Err() != nil:
		return Probe{}, context.Cause(ctx)
	case limited.Err() != nil:
		return refuse("analyzing the file takes longer than %v", e.probing.time)
	case errors.Is(err, errTooMuch):
		return refuse("the descriptions of the tracks and tags of the file have more than %d MB", e.probing.output>>20)
	case ReasonOf(err) == stalled:
		return refuse("analyzing the file takes more than %v of CPU time", e.probing.cpu)
	case ReasonOf(err) == OutOfMemory:
		return refuse("analyzing the file takes more than %d MB of memory", memory/1e6)
	case err != nil:
		return Probe{}, err
	}
	p, err := parseProbe(output.Bytes())
	if err != nil {
		return Probe{}, err
	}
	p.Size = info.Size()
	if p.BitRate == 0 && p.Duration > 0 {
		p.BitRate = int64(float64(p.Size) * 8 / p.Duration.Seconds())
	}
	return p, p.check()
}

// check returns an error that explains why a file can't be used.
func (p Probe) check() error {
	if len(p.Video) > 0 || len(p.Audio) > 0 {
		return nil
	}
	for _, s := range p.Other {
		if s.Kind == kindVideo || s.Kind == kindAudio {
			return weir.Errorf(weir.Invalid, "%s: the %s track of the file (codec %s) can't be decoded or has no data; %s",
				InvalidSource, s.Kind, cmp.Or(s.Codec, "unknown"), supported)
		}
	}
	if len(p.Stills) > 0 {
		return weir.Errorf(weir.Invalid, "%s: the file has only an image, no video and no audio", InvalidSource)
	}
	return weir.Errorf(weir.Invalid, "%s: the file has no video and no audio", InvalidSource)
}

type bounded struct {
	bytes.Buffer
	limit int
}

func (b *bounded) Write(data []byte) (int, error) {
	if b.Len()+len(data) > b.limit {
		return 0, errTooMuch
	}
	return b.Buffer.Write(data)
}
