package ffmpeg

import (
	"fmt"
	"strconv"
	"time"
)

// Edge plans one run of ffmpeg that encodes a few frames of a video so that they can be played before or
// after other frames of it, which are copied: with the same size, pixels, colours, profile, level and times.
// The frames come from pipe:0 like those of an [Encode], and go to pipe:3.
type Edge struct {
	Lead      time.Duration // see Encode
	Codec     Codec         // H264 or HEVC
	Pixels    string        // the pixel format
	Timescale int64         // ticks a second of Start, End and the output

	Start, End int64 // the window: frames shown at Start or later and before End
	Tick, Rate Ratio // see Encode

	Profile string // ffmpeg's name: baseline, main, high, main10
	Level   int    // as the codec counts: 41 is 4.1 of H.264, 123 is 4.1 of HEVC
	SetID   uint32 // of the parameter sets; x265 ignores it
	Keys    int    // largest distance of key frames, in frames
	Threads int
}

// edgeQuality is a constant rate factor at which the edges do not differ visibly from the other frames.
const edgeQuality = "17"

func (e Edge) Args() []string {
	threads := strconv.Itoa(max(e.Threads, 1))
	encode := Encode{Lead: e.Lead, Timescale: e.Timescale, Tick: e.Tick, Rate: e.Rate}
	rate := encode.rate(Rendition{})
	filters := fmt.Sprintf("setpts=PTS-%d,%s,format=%s", e.Timescale*int64(e.Lead/time.Second), window(e.Start, e.End), e.Pixels)
	args := append([]string{"-threads", threads}, source("", "mp4")...)
	args = append(args, "-filter_complex_threads", "1", "-filter_complex", "[0:0]"+filters+"[v0]", "-map", "[v0]", "-threads", threads)
	if e.Codec == HEVC {
		// Entry points of slices (wpp) count bytes, so such slices could not get another set of parameters.
		args = append(args, "-c:v", "libx265", "-preset", "veryfast", "-profile:v", e.Profile, "-crf", edgeQuality, "-tag:v", "hvc1",
			"-x265-params", fmt.Sprintf("bframes=0:keyint=%d:scenecut=0:open-gop=0:wpp=0:info=0:repeat-headers=0:level-idc=%d:fps=%d/%d:pools=%s:log-level=error",
				e.Keys, e.Level/3, rate.Num, rate.Den, threads))
	} else {
		args = append(args, "-c:v", "libx264", "-preset", "veryfast", "-profile:v", e.Profile, "-crf", edgeQuality, "-bf", "0",
			"-level:v", strconv.Itoa(e.Level),
			"-x264-params", fmt.Sprintf("sps-id=%d:keyint=%d:scenecut=0:open-gop=0:stitchable=1:fps=%d/%d", e.SetID, e.Keys, rate.Num, rate.Den))
	}
	args = append(args, "-enc_time_base", encode.tick(Rendition{}).String(), "-fps_mode", "passthrough",
		"-video_track_timescale", strconv.FormatInt(e.Timescale, 10))
	return append(args, fragments(3, e.Lead)...)
}
