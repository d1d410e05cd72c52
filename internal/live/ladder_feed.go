package live

import (
	"context"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
)

// feed gives what comes through a tap to ffmpeg, as fragmented MP4 with a frame in each
// fragment. It ends when the publisher is gone, or sends something else from now on.
type feed struct {
	tap  *Tap
	line *timeline

	// Of the publisher that it is about.
	tracks   []cmaf.Track
	track    cmaf.Track    // of the picture
	position int           // of it in tracks
	first    time.Duration // when its first frame is shown
	rate     float64       // frames a second, about

	queue    []Tapped // frames that were looked at
	next     []cmaf.Track
	ended    error  // of the tap
	ready    []byte // for ffmpeg
	sequence uint32
	decoded  int64 // when the last frame is

	closed  atomic.Bool // nobody reads any more
	drained atomic.Bool // there is nothing more to read

	divide  atomic.Bool  // the encoder is to end with a segment, so that another goes on from there
	divided atomic.Int64 // where it did, in nanoseconds; undivided = it did not
}

const undivided = math.MinInt64

// begin waits for a publisher with a picture and looks at its first frames. Its error
// says that none will come.
func (f *feed) begin() error {
	f.queue = nil
	f.reset()
	for {
		tracks := f.next
		f.next = nil
		if tracks == nil {
			item, err := f.tap.Next(context.Background())
			if err != nil {
				return errTapEnded
			}
			tracks = item.Tracks
		}
		f.position = slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
		if f.position < 0 {
			continue // audio only, or a frame of a publisher that is gone
		}
		f.tracks, f.track = tracks, tracks[f.position]
		f.track.Delay = 0
		f.ready = cmaf.Init(f.track)
		return f.measure()
	}
}

// reset makes it ready for another encoder.
func (f *feed) reset() {
	f.ready, f.sequence, f.decoded = nil, 0, math.MinInt64/2
	f.closed.Store(false)
	f.drained.Store(false)
	f.divide.Store(false)
	f.divided.Store(undivided)
}

// resume goes on with another encoder where the last one ended because it was to; false =
// it ended for another reason.
func (f *feed) resume() bool {
	if f.divided.Load() == undivided {
		return false
	}
	f.reset()
	f.ready, f.first = cmaf.Init(f.track), f.queue[0].PTS
	return true
}

// measure looks at frames until it is known how many come in a second.
func (f *feed) measure() error {
	const enough = 400 * time.Millisecond
	var shown []time.Duration
	for len(shown) < measuredFrames {
		item, err := f.frame()
		if err != nil {
			break
		}
		f.queue = append(f.queue, item)
		shown = append(shown, item.PTS)
		if len(shown) > 2 && item.PTS-shown[0] > enough {
			break
		}
	}
	if len(shown) == 0 {
		if f.ended != nil {
			return f.ended
		}
		return f.begin()
	}
	f.first, f.rate = shown[0], frameRate(shown)
	f.drained.Store(false)
	return nil
}

// frame waits for the next frame of the picture; io.EOF when this publisher has no more.
func (f *feed) frame() (Tapped, error) {
	for f.next == nil && f.ended == nil && !f.closed.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), quiet)
		item, err := f.tap.Next(ctx)
		late := ctx.Err() != nil
		cancel()
		switch {
		case err != nil && !late:
			f.ended = errTapEnded
		case err != nil:
			if _, idle := f.line.now(); idle {
				return Tapped{}, io.EOF
			}
		case item.Tracks != nil:
			f.next = item.Tracks
		case item.Track == f.position:
			return item, nil
		}
	}
	return Tapped{}, io.EOF
}

// Read gives the next bytes to ffmpeg.
func (f *feed) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		item, err := f.take()
		if err != nil {
			f.drained.Store(true)
			return 0, err
		}
		f.ready = f.encode(item)
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// take returns the next frame, of those that were looked at first.
func (f *feed) take() (item Tapped, err error) {
	if len(f.queue) == 0 {
		if item, err = f.frame(); err != nil {
			return Tapped{}, err
		}
	} else {
		item, f.queue = f.queue[0], f.queue[1:]
	}
	if f.divide.Load() && f.sequence > 0 && item.Sync && f.opens(item.PTS) {
		f.queue = slices.Insert(f.queue, 0, item)
		f.divided.Store(int64(item.PTS))
		return Tapped{}, io.EOF
	}
	return item, nil
}

// opens reports whether a segment of the source begins with the frame that is shown at a
// time, as soon as that is decided.
func (f *feed) opens(at time.Duration) bool {
	const rounding = time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), quiet)
	defer cancel()
	s, ok, err := f.line.segment(ctx, at+rounding)
	return err == nil && ok && (s.at-at).Abs() <= rounding
}

// encode writes a frame. How long it lasts is not known yet, and nobody asks.
func (f *feed) encode(item Tapped) []byte {
	shown := f.track.Ticks(item.PTS)
	f.decoded = min(max(f.track.Ticks(item.DTS), f.decoded+1), shown)
	f.sequence++
	_, data := cmaf.EncodePart(f.sequence, f.track, cmaf.Fragment{
		Start: f.decoded, Data: item.Data,
		Samples: []cmaf.Sample{{
			Duration: uint32(f.track.Ticks(time.Duration(float64(time.Second) / f.rate))),
			Offset:   int32(shown - f.decoded), Size: uint32(len(item.Data)), Sync: item.Sync,
		}},
	})
	return data
}

// Close says that nobody reads any more.
func (f *feed) Close() error {
	f.closed.Store(true)
	return nil
}

// skip lets frames pass until the publisher is gone.
func (f *feed) skip(each func()) error {
	for {
		each()
		if _, err := f.take(); err != nil {
			return f.ended
		}
	}
}
