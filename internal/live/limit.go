package live

import (
	"time"

	"golang.org/x/time/rate"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// What one stream may bring. Encoders that are in order are far below; those that are
// not, or that mean harm, take neither memory nor disk from the others.
const (
	// maxBits and maxFrames are for a second; what comes after a moment without any,
	// or out of a playlist that is pulled, may be as much as in maxAtOnce.
	maxBits   = 200_000_000
	maxFrames = 2000
	maxAtOnce = 10 * time.Second
	// maxChangesAMinute is how often encoders come or send something else.
	maxChangesAMinute = 30

	// maxPart is how long a part may be in bytes, however little time its frames last.
	maxPart = 8 << 20
	// maxWindowBytes is what playlists show at most, of a stream whose clock does not move
	// as fast as its bytes come.
	maxWindowBytes = 512 << 20
	// A segment ends before a key frame. One that has no end is as bad as none.
	maxSegment        = window
	maxSegmentBytes   = 256 << 20
	maxSegmentSamples = 20_000
	maxWaitingFrames  = 1000 // of audio, for the picture
	maxTappedFrames   = 4096 // for a reader

	// How often encoders of one stream come: one that comes and goes all the time costs a
	// transaction and a segment each time.
	maxArrivalsAtOnce = 30
	arrivalsPerSecond = 0.5
	maxArriving       = 10_000 // streams of which that is counted
)

// allowance is what a stream may still bring.
type allowance struct {
	bits, frames, changes *rate.Limiter

	counted            time.Time // when what came was taken off
	newBits, newFrames int       // since
}

// countEvery is how often what came is taken off: each time costs more than a frame should.
const countEvery = 50 * time.Millisecond

func newAllowance() *allowance {
	seconds := int(maxAtOnce / time.Second)
	return &allowance{
		bits: rate.NewLimiter(maxBits, maxBits*seconds), frames: rate.NewLimiter(maxFrames, maxFrames*seconds),
		changes: rate.NewLimiter(maxChangesAMinute/60.0, maxChangesAMinute),
	}
}

// change takes off that an encoder comes or sends something else from now on: each costs
// viewers a discontinuity, and may leave an init segment behind.
func (a *allowance) change(now time.Time) error {
	if !a.changes.AllowN(now, 1) {
		return weir.Errorf(weir.Invalid, "what is sent changes more than %d times a minute", maxChangesAMinute)
	}
	return nil
}

// take takes a frame of so many bytes off it, or says why the encoder must end.
func (a *allowance) take(size int, now time.Time) error {
	a.newFrames, a.newBits = a.newFrames+1, a.newBits+8*size
	if now.Sub(a.counted) < countEvery && a.newFrames < maxFrames && a.newBits < maxBits {
		return nil
	}
	frames, bits := a.newFrames, a.newBits
	a.counted, a.newFrames, a.newBits = now, 0, 0
	switch {
	case !a.frames.AllowN(now, frames):
		return weir.Errorf(weir.Invalid, "more than %d frames come in a second; check what the encoder sends", maxFrames)
	case !a.bits.AllowN(now, bits):
		return weir.Errorf(weir.Invalid, "more than %d Mbit/s come; lower the bitrate of the encoder", maxBits/1_000_000)
	}
	return nil
}

// endless says that the open segment has no end, if so: a sample does not end it
// either.
func (p *packer) endless(s sample) error {
	video, open := p.Track.Kind == cmaf.Video, p.OpenSegment
	switch {
	case open.Samples == 0 || video && s.Sync && p.segmentDuration(s.at) >= segmentTarget:
	case video && p.segmentDuration(s.at) > maxSegment: // audio may have been away as long
		return weir.Errorf(weir.Invalid, "no key frame came for %d s; set the encoder's key-frame interval to 2 s", int(maxSegment.Seconds()))
	case open.Samples >= maxSegmentSamples || open.Bytes+int64(s.Size) > maxSegmentBytes:
		return weir.Errorf(weir.Invalid, "%d frames of %d MB came without an end of the segment: the encoder's clock stands still, or no key frame comes", open.Samples, open.Bytes/1_000_000)
	}
	return nil
}
