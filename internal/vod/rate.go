package vod

import (
	"math"
	"slices"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
)

// The rate control of chunks.
//
// In one continuous encode at a mean bitrate, x264 measures the complexity of all frames so far and
// uses the quality that would have given the mean bitrate, corrected by the bits that it has spent
// too much. An encoder that is started for a chunk does not have that knowledge: with a bitrate, it
// would spend as much on an easy chunk as on a hard one, and start badly each time. So chunks get a
// quality (CRF). It is the result of a simulation of x264's rate control over the whole source:
// with the measured complexity of the chunks that are done, and for the others with an estimate
// from the effort of the source (see Efforts), or else its size. Later chunks make up for the bits
// that those chunks have spent more or less than the continuous encode.
//
// The result of a chunk may be far from the estimate, for example where film becomes noise. Then
// its quality was wrong, and it is encoded again with a better estimate: see corrected. In a file
// of few segments each chunk waits for all before it, because the quality of the continuous encode
// depends much more on the past than on the future; and tolerances are smaller, because few chunks
// can make up for an error. Such a file takes a fifth longer for that, and one of noise up to three
// times as long.
//
// The first chunk gets a bitrate, like the continuous encode, and so does a chunk with too little
// knowledge for a quality; x264 then logs the quality that it used.
//
// rate.go has the rate control of chunks, ratemodel.go that of x264, and bench/ measures the
// result.

// ChunkStats are the results of a chunk that the rate control needs.
type ChunkStats struct {
	Renditions []EncodeStats `json:"renditions"` // the encoded ones, in the order of the plan
}

// EncodeStats is the result of a rendition in a chunk.
type EncodeStats struct {
	Bytes   int64   `json:"bytes"`
	Keys    int64   `json:"keys,omitempty"`  // bytes of key frames
	Steps   []int64 `json:"steps,omitempty"` // bytes of each twelfth of the frames
	Frames  int     `json:"frames"`
	Quality float64 `json:"quality,omitempty"` // given; 0 = a bitrate was given
	Bitrate int     `json:"bitrate,omitempty"` // given; 0 = a quality was given
	Factor  float64 `json:"factor,omitempty"`  // with a bitrate: the quality that x264 used; 0 = not known

	// Before is the earlier result, if it was encoded again.
	Before *EncodeStats `json:"before,omitempty"`
}

// Stats returns the results that later chunks need.
func (r ChunkResult) Stats() ChunkStats {
	var s ChunkStats
	for _, one := range r.Renditions {
		stats := EncodeStats{Frames: one.Frames, Quality: one.Quality, Bitrate: one.Bitrate, Factor: one.Factor, Before: one.Before}
		stats.addSizes(one)
		s.Renditions = append(s.Renditions, stats)
	}
	return s
}

// addSizes adds up the bytes of the frames, without the boxes around them.
func (s *EncodeStats) addSizes(r RenditionResult) {
	segments, err := r.segments()
	if err != nil {
		s.Bytes = r.Bytes
		return
	}
	frame := 0
	for _, segment := range segments {
		for _, part := range segment.Parts {
			for _, sample := range part.Samples {
				if frame*stepsOfChunk >= r.Frames*len(s.Steps) {
					s.Steps = append(s.Steps, 0)
				}
				frame++
				s.Steps[len(s.Steps)-1] += int64(sample.Size)
				s.Bytes += int64(sample.Size)
				if sample.Sync {
					s.Keys += int64(sample.Size)
				}
			}
		}
	}
}

// alone returns the stats without those of earlier encodes.
func (s EncodeStats) alone() *EncodeStats {
	s.Before = nil
	return &s
}

// weights returns the bytes of a track in each segment.
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

// The peak bitrate of a rendition as a multiple of its bitrate, and the size of its buffer.
const (
	peakFactor    = 1.5
	bufferSeconds = 2.0
)

// rates returns the rate control of the encoders for chunk n, given the results of the chunks that
// it needs.
func (p *Plan) rates(n int, earlier []ChunkStats) []encodeRate {
	var rates []encodeRate
	for i, r := range p.encoded() {
		rate := r.rate()
		switch {
		case r.Quality > 0:
			rate = encodeRate{Quality: float64(r.Quality), Peak: r.Bitrate, Buffer: 2 * r.Bitrate}
		case p.follows(r, n):
			want := p.follow(newRateModel(*p, r), n, ofRendition(i, earlier), nil)
			rate.Bitrate, rate.Quality = want.bitrate, want.quality
		}
		rates = append(rates, rate)
	}
	return rates
}

