package vod

import (
	"math"
	"slices"
	"strings"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
)

// The rate control of chunks.
//
// One continuous encode at a mean bitrate learns as it goes: x264 keeps the complexity
// of all it has seen and takes the quality at which the mean bitrate would have
// come out, corrected by what it has spent too much. An encoder that is started
// anew for a chunk has forgotten all that; told a bitrate it spends as much on an easy
// chunk as on a hard one and starts badly each time. So chunks are told a quality
// (CRF), and which one follows from playing x264's law over the whole source: with the
// complexity that the chunks done so far turned out to have, and for the others
// with the one that the effort for the source suggests (see Efforts), or else its size.
// What those chunks spent more or less than the continuous encode would have is made up
// by the rest.
//
// What a chunk turned out to be may be far from what was expected, as where film becomes
// noise. Then it was told the wrong quality, and is encoded again with the right one, which
// is known now: a tenth of the chunks of hard films, none of most.
//
// The first chunk is told the bitrate, as the continuous encode is, and so is a chunk
// of which too little is known to dare a quality; x264 then says which quality it
// ended up with.
//
// Measured on a minute of film against one encode: 1080p 6M has -0.1 % of the bitrate and
// 0.0005 less of SSIM, 720p 3M -0.1 % and the same, 480p 1.6M -0.4 % and 0.0001 less, 360p 0.8M
// +0.6 % and 0.0003 less. Half a minute that ends in noise has -0.9 % and
// 0.0006 less at 360p, but at 1080p, where all of the noise is left, +10.6 % and 0.0011 less.
// By its size instead of its effort the source is judged wrong by a factor of two: 360p of
// the film then lost 0.0025.

// ChunkStats is what the rate control needs to know of a chunk that is done.
type ChunkStats struct {
	Renditions []EncodeStats `json:"renditions"` // those that are encoded, in the order of the plan
}

// EncodeStats is what a rendition of a chunk came to.
type EncodeStats struct {
	Bytes   int64   `json:"bytes"`
	Frames  int     `json:"frames"`
	Quality float64 `json:"quality,omitempty"` // that it was told; 0 = a bitrate
	Bitrate int     `json:"bitrate,omitempty"` // that it was told; 0 = a quality
	Factor  float64 `json:"factor,omitempty"`  // told a bitrate: the quality that x264 ended up with; 0 = not known
}

// Stats returns what later chunks need to know of this one.
func (r ChunkResult) Stats() ChunkStats {
	var s ChunkStats
	for _, one := range r.Renditions {
		s.Renditions = append(s.Renditions, EncodeStats{
			Bytes: one.payload(), Frames: one.Frames, Quality: one.Quality, Bitrate: one.Bitrate, Factor: one.Factor,
		})
	}
	return s
}

// payload is what the frames of a stretch weigh, without the boxes around them.
func (r RenditionResult) payload() int64 {
	segments, err := r.Segments()
	if err != nil {
		return r.Bytes
	}
	var bytes int64
	for _, segment := range segments {
		for _, part := range segment.Parts {
			bytes += int64(cmaf.Bytes(part.Samples))
		}
	}
	return bytes
}

// weights returns the bytes that a track has in each segment of the grid.
func weights(index cmaf.TrackIndex, starts []int64) []int64 {
	bytes := make([]int64, len(starts))
	for _, segment := range index.Segments {
		for _, part := range segment.Parts {
			at := part.Start
			for _, s := range part.Samples {
				n, found := slices.BinarySearch(starts, at+int64(s.Offset))
				if !found {
					n = max(n-1, 0)
				}
				bytes[n] += int64(s.Size)
				at += int64(s.Duration)
			}
		}
	}
	return bytes
}

// What a rendition may spend for a while, against its bitrate: encoders fill a buffer
// of so many seconds at that many times the bitrate.
const (
	peakFactor    = 1.5
	bufferSeconds = 2.0
)

// Rates returns what the encoders are told for chunk n, given the chunks before it
// that Needs asks for.
func (p *Plan) Rates(n int, earlier []ChunkStats) []Rate {
	var rates []Rate
	for i, r := range p.Encoded() {
		rate := r.rate()
		switch {
		case r.Quality > 0:
			rate = Rate{Quality: float64(r.Quality), Peak: r.Bitrate, Buffer: 2 * r.Bitrate}
		case p.follows(r, n):
			rate.Bitrate, rate.Quality = p.follow(r, n, ofRendition(i, earlier), nil)
		}
		rates = append(rates, rate)
	}
	return rates
}

