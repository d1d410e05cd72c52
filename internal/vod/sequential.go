package vod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

// encodeFile encodes a source that could not be demuxed, from its file and as one chunk. Its frames
// are not known before, so the renditions are compared with each other and with the duration in the
// header.
func (e Engine) encodeFile(ctx context.Context, plan Plan, o ChunkOptions) (ChunkResult, error) {
	encoded, video := plan.encoded(), plan.Source.Video
	if o.File == "" {
		return ChunkResult{}, errors.New("a source that can't be taken apart is encoded where its file is")
	}
	rates := plan.rates(0, nil)
	tasks := make([]encodeTask, len(encoded))
	writers := make([]*trackWriter, len(encoded))
	for i, r := range encoded {
		writers[i] = &trackWriter{store: e.Store, prefix: plan.Prefix + "/" + r.Dir}
		tasks[i].rendition = plan.rendition(r, rates[i])
		tasks[i].rendition.KeyEvery = plan.keyEvery(r)
		tasks[i].frames = plan.Source.Probe.Duration.Seconds() * r.rateIn(plan).Float()
		tasks[i].consume = func(ctx context.Context, pipe io.Reader) error {
			return readSequential(ctx, pipe, writers[i], r, plan.SegmentSeconds)
		}
	}
	damage, err := e.encodeTasks(ctx, plan, tasks, plan.Chunks[0].Cores, o.Progress, func(_ context.Context, encode *ffmpeg.Encode) ffmpeg.Command {
		encode.Input, encode.Stream = o.File, video.Stream.Index
		return ffmpeg.Command{Read: []string{o.File}}
	})
	if err != nil {
		return ChunkResult{}, err
	}
	if err := checkSequential(plan, writers); err != nil {
		return ChunkResult{}, err
	}
	result := ChunkResult{Damage: damage}
	for i, r := range encoded {
		result.Renditions = append(result.Renditions, writers[i].result(r.Name))
	}
	return result, nil
}

// keyEvery returns the distance of key frames that is nearest to r.GOP and gives every segment a
// key frame at its start.
func (p *Plan) keyEvery(r Rendition) time.Duration {
	segment := time.Duration(p.SegmentSeconds * float64(time.Second))
	if r.GOP == 0 {
		return segment
	}
	return segment / time.Duration(max(math.Round(p.SegmentSeconds/r.GOP), 1))
}

// readSequential reads a rendition from a pipe and cuts it at the key frames nearest to multiples
// of the segment duration.
func readSequential(ctx context.Context, pipe io.Reader, w *trackWriter, rendition Rendition, seconds float64) error {
	reader, track, err := openTrack(pipe, cmaf.Video)
	if err != nil || reader == nil {
		return err
	}
	track.Delay = rendition.delay(track)
	length := seconds * float64(track.Timescale)
	early := int64(track.Timescale) / 20 // key frames may come a little before they are due
	next := 1
	w.begin(ctx, track, 2, func(_ cmaf.Contents, at int64, s cmaf.Sample) bool {
		if !s.Sync || float64(at+early) < float64(next)*length {
			return false
		}
		for float64(at+early) >= float64(next)*length {
			next++
		}
		return true
	})
	if err := retime(reader, track, func(cmaf.Fragment) {}, w.add); err != nil {
		return err
	}
	return w.finish()
}

// checkSequential compares renditions with each other and with the header of the file.
func checkSequential(plan Plan, writers []*trackWriter) error {
	encoded := plan.encoded()
	frames := -1
	for i, w := range writers {
		index := w.index()
		if index.Frames() == 0 {
			return weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
		if len(w.segments) != len(writers[0].segments) {
			return fmt.Errorf("%s has %d segments, %s has %d", encoded[0].Name, len(writers[0].segments), encoded[i].Name, len(w.segments))
		}
		if !encoded[i].converts() {
			if frames >= 0 && frames != index.Frames() {
				return fmt.Errorf("%s has %d frames, another rendition %d", encoded[i].Name, index.Frames(), frames)
			}
			frames = index.Frames()
		}
		if err := checkLength(plan.Source.Probe, "video", plan.Source.Video.Stream, index.Track.Time(index.End())); err != nil {
			return err
		}
	}
	return nil
}
