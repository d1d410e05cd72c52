package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/media"
	"weir/internal/weir"
)

// rendition is a track that viewers can fetch while it grows. One goroutine at a time writes it, any
// may read.
//
// Its segments have two numbers. On disk they count from 0 in each session. For viewers they
// continue from the stream's last session; base is the difference.
type rendition struct {
	name       string
	base       int64
	record     atomic.Bool // all segments are kept; otherwise only those that players may still request
	bitrate    int         // bits a second that its encoder aims at; 0 = not known
	recorder   *media.Recorder
	limit      *diskLimit                 // of the session
	target     *targetDuration            // of the session
	partTarget time.Duration              // maximum duration of a part; 0 = playlists have none
	published  func(lag time.Duration)    // see Options; nil = nobody wants to know
	progress   atomic.Pointer[hls.Report] // for the playlists of other renditions
	history    history

	firstBreaks int64 // discontinuities before the first segment on disk

	mu            sync.Mutex
	track         cmaf.Track
	rate          float64             // frames a second that its encoder aims at; 0 = not known
	wall          time.Time           // at time 0 of the timeline
	earlier       *earlierPeriods     // loads the segments of other nodes; nil = there are none, or it is done
	before        *earlierSegments    // segments of other nodes; nil = there are none
	partsFrom     int64               // number of the first segment that playlists list in parts
	open          cmaf.Segment        // has no parts when there is none
	init          int                 // init segment of the open segment, or else of the next one
	discontinuity bool                // the next segment begins with a discontinuity
	ended         bool                // nothing more will come
	handedOver    bool                // new media comes on another node
	longest       time.Duration       // duration of the longest segment so far
	total         time.Duration       // duration of all segments so far
	parts         uint32              // so far
	recovered     uint32              // parts that were there when it was opened
	spans         media.Spans         // of all whole segments, if it is recorded
	changed       chan struct{}       // closed at each change
	rendered      map[Query]*hls.Text // playlists of the current state
	segmentWindow                     // numbers are those on disk; segments of other nodes are below 0
}

// segmentWindow holds the segments that playlists show: those of the last minute.
type segmentWindow struct {
	segments []cmaf.Segment
	tracks   []cmaf.Track  // of each segment
	inits    []int         // for each segment, the number of the first one with the same init segment
	first    int64         // number of the first segment
	breaks   int64         // discontinuities before the first
	shown    time.Duration // duration of all
	size     int64         // bytes of all
}

// newRendition returns a rendition with the segments of its recorder, if it has any.
func newRendition(name string, recorder *media.Recorder, base, breaks int64, wall time.Time, record bool) (*rendition, error) {
	index, compacted, err := recorder.Index()
	if err != nil {
		return nil, err
	}
	newest := recorder.Inits() - 1
	track, err := recorder.Track(newest)
	if err != nil {
		return nil, err
	}
	r := &rendition{
		name: name, base: base, limit: &diskLimit{}, target: &targetDuration{}, firstBreaks: breaks, history: history{first: base, breaks: breaks}, segmentWindow: segmentWindow{breaks: breaks}, recorder: recorder, track: track, wall: wall,
		discontinuity: recorder.Next() > 0, changed: make(chan struct{}), rendered: map[Query]*hls.Text{},
	}
	r.record.Store(record)
	for i := 0; ; i++ {
		if compacted.End > 0 && int64(i) == compacted.First {
			_, breaks := r.totals()
			r.resetWindow(compacted.End, breaks-1+compacted.Discontinuities)
			r.parts, r.total, r.longest = r.parts+compacted.Parts, r.total+compacted.Total, max(r.longest, compacted.Max)
		}
		if i == len(index.Segments) {
			break
		}
		segment := index.Segments[i]
		r.init = recorder.InitOf(compacted.Number(i))
		if r.track, err = recorder.Track(r.init); err != nil {
			return nil, err
		}
		r.parts += uint32(len(segment.Parts))
		r.addSegment(segment)
	}
	r.recovered = r.parts
	r.track, r.init = track, newest
	if len(r.segments) > 0 {
		r.publish()
	}
	return r, nil
}

// Part appends a part to the open segment, or opens one with it. If it is the last one, the
// segment ends with it, and players are notified of both at once: in between, the playlist would
// announce another part, and players would request it.
func (r *rendition) Part(part cmaf.Part, last bool, buffers ...[]byte) error {
	if r.published == nil {
		return r.add(part, last, buffers)
	}
	begin := time.Now()
	err := r.add(part, last, buffers)
	if err == nil {
		r.published(time.Since(begin))
	}
	return err
}

