package live

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// When an encoder reconnects to another node, the playlists of that node begin with the segments
// that the nodes before carried, as far as the storage has them, and viewers get these segments from
// there. Segments that are not stored, and numbers that were skipped because nobody knew how far the
// node before was, are gaps. So a player sees continuous numbers; not every player gets over a jump.
// What a playlist says of a segment does not change: one that reaches the storage after this node has
// looked stays a gap here. The recording has it, see Periods.

const (
	// maxLoad is how long viewers wait for the storage after this node has a segment.
	maxLoad = 3 * time.Second
	// loadEvery is the interval of reads of the storage meanwhile.
	loadEvery = 200 * time.Millisecond
)

// earlierPeriods loads what other nodes recorded of a session before this one.
type earlierPeriods struct {
	session weir.Session // as it was when it came here
	lease   store.OnAir
	maxLoad time.Duration
	began   func()          // this node has a segment
	begun   <-chan struct{} // closed by began
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	loaded  bool
	periods map[string][]*media.StoredPeriod // by the name of the track
}

// newEarlierPeriods returns nil if no other node carried the session.
func newEarlierPeriods(session weir.Session, lease store.OnAir, maxLoad time.Duration) *earlierPeriods {
	if len(session.Earlier) == 0 {
		return nil
	}
	begun := make(chan struct{})
	return &earlierPeriods{session: session, lease: lease, maxLoad: maxLoad, begun: begun, began: sync.OnceFunc(func() { close(begun) })}
}

// start starts to load. There is nothing to load without a storage that nodes share.
func (e *earlierPeriods) start(storage blob.Store, log *slog.Logger, all *renditions) {
	if storage == nil || !e.session.Recorded() {
		e.setLoaded(all, nil)
		return
	}
	periods := map[string][]*media.StoredPeriod{}
	for _, name := range []string{videoName, audioName} {
		for period := range e.session.Earlier {
			periods[name] = append(periods[name], media.NewStoredPeriod(storage, media.AssetFolder(e.session.ID), period, name))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	e.running.Go(func() {
		err := e.load(ctx, periods)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			log.Warn("segments of other nodes are missing from the playlists: the storage could not be read", "err", err)
		}
		e.setLoaded(all, periods)
	})
}

// load reads the indexes in the storage, until maxLoad after this node has a segment.
func (e *earlierPeriods) load(ctx context.Context, periods map[string][]*media.StoredPeriod) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.running.Go(func() {
		select {
		case <-e.begun:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(e.maxLoad):
			cancel()
		case <-ctx.Done():
		}
	})
	// It loads most of it at once, to be quick later, and then what the node before has uploaded
	// meanwhile. That node may have finished its last segment only a moment ago.
	err := loadAll(ctx, periods)
	select {
	case <-e.begun:
	case <-ctx.Done():
		return errors.Join(err, ctx.Err())
	}
	for {
		if err = loadAll(ctx, periods); err == nil && e.complete(periods) {
			return nil
		}
		select {
		case <-time.After(loadEvery):
		case <-ctx.Done():
			return err
		}
	}
}

// complete reports whether nothing is missing of the last period, as far as that is known: a node
// that was killed has not reported its last segments.
func (e *earlierPeriods) complete(periods map[string][]*media.StoredPeriod) bool {
	before := e.session.Before()
	if before.Next != e.lease.Sequence || before.Next == before.First {
		return true
	}
	found := false
	for _, all := range periods {
		segments, _ := all[len(all)-1].Segments()
		if len(segments) > 0 && before.First+int64(len(segments)) < before.Next {
			return false
		}
		found = found || len(segments) > 0
	}
	return found
}

