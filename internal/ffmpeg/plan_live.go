package ffmpeg

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// LiveEncode plans the run of ffmpeg that makes the ladder of a stream on air: what the
// encoder sends is decoded once and encoded as every rung.
//
// The source is read from pipe:0 as fragmented MP4, a frame each. Rung i goes to
// pipe:3+i in the same form. Times are those of the source in both, key frames stand on
// those of the source, and no frame is held back for the sake of a better picture: what
// goes in comes out a frame later.
type LiveEncode struct {
	Picture   Picture // of the source
	Rate      float64 // frames a second of the source, about
	Timescale int64   // ticks a second of all times
	Rungs     []LiveRung
}

// LiveRung is one output of a [LiveEncode].
type LiveRung struct {
	Width, Height int     // even, square pixels
	Rate          float64 // frames a second, at most; 0 = those of the source

	Profile string // of H.264, as the API names it; "" = high
	Preset  string // of x264
	GOP     int    // frames between key frames, at most; 0 = only those of the source

	Bitrate int     // bits a second
	Quality float64 // constant rate factor that is good enough; 0 = as good as Bitrate allows
}

// The presets of live encoding, the best first.
const (
	PresetBest    = "veryfast"
	PresetFast    = "superfast"
	PresetFastest = "ultrafast"
)

// Args returns the arguments of ffmpeg.
func (e LiveEncode) Args() []string {
	args := []string{"-threads", strconv.Itoa(threadsFor(e.decodeCost()))}
	args = append(args, InputOptions()...)
	// Nothing may be read ahead: the next frame comes when it is made. (The option nobuffer
	// would throw away what it looks at before it starts.)
	args = append(args, "-noautorotate", "-copyts", "-probesize", "32", "-analyzeduration", "0", "-f", "mp4", "-i", "pipe:0",
		"-filter_complex_threads", strconv.Itoa(threadsFor(e.filterCost())), "-filter_complex", e.graph())
	for i, r := range e.Rungs {
		args = append(args, "-map", fmt.Sprintf("[v%d]", i), "-threads", strconv.Itoa(threadsFor(e.rungCost(r))))
		args = append(args, r.x264Args(e)...)
		args = append(args, "-enc_time_base", fmt.Sprintf("1/%d", e.Timescale), "-fps_mode", "passthrough", "-force_key_frames", "source",
			"-video_track_timescale", strconv.FormatInt(e.Timescale, 10),
			"-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-flush_packets", "1",
			"-f", "mp4", "-movflags", "+delay_moov+default_base_moof+frag_discont+frag_every_frame", "-use_editlist", "0", "-write_btrt", "0",
			"-avoid_negative_ts", "disabled", fmt.Sprintf("pipe:%d", 3+i))
	}
	return args
}

// graph is the filter graph: what the rungs share once, then a branch for each.
func (e LiveEncode) graph() string {
	var common []string
	if e.Picture.Interlaced {
		// Only frames that say they are; one each, so that key frames stay where they are. The
		// filter halves the time base.
		common = append(common, "bwdif=mode=send_frame:deint=interlaced", fmt.Sprintf("settb=1/%d", e.Timescale))
	}
	if e.Picture.wide() {
		width, height := e.mapped()
		common = append(common, e.Picture.toneMap(width, height)...)
	}
	common = append(common, fmt.Sprintf("split=%d", len(e.Rungs)))
	primaries, transfer, matrix := e.Picture.colours()
	var graph strings.Builder
	fmt.Fprintf(&graph, "[0:0]%s", strings.Join(common, ","))
	for i := range e.Rungs {
		fmt.Fprintf(&graph, "[s%d]", i)
	}
	for i, r := range e.Rungs {
		var filters []string
		if r.Rate > 0 {
			// At most one frame in each tick of the slower clock, and every key frame of
			// the source, because its segments start there. Times stay as they are.
			filters = append(filters, fmt.Sprintf(`select=isnan(prev_selected_t)+eq(key\,1)+gt(floor(t*%[1]s+0.01)\,floor(prev_selected_t*%[1]s+0.01))`, decimal(r.Rate)))
		}
		filters = append(filters, fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic:out_range=tv", r.Width, r.Height), "format=yuv420p", "setsar=1",
			fmt.Sprintf("setparams=range=tv:color_primaries=%s:color_trc=%s:colorspace=%s", primaries, transfer, matrix))
		fmt.Fprintf(&graph, ";[s%d]%s[v%d]", i, strings.Join(filters, ","), i)
	}
	return graph.String()
}

// mapped is the size at which colours are mapped, which is slow: that of the largest rung.
func (e LiveEncode) mapped() (width, height int) {
	for _, r := range e.Rungs {
		if r.Width*r.Height > width*height {
			width, height = r.Width, r.Height
		}
	}
	return width, height
}

