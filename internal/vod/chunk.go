package vod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// encodeRate is the rate control of one rendition in a chunk.
type encodeRate struct {
	Bitrate int     // bits a second, mean; 0 = by Quality
	Quality float64 // constant rate factor; 0 = by Bitrate
	Peak    int     // maximum of bits a second; 0 = no limit
	Buffer  int     // size of the rate control buffer in bits
}

// ChunkOptions are the inputs of EncodeChunk.
type ChunkOptions struct {
	Earlier  []ChunkStats // of the first Plan.Needs chunks
	File     string       // the source, when it could not be demuxed
	Progress func(share float64)
}

// EncodeChunk decodes chunk n once, encodes it as every rendition that is not copied, and stores the segments.
// Every segment must have the frames of the plan, with their times, and start with a key frame. Renditions whose
// size is far from the intended one are encoded again.
func (e Engine) EncodeChunk(ctx context.Context, plan Plan, n int, o ChunkOptions) (ChunkResult, error) {
	if n < 0 || n >= len(plan.Chunks) {
		return ChunkResult{}, fmt.Errorf("chunk %d of %d", n, len(plan.Chunks))
	}
	if plan.Source.Sequential != "" {
		return e.encodeFile(ctx, plan, o)
	}
	source, err := media.Open(ctx, e.Store, plan.Source.Prefix+"/"+sourceDir)
	if err != nil {
		return ChunkResult{}, err
	}
	run := chunkRun{engine: e, plan: plan, n: n, source: source, table: newFrames(*plan.Source.Video, source.Index())}
	result := ChunkResult{Chunk: n, Renditions: make([]RenditionResult, len(plan.encoded()))}
	rates := maps.Collect(slices.All(plan.rates(n, o.Earlier)))
	if err := run.encode(ctx, rates, &result, o.Progress); err != nil {
		return ChunkResult{}, err
	}
	for range maxCorrections {
		before := result.Stats()
		again := plan.corrected(n, o.Earlier, before)
		if len(again) == 0 {
			break
		}
		if err := run.encode(ctx, again, &result, nil); err != nil {
			return ChunkResult{}, err
		}
		for i := range again {
			result.Renditions[i].Before = before.Renditions[i].alone()
		}
	}
	return result, nil
}

// maxCorrections bounds how often a chunk is encoded again: see Plan.corrected.
const maxCorrections = 2

type chunkRun struct {
	engine Engine
	plan   Plan
	n      int
	source *media.Track
	table  frames
}

// encode encodes the renditions that have a rate, with one decode for each core, and puts their results into
// result.
func (c chunkRun) encode(ctx context.Context, rates map[int]encodeRate, result *ChunkResult, progress func(float64)) error {
	chunk, encoded := c.plan.Chunks[c.n], c.plan.encoded()
	which := slices.Sorted(maps.Keys(rates))
	tasks := make([]encodeTask, len(which))
	writers := make([]*trackWriter, len(which))
	factors := make([]float64, len(which))
	for k, i := range which {
		r := encoded[i]
		writers[k] = &trackWriter{store: c.engine.Store, prefix: c.plan.Prefix + "/" + r.Dir, first: chunk.First}
		tasks[k] = encodeTask{
			rendition: c.plan.rendition(r, rates[i]),
			consume:   stretch{rendition: r, writer: writers[k], segments: c.plan.expected(chunk, r, c.table)}.read,
			factor:    &factors[k],
		}
		tasks[k].rendition.Keys = c.plan.keys(chunk, r, c.table)
		for segment := range chunk.Segments {
			tasks[k].frames += float64(c.plan.segmentFrames(r, chunk.First+segment))
		}
	}
	damage, err := c.engine.encodeTasks(ctx, c.plan, tasks, chunk.Cores, progress, func(ctx context.Context, encode *ffmpeg.Encode) ffmpeg.Command {
		encode.Start, encode.End = chunk.Start, chunk.End
		needed := c.plan.within(chunk, c.table.needed(chunk.Start, chunk.End+c.plan.overlap()))
		return ffmpeg.Command{Stdin: newFeed(ctx, c.source, needed), Priority: urgency(c.n)}
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.n, err)
	}
	for k, i := range which {
		r := writers[k].result(encoded[i].Name)
		r.Quality, r.Bitrate, r.Factor = rates[i].Quality, rates[i].Bitrate, factors[k]
		result.Renditions[i] = r
	}
	result.Damage.Merge(damage)
	return nil
}

// encodeTask is a rendition that ffmpeg encodes, and the reader of its output.
type encodeTask struct {
	rendition ffmpeg.Rendition
	frames    float64 // expected number, about
	consume   func(context.Context, io.Reader) error
	factor    *float64 // gets the quality that x264 used to meet a bitrate; may be nil
}

