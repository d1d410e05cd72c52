package live

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/store"
	"weir/internal/weir"
)

const (
	beatEvery = 2 * time.Second
	syncEvery = 200 * time.Millisecond
	// idleAfterLoss is how long after a lost connection a stream counts as inactive.
	idleAfterLoss = 8 * time.Second
	// shownAfter is how long a session that has ended has playlists, with their end.
	shownAfter = time.Minute
	// storeTimeout is how long the store may take for what it is told of streams. A slow database
	// needs seconds for a beat; one that hangs must not keep the beats from the database after it.
	storeTimeout = 30 * time.Second
	// maxSyncs is how many sessions are synced at the same time: for the file system several cost
	// as much as one.
	maxSyncs = 8
)

// Hub holds the streams that are on air on this node.
type Hub struct {
	o Options

	mu       sync.Mutex
	sessions map[string]*session // by stream
	playing  map[string]*session // by playback id; with those that ended less than shownAfter ago
	ended    map[*session]time.Time
	opened   chan struct{} // receives when a session opens
	closed   Stats         // of sessions that are closed

	admitted, refused atomic.Int64 // encoders

	handovers, skipped atomic.Int64 // sessions that another node had, and the numbers left out for that

	arrivals weir.Buckets[string] // of encoders, by stream

	space        space
	spaceUnknown sync.Once // the free space can't be read, which is logged

	pulls pulls
}

// New returns a hub with the sessions that this node carried before it was stopped. Its Run must run
// too.
func New(ctx context.Context, o Options) (*Hub, error) {
	if o.Targets == nil {
		o.Targets = func(string) ([]weir.TargetHealth, []string) { return nil, nil }
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	o.maxLoad, o.maxStore, o.maxUpload = maxLoad, storeTimeout, maxUploadTime
	h := &Hub{o: o, sessions: map[string]*session{}, playing: map[string]*session{}, ended: map[*session]time.Time{}, opened: make(chan struct{}, 1), pulls: pulls{all: map[string]*Pull{}}}
	h.arrivals.AtOnce, h.arrivals.PerSecond, h.arrivals.Max = maxArrivalsAtOnce, arrivalsPerSecond, maxArriving
	if err := h.recover(ctx); err != nil {
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// Publish admits an encoder with a stream key.
func (h *Hub) Publish(ctx context.Context, streamKey string, from Source) (*Publisher, error) {
	stream, returns, err := h.streamOf(ctx, weir.Secret(streamKey))
	if err != nil {
		if !weir.Retriable(err) {
			h.refused.Add(1)
		}
		return nil, err
	}
	if !h.arrivals.Take(stream.ID, time.Now()) {
		h.refused.Add(1)
		return nil, weir.Errorf(weir.Busy, "encoders of this stream connect too often; wait a few seconds")
	}
	if err := h.checkDisk(stream.ID); err != nil {
		h.refused.Add(1)
		return nil, err
	}
	h.admitted.Add(1)
	p := newPublisher(h, stream, from)
	p.returns = returns
	return p, nil
}

// Find returns the stream of a playback id: on air, waiting for its encoder, or just over.
func (h *Hub) Find(playbackID string) (*Broadcast, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s, ok := h.playing[playbackID]
	if ok && s.before != nil && !s.renditions.hasMedia() {
		s = s.before // players see the end of the last session until this one has media
	}
	return &Broadcast{s}, ok
}

// onAir begins a session of a stream on this node, or continues one that is open. returns = the
// encoder was admitted without the store, to the session that is open here.
func (h *Hub) onAir(ctx context.Context, stream weir.Stream, returns bool) (*session, error) {
	if err := h.checkDisk(stream.ID); err != nil { // what is pulled comes here first
		return nil, err
	}
	old := h.open(stream.ID)
	if returns && old != nil {
		return old, nil
	}
	timeout := h.o.maxStore
	if old != nil {
		timeout = returnTimeout
	}
	asking, cancel := context.WithTimeout(ctx, timeout+maxRelease)
	h.askToRelease(asking, stream)
	cancel()
	info, lease, err := h.takeOnAir(ctx, stream, timeout)
	if old != nil && unanswered(ctx, err) {
		old.unconfirm()
		h.o.Log.Warn("encoder continues its session without the store", "stream", stream.ID, "err", err)
		return old, nil
	}
	if err != nil {
		return nil, err
	}
	old = h.open(stream.ID)
	switch {
	case old == nil:
	case old.info.ID != info.ID: // the old one is closed already
		h.end(old, errTakenOver, true)
	case len(old.info.Earlier) != len(info.Earlier): // another node carried it meanwhile
		h.handOver(old)
	default:
		old.renew(lease)
		return old, nil
	}
	s, err := openSession(h.o, stream, info, lease)
	if err != nil {
		return nil, err
	}
	if len(info.Earlier) > 0 {
		h.handovers.Add(1)
		h.skipped.Add(lease.Sequence - info.Before().Next)
	}
	h.addSession(s)
	return s, nil
}

// takeOnAir lets this node carry a stream.
func (h *Hub) takeOnAir(ctx context.Context, stream weir.Stream, timeout time.Duration) (info weir.Session, lease store.OnAir, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = h.o.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		info, lease, err = tx.GoOnAir(ctx, stream, h.o.SessionTimeout, time.Now())
		return err
	})
	return info, lease, err
}

func (h *Hub) addSession(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if last := h.playing[s.stream.PlaybackID]; last != nil {
		if last.before != nil && !last.renditions.hasMedia() {
			last = last.before
		}
		last.before, s.before = nil, last
	}
	h.sessions[s.stream.ID], h.playing[s.stream.PlaybackID] = s, s
	notify(h.opened)
}

// Run keeps the sessions until ctx ends: it reports to the store that they are alive, ends those that
// have timed out or are not wanted any more, and syncs their files.
func (h *Hub) Run(ctx context.Context) error {
	changes, unwatch := h.o.Store.Watch(store.TopicLive)
	defer unwatch()
	var syncing sync.WaitGroup
	syncing.Go(func() { every(ctx, syncEvery, h.syncAll) })
	syncing.Go(func() { every(ctx, spaceEvery, func() { h.checkSpace(time.Now()) }) })
	syncing.Go(func() { every(ctx, quotaEvery, func() { h.checkQuotas(ctx) }) })
	syncing.Go(func() { every(ctx, beatEvery, func() { h.closeEnded(time.Now()) }) })
	syncing.Go(func() {
		h.sweep(ctx)
		every(ctx, sweepEvery, func() { h.sweep(ctx) })
	})
	syncing.Go(func() { h.keepPulls(ctx) })
	if h.o.Upload != nil {
		syncing.Go(func() { every(ctx, uploadEvery, func() { h.uploadAll(ctx) }) })
	}
	beat := time.NewTicker(beatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			syncing.Wait()
			return h.stop()
		case <-changes:
		case <-beat.C:
		}
		h.beat(ctx)
	}
}

