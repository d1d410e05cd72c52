package live

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// session is one broadcast of a stream on this node: it is on air, or waits for its encoder to
// reconnect.
type session struct {
	log    *slog.Logger
	stream weir.Stream
	info   weir.Session // as it was when it was opened here
	before *session     // players see it until this one has media; guarded by the hub

	renditions renditions      // what viewers can fetch
	ladder     *ladder         // encodes the rungs; nil = there is none
	poster     poster          // image of the newest key frame
	uploads    uploads         // what is in the storage; for the goroutine that uploads
	earlier    *earlierPeriods // what other nodes recorded before; nil = no other node carried it
	handedOver atomic.Bool     // another node carries it now

	mu    sync.Mutex // guards all that follows
	lease store.OnAir
	// unconfirmed is how often the lease is to be read: the store may have a newer one.
	unconfirmed int
	conn        connection    // the encoder, and how far its media is
	audio       audioEncoders // Opus to AAC, AAC to Opus
	taps        taps          // readers of the frames beside the packager
	health      health        // how the encoder does
	lastBeat    time.Time     // when the store last had a beat, or the session was opened
	numbers     numbers       // how far the store knows it is
	recorded    int64         // bytes of the recording, as of the last beat or its end
	counted     int64         // the same of the last beat that the store has
	stopped     bool          // it does not continue on this node
	released    bool          // another node has asked for it; the store must give it to this one again
	over        bool          // it does not continue anywhere
}

// openSession opens a session with what is in its folder, if there is one.
func openSession(o Options, stream weir.Stream, info weir.Session, lease store.OnAir) (*session, error) {
	s := &session{
		log: o.Log.With("stream", stream.ID, "session", info.ID), stream: stream, info: info, lease: lease, lastBeat: time.Now(), recorded: info.RecordedBytes, counted: info.RecordedBytes,
		earlier: newEarlierPeriods(info, lease, o.maxLoad), conn: connection{allowance: newAllowance()}, health: newHealth(o.Targets, info.Counters),
	}
	s.renditions = renditions{
		dir: filepath.Join(o.Dir, info.Folder(len(info.Earlier))), log: s.log, record: info.Recorded(), created: info.CreatedAt.Time(), lease: lease, earlier: s.earlier, published: o.Published,
		partTarget: partTarget(o.partDuration(&info)),
	}
	s.renditions.target.set(info.Target)
	if info.Record && info.Unrecorded {
		s.renditions.neverRecord(quotaUsedUp)
	}
	s.poster = poster{engine: o.FFmpeg, log: s.log, file: filepath.Join(o.Dir, posterFolder, stream.ID+posterSuffix)}
	s.uploads.to, s.uploads.prefix, s.uploads.period = o.Upload, media.AssetFolder(info.ID), len(info.Earlier)
	s.uploads.log, s.uploads.tracks, s.uploads.limit = s.log, map[string]*media.Uploaded{}, o.maxUpload
	s.numbers = numbers{bounded: o.Release != nil, next: lease.NextSequence, at: time.Now().Add(-lease.Silent)}
	s.taps.mu = &s.mu
	s.audio = audioEncoders{engine: o.FFmpeg, log: s.log, taps: &s.taps, pack: s.packAAC, full: s.stopWriting}
	var err error
	if s.conn.end, err = s.renditions.recover(); err != nil {
		return nil, err
	}
	if len(info.Earlier) > 0 && len(s.renditions.source()) == 0 {
		s.conn.end = info.End + maxUnreported // after all that other nodes have, whatever their clocks say
	}
	if s.ladder, err = s.startLadder(o.FFmpeg); err != nil {
		return nil, err
	}
	if s.earlier != nil {
		s.earlier.start(o.Upload, s.log, &s.renditions)
	}
	return s, nil
}

// grown returns how many bytes the recording has that the store does not know of. recording is false
// if the session is not recorded, or not any more.
func (s *session) grown() (bytes int64, recording bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.renditions.record || s.renditions.full {
		return 0, false
	}
	return s.sourceBytes() - s.counted, true
}

// sourceBytes returns how many bytes the session has received. The caller holds the lock.
func (s *session) sourceBytes() int64 { return s.info.Counters.SourceBytes + s.conn.bytes }

// endRecording stops keeping the source; the recording so far is kept.
func (s *session) endRecording(why string) {
	s.shrink(func(a *renditions) {
		if a.record && !a.full {
			s.recorded = s.sourceBytes()
		}
		a.endRecording(why)
	})
}