// Corrected returns what the encoders of chunk n should have been told, now that it is
// known what came of what they were: nothing for renditions that came near enough.
func (p *Plan) Corrected(n int, earlier []ChunkStats, got ChunkStats) map[int]Rate {
	corrected := map[int]Rate{}
	for i, r := range p.Encoded() {
		if r.Quality > 0 || !p.follows(r, n) || i >= len(got.Renditions) {
			continue
		}
		own := got.Renditions[i]
		_, quality := p.follow(r, n, ofRendition(i, earlier), &own)
		if quality == 0 {
			continue
		}
		x := newRateModel(*p, r)
		bits := min(bitsAt(quality, x.size(n, own)), x.most(n))
		if ratio := bits / max(float64(own.Bytes)*8, 1); ratio < 1/tolerance || ratio > tolerance && !x.heldBack(n, own) {
			rate := r.rate()
			rate.Bitrate, rate.Quality = 0, quality
			corrected[i] = rate
		}
	}
	return corrected
}

// rate is what an encoder is told that has all of the bitrate.
func (r Rendition) rate() Rate {
	return Rate{Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: 2 * r.Bitrate}
}

// follows reports whether what chunk n of a rendition is told follows from the chunks
// before it.
func (p *Plan) follows(r Rendition, n int) bool {
	return r.Codec == ffmpeg.H264 && r.GOP > 0 && n > 0 && len(p.Weights) == len(p.Starts)
}

// ofRendition is what is known of rendition i.
func ofRendition(i int, chunks []ChunkStats) (stats []EncodeStats) {
	for _, chunk := range chunks {
		if i >= len(chunk.Renditions) {
			break
		}
		stats = append(stats, chunk.Renditions[i])
	}
	return stats
}

// follow returns the bitrate or the quality for chunk n of a rendition; own is what came
// of it, if it was encoded before.
func (p *Plan) follow(r Rendition, n int, done []EncodeStats, own *EncodeStats) (bitrate int, quality float64) {
	x := newRateModel(*p, r)
	if len(done) == 0 || done[0].Factor == 0 {
		return r.Bitrate, 0
	}
	// The chunks that are not done but decided: what they were told follows from what
	// was done by then.
	told := make([]EncodeStats, 0, n)
	for k := range n {
		known := min(p.Needs(k), len(done))
		switch {
		case k < len(done):
			told = append(told, done[k])
		default:
			b, q := x.decide(k, done[:known], told, nil)
			told = append(told, EncodeStats{Bitrate: b, Quality: q})
		}
	}
	return x.decide(n, done[:min(p.Needs(n), len(done))], told, own)
}

// Constants of the model, found with encodes of film, sport, grain, noise, slides and hard
// cuts, and with the parts of those in other orders.
const (
	// How bits fall with the number of the quality: to a half in 6/steepness of it.
	steepness = 1.25

	// How the size of a rendition grows with the effort for the source or, if that is not
	// known, with its size, as a power, and how many times as large or small a chunk is
	// taken to be at most: where the source is far denser, it is noise, of which little is
	// left in small pictures.
	growth      = 0.45
	growthBytes = 0.65
	leap        = 3.0
	// What a chunk counts against the one after it, when those not known are judged by
	// them.
	forget = 0.5
	// How many times as large a chunk is taken to be that the buffer held back.
	longing = 1.5

	// How many times as large or small as it should have been a chunk may come out before
	// it is encoded again.
	tolerance = 1.3

	// The most by which chunks are made larger or smaller to make up for others.
	largest = 2.0
	// The best and the worst quality that a chunk is told.
	best  = 1.0
	worst = 48.0

	stepSeconds = 0.5
)

// rateModel is x264's rate control for one rendition of a plan, as far as it matters for
// chunks.
type rateModel struct {
	bitrate, rate float64 // bits and frames a second
	scale         float64 // of rate factors; follows from the size of the picture
	offset        float64 // that macroblock trees add
	prior         float64 // complexity that it assumes before the first frame
	growth        float64
	chunks        []stretchOfSource
}