// recover opens the sessions that this node carried before it was stopped.
func (h *Hub) recover(ctx context.Context) error {
	open, err := h.o.Store.OpenSessions(ctx, h.o.Node, h.o.SessionTimeout)
	if err != nil {
		return err
	}
	for _, lease := range open {
		stream, streamErr := h.o.Store.Stream(ctx, lease.StreamID)
		info, infoErr := h.o.Store.Session(ctx, lease.SessionID)
		if err := errors.Join(streamErr, infoErr); err != nil {
			return err
		}
		s, err := openSession(h.o, stream, info, lease)
		if err != nil {
			return err
		}
		s.conn.offAir = time.Now().Add(idleAfterLoss)
		h.addSession(s)
	}
	return nil
}

// withEnded returns the open sessions, and those that have ended and are not closed yet. The caller
// holds the lock.
func (h *Hub) withEnded() []*session {
	return slices.AppendSeq(slices.Collect(maps.Values(h.sessions)), maps.Keys(h.ended))
}

// open returns the open session of a stream; nil = there is none.
func (h *Hub) open(streamID string) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sessions[streamID]
}

// all returns the open sessions.
func (h *Hub) all() []*session {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.sessions))
}

// Broadcasts returns the open sessions of this node, on air or waiting for their encoder.
func (h *Hub) Broadcasts() []*Broadcast {
	var open []*Broadcast
	for _, s := range h.all() {
		open = append(open, &Broadcast{s})
	}
	return open
}

// Opened returns a channel that receives after sessions were opened. It is for one reader.
func (h *Hub) Opened() <-chan struct{} { return h.opened }

// every calls do at an interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// atOnce calls do for sessions, for several at the same time.
func atOnce(sessions []*session, limit int, do func(*session)) {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, s := range sessions {
		g.Go(func() error {
			do(s)
			return nil
		})
	}
	_ = g.Wait()
}

// syncAll syncs the files of sessions, so that they survive a power cut.
func (h *Hub) syncAll() {
	atOnce(h.all(), maxSyncs, func(s *session) {
		if err := s.sync(); err != nil {
			s.log.Warn("segments could not be synced to disk", "err", err)
		}
	})
}

