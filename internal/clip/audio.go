package clip

import (
	"context"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// cutAudio makes audio track k of the clip: the packets of the source, in segments that start where those of
// the video start. A packet can be decoded only after the one before it, so the track starts with a packet
// that nobody hears; see cmaf.Track.Priming.
func (c *maker) cutAudio(ctx context.Context, k int, source *media.Track) (*media.Track, error) {
	a := &audioMaker{maker: c, source: source, index: source.Index(), prefix: c.o.Prefix + "/" + audioName(k)}
	start, end := c.o.Start, c.o.End
	if n := len(c.video.Segments); n > 0 {
		start, end = c.video.Track.Time(c.video.Start()), c.video.TrackOf(n-1).Time(c.video.End())
	}
	for n, segment := range a.index.Segments {
		track := a.index.TrackOf(n)
		if segment.Gap() || track.Time(segment.End()) <= start-longestPacket || track.Time(segment.Start()) >= end {
			continue
		}
		fragments, err := source.Fragments(ctx, n)
		if err != nil {
			return nil, err
		}
		gap := segment.Discontinuity
		for _, f := range fragments {
			packets := between(f, track, start, end)
			if len(packets.Samples) == 0 {
				continue
			}
			if err := a.addPackets(ctx, track, packets, gap); err != nil {
				return nil, err
			}
			if gap = false; !segment.Wall.IsZero() {
				a.wall = segment.Wall.Add(-track.Time(segment.Start()))
			}
		}
	}
	if err := a.endRun(ctx); err != nil {
		return nil, err
	}
	if len(a.cut.Segments) == 0 {
		return nil, weir.Errorf(weir.NotFound, "the source has no audio between %v and %v", start, end)
	}
	a.cut.Track.Priming = max(a.cut.Track.Ticks(start)-a.cut.Start(), 0)
	if err := media.Seal(ctx, c.Store, a.prefix, a.cut); err != nil {
		return nil, err
	}
	return media.NewTrack(c.Store, a.prefix, a.cut), nil
}

// longestPacket is longer than any packet of audio.
const longestPacket = time.Second / 4

// between returns the packets that are heard between two times, and the one before them.
func between(f cmaf.Fragment, track cmaf.Track, start, end time.Duration) cmaf.Fragment {
	first, last := -1, 0
	at := f.Start
	for i, s := range f.Samples {
		next := track.Time(at + 2*int64(s.Duration)) // when the packet after it ends
		if next > start && track.Time(at) < end {
			if first < 0 {
				first = i
			}
			last = i + 1
		}
		at += int64(s.Duration)
	}
	if first < 0 {
		return cmaf.Fragment{}
	}
	skipped := f.Samples[:first]
	samples := f.Samples[first:last]
	return cmaf.Fragment{
		Start: f.Start + cmaf.Span(skipped), Samples: samples, Data: f.Data[cmaf.Bytes(skipped):][:cmaf.Bytes(samples)],
	}
}

// audioMaker is an audio track of a clip that is being made.
type audioMaker struct {
	*maker
	source *media.Track
	index  cmaf.TrackIndex // of the source
	prefix string
	cut    cmaf.TrackIndex

	writer *media.Writer // of the open run of packets
	wall   time.Time     // at time 0 of the timeline; zero = not known
	gap    bool          // the source has a gap before the open run
}

// addPackets adds packets, which continue the ones before unless there is a gap.
func (a *audioMaker) addPackets(ctx context.Context, track cmaf.Track, f cmaf.Fragment, gap bool) error {
	if a.writer != nil && (gap || !sameCoding(a.writer.Track(), track)) {
		if err := a.endRun(ctx); err != nil {
			return err
		}
	}
	if a.writer == nil {
		a.gap = len(a.cut.Segments) > 0
		a.writer = &media.Writer{Store: a.Store, Prefix: a.prefix, First: len(a.cut.Segments)}
		a.writer.Begin(track, 2*time.Second, a.boundaries(track, f.Start))
	}
	return a.writer.Add(ctx, f)
}

// boundaries returns the rule for segments of audio: they start with the first packet at or after the start of
// each segment of the video, or every few seconds if there is no video.
func (a *audioMaker) boundaries(track cmaf.Track, start int64) media.Cut {
	var starts []int64
	for n, s := range a.video.Segments {
		coded := a.video.TrackOf(n)
		if at := cmaf.RescaleUp(s.Start(), int64(coded.Timescale), int64(track.Timescale)); n > 0 && at > start {
			starts = append(starts, at)
		}
	}
	if len(starts) == 0 && len(a.video.Segments) == 0 {
		length := int64(audioSegment) * int64(track.Timescale)
		return func(open cmaf.Contents, at int64, _ cmaf.Sample) bool { return at-open.Start >= length }
	}
	return func(_ cmaf.Contents, at int64, _ cmaf.Sample) bool {
		i, _ := slices.BinarySearch(starts, at+1)
		starts = starts[i:]
		return i > 0
	}
}

// audioSegment is the duration of segments of a clip without video, in seconds.
const audioSegment = 6

// endRun stores the open run of packets.
func (a *audioMaker) endRun(ctx context.Context) error {
	if a.writer == nil {
		return nil
	}
	w := a.writer
	a.writer = nil
	if err := w.Finish(ctx); err != nil {
		return err
	}
	track := w.Track()
	appendRun(&a.cut, track, w.Index().Segments, a.gap, func(t int64) time.Time {
		if a.wall.IsZero() {
			return a.wall
		}
		return a.wall.Add(track.Time(t))
	})
	return nil
}
