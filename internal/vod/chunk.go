package vod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// EncodeOptions are the inputs of Encode.
type EncodeOptions struct {
	File   string // the source, when it could not be demuxed
	Folder string // of the segments, below that of their rendition; see cmaf.Folder

	// Done gets the result of every chunk, in order, as soon as all renditions have it. Its error
	// ends the encode.
	Done     func(ChunkResult) error
	Progress func(chunk int, share float64) // may be nil
}

// Encode makes chunk n and those that continue it, with one run of ffmpeg: it decodes the source
// once, encodes it as every rendition that is not copied, and stores the segments as they end. Every
// segment must have the frames of the plan, with their times, and start with a key frame.
func (e Engine) Encode(ctx context.Context, plan Plan, n int, o EncodeOptions) error {
	if n < 0 || n >= len(plan.Chunks) {
		return fmt.Errorf("chunk %d does not exist: the plan has %d", n, len(plan.Chunks))
	}
	if plan.Source.Sequential != "" {
		return e.encodeFile(ctx, plan, o)
	}
	source, err := media.Open(ctx, e.Store, plan.Source.Prefix+"/"+sourceDir)
	if err != nil {
		return err
	}
	run := &encodeRun{
		EncodeOptions: o, plan: plan, first: n, chunks: plan.encodeFrom(n), encoded: plan.encoded(),
		table: plan.Source.Video.frames(source.Index()), begun: make(chan struct{}),
	}
	if err := run.encode(ctx, e, source); err != nil {
		return fmt.Errorf("chunk %d: %w", n+run.finished, err)
	}
	return nil
}

// encodeRun is a run of ffmpeg.
type encodeRun struct {
	EncodeOptions
	plan    Plan
	first   int // chunk
	chunks  []Chunk
	encoded []Rendition
	table   cmaf.Frames

	begun chan struct{} // closed when the first chunk is done

	mu       sync.Mutex
	results  []ChunkResult // of the chunks
	finished int           // chunks whose result is complete
}

func (r *encodeRun) encode(ctx context.Context, e Engine, source *media.Track) error {
	start, end := r.chunks[0].Start, r.chunks[len(r.chunks)-1].End
	encode := r.plan.encode(e.FFmpeg.Idle())
	encode.Start, encode.End = start, end
	var consumers []func(context.Context, io.Reader) error
	for i, rendition := range r.encoded {
		planned := rendition.encoder()
		planned.Keys = r.plan.keys(r.chunks, rendition, r.table)
		encode.Renditions = append(encode.Renditions, planned)
		w := &media.Writer{
			Store: e.Store, Prefix: path.Join(r.plan.Prefix, rendition.Dir, r.Folder), First: r.chunks[0].First,
		}
		consumers = append(consumers, func(ctx context.Context, pipe io.Reader) error { return r.read(ctx, pipe, i, w) })
	}
	for n := range r.chunks {
		r.results = append(r.results, ChunkResult{Chunk: r.first + n, Renditions: make([]RenditionResult, len(r.encoded))})
	}
	last := &r.results[len(r.results)-1]
	needed := r.plan.within(r.chunks[0], r.table.Needed(start, end+r.plan.overlap()))
	command := ffmpeg.Command{
		Args: encode.Args(), Stdin: newTrackReader(ctx, source, needed), Threads: encode.Threads, Pixels: r.plan.pixels(encode),
		Damage: &last.Damage, Progress: r.report(),
	}
	if r.first == 0 { // viewers may be waiting for it
		command.Priority, command.Demote = ffmpeg.Interactive, r.begun
	}
	if err := runPipes(ctx, e.FFmpeg, command, consumers); err != nil {
		return err
	}
	return r.Done(*last)
}

// read reads rendition i from its pipe, and cuts it into the segments of the plan.
func (r *encodeRun) read(ctx context.Context, pipe io.Reader, i int, w *media.Writer) error {
	rendition := r.encoded[i]
	reader, track, err := openTrack(pipe, cmaf.Video)
	if err == nil && reader == nil {
		err = errors.New("ffmpeg wrote no frame")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", rendition.Name, err)
	}
	track.Delay = rendition.delay(track)
	w.Begin(track, 2*time.Second, nil)
	source := sampleReader{reader: reader, lead: track.Ticks(cmaf.Lead)}
	for c, chunk := range r.chunks {
		for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
			times, next := r.plan.expected(n, rendition, r.table, int64(track.Timescale))
			f, err := source.read(len(times))
			if err == nil {
				err = setTimes(&f, times, next, int64(track.Timescale))
			}
			if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errMissing) {
				return weir.Wrap(weir.Invalid, err, "%s: the video is damaged: some frames after %v can't be decoded",
					badSource, track.Time(times[0]).Round(time.Millisecond))
			}
			if err != nil {
				return fmt.Errorf("%s, segment %d: %w", rendition.Name, n, err)
			}
			if err := errors.Join(w.Add(ctx, f), w.Finish(ctx)); err != nil {
				return err
			}
		}
		if err := r.addResult(c, i, resultOf(w, rendition.Name)); err != nil {
			return err
		}
	}
	if extra, err := source.read(1); !errors.Is(err, io.ErrUnexpectedEOF) {
		if err == nil {
			err = fmt.Errorf("ffmpeg wrote more frames than planned, the first at %v", track.Time(extra.Start))
		}
		return fmt.Errorf("%s: %w", rendition.Name, err)
	}
	return nil
}

