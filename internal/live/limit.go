package live

import (
	"time"

	"golang.org/x/time/rate"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// The limits of one stream. Encoders that work well are far below. Others, or hostile ones, can't take
// memory or disk from other streams.
const (
	// maxBits and maxFrames are per second. A burst, after a pause or from a playlist that is pulled,
	// may have as much as maxAtOnce.
	maxBits   = 200_000_000
	maxFrames = 2000
	maxAtOnce = 10 * time.Second
	// maxChangesAMinute is how often encoders connect or change their tracks.
	maxChangesAMinute = 30

	// maxPart is the size of a part in bytes, however short its duration.
	maxPart = 8 << 20
	// maxWindowBytes is the size of all segments in a playlist, for a stream whose clock is slower than
	// its bytes.
	maxWindowBytes = 512 << 20
	// A segment ends before a key frame. These limit one without an end.
	maxSegment        = window
	maxSegmentBytes   = 256 << 20
	maxSegmentSamples = 20_000
	maxWaitingFrames  = 1000 // of audio that waits for video
	maxTappedFrames   = 4096 // in the queue of a tap

	// How often encoders of one stream connect: each time costs a transaction and a segment.
	maxArrivalsAtOnce = 30
	arrivalsPerSecond = 0.5
	maxArriving       = 10_000 // streams for which that is counted
)

// The open files of one stream at most.
const (
	// The connection of the encoder, a segment of video and one of audio, a journal, and the pipes of one
	// audio encoder.
	streamFiles = 8
	// The pipes of ffmpeg that makes renditions, beside those of the renditions.
	ladderFiles = 6
	// A pipe and a segment, and the other end of the pipe while ffmpeg starts.
	renditionFiles = 3
)

// Files returns how many open files the stream of the publisher takes at most, with its connection and those
// to its multistream targets.
func (p *Publisher) Files() int {
	files := streamFiles + len(p.stream.Multistream.Targets)
	if n := len(p.stream.Profiles); n > 0 {
		files += ladderFiles + n*renditionFiles
	}
	return files
}

// allowance limits what a stream sends.
type allowance struct {
	bits, frames, changes *rate.Limiter

	counted            time.Time // when the limiters were last used
	newBits, newFrames int       // since then
}

// countEvery is how often the limiters are used: that costs more than a frame should.
const countEvery = 50 * time.Millisecond

func newAllowance() *allowance {
	seconds := int(maxAtOnce / time.Second)
	return &allowance{
		bits: rate.NewLimiter(maxBits, maxBits*seconds), frames: rate.NewLimiter(maxFrames, maxFrames*seconds),
		changes: rate.NewLimiter(maxChangesAMinute/60.0, maxChangesAMinute),
	}
}

// countChange counts a new encoder or new tracks: each costs viewers a discontinuity, and may leave an init
// segment behind.
func (a *allowance) countChange(now time.Time) error {
	if !a.changes.AllowN(now, 1) {
		return weir.Errorf(weir.Invalid, "the encoder connects or changes its tracks more than %d times a minute; check its settings", maxChangesAMinute)
	}
	return nil
}

// countFrame counts a frame of a size. After an error the encoder must end.
func (a *allowance) countFrame(size int, now time.Time) error {
	a.newFrames, a.newBits = a.newFrames+1, a.newBits+8*size
	if now.Sub(a.counted) < countEvery && a.newFrames < maxFrames && a.newBits < maxBits {
		return nil
	}
	frames, bits := a.newFrames, a.newBits
	a.counted, a.newFrames, a.newBits = now, 0, 0
	switch {
	case !a.frames.AllowN(now, frames):
		return weir.Errorf(weir.Invalid, "the encoder sends more than %d frames a second; check its settings", maxFrames)
	case !a.bits.AllowN(now, bits):
		return weir.Errorf(weir.Invalid, "the encoder sends more than %d Mbit/s; lower its bitrate", maxBits/1_000_000)
	}
	return nil
}

// checkLimits returns an error if the open segment is too long or too large, and a sample does not end it.
func (p *packer) checkLimits(s sample) error {
	video, open := p.Track.Kind == cmaf.Video, p.OpenSegment
	switch {
	case open.Samples == 0 || video && s.Sync && p.segmentDuration(s.at) >= SegmentTarget:
	case video && p.segmentDuration(s.at) > maxSegment: // audio may have been away as long
		return weir.Errorf(weir.Invalid, "the encoder sent no key frame for %d s; set its key-frame interval to 2 s", int(maxSegment.Seconds()))
	case open.Samples >= maxSegmentSamples || open.Bytes+int64(s.Size) > maxSegmentBytes:
		return weir.Errorf(weir.Invalid, "the segment can't end after %d frames of %d MB: the encoder sends no key frames, or its timestamps stand still", open.Samples, open.Bytes/1_000_000)
	}
	return nil
}
