package ingest

import (
	"time"

	"weir/internal/codec"
)

// maxRounded is how far a time may be from where the audio before it ends and still
// be a rounding.
const maxRounded = 3 * time.Millisecond

// grid puts back what times in whole milliseconds lost. Frames of audio have an exact
// duration, and without gaps each begins where the one before it ends.
type grid struct {
	start time.Duration
	count int64 // samples since then
	rate  int64
}

// at returns when a sample begins that was sent with a time.
func (g *grid) at(sent time.Duration, u codec.Sample) time.Duration {
	if u.Timescale == 0 {
		return sent
	}
	if g.rate == u.Timescale {
		if at := g.start + duration(g.count, g.rate); (sent - at).Abs() < maxRounded {
			g.count += u.Duration
			return at
		}
	}
	*g = grid{sent, u.Duration, u.Timescale}
	return sent
}

// duration returns how long n of so many a second last.
func duration(n, rate int64) time.Duration {
	whole := n / rate * int64(time.Second)
	return time.Duration(whole + n%rate*int64(time.Second)/rate)
}