// stretchOfSource is a chunk as it is in the source.
type stretchOfSource struct {
	seconds float64
	weight  float64 // bits a second
}

func newRateModel(p Plan, r Rendition) rateModel {
	blocks := float64((r.Width+15)/16) * float64((r.Height+15)/16)
	rate := p.Rate
	if r.Converts() {
		rate = r.Rate
	}
	perBlock := 120.0
	if profile := strings.ToLower(r.Profile); profile == "h264baseline" || profile == "h264constrainedhigh" {
		perBlock = 80 // they have no B-frames
	}
	x := rateModel{
		bitrate: float64(r.Bitrate), rate: float64(rate.Num) / float64(max(rate.Den, 1)),
		scale: math.Pow(blocks*perBlock, 0.4), offset: 0.4 * 13.5, prior: 0.01 * math.Pow(7e5, 0.6) * math.Sqrt(blocks),
	}
	if !(x.rate > 0) {
		x.rate = 30
	}
	if x.growth = growth; p.Source.Video == nil || p.Source.Video.Efforts == nil {
		x.growth = growthBytes
	}
	for _, chunk := range p.Chunks {
		s := stretchOfSource{seconds: float64(chunk.End-chunk.Start) / float64(p.Timescale)}
		var bytes int64
		for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
			bytes += p.Weights[n]
		}
		s.weight = max(float64(bytes)*8/s.seconds, 1)
		x.chunks = append(x.chunks, s)
	}
	return x
}

// step is the quantiser scale per unit of complexity at a quality, and quality the other
// way round: what x264 calls the inverse of the rate factor.
func (x rateModel) step(quality float64) float64 {
	return 0.85 * math.Exp2((quality+x.offset-12)/6) / x.scale
}

func (x rateModel) quality(step float64) float64 {
	return 6*math.Log2(step*x.scale/0.85) + 12 - x.offset
}

// decide returns what chunk n is told, when the results of the chunks in known are
// known; told has what all chunks before n were told, and own is what came of n itself, if
// it was encoded before.
func (x rateModel) decide(n int, known, told []EncodeStats, own *EncodeStats) (bitrate int, quality float64) {
	if n == 0 {
		return int(x.bitrate), 0
	}
	sizes := x.sizes(known)
	if own != nil {
		sizes[n] = x.size(n, *own)
	}
	spent, qualities := x.continuous(known, sizes)
	excess := 0.0
	for k := 1; k < n; k++ {
		switch {
		case k < len(known):
			excess += float64(known[k].Bytes)*8 - spent[k]
		case told[k].Quality > 0:
			excess += min(bitsAt(told[k].Quality, sizes[k]), x.most(k)) - spent[k]
		default:
			excess += float64(told[k].Bitrate)*x.chunks[k].seconds - spent[k]
		}
	}
	rest := 0.0
	for k := n; k < len(x.chunks); k++ {
		rest += spent[k]
	}
	share := min(max(1-excess/rest, 1/largest), largest)
	if own == nil && !x.daring(n, known) {
		wanted := spent[n] * share / x.chunks[n].seconds
		return int(min(max(wanted, x.bitrate/5), x.bitrate*peakFactor*0.97)), 0
	}
	quality = qualities[n] - 6/steepness*math.Log2(share)
	return 0, math.Round(min(max(quality, best), worst)*100) / 100
}

// bitsAt returns what a chunk comes to at a quality that has size bits at quality 0.
func bitsAt(quality, size float64) float64 { return size * math.Exp2(-steepness*quality/6) }

// most is what the buffer lets chunk k spend.
func (x rateModel) most(k int) float64 {
	return x.bitrate * (peakFactor*x.chunks[k].seconds + 0.5*bufferSeconds)
}

// daring reports whether enough is known to tell chunk n a quality: not when more
// chunks before it are unknown than known, and not when the one most like it was held back
// by the buffer, because how hard it is can't be told from that.
func (x rateModel) daring(n int, known []EncodeStats) bool {
	like := 0
	distance := func(k int) float64 { return math.Abs(math.Log(x.chunks[k].weight / x.chunks[n].weight)) }
	for k := range known {
		if distance(k) <= distance(like) {
			like = k
		}
	}
	return n <= 2*len(known) && !x.heldBack(like, known[like])
}