// renew notes that the session continues with another lease.
func (s *session) renew(lease store.OnAir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease, s.released = lease, false
}

// beat returns the state of the session for the store.
func (s *session) beat(now time.Time) store.Beat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beatLocked(now)
}

func (s *session) beatLocked(now time.Time) store.Beat {
	b := store.Beat{
		StreamID: s.stream.ID, Epoch: s.lease.Epoch, Counters: s.info.Counters, End: s.conn.end, Received: s.conn.received, Target: s.renditions.target.get(),
		NextSequence: s.lease.Sequence, NextDiscontinuities: s.lease.Discontinuities,
		Final: s.conn.publisher == nil && s.conn.muxer == nil,
	}
	if !s.conn.lastFrame.IsZero() {
		b.SeenAt = weir.At(s.conn.lastFrame)
	}
	var failing []string
	b.Pushes, failing = s.health.targets(s.info.ID)
	b.Issues = s.issues(now, failing)
	s.health.hasIssues = len(b.Issues) > 0
	b.Samples = slices.Clone(s.health.unsaved)
	b.Counters.SourceBytes = s.sourceBytes()
	if s.renditions.record && !s.renditions.full {
		s.recorded = b.Counters.SourceBytes
	}
	b.RecordedBytes = s.recorded
	if source := s.renditions.source(); len(source) > 0 {
		b.Counters.SourceSegments, b.Counters.SourceSegmentsDuration = source[0].carried()
		b.Counters.SourceSegments += s.info.Before().SourceSegments
		b.Counters.SourceSegmentsDuration += s.info.Before().SourceSegmentsDuration
	}
	s.ladder.count(&b)
	b.Counters.IngestRate, b.Counters.OutgoingRate = s.health.throughput.update(s.conn.bytes, b.Counters.TranscodedBytes, now)
	for _, r := range s.renditions.source() {
		n, discontinuities := r.totals()
		b.NextSequence, b.NextDiscontinuities = max(b.NextSequence, n), max(b.NextDiscontinuities, discontinuities)
	}
	s.numbers.reporting = b.NextSequence
	return b
}

// beatSaved notes that the store has the beat of a time. It may have left out a stream that another
// transaction was changing, so a health sample goes with two beats.
func (s *session) beatSaved(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastBeat, s.counted = at, s.recorded
	s.numbers.next, s.numbers.at = s.numbers.reporting, at
	s.health.saved(weir.At(at.Add(-beatEvery / 2)))
}

// numbers are what others know of the numbers of segments, if there are other nodes: one that continues
// the session must not use numbers that this one has shown.
type numbers struct {
	bounded   bool
	reporting int64     // the first number that was not shown, as of the newest beat
	next      int64     // the same of the last beat that the store has
	at        time.Time // of that beat
}

// mayShow reports whether a number may be shown. While beats come through, it may.
func (n *numbers) mayShow(number int64, now time.Time) bool {
	silent := now.Sub(n.at)
	return !n.bounded || silent < 2*beatEvery || weir.MayShow(number, n.next, silent)
}

// reported reports whether the store had a beat so lately that no other node has taken the session
// for abandoned.
func (s *session) reported(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now.Sub(s.lastBeat) < weir.OnAirLease
}

// finished reports whether nothing will be added to the session.
func (s *session) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// stop disconnects the publisher and finishes what it has sent. ended = the session does not
// continue anywhere.
func (s *session) stop(cause error, ended bool) error {
	s.mu.Lock()
	if s.conn.publisher != nil {
		s.conn.publisher.stop(cause)
	}
	s.mu.Unlock()
	s.audio.drainAAC()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn.publisher, s.stopped = nil, true
	err := s.endSegments()
	if ended {
		s.over, cause = true, io.EOF
		for _, r := range s.renditions.source() {
			r.conclude()
		}
	}
	for _, t := range s.taps.all {
		t.end(cause)
	}
	return err
}

// close closes the files, and removes them if asked.
func (s *session) close(remove bool) error {
	s.earlier.close()
	s.ladder.wait()
	s.audio.running.Wait()
	s.poster.close()
	failed := s.renditions.each((*media.Recorder).Close)
	if remove {
		failed = errors.Join(failed, os.RemoveAll(s.renditions.dir))
	}
	return failed
}

// sync makes sure that finished segments survive a power cut, if they are to be kept. The last
// minute of a stream that is not recorded is not worth what that costs the disk.
func (s *session) sync() error {
	if s.info.Recorded() {
		return s.renditions.each((*media.Recorder).Sync)
	}
	return s.renditions.each((*media.Recorder).Tidy)
}