func (r *rendition) add(part cmaf.Part, last bool, buffers [][]byte) error {
	segment, err := r.write(part, buffers)
	if err != nil {
		return err
	}
	if last {
		return r.complete(segment)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = segment
	r.publish()
	return nil
}

// write writes a part of the open segment, or of a new one, and returns the segment with it, which
// is not published yet.
func (r *rendition) write(part cmaf.Part, data [][]byte) (cmaf.Segment, error) {
	r.mu.Lock()
	segment := r.open
	opens := len(segment.Parts) == 0
	if opens {
		segment = cmaf.Segment{Wall: r.wall.Add(r.track.Time(part.Start)), Discontinuity: r.discontinuity}
	}
	r.mu.Unlock()
	if r.limit.stopped.Load() {
		return segment, errDiskFull
	}
	if opens {
		if err := r.recorder.Begin(segment.Wall, segment.Discontinuity); err != nil {
			return segment, err
		}
	}
	if err := r.recorder.Append(part, data...); err != nil {
		return segment, errors.Join(err, r.recorder.Abandon())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.parts++
	r.discontinuity = r.discontinuity && !opens
	segment.Parts = append(segment.Parts, part)
	return segment, nil
}

// endAt corrects where the newest part of the open segment ends.
func (r *rendition) endAt(at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = r.open.EndAt(at)
}

// EndSegment ends the open segment.
func (r *rendition) EndSegment() error {
	r.mu.Lock()
	segment := r.open
	r.mu.Unlock()
	if len(segment.Parts) == 0 {
		return nil
	}
	return r.complete(segment)
}

// complete ends the open segment; this is all of it.
func (r *rendition) complete(segment cmaf.Segment) error {
	err := r.recorder.Finish(segment)
	r.mu.Lock()
	if err != nil {
		r.open = segment // it is tried again
		r.mu.Unlock()
		return err
	}
	r.open = cmaf.Segment{}
	r.addSegment(segment)
	if !segment.Gap() {
		r.target.decide(r.track.Time(segment.Duration()))
	}
	r.publish()
	needed, joins := r.needed(), r.earlier != nil
	r.mu.Unlock()
	if joins {
		r.join()
	}
	return r.trim(needed)
}

// addSegment adds a whole segment, and drops those that are older than the window; they stay on disk.
func (r *rendition) addSegment(segment cmaf.Segment) {
	length := r.track.Time(segment.Duration())
	r.longest, r.total = max(r.longest, length), r.total+length
	if r.record.Load() {
		r.spans.Add(segment, r.track)
	}
	r.show(segment, r.track, int(r.base)+r.init)
	r.drop(r.length())
}

// show appends a segment, and drops those that are older than the window.
func (w *segmentWindow) show(segment cmaf.Segment, track cmaf.Track, init int) {
	w.segments, w.tracks, w.inits = append(w.segments, segment), append(w.tracks, track), append(w.inits, init)
	w.shown += track.Time(segment.Duration())
	w.size += segment.Size()
	w.drop(window)
}

// drop drops the oldest segments, if those after them are at least that long.
func (w *segmentWindow) drop(length time.Duration) {
	// By the sum of durations: the timeline continues while an encoder is away, players do not.
	for len(w.segments) > 1 {
		oldest := w.segments[0]
		duration := w.tracks[0].Time(oldest.Duration())
		if w.shown-duration < length && w.size <= maxWindowBytes {
			return
		}
		w.shown -= duration
		w.size -= oldest.Size()
		if oldest.Discontinuity {
			w.breaks++
		}
		w.segments, w.tracks, w.inits = w.segments[1:], w.tracks[1:], w.inits[1:]
		w.first++
	}
}

// publish shows the current state to viewers, and wakes those that wait for it.
func (r *rendition) publish() {
	close(r.changed)
	r.changed = make(chan struct{})
	clear(r.rendered)
	report := hls.Report{URI: hls.EscapePath("../" + r.name + "/index.m3u8"), Segment: r.base + r.newest(), Part: len(r.open.Parts) - 1}
	if len(r.open.Parts) == 0 && len(r.segments) > 0 {
		report.Part = len(r.segments[len(r.segments)-1].Parts) - 1
	}
	r.progress.Store(&report)
}

// change sets the track of the next segments, if it is another.
func (r *rendition) change(track cmaf.Track) error {
	r.mu.Lock()
	old := r.track
	r.mu.Unlock()
	if bytes.Equal(track.Entry, old.Entry) && track.Timescale == old.Timescale && track.Delay <= old.Delay {
		return nil
	}
	if err := r.recorder.Change(track); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.track, r.init = track, r.recorder.Inits()-1
	return nil
}

// setRate sets the frame rate that the encoder of the next frames aims at.
func (r *rendition) setRate(rate float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rate = rate
}

// upcoming returns the number on disk of the next segment, and whether it begins with a
// discontinuity, when no segment is open.
func (r *rendition) upcoming() (number int64, discontinuity bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorder.Next(), r.discontinuity
}

// setDiscontinuity sets whether the next segment begins with a discontinuity.
func (r *rendition) setDiscontinuity(discontinuity bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.discontinuity = discontinuity
}

// addGap appends a segment without media.
func (r *rendition) addGap(start, length time.Duration, discontinuity bool) error {
	r.setDiscontinuity(discontinuity)
	part, data := cmaf.EncodePart(r.parts+1, r.track, cmaf.GapFragment(r.track.Ticks(start), r.track.Ticks(length)))
	return r.Part(part, true, data)
}

// time converts ticks of the current track.
func (r *rendition) time(ticks int64) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.track.Time(ticks)
}

// resetWindow continues with another number, before which there are so many discontinuities, and empties
// the window.
func (r *rendition) resetWindow(to, breaks int64) {
	r.segmentWindow = segmentWindow{first: to, breaks: breaks}
}

// skip continues with another number, on disk too.
func (r *rendition) skip(to, breaks int64) error {
	if err := r.recorder.Skip(to, breaks-r.firstBreaks); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resetWindow(to, breaks)
	return nil
}

// since returns the whole segments in the window, from a number on disk up to another. If the first
// ones are not in the window any more it begins later, after so many discontinuities.
func (r *rendition) since(from, before int64) (first, breaks int64, segments []cmaf.Segment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	first = max(from, r.first)
	before = min(before, r.first+int64(len(r.segments)))
	if first < before {
		segments = r.segments[first-r.first : before-r.first]
	}
	return first, r.breaks, segments
}

// conclude ends the playlists.
func (r *rendition) conclude() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = true
	r.publish()
}

