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

// encodeFile encodes a source that could not be taken apart, from its file and in one
// go. Its frames are not known before, so renditions are compared with one another
// and with the length that the file claims.
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
		if rate := r.rateIn(plan); rate.Den > 0 {
			tasks[i].frames = plan.Source.Probe.Duration.Seconds() * float64(rate.Num) / float64(rate.Den)
		}
		tasks[i].consume = func(ctx context.Context, pipe io.Reader) error {
			return readSequential(ctx, pipe, writers[i], r, plan.SegmentSeconds)
		}
	}
	cores := plan.Chunks[0].Cores
	report := newShares(o.Progress, cores)
	damage := make([]ffmpeg.Damage, max(cores, 1))
	err := shareOut(ctx, tasks, cores, func(ctx context.Context, share int, tasks []encodeTask) error {
		encode := plan.encode(tasks)
		encode.Input, encode.Stream = o.File, video.Stream.Index
		command := ffmpeg.Command{
			Args: encode.Args(), Read: []string{o.File}, Pixels: plan.pixels(tasks),
			Progress: report.of(share, tasks[0].frames),
			Damage:   &damage[share],
		}
		return runPipes(ctx, e.FFmpeg, command, consumersOf(tasks))
	})
	if err != nil {
		return ChunkResult{}, err
	}
	if err := checkSequential(plan, writers); err != nil {
		return ChunkResult{}, err
	}
	var result ChunkResult
	for i, r := range encoded {
		result.Renditions = append(result.Renditions, writers[i].result(r.Name))
	}
	for _, d := range damage {
		result.Damage.Merge(d)
	}
	return result, nil
}

// keyEvery returns the distance of key frames that is nearest to what r asks for and
// has a key frame at the start of every segment.
func (p *Plan) keyEvery(r Rendition) time.Duration {
	segment := time.Duration(p.SegmentSeconds * float64(time.Second))
	if r.GOP == 0 {
		return segment
	}
	return segment / time.Duration(max(math.Round(p.SegmentSeconds/r.GOP), 1))
}

// readSequential takes a rendition off a pipe and cuts it at the key frames nearest
// to multiples of the length of segments.
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
	var retimer cmaf.Retimer
	lead := track.Ticks(cmaf.Lead)
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		f.Start -= lead
		settled, err := retimer.Add(f)
		if err != nil {
			return err
		}
		if err := w.add(settled); err != nil {
			return err
		}
	}
	rest, err := retimer.Finish()
	if err != nil {
		return err
	}
	if err := w.add(rest); err != nil {
		return err
	}
	return w.finish()
}

// checkSequential compares renditions with one another and with the header of the
// file.
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
