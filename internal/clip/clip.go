// Package clip cuts a window of time out of tracks, whether they are complete or still grow, and makes
// tracks of it: [Cut] out of stored tracks, [CutFile] out of a file.
//
// A clip has the frames of a source that are shown in the window. Frames depend on the key frame before
// them, so the first frames of the clip are encoded, up to the first key frame in the window; all others are
// copied, whole segments as they are. At the end, frames may depend on later ones, which the clip does not
// have: then the frames after the last key frame are encoded too. So the cost does not depend on the length.
//
// The clip keeps the timeline of its source. What is encoded has parameter sets of its own, under an id that
// the source does not use, so that one init segment has both: see [codec.Merge]. A video that can't be
// continued by our encoders is encoded as a whole.
package clip

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/vod"
	"weir/internal/weir"
)

// Source has the tracks that a clip is cut from. They share a timeline.
type Source struct {
	Video *media.Track // nil = there is none
	Audio []*media.Track

	// Track describes the video, for one that can't be copied; nil = it is found out.
	Track *ffmpeg.Track
	// Whole is why the video can't be copied; "" = that depends on its coding.
	Whole string
}

// Options select a clip.
type Options struct {
	Prefix     string              // of the clip's tracks in the store
	Start, End time.Duration       // on the timeline of the source
	Dir        string              // for temporary files
	Progress   func(share float64) // may be nil
}

// Result describes a clip that can be played.
type Result struct {
	Recording media.Recording

	Encoded int    // frames of video
	Copied  int    // frames of video
	Whole   string // why all frames were encoded; "" = only those at the edges were
}

// slack is how far a requested time may be from that of the frame that it means: callers round times to
// milliseconds, up or down.
const slack = time.Millisecond

// Cut cuts a clip, stores it in the store of the engine, and makes it playable. It can be repeated. An error
// of kind weir.NotFound means that the source has nothing in the window.
func Cut(ctx context.Context, e vod.Engine, source Source, o Options) (Result, error) {
	c := &maker{Engine: e, source: source, o: o}
	var tracks []*media.Track
	c.start, c.end = o.Start-slack, o.End-slack
	if source.Video != nil {
		if err := c.cutVideo(ctx); err != nil {
			return Result{}, err
		}
		prefix := o.Prefix + "/" + media.RecordedVideo
		if err := media.Seal(ctx, e.Store, prefix, c.video); err != nil {
			return Result{}, err
		}
		tracks = append(tracks, media.NewTrack(e.Store, prefix, c.video))
	}
	for k, audio := range source.Audio {
		track, err := c.cutAudio(ctx, k, audio)
		if weir.IsNotFound(err) && (len(tracks) > 0 || k+1 < len(source.Audio)) {
			continue // this audio track has a gap there
		}
		if err != nil {
			return Result{}, err
		}
		tracks = append(tracks, track)
	}
	if len(tracks) == 0 {
		return Result{}, weir.Errorf(weir.NotFound, "the source has neither video nor audio")
	}
	recording, err := media.Present(ctx, e.Store, o.Prefix, tracks)
	return Result{Recording: recording, Encoded: c.encoded, Copied: c.copied, Whole: c.whole}, err
}

// maker holds a clip that is being cut.
type maker struct {
	vod.Engine
	source     Source
	o          Options
	start, end time.Duration // of the frames that belong to it

	video   cmaf.TrackIndex
	encoded int
	copied  int
	whole   string
}

// cutVideo makes the video of the clip.
func (c *maker) cutVideo(ctx context.Context) error {
	index := c.source.Video.Index()
	runs := runsOf(index, c.start, c.end)
	for _, run := range runs {
		run.alone = len(runs) == 1
		if err := c.cutRun(ctx, run); err != nil {
			return err
		}
	}
	if len(c.video.Segments) == 0 {
		return weir.Errorf(weir.NotFound, "the source has no frame between %v and %v", c.o.Start, c.o.End)
	}
	c.video = c.video.OneCoding()
	return nil
}

// run is a part of a video without a gap and with one coding: the segments that the clip may need frames
// of. Times are ticks.
type run struct {
	track      cmaf.Track
	start, end int64 // of the clip
	index      cmaf.TrackIndex
	table      cmaf.Frames
	samples    []sample // in decode order
	from       int      // the first sample that is copied
	to         int      // the first sample after it that is not copied
	open       bool     // frames around a key frame need frames before it
	alone      bool     // the clip has no other

	made []cmaf.Segment // of the clip
}

// sample is a frame of the source.
type sample struct {
	segment, part, sample int
	shown                 int64
	sync                  bool
	clean                 bool // all frames that are decoded before it are shown before it, and no others
}

