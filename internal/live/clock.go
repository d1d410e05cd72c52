package live

import (
	"slices"
	"time"

	"weir/internal/cmaf"
)

// What the times of an encoder may do before that counts as a jump: go back, leave a gap, or be
// behind the times of another track, which a transport stream may send long before.
const (
	maxBack  = 500 * time.Millisecond
	maxGap   = 10 * time.Second
	maxApart = 3 * time.Second
)

// maxEarly is how long before the first video frame audio may begin.
const maxEarly = 100 * time.Millisecond

// maxFrame is the maximum duration of a frame that no other follows.
const maxFrame = 100 * time.Millisecond

// clock puts the frames of one connection on the timeline of a session. The clocks of encoders
// start anywhere, jump when the encoder switches scenes or wakes up, and wrap around. All tracks
// move together, so that audio and video stay in sync.
type clock struct {
	start    time.Duration         // presentation time of the first frame on the timeline
	earliest time.Duration         // audio before it is left out
	offset   time.Duration         // from the encoder's time to the timeline
	last     time.Duration         // the latest decode time so far, on the timeline
	tracks   map[int]time.Duration // the same for each track
	set      bool
}

// newClock returns a clock that puts the first frame at start.
func newClock(start time.Duration) *clock {
	return &clock{start: start, earliest: start - maxEarly, tracks: map[int]time.Duration{}}
}

// at returns when a frame is decoded and shown on the timeline. jumped reports that it does not
// continue where the frames before it ended.
func (c *clock) at(f Frame) (dts, pts time.Duration, jumped bool) {
	if !c.set {
		// The first frame is shown at the start, whatever its decode time is.
		c.offset, c.last, c.set = c.start-f.PTS, c.start, true
	}
	dts = f.DTS + c.offset
	own, known := c.tracks[f.Track]
	if known && dts < own-maxBack || dts < c.last-maxApart || dts > c.last+maxGap {
		c.offset = c.last - f.DTS
		dts, jumped = c.last, true
	}
	c.last = max(c.last, dts)
	c.tracks[f.Track] = dts
	if known {
		c.tracks[f.Track] = max(own, dts)
	}
	return dts, f.PTS + c.offset, jumped
}

// retimer puts the frames of one track into weir's form. It holds back one frame, whose duration is
// known when the next one comes: a latency of 33 ms at 30 frames a second. One that fills a part is
// not held back: its duration is predicted.
//
// With B-frames, the decode times of encoders are ahead of the presentation times. In weir's form
// a segment starts when its first frame is shown, so this lead is removed, up to the track's
// Delay (see cmaf.Track). It is measured at each key frame.
//
// cmaf.Retimer does the same for files by presentation times alone. It must hold back 64 frames
// for that, 2.1 s at 30 frames a second, so it can't replace this one.
type retimer struct {
	track   cmaf.Track
	lead    int64 // ticks by which frames are decoded before they are shown
	held    cmaf.Sample
	data    []byte
	decoded int64 // when the held sample is decoded, in weir's form
	holding bool
	cadence cadence
}

// cadence is the durations of the newest frames, from which that of the next one is predicted.
type cadence struct {
	durations [8]int64
	n         int // so far
}

// unsteady is how much the durations of a steady cadence may differ: clocks that count
// milliseconds round both ends of a frame.
const unsteady = 2 * time.Millisecond

func (c *cadence) add(duration int64) {
	c.durations[c.n%len(c.durations)] = duration
	c.n++
}

// predict returns the duration of the next frame, if those before it are as good as equal.
func (c *cadence) predict(t cmaf.Track) (duration int64, steady bool) {
	if c.n < len(c.durations) {
		return 0, false
	}
	var sum int64
	for _, d := range c.durations {
		sum += d
	}
	spread := slices.Max(c.durations[:]) - slices.Min(c.durations[:])
	return sum / int64(len(c.durations)), t.Time(spread) <= unsteady
}

// sample is a sample of a track in weir's form.
type sample struct {
	cmaf.Sample
	at    int64 // when it is decoded
	data  []byte
	reuse func([]byte) // takes the data back when it is written; nil = others refer to it too
}

// add takes the next frame and returns the one before it, whose duration is known now.
func (o *retimer) add(dts, pts time.Duration, sync bool, data []byte) (settled sample, ok bool) {
	d, p := o.track.Ticks(dts), o.track.Ticks(pts)
	if sync {
		o.lead = min(p-d, o.track.Delay)
	}
	d += o.lead
	if o.holding || o.cadence.n > 0 { // there was a frame
		d = max(d, o.decoded+1)
		o.cadence.add(d - o.decoded)
	}
	if o.holding {
		o.held.Duration = uint32(d - o.decoded)
		settled, ok = sample{Sample: o.held, at: o.decoded, data: o.data}, true
	}
	o.held = cmaf.Sample{Offset: int32(p - d), Size: uint32(len(data)), Sync: sync}
	o.decoded, o.data, o.holding = d, data, true
	return settled, ok
}

// predicted returns the held frame with a predicted duration, if that can be. It is held until
// release is called.
func (o *retimer) predicted() (s sample, ok bool) {
	duration, ok := o.cadence.predict(o.track)
	if !ok || !o.holding {
		return sample{}, false
	}
	s = sample{Sample: o.held, at: o.decoded, data: o.data}
	s.Duration = uint32(duration)
	return s, true
}

// release notes that the held frame need not be returned again.
func (o *retimer) release() { o.holding, o.data = false, nil }

// finish returns the held frame with the given duration.
func (o *retimer) finish(duration time.Duration) (settled sample, ok bool) {
	if !o.holding {
		return sample{}, false
	}
	o.held.Duration = uint32(max(o.track.Ticks(duration), 1))
	o.holding = false
	return sample{Sample: o.held, at: o.decoded, data: o.data}, true
}
