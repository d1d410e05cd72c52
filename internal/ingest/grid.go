package ingest

import (
	"time"

	"weir/internal/codec"
)

// maxRounded is the maximum difference between a time stamp and the end of the audio before it that
// counts as a rounding error.
const maxRounded = 3 * time.Millisecond

// grid restores the exact times of audio whose time stamps are in whole milliseconds: without gaps,
// each frame begins where the one before it ends.
type grid struct {
	start time.Duration
	count int64 // samples since then
	rate  int64
}

// at returns the exact time of a sample that was sent with a time stamp.
func (g *grid) at(sent time.Duration, u codec.Sample) time.Duration {
	if u.Timescale == 0 {
		return sent
	}
	if g.rate == u.Timescale {
		if at := g.start + codec.Duration(g.count, g.rate); (sent - at).Abs() < maxRounded {
			g.count += u.Duration
			return at
		}
	}
	*g = grid{sent, u.Duration, u.Timescale}
	return sent
}
