package ffmpeg

import (
	"fmt"
	"strconv"
	"strings"
)

// codecArgs returns the encoder of r and its settings. The chunks of a rendition become one track,
// so nothing in their parameter sets may depend on the chunk.
func (r Rendition) codecArgs(e Encode) []string {
	switch r.Codec {
	case HEVC:
		return r.x265Args(e)
	case VP9:
		return r.vp9Args()
	case AV1:
		return r.av1Args(e)
	}
	return r.x264Args(e)
}

func (r Rendition) rateArgs() []string {
	var args []string
	if r.Quality > 0 {
		args = append(args, "-crf", decimal(r.Quality))
	} else {
		args = append(args, "-b:v", strconv.Itoa(r.Bitrate))
	}
	if r.Peak > 0 && r.Buffer > 0 {
		args = append(args, "-maxrate", strconv.Itoa(r.Peak), "-bufsize", strconv.Itoa(r.Buffer))
	}
	return args
}

func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// gop returns the distance of key frames for encoders that have no "infinite".
func (r Rendition) gop() int {
	if r.GOP > 0 {
		return r.GOP
	}
	return 1 << 20
}

// keyint returns x264's option for the largest distance of key frames; 0 = infinite.
func keyint(gop int) string {
	if gop > 0 {
		return strconv.Itoa(gop)
	}
	return "infinite"
}

// x264Args: stitchable makes headers independent of rate control; the frame rate is given because
// x264 would guess it from the chunk, and another guess changes the level. Scene cuts get key frames
// beside the forced ones: most of such a frame would be coded as intra blocks anyway.
func (r Rendition) x264Args(e Encode) []string {
	args := []string{"-c:v", "libx264", "-preset", "veryfast"}
	switch strings.ToLower(r.Profile) {
	case "h264baseline":
		args = append(args, "-profile:v", "baseline", "-bf", "0")
	case "h264constrainedhigh":
		args = append(args, "-profile:v", "high", "-bf", "0")
	case "h264main":
		args = append(args, "-profile:v", "main", "-bf", "3")
	default:
		args = append(args, "-profile:v", "high", "-bf", "3")
	}
	args = append(args, r.rateArgs()...)
	rate := e.rate(r)
	params := fmt.Sprintf("stitchable=1:keyint=%s:open-gop=0:fps=%d/%d", keyint(r.GOP), rate.Num, rate.Den)
	if r.Width*r.Height > smallFrame {
		params += ":partitions=p8x8,i8x8,i4x4"
	}
	return append(args, "-x264-params", params)
}

// smallFrame is the size in pixels up to which B-frames may have blocks of 8x8. In larger frames the
// search for them takes an eighth of the time for 0.0001 of SSIM, in small ones a hundredth for
// 0.0002.
const smallFrame = 640 * 360

func (r Rendition) x265Args(e Encode) []string {
	args := append([]string{"-c:v", "libx265", "-preset", "veryfast", "-tag:v", "hvc1", "-forced-idr", "1"}, r.rateArgs()...)
	rate := e.rate(r)
	params := fmt.Sprintf("keyint=%d:min-keyint=1:scenecut=0:open-gop=0:repeat-headers=0:info=0:fps=%d/%d:log-level=error",
		r.gop(), rate.Num, rate.Den)
	if e.Threads <= 1 {
		params += ":pools=none:frame-threads=1"
	} else {
		params += fmt.Sprintf(":pools=%d", e.Threads)
	}
	return append(args, "-x265-params", params)
}

// vp9Args: realtime speed 7 takes about as long as x264's veryfast; "good" takes six times that for
// 0.001 of SSIM. The constant quality below the bitrate keeps it from overshooting by half. Every
// frame gets one packet.
func (r Rendition) vp9Args() []string {
	quality, limit := 33.0, r.Bitrate
	if r.Quality > 0 {
		quality, limit = r.Quality, r.Peak
	}
	return []string{
		"-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "7", "-row-mt", "1", "-g", strconv.Itoa(r.gop()),
		"-crf", strconv.Itoa(int(quality)), "-b:v", strconv.Itoa(limit),
	}
}

// av1Args: SVT-AV1 forces key frames only in its constant quality mode, so the bitrate is the limit
// of a good quality. It accepts no frame with a side below 64; libaom encodes those.
func (r Rendition) av1Args(e Encode) []string {
	quality, limit := 28.0, r.Bitrate
	if r.Quality > 0 {
		quality, limit = r.Quality, r.Peak
	}
	crf := strconv.Itoa(int(quality))
	if r.Width < 64 || r.Height < 64 {
		return []string{
			"-c:v", "libaom-av1", "-usage", "realtime", "-cpu-used", "8", "-g", strconv.Itoa(r.gop()),
			"-crf", crf, "-b:v", strconv.Itoa(limit),
		}
	}
	args := []string{"-c:v", "libsvtav1", "-preset", "10", "-g", strconv.Itoa(r.gop()), "-crf", crf}
	if limit > 0 {
		args = append(args, "-maxrate", strconv.Itoa(limit), "-bufsize", strconv.Itoa(2*limit))
	}
	return append(args, "-svtav1-params", fmt.Sprintf("enable-force-key-frames=1:scd=0:lp=%d", max(e.Threads, 1)))
}
