package ffmpeg

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Picture is what filters must know of a source's pictures, as ffprobe calls it.
// Fragments carry only part of it, so it is told and not found out.
type Picture struct {
	Width, Height int // as coded

	Rotation   int  // degrees clockwise by which it is turned to be shown: 0, 90, 180, 270
	Mirrored   bool // left and right are exchanged after turning
	Interlaced bool

	PixelFormat string
	Range       string // tv or pc; "" = by pixel format
	Primaries   string
	Transfer    string
	Matrix      string
}

// turned reports whether width and height change places.
func (p Picture) turned() bool { return p.Rotation == 90 || p.Rotation == 270 }

// hdr reports whether the picture needs tone mapping.
func (p Picture) hdr() bool { return p.Transfer == "smpte2084" || p.Transfer == "arib-std-b67" }

// wide reports whether the picture's colours lie outside what 8-bit players show
// right.
func (p Picture) wide() bool {
	return p.hdr() || p.Primaries == "bt2020" || strings.HasPrefix(p.Matrix, "bt2020")
}

func (p Picture) rgb() bool {
	for _, prefix := range []string{"rgb", "bgr", "gbr", "argb", "abgr", "0rgb", "0bgr", "pal8"} {
		if strings.HasPrefix(p.PixelFormat, prefix) {
			return true
		}
	}
	return false
}

// colours is how the pictures of all renditions are tagged. A source that does not
// say is taken for what players would guess by its size, and its renditions
// say so: guessed anew for each size, small rungs would differ in colour.
func (p Picture) colours() (primaries, transfer, matrix string) {
	known := func(tag string) bool {
		return tag != "" && tag != "unknown" && tag != "unspecified" && tag != "reserved"
	}
	if p.wide() || p.rgb() {
		return "bt709", "bt709", "bt709"
	}
	guess := "smpte170m"
	if min(p.Width, p.Height) >= 720 || max(p.Width, p.Height) >= 1280 {
		guess = "bt709"
	}
	primaries, transfer, matrix = guess, guess, guess
	if known(p.Matrix) && p.Matrix != "gbr" {
		matrix = p.Matrix
		if matrix == "bt709" {
			primaries, transfer = "bt709", "bt709"
		}
	}
	if known(p.Primaries) {
		primaries = p.Primaries
	}
	if known(p.Transfer) {
		transfer = p.Transfer
	}
	return primaries, transfer, matrix
}

// graph is the filter graph of all renditions: what they share once, then a branch
// each. Labels are [v0], [v1] …
func (e Encode) graph() string {
	var common []string
	if e.Input == "" {
		common = append(common, fmt.Sprintf("setpts=PTS-%d", e.Timescale*int64(e.Lead/time.Second)))
	}
	if e.Picture.Interlaced {
		// One frame each, so that counts stay; the filter halves the time base.
		common = append(common, "bwdif=mode=send_frame:deint=interlaced")
	}
	if e.Picture.Interlaced || e.Input != "" {
		common = append(common, fmt.Sprintf("settb=1/%d", e.Timescale))
	}
	if !e.anyRate() {
		common = append(common, window(e.Start, e.end()))
	}
	common = append(common, e.Picture.upright()...)
	width, height := e.Picture.Width, e.Picture.Height
	if e.Picture.turned() {
		width, height = height, width
	}
	if e.Picture.wide() {
		// Tone mapping is slow: not on more pixels than somebody wants.
		if largest := e.largest(); largest.Width < width && largest.Height < height {
			width, height = largest.Width, largest.Height
		}
		common = append(common, e.Picture.toneMap(width, height)...)
	}
	var graph strings.Builder
	fmt.Fprintf(&graph, "[0:%d]%s", e.Stream, strings.Join(append(common, fmt.Sprintf("split=%d", len(e.Renditions))), ","))
	for i := range e.Renditions {
		fmt.Fprintf(&graph, "[s%d]", i)
	}
	for i, r := range e.Renditions {
		fmt.Fprintf(&graph, ";[s%d]%s[v%d]", i, strings.Join(e.branch(r, width, height), ","), i)
	}
	return graph.String()
}

func (e Encode) largest() Rendition {
	return slices.MaxFunc(e.Renditions, func(a, b Rendition) int { return cmp.Compare(a.Width*a.Height, b.Width*b.Height) })
}

// window keeps the frames shown from start on and before end.
func window(start, end int64) string {
	if end == math.MaxInt64 {
		return fmt.Sprintf("trim=start_pts=%d", start)
	}
	return fmt.Sprintf("trim=start_pts=%d:end_pts=%d", start, end)
}

