package ffmpeg

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// VideoFormat describes the frames of a source, in the words of ffprobe. Fragments contain only a
// part of this, so ffmpeg could not find out itself.
type VideoFormat struct {
	Width, Height int // as coded

	Rotation   int  // degrees clockwise by which frames are rotated for display: 0, 90, 180, 270
	Mirrored   bool // left and right are swapped after the rotation
	Interlaced bool

	PixelFormat string
	Range       string // tv or pc; "" = by pixel format
	Primaries   string
	Transfer    string
	Matrix      string
}

func (v VideoFormat) hdr() bool { return v.Transfer == "smpte2084" || v.Transfer == "arib-std-b67" }

// wide reports whether the colours must be mapped to BT.709.
func (v VideoFormat) wide() bool {
	return v.hdr() || v.Primaries == "bt2020" || strings.HasPrefix(v.Matrix, "bt2020")
}

func (v VideoFormat) rgb() bool {
	prefixes := []string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8"}
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(v.PixelFormat, prefix) })
}

// colours returns the colour tags of all renditions. For a source without tags they are those that
// players would guess by its size. If each rendition had a guess of its own, small ones would differ
// in colour.
func (v VideoFormat) colours() (primaries, transfer, matrix string) {
	if v.wide() || v.rgb() {
		return "bt709", "bt709", "bt709"
	}
	guess := "smpte170m"
	if min(v.Width, v.Height) >= 720 || max(v.Width, v.Height) >= 1280 {
		guess = "bt709"
	}
	matrix = guess
	if v.Matrix != "gbr" {
		matrix = cmp.Or(v.Matrix, guess)
	}
	if matrix == "bt709" {
		guess = "bt709"
	}
	return cmp.Or(v.Primaries, guess), cmp.Or(v.Transfer, guess), matrix
}

// graph returns a filter graph: the common filters, then a branch for each output. The labels of
// the outputs are [v0], [v1] …
func graph(track int, common, branches []string) string {
	var graph strings.Builder
	fmt.Fprintf(&graph, "[0:%d]%s", track, strings.Join(append(common, fmt.Sprintf("split=%d", len(branches))), ","))
	for i := range branches {
		fmt.Fprintf(&graph, "[s%d]", i)
	}
	for i, branch := range branches {
		fmt.Fprintf(&graph, ";[s%d]%s[v%d]", i, branch, i)
	}
	return graph.String()
}

func (e Encode) graph() string {
	var common []string
	if e.Input == "" {
		common = append(common, fmt.Sprintf("setpts=PTS-%d", e.Timescale*int64(e.Lead/time.Second)))
	}
	if e.Video.Interlaced {
		// One output frame for each input frame. The filter halves the time base.
		common = append(common, "bwdif=mode=send_frame:deint=interlaced")
	}
	if e.Video.Interlaced || e.Input != "" {
		common = append(common, fmt.Sprintf("settb=1/%d", e.Timescale))
	}
	if !e.anyRate() {
		common = append(common, window(e.Start, e.End))
	}
	common = append(common, e.Video.upright()...)
	width, height := e.Video.Width, e.Video.Height
	if e.Video.Rotation == 90 || e.Video.Rotation == 270 {
		width, height = height, width
	}
	if e.Video.wide() {
		// Tone mapping is slow, so the frames are scaled down first.
		if largest := e.largest(); largest.Width < width && largest.Height < height {
			width, height = largest.Width, largest.Height
		}
		common = append(common, e.Video.toneMap(width, height)...)
	}
	var branches []string
	for _, r := range e.Renditions {
		branches = append(branches, strings.Join(e.branch(r, width, height), ","))
	}
	return graph(e.Track, common, branches)
}

func (e Encode) largest() Rendition {
	return slices.MaxFunc(e.Renditions, func(a, b Rendition) int { return cmp.Compare(a.Width*a.Height, b.Width*b.Height) })
}

// window keeps the frames shown at start or later and before end; 0 = up to the last.
func window(start, end int64) string {
	if end == 0 {
		return fmt.Sprintf("trim=start_pts=%d", start)
	}
	return fmt.Sprintf("trim=start_pts=%d:end_pts=%d", start, end)
}

