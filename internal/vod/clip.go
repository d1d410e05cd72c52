package vod

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
	"weir/internal/weir"
)

// A clip has the frames of a source that are shown in a window of time. Frames depend on the key frame before
// them, so the first frames of the clip are encoded, up to the first key frame in the window; all others are
// copied, whole segments as they are. At the end, frames may depend on later ones, which the clip does not
// have: then the frames after the last key frame are encoded too. So the cost does not depend on the length.
//
// The clip keeps the timeline of its source. What is encoded has parameter sets of its own, under an id that
// the source does not use, so that one init segment has both: see [codec.Merge]. A video that can't be
// continued by our encoders is encoded as a whole.

// ClipSource has the tracks that a clip is cut from. They share a timeline.
type ClipSource struct {
	Video *media.Track // nil = there is none
	Audio []*media.Track

	// Stream describes the video, for one that can't be copied; nil = it is found out.
	Stream *ffmpeg.Stream
	// Whole is why the video can't be copied; "" = that depends on its coding.
	Whole string
}

// ClipOptions select a clip.
type ClipOptions struct {
	Prefix     string              // of the clip's tracks in the store
	Start, End time.Duration       // on the timeline of the source
	Dir        string              // for temporary files
	Progress   func(share float64) // may be nil
}

// ClipResult describes a clip that can be played.
type ClipResult struct {
	Recording media.Recording

	Encoded int    // frames of video
	Copied  int    // frames of video
	Whole   string // why all frames were encoded; "" = only those at the edges were
}

// clipSlack is how far a requested time may be from that of the frame that it means: callers round times to
// milliseconds, up or down.
const clipSlack = time.Millisecond

// Clip cuts a clip and makes it playable. It can be repeated. An error of kind weir.NotFound means that the
// source has nothing in the window.
func (e Engine) Clip(ctx context.Context, source ClipSource, o ClipOptions) (ClipResult, error) {
	c := &clipMaker{Engine: e, source: source, o: o}
	var tracks []*media.Track
	c.start, c.end = o.Start-clipSlack, o.End-clipSlack
	if source.Video != nil {
		if err := c.cutVideo(ctx); err != nil {
			return ClipResult{}, err
		}
		prefix := o.Prefix + "/" + sourceDir
		if err := media.Seal(ctx, e.Store, prefix, c.video); err != nil {
			return ClipResult{}, err
		}
		tracks = append(tracks, media.NewTrack(e.Store, prefix, c.video))
	}
	for k, audio := range source.Audio {
		track, err := c.cutAudio(ctx, k, audio)
		if weir.IsNotFound(err) && (len(tracks) > 0 || k+1 < len(source.Audio)) {
			continue // nobody spoke in that language then
		}
		if err != nil {
			return ClipResult{}, err
		}
		tracks = append(tracks, track)
	}
	if len(tracks) == 0 {
		return ClipResult{}, weir.Errorf(weir.NotFound, "there is neither video nor audio to cut")
	}
	recording, err := media.Present(ctx, e.Store, o.Prefix, tracks)
	return ClipResult{Recording: recording, Encoded: c.encoded, Copied: c.copied, Whole: c.whole}, err
}

// clipMaker holds a clip that is being cut.
type clipMaker struct {
	Engine
	source     ClipSource
	o          ClipOptions
	start, end time.Duration // of the frames that belong to it

	video   cmaf.TrackIndex
	encoded int
	copied  int
	whole   string
}