// newest returns the number on disk of the newest segment, whole or not; -1 = none.
func (r *rendition) newest() int64 {
	n := r.first + int64(len(r.segments)) - 1
	if len(r.open.Parts) > 0 {
		n++
	}
	return n
}

// has reports whether a part is there, by the number on disk; part -1 = the whole segment. A part
// after the last one of a whole segment is the first of the next: players that request it could not
// know that the segment would end.
func (r *rendition) has(segment int64, part int) bool {
	whole := r.first + int64(len(r.segments)) - 1
	if i := segment - r.first; i >= 0 && segment <= whole && part >= len(r.segments[i].Parts) {
		segment, part = segment+1, 0
	}
	return segment <= whole || segment == whole+1 && part >= 0 && part < len(r.open.Parts)
}

// How far ahead of what there is a player may wait for something.
const (
	maxSegmentsAhead = 2
	maxAhead         = 3 * time.Second // in parts
)

// await waits until the rendition has the segment or part of a query.
func (r *rendition) await(ctx context.Context, q Query) error {
	if q.Segment < 0 {
		return nil
	}
	for {
		r.mu.Lock()
		newest, ahead, changed := r.base+r.newest(), r.partsAhead(q), r.changed
		there, handedOver := r.ended || r.has(q.Segment-r.base, q.Part), r.handedOver
		r.mu.Unlock()
		switch {
		case there:
			return nil
		case handedOver:
			return ErrHandedOver
		case q.Segment > newest+maxSegmentsAhead:
			return weir.Errorf(weir.Refused, "_HLS_msn: segment %d is too far ahead, the newest is %d", q.Segment, newest)
		case ahead > r.maxPartsAhead():
			return weir.Errorf(weir.Refused, "_HLS_part: part %d of segment %d is too far ahead", q.Part, q.Segment)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return weir.Wrap(weir.Busy, context.Cause(ctx), "segment %d was not ready in time", q.Segment)
		}
	}
}

// maxPartsAhead returns how many parts ahead a player may ask for.
func (r *rendition) maxPartsAhead() int {
	target := cmp.Or(r.partTarget, partTarget(DefaultPart))
	return int((maxAhead + target - 1) / target)
}

