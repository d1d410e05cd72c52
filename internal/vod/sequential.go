package vod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// encodeFile encodes a source that could not be demuxed, from its file and as one chunk. Its frames
// are not known before, so the renditions are compared with each other and with the duration in the
// header.
func (e Engine) encodeFile(ctx context.Context, plan Plan, o EncodeOptions) error {
	if o.File == "" {
		return errors.New("a source that can't be demuxed is encoded from its file, which is missing")
	}
	encode := plan.encode(e.FFmpeg.Idle())
	encode.Input, encode.Track = o.File, plan.Source.Video.Track.Index
	encoded := plan.encoded()
	writers := make([]*media.Writer, len(encoded))
	var consumers []func(context.Context, io.Reader) error
	for i, r := range encoded {
		writers[i] = &media.Writer{Store: e.Store, Prefix: path.Join(plan.Prefix, r.Dir, o.Folder)}
		planned := r.encoder()
		planned.KeyEvery = plan.keyEvery(r)
		encode.Renditions = append(encode.Renditions, planned)
		consumers = append(consumers, func(ctx context.Context, pipe io.Reader) error {
			return readSequential(ctx, pipe, writers[i], r, e.limits(plan.SegmentSeconds))
		})
	}
	var result ChunkResult
	command := ffmpeg.Command{
		Args: encode.Args(), Read: []string{o.File}, Threads: encode.Threads, Pixels: plan.pixels(encode), Damage: &result.Damage,
	}
	if frames := plan.Source.Probe.Duration.Seconds() * encoded[0].rateIn(plan).Float(); o.Progress != nil && frames > 0 {
		command.Progress = func(p ffmpeg.Progress) { o.Progress(0, min(float64(p.Frame)/frames, 1)) }
	}
	if err := runPipes(ctx, e.FFmpeg, command, consumers); err != nil {
		return err
	}
	if err := checkSequential(plan, writers); err != nil {
		return err
	}
	for i, r := range encoded {
		rendition := resultOf(writers[i], r.Name)
		rendition.Folder = o.Folder
		result.Renditions = append(result.Renditions, rendition)
	}
	return o.Done(result)
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
func readSequential(ctx context.Context, pipe io.Reader, w *media.Writer, rendition Rendition, l limits) error {
	reader, track, err := openTrack(pipe, cmaf.Video)
	if err != nil || reader == nil {
		return err
	}
	track.Delay = rendition.delay(track)
	length := l.segment * float64(track.Timescale)
	early := int64(track.Timescale) / 20 // key frames may come a little before they are due
	next := 1
	w.Begin(track, 2*time.Second, func(_ cmaf.Contents, at int64, s cmaf.Sample) bool {
		if !s.Sync || float64(at+early) < float64(next)*length {
			return false
		}
		for float64(at+early) >= float64(next)*length {
			next++
		}
		return true
	})
	if err := retime(reader, track, func(cmaf.Fragment) {}, l.decoded(w.Track, func(f cmaf.Fragment) error { return w.Add(ctx, f) })); err != nil {
		return err
	}
	return w.Finish(ctx)
}

// checkSequential compares renditions with each other and with the header of the file.
func checkSequential(plan Plan, writers []*media.Writer) error {
	encoded := plan.encoded()
	frames := -1
	for i, w := range writers {
		index := w.Index()
		if index.Frames() == 0 {
			return weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
		}
		if len(index.Segments) != len(writers[0].Index().Segments) {
			return fmt.Errorf("rendition %s has %d segments, rendition %s has %d", encoded[0].Name, len(writers[0].Index().Segments), encoded[i].Name, len(index.Segments))
		}
		if !encoded[i].converts() {
			if frames >= 0 && frames != index.Frames() {
				return fmt.Errorf("rendition %s has %d frames, another one has %d", encoded[i].Name, index.Frames(), frames)
			}
			frames = index.Frames()
		}
		if err := plan.Source.checkLength("video", plan.Source.Video.Track, index.Track.Time(index.End())); err != nil {
			return err
		}
	}
	return nil
}