// addResult adds rendition i of a chunk, which is done when it has all of them. The last one is done
// when ffmpeg has ended: it may still complain.
func (r *encodeRun) addResult(chunk, i int, result RenditionResult) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	result.Folder = r.Folder
	r.results[chunk].Renditions[i] = result
	for _, one := range r.results[chunk].Renditions {
		if one.Name == "" {
			return nil
		}
	}
	r.finished++
	if chunk == 0 {
		close(r.begun)
	}
	if chunk == len(r.chunks)-1 {
		return nil
	}
	return r.Done(r.results[chunk])
}

// report returns the Command.Progress of the run.
func (r *encodeRun) report() func(ffmpeg.Progress) {
	if r.Progress == nil {
		return nil
	}
	return func(p ffmpeg.Progress) {
		frames := float64(p.Frame)
		for n, chunk := range r.chunks {
			planned := 0.0
			for segment := range chunk.Segments {
				planned += float64(r.plan.segmentFrames(r.encoded[0], chunk.First+segment))
			}
			r.Progress(r.first+n, min(frames/max(planned, 1), 1))
			if frames -= planned; frames <= 0 {
				return
			}
		}
	}
}

// encode returns the plan of a run of ffmpeg with that many idle cores, without its window and its
// renditions.
func (p *Plan) encode(idle int) ffmpeg.Encode {
	return ffmpeg.Encode{
		Lead: cmaf.Lead, Video: p.Source.Video.Track.VideoFormat(), Timescale: p.Timescale,
		Tick: p.Tick, Rate: p.Rate, Threads: threads(idle),
	}
}

// maxCores is how many cores one run of ffmpeg can use well: its main thread, which scales and muxes,
// takes 15 % of the CPU time.
const maxCores = 4

// Encoders returns how many encodes can use the cores of a machine.
func Encoders(cores int) int { return (cores + maxCores - 1) / maxCores }

// Threads returns how many threads the decoder and each encoder of a run have now.
func (e Engine) Threads() int { return threads(e.FFmpeg.Idle()) }

// threads returns how many threads a run has with that many idle cores: half as many again, because
// some always wait for others.
func threads(idle int) int {
	cores := min(max(idle, 1), maxCores)
	return cores + cores/2
}

// The peak bitrate of a rendition is one and a half times its bitrate, and its buffer has two
// seconds. With a quality, the bitrate is the peak.
const bufferSeconds = 2

// encoder returns the plan of a rendition, without its key frames.
func (r Rendition) encoder() ffmpeg.Rendition {
	e := ffmpeg.Rendition{
		Codec: r.Codec, Width: r.Width, Height: r.Height, Rate: r.Rate, Profile: r.Profile,
		Bitrate: r.Bitrate, Peak: r.Bitrate * 3 / 2, Buffer: bufferSeconds * r.Bitrate,
	}
	if r.Quality > 0 {
		e.Bitrate, e.Quality, e.Peak = 0, float64(r.Quality), r.Bitrate
	}
	if r.GOP == 0 {
		e.GOP = 1
	}
	return e
}

// pixels returns the sizes of the source and all renditions of a run, for Command.Pixels.
func (p *Plan) pixels(encode ffmpeg.Encode) int64 {
	track := p.Source.Video.Track
	total := int64(track.Width) * int64(track.Height)
	for _, r := range encode.Renditions {
		total += int64(r.Width) * int64(r.Height)
	}
	return total
}

// overlap returns the ticks after the end of a chunk whose frames are needed for it: where the frame rate
// changes, the nearest frame is used.
func (p *Plan) overlap() int64 {
	var overlap int64
	for _, r := range p.encoded() {
		if r.converts() {
			overlap = max(overlap, p.Timescale*r.Rate.Den/r.Rate.Num+1)
		}
	}
	return overlap
}

