package live

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// The tracks of a source, as viewers see them.
const (
	videoName = media.RecordedVideo
	audioName = media.RecordedAudio
)

// session is one broadcast of a stream on this node: it is on air, or waits for its
// encoder to come back.
type session struct {
	log    *slog.Logger
	stream weir.Stream
	info   weir.Session
	dir    string
	before *session    // that players saw before this one, as long as they may; guarded by the hub
	moved  atomic.Bool // another node carries it by now
	back   *lookback   // nil = no other node carried it before

	// looking guards which renditions there are. It is never held for long, so that no
	// viewer waits for the disk; whoever changes them holds mu as well.
	looking sync.RWMutex
	video   *rendition // nil = there was none so far
	audio   *rendition
	rungs   []*rendition // of the ladder, which writes them

	ladder *ladder   // nil = there is none
	line   *timeline // for the ladder

	poster poster

	// Of the goroutine that uploads.
	uploaded     map[string]*media.Uploaded // by track
	uploadFailed bool

	mu    sync.Mutex
	lease store.OnAir

	engine     *ffmpeg.Engine // nil = nothing is encoded
	targets    func(sessionID string) ([]weir.TargetHealth, []string)
	opus       *opusMaker     // nil = nobody wants it
	aac        *aacMaker      // nil = the audio is packed as it comes
	opusOnly   bool           // though it is Opus, because there is no room to make AAC of it
	making     sync.WaitGroup // of AAC
	taps       []*Tap         // who else reads what the publisher sends
	over       bool           // nobody will go on with the session
	leapt      store.OnAir    // has the numbers to go on with after segments were lost; zero = none were
	unrecorded bool           // what comes is not kept, because there is no room
	stopped    bool           // nobody will go on with it here
	publisher  *Publisher     // nil = it is away
	muxer      *muxer         // of the publisher
	end        time.Duration  // of what there is, on the timeline

	allowance *allowance
	jumped    time.Time // when the log told of it

	offAir time.Time // when a publisher that is away counts as gone; zero = the store knows it
	bytes  int64     // from publishers, since the session was opened here
	seen   time.Time // when the last frame came
	beaten beaten
	health meter
	unwell bool  // the health has issues
	lost   int64 // frames that taps were too slow for that are closed by now
}

// beaten is what the last beat said, for the rates.
type beaten struct {
	at         time.Time
	bytes      int64
	transcoded int64
}

// openSession takes up what is in the folder of a session, if there is one.
func openSession(dir string, stream weir.Stream, info weir.Session, lease store.OnAir, log *slog.Logger) (*session, error) {
	s := &session{
		log: log.With("stream", stream.ID, "session", info.ID), stream: stream, info: info, lease: lease, dir: filepath.Join(dir, info.Folder(len(info.Earlier))),
		back: newLookback(info, lease), allowance: newAllowance(), beaten: beaten{at: time.Now(), transcoded: info.TranscodedBytes},
	}
	for name, to := range map[string]**rendition{videoName: &s.video, audioName: &s.audio} {
		recorder, err := media.Recover(filepath.Join(s.dir, name))
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err == nil {
			*to, err = s.newRendition(name, recorder)
		}
		if err != nil {
			return nil, fmt.Errorf("recover %s of session %s: %w", name, info.ID, err)
		}
		s.end = max(s.end, (*to).end())
	}
	s.end = max(s.end, s.periodStart())
	return s, s.leaveOutLost()
}