// upright turns and mirrors the picture.
func (p Picture) upright() []string {
	var filters []string
	switch p.Rotation {
	case 90:
		filters = append(filters, "transpose=clock")
	case 180:
		filters = append(filters, "hflip", "vflip")
	case 270:
		filters = append(filters, "transpose=cclock")
	}
	if p.Mirrored {
		filters = append(filters, "hflip")
	}
	return filters
}

// toneMap brings colours that only HDR screens show to BT.709 at the given size.
func (p Picture) toneMap(width, height int) []string {
	rng := "tv"
	if p.Range == "pc" {
		rng = "pc"
	}
	matrix := p.Matrix
	if !strings.HasPrefix(matrix, "bt2020") || matrix == "bt2020c" {
		matrix = "bt2020nc"
	}
	size := fmt.Sprintf("w=%d:h=%d:f=bicubic", width, height)
	if !p.hdr() {
		return []string{
			fmt.Sprintf("zscale=%s:pin=bt2020:tin=bt709:min=%s:rin=%s:p=bt709:t=bt709:m=bt709:r=tv", size, matrix, rng),
			"format=yuv420p",
		}
	}
	return []string{
		fmt.Sprintf("zscale=%s:pin=bt2020:tin=%s:min=%s:rin=%s:p=bt2020:t=linear:m=gbr:r=pc:npl=100", size, p.Transfer, matrix, rng),
		"format=gbrpf32le", "zscale=p=bt709:t=linear:m=gbr:r=pc", "tonemap=tonemap=hable:desat=0",
		"zscale=p=bt709:t=bt709:m=bt709:r=tv", "format=yuv420p",
	}
}

// branch is the part of the graph that belongs to one rendition; width and height
// are what it gets.
func (e Encode) branch(r Rendition, width, height int) []string {
	var filters []string
	switch {
	case r.Rate.given():
		filters = append(filters, e.rateFilters(r.Rate.reduced())...)
	case e.anyRate():
		filters = append(filters, window(e.Start, e.end()))
	}
	if width != r.Width || height != r.Height || e.Picture.rgb() || e.Picture.fullRange() {
		filters = append(filters, e.scale(r))
	}
	primaries, transfer, matrix := e.Picture.colours()
	return append(filters, "format=yuv420p", "setsar=1",
		fmt.Sprintf("setparams=range=tv:color_primaries=%s:color_trc=%s:colorspace=%s", primaries, transfer, matrix))
}

func (p Picture) fullRange() bool { return p.Range == "pc" || strings.HasPrefix(p.PixelFormat, "yuvj") }

// scale: averaging (area) would cost a third where two pixels become one, but that is
// 2 % of the whole, and its pictures are 0.003 of SSIM away from bicubic ones.
func (e Encode) scale(r Rendition) string {
	filter := fmt.Sprintf("scale=w=%d:h=%d:flags=bicubic:out_range=tv", r.Width, r.Height)
	if e.Picture.rgb() {
		filter += ":out_color_matrix=bt709"
	}
	return filter
}

// rateFilters change the frame rate. Frames are put on the grid of multiples of
// 1/rate from 0 on, whatever chunk they are in. To be exact about that, time is
// counted from a point before the window that is a whole number of frames and of
// ticks; the frames between that point and the window are cut again. The
// last frame is repeated so that the window is always full.
func (e Encode) rateFilters(rate Ratio) []string {
	period := rate.Num / gcd(rate.Num, e.Timescale*rate.Den) // frames
	periodTicks := period * e.Timescale * rate.Den / rate.Num
	origin := max(e.Start, 0) / periodTicks
	frame := func(t int64) int64 { // the first at or after t
		return (t*rate.Num + e.Timescale*rate.Den - 1) / (e.Timescale * rate.Den)
	}
	first := origin * period
	start, end := frame(e.Start)-first, int64(math.MaxInt64)
	if e.End != 0 {
		end = frame(e.End) - first
	}
	filters := []string{}
	if origin > 0 {
		filters = append(filters, fmt.Sprintf("setpts=PTS-%d", origin*periodTicks))
	}
	filters = append(filters, fmt.Sprintf("fps=fps=%s:start_time=0:round=near", rate))
	if e.End != 0 {
		filters = append(filters, "tpad=stop=-1:stop_mode=clone")
	}
	filters = append(filters, window(start, end))
	if first > 0 {
		filters = append(filters, fmt.Sprintf("setpts=PTS+%d", first))
	}
	return filters
}