// keys returns the times of key frames of rendition r in chunks: at the start of every segment, and
// in regular intervals within.
func (p *Plan) keys(chunks []Chunk, r Rendition, table cmaf.Frames) []int64 {
	var keys []int64
	last := chunks[len(chunks)-1]
	for n := chunks[0].First; n < last.First+last.Segments; n++ {
		start, end := p.Starts[n], p.segmentEnd(n)
		keys = append(keys, start)
		if r.GOP == 0 {
			continue
		}
		// All intervals have the same duration: a short one at the end would waste a key frame.
		length := float64(end - start)
		count := math.Ceil(length/(r.GOP*float64(p.Timescale)) - 0.02)
		for i := 1; float64(i) < count; i++ {
			t := start + int64(math.Round(length*float64(i)/count))
			if found := table.Between(t, end); !r.converts() && len(found) > 0 {
				t = found[0]
			}
			keys = append(keys, t)
		}
	}
	if r.converts() {
		// ffmpeg may round a time between two frames of the rendition's rate to the first.
		for i, key := range keys {
			frame := frameAt(r.Rate, p.Timescale, key)
			keys[i] = (frame*r.Rate.Den*p.Timescale + r.Rate.Num - 1) / r.Rate.Num
		}
	}
	return slices.Compact(keys)
}

// expected returns the times of the frames of rendition r in segment n, and the time of the frame
// after them, in ticks of a timescale.
func (p *Plan) expected(n int, r Rendition, table cmaf.Frames, scale int64) (times []int64, next int64) {
	if !r.converts() {
		return table.Between(p.Starts[n], p.segmentEnd(n)), p.segmentEnd(n)
	}
	from, to := frameAt(r.Rate, p.Timescale, p.Starts[n]), frameAt(r.Rate, p.Timescale, p.segmentEnd(n))
	for i := from; i < to; i++ {
		times = append(times, i*r.Rate.Den*scale/r.Rate.Num)
	}
	return times, to * r.Rate.Den * scale / r.Rate.Num
}

func (r Rendition) delay(track cmaf.Track) int64 {
	return int64(math.Ceil(r.Delay * float64(track.Timescale)))
}

// sampleReader reads a given number of samples at once.
type sampleReader struct {
	reader *cmaf.Reader
	lead   int64
	left   cmaf.Fragment
}

// read returns the next n samples, or io.ErrUnexpectedEOF if there are less.
func (r *sampleReader) read(n int) (cmaf.Fragment, error) {
	var taken cmaf.Fragment
	for len(taken.Samples) < n {
		if len(r.left.Samples) == 0 {
			f, err := r.reader.Next()
			if errors.Is(err, io.EOF) {
				return taken, io.ErrUnexpectedEOF
			}
			if err != nil {
				return taken, err
			}
			f.Start -= r.lead
			r.left = f
			continue
		}
		count := min(n-len(taken.Samples), len(r.left.Samples))
		head := cmaf.Fragment{Start: r.left.Start, Samples: r.left.Samples[:count]}
		size := cmaf.Bytes(head.Samples)
		head.Data = r.left.Data[:size]
		taken = join(taken, head)
		r.left = cmaf.Fragment{Start: head.End(), Samples: r.left.Samples[count:], Data: r.left.Data[size:]}
	}
	return taken, nil
}

var errMissing = errors.New("a frame is missing")

// setTimes gives the frames of a segment the times of the plan, which may differ from the encoder's only by
// rounding: the i-th time is the presentation time of the i-th frame in display order, and the decode time of the
// i-th frame in decode order. next is the start of the next segment.
func setTimes(f *cmaf.Fragment, times []int64, next, timescale int64) error {
	if len(f.Samples) == 0 {
		return errors.New("it has no frame")
	}
	if !f.Samples[0].Sync {
		return errors.New("it does not start with a key frame")
	}
	shown := f.PTS()
	order := make([]int, len(shown)) // display order
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(shown[a], shown[b]) })
	if order[0] != 0 {
		return errors.New("a frame has an earlier presentation time than the key frame at the start")
	}
	near := max(timescale/500, 1) // two milliseconds
	for rank, i := range order {
		switch d := shown[i] - times[rank]; {
		case d > near:
			return errMissing
		case d < -near:
			return fmt.Errorf("frame %d is at %.4f s, expected at %.4f s",
				rank, float64(shown[i])/float64(timescale), float64(times[rank])/float64(timescale))
		}
		f.Samples[i].Offset = int32(times[rank] - times[i])
	}
	for i := range f.Samples {
		until := next
		if i+1 < len(times) {
			until = times[i+1]
		}
		if until <= times[i] {
			return fmt.Errorf("frame %d has no duration", i)
		}
		f.Samples[i].Duration = uint32(until - times[i])
	}
	f.Start = times[0]
	return nil
}
