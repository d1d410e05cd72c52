package vod

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/weir"
)

// A recording is another kind of source: its tracks are in the store and can be played before the plan is
// made, so its video is one of the renditions as it is, and the others are cut at the same times. Its
// encoder may have reconnected, even with another coding. Between two connections there is a gap; each
// connection is a [Stretch], and no chunk has frames of two of them.

// Stretch is a run of segments without a gap, from one connection of an encoder.
type Stretch struct {
	First int   `json:"first"` // segment
	End   int64 `json:"end"`   // of its last frame
}

// Recorded returns a recording as a source. dir is a folder for temporary files. An error of kind
// weir.NotFound means that it has no video.
func (e Engine) Recorded(ctx context.Context, prefix, dir string) (Source, error) {
	track, err := media.Open(ctx, e.Store, prefix+"/"+sourceDir)
	if err != nil {
		return Source{}, err
	}
	index := track.Index()
	probe, err := e.ProbeSegment(ctx, track, 0, dir)
	if err != nil {
		return Source{}, err
	}
	if len(probe.Video) == 0 || len(index.Segments) == 0 {
		return Source{}, weir.Errorf(weir.Invalid, "%s: there is no frame in the video", badSource)
	}
	video := newSourceVideo(probe)
	video.Bitrate, video.Timescale, video.Frames = index.AverageBitrate(), int64(index.Track.Timescale), index.Frames()
	video.Start = index.Start()
	for _, segment := range index.Segments {
		video.End = max(video.End, segment.ShownUntil())
		video.MaxGOP = max(video.MaxGOP, float64(segment.Duration())/float64(video.Timescale))
	}
	video.Encode = whyNotH264(video.Track)
	return Source{Prefix: prefix, Probe: probe, Video: video, Duration: cmaf.Played([]cmaf.TrackIndex{index}).Seconds()}, nil
}

// ProbeSegment probes segment n of a track, in a temporary file of a folder.
func (e Engine) ProbeSegment(ctx context.Context, track *media.Track, n int, dir string) (probe ffmpeg.Probe, err error) {
	path := filepath.Join(dir, "start.mp4")
	body, _, err := track.Segment(ctx, n)
	if err != nil {
		return probe, err
	}
	defer body.Close()
	file, err := os.Create(path)
	if err != nil {
		return probe, err
	}
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	_, err = io.Copy(file, io.MultiReader(bytes.NewReader(cmaf.Init(track.Index().TrackOf(n))), body))
	if err := errors.Join(err, file.Close()); err != nil {
		return probe, err
	}
	return e.FFmpeg.Probe(ctx, path)
}

// whyNotH264 returns why a video is not progressive 8-bit H.264 with square pixels; "" = it is.
func whyNotH264(s ffmpeg.Track) string {
	switch {
	case s.Codec != "h264":
		return "its codec is " + s.Codec
	case s.PixelFormat != "yuv420p" || s.BitDepth > 8:
		return "its pixels are " + s.PixelFormat
	case s.Interlaced():
		return "it is interlaced"
	case s.Sample.Num != s.Sample.Den:
		return "its pixels are not square"
	}
	return ""
}

// PlanRecorded plans the renditions of a recording; see NewRecordedPlan.
func (e Engine) PlanRecorded(ctx context.Context, src Source, req Request) (plan Plan, noRenditions string, err error) {
	track, err := media.Open(ctx, e.Store, src.Prefix+"/"+sourceDir)
	if err != nil {
		return Plan{}, "", err
	}
	return newRecordedPlan(src, track.Index(), req)
}

// newRecordedPlan plans the renditions of a recording, whose video has this index: the recorded video, and
// the requested renditions that differ from it. noRenditions is the reason why there can be no other renditions;
// "" = there can.
func newRecordedPlan(src Source, index cmaf.TrackIndex, req Request) (p Plan, noRenditions string, err error) {
	video := *src.Video
	p = Plan{Source: src, Prefix: src.Prefix, SegmentSeconds: segmentSeconds(req.SegmentSeconds), Timescale: video.Timescale, End: video.End}
	p.Renditions = []Rendition{{
		Name: sourceDir, Dir: sourceDir, Copy: true, Codec: ffmpeg.Codec(video.Track.Codec), Width: video.Width, Height: video.Height, Bitrate: video.Bitrate, GOP: defaultGOP,
	}}
	p.planStretches(index)
	table := video.frames(index)
	for n, start := range p.Starts {
		p.Frames = append(p.Frames, len(table.Between(start, p.segmentEnd(n))))
	}
	if req.SourceOnly {
		return p, "", nil
	}
	if noRenditions = p.whyNoRenditions(index, table); noRenditions != "" {
		return p, noRenditions, nil
	}
	asked, err := planRenditions(video, req)
	if err != nil {
		return Plan{}, "", err
	}
	p.Tick, p.Rate = ffmpeg.Timing(table.Times, table.End, p.Timescale)
	if len(p.Stretches) > 1 {
		p.Rate = ffmpeg.Ratio{Num: max(int64(float64(len(table.Times))*1000/src.Duration), 1000), Den: 1000} // without the gaps
	}
	for _, r := range asked {
		if r.converts() && sameRate(r.Rate, p.Rate) {
			r.Rate = ffmpeg.Ratio{} // nothing to convert
		}
		if video.Encode != "" || !r.is(video) {
			p.Renditions = append(p.Renditions, r)
		}
	}
	p.settleRenditions(table)
	if len(p.encoded()) > 0 {
		p.planRecordedChunks()
	}
	return p, "", nil
}

