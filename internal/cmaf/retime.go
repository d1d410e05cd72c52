package cmaf

import (
	"math"
	"slices"

	"weir/internal/weir"
)

// reorderWindow is how many frames a Retimer holds back. No codec in use lets a frame be decoded
// more than 32 places before its turn to be shown.
const reorderWindow = 64

// Retimer puts the samples of one track of a file into weir's form: the i-th sample in decode
// order is decoded at the i-th smallest presentation time, and its duration is the time until the
// next one. The zero Retimer is ready.
//
// It goes by presentation times alone, because files have decode times of any kind. So it must
// hold back reorderWindow frames, until no earlier presentation time can follow: 2.1 s at 30
// frames a second. That is too late for live streams, whose decode times come from an encoder:
// type retimer of package live relies on them and holds back one frame, 33 ms. One type with the
// window as a parameter can't do both, since with a window of one frame B-frames are refused.
type Retimer struct {
	held    []heldSample // in decode order
	times   []int64      // presentation times that no returned sample is decoded at, sorted
	floor   int64        // no later frame may be shown before this
	floored bool         // floor is set
}

type heldSample struct {
	Sample
	shown int64
	data  []byte
}

// Add takes a run of samples and returns those whose times are settled, which may be none.
func (r *Retimer) Add(f Fragment) (Fragment, error) {
	data, at := f.Data, f.Start
	for _, s := range f.Samples {
		shown := at + int64(s.Offset)
		at += int64(s.Duration)
		if r.floored && shown < r.floor {
			return Fragment{}, weir.Errorf(weir.Invalid, "unusable timestamps: a frame is decoded more than %d frames after it must be shown", reorderWindow)
		}
		i := len(r.times)
		for i > 0 && r.times[i-1] > shown {
			i--
		}
		r.times = slices.Insert(r.times, i, shown)
		r.held = append(r.held, heldSample{s, shown, data[:s.Size]})
		data = data[s.Size:]
	}
	return r.release(len(r.held) - reorderWindow)
}

// Finish returns the samples that are left. The one that is shown last has the duration that the
// file gives the one that is decoded last; if that is 0, it has the duration of the one before.
func (r *Retimer) Finish() (Fragment, error) {
	if len(r.held) == 0 {
		return Fragment{}, nil
	}
	last := r.times[len(r.times)-1]
	duration := int64(r.held[len(r.held)-1].Duration)
	if duration == 0 && len(r.times) > 1 {
		duration = last - r.times[len(r.times)-2]
	}
	r.times = append(r.times, last+max(duration, 1))
	return r.release(len(r.held))
}

// release returns the first n of the held samples.
func (r *Retimer) release(n int) (Fragment, error) {
	if n <= 0 {
		return Fragment{}, nil
	}
	size := 0
	for _, h := range r.held[:n] {
		size += len(h.data)
	}
	f := Fragment{Start: r.times[0], Samples: make([]Sample, 0, n), Data: make([]byte, 0, size)}
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
	r.floor, r.floored = r.times[0], true
	return f, nil
}
