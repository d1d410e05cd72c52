package vod

import (
	"math"
	"slices"
	"strings"
)

// rateParameters are the numbers of the model that were fitted.
type rateParameters struct {
	// How bits fall with the number of the quality: to a half in 6/steepness of it. Those of noise
	// fall faster, because all of it goes below the quantiser at once. Noise is recognised by the
	// effort for a pixel of the rendition in the source: none below grain, only noise from noise on.
	steepness, noiseSteepness float64
	grain, noise              float64

	// How the size of a rendition grows with the effort of the source or, if that is not known,
	// with its size, as a power; and the limit of the estimate as a multiple. Where the source has
	// far more bits it is noise, of which little is left in small frames.
	effortGrowth, sizeGrowth float64
	maxGrowth                float64
	// The weight of a chunk relative to the one after it, in estimates of unknown chunks.
	olderWeight float64
	// The minimum of the estimate of a chunk that was limited by the buffer, as a multiple of its
	// size.
	minLimitedEstimate float64

	// The ratio of the actual and the intended size of a chunk from which on it is encoded again.
	// It is smaller for a chunk that got a bitrate because a quality was not known, and larger in a
	// file of many segments, because the others make up for it.
	tolerance, bitrateTolerance, longFileTolerance float64
	// The bits by which a chunk may miss: a share of all, and of those that can make up for it.
	missShare, madeUpShare float64

	// The maximum factor by which chunks are made larger or smaller to make up for others.
	maxCorrection float64
	// The limits of the quality of a chunk, one in between, and the minimum share of the bitrate.
	bestQuality, worstQuality, middleQuality float64
	minBitrateShare                          float64
}

// fittedParameters returns the parameters that were found with encodes of film, sport, grain, noise,
// slides and hard cuts, and with the parts of those in other orders.
func fittedParameters() rateParameters {
	return rateParameters{
		steepness: 1.25, noiseSteepness: 2.25, grain: 0.05, noise: 0.3,
		effortGrowth: 0.45, sizeGrowth: 0.65, maxGrowth: 3, olderWeight: 0.5, minLimitedEstimate: 1.2,
		tolerance: 1.3, bitrateTolerance: 1.2, longFileTolerance: 1.5, missShare: 0.01, madeUpShare: 0.1,
		maxCorrection: 2, bestQuality: 1, worstQuality: 48, middleQuality: 22, minBitrateShare: 0.05,
	}
}

// A chunk is simulated in steps: at most that many, of at least that duration.
const (
	stepsOfChunk = 12
	stepSeconds  = 0.5
)

// rateModel simulates x264's rate control for one rendition of a plan.
type rateModel struct {
	rateParameters

	bitrate, rate float64 // bits and frames a second
	scale         float64 // of rate factors; depends on the size of the frames
	offset        float64 // that macroblock trees add
	prior         float64 // complexity that it assumes before the first frame
	growth        float64 // effortGrowth or sizeGrowth
	chunks        []stretchOfSource
}

type stretchOfSource struct {
	seconds   float64
	weight    float64 // bits a second
	steepness float64 // see rateParameters
}

func newRateModel(p Plan, r Rendition) rateModel {
	blocks := float64((r.Width+15)/16) * float64((r.Height+15)/16)
	rate := p.Rate
	if r.converts() {
		rate = r.Rate
	}
	perBlock := 120.0
	if profile := strings.ToLower(r.Profile); profile == "h264baseline" || profile == "h264constrainedhigh" {
		perBlock = 80 // they have no B-frames
	}
	x := rateModel{
		rateParameters: fittedParameters(),
		bitrate:        float64(r.Bitrate), rate: float64(rate.Num) / float64(max(rate.Den, 1)),
		scale: math.Pow(blocks*perBlock, 0.4), offset: 0.4 * 13.5, prior: 0.01 * math.Pow(7e5, 0.6) * math.Sqrt(blocks),
	}
	if !(x.rate > 0) {
		x.rate = 30
	}
	if x.growth = x.effortGrowth; p.Source.Video == nil || p.Source.Video.Efforts == nil {
		x.growth = x.sizeGrowth
	}
	for _, chunk := range p.Chunks {
		s := stretchOfSource{seconds: float64(chunk.End-chunk.Start) / float64(p.Timescale)}
		var bytes int64
		for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
			bytes += p.Weights[n]
		}
		s.weight = max(float64(bytes)*8/s.seconds, 1)
		s.steepness = x.steepness
		if v := p.Source.Video; v != nil && v.Efforts != nil {
			// Less noise is left in small frames.
			perPixel := s.weight / x.rate / float64(max(v.Width*v.Height, 1)) * float64(r.Width) / float64(max(v.Width, 1))
			noise := math.Log(perPixel/x.grain) / math.Log(x.noise/x.grain)
			s.steepness += (x.noiseSteepness - x.steepness) * min(max(noise, 0), 1)
		}
		x.chunks = append(x.chunks, s)
	}
	return x
}

