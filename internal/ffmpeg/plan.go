package ffmpeg

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Codec is a video codec weir encodes to.
type Codec string

// The codecs of renditions.
const (
	H264 Codec = "h264"
	HEVC Codec = "hevc"
	VP9  Codec = "vp9"
	AV1  Codec = "av1"
)

// Ratio is an exact frame rate or time base. The zero Ratio means "not given".
type Ratio struct {
	Num int64 `json:"num"`
	Den int64 `json:"den"`
}

// Given reports whether r is not the zero Ratio.
func (r Ratio) Given() bool { return r.Num > 0 && r.Den > 0 }

// Float returns r as a number; 0 = not given.
func (r Ratio) Float() float64 {
	if !r.Given() {
		return 0
	}
	return float64(r.Num) / float64(r.Den)
}

func (r Ratio) String() string { return fmt.Sprintf("%d/%d", r.Num, r.Den) }

// reduced returns r in lowest terms.
func (r Ratio) reduced() Ratio {
	g := gcd(r.Num, r.Den)
	return Ratio{r.Num / g, r.Den / g}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return max(a, 1)
}

// Encode plans one run of ffmpeg: a window of the source's video is decoded once
// and encoded as every rendition. Rendition i goes to pipe:3+i as fragmented MP4 of
// one track, with the absolute times of the source, plus Lead.
type Encode struct {
	// Lead is added to all times in pipes, in both directions, in whole seconds. The times of
	// fragments can't be negative, and frames may be shown or decoded before the presentation time
	// 0.
	Lead time.Duration

	// Input is the source file. When it is "", the source is read from pipe:0: an init segment and
	// fragments that start with a sync sample at or before Start, with absolute times plus Lead and
	// no negative composition offsets, because one of them makes ffmpeg's demuxer shift all times.
	Input string
	Track int // index of the video track in Input

	Video     VideoFormat
	Timescale int64 // ticks a second of Start, End, Keys and the outputs

	// Start and End are the window: frames shown at Start or later and before End. End 0 is the end
	// of the source.
	Start, End int64

	// Tick is the time base of the encoders: the time of every source frame is a multiple of it.
	// For a constant rate it is 1/rate, else the greatest common divisor of all times. It must be
	// the same for all chunks of a source. Not given means 1/Timescale.
	Tick Ratio
	Rate Ratio // nominal frame rate; the same for all chunks of a source

	Threads    int // of the decoder, and of each encoder
	Renditions []Rendition
}

// Timing returns the Tick and the Rate of a source, by the times at which its frames are shown and the
// end of the last one.
func Timing(times []int64, end, timescale int64) (tick, rate Ratio) {
	var common int64
	even := true
	for i, t := range times {
		if t != 0 {
			common = gcd(common, max(t, -t))
		}
		even = even && (i < 2 || times[i]-times[i-1] == times[1]-times[0])
	}
	if common == 0 {
		common = max(end, 1) // one frame, at 0
	}
	tick = Ratio{Num: common, Den: timescale}
	length := end - times[0]
	switch {
	case even && len(times) > 1:
		rate = Ratio{Num: timescale, Den: times[1] - times[0]}
	case length > 0:
		// It is only for rate control; a thousandth is exact enough.
		rate = Ratio{Num: max(int64(len(times))*timescale*1000/length, 1000), Den: 1000}
	}
	return tick, rate
}

// Rendition is one output of an [Encode].
type Rendition struct {
	Codec         Codec
	Width, Height int   // even, upright, square pixels
	Rate          Ratio // frames a second; not given keeps every frame and its time

	// Keys are presentation times, in ticks of the Encode, at which a key frame is
	// forced: the first frame at or after each. The first frame always is one.
	Keys []int64
	// KeyEvery forces key frames at its multiples after the first frame, for a source of unknown
	// length. It excludes Keys.
	KeyEvery time.Duration
	GOP      int // largest distance of key frames, in frames; 1 = all intra, 0 = only Keys

	Profile string // of H.264, as the API names it: H264Main …; "" = high

	Bitrate int     // bits a second, mean; 0 with Quality
	Quality float64 // constant rate factor; 0 = by Bitrate
	Peak    int     // bits a second at which the buffer is filled; 0 = no limit
	Buffer  int     // bits
}

