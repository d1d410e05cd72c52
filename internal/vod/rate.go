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
// with the one that the source's own size suggests. What those chunks spent more or
// less than the continuous encode would have is made up by the rest.
//
// The first chunk is told the bitrate, as the continuous encode is, and so is a chunk
// of which too little is known to dare a quality; x264 then says which quality it
// ended up with.
//
// Measured on a minute of film at 1080p 6M, 720p 3M, 480p 1.6M and 360p 0.8M, 6 s chunks, two
// at a time, against one encode: bitrate +0.2, -1.7, -0.8 and +0.8 %, SSIM -0.0001 to +0.0005.
// That film was tuned on, and weir's GOPs were 3 s against 2.5 s; with 2 s SSIM was 0.0003 to
// 0.0006 lower. Hard cuts between flat and noise lost 0.0018, still slides 26 % of the bitrate.
// The same chunks told a bitrate lose 0.002 of SSIM, with 27 s chunks 0.0005.

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
		rate := Rate{Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: 2 * r.Bitrate}
		switch {
		case r.Quality > 0:
			rate = Rate{Quality: float64(r.Quality), Peak: r.Bitrate, Buffer: 2 * r.Bitrate}
		case r.Codec == ffmpeg.H264 && r.GOP > 0 && n > 0 && len(p.Weights) == len(p.Starts):
			var done []EncodeStats
			for _, chunk := range earlier {
				if i >= len(chunk.Renditions) {
					break
				}
				done = append(done, chunk.Renditions[i])
			}
			rate.Bitrate, rate.Quality = p.follow(r, n, done)
		}
		rates = append(rates, rate)
	}
	return rates
}

// follow returns the bitrate or the quality for chunk n of a rendition.
func (p *Plan) follow(r Rendition, n int, done []EncodeStats) (bitrate int, quality float64) {
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
			b, q := x.decide(k, done[:known], told)
			told = append(told, EncodeStats{Bitrate: b, Quality: q})
		}
	}
	return x.decide(n, done[:min(p.Needs(n), len(done))], told)
}

// Constants of the model, found with encodes of film, sport, grain, slides and hard cuts,
// and with the parts of those in other orders.
const (
	// How bits fall with the number of the quality: to a half in 6/steepness of it. Where
	// the source is so dense that it must be mostly noise, the quality decides whether
	// noise is kept at all.
	steepness      = 1.15
	steepnessNoise = 3.0
	densityOfNoise = 0.5 // bits of the source for a pixel
	// While x264 regulates, its quality swings, and where bits are that steep it spends as
	// much as with a steady quality that is so much worse.
	swing = 0.45

	// How the size of a rendition grows with that of the source, as a power.
	growth = 0.7
	// What a chunk counts against the one after it, when those not known are judged by
	// them.
	forget = 0.9

	// Half and half: the quality that the continuous encode would have there, and one
	// for all that is left, which looks better but knows less.
	evenness = 0.5
	// Better a little too much than too little: starting anew costs quality.
	generosity = 1.005
	// The most by which chunks are made larger or smaller to make up for others, and by
	// which their quality is changed.
	largest  = 2.0
	farthest = 4.0
	// The best and the worst quality that a chunk is told.
	best  = 1.0
	worst = 48.0

	// A chunk so many times as dense as all that is known is not guessed at.
	leap = 3.0

	stepSeconds = 0.5
)

// rateModel is x264's rate control for one rendition of a plan, as far as it matters for
// chunks.
type rateModel struct {
	bitrate, rate float64 // bits and frames a second
	scale         float64 // of rate factors; follows from the size of the picture
	offset        float64 // that macroblock trees add
	prior         float64 // complexity that it assumes before the first frame
	chunks        []stretchOfSource
}

