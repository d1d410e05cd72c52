package live

import (
	"context"
	"errors"
	"sync"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// Where an encoder comes to another node, players are shown what the nodes before carried
// together with what this one does. The playlists of this node begin with it, as far as it is
// in the storage, and viewers are sent its segments from there. What is not there, and the
// numbers that were left out because nobody could say how far the node before was, are gaps.
// So players that go on see no leap, which not all of them get over.

// maxLook is how long viewers wait for what the storage has, when there is something of
// this node.
const maxLook = 3 * time.Second

// lookback finds out what other nodes carried of a session before this one.
type lookback struct {
	session weir.Session // as it was when it came here
	lease   store.OnAir
	began   func() // something of this node can be seen
	seen    <-chan struct{}
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	known   bool
	periods map[string][]*media.StoredPeriod // by the name of the track
}

// newLookback returns one that knows nothing yet; nil = no other node carried the session.
func newLookback(session weir.Session, lease store.OnAir) *lookback {
	if len(session.Earlier) == 0 {
		return nil
	}
	seen := make(chan struct{})
	return &lookback{session: session, lease: lease, seen: seen, began: sync.OnceFunc(func() { close(seen) })}
}

// lookBack begins to look for what other nodes carried. If there is no storage for many
// machines, nothing can be found.
func (s *session) lookBack(storage blob.Store) {
	b := s.back
	if b == nil {
		return
	}
	if storage == nil || !s.info.Record {
		b.finish(s, nil)
		return
	}
	periods := map[string][]*media.StoredPeriod{}
	for _, name := range []string{videoName, audioName} {
		for period := range b.session.Earlier {
			periods[name] = append(periods[name], media.NewStoredPeriod(storage, "asset/"+b.session.ID, period, name))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	b.running.Go(func() {
		err := b.load(ctx, periods)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Warn("players do not see all that other nodes carried of the stream: the storage does not tell", "err", err)
		}
		b.finish(s, periods)
	})
}

// load reads what the storage has when there is something of this node, or before ctx ends.
func (b *lookback) load(ctx context.Context, periods map[string][]*media.StoredPeriod) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	b.running.Go(func() {
		select {
		case <-b.seen:
		case <-ctx.Done():
			return
		}
		timeout := time.NewTimer(maxLook)
		defer timeout.Stop()
		select {
		case <-timeout.C:
			cancel()
		case <-ctx.Done():
		}
	})
	// Most of it now, so that it is quick later; and then what the node before, if it is
	// well, has put there meanwhile.
	first := loadAll(ctx, periods)
	select {
	case <-b.seen:
	case <-ctx.Done():
		return errors.Join(first, ctx.Err())
	}
	return loadAll(ctx, periods)
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

// finish lets the session be seen, with what was found.
func (b *lookback) finish(s *session, periods map[string][]*media.StoredPeriod) {
	b.mu.Lock()
	b.known, b.periods = true, periods
	b.mu.Unlock()
	for _, r := range s.everything() {
		r.join()
	}
}

// close ends looking.
func (b *lookback) close() {
	if b != nil && b.cancel != nil {
		b.cancel()
		b.running.Wait()
	}
}

// take returns what was found of a rendition, once; false = that is not known yet.
func (b *lookback) take(name string) ([]*media.StoredPeriod, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	periods := b.periods[name]
	delete(b.periods, name) // all of a long broadcast
	return periods, b.known
}

// prior is what players have seen of a rendition on other nodes: segments that the storage
// has, and gaps.
type prior struct {
	first, breaks int64 // the number of the first segment, and the discontinuities before it
	next, passed  int64 // the same of what comes after the last
	end           time.Duration
	track         cmaf.Track // that is in force there
	init          int        // the number of its init segment
	periods       []priorPeriod
	whole         hls.Entries

	// What is shown of it in the playlist of the last minute.
	shown       []priorSegment
	length      time.Duration
	shownFirst  int64
	shownBreaks int64
}

type priorSegment struct {
	cmaf.Segment
	track cmaf.Track
	init  int // its number
}

// priorPeriod is where the segments of a period are.
type priorPeriod struct {
	first  int64 // the number of the first
	folder string
	tracks []cmaf.Track // of the init segments
}

func newPrior(first, breaks int64) *prior {
	return &prior{first: first, breaks: breaks, next: first, passed: breaks, shownFirst: first, shownBreaks: breaks}
}

// prior puts together what was before a rendition of this node, whose first segment starts
// at a time, is of that track and needs that init segment.
func (b *lookback) prior(name string, periods []*media.StoredPeriod, start time.Duration, track cmaf.Track, init int) *prior {
	var p *prior
	for i, period := range periods {
		segments, inits := period.Segments()
		if len(segments) == 0 {
			continue
		}
		tracks, at := period.Tracks(), b.session.Earlier[i]
		if p == nil || p.passed != at.Discontinuities || !p.fill(b.session.CreatedAt.Time(), at.First) {
			p = newPrior(at.First, at.Discontinuities)
		}
		p.periods = append(p.periods, priorPeriod{at.First, media.PeriodFolder("asset/"+b.session.ID, i, name), tracks})
		for n, segment := range segments {
			p.add(priorSegment{segment, tracks[inits[n]], int(at.First) + inits[n]})
		}
	}
	if p == nil || p.passed != b.lease.Discontinuities || p.next > b.lease.Sequence {
		// Nothing is stored, or it does not fit what players were told of numbers: they must
		// not be told otherwise.
		p = newPrior(b.session.Before().Next, b.lease.Discontinuities)
		p.end, p.track, p.init = start-gapLength*time.Duration(b.lease.Sequence-p.next), track, init
	}
	p.fill(b.session.CreatedAt.Time(), b.lease.Sequence)
	return p
}

// add appends a segment.
func (p *prior) add(s priorSegment) {
	p.whole.Add(cmaf.LiveEntry(p.next, s.Segment, s.track, s.init))
	if s.Discontinuity {
		p.passed++
	}
	p.next++
	p.end, p.track, p.init = s.track.Time(s.End()), s.track, s.init
	p.shown = append(p.shown, s)
	p.length += s.track.Time(s.Duration())
	for len(p.shown) > 1 && p.length-p.shown[0].track.Time(p.shown[0].Duration()) >= window {
		oldest := p.shown[0]
		p.length -= oldest.track.Time(oldest.Duration())
		p.shown = p.shown[1:]
		p.shownFirst++
		if oldest.Discontinuity {
			p.shownBreaks++
		}
	}
}

// gapLength is the length of a gap in playlists. As where an encoder comes back to the same
// node, players are shown no time in which nothing came: some never get over that. And there
// is no discontinuity among gaps, where players would look for media that they can't load.
const gapLength = time.Millisecond

// fill appends gaps up to a number. It reports whether there is room for them.
func (p *prior) fill(origin time.Time, number int64) bool {
	for p.next < number {
		gap := cmaf.GapFragment(p.track.Ticks(p.end), p.track.Ticks(gapLength))
		p.add(priorSegment{
			cmaf.Segment{Wall: origin.Add(p.end), Parts: []cmaf.Part{{Start: gap.Start, Samples: gap.Samples}}}, p.track, p.init,
		})
	}
	return p.next == number
}

// period returns which period a number is of; nil = none.
func (p *prior) period(n int64) *priorPeriod {
	for i := len(p.periods) - 1; i >= 0; i-- {
		if n >= p.periods[i].first {
			return &p.periods[i]
		}
	}
	return nil
}

// join begins the playlists with what other nodes carried, when that is known and there is
// a segment of this node. Viewers see nothing of the rendition before.
func (r *rendition) join() {
	r.history.mu.Lock() // so that it is done once
	defer r.history.mu.Unlock()
	r.mu.Lock()
	back := r.back
	if back == nil || len(r.segments) == 0 {
		r.mu.Unlock()
		return
	}
	start := r.tracks[0].Time(r.segments[0].Start())
	r.mu.Unlock()
	back.began()
	periods, known := back.take(r.name)
	if !known {
		return
	}
	var before *prior
	k := r.recorder.InitOf(0)
	if track, err := r.recorder.Track(k); err == nil {
		before = back.prior(r.name, periods, start, track, int(r.base)+k)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.back = nil
	if before != nil {
		r.begins(before)
	}
	// Players come here all at once and find a segment of audio after a discontinuity. In
	// parts, of which the first is there before the picture's and the second after it, hls.js
	// waits for the end of it forever.
	r.inParts = r.base + r.first + int64(len(r.segments))
	r.tell()
}

// begins puts what other nodes carried before what this one does. The caller has both locks.
func (r *rendition) begins(p *prior) {
	r.history.list, r.history.first, r.history.breaks, r.history.next = p.whole, p.first, p.breaks, 0
	r.prior, p.whole = p, hls.Entries{}
	if r.first > 0 {
		return // the last minute is of this node
	}
	segments, tracks, inits := r.segments, r.tracks, r.inits
	r.segments, r.tracks, r.inits, r.shown, r.size = nil, nil, nil, 0, 0
	r.first, r.breaks = p.shownFirst-r.base, p.shownBreaks
	for _, s := range p.shown {
		r.longest = max(r.longest, s.track.Time(s.Duration()))
		r.show(s.Segment, s.track, s.init)
	}
	for i := range segments {
		r.show(segments[i], tracks[i], inits[i])
	}
	p.shown = nil // they are in the window now
}

// Stored is where something is that another node carried: in weir's own storage.
type Stored struct {
	Key          string
	Offset, Size int64 // Size -1 = all of the object
}

// Stored returns where a segment or, if part is not negative, a part of it is that another
// node carried; false = it is not of another node, or not there.
func (b *Broadcast) Stored(name string, n int64, part int) (Stored, bool) {
	r, err := b.rendition(name)
	if err != nil || r.gap(n) {
		return Stored{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.prior == nil || n >= r.base {
		return Stored{}, false
	}
	period := r.prior.period(n)
	if period == nil {
		return Stored{}, false
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
	if r.prior != nil {
		if period := r.prior.period(int64(k)); period != nil && k-int(period.first) < len(period.tracks) {
			return cmaf.Init(period.tracks[k-int(period.first)]), nil
		}
	}
	return nil, weir.ErrNotFound()
}