// corrected returns a better rate control for the renditions of chunk n whose size is too far from
// the intended one; got is their result.
//
// A chunk that was limited by the buffer gets all of the bitrate, which shows its complexity, and
// may be corrected once more. One that is far off, or noise, gets a bitrate, because the relation
// of bits and quality is not known well enough; but not if its halves differ, because an encoder
// with a bitrate adapts too late.
func (p *Plan) corrected(n int, earlier []ChunkStats, got ChunkStats) map[int]encodeRate {
	corrected := map[int]encodeRate{}
	for i, r := range p.encoded() {
		if r.Quality > 0 || !p.follows(r, n) || i >= len(got.Renditions) {
			continue
		}
		own := got.Renditions[i]
		x := newRateModel(*p, r)
		want := p.follow(x, n, ofRendition(i, earlier), &own)
		if want.quality == 0 {
			continue // nothing is known
		}
		held, rate := x.heldBack(n, own), r.rate()
		switch ratio := want.ratio(own); {
		case len(p.Starts) > fewSegments && (held || ratio > 1/x.longFileTolerance) && ratio < x.longFileTolerance:
			continue // the rest makes up for it
		case held && own.Before == nil:
			// all of the bitrate, see above
		case own.Before != nil && !x.heldBack(n, *own.Before), x.near(want, own, held):
			continue
		case own.even() && (x.chunks[n].steepness > x.steepness || ratio > x.tolerance || ratio < 1/x.tolerance):
			rate.Bitrate = x.mean(n, want.bits, x.peak())
		default:
			rate.Bitrate, rate.Quality = 0, want.quality
		}
		corrected[i] = rate
	}
	return corrected
}

// ratio returns the intended size as a multiple of the actual one.
func (w wanted) ratio(got EncodeStats) float64 { return w.bits / float64(max(got.Bytes, 1)*8) }

// near reports whether the size of a chunk is near enough to the intended one; held means that the
// buffer limited it.
func (p rateParameters) near(w wanted, got EncodeStats, held bool) bool {
	ratio, limit := w.ratio(got), p.tolerance
	if held {
		return ratio > 0.95
	}
	if got.Bitrate > 0 {
		limit = p.bitrateTolerance
	}
	return ratio > 1/limit && ratio < limit && math.Abs(w.bits-float64(got.Bytes)*8) < w.maxMiss
}

// even reports whether the halves of a chunk have about the same size.
func (s EncodeStats) even() bool {
	var halves [2]int64
	for i, bytes := range s.Steps {
		halves[2*i/len(s.Steps)] += bytes
	}
	return slices.Max(halves[:]) <= 2*slices.Min(halves[:])
}

// rate returns the rate control with all of the bitrate.
func (r Rendition) rate() encodeRate {
	return encodeRate{Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: 2 * r.Bitrate}
}

// follows reports whether the rate control of chunk n depends on the chunks before it.
func (p *Plan) follows(r Rendition, n int) bool {
	return r.Codec == ffmpeg.H264 && r.GOP > 0 && n > 0 && len(p.Weights) == len(p.Starts)
}

func ofRendition(i int, chunks []ChunkStats) (stats []EncodeStats) {
	for _, chunk := range chunks {
		if i >= len(chunk.Renditions) {
			break
		}
		stats = append(stats, chunk.Renditions[i])
	}
	return stats
}

// follow returns the intended size and the rate control of chunk n; own is its result, if it was
// encoded before.
func (p *Plan) follow(x rateModel, n int, done []EncodeStats, own *EncodeStats) wanted {
	// More results may be known when a chunk is encoded again after a failure: it must get the same
	// rate control.
	done = done[:min(p.Needs(n), len(done))]
	if len(done) == 0 || done[0].Factor == 0 {
		return wanted{bitrate: int(x.bitrate)}
	}
	given := make([]wanted, n)
	for k := range given {
		if k < len(done) {
			given[k] = wanted{bitrate: done[k].Bitrate, quality: done[k].Quality}
		} else {
			given[k] = x.decide(k, done[:min(p.Needs(k), len(done))], given, nil)
		}
	}
	return x.decide(n, done, given, own)
}