// stretchOfSource is a chunk as it is in the source.
type stretchOfSource struct {
	seconds   float64
	weight    float64 // bits a second
	steepness float64
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
	pixels := float64(p.Source.Video.Stream.Width) * float64(p.Source.Video.Stream.Height)
	for _, chunk := range p.Chunks {
		s := stretchOfSource{seconds: float64(chunk.End-chunk.Start) / float64(p.Timescale), steepness: steepness}
		var bytes int64
		var frames int
		for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
			bytes, frames = bytes+p.Weights[n], frames+p.Frames[n]
		}
		s.weight = max(float64(bytes)*8/s.seconds, 1)
		if float64(bytes)*8 > densityOfNoise*pixels*float64(frames) {
			s.steepness = steepnessNoise
		}
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
// known; told has what all chunks before n were told.
func (x rateModel) decide(n int, known, told []EncodeStats) (bitrate int, quality float64) {
	if n == 0 {
		return int(x.bitrate), 0
	}
	sizes := x.sizes(known)
	spent, qualities := x.continuous(known, sizes)
	for k := 1; k < len(spent); k++ {
		spent[k] *= generosity
	}
	excess := 0.0
	for k := 1; k < n; k++ {
		switch {
		case k < len(known):
			excess += float64(known[k].Bytes)*8 - spent[k]
		case told[k].Quality > 0:
			excess += min(sizes[k]*math.Exp2(-x.chunks[k].steepness*(told[k].Quality-x.swing(k))/6), x.most(k)) - spent[k]
		default:
			excess += float64(told[k].Bitrate)*x.chunks[k].seconds - spent[k]
		}
	}
	rest := 0.0
	for k := n; k < len(x.chunks); k++ {
		rest += spent[k]
	}
	share := min(max(1-excess/rest, 1/largest), largest)
	even := x.even(n, sizes, rest*share)
	if x.daring(n, known) {
		quality = even*evenness + (1-evenness)*(qualities[n]-6/x.chunks[n].steepness*math.Log2(share))
		quality = min(max(quality, qualities[n]-farthest), qualities[n]+farthest) + x.swing(n)
		return 0, math.Round(min(max(quality, best), worst)*100) / 100
	}
	wanted := spent[n] * share / x.chunks[n].seconds
	return int(min(max(wanted, x.bitrate/5), x.bitrate*peakFactor*0.97)), 0
}

// even returns the quality with which the chunks from n on come to so many bits.
func (x rateModel) even(n int, sizes []float64, bits float64) float64 {
	low, high := 1.0, 51.0
	for range 30 {
		quality := (low + high) / 2
		total := 0.0
		for k := n; k < len(x.chunks); k++ {
			total += min(sizes[k]*math.Exp2(-x.chunks[k].steepness*quality/6), x.most(k))
		}
		if total > bits {
			low = quality
		} else {
			high = quality
		}
	}
	return low
}

// most is what the buffer lets chunk k spend.
func (x rateModel) most(k int) float64 {
	return x.bitrate * (peakFactor*x.chunks[k].seconds + 0.5*bufferSeconds)
}

// daring reports whether enough is known to tell chunk n a quality: not when more
// chunks before it are unknown than known, and not when it is unlike all that is
// known, or like one that the buffer held back, because how hard it is can't be told
// from that.
func (x rateModel) daring(n int, known []EncodeStats) bool {
	if n > 2*len(known) {
		return false
	}
	densest, like := 0.0, 0
	distance := func(k int) float64 { return math.Abs(math.Log(x.chunks[k].weight / x.chunks[n].weight)) }
	for k := range known {
		densest = max(densest, x.chunks[k].weight)
		if distance(k) <= distance(like) {
			like = k
		}
	}
	return x.chunks[n].weight <= leap*densest && !x.heldBack(like, known[like])
}

// heldBack reports whether the buffer kept a chunk from having the quality it was told.
func (x rateModel) heldBack(k int, s EncodeStats) bool {
	return s.Quality > 0 && float64(s.Bytes)*8 > 0.93*peakFactor*x.bitrate*x.chunks[k].seconds
}

// sizes returns, for each chunk, the bits that it would have at quality 0. For those
// that are not known it follows from the source, in the proportion that the others have.
func (x rateModel) sizes(known []EncodeStats) []float64 {
	sizes := make([]float64, len(x.chunks))
	var film, noise proportion
	for k := len(known) - 1; k >= 0; k-- {
		c, s := x.chunks[k], known[k]
		bits := max(float64(s.Bytes)*8, 1)
		quality := s.Quality - x.swing(k)
		if s.Quality == 0 {
			quality = x.meanQuality(k, s)
		}
		sizes[k] = bits * math.Exp2(c.steepness*quality/6)
		if x.heldBack(k, s) {
			sizes[k] *= 1.5 // it would have been larger
		}
		if c.noise() {
			noise.add(sizes[k] / c.hint())
		} else {
			film.add(sizes[k] / c.hint())
		}
	}
	// Of what kind there was none is taken to come to the peak at an ordinary quality.
	const ordinary = 25
	for k := len(known); k < len(x.chunks); k++ {
		c := x.chunks[k]
		like := film
		if c.noise() {
			like = noise
		}
		sizes[k] = like.mean() * c.hint()
		if like.weights == 0 {
			sizes[k] = peakFactor * x.bitrate * c.seconds * math.Exp2(c.steepness*ordinary/6)
		}
	}
	return sizes
}

// proportion is the mean of the proportions of chunks, the newest first.
type proportion struct{ logs, weights, weight float64 }

func (p *proportion) add(v float64) {
	p.weight = max(p.weight*forget, math.SmallestNonzeroFloat64)
	if p.weights == 0 {
		p.weight = 1
	}
	p.logs += p.weight * math.Log(v)
	p.weights += p.weight
}

func (p proportion) mean() float64 { return math.Exp(p.logs / max(p.weights, 1)) }

// hint is what a chunk should be in proportion to.
func (s stretchOfSource) hint() float64 { return s.seconds * math.Pow(s.weight, growth) }

func (s stretchOfSource) noise() bool { return s.steepness == steepnessNoise }

// swing is by how much the quality of a chunk may be worse than that of the continuous
// encode for the same bits.
func (x rateModel) swing(k int) float64 {
	if x.chunks[k].noise() {
		return swing
	}
	return 0
}

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
			bits := sizes[k] / steps * math.Exp2(-c.steepness*quality/6)
			// The less is in the buffer, the more x264 holds back; so will it in the chunk.
			if limit := max(2*fill/buffer, 0.05) * peakFactor * x.bitrate * length; bits > limit {
				quality += 6 / c.steepness * math.Log2(bits/limit)
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
