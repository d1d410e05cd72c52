package ffmpeg

import (
	"fmt"
	"strings"
)

// Poster plans one run of ffmpeg that makes a picture of a key frame. pipe:0 is an init
// segment and a fragment with that frame, the JPEG is at pipe:3. Unlike for [Thumbnails],
// nobody has looked into the source before: what it says itself about its pixels counts.
type Poster struct {
	Picture             Picture // of the source, without PixelFormat
	MaxWidth, MaxHeight int     // of the picture
}

// Args returns the arguments of ffmpeg.
func (p Poster) Args() []string {
	fit := fmt.Sprintf("min(1,min(%d/(iw*sar),%d/ih))", p.MaxWidth, p.MaxHeight)
	filters := []string{
		fmt.Sprintf("scale=w='max(2,2*trunc(iw*sar*%[1]s/2))':h='max(2,2*trunc(ih*%[1]s/2))':flags=area:out_range=pc:out_color_matrix=smpte170m", fit),
		"format=yuvj420p", "setsar=1",
	}
	if _, _, matrix := p.Picture.colours(); p.Picture.wide() {
		width, height := Fit(p.Picture.Width, p.Picture.Height, p.MaxWidth, p.MaxHeight)
		filters = append(p.Picture.toneMap(width, height), filters...)
	} else if matrix == "bt709" {
		// Large pictures that do not say so are of this kind too, which the filter does not know.
		filters = append([]string{"setparams=colorspace=bt709"}, filters...)
	}
	args := append([]string{"-threads", "1"}, source("", "mp4")...)
	return append(args, "-map", "0:v:0", "-frames:v", "1", "-filter_threads", "1", "-vf", strings.Join(filters, ","), "-threads", "1", "-c:v", "mjpeg", "-q:v", "4",
		"-fps_mode", "passthrough", "-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-f", "image2pipe", "pipe:3")
}

// Pixels is what the need of memory follows from.
func (p Poster) Pixels() int64 {
	return int64(p.Picture.Width)*int64(p.Picture.Height) + int64(p.MaxWidth)*int64(p.MaxHeight)
}
