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

// encodeRate is what the encoder of one rendition is told to spend in a chunk.
type encodeRate struct {
	Bitrate int     // bits a second, mean; 0 = by Quality
	Quality float64 // constant rate factor; 0 = by Bitrate
	Peak    int     // bits a second, at most; 0 = no limit
	Buffer  int     // bits over which Peak counts
}

// ChunkOptions say how a chunk is encoded.
type ChunkOptions struct {
	Earlier  []ChunkStats // of the chunks that Plan.Needs asks for
	File     string       // the source, when it could not be taken apart
	Progress func(share float64)
}

// EncodeChunk encodes chunk n as every rendition that needs it, from one decode, and
// stores the segments. Every segment must have the frames of the plan, with their
// times, and start with a key frame. Renditions that come out far from what they should
// have are encoded again.
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
	rates := map[int]encodeRate{}
	for i, rate := range plan.rates(n, o.Earlier) {
		rates[i] = rate
	}
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

// maxCorrections is how often a chunk is encoded again: see Plan.corrected.
const maxCorrections = 2

// chunkRun encodes a chunk.
type chunkRun struct {
	engine Engine
	plan   Plan
	n      int
	source *media.Track
	table  frames
}

// encode makes the renditions that have a rate, from one decode for each core, and puts
// what came of them into result.
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
	report := newShares(progress, chunk.Cores)
	damage := make([]ffmpeg.Damage, max(chunk.Cores, 1))
	err := shareOut(ctx, tasks, chunk.Cores, func(ctx context.Context, share int, tasks []encodeTask) error {
		encode := c.plan.encode(tasks)
		encode.Start, encode.End = chunk.Start, chunk.End
		command := ffmpeg.Command{
			Args: encode.Args(), Stdin: newFeed(ctx, c.source, c.plan.within(chunk, c.table.needed(chunk.Start, chunk.End+c.plan.overlap()))),
			Priority: urgency(c.n), Pixels: c.plan.pixels(tasks),
			Progress: report.of(share, tasks[0].frames),
			Log:      factorsOf(tasks),
			Damage:   &damage[share],
		}
		return runPipes(ctx, c.engine.FFmpeg, command, consumersOf(tasks))
	})
	if err != nil {
		return fmt.Errorf("chunk %d: %w", c.n, err)
	}
	for k, i := range which {
		r := writers[k].result(encoded[i].Name)
		r.Quality, r.Bitrate, r.Factor = rates[i].Quality, rates[i].Bitrate, factors[k]
		result.Renditions[i] = r
	}
	for _, d := range damage {
		result.Damage.Merge(d)
	}
	return nil
}

// encodeTask is a rendition that ffmpeg encodes, and who takes it.
type encodeTask struct {
	rendition ffmpeg.Rendition
	frames    float64 // that are expected, about
	consume   func(context.Context, io.Reader) error
	factor    *float64 // where the quality goes that x264 ended up with, when it was told a bitrate
}

// factorsOf returns what listens to ffmpeg for those qualities; nil when there are none.
func factorsOf(tasks []encodeTask) func(line string) {
	var x264 []*float64
	told := false
	for _, task := range tasks {
		if task.rendition.Codec == ffmpeg.H264 {
			x264 = append(x264, task.factor)
			told = told || task.rendition.Quality == 0
		}
	}
	if !told {
		return nil
	}
	return ffmpeg.RateFactors(func(encoder int, factor float64) {
		if encoder < len(x264) {
			*x264[encoder] = factor
		}
	})
}

func consumersOf(tasks []encodeTask) (consumers []func(context.Context, io.Reader) error) {
	for _, task := range tasks {
		consumers = append(consumers, task.consume)
	}
	return consumers
}