// upright rotates and mirrors frames for display.
func (v VideoFormat) upright() []string {
	var filters []string
	switch v.Rotation {
	case 90:
		filters = append(filters, "transpose=clock")
	case 180:
		filters = append(filters, "hflip", "vflip")
	case 270:
		filters = append(filters, "transpose=cclock")
	}
	if v.Mirrored {
		filters = append(filters, "hflip")
	}
	return filters
}

// toneMap scales frames to the given size and maps their colours to BT.709.
func (v VideoFormat) toneMap(width, height int) []string {
	rng := "tv"
	if v.Range == "pc" {
		rng = "pc"
	}
	matrix := v.Matrix
	if !strings.HasPrefix(matrix, "bt2020") || matrix == "bt2020c" {
		matrix = "bt2020nc"
	}
	size := fmt.Sprintf("w=%d:h=%d:f=bicubic", width, height)
	if !v.hdr() {
		return []string{
			fmt.Sprintf("zscale=%s:pin=bt2020:tin=bt709:min=%s:rin=%s:p=bt709:t=bt709:m=bt709:r=tv", size, matrix, rng),
			"format=yuv420p",
		}
	}
	return []string{
		fmt.Sprintf("zscale=%s:pin=bt2020:tin=%s:min=%s:rin=%s:p=bt2020:t=linear:m=gbr:r=pc:npl=100", size, v.Transfer, matrix, rng),
		"format=gbrpf32le", "zscale=p=bt709:t=linear:m=gbr:r=pc", "tonemap=tonemap=hable:desat=0",
		"zscale=p=bt709:t=bt709:m=bt709:r=tv", "format=yuv420p",
	}
}

// branch returns the filters of one rendition, whose input has the given size.
func (e Encode) branch(r Rendition, width, height int) []string {
	var filters []string
	switch {
	case r.Rate.Given():
		filters = append(filters, e.rateFilters(r.Rate.reduced())...)
	case e.anyRate():
		filters = append(filters, window(e.Start, e.End))
	}
	if width != r.Width || height != r.Height || e.Video.rgb() || e.Video.fullRange() {
		filters = append(filters, e.scale(r))
	}
	primaries, transfer, matrix := e.Video.colours()
	return append(filters, "format=yuv420p", "setsar=1",
		fmt.Sprintf("setparams=range=tv:color_primaries=%s:color_trc=%s:colorspace=%s", primaries, transfer, matrix))
}

func (v VideoFormat) fullRange() bool {
	return v.Range == "pc" || strings.HasPrefix(v.PixelFormat, "yuvj")
}

// scale: averaging (area) takes a third of the time where two pixels become one, but scaling is only
// 2 % of the whole, and the result is 0.003 of SSIM worse than with bicubic.
func (e Encode) scale(r Rendition) string {
	filter := fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic:out_range=tv", r.Width, r.Height)
	if e.Video.rgb() {
		filter += ":out_color_matrix=bt709"
	}
	return filter
}

// rateFilters change the frame rate. All chunks put their frames at multiples of 1/rate, counted
// from 0. To be exact, time is counted from a point before the window that is a whole number of
// frames and of ticks; the frames between that point and the window are dropped. The last frame is
// repeated so that the window is always full.
func (e Encode) rateFilters(rate Ratio) []string {
	period := rate.Num / gcd(rate.Num, e.Timescale*rate.Den) // frames
	periodTicks := period * e.Timescale * rate.Den / rate.Num
	origin := max(e.Start, 0) / periodTicks
	frame := func(t int64) int64 { // the first at or after t
		return (t*rate.Num + e.Timescale*rate.Den - 1) / (e.Timescale * rate.Den)
	}
	first := origin * period
	start, end := frame(e.Start)-first, int64(0)
	var filters []string
	if origin > 0 {
		filters = append(filters, fmt.Sprintf("setpts=PTS-%d", origin*periodTicks))
	}
	filters = append(filters, fmt.Sprintf("fps=fps=%s:start_time=0:round=near", rate))
	if e.End != 0 {
		end = frame(e.End) - first
		filters = append(filters, "tpad=stop=-1:stop_mode=clone")
	}
	filters = append(filters, window(start, end))
	if first > 0 {
		filters = append(filters, fmt.Sprintf("setpts=PTS+%d", first))
	}
	return filters
}