// runsOf returns the parts of a video that a clip needs.
func runsOf(index cmaf.TrackIndex, start, end time.Duration) []run {
	var runs []run
	for first := 0; first < len(index.Segments); {
		last := first + 1
		for last < len(index.Segments) && !index.Segments[last].Discontinuity && index.InitOf(last) == index.InitOf(first) {
			last++
		}
		if run := newRun(index, first, last, start, end); len(run.shown()) > 0 {
			runs = append(runs, run)
		}
		first = last
	}
	return runs
}

// newRun returns the part of a clip in the segments from first up to last, which have no gap.
func newRun(index cmaf.TrackIndex, first, last int, start, end time.Duration) run {
	r := run{track: index.TrackOf(first), index: index}
	r.start, r.end = r.track.Ticks(start), r.track.Ticks(end)
	// One segment more on each side: B-frames may be in the segment after that in which they are shown.
	overlaps := func(n int) bool {
		s := index.Segments[n]
		return s.ShownUntil() > r.start && s.Start() < r.end
	}
	var segments []int
	for n := first; n < last; n++ {
		if !index.Segments[n].Gap() && (overlaps(n) || n+1 < last && overlaps(n+1) || n > first && overlaps(n-1)) {
			segments = append(segments, n)
		}
	}
	// Files with few key frames have segments with which decoding can't start.
	for len(segments) > 0 && segments[0] > first && !index.Segments[segments[0]].Sync() && !index.Segments[segments[0]-1].Gap() {
		segments = slices.Insert(segments, 0, segments[0]-1)
	}
	for _, n := range segments {
		r.addSamples(n, index.Segments[n])
	}
	r.table = cmaf.FramesOf(index, segments)
	latest := int64(math.MinInt64)
	for i := range r.samples {
		// As many frames are shown before it as are decoded before it: then they are the same, if none of them
		// is shown later.
		r.samples[i].clean = latest < r.samples[i].shown && r.table.Times[i] == r.samples[i].shown
		latest = max(latest, r.samples[i].shown)
	}
	return r
}

func (r *run) addSamples(n int, segment cmaf.Segment) {
	for p, part := range segment.Parts {
		at := part.Start
		for i, s := range part.Samples {
			r.samples = append(r.samples, sample{segment: n, part: p, sample: i, shown: at + int64(s.Offset), sync: s.Sync})
			at += int64(s.Duration)
		}
	}
}

// shown returns the times of the frames of the clip.
func (r *run) shown() []int64 { return r.table.Between(r.start, r.end) }

// wall returns the date of a time of the run; zero = it is not known.
func (r *run) wall(t int64) time.Time {
	s := r.index.Segments[r.samples[0].segment]
	if s.Wall.IsZero() {
		return s.Wall
	}
	return s.Wall.Add(r.track.Time(t - s.Start()))
}

// choose decides which samples are copied. key reports whether a decoder can start with a sample, whatever
// was decoded before.
func (r *run) choose(key func(sample) (bool, error)) error {
	shown := r.shown()
	before, _ := slices.BinarySearch(r.table.Times, shown[0])
	for i := before; i > 0 && i < len(r.samples) && r.from == 0; i++ {
		s := r.samples[i]
		if !s.sync || s.shown < r.start || s.shown >= r.end {
			continue
		}
		ok, err := key(s)
		if err != nil {
			return err
		}
		if ok = ok && s.clean; ok {
			r.from = i
		}
		r.open = r.open || !ok
	}
	r.to = before + len(shown)
	if before > 0 && r.from == 0 { // there is no such key frame
		r.to = 0
		return nil
	}
	for r.to < len(r.samples) && r.to > r.from && !r.samples[r.to].clean {
		// Some of the frames before the end need frames after it.
		r.to--
		for r.to > r.from && !(r.samples[r.to].sync && r.samples[r.to].clean) {
			r.to--
		}
	}
	if r.to <= r.from {
		r.from, r.to = 0, 0
	}
	return nil
}

// cutRun makes a part of the clip: frames that are encoded, frames that are copied, frames that are encoded.
func (c *maker) cutRun(ctx context.Context, r run) error {
	shown := r.shown()
	coder, err := c.newEdgeCoder(ctx, &r)
	if err != nil {
		return err
	}
	if coder.whole == "" {
		if err := r.choose(func(s sample) (bool, error) { return c.decodable(ctx, r.track, s) }); err != nil {
			return err
		}
	}
	head, tail := shown, []int64(nil)
	if r.to > 0 {
		head, _ = split(shown, r.samples[r.from].shown)
		if r.to < len(r.samples) {
			_, tail = split(shown, r.samples[r.to].shown)
		}
	} else if c.whole == "" {
		c.whole = coder.whole
		if r.open {
			c.whole = "its groups of pictures are open"
		}
	}
	if r.alone {
		r.track.Delay = r.delay()
	}
	if err := c.encode(ctx, &r, coder, head); err != nil {
		return err
	}
	if err := c.copy(ctx, &r); err != nil {
		return err
	}
	if err := c.encode(ctx, &r, coder, tail); err != nil {
		return err
	}
	track, err := coder.merged(r.track)
	appendRun(&c.video, track, r.made, len(c.video.Segments) > 0, r.wall)
	return err
}

