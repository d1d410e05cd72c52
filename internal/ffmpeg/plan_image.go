package ffmpeg

import (
	"fmt"
	"strings"
	"time"
)

// Thumbnails plans one run of ffmpeg that makes small pictures of a source's key
// frames. pipe:0 is an init segment and fragments that have only sync samples, with
// times plus Lead; every one of them becomes a JPEG at pipe:3, one after
// the other.
type Thumbnails struct {
	Lead          time.Duration // see Encode
	Picture       Picture
	Timescale     int64
	Width, Height int // of a thumbnail; see Fit

	// Sprites are sheets of Columns x Rows pictures of SpriteWidth x SpriteHeight, at
	// pipe:4. Columns 0 is none.
	Columns, Rows             int
	SpriteWidth, SpriteHeight int

	// Poster is a larger picture of one key frame, counted from 0, at the pipe after
	// the others. PosterWidth 0 is none.
	Poster                    int
	PosterWidth, PosterHeight int
}

// Args returns the arguments of ffmpeg.
func (t Thumbnails) Args() []string {
	common := append([]string{fmt.Sprintf("setpts=PTS-%d", t.Timescale*int64(t.Lead/time.Second))}, t.Picture.upright()...)
	if t.Picture.wide() {
		common = append(common, t.Picture.toneMap(max(t.Width, t.PosterWidth), max(t.Height, t.PosterHeight))...)
	}
	branches := []string{t.jpeg(t.Width, t.Height)}
	if t.Columns > 0 {
		branches = append(branches, fmt.Sprintf("%s,tile=layout=%dx%d", t.jpeg(t.SpriteWidth, t.SpriteHeight), t.Columns, t.Rows))
	}
	if t.PosterWidth > 0 {
		branches = append(branches, fmt.Sprintf("select=eq(n\\,%d),%s", t.Poster, t.jpeg(t.PosterWidth, t.PosterHeight)))
	}
	var graph strings.Builder
	fmt.Fprintf(&graph, "[0:0]%s", strings.Join(append(common, fmt.Sprintf("split=%d", len(branches))), ","))
	for i := range branches {
		fmt.Fprintf(&graph, "[s%d]", i)
	}
	for i, branch := range branches {
		fmt.Fprintf(&graph, ";[s%d]%s[v%d]", i, branch, i)
	}
	args := append([]string{"-threads", "1"}, source("", "mp4")...)
	args = append(args, "-filter_complex_threads", "1", "-filter_complex", graph.String())
	for i := range branches {
		args = append(args, "-map", fmt.Sprintf("[v%d]", i), "-threads", "1", "-c:v", "mjpeg", "-q:v", "4", "-fps_mode", "passthrough",
			"-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-f", "image2pipe", fmt.Sprintf("pipe:%d", 3+i))
	}
	return args
}

// jpeg is the chain that makes pictures of one size; JPEG has full range.
func (t Thumbnails) jpeg(width, height int) string {
	filter := fmt.Sprintf("scale=w=%d:h=%d:flags=area:out_range=pc", width, height)
	if !t.Picture.rgb() {
		_, _, matrix := t.Picture.colours()
		filter = "setparams=colorspace=" + matrix + "," + filter
	}
	return filter + ":out_color_matrix=smpte170m,format=yuvj420p,setsar=1"
}

// Fit returns the largest even size not above the given one that has the shape of a
// picture shown at width x height, without enlarging it.
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