// step returns the quantiser scale per unit of complexity at a quality, which is x264's inverse of
// the rate factor; quality is the inverse function.
func (x rateModel) step(quality float64) float64 {
	return 0.85 * math.Exp2((quality+x.offset-12)/6) / x.scale
}

func (x rateModel) quality(step float64) float64 {
	return 6*math.Log2(step*x.scale/0.85) + 12 - x.offset
}

// wanted is the intended size of a chunk, and its rate control.
type wanted struct {
	bits    float64
	maxMiss float64 // bits by which it may miss, so that the rest can make up for it
	bitrate int     // 0 = it gets a quality
	quality float64 // 0 = it gets a bitrate
}

// decide returns the intended size and the rate control of chunk n; known has the results of the
// first chunks, given the rate control of the chunks before n, and own is the result of n, if it was
// encoded before.
func (x rateModel) decide(n int, known []EncodeStats, given []wanted, own *EncodeStats) wanted {
	results := known
	if own != nil {
		results = slices.Concat(known, make([]EncodeStats, n-len(known)), []EncodeStats{*own})
	}
	curves := x.curves(results)
	spent, qualities := x.continuous(results, curves)
	excess := 0.0
	for k := 1; k < n; k++ {
		bits := 0.0
		switch {
		case k < len(known):
			bits = float64(known[k].Bytes) * 8
		case given[k].quality > 0:
			bits = min(curves[k].at(given[k].quality), x.limit(k))
		default:
			bits = float64(given[k].bitrate) * x.chunks[k].seconds
		}
		excess += bits - spent[k]
	}
	total, rest := 0.0, 0.0
	for k, bits := range spent {
		total += bits
		if k >= n {
			rest += bits
		}
	}
	share := min(max(1-excess/rest, 1/x.maxCorrection), x.maxCorrection)
	if own == nil && !x.daring(n, known) {
		limit := x.bitrate // above that, x264 does not log its quality
		if n == len(x.chunks)-1 {
			limit = x.peak() // the quality of the last chunk is not needed
		}
		return wanted{bitrate: x.mean(n, spent[n]*share, limit)}
	}
	quality := qualities[n] - 6/curves[n].steepness*math.Log2(share)
	quality = math.Round(min(max(quality, x.bestQuality), x.worstQuality)*100) / 100
	return wanted{
		bits: min(curves[n].at(quality), x.limit(n)), quality: quality,
		maxMiss: x.missShare*total + x.madeUpShare*(rest-spent[n]),
	}
}

// mean returns the bitrate with which chunk n gets that many bits.
func (x rateModel) mean(n int, bits, limit float64) int {
	return int(min(max(bits/x.chunks[n].seconds, x.minBitrateShare*x.bitrate), limit))
}

// peak returns the maximum of a mean bitrate.
func (x rateModel) peak() float64 { return 0.97 * peakFactor * x.bitrate }

// limit returns the maximum of bits of chunk k, by the buffer.
func (x rateModel) limit(k int) float64 {
	return x.bitrate * (peakFactor*x.chunks[k].seconds + 0.5*bufferSeconds)
}

// daring reports whether enough is known for a quality of chunk n: not when more chunks before it
// are unknown than known, and not when the most similar one was limited by the buffer, because its
// complexity is not known then.
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

// heldBack reports whether the buffer kept a chunk from having its given quality.
func (x rateModel) heldBack(k int, s EncodeStats) bool {
	return s.Quality > 0 && float64(s.Bytes)*8 > 0.93*peakFactor*x.bitrate*x.chunks[k].seconds
}

// curve gives the bits of a chunk as a function of its quality.
type curve struct {
	quality, bits float64 // a point of it
	steepness     float64
}

func (c curve) at(quality float64) float64 {
	return c.bits * math.Exp2(-c.steepness*(quality-c.quality)/6)
}

// curves returns the curve of each chunk. Chunks that are not known, or that the buffer limited,
// are estimated from the source, in proportion to the others; but limited ones have at least more
// than their size.
func (x rateModel) curves(known []EncodeStats) []curve {
	curves := make([]curve, len(x.chunks))
	sure := make([]bool, len(x.chunks))
	size, hint := mean{olderWeight: x.olderWeight}, mean{olderWeight: x.olderWeight}
	for k := len(known) - 1; k >= 0; k-- {
		if known[k].Bytes == 0 {
			continue
		}
		s, ok := x.conclusive(k, known[k])
		curves[k], sure[k] = curve{x.qualityOf(k, s), float64(s.Bytes) * 8, x.chunks[k].steepness}, ok
		if ok {
			size.add(curves[k].at(x.middleQuality) / x.chunks[k].seconds)
			hint.add(x.hint(k))
		}
	}
	for k, c := range x.chunks {
		if sure[k] {
			continue
		}
		bits := c.seconds * size.value() * min(max(x.hint(k)/hint.value(), 1/x.maxGrowth), x.maxGrowth)
		if curves[k].quality > 0 {
			bits = max(bits, x.minLimitedEstimate*curves[k].at(x.middleQuality))
		}
		curves[k] = curve{x.middleQuality, bits, c.steepness}
	}
	return curves
}

