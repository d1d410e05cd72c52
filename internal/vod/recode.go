package vod

import (
	"context"
	"errors"
	"io"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// Recode selects frames of a stored track that are encoded again. They are successive.
type Recode struct {
	Track   *media.Track
	Frames  cmaf.Frames // of the part of the track that has them
	Times   []int64     // when they are shown; each comes out with its time
	Segment int         // how many of them are a segment, whose first frame is a key frame

	Command ffmpeg.Command // without its input and outputs: one, on pipe:3
}

// Recode runs ffmpeg over the frames of a stored track. store gets one segment after the other, and
// the track as the encoder describes it.
func (e Engine) Recode(ctx context.Context, r Recode, store func(made cmaf.Track, f cmaf.Fragment) error) error {
	next := r.next()
	r.Command.Stdin = newTrackReader(ctx, r.Track, r.Frames.Needed(r.Times[0], next))
	return runPipes(ctx, e.FFmpeg, r.Command, []func(context.Context, io.Reader) error{
		func(_ context.Context, pipe io.Reader) error { return r.read(pipe, next, store) },
	})
}

// next returns when the frame after the selected ones is shown.
func (r Recode) next() int64 { return r.Frames.Next(r.Times[len(r.Times)-1] + 1) }

func (r Recode) read(pipe io.Reader, next int64, store func(cmaf.Track, cmaf.Fragment) error) error {
	reader, made, err := openTrack(pipe, cmaf.Video)
	if err == nil && reader == nil {
		err = errors.New("ffmpeg wrote no frame")
	}
	if err != nil {
		return err
	}
	source := sampleReader{reader: reader, lead: made.Ticks(cmaf.Lead)}
	for times := r.Times; len(times) > 0; {
		count := min(r.Segment, len(times))
		until := next
		if count < len(times) {
			until = times[count]
		}
		f, err := source.read(count)
		if err == nil {
			err = setTimes(&f, times[:count], until, int64(made.Timescale))
		}
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errMissing) {
			return weir.Wrap(weir.Invalid, err, "%s: the video is damaged: not all frames can be decoded", badSource)
		}
		if err != nil {
			return err
		}
		if err := store(made, f); err != nil {
			return err
		}
		times = times[count:]
	}
	return nil
}