// encodeTasks runs the tasks in as many processes as there are cores, with about equal numbers of pixels.
// Which tasks share a process depends on nothing but the tasks. prepare completes the plan of a process
// and returns the input of its command.
func (e Engine) encodeTasks(
	ctx context.Context, plan Plan, tasks []encodeTask, cores int, progress func(float64),
	prepare func(context.Context, *ffmpeg.Encode) ffmpeg.Command,
) (damage ffmpeg.Damage, err error) {
	shares := shareOut(tasks, cores)
	report := &progressSum{report: progress, done: make([]float64, len(shares))}
	damages := make([]ffmpeg.Damage, len(shares))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, tasks := range shares {
		group.Go(func() error {
			encode := plan.encode(tasks)
			command := prepare(groupCtx, &encode)
			command.Args, command.Pixels, command.Damage = encode.Args(), plan.pixels(tasks), &damages[i]
			command.Progress, command.Log = report.of(i, tasks[0].frames), factorsOf(tasks)
			var consumers []func(context.Context, io.Reader) error
			for _, task := range tasks {
				consumers = append(consumers, task.consume)
			}
			return runPipes(groupCtx, e.FFmpeg, command, consumers)
		})
	}
	err = group.Wait()
	for _, d := range damages {
		damage.Merge(d)
	}
	return damage, err
}

// factorsOf returns the Command.Log that sets the factors of tasks; nil when there are none.
func factorsOf(tasks []encodeTask) func(line string) {
	var x264 []*float64
	wanted := false
	for _, task := range tasks {
		if task.rendition.Codec == ffmpeg.H264 {
			x264 = append(x264, task.factor)
			wanted = wanted || task.factor != nil && task.rendition.Quality == 0
		}
	}
	if !wanted {
		return nil
	}
	return ffmpeg.RateFactors(func(encoder int, factor float64) {
		if encoder < len(x264) {
			*x264[encoder] = factor
		}
	})
}

// shareOut divides tasks by their numbers of pixels.
func shareOut(tasks []encodeTask, cores int) [][]encodeTask {
	cores = min(max(cores, 1), len(tasks))
	pixels := func(t encodeTask) int { return t.rendition.Width * t.rendition.Height }
	shares, sums := make([][]encodeTask, cores), make([]int, cores)
	for _, task := range slices.SortedStableFunc(slices.Values(tasks), func(a, b encodeTask) int { return cmp.Compare(pixels(b), pixels(a)) }) {
		smallest := slices.Index(sums, slices.Min(sums))
		shares[smallest] = append(shares[smallest], task)
		sums[smallest] += pixels(task)
	}
	return shares
}

// urgency returns a higher priority for the first chunk, because viewers may be waiting for it.
func urgency(chunk int) ffmpeg.Priority {
	if chunk == 0 {
		return ffmpeg.Interactive
	}
	return ffmpeg.Batch
}

// progressSum adds up the progress of several runs of ffmpeg.
type progressSum struct {
	mu     sync.Mutex
	done   []float64
	report func(float64) // may be nil
}

// of returns the Command.Progress of a run whose first output has that many frames.
func (s *progressSum) of(share int, frames float64) func(ffmpeg.Progress) {
	if s.report == nil || !(frames > 0) {
		return nil
	}
	return func(p ffmpeg.Progress) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.done[share] = min(float64(p.Frame)/frames, 1)
		sum := 0.0
		for _, done := range s.done {
			sum += done
		}
		s.report(sum / float64(len(s.done)))
	}
}

// encode returns the plan of a run of ffmpeg, without its window.
func (p *Plan) encode(tasks []encodeTask) ffmpeg.Encode {
	encode := ffmpeg.Encode{
		Lead: cmaf.Lead, Video: p.Source.Video.Stream.VideoFormat(), Timescale: p.Timescale,
		Tick: p.Tick, Rate: p.Rate, Threads: 1,
	}
	for _, task := range tasks {
		encode.Renditions = append(encode.Renditions, task.rendition)
	}
	return encode
}

// rendition returns the plan of a rendition, without its key frames.
func (p *Plan) rendition(r Rendition, rate encodeRate) ffmpeg.Rendition {
	rendition := ffmpeg.Rendition{
		Codec: r.Codec, Width: r.Width, Height: r.Height, Rate: r.Rate, Profile: r.Profile,
		Bitrate: rate.Bitrate, Quality: rate.Quality, Peak: rate.Peak, Buffer: rate.Buffer,
	}
	if r.GOP == 0 {
		rendition.GOP = 1
	}
	return rendition
}

