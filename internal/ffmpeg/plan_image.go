package ffmpeg

import (
	"fmt"
	"strings"
	"time"
)

// Thumbnails plans one run of ffmpeg that makes small images of a source's key frames. pipe:0 is an
// init segment and fragments with only sync samples, with times plus Lead; each of them becomes a
// JPEG at pipe:3.
type Thumbnails struct {
	Lead          time.Duration // see Encode
	Video         VideoFormat
	Timescale     int64
	Width, Height int // of a thumbnail; see Fit

	// Sprites are sheets of Columns x Rows images of SpriteWidth x SpriteHeight, at pipe:4. Columns 0
	// is none.
	Columns, Rows             int
	SpriteWidth, SpriteHeight int

	// Poster is the number of the key frame that becomes a larger image, from 0, at the pipe after
	// the others. PosterWidth 0 is none.
	Poster                    int
	PosterWidth, PosterHeight int
}

func (t Thumbnails) Args() []string {
	common := append([]string{fmt.Sprintf("setpts=PTS-%d", t.Timescale*int64(t.Lead/time.Second))}, t.Video.upright()...)
	if t.Video.wide() {
		common = append(common, t.Video.toneMap(max(t.Width, t.PosterWidth), max(t.Height, t.PosterHeight))...)
	}
	branches := []string{t.jpeg(t.Width, t.Height)}
	if t.Columns > 0 {
		branches = append(branches, fmt.Sprintf("%s,tile=layout=%dx%d", t.jpeg(t.SpriteWidth, t.SpriteHeight), t.Columns, t.Rows))
	}
	if t.PosterWidth > 0 {
		branches = append(branches, fmt.Sprintf("select=eq(n\\,%d),%s", t.Poster, t.jpeg(t.PosterWidth, t.PosterHeight)))
	}
	args := append([]string{"-threads", "1"}, source("", "mp4")...)
	args = append(args, "-filter_complex_threads", "1", "-filter_complex", graph(0, common, branches))
	for i := range branches {
		args = append(append(args, "-map", fmt.Sprintf("[v%d]", i)), jpegs(3+i)...)
	}
	return args
}

// jpegs returns the options that write JPEGs to a pipe. The times of two key frames may be less apart than
// what ffmpeg takes for the frame rate, which mjpeg refuses.
func jpegs(pipe int) []string {
	return []string{
		"-threads", "1", "-c:v", "mjpeg", "-q:v", "4", "-fps_mode", "passthrough", "-enc_time_base", "1:90000",
		"-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-f", "image2pipe", fmt.Sprintf("pipe:%d", pipe),
	}
}

// jpeg returns the filters for images of one size; JPEG has full range.
func (t Thumbnails) jpeg(width, height int) string {
	filter := fmt.Sprintf("scale=w=%d:h=%d:flags=area:out_range=pc", width, height)
	if !t.Video.rgb() {
		_, _, matrix := t.Video.colours()
		filter = "setparams=colorspace=" + matrix + "," + filter
	}
	return filter + ":out_color_matrix=smpte170m,format=yuvj420p,setsar=1"
}

// Fit returns the largest even size up to the given maximum that has the aspect ratio of width x
// height and does not exceed it.
func Fit(width, height, maxWidth, maxHeight int) (int, int) {
	if width <= 0 || height <= 0 {
		return maxWidth, maxHeight
	}
	w, h := width, height
	if w > maxWidth {
		w, h = maxWidth, (height*maxWidth+width/2)/width
	}
	if h > maxHeight {
		w, h = (width*maxHeight+height/2)/height, maxHeight
	}
	return max(w&^1, 2), max(h&^1, 2)
}

// Poster plans one run of ffmpeg that makes an image of a key frame. pipe:0 is an init segment and a
// fragment with that frame, the JPEG is at pipe:3. Unlike for [Thumbnails], the source was not probed:
// ffmpeg takes the pixel format from the bitstream.
type Poster struct {
	Video               VideoFormat // of the source, without PixelFormat
	MaxWidth, MaxHeight int         // of the image
}

func (p Poster) Args() []string {
	fit := fmt.Sprintf("min(1,min(%d/(iw*sar),%d/ih))", p.MaxWidth, p.MaxHeight)
	filters := []string{
		fmt.Sprintf("scale=w='max(2,2*trunc(iw*sar*%[1]s/2))':h='max(2,2*trunc(ih*%[1]s/2))':flags=area:out_range=pc:out_color_matrix=smpte170m", fit),
		"format=yuvj420p", "setsar=1",
	}
	if _, _, matrix := p.Video.colours(); p.Video.wide() {
		width, height := Fit(p.Video.Width, p.Video.Height, p.MaxWidth, p.MaxHeight)
		filters = append(p.Video.toneMap(width, height), filters...)
	} else if matrix == "bt709" {
		// Large frames without colour tags are BT.709 too, which the filter does not know.
		filters = append([]string{"setparams=colorspace=bt709"}, filters...)
	}
	args := append([]string{"-threads", "1"}, source("", "mp4")...)
	args = append(args, "-map", "0:v:0", "-frames:v", "1", "-filter_threads", "1", "-vf", strings.Join(filters, ","))
	return append(args, jpegs(3)...)
}

// Pixels returns Command.Pixels of the run.
func (p Poster) Pixels() int64 {
	return int64(p.Video.Width)*int64(p.Video.Height) + int64(p.MaxWidth)*int64(p.MaxHeight)
}