// split divides times at t.
func split(times []int64, t int64) (before, after []int64) {
	i, _ := slices.BinarySearch(times, t)
	return times[:i], times[i:]
}

// appendRun adds segments without a gap to a track. wall returns the date of a time; gap = there is a gap before
// them.
func appendRun(to *cmaf.TrackIndex, track cmaf.Track, segments []cmaf.Segment, gap bool, wall func(int64) time.Time) {
	at := len(to.Segments)
	if at == 0 {
		to.Track = track
	} else if !sameCoding(to.TrackOf(at-1), track) {
		to.Changes = append(to.Changes, cmaf.Change{First: at, Track: track})
	}
	for i, s := range segments {
		s.Wall, s.Discontinuity = wall(s.Start()), gap && i == 0
		to.Segments = append(to.Segments, s)
	}
}

func sameCoding(a, b cmaf.Track) bool {
	return bytes.Equal(a.Entry, b.Entry) && a.Timescale == b.Timescale && a.Delay == b.Delay
}

// eachCopied calls do for each segment that samples are copied of, with the first of them and the one after the
// last. whole says that these are all samples of the segment.
func (r *run) eachCopied(do func(from, to int, whole bool) error) error {
	for i := r.from; i < r.to; {
		n, end := r.samples[i].segment, i
		for end < r.to && r.samples[end].segment == n {
			end++
		}
		if err := do(i, end, end-i == r.index.Segments[n].Frames()); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// delay returns the Delay of what is made of the run: that of the source if segments are copied as they are, else
// what the copied samples need. hls.js begins that much before the first frame: a clip of twelve frames, which are
// 33.3 ms apart, did not start in Chromium with 67.6 ms.
func (r *run) delay() int64 {
	asItIs, needed := false, int64(0)
	_ = r.eachCopied(func(from, to int, whole bool) error {
		asItIs = asItIs || whole
		for _, s := range r.samples[from:to] {
			sample := r.index.Segments[s.segment].Parts[s.part].Samples[s.sample]
			needed = max(needed, -int64(sample.Offset))
		}
		return nil
	})
	if asItIs {
		return r.track.Delay
	}
	return min(needed, cmaf.MaxDelaySeconds*int64(r.track.Timescale))
}

// copy adds the samples that are copied. Whole segments are not read.
func (c *maker) copy(ctx context.Context, r *run) error {
	return r.eachCopied(func(i, end int, whole bool) error {
		n := r.samples[i].segment
		segment := r.index.Segments[n]
		if whole {
			key := media.SegmentKey(c.o.Prefix+"/"+media.RecordedVideo, len(c.video.Segments)+len(r.made))
			if err := c.source.Video.Share(ctx, n, c.Store, key); err != nil {
				return err
			}
			r.made = append(r.made, segment)
		} else if err := c.repack(ctx, r, r.samples[i:end]); err != nil {
			return err
		}
		c.copied += end - i
		return nil
	})
}

// repack stores samples of one segment as a new segment.
func (c *maker) repack(ctx context.Context, r *run, samples []sample) error {
	w := c.segmentWriter(r, r.track)
	fragments, err := c.source.Video.Fragments(ctx, samples[0].segment)
	if err != nil {
		return err
	}
	for p, f := range fragments {
		first, end := -1, 0 // samples of the part
		for _, s := range samples {
			if s.part == p {
				if first < 0 {
					first = s.sample
				}
				end = s.sample + 1
			}
		}
		if first < 0 {
			continue
		}
		skipped := f.Samples[:first]
		data := f.Data[cmaf.Bytes(skipped):][:cmaf.Bytes(f.Samples[first:end])]
		if err := w.Add(ctx, cmaf.Fragment{Start: f.Start + cmaf.Span(skipped), Samples: f.Samples[first:end], Data: data}); err != nil {
			return err
		}
	}
	err = w.Finish(ctx)
	r.made = append(r.made, w.Index().Segments...)
	return err
}

// segmentWriter returns a writer of the next segment of the clip's video.
func (c *maker) segmentWriter(r *run, track cmaf.Track) *media.Writer {
	w := &media.Writer{Store: c.Store, Prefix: c.o.Prefix + "/" + media.RecordedVideo, First: len(c.video.Segments) + len(r.made)}
	w.Begin(track, time.Second, nil)
	return w
}

// report tells the caller how much of the video is done.
func (c *maker) report(at time.Duration) {
	if length := c.o.End - c.o.Start; c.o.Progress != nil && length > 0 {
		c.o.Progress(min(max(float64(at-c.o.Start)/float64(length), 0), 1))
	}
}

// audioName returns the name of audio track k of a clip.
func audioName(k int) string {
	if k == 0 {
		return media.RecordedAudio
	}
	return fmt.Sprint(media.RecordedAudio, k)
}
