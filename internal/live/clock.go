package live

import (
	"time"

	"weir/internal/cmaf"
)

// What the times of an encoder may do before they count as a jump: go back, leave a
// hole, or be behind those of another track, which a transport stream may send long
// before.
const (
	maxBack  = 500 * time.Millisecond
	maxGap   = 10 * time.Second
	maxApart = 3 * time.Second
)

// maxEarly is how long before the first picture audio may begin.
const maxEarly = 100 * time.Millisecond

// maxFrame is how long a frame lasts, at most, when no other comes after it.
const maxFrame = 100 * time.Millisecond

// clock puts the frames of one connection on the timeline of a session. Encoders start
// their clocks anywhere, let them jump when they switch scenes or wake up, and let
// them run over. All tracks move together, so that audio and video stay in step.
type clock struct {
	start  time.Duration         // where the next first frame is put
	offset time.Duration         // from the encoder's time to the timeline
	last   time.Duration         // the latest decode time there was, on the timeline
	tracks map[int]time.Duration // the same of each track
	set    bool
}

// newClock returns a clock that puts the first frame at start.
func newClock(start time.Duration) *clock {
	return &clock{start: start, tracks: map[int]time.Duration{}}
}

// at returns when a frame is decoded and shown on the timeline. jumped says that it
// does not go on where the frames before it ended.
func (c *clock) at(f Frame) (dts, pts time.Duration, jumped bool) {
	if !c.set {
		// The first frame is shown at the start, whatever it is decoded at.
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

// order puts the frames of one track into weir's form, with a frame in hand: how long a
// frame lasts is known when the next one is there.
//
// Encoders decode earlier than they show, by what B-frames need. In weir's form a
// segment starts when its first frame is shown, so that lead is taken off, measured
// anew at each key frame; more than the track's Delay is not, see cmaf.Track.
type order struct {
	track   cmaf.Track
	lead    int64 // ticks by which frames are decoded before they are shown
	held    cmaf.Sample
	data    []byte
	decoded int64 // when the held sample is decoded, in weir's form
	holding bool
}

// sample is one of a track in weir's form.
type sample struct {
	cmaf.Sample
	at    int64 // when it is decoded
	data  []byte
	reuse func([]byte) // takes the data when it is written; nil = others have it too
}

// add takes the next frame and returns the one before it, which is settled now.
func (o *order) add(dts, pts time.Duration, sync bool, data []byte) (settled sample, ok bool) {
	d, p := o.track.Ticks(dts), o.track.Ticks(pts)
	if sync {
		o.lead = min(p-d, o.track.Delay)
	}
	d += o.lead
	if o.holding {
		d = max(d, o.decoded+1)
		o.held.Duration = uint32(d - o.decoded)
		settled, ok = sample{Sample: o.held, at: o.decoded, data: o.data}, true
	}
	o.held = cmaf.Sample{Offset: int32(p - d), Size: uint32(len(data)), Sync: sync}
	o.decoded, o.data, o.holding = d, data, true
	return settled, ok
}

// finish returns the frame in hand, which lasts as long as told.
func (o *order) finish(lasts time.Duration) (settled sample, ok bool) {
	if !o.holding {
		return sample{}, false
	}
	o.held.Duration = uint32(max(o.track.Ticks(lasts), 1))
	o.holding = false
	return sample{Sample: o.held, at: o.decoded, data: o.data}, true
}
