package ffmpeg

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// LiveEncode plans the run of ffmpeg that makes the ladder of a live stream: the source is decoded
// once and encoded as every rung.
//
// The source is read from pipe:0 as fragmented MP4, one frame a fragment. Rung i goes to pipe:3+i in
// the same form. Rungs have the times and the key frames of the source. No frame waits for later
// ones: the delay is one frame.
type LiveEncode struct {
	Video     VideoFormat // of the source
	Rate      float64     // frames a second of the source, about
	Timescale int64       // ticks a second of all times
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

func (e LiveEncode) Args() []string {
	args := []string{"-threads", strconv.Itoa(threadsFor(e.decodeCost()))}
	args = append(args, InputOptions()...)
	// ffmpeg must not read ahead: the next frame comes later. (With the option nobuffer it would drop
	// the frames that it analyses before it starts.)
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

func (e LiveEncode) graph() string {
	var common []string
	if e.Video.Interlaced {
		// Only frames marked as interlaced, and one output frame for each input frame, so that key
		// frames stay where they are. The filter halves the time base.
		common = append(common, "bwdif=mode=send_frame:deint=interlaced", fmt.Sprintf("settb=1/%d", e.Timescale))
	}
	if e.Video.wide() {
		width, height := e.mapped()
		common = append(common, e.Video.toneMap(width, height)...)
	}
	primaries, transfer, matrix := e.Video.colours()
	var branches []string
	for _, r := range e.Rungs {
		var filters []string
		if r.Rate > 0 {
			// At most one frame in each period of the lower rate, and every key frame of the source,
			// because its segments start there. Times stay as they are.
			filters = append(filters, fmt.Sprintf(`select=isnan(prev_selected_t)+eq(key\,1)+gt(floor(t*%[1]s+0.01)\,floor(prev_selected_t*%[1]s+0.01))`, decimal(r.Rate)))
		}
		filters = append(filters, fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic:out_range=tv", r.Width, r.Height), "format=yuv420p", "setsar=1",
			fmt.Sprintf("setparams=range=tv:color_primaries=%s:color_trc=%s:colorspace=%s", primaries, transfer, matrix))
		branches = append(branches, strings.Join(filters, ","))
	}
	return graph(0, common, branches)
}

// mapped returns the size at which colours are mapped, which is slow: that of the largest rung.
func (e LiveEncode) mapped() (width, height int) {
	for _, r := range e.Rungs {
		if r.Width*r.Height > width*height {
			width, height = r.Width, r.Height
		}
	}
	return width, height
}

// x264Args: there is no lookahead and there are no B-frames (WebRTC has none anyway), so that no frame
// waits for later ones. Frames are not cut into slices, which browsers show badly. The buffer of a
// second keeps a rung near its bitrate.
func (r LiveRung) x264Args(e LiveEncode) []string {
	profile := "high"
	switch strings.ToLower(r.Profile) {
	case "h264baseline":
		profile = "baseline"
	case "h264main":
		profile = "main"
	}
	args := []string{"-c:v", "libx264", "-preset", r.Preset, "-profile:v", profile, "-bf", "0"}
	args = append(args, Rendition{Bitrate: r.Bitrate, Quality: r.Quality, Peak: r.Bitrate, Buffer: r.Bitrate}.rateArgs()...)
	rate := Ratio{int64(math.Round(r.FrameRate(e) * 1000)), 1000}.reduced()
	return append(args, "-x264-params",
		fmt.Sprintf("keyint=%s:min-keyint=1:scenecut=0:open-gop=0:rc-lookahead=0:sync-lookahead=0:mbtree=0:sliced-threads=0:fps=%d/%d", keyint(r.GOP), rate.Num, rate.Den))
}

// FrameRate returns the frames a second of the rung.
func (r LiveRung) FrameRate(e LiveEncode) float64 {
	if r.Rate > 0 {
		return min(r.Rate, e.Rate)
	}
	return e.Rate
}

// What a million pixels a second cost, in thousandths of a core. Measured with 1080p at 30 frames a
// second on a server of 2023. On a slower machine, a run falls behind, which its caller notices.
const (
	decodeCost = 4.0
	scaleCost  = 0.7 // of the source's pixels, for each rung

	deinterlaceCost = 2.0  // of the source's pixels
	toneMapCost     = 25.0 // of those of the largest rung
)

func encodeCost(preset string) float64 {
	return map[string]float64{PresetBest: 24.8, PresetFast: 14.1, PresetFastest: 6.2}[preset]
}

// Cost returns about how many thousandths of a core the run needs to keep up.
func (e LiveEncode) Cost() int {
	cost := e.decodeCost() + e.filterCost()
	for _, r := range e.Rungs {
		cost += e.rungCost(r)
	}
	return int(math.Ceil(cost))
}

func (e LiveEncode) filterCost() (cost float64) {
	if e.Video.Interlaced {
		cost += deinterlaceCost * e.source()
	}
	if e.Video.wide() {
		width, height := e.mapped()
		cost += toneMapCost * float64(width*height) / 1e6 * e.Rate
	}
	return cost
}

func (e LiveEncode) decodeCost() float64 { return decodeCost * e.source() }

func (e LiveEncode) rungCost(r LiveRung) float64 {
	return scaleCost*e.source() + encodeCost(r.Preset)*float64(r.Width*r.Height)/1e6*r.FrameRate(e)
}

// source returns the million pixels a second of the source.
func (e LiveEncode) source() float64 { return float64(e.Video.Width*e.Video.Height) / 1e6 * e.Rate }

// Pixels returns Command.Pixels of the run.
func (e LiveEncode) Pixels() int64 {
	pixels := int64(e.Video.Width) * int64(e.Video.Height)
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

// threadsFor returns how many threads a part of the run gets. With one it works in the thread that
// all parts share; each additional thread delays the output by a frame. So cheap parts get one, and
// the others as many as they need to keep up with some margin.
func threadsFor(cost float64) int {
	if cost < 100 {
		return 1
	}
	return min(2+int(cost/300), 8)
}

// ColourNames returns ffmpeg's names of the code points of ISO/IEC 23091-2 for colours; "" =
// unspecified.
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