// partsAhead returns how many parts of its segment must come before the part of a query. After the
// last part of a whole segment that is the first of the next, see has.
func (r *rendition) partsAhead(q Query) int {
	whole := r.base + r.first + int64(len(r.segments)) - 1
	switch {
	case q.Segment <= whole:
		return 0
	case q.Segment == whole+1:
		return q.Part - len(r.open.Parts)
	}
	return q.Part
}

// playlist returns the current playlist.
func (r *rendition) playlist(q Query, reports []hls.Report) (*hls.Text, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// A player that waits for a segment of another node has not seen those that a delta update skips.
	low := q.Low && r.partTarget > 0
	key := Query{Low: low, Skip: low && q.Skip && (q.Segment < 0 || q.Segment >= r.base)}
	if text, ok := r.rendered[key]; ok {
		return text, nil
	}
	w := cmaf.LiveWindow{
		First: r.base + r.first, DiscontinuitySequence: r.breaks, Segments: r.segments, Tracks: r.tracks, Inits: r.inits,
		Target: r.target.shown(), PartTarget: r.partTarget, Ended: r.ended,
		Low: low, Skip: key.Skip, PartsFrom: r.partsFrom, Reports: reports,
	}
	if len(r.open.Parts) > 0 && !r.open.Gap() {
		w.Segments, w.Tracks = append(slices.Clip(w.Segments), r.open), append(slices.Clip(w.Tracks), r.track)
		w.Inits = append(slices.Clip(w.Inits), int(r.base)+r.init)
		w.Open = true
	}
	list, err := w.Media()
	if err != nil {
		return nil, err
	}
	r.rendered[key] = hls.NewText(list.Text())
	return r.rendered[key], nil
}

// announced reports whether a part is there, or is the next one.
func (r *rendition) announced(n int64, part int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	n -= r.base
	whole := r.first + int64(len(r.segments)) - 1
	switch {
	case n < 0 || part < 0:
		return false
	case n <= whole:
		return true // the recorder knows whether it has such a part
	case n == whole+1:
		return part <= len(r.open.Parts)
	}
	return n == whole+2 && part == 0 && len(r.open.Parts) > 0
}

// gap reports whether a segment is a gap.
func (r *rendition) gap(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := n - r.base - r.first
	return i >= 0 && i < int64(len(r.segments)) && r.segments[i].Gap()
}

// duration returns the duration of a segment or a part; 0 = not known.
func (r *rendition) duration(n int64, part int) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := n - r.base - r.first
	segment, track := r.open, r.track
	switch {
	case i < 0 || i > int64(len(r.segments)):
		return 0
	case i < int64(len(r.segments)):
		segment, track = r.segments[i], r.tracks[i]
	}
	if part < 0 {
		return track.Time(segment.Duration())
	}
	if part >= len(segment.Parts) {
		return 0
	}
	return track.Time(cmaf.Span(segment.Parts[part].Samples))
}

// choice returns the rendition for the master playlist.
func (r *rendition) choice() cmaf.Rendition {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.segments[max(0, -r.first):] // those of other nodes may have been another track
	index := cmaf.TrackIndex{Track: r.track, Segments: slices.DeleteFunc(slices.Clone(own), cmaf.Segment.Gap)}
	c := cmaf.Rendition{Name: r.name, URI: r.name + "/index.m3u8"}
	if len(index.Segments) == 0 && len(r.open.Parts) > 0 {
		// The first frames do not give the frame rate: a rung with fewer frames than the source
		// takes the first two wherever they are.
		index.Segments, c.FrameRate = []cmaf.Segment{r.open}, r.rate
	}
	c.Index = index
	if r.bitrate > 0 {
		// The video so far may be black; the bitrate that its encoder aims at holds for the rest.
		peak, _ := index.BitRates(cmaf.Segment.Size)
		c.Bandwidth, c.AverageBandwidth = max(peak, int64(r.bitrate)), int64(r.bitrate)
	}
	return c
}

// end returns where the last segment ends on the timeline.
func (r *rendition) end() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.segments) == 0 {
		return 0
	}
	newest := len(r.segments) - 1
	return r.tracks[newest].Time(r.segments[newest].End())
}

// totals returns the viewers' number of the next segment, and the number of discontinuities so far,
// with the one before the stream's next session.
func (r *rendition) totals() (segments, breaks int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	breaks = r.breaks + 1
	for _, s := range r.segments {
		if s.Discontinuity {
			breaks++
		}
	}
	return r.base + r.newest() + 1, breaks
}

// carried returns the number of whole segments, and their duration in seconds.
func (r *rendition) carried() (segments int64, seconds float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.first + int64(len(r.segments)), r.total.Seconds()
}