// cutVideo makes the video of the clip.
func (c *clipMaker) cutVideo(ctx context.Context) error {
	index := c.source.Video.Index()
	runs := clipRuns(index, c.start, c.end)
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

// clipRun is a part of a video without a gap and with one coding: the segments that the clip may need frames
// of. Times are ticks.
type clipRun struct {
	track      cmaf.Track
	start, end int64 // of the clip
	index      cmaf.TrackIndex
	table      frames
	samples    []clipSample // in decode order
	from       int          // the first sample that is copied
	to         int          // the first sample after it that is not copied
	open       bool         // frames around a key frame need frames before it
	alone      bool         // the clip has no other

	made []cmaf.Segment // of the clip
}

// clipSample is a frame of the source.
type clipSample struct {
	segment, part, sample int
	shown                 int64
	sync                  bool
	clean                 bool // all frames that are decoded before it are shown before it, and no others
}

// clipRuns returns the parts of a video that a clip needs.
func clipRuns(index cmaf.TrackIndex, start, end time.Duration) []clipRun {
	var runs []clipRun
	for first := 0; first < len(index.Segments); {
		last := first + 1
		for last < len(index.Segments) && !index.Segments[last].Discontinuity && index.InitOf(last) == index.InitOf(first) {
			last++
		}
		if run := newClipRun(index, first, last, start, end); len(run.shown()) > 0 {
			runs = append(runs, run)
		}
		first = last
	}
	return runs
}

// newClipRun returns the part of a clip in the segments from first up to last, which have no gap.
func newClipRun(index cmaf.TrackIndex, first, last int, start, end time.Duration) clipRun {
	r := clipRun{track: index.TrackOf(first), index: index}
	r.start, r.end = r.track.Ticks(start), r.track.Ticks(end)
	r.table = frames{timescale: int64(r.track.Timescale)}
	// One segment more on each side: B-frames may be in the segment after that in which they are shown.
	overlaps := func(n int) bool {
		s := index.Segments[n]
		return s.ShownUntil() > r.start && s.Start() < r.end
	}
	for n := first; n < last; n++ {
		if index.Segments[n].Gap() || !overlaps(n) && !(n+1 < last && overlaps(n+1)) && !(n > first && overlaps(n-1)) {
			continue
		}
		r.table.add(n, index.Segments[n], math.MinInt64, math.MaxInt64)
		r.table.end = max(r.table.end, index.Segments[n].ShownUntil())
		r.addSamples(n, index.Segments[n])
	}
	slices.Sort(r.table.times)
	latest := int64(math.MinInt64)
	for i := range r.samples {
		// As many frames are shown before it as are decoded before it: then they are the same, if none of them
		// is shown later.
		r.samples[i].clean = latest < r.samples[i].shown && r.table.times[i] == r.samples[i].shown
		latest = max(latest, r.samples[i].shown)
	}
	return r
}

func (r *clipRun) addSamples(n int, segment cmaf.Segment) {
	for p, part := range segment.Parts {
		at := part.Start
		for i, s := range part.Samples {
			r.samples = append(r.samples, clipSample{segment: n, part: p, sample: i, shown: at + int64(s.Offset), sync: s.Sync})
			at += int64(s.Duration)
		}
	}
}

// shown returns the times of the frames of the clip.
func (r *clipRun) shown() []int64 { return r.table.between(r.start, r.end) }

// next returns the time of the first frame at or after t, or the end of the run.
func (r *clipRun) next(t int64) int64 {
	if i, _ := slices.BinarySearch(r.table.times, t); i < len(r.table.times) {
		return r.table.times[i]
	}
	return r.table.end
}

// wall returns the date of a time of the run; zero = it is not known.
func (r *clipRun) wall(t int64) time.Time {
	s := r.index.Segments[r.samples[0].segment]
	if s.Wall.IsZero() {
		return s.Wall
	}
	return s.Wall.Add(r.track.Time(t - s.Start()))
}

// choose decides which samples are copied. key reports whether a decoder can start with a sample, whatever
// was decoded before.
func (r *clipRun) choose(key func(clipSample) (bool, error)) error {
	shown := r.shown()
	before, _ := slices.BinarySearch(r.table.times, shown[0])
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
func (c *clipMaker) cutRun(ctx context.Context, r clipRun) error {
	shown := r.shown()
	coder, err := c.newEdgeCoder(ctx, &r)
	if err != nil {
		return err
	}
	if coder.whole == "" {
		if err := r.choose(func(s clipSample) (bool, error) { return c.decodable(ctx, r.track, s) }); err != nil {
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

// pieces calls do for each segment that samples are copied of, with the first of them and the one after the last.
// whole says that these are all samples of the segment.
func (r *clipRun) pieces(do func(from, to int, whole bool) error) error {
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
func (r *clipRun) delay() int64 {
	asItIs, needed := false, int64(0)
	_ = r.pieces(func(from, to int, whole bool) error {
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
	return min(needed, maxDelay*int64(r.track.Timescale))
}

// copy adds the samples that are copied. Whole segments are not read.
func (c *clipMaker) copy(ctx context.Context, r *clipRun) error {
	return r.pieces(func(i, end int, whole bool) error {
		n := r.samples[i].segment
		segment := r.index.Segments[n]
		if whole {
			key := media.SegmentKey(c.o.Prefix+"/"+sourceDir, len(c.video.Segments)+len(r.made))
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
func (c *clipMaker) repack(ctx context.Context, r *clipRun, samples []clipSample) error {
	w := c.segmentWriter(ctx, r, r.track)
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
		if err := w.add(cmaf.Fragment{Start: f.Start + cmaf.Span(skipped), Samples: f.Samples[first:end], Data: data}); err != nil {
			return err
		}
	}
	err = w.finish()
	r.made = append(r.made, w.segments...)
	return err
}

// segmentWriter returns a writer of the next segment of the clip's video.
func (c *clipMaker) segmentWriter(ctx context.Context, r *clipRun, track cmaf.Track) *trackWriter {
	w := &trackWriter{store: c.Store, prefix: c.o.Prefix + "/" + sourceDir, first: len(c.video.Segments) + len(r.made)}
	w.begin(ctx, track, 1, func(cmaf.Contents, int64, cmaf.Sample) bool { return false })
	return w
}

// report tells the caller how much of the video is done.
func (c *clipMaker) report(at time.Duration) {
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