// x264Args: no frame waits for later ones (neither lookahead nor B-frames, which viewers
// over WebRTC could not be shown anyway), frames are not cut into slices, which browsers
// show badly, and the buffer of a second keeps a rung near its bitrate.
func (r LiveRung) x264Args(e LiveEncode) []string {
	profile := "high"
	switch strings.ToLower(r.Profile) {
	case "h264baseline":
		profile = "baseline"
	case "h264main":
		profile = "main"
	}
	args := []string{"-c:v", "libx264", "-preset", r.Preset, "-profile:v", profile, "-bf", "0"}
	if r.Quality > 0 {
		args = append(args, "-crf", decimal(r.Quality))
	} else {
		args = append(args, "-b:v", strconv.Itoa(r.Bitrate))
	}
	args = append(args, "-maxrate", strconv.Itoa(r.Bitrate), "-bufsize", strconv.Itoa(r.Bitrate))
	keyint := "infinite"
	if r.GOP > 0 {
		keyint = strconv.Itoa(r.GOP)
	}
	rate := Ratio{int64(math.Round(r.FrameRate(e) * 1000)), 1000}.reduced()
	return append(args, "-x264-params",
		fmt.Sprintf("keyint=%s:min-keyint=1:scenecut=0:open-gop=0:rc-lookahead=0:sync-lookahead=0:mbtree=0:sliced-threads=0:fps=%d/%d", keyint, rate.Num, rate.Den))
}

// FrameRate is how many frames a second the rung has.
func (r LiveRung) FrameRate(e LiveEncode) float64 {
	if r.Rate > 0 {
		return min(r.Rate, e.Rate)
	}
	return e.Rate
}

// What a million pixels a second cost, in thousandths of a core. Measured with 1080p at
// 30 frames a second on a server of 2023; a machine that is slower falls behind with
// what fits here, which whoever watches the run sees.
const (
	decodeCost = 4.0
	scaleCost  = 0.7 // of the source's pixels, for each rung

	deinterlaceCost = 2.0  // of the source's pixels
	toneMapCost     = 25.0 // of those of the largest rung
)

// encodeCost is by preset.
func encodeCost(preset string) float64 {
	switch preset {
	case PresetFastest:
		return 6.2
	case PresetFast:
		return 14.1
	}
	return 24.8
}

// Cost returns how many thousandths of a core the run needs to keep up, about.
func (e LiveEncode) Cost() int {
	cost := e.decodeCost() + e.filterCost()
	for _, r := range e.Rungs {
		cost += e.rungCost(r)
	}
	return int(math.Ceil(cost))
}

// filterCost is what is done to the picture before the rungs are made of it.
func (e LiveEncode) filterCost() (cost float64) {
	if e.Picture.Interlaced {
		cost += deinterlaceCost * e.source()
	}
	if e.Picture.wide() {
		width, height := e.mapped()
		cost += toneMapCost * float64(width*height) / 1e6 * e.Rate
	}
	return cost
}

func (e LiveEncode) decodeCost() float64 { return decodeCost * e.source() }

func (e LiveEncode) rungCost(r LiveRung) float64 {
	return scaleCost*e.source() + encodeCost(r.Preset)*float64(r.Width*r.Height)/1e6*r.FrameRate(e)
}

// source is how many million pixels a second come.
func (e LiveEncode) source() float64 { return float64(e.Picture.Width*e.Picture.Height) / 1e6 * e.Rate }

// Pixels is what the need of memory follows from.
func (e LiveEncode) Pixels() int64 {
	pixels := int64(e.Picture.Width) * int64(e.Picture.Height)
	for _, r := range e.Rungs {
		pixels += int64(r.Width) * int64(r.Height)
	}
	return pixels
}

// Threads returns how many threads the run has.
func (e LiveEncode) Threads() int {
	threads := threadsFor(e.filterCost()) + threadsFor(e.decodeCost())
	for _, r := range e.Rungs {
		threads += threadsFor(e.rungCost(r))
	}
	return threads
}

// threadsFor returns how many threads a part of the run gets. With one it works in the
// thread that all parts share; each more holds back a frame. So what is small stays
// there, and what is not gets as many as it takes to keep up with room to spare.
func threadsFor(cost float64) int {
	if cost < 100 {
		return 1
	}
	return min(2+int(cost/300), 8)
}

// ColourNames returns what ffmpeg calls the ways in which colours are coded, by the numbers
// that all codings share (ISO/IEC 23091-2); "" for those that say nothing.
func ColourNames(primaries, transfer, matrix int) (primariesName, transferName, matrixName string) {
	name := func(of []string, code int) string {
		if code < 0 || code >= len(of) {
			return ""
		}
		return of[code]
	}
	primariesName = name([]string{1: "bt709", 4: "bt470m", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "film", 9: "bt2020", 10: "smpte428", 11: "smpte431", 12: "smpte432"}, primaries)
	transferName = name([]string{
		1: "bt709", 4: "bt470m", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "linear", 9: "log100", 10: "log316", 11: "iec61966-2-4", 12: "bt1361e",
		13: "iec61966-2-1", 14: "bt2020-10", 15: "bt2020-12", 16: "smpte2084", 17: "smpte428", 18: "arib-std-b67",
	}, transfer)
	matrixName = name([]string{1: "bt709", 4: "fcc", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "ycgco", 9: "bt2020nc", 10: "bt2020c"}, matrix)
	return primariesName, transferName, matrixName
}