func (e Encode) Args() []string {
	threads := strconv.Itoa(max(e.Threads, 1))
	args := append([]string{"-threads", threads}, source(e.Input, "mp4")...)
	args = append(args, "-filter_complex_threads", "1", "-filter_complex", e.graph())
	for i, r := range e.Renditions {
		args = append(args, "-map", fmt.Sprintf("[v%d]", i), "-threads", threads)
		args = append(args, r.codecArgs(e)...)
		args = append(args, "-enc_time_base", e.tick(r).String(), "-fps_mode", "passthrough")
		args = append(args, r.keyArgs(e)...)
		args = append(args, "-video_track_timescale", strconv.FormatInt(e.timescale(r), 10))
		args = append(args, fragments(3+i, e.Lead)...)
	}
	return args
}

// source returns the arguments of the input. Times from a pipe stay as they are; those of a file
// start at 0, whatever its container says.
func source(input, format string) []string {
	args := append(InputOptions(), "-noautorotate")
	if input == "" {
		return append(args, "-copyts", "-f", format, "-i", "pipe:0")
	}
	return append(args, "-i", "file:"+input)
}

// fragments returns the options that write one track as fragmented MP4 with absolute times, in
// fragments of about a second to save memory. Without frag_discont every track would start at 0;
// edit lists would shift it; and the box of bitrates would differ between chunks.
func fragments(pipe int, lead time.Duration) []string {
	return []string{
		"-map_metadata", "-1", "-map_chapters", "-1", "-fflags", "+bitexact", "-flags", "+bitexact",
		"-f", "mp4", "-movflags", "+delay_moov+default_base_moof+frag_discont", "-use_editlist", "0", "-write_btrt", "0", "-frag_duration", "1000000",
		"-avoid_negative_ts", "disabled", "-output_ts_offset", seconds(lead),
		fmt.Sprintf("pipe:%d", pipe),
	}
}

// tick returns the time base of r's encoder.
func (e Encode) tick(r Rendition) Ratio {
	switch {
	case r.Rate.Given():
		return Ratio{r.Rate.Den, r.Rate.Num}.reduced()
	case e.Tick.Given():
		return e.Tick.reduced()
	}
	return Ratio{1, e.Timescale}
}

// timescale returns the timescale of r's track: the source's, or one in which the frames of another
// rate have whole durations.
func (e Encode) timescale(r Rendition) int64 {
	if !r.Rate.Given() {
		return e.Timescale
	}
	scale := r.Rate.reduced().Num
	for scale < 10_000 {
		scale *= 2
	}
	return scale
}

// rate returns the frame rate for r's encoder.
func (e Encode) rate(r Rendition) Ratio {
	switch {
	case r.Rate.Given():
		return r.Rate.reduced()
	case e.Rate.Given():
		return e.Rate.reduced()
	}
	return Ratio{30, 1}
}

// keyArgs forces key frames. Times are cut to microseconds, and ffmpeg rounds them to the encoder's
// time base: that gives the intended frame for every time base above a microsecond.
func (r Rendition) keyArgs(e Encode) []string {
	switch {
	case r.KeyEvery > 0:
		frame := float64(time.Second) * float64(e.rate(r).Den) / float64(e.rate(r).Num)
		early := min(frame/4, float64(r.KeyEvery)/4) / float64(time.Second)
		return []string{"-force_key_frames", fmt.Sprintf("expr:gte(t,n_forced*%s-%.6f)", seconds(r.KeyEvery), early)}
	case len(r.Keys) > 0:
		times := make([]string, 0, len(r.Keys))
		for _, key := range r.Keys {
			if key < e.Start {
				continue
			}
			micros := key/e.Timescale*1_000_000 + key%e.Timescale*1_000_000/e.Timescale
			times = append(times, strconv.FormatFloat(float64(micros)/1e6, 'f', -1, 64))
		}
		if len(times) > 0 {
			return []string{"-force_key_frames", strings.Join(times, ",")}
		}
	}
	return nil
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// anyRate reports whether a rendition has a frame rate of its own.
func (e Encode) anyRate() bool {
	return slices.ContainsFunc(e.Renditions, func(r Rendition) bool { return r.Rate.Given() })
}