func loadAll(ctx context.Context, periods map[string][]*media.StoredPeriod) error {
	for _, all := range periods {
		for _, period := range all {
			if err := period.Load(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// setLoaded ends the loading and puts the periods before the renditions.
func (e *earlierPeriods) setLoaded(all *renditions, periods map[string][]*media.StoredPeriod) {
	e.mu.Lock()
	e.loaded, e.periods = true, periods
	e.mu.Unlock()
	for _, r := range all.all() {
		r.join()
	}
}

// close stops loading.
func (e *earlierPeriods) close() {
	if e != nil && e.cancel != nil {
		e.cancel()
		e.running.Wait()
	}
}

// takePeriods returns the periods of a rendition, once; false = they are not loaded yet.
func (e *earlierPeriods) takePeriods(name string) ([]*media.StoredPeriod, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	periods := e.periods[name]
	delete(e.periods, name) // the index of a long broadcast is large
	return periods, e.loaded
}

// earlierSegments holds the segments of a rendition on other nodes: those in the storage, and gaps.
type earlierSegments struct {
	first, breaks         int64 // the number of the first segment, and the discontinuities before it
	next, discontinuities int64 // the same after the last segment
	end                   time.Duration
	track                 cmaf.Track // of the last segment
	init                  int        // the number of its init segment
	periods               []earlierPeriod
	whole                 hls.Entries // the playlist of all segments
	last                  segmentWindow
}

// earlierPeriod is where the segments of a period are stored.
type earlierPeriod struct {
	first  int64 // the number of the first segment
	count  int64 // of the segments that playlists have; others may reach the storage later
	folder string
	tracks []cmaf.Track // of the init segments
}

func newEarlierSegments(first, breaks int64) *earlierSegments {
	return &earlierSegments{first: first, breaks: breaks, next: first, discontinuities: breaks, last: segmentWindow{first: first, breaks: breaks}}
}

// before returns the segments before a rendition of this node, whose first segment has this start,
// track and init segment.
func (e *earlierPeriods) before(name string, periods []*media.StoredPeriod, start time.Duration, track cmaf.Track, init int) *earlierSegments {
	var p *earlierSegments
	for i, period := range periods {
		segments, inits := period.Segments()
		if len(segments) == 0 {
			continue
		}
		tracks, at := period.Tracks(), e.session.Earlier[i]
		if p == nil || !p.raise(at.Discontinuities) || !p.addGaps(e.session.CreatedAt.Time(), at.First) {
			p = newEarlierSegments(at.First, at.Discontinuities)
		}
		p.periods = append(p.periods, earlierPeriod{at.First, int64(len(segments)), media.PeriodFolder(media.AssetFolder(e.session.ID), i, name), tracks})
		for n, segment := range segments {
			p.addSegment(segment, tracks[inits[n]], int(at.First)+inits[n])
		}
	}
	if p == nil || !p.raise(e.lease.Discontinuities) || p.next > e.lease.Sequence {
		// Nothing is stored, or its numbers are not those that players have seen.
		p = newEarlierSegments(max(e.session.Before().Next, e.lease.Sequence-maxGaps), e.lease.Discontinuities)
		p.end, p.track, p.init = start-gapDuration*time.Duration(e.lease.Sequence-p.next), track, init
	}
	p.addGaps(e.session.CreatedAt.Time(), e.lease.Sequence)
	return p
}

// maxGaps is how many gaps a playlist begins with. The node before may have removed earlier ones from its
// playlists, if it went on for longer than these show a segment after it could not report any more.
const maxGaps = weir.MaxUnreportedShown

// raise adds to the discontinuities before the first segment, so that there are so many before the next
// one. They must not be fewer than players have seen, and the node before may have had some that are not
// stored. It returns false if there are more already.
func (p *earlierSegments) raise(discontinuities int64) bool {
	more := discontinuities - p.discontinuities
	if more < 0 {
		return false
	}
	p.breaks, p.last.breaks, p.discontinuities = p.breaks+more, p.last.breaks+more, discontinuities
	return true
}

// addSegment appends a segment.
func (p *earlierSegments) addSegment(s cmaf.Segment, track cmaf.Track, init int) {
	p.whole.Add(cmaf.LiveEntry(p.next, s, track, init))
	if s.Discontinuity {
		p.discontinuities++
	}
	p.next++
	p.end, p.track, p.init = track.Time(s.End()), track, init
	p.last.show(s, track, init)
}

// gapDuration is the duration of a gap in playlists. As after a reconnect to the same node, playlists
// do not show the time in which nothing came: some players never get over that. Gaps have no
// discontinuity, where players would look for media that they can't load.
const gapDuration = time.Millisecond

// addGaps appends gaps up to a number. It reports whether the number comes next then.
func (p *earlierSegments) addGaps(origin time.Time, number int64) bool {
	for p.next < number {
		gap := cmaf.GapFragment(p.track.Ticks(p.end), p.track.Ticks(gapDuration))
		p.addSegment(cmaf.Segment{Wall: origin.Add(p.end), Parts: []cmaf.Part{{Start: gap.Start, Samples: gap.Samples}}}, p.track, p.init)
	}
	return p.next == number
}

// period returns the period of a segment number; nil = none.
func (p *earlierSegments) period(n int64) *earlierPeriod {
	for i := len(p.periods) - 1; i >= 0; i-- {
		if n >= p.periods[i].first {
			return &p.periods[i]
		}
	}
	return nil
}

// join begins the playlists with the segments of other nodes, when they are loaded and there is a
// segment of this node. Viewers see nothing of the rendition before that.
func (r *rendition) join() {
	r.history.mu.Lock() // so that it is done once
	defer r.history.mu.Unlock()
	r.mu.Lock()
	earlier := r.earlier
	if earlier == nil || len(r.segments) == 0 {
		r.mu.Unlock()
		return
	}
	start := r.tracks[0].Time(r.segments[0].Start())
	r.mu.Unlock()
	earlier.began()
	periods, loaded := earlier.takePeriods(r.name)
	if !loaded {
		return
	}
	var before *earlierSegments
	k := r.recorder.InitOf(0)
	if track, err := r.recorder.Track(k); err == nil {
		before = earlier.before(r.name, periods, start, track, int(r.base)+k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.earlier = nil
	if before != nil {
		r.prepend(before)
	}
	// All players come here at once and find a segment of audio after a discontinuity. If it were
	// listed in parts, the first of which is there before that of the video and the second after
	// it, hls.js would wait for its end forever.
	r.partsFrom = r.base + r.first + int64(len(r.segments))
	r.publish()
}

// prepend puts the segments of other nodes before those of this one. The caller holds both locks.
func (r *rendition) prepend(p *earlierSegments) {
	r.history.list, r.history.first, r.history.breaks, r.history.next = p.whole, p.first, p.breaks, 0
	r.history.text = nil
	r.before, p.whole = p, hls.Entries{}
	if r.first > 0 {
		return // the last minute is of this node
	}
	own := r.segmentWindow
	r.segmentWindow, p.last = p.last, segmentWindow{}
	r.first -= r.base
	for i, s := range r.segments {
		r.longest = max(r.longest, r.tracks[i].Time(s.Duration()))
	}
	for i, s := range own.segments {
		r.show(s, own.tracks[i], own.inits[i])
	}
}

// Stored is where a segment or part of another node is, in weir's own storage.
type Stored struct {
	Key          string
	Offset, Size int64 // Size -1 = all of the object
}

// Stored returns where a segment of another node or, if part is not negative, a part of it is
// stored; false = it is of this node, or not stored.
func (b *Broadcast) Stored(name string, n int64, part int) (Stored, bool) {
	r, err := b.rendition(name)
	if err != nil || r.gap(n) {
		return Stored{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before == nil || n >= r.base {
		return Stored{}, false
	}
	period := r.before.period(n)
	if period == nil || n >= period.first+period.count {
		return Stored{}, false // a gap stays one
	}
	s := Stored{Key: media.SegmentKey(period.folder, int(n-period.first)), Size: -1}
	if part < 0 {
		return s, true
	}
	i := n - r.base - r.first
	if i < 0 || part >= len(r.segments[i].Parts) {
		return Stored{}, false
	}
	parts := r.segments[i].Parts
	for _, p := range parts[:part] {
		s.Offset += p.Size()
	}
	s.Size = parts[part].Size()
	return s, true
}

// storedInit returns an init segment of another node, by the number in playlists.
func (r *rendition) storedInit(k int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.before != nil {
		if period := r.before.period(int64(k)); period != nil && k-int(period.first) < len(period.tracks) {
			return cmaf.Init(period.tracks[k-int(period.first)]), nil
		}
	}
	return nil, weir.ErrNotFound()
}
