package vod

import (
	"math"
	"slices"

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
// noise. Then it was told the wrong quality, and is encoded again with what is known now:
// see corrected. In a file of few segments each chunk knows all before it, because the
// quality of the continuous encode follows from what it has spent much more than from what
// comes; and less is borne there, because little is left to make up for it. Such a file
// takes a fifth longer for that, and one of noise up to three times as long.
//
// The first chunk is told the bitrate, as the continuous encode is, and so is a chunk
// of which too little is known to dare a quality; x264 then says which quality it
// ended up with.
//
// rate.go has what chunks are told, ratemodel.go x264's law, and bench/ what comes of it.

// ChunkStats is what the rate control needs to know of a chunk that is done.
type ChunkStats struct {
	Renditions []EncodeStats `json:"renditions"` // those that are encoded, in the order of the plan
}

// EncodeStats is what a rendition of a chunk came to.
type EncodeStats struct {
	Bytes   int64   `json:"bytes"`
	Keys    int64   `json:"keys,omitempty"`  // of the bytes those of key frames
	Steps   []int64 `json:"steps,omitempty"` // bytes of each twelfth of the frames
	Frames  int     `json:"frames"`
	Quality float64 `json:"quality,omitempty"` // that it was told; 0 = a bitrate
	Bitrate int     `json:"bitrate,omitempty"` // that it was told; 0 = a quality
	Factor  float64 `json:"factor,omitempty"`  // told a bitrate: the quality that x264 ended up with; 0 = not known

	// Before is what it came to before, if it was encoded again.
	Before *EncodeStats `json:"before,omitempty"`
}

// Stats returns what later chunks need to know of this one.
func (r ChunkResult) Stats() ChunkStats {
	var s ChunkStats
	for _, one := range r.Renditions {
		stats := EncodeStats{Frames: one.Frames, Quality: one.Quality, Bitrate: one.Bitrate, Factor: one.Factor, Before: one.Before}
		stats.weigh(one)
		s.Renditions = append(s.Renditions, stats)
	}
	return s
}

// weigh adds up what the frames of a stretch weigh, without the boxes around them.
func (s *EncodeStats) weigh(r RenditionResult) {
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

// alone returns the stats without those of the encodes before.
func (s EncodeStats) alone() *EncodeStats {
	s.Before = nil
	return &s
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

// rates returns what the encoders are told for chunk n, given the chunks before it
// that Needs asks for.
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

// corrected returns what the encoders of chunk n should have been told, now that it is
// known what came of what they were: nothing for renditions that came near enough.
//
// A chunk that the buffer held back has all of the bitrate now, which tells how hard it is,
// and may be corrected once more. One that is far off, or noise, is told how many bits it
// should have, because how those follow from the quality is not known well enough; but not
// if its halves differ, because an encoder that is told a bitrate finds out too late.
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
		case len(p.Starts) > fewSegments && (held || ratio > 1/toleranceOfMany) && ratio < toleranceOfMany:
			continue // the rest makes up for it
		case held && own.Before == nil:
			// all of the bitrate, see above
		case own.Before != nil && !x.heldBack(n, *own.Before), want.near(own, held):
			continue
		case own.even() && (x.chunks[n].steepness > steepness || ratio > tolerance || ratio < 1/tolerance):
			rate.Bitrate = x.mean(n, want.bits, x.peak())
		default:
			rate.Bitrate, rate.Quality = 0, want.quality
		}
		corrected[i] = rate
	}
	return corrected
}

// ratio is how many times as much a chunk should have come to.
func (w wanted) ratio(got EncodeStats) float64 { return w.bits / float64(max(got.Bytes, 1)*8) }

// near reports whether what came of a chunk is near enough to what should have; held says
// that the buffer kept it from becoming more.
func (w wanted) near(got EncodeStats, held bool) bool {
	ratio, limit := w.ratio(got), tolerance
	if held {
		return ratio > 0.95
	}
	if got.Bitrate > 0 {
		limit = toleranceOfGuess
	}
	return ratio > 1/limit && ratio < limit && math.Abs(w.bits-float64(got.Bytes)*8) < w.bearable
}

// even reports whether a chunk has about as much in its first half as in its second.
func (s EncodeStats) even() bool {
	var halves [2]int64
	for i, bytes := range s.Steps {
		halves[2*i/len(s.Steps)] += bytes
	}
	return slices.Max(halves[:]) <= 2*slices.Min(halves[:])
}

// rate is what an encoder is told that has all of the bitrate.
func (r Rendition) rate() encodeRate {
	return encodeRate{Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: 2 * r.Bitrate}
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

// follow returns what chunk n of a rendition should come to; own is what came of it, if it
// was encoded before.
func (p *Plan) follow(x rateModel, n int, done []EncodeStats, own *EncodeStats) wanted {
	// More may be known when a chunk is encoded once more after a failure: it must be told
	// the same.
	done = done[:min(p.Needs(n), len(done))]
	if len(done) == 0 || done[0].Factor == 0 {
		return wanted{bitrate: int(x.bitrate)}
	}
	told := make([]wanted, n)
	for k := range told {
		if k < len(done) {
			told[k] = wanted{bitrate: done[k].Bitrate, quality: done[k].Quality}
		} else {
			told[k] = x.decide(k, done[:min(p.Needs(k), len(done))], told, nil)
		}
	}
	return x.decide(n, done, told, own)
}