// leaveOutLost sees to it that numbers of segments do not come again that players have seen
// of a stream which is not recorded, and that a power cut took away. A session that was only
// killed has all that it told the store of, in the track that is furthest, and the other one
// is a segment behind at most, unless it came later: then numbers are left out for nothing.
func (s *session) leaveOutLost() error {
	furthest, least := s.lease.Sequence, s.lease.NextSequence
	for _, r := range s.renditions() {
		n, _ := r.totals()
		furthest, least = max(furthest, n), min(least, n)
	}
	if s.info.Record || furthest >= s.lease.NextSequence && least >= s.lease.NextSequence-1 {
		return nil
	}
	s.log.Warn("segments that were not safe on disk are lost", "up to", s.lease.NextSequence-1)
	s.leapt = s.lease
	s.leapt.Leap()
	for _, r := range s.renditions() {
		if err := r.skip(s.leapt.NextSequence-r.base, s.leapt.NextDiscontinuities); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) newRendition(name string, recorder *media.Recorder) (*rendition, error) {
	r, err := newRendition(name, recorder, s.lease.Sequence, s.lease.Discontinuities, s.info.CreatedAt.Time(), s.info.Record && !s.unrecorded)
	if err != nil {
		return nil, err
	}
	if s.back != nil {
		r.back = s.back
		r.begin(true)
	}
	if to := s.leapt.NextSequence - r.base; recorder.Next() < to {
		err = r.skip(to, s.leapt.NextDiscontinuities)
	}
	return r, err
}

// hasMedia reports whether there is something to see.
func (s *session) hasMedia() bool {
	s.looking.RLock()
	defer s.looking.RUnlock()
	return slices.ContainsFunc(s.renditions(), func(r *rendition) bool { return r.progress.Load() != nil })
}

// renditions returns the tracks of the source, to whoever holds mu or looking.
func (s *session) renditions() []*rendition {
	var all []*rendition
	for _, r := range []*rendition{s.video, s.audio} {
		if r != nil {
			all = append(all, r)
		}
	}
	return all
}

// everything returns the renditions that viewers can have.
func (s *session) everything() []*rendition {
	s.looking.RLock()
	defer s.looking.RUnlock()
	return append(s.renditions(), s.rungs...)
}

// begin lets a publisher take over, with the tracks that it has. Whoever had the
// session before is told to end.
func (s *session) begin(p *Publisher, tracks []cmaf.Track, now time.Time) error {
	s.endAudio()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.allowance.change(now); err != nil {
		return err
	}
	if err := s.pause(); err != nil {
		return err
	}
	if s.publisher != nil && s.publisher != p {
		s.publisher.stop(errTakenOver)
	}
	s.health.connected(tracks, s.publisher != p, now)
	s.publisher, s.offAir = p, time.Time{}
	p.tracks = tracks
	p.clock = newClock(max(s.end, now.Sub(s.info.CreatedAt.Time())))
	return nil
}

// opens reports whether a frame is one that players can begin with.
func (p *Publisher) opens(f Frame) bool {
	hasVideo := slices.ContainsFunc(p.tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
	return !hasVideo || p.tracks[f.Track].Kind == cmaf.Video && f.Sync
}

// start makes the packers of a publisher, whose first frame has come that players can begin
// with. maker makes its audio; nil = it is packed as it comes.
func (s *session) start(p *Publisher, first Frame, maker *aacMaker) error {
	m := &muxer{line: s.line}
	defer func() {
		if maker != nil && s.aac != maker {
			maker.release()
		}
	}()
	p.packers = make([]*packer, len(p.tracks))
	for i, track := range p.tracks {
		name, to, pack := videoName, &s.video, &m.video
		if track.Kind == cmaf.Audio {
			name, to, pack = audioName, &s.audio, &m.audio
		}
		if *pack != nil {
			continue // a second track of a kind is left out
		}
		if track.Kind == cmaf.Audio && maker != nil {
			track = maker.track
		}
		if track.Kind == cmaf.Video {
			// What the encoder decodes ahead of showing it, which it says with its first
			// frame: so far ahead are times in stored segments, or players would have to
			// show frames before they are decoded.
			track.Delay = max(track.Ticks(first.PTS-first.DTS), 0)
		}
		if err := s.track(name, to, track); err != nil {
			return err
		}
		*pack = newPacker((*to).track, *to)
		p.packers[i] = *pack
	}
	s.muxer = m
	if s.aac = maker; maker != nil {
		maker.start()
	}
	s.share(Tapped{Tracks: p.tracks})
	return nil
}

// track makes a rendition ready for a track: there is none yet, or it changes.
func (s *session) track(name string, to **rendition, track cmaf.Track) error {
	if *to != nil {
		return (*to).change(track)
	}
	recorder, err := media.Record(filepath.Join(s.dir, name), track)
	if err != nil {
		return err
	}
	r, err := s.newRendition(name, recorder)
	if err != nil {
		return err
	}
	s.looking.Lock()
	defer s.looking.Unlock()
	*to = r
	return nil
}

// pause ends the segments in hand; what comes next does not go on where they end.
func (s *session) pause() error {
	if s.muxer == nil {
		return nil
	}
	err := s.muxer.end()
	for _, r := range s.renditions() {
		r.breakOff()
	}
	if s.aac != nil {
		s.aac.cancel() // if it is not over yet
	}
	s.muxer, s.aac = nil, nil
	s.line.pause()
	return err
}

// write takes a frame of the publisher that has the session.
func (s *session) write(p *Publisher, f Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publisher != p {
		return errTakenOver
	}
	now := time.Now()
	if err := s.allowance.take(len(f.Data), now); err != nil {
		return err
	}
	s.bytes, s.seen = s.bytes+int64(len(f.Data)), now
	if s.muxer == nil {
		if !p.opens(f) {
			return nil
		}
		if err := s.start(p, f, s.newAACMaker(p.tracks, p.clock.start)); err != nil {
			return err
		}
	} else if err := s.makeUp(p, f); err != nil {
		return err
	}
	pack := p.packers[f.Track]
	if pack == nil {
		return nil
	}
	audio := pack == s.muxer.audio
	dts, pts, jumped := p.clock.at(f)
	if jumped && s.seen.Sub(s.jumped) > sampleEvery { // some jump all the time; the health counts them
		s.jumped = s.seen
		s.log.Info("the times of the encoder jumped", "to", dts)
	}
	if audio && dts < p.clock.start-maxEarly {
		return nil // of before the first picture
	}
	s.health.frame(audio, f.Sync, jumped, dts, len(f.Data), s.seen)
	s.share(Tapped{Track: f.Track, PTS: pts, DTS: dts, Sync: f.Sync || audio, Data: f.Data})
	if audio && s.aac != nil {
		s.aac.add(pts, f.Data) // it comes back as AAC
		return nil
	}
	settled, ok := pack.order.add(dts, pts, f.Sync || audio, f.Data)
	shared := p.shared
	if !audio {
		p.shared = len(s.taps) > 0
	}
	if !ok {
		return nil
	}
	if err := pack.endless(settled); err != nil {
		return err
	}
	// The frame in hand ends later than the settled one, and what is decoded last may not be
	// what is shown last: the next encoder must not begin before that.
	// How long it lasts is not known: not as long as a hole before it.
	lasts := min(pack.Track.Time(int64(settled.Duration)), maxFrame)
	s.end = max(s.end, pack.Track.Time(settled.at+int64(settled.Duration)), pts+lasts)
	if audio {
		return s.muxer.addAudio(settled)
	}
	if !shared {
		settled.reuse = p.from.Reuse
	}
	if err := s.muxer.addVideo(settled); err != nil {
		return err
	}
	return s.aac.follow(pack.Track.Time(settled.at))
}

// share hands a frame to whoever else reads.
func (s *session) share(f Tapped) {
	for _, t := range s.taps {
		t.tell(f)
	}
}

// lastSeen returns when the last frame came.
func (s *session) lastSeen() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// has reports whether a publisher has the session.
func (s *session) has(p *Publisher) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.publisher == p
}

// leave notes that a publisher has gone; it counts as gone from a moment on.
func (s *session) leave(p *Publisher, offAir time.Time) error {
	if s.has(p) {
		s.endAudio()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.publisher != p {
		return nil
	}
	s.publisher, s.offAir = nil, offAir
	return s.pause()
}

// away reports whether the store is to be told that the publisher is gone, and what
// it sent.
func (s *session) away(now time.Time) (store.Beat, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beatNow(now), s.publisher == nil && !s.offAir.IsZero() && now.After(s.offAir)
}

// toldAway notes that the store knows, unless the publisher is back.
func (s *session) toldAway(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.Epoch == epoch {
		s.offAir = time.Time{}
	}
}

// renew notes that the session goes on with another lease.
func (s *session) renew(lease store.OnAir) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease = lease
}

// beat returns what the store is told of the session.
func (s *session) beat(now time.Time) store.Beat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beatNow(now)
}