// heldBack reports whether the buffer kept a chunk from having the quality it was told.
func (x rateModel) heldBack(k int, s EncodeStats) bool {
	return s.Quality > 0 && float64(s.Bytes)*8 > 0.93*peakFactor*x.bitrate*x.chunks[k].seconds
}

// sizes returns, for each chunk, the bits that it would have at quality 0. For those
// that are not known it follows from the source, in the proportion that the others have.
func (x rateModel) sizes(known []EncodeStats) []float64 {
	sizes := make([]float64, len(x.chunks))
	var size, hint mean
	for k := len(known) - 1; k >= 0; k-- {
		sizes[k] = x.size(k, known[k])
		size.add(sizes[k] / x.chunks[k].seconds)
		hint.add(x.hint(k))
	}
	for k := len(known); k < len(x.chunks); k++ {
		c := x.chunks[k]
		sizes[k] = c.seconds * size.value() * min(max(x.hint(k)/hint.value(), 1/leap), leap)
	}
	return sizes
}

// size returns the bits that a chunk would have at quality 0, by what came of it.
func (x rateModel) size(k int, s EncodeStats) float64 {
	quality := s.Quality
	if quality == 0 {
		quality = x.meanQuality(k, s)
	}
	size := max(float64(s.Bytes)*8, 1) / bitsAt(quality, 1)
	if x.heldBack(k, s) {
		size *= longing
	}
	return size
}

// mean is the geometric mean of what chunks have, the newest first.
type mean struct{ logs, weights, weight float64 }

func (m *mean) add(v float64) {
	if m.weight == 0 {
		m.weight = 1
	}
	m.logs += m.weight * math.Log(v)
	m.weights += m.weight
	m.weight *= forget
}

func (m mean) value() float64 { return math.Exp(m.logs / m.weights) }

// hint is what the size of a second of a chunk should be in proportion to.
func (x rateModel) hint(k int) float64 { return math.Pow(x.chunks[k].weight, x.growth) }

// meanQuality is the quality with which a chunk that was told a bitrate was encoded, on
// average of its bits.
func (x rateModel) meanQuality(k int, s EncodeStats) float64 {
	const ordinary = 22
	if s.Factor == 0 {
		return ordinary
	}
	wanted := float64(s.Bitrate) * (x.chunks[k].seconds + 1/x.rate)
	step := (x.step(s.Factor)*wanted - x.prior) / max(float64(s.Bytes)*8, 1)
	if !(step > 0) {
		return s.Factor
	}
	return x.quality(step)
}

// continuous plays one encode over all chunks and returns what it spends on each, in
// bits, and with which quality. The first chunk was encoded just like that.
func (x rateModel) continuous(known []EncodeStats, sizes []float64) (spent, qualities []float64) {
	seconds := x.chunks[0].seconds
	wanted := x.bitrate * (seconds + 1/x.rate)
	complexity := x.step(known[0].Factor) * wanted
	total := float64(known[0].Bytes) * 8
	buffer := bufferSeconds * x.bitrate
	fill := buffer / 2
	spent, qualities = []float64{total}, []float64{known[0].Factor}
	for k := 1; k < len(x.chunks); k++ {
		c := x.chunks[k]
		steps := max(math.Round(min(c.seconds/stepSeconds, 12)), 1)
		length := c.seconds / steps
		var sum, weighted float64
		for range int(steps) {
			over := min(max(1+(total-x.bitrate*seconds)/(2*x.bitrate*max(1, math.Sqrt(seconds))), 0.5), 2)
			quality := max(x.quality(complexity/wanted*over), best)
			weighted += quality
			bits := bitsAt(quality, sizes[k]/steps)
			// The less is in the buffer, the more x264 holds back; so will it in the chunk.
			if limit := max(2*fill/buffer, 0.05) * peakFactor * x.bitrate * length; bits > limit {
				quality += 6 / steepness * math.Log2(bits/limit)
				bits = limit
			}
			fill = min(fill+peakFactor*x.bitrate*length-bits, buffer)
			complexity += bits * x.step(quality)
			wanted += x.bitrate * length
			total += bits
			seconds += length
			sum += bits
		}
		spent, qualities = append(spent, sum), append(qualities, weighted/steps)
	}
	return spent, qualities
}
