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

// ladderInput gives the video of a tap to ffmpeg, as fragmented MP4 with a frame in each fragment. It ends
// when the publisher disconnects or changes its tracks.
type ladderInput struct {
	tap      *Tap
	timeline *timeline

	// Of the publisher.
	tracks   []cmaf.Track
	track    cmaf.Track    // the video
	position int           // of the video in tracks
	first    time.Duration // when its first frame is shown
	rate     float64       // frames a second, about

	queue    []TapItem    // frames that were measured, or go to the next ffmpeg
	next     []cmaf.Track // announced by the tap
	ended    error        // of the tap
	ready    []byte       // for ffmpeg
	sequence uint32
	decoded  int64 // decode time of the last frame

	closed  atomic.Bool // ffmpeg has ended
	drained atomic.Bool // all input is read

	divide  atomic.Bool  // end the input with a segment; another ffmpeg continues from there
	divided atomic.Int64 // where it ended, in nanoseconds; undivided = it did not
}

const undivided = math.MinInt64

// awaitPublisher waits for a publisher with video and measures its first frames. An error means that none will
// come.
func (f *ladderInput) awaitPublisher() error {
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
			continue // audio only, or a frame of the publisher before
		}
		f.tracks, f.track = tracks, tracks[f.position]
		f.track.Delay = 0
		f.ready = cmaf.Init(f.track)
		return f.measure()
	}
}

// reset prepares it for another ffmpeg.
func (f *ladderInput) reset() {
	f.ready, f.sequence, f.decoded = nil, 0, math.MinInt64/2
	f.closed.Store(false)
	f.drained.Store(false)
	f.divide.Store(false)
	f.divided.Store(undivided)
}

// resume continues with another ffmpeg where the input was divided; false = it was not.
func (f *ladderInput) resume() bool {
	if f.divided.Load() == undivided {
		return false
	}
	f.reset()
	f.ready, f.first = cmaf.Init(f.track), f.queue[0].PTS
	return true
}

// measure reads frames until the frame rate is known.
func (f *ladderInput) measure() error {
	const enough = 400 * time.Millisecond
	var shown []time.Duration
	for len(shown) < measuredFrames {
		item, err := f.tapFrame()
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
		return f.awaitPublisher()
	}
	f.first, f.rate = shown[0], frameRate(shown)
	f.drained.Store(false)
	return nil
}

// tapFrame waits for the next video frame; io.EOF when this publisher has no more.
func (f *ladderInput) tapFrame() (TapItem, error) {
	for f.next == nil && f.ended == nil && !f.closed.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), maxFrameWait)
		item, err := f.tap.Next(ctx)
		late := ctx.Err() != nil
		cancel()
		switch {
		case err != nil && !late:
			f.ended = errTapEnded
		case err != nil:
			if _, idle := f.timeline.now(); idle {
				return TapItem{}, io.EOF
			}
		case item.Tracks != nil:
			f.next = item.Tracks
		case item.Track == f.position:
			return item, nil
		}
	}
	return TapItem{}, io.EOF
}

// Read gives the next bytes to ffmpeg.
func (f *ladderInput) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		item, err := f.nextFrame()
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

// nextFrame returns the next frame, queued ones first.
func (f *ladderInput) nextFrame() (item TapItem, err error) {
	if len(f.queue) == 0 {
		if item, err = f.tapFrame(); err != nil {
			return TapItem{}, err
		}
	} else {
		item, f.queue = f.queue[0], f.queue[1:]
	}
	if f.divide.Load() && f.sequence > 0 && item.Sync && f.opens(item.PTS) {
		f.queue = slices.Insert(f.queue, 0, item)
		f.divided.Store(int64(item.PTS))
		return TapItem{}, io.EOF
	}
	return item, nil
}

// opens reports whether a segment of the source begins with the frame of a time, as soon as that is
// decided.
func (f *ladderInput) opens(at time.Duration) bool {
	const rounding = time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), maxFrameWait)
	defer cancel()
	s, ok, err := f.timeline.segment(ctx, at+rounding)
	return err == nil && ok && (s.at-at).Abs() <= rounding
}

// encode returns the fragment of a frame. Its duration is not known yet, and not needed.
func (f *ladderInput) encode(item TapItem) []byte {
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

// Close notes that ffmpeg has ended.
func (f *ladderInput) Close() error {
	f.closed.Store(true)
	return nil
}

// skip drops frames until the publisher disconnects.
func (f *ladderInput) skip(each func()) error {
	for {
		each()
		if _, err := f.nextFrame(); err != nil {
			return f.ended
		}
	}
}