func (s *session) beatNow(now time.Time) store.Beat {
	b := store.Beat{StreamID: s.stream.ID, Epoch: s.lease.Epoch, Counters: s.info.Counters, NextSequence: s.lease.Sequence, NextDiscontinuities: s.lease.Discontinuities}
	if !s.seen.IsZero() {
		b.SeenAt = weir.At(s.seen)
	}
	var failing []string
	b.Pushes, failing = s.targets(s.info.ID)
	b.Issues = s.measure(now, failing)
	b.Samples = slices.Clone(s.health.waiting)
	b.Counters.SourceBytes += s.bytes
	b.End = s.end
	main := s.video
	if main == nil {
		main = s.audio
	}
	if main != nil {
		b.Counters.SourceSegments, b.Counters.SourceSegmentsDuration = main.carried()
		b.Counters.SourceSegments += s.info.Before().SourceSegments
		b.Counters.SourceSegmentsDuration += s.info.Before().SourceSegmentsDuration
	}
	s.ladder.count(&b)
	if span := now.Sub(s.beaten.at).Seconds(); span > 0.5 {
		s.info.Counters.IngestRate = float64(s.bytes-s.beaten.bytes) / span
		s.info.Counters.OutgoingRate = float64(b.Counters.TranscodedBytes-s.beaten.transcoded) / span
		s.beaten = beaten{now, s.bytes, b.Counters.TranscodedBytes}
	}
	b.Counters.IngestRate, b.Counters.OutgoingRate = s.info.Counters.IngestRate, s.info.Counters.OutgoingRate
	for _, r := range s.renditions() {
		n, breaks := r.totals()
		b.NextSequence, b.NextDiscontinuities = max(b.NextSequence, n), max(b.NextDiscontinuities, breaks)
	}
	return b
}