// beat reports the state of the sessions to the store, and ends those that must end. A store that
// hangs delays the next beat by storeTimeout, and nothing else.
func (h *Hub) beat(ctx context.Context) {
	now := time.Now()
	sessions := map[string]*session{}
	var beats []store.Beat
	h.confirmLeases(ctx)
	for _, s := range h.all() {
		sessions[s.stream.ID] = s
		beats = append(beats, s.beat(now))
	}
	if len(beats) == 0 {
		return
	}
	lost, err := h.renewOnAir(ctx, beats, now)
	if err != nil {
		// If this takes too long, other nodes see the streams as inactive until it works again.
		if ctx.Err() == nil {
			h.o.Log.Warn("the state of the streams on air could not be saved", "err", err)
		}
		return
	}
	for _, s := range sessions {
		s.beatSaved(now)
	}
	saving, cancel := context.WithTimeout(ctx, h.o.maxStore)
	defer cancel()
	for _, l := range lost {
		if err := h.closeSession(saving, sessions[l.StreamID], l.Why); err != nil && ctx.Err() == nil {
			sessions[l.StreamID].log.Warn("the session could not be closed", "err", err)
		}
		delete(sessions, l.StreamID)
	}
	for _, s := range sessions {
		last, away := s.away(now)
		if !away {
			continue
		}
		err := h.o.Store.Tx(saving, func(tx *store.Tx) error { return tx.GoOffAir(saving, last, now) })
		if err == nil || errors.Is(err, store.ErrLostStream) {
			s.awayReported(last.Epoch)
		} else if ctx.Err() == nil {
			s.log.Warn("the disconnect of the encoder could not be saved", "err", err)
		}
	}
}

func (h *Hub) renewOnAir(ctx context.Context, beats []store.Beat, now time.Time) (lost []store.Lost, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.o.maxStore)
	defer cancel()
	err = h.o.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		lost, err = tx.RenewOnAir(ctx, beats, now)
		return err
	})
	return lost, err
}

// closeSession ends a session that must end.
func (h *Hub) closeSession(ctx context.Context, s *session, why weir.Ending) error {
	if why == weir.EndTakenOver {
		if air, err := h.o.Store.OnAirOf(ctx, s.stream.PlaybackID); err == nil && air.Node != h.o.Node {
			h.handOver(s)
		} else {
			h.end(s, errTakenOver, true)
		}
		return nil
	}
	if err := s.stop(errEnded, true); err != nil {
		s.log.Warn("the last segment from the encoder could not be written", "err", err)
	}
	now := time.Now()
	err := h.o.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.CloseSession(ctx, s.beat(now), now)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrLostStream) {
		return err
	}
	h.end(s, errEnded, true)
	if why == weir.EndBlocked { // nobody may play its end
		h.mu.Lock()
		h.ended[s] = time.Time{}
		h.mu.Unlock()
	}
	return nil
}

// end ends a session on this node. over = it does not continue anywhere; players see its end for a
// while.
func (h *Hub) end(s *session, cause error, over bool) {
	if err := s.stop(cause, over); err != nil {
		s.log.Warn("the last segment from the encoder could not be written", "err", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions[s.stream.ID] == s {
		delete(h.sessions, s.stream.ID)
	}
	h.ended[s] = time.Now()
}

// closeEnded closes the sessions that ended a while ago.
func (h *Hub) closeEnded(now time.Time) {
	h.mu.Lock()
	var old []*session
	for s, at := range h.ended {
		if now.Sub(at) < shownAfter {
			continue
		}
		old = append(old, s)
		h.closed.add(s.stats())
		delete(h.ended, s)
		if h.playing[s.stream.PlaybackID] == s {
			delete(h.playing, s.stream.PlaybackID)
		}
		if next := h.playing[s.stream.PlaybackID]; next != nil && next.before == s {
			next.before = nil
		}
	}
	h.mu.Unlock()
	for _, s := range old {
		if err := s.close(!s.info.Recorded()); err != nil {
			s.log.Warn("the files of the session could not be closed", "err", err)
		}
	}
}

// stop disconnects all publishers. Their sessions stay open, for another node or for the next start.
func (h *Hub) stop() error {
	var failed error
	for _, s := range h.all() {
		failed = errors.Join(failed, s.stop(errStopping, false), s.sync(), s.close(false))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.ended {
		failed = errors.Join(failed, s.close(!s.info.Recorded()))
	}
	return failed
}