// planStretches sets the starts and stretches from the segments of a recording.
func (p *Plan) planStretches(index cmaf.TrackIndex) {
	for n, segment := range index.Segments {
		p.Starts = append(p.Starts, segment.Start())
		if n == 0 || segment.Discontinuity {
			p.Stretches = append(p.Stretches, Stretch{First: n})
		}
		last := &p.Stretches[len(p.Stretches)-1]
		last.End = max(last.End, segment.ShownUntil())
	}
}

// whyNoRenditions returns why a recording can't have other renditions; "" = it can. Frames must be shown in the time
// of their segments, and all must have the same coding and size.
func (p *Plan) whyNoRenditions(index cmaf.TrackIndex, table cmaf.Frames) string {
	for _, change := range index.Changes {
		was, is := index.Track, change.Track
		if is.Timescale != was.Timescale || is.Width != was.Width || is.Height != was.Height || coding(is) != coding(was) {
			return fmt.Sprintf("the video changes from %s at %dx%d to %s at %dx%d", was.Codec, was.Width, was.Height, is.Codec, is.Width, is.Height)
		}
	}
	shown := 0
	for n, frames := range p.Frames {
		if frames == 0 || p.segmentEnd(n) <= p.Starts[n] {
			return fmt.Sprintf("segment %d has no visible frame", n)
		}
		if n > 0 && p.Starts[n] < p.segmentEnd(n-1) {
			return fmt.Sprintf("segment %d starts before the previous segment ends", n)
		}
		shown += frames
	}
	if shown != index.Frames() {
		return fmt.Sprintf("%d of %d frames have times outside of all segments", index.Frames()-shown, index.Frames())
	}
	for i := 1; i < len(table.Times); i++ {
		if table.Times[i] == table.Times[i-1] {
			return "two frames have the same presentation time"
		}
	}
	return ""
}

// coding returns the type of a track's sample entry: avc1, hvc1 …
func coding(t cmaf.Track) string {
	if len(t.Entry) < 8 {
		return ""
	}
	return string(t.Entry[4:8])
}

// planRecordedChunks divides a recording into encodes. It is simpler than planChunks, because
// viewers don't wait for it, and stretches have any duration.
func (p *Plan) planRecordedChunks() {
	length := int64(p.maxEncode() * float64(p.Timescale))
	var ends []int
	first := 0
	for n := range p.Starts {
		_, begins := p.stretchAt(n)
		if n > 0 && (begins || p.segmentEnd(n)-p.Starts[first] > length) {
			ends, first = append(ends, n), n
		}
	}
	p.addEncodes(append(ends, len(p.Starts)))
}

// stretchAt returns the stretch that begins with segment n, or else how many begin before it.
func (p *Plan) stretchAt(n int) (int, bool) {
	return slices.BinarySearchFunc(p.Stretches, n, func(s Stretch, n int) int { return cmp.Compare(s.First, n) })
}

// breaksOff returns the end of segment n if another stretch follows it.
func (p *Plan) breaksOff(n int) (end int64, ok bool) {
	i, ok := p.stretchAt(n + 1)
	if !ok || i == 0 {
		return 0, false
	}
	return p.Stretches[i-1].End, true
}

// within returns the parts that are in the same stretch as a chunk: others may have another coding.
func (p *Plan) within(chunk Chunk, parts []cmaf.FramePart) []cmaf.FramePart {
	if len(p.Stretches) < 2 {
		return parts
	}
	i, begins := p.stretchAt(chunk.First)
	if !begins {
		i--
	}
	first, end := p.Stretches[i].First, len(p.Starts)
	if i+1 < len(p.Stretches) {
		end = p.Stretches[i+1].First
	}
	return slices.DeleteFunc(slices.Clone(parts), func(part cmaf.FramePart) bool { return part.Segment < first || part.Segment >= end })
}

// maxRun returns the maximum duration of n successive frames of a stretch.
func (p *Plan) maxRun(table cmaf.Frames, n int) (longest int64) {
	if len(p.Stretches) < 2 {
		return table.MaxDuration(n)
	}
	for _, s := range p.Stretches {
		longest = max(longest, cmaf.Frames{Times: table.Between(p.Starts[s.First], s.End)}.MaxDuration(n))
	}
	return longest
}

// forThumbnails returns a plan with longer segments for thumbnails: segments of a recording are short, and
// one image for each would be too many.
func (p Plan) forThumbnails() Plan {
	if len(p.Stretches) == 0 {
		return p
	}
	thin := p
	thin.Starts, thin.Stretches = nil, nil
	length := int64(p.SegmentSeconds * float64(p.Timescale))
	for n, start := range p.Starts {
		i, begins := p.stretchAt(n)
		if begins {
			thin.Stretches = append(thin.Stretches, Stretch{First: len(thin.Starts), End: p.Stretches[i].End})
		}
		if begins || start-thin.Starts[len(thin.Starts)-1] >= length {
			thin.Starts = append(thin.Starts, start)
		}
	}
	return thin
}

// recordedKeys gives the key frames of a recording the times of players, which play it without the gaps. It
// leaves out those that can't be in one stream with the first.
func (p *Plan) recordedKeys(index cmaf.TrackIndex, keys []keyFrame) []keyFrame {
	if len(p.Stretches) == 0 {
		return keys
	}
	var at int64
	for i := range min(len(keys), len(p.Starts)) {
		length := p.segmentEnd(i) - p.Starts[i]
		keys[i].start, keys[i].end = at, at+length
		at += length
	}
	if _, err := index.InBand(0); err != nil {
		keys = slices.DeleteFunc(keys, func(k keyFrame) bool { return k.segment >= index.Changes[0].First })
	}
	return keys
}