// told notes that the store has what was measured before a moment.
func (s *session) told(before time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.health.written(weir.At(before))
}

// sync makes sure that what is finished survives a power cut, if it is to be kept. The last
// minute of a stream that is not recorded is not worth what that costs the disk.
func (s *session) sync() error {
	do := (*media.Recorder).Tidy
	if s.info.Record {
		do = (*media.Recorder).Sync
	}
	var failed error
	for _, r := range s.everything() {
		failed = errors.Join(failed, do(r.recorder))
	}
	return failed
}

// stop tells the publisher to end and finishes what it has sent. ended = nobody will go
// on with the session.
func (s *session) stop(cause error, ended bool) error {
	s.mu.Lock()
	if s.publisher != nil {
		s.publisher.stop(cause)
	}
	s.mu.Unlock()
	s.endAudio()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.publisher, s.stopped = nil, true
	err := s.pause()
	if ended {
		s.over, cause = true, io.EOF
		for _, r := range s.renditions() {
			r.conclude()
		}
	}
	for _, t := range s.taps {
		t.end(cause)
	}
	return err
}

// close lets go of the files, and removes them if nobody wants them.
func (s *session) close(remove bool) error {
	s.back.close()
	s.ladder.wait()
	s.making.Wait()
	s.poster.close()
	var failed error
	for _, r := range s.everything() {
		failed = errors.Join(failed, r.recorder.Close())
	}
	if remove {
		failed = errors.Join(failed, os.RemoveAll(s.dir))
	}
	return failed
}
