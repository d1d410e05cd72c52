package vod

// ChunkStats is what the rate control needs to know of a chunk that is done.
type ChunkStats struct {
	Seconds    float64       `json:"seconds"`
	Renditions []EncodeStats `json:"renditions"` // those that are encoded, in the order of the plan
}

// EncodeStats is what a rendition of a chunk came to.
type EncodeStats struct {
	Bytes  int64 `json:"bytes"`
	Frames int   `json:"frames"`
}

// Stats returns what later chunks need to know of this one.
func (r ChunkResult) Stats() ChunkStats {
	var s ChunkStats
	for _, one := range r.Renditions {
		s.Renditions = append(s.Renditions, EncodeStats{one.Bytes, one.Frames})
	}
	return s
}

// Rates returns what the encoders are told for chunk n, given the chunks before it
// that Needs asks for.
func (p *Plan) Rates(n int, earlier []ChunkStats) []Rate {
	var rates []Rate
	for _, r := range p.Encoded() {
		rate := Rate{Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: 2 * r.Bitrate}
		if r.Quality > 0 {
			rate = Rate{Quality: float64(r.Quality), Peak: r.Bitrate, Buffer: 2 * r.Bitrate}
		}
		rates = append(rates, rate)
	}
	return rates
}