// shareOut runs the tasks in as many shares as there are cores, about equally heavy.
// How they are shared out depends on nothing but the tasks.
func shareOut(ctx context.Context, tasks []encodeTask, cores int, run func(ctx context.Context, share int, tasks []encodeTask) error) error {
	cores = min(max(cores, 1), len(tasks))
	order := make([]int, len(tasks))
	for i := range order {
		order[i] = i
	}
	weight := func(i int) int { return tasks[i].rendition.Width * tasks[i].rendition.Height }
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(weight(b), weight(a)) })
	shares, weights := make([][]encodeTask, cores), make([]int, cores)
	for _, i := range order {
		lightest := slices.Index(weights, slices.Min(weights))
		shares[lightest] = append(shares[lightest], tasks[i])
		weights[lightest] += weight(i)
	}
	group, ctx := errgroup.WithContext(ctx)
	for share, tasks := range shares {
		group.Go(func() error { return run(ctx, share, tasks) })
	}
	return group.Wait()
}

// urgency puts what somebody may be waiting to play before the rest.
func urgency(chunk int) ffmpeg.Priority {
	if chunk == 0 {
		return ffmpeg.Interactive
	}
	return ffmpeg.Batch
}

// shares adds up how far several runs of ffmpeg are.
type shares struct {
	mu     sync.Mutex
	done   []float64
	report func(float64)
}

func newShares(report func(float64), count int) *shares {
	return &shares{report: report, done: make([]float64, max(count, 1))}
}

// of returns what a run calls whose first output has so many frames.
func (s *shares) of(share int, frames float64) func(ffmpeg.Progress) {
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

// encode is a run of ffmpeg, but for its window.
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

// rendition is what ffmpeg is told of a rendition, but for its key frames.
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

// pixels is what ffmpeg's need of memory follows from.
func (p *Plan) pixels(tasks []encodeTask) int64 {
	stream := p.Source.Video.Stream
	total := int64(stream.Width) * int64(stream.Height)
	for _, task := range tasks {
		total += int64(task.rendition.Width) * int64(task.rendition.Height)
	}
	return total
}

// overlap is how far behind the end of a chunk frames count for it, in ticks: where
// the frame rate changes, a frame is shown at the nearest time there is one.
func (p *Plan) overlap() int64 {
	var overlap int64
	for _, r := range p.encoded() {
		if r.converts() {
			overlap = max(overlap, p.Timescale*r.Rate.Den/r.Rate.Num+1)
		}
	}
	return overlap
}

// keys returns where rendition r has key frames in a chunk: at the start of every
// segment, and again and again within.
func (p *Plan) keys(chunk Chunk, r Rendition, table frames) []int64 {
	var keys []int64
	for n := chunk.First; n < chunk.First+chunk.Segments; n++ {
		start, end := p.Starts[n], p.segmentEnd(n)
		keys = append(keys, start)
		if r.GOP == 0 {
			continue
		}
		// As many as it takes, all of the same length: a short one at the end would waste a
		// key frame.
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
		// A time between two frames of the rendition's own rate may be rounded to the first.
		for i, key := range keys {
			frame := frameAt(r.Rate, p.Timescale, key)
			keys[i] = (frame*r.Rate.Den*p.Timescale + r.Rate.Num - 1) / r.Rate.Num
		}
	}
	return slices.Compact(keys)
}

// expected returns the times of the frames that rendition r has in each segment of a
// chunk, in ticks of its own timescale, and after them when the chunk ends.
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

// stretch takes a rendition of a chunk off a pipe.
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

// delay returns the Delay of the rendition's track.
func (r Rendition) delay(track cmaf.Track) int64 {
	return int64(math.Ceil(r.Delay * float64(track.Timescale)))
}

// sampleReader takes a number of samples at once off a reader. The offsets of what
// it returns are replaced by presentation times: see settle.
type sampleReader struct {
	reader *cmaf.Reader
	lead   int64
	left   cmaf.Fragment
}

// take returns the next n samples. An error that is io.ErrUnexpectedEOF says that
// there are less.
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

// settle gives the frames of a segment the times of the plan, of which the encoder's
// may differ only by rounding: the i-th frame shown gets the i-th time, and
// the i-th frame decoded is decoded then. next is when the next segment starts.
func settle(f *cmaf.Fragment, times []int64, next, timescale int64) error {
	if len(f.Samples) == 0 {
		return errors.New("it is empty")
	}
	if !f.Samples[0].Sync {
		return errors.New("it does not start with a key frame")
	}
	shown := f.PTS()
	order := make([]int, len(shown)) // of being shown
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