func (p *Plan) pixels(tasks []encodeTask) int64 {
	stream := p.Source.Video.Stream
	total := int64(stream.Width) * int64(stream.Height)
	for _, task := range tasks {
		total += int64(task.rendition.Width) * int64(task.rendition.Height)
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

// keys returns the times of key frames of rendition r in a chunk: at the start of every segment, and in regular
// intervals within.
func (p *Plan) keys(chunk Chunk, r Rendition, table frames) []int64 {
	var keys []int64
	for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
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
			if found := table.between(t, end); !r.converts() && len(found) > 0 {
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

// expected returns the times of the frames of rendition r in each segment of a chunk, and the end of the chunk, in
// ticks of a timescale.
func (p *Plan) expected(chunk Chunk, r Rendition, table frames) func(scale int64) (segments [][]int64, end int64) {
	return func(scale int64) (segments [][]int64, end int64) {
		for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
			if !r.converts() {
				segments = append(segments, table.between(p.Starts[n], p.segmentEnd(n)))
				continue
			}
			var times []int64
			from, to := frameAt(r.Rate, p.Timescale, p.Starts[n]), frameAt(r.Rate, p.Timescale, p.segmentEnd(n))
			for i := from; i < to; i++ {
				times = append(times, i*r.Rate.Den*scale/r.Rate.Num)
			}
			segments = append(segments, times)
		}
		if !r.converts() {
			return segments, chunk.End
		}
		return segments, frameAt(r.Rate, p.Timescale, chunk.End) * r.Rate.Den * scale / r.Rate.Num
	}
}

// stretch reads a rendition of a chunk from a pipe.
type stretch struct {
	rendition Rendition
	writer    *trackWriter
	segments  func(scale int64) ([][]int64, int64)
}

func (s stretch) read(ctx context.Context, r io.Reader) error {
	reader, track, err := openTrack(r, cmaf.Video)
	if err == nil && reader == nil {
		err = errors.New("no frame came out")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.rendition.Name, err)
	}
	track.Delay = s.rendition.delay(track)
	s.writer.begin(ctx, track, 2, func(cmaf.Contents, int64, cmaf.Sample) bool { return false })
	segments, end := s.segments(int64(track.Timescale))
	source := sampleReader{reader: reader, lead: track.Ticks(cmaf.Lead)}
	for i, times := range segments {
		next := end
		if i+1 < len(segments) && len(segments[i+1]) > 0 {
			next = segments[i+1][0]
		}
		f, err := source.take(len(times))
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return weir.Wrap(weir.Invalid, err, "%s: the video is damaged: only %d of %d frames from %v on can be decoded",
				badSource, len(f.Samples), len(times), track.Time(times[0]).Round(time.Millisecond))
		}
		if err != nil {
			return fmt.Errorf("%s, segment %d: %w", s.rendition.Name, s.writer.first+i, err)
		}
		if err := settle(&f, times, next, int64(track.Timescale)); err != nil {
			return fmt.Errorf("%s, segment %d: %w", s.rendition.Name, s.writer.first+i, err)
		}
		if err := s.writer.add(f); err != nil {
			return err
		}
		if err := s.writer.finish(); err != nil {
			return err
		}
	}
	if extra, err := source.take(1); !errors.Is(err, io.ErrUnexpectedEOF) {
		if err == nil {
			err = fmt.Errorf("there are more frames than planned, the first at %v", track.Time(extra.Start))
		}
		return fmt.Errorf("%s: %w", s.rendition.Name, err)
	}
	return nil
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

// take returns the next n samples, or io.ErrUnexpectedEOF if there are less.
func (r *sampleReader) take(n int) (cmaf.Fragment, error) {
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

// settle gives the frames of a segment the times of the plan, which may differ from the encoder's only by
// rounding: the i-th time is the presentation time of the i-th frame in display order, and the decode time of the
// i-th frame in decode order. next is the start of the next segment.
func settle(f *cmaf.Fragment, times []int64, next, timescale int64) error {
	if len(f.Samples) == 0 {
		return errors.New("it is empty")
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
		return errors.New("a frame is shown before the key frame that it starts with")
	}
	near := max(timescale/500, 1) // two milliseconds
	for rank, i := range order {
		if d := shown[i] - times[rank]; d > near || d < -near {
			return fmt.Errorf("frame %d is at %.4f seconds, should be at %.4f",
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
			return fmt.Errorf("frame %d lasts no time", i)
		}
		f.Samples[i].Duration = uint32(until - times[i])
	}
	f.Start = times[0]
	return nil
}
