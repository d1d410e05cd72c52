package cmaf

import (
	"math"
	"slices"

	"weir/internal/weir"
)

// reorder is how many places a frame may be decoded before its turn to be shown. No
// coding in use allows more than 32.
const reorder = 64

// Retimer puts the samples of one track into weir's form while they come: the i-th
// sample in decode order is decoded at the i-th smallest presentation time, and lasts
// until the next one. It keeps a few frames back to know what is next. The zero
// Retimer is ready.
type Retimer struct {
	held  []heldSample // in decode order
	times []int64      // presentation times not given away yet, sorted
	floor int64        // no later frame may be shown before this
	moved bool         // floor counts
}

type heldSample struct {
	Sample
	shown int64
	data  []byte
}

// Add takes a run of samples and returns those that are settled, which may be none.
func (r *Retimer) Add(f Fragment) (Fragment, error) {
	if err := r.take(f); err != nil {
		return Fragment{}, err
	}
	return r.give(f.Track, len(r.held)-reorder)
}

// Finish returns the samples that are left. End is when the last one is over; if it is
// not after the time at which that is shown, it is taken as not known, and what the
// file said of its last sample counts.
func (r *Retimer) Finish(end int64) (Fragment, error) {
	if len(r.held) == 0 {
		return Fragment{}, nil
	}
	last := r.times[len(r.times)-1]
	if end <= last {
		end = last + int64(r.held[len(r.held)-1].Duration)
	}
	if end <= last && len(r.times) > 1 {
		end = last + last - r.times[len(r.times)-2]
	}
	if end <= last {
		end = last + 1
	}
	r.times = append(r.times, end)
	return r.give(0, len(r.held))
}

// Retime puts a whole run of fragments of one track into weir's form, as one
// fragment. The end is as in Retimer.Finish.
func Retime(frags []Fragment, end int64) (Fragment, error) {
	var r Retimer
	for _, f := range frags {
		if err := r.take(f); err != nil {
			return Fragment{}, err
		}
	}
	f, err := r.Finish(end)
	if len(frags) > 0 {
		f.Track = frags[0].Track
	}
	return f, err
}

func (r *Retimer) take(f Fragment) error {
	data, at := f.Data, f.Start
	for _, s := range f.Samples {
		shown := at + int64(s.Offset)
		at += int64(s.Duration)
		if r.moved && shown < r.floor {
			return weir.Errorf(weir.Invalid, "unusable timestamps: a frame is decoded more than %d frames after its turn to be shown", reorder)
		}
		i := len(r.times)
		for i > 0 && r.times[i-1] > shown {
			i--
		}
		r.times = slices.Insert(r.times, i, shown)
		r.held = append(r.held, heldSample{s, shown, data[:s.Size]})
		data = data[s.Size:]
	}
	return nil
}

// give returns the first n samples that are held.
func (r *Retimer) give(track, n int) (Fragment, error) {
	if n <= 0 {
		return Fragment{Track: track}, nil
	}
	size := 0
	for _, h := range r.held[:n] {
		size += len(h.data)
	}
	f := Fragment{Track: track, Start: r.times[0], Samples: make([]Sample, 0, n), Data: make([]byte, 0, size)}
	for i, h := range r.held[:n] {
		duration, offset := r.times[i+1]-r.times[i], h.shown-r.times[i]
		if duration > math.MaxUint32 || offset > math.MaxInt32 || offset < math.MinInt32 {
			return Fragment{}, weir.Errorf(weir.Invalid, "unusable timestamps: there is a gap of %d ticks between two frames", max(duration, offset, -offset))
		}
		f.Samples = append(f.Samples, Sample{Duration: uint32(duration), Offset: int32(offset), Size: h.Size, Sync: h.Sync})
		f.Data = append(f.Data, h.data...)
	}
	r.held = slices.Delete(r.held, 0, n)
	r.times = slices.Delete(r.times, 0, n)
	r.floor, r.moved = r.times[0], true
	return f, nil
}

// Cutter cuts the samples of one track, in weir's form and in order, into pieces.
type Cutter struct {
	before func(at int64, s Sample) int // how many cuts there are before the sample
	piece  Fragment
}

// CutAt returns a cutter that ends a piece at each of the times, which must ascend: a
// sample belongs to the piece in which its decoding starts. A piece may be empty.
func CutAt(times []int64) *Cutter {
	next := 0
	return &Cutter{before: func(at int64, _ Sample) int {
		cuts := 0
		for next < len(times) && at >= times[next] {
			next++
			cuts++
		}
		return cuts
	}}
}

// CutAtSync returns a cutter that ends a piece before a sync sample once the piece
// lasts the given number of ticks, and before any sample that would make it heavier
// than the given number of bytes; 0 bytes = any weight.
func CutAtSync(ticks int64, bytes int) *Cutter {
	c := new(Cutter)
	c.before = func(at int64, s Sample) int {
		if len(c.piece.Samples) == 0 {
			return 0
		}
		long := s.Sync && at-c.piece.Start >= ticks
		heavy := bytes > 0 && len(c.piece.Data)+int(s.Size) > bytes
		if long || heavy {
			return 1
		}
		return 0
	}
	return c
}

// Add takes a run of samples and returns the pieces that it completes.
func (c *Cutter) Add(f Fragment) []Fragment {
	var done []Fragment
	at, data := f.Start, f.Data
	for _, s := range f.Samples {
		for range c.before(at, s) {
			done = append(done, c.piece)
			c.piece = Fragment{Track: f.Track, Start: at}
		}
		if len(c.piece.Samples) == 0 {
			c.piece.Track, c.piece.Start = f.Track, at
		}
		c.piece.Samples = append(c.piece.Samples, s)
		c.piece.Data = append(c.piece.Data, data[:s.Size]...)
		data = data[s.Size:]
		at += int64(s.Duration)
	}
	return done
}

// Finish returns the piece in hand, which is empty if no sample came after the last
// cut.
func (c *Cutter) Finish() Fragment {
	piece := c.piece
	c.piece = Fragment{}
	return piece
}