// mean is a weighted geometric mean over chunks, the newest first.
type mean struct{ olderWeight, logs, weights, weight float64 }

func (m *mean) add(v float64) {
	if m.weight == 0 {
		m.weight = 1
	}
	m.logs += m.weight * math.Log(v)
	m.weights += m.weight
	m.weight *= m.olderWeight
}

func (m mean) value() float64 { return math.Exp(m.logs / m.weights) }

// hint returns a number that is proportional to the size of a second of a chunk.
func (x rateModel) hint(k int) float64 { return math.Pow(x.chunks[k].weight, x.growth) }

// conclusive returns the encode of a chunk that shows its complexity; sure is false if none does,
// because the buffer limited it, or x264 did not log the quality.
func (x rateModel) conclusive(k int, s EncodeStats) (given EncodeStats, sure bool) {
	shows := func(s EncodeStats) bool { return (s.Quality > 0 || s.Factor != 0) && !x.heldBack(k, s) }
	if !shows(s) && s.Before != nil && shows(*s.Before) {
		return *s.Before, true
	}
	return s, shows(s)
}

// qualityOf returns the average quality of a chunk; 0 = not known. That of very easy ones is below
// 0.
func (x rateModel) qualityOf(k int, s EncodeStats) float64 {
	if s.Quality > 0 || s.Factor == 0 {
		return s.Quality
	}
	wanted := float64(s.Bitrate) * (x.chunks[k].seconds + 1/x.rate)
	step := (x.step(s.Factor)*wanted - x.prior) / max(float64(s.Bytes)*8*s.cost(), 1)
	if !(step > 0) {
		return s.Factor
	}
	return x.quality(step)
}

// cost returns the complexity of a bit, relative to one at the quality of the chunk: key frames
// have a better quality than the rest, so their bits count less.
func (s EncodeStats) cost() float64 {
	const better = 1.4
	return 1 - (1-1/better)*float64(s.Keys)/float64(max(s.Bytes, 1))
}

// continuous simulates one encode of all chunks and returns the bits and the quality of each. The
// first chunk was encoded just like that.
func (x rateModel) continuous(known []EncodeStats, curves []curve) (spent, qualities []float64) {
	seconds := x.chunks[0].seconds
	wanted := x.bitrate * (seconds + 1/x.rate)
	complexity := x.step(known[0].Factor) * wanted
	total := float64(known[0].Bytes) * 8
	buffer := bufferSeconds * x.bitrate
	fill := buffer / 2
	spent, qualities = []float64{total}, []float64{known[0].Factor}
	cost := known[0].cost()
	for k := 1; k < len(x.chunks); k++ {
		c := x.chunks[k]
		// The steps of an unknown chunk have equal sizes.
		shape, whole := slices.Repeat([]int64{1}, int(max(math.Round(min(c.seconds/stepSeconds, stepsOfChunk)), 1))), 0.0
		if k < len(known) && known[k].Bytes > 0 {
			s, _ := x.conclusive(k, known[k])
			if cost = s.cost(); len(s.Steps) > 0 {
				shape = s.Steps
			}
		}
		for _, bytes := range shape {
			whole += float64(bytes)
		}
		length := c.seconds / float64(len(shape))
		var sum, weighted float64
		for _, bytes := range shape {
			over := min(max(1+(total-x.bitrate*seconds)/(2*x.bitrate*max(1, math.Sqrt(seconds))), 0.5), 2)
			quality := max(x.quality(complexity/wanted*over), x.bestQuality)
			weighted += quality
			bits := float64(bytes) / whole * curves[k].at(quality)
			// The emptier the buffer, the more x264 limits the bits; it will do so in the chunk
			// too.
			if limit := max(2*fill/buffer, 0.05) * peakFactor * x.bitrate * length; bits > limit {
				quality += 6 / curves[k].steepness * math.Log2(bits/limit)
				bits = limit
			}
			fill = min(fill+peakFactor*x.bitrate*length-bits, buffer)
			complexity += bits * x.step(quality) * cost
			wanted += x.bitrate * length
			total += bits
			seconds += length
			sum += bits
		}
		spent, qualities = append(spent, sum), append(qualities, weighted/float64(len(shape)))
	}
	return spent, qualities
}
