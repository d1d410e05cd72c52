package live

import (
	"time"

	"weir/internal/cmaf"
	"weir/internal/store"
	"weir/internal/weir"
)

// connection is the encoder of a session, and how far its media is. The session's lock guards it.
type connection struct {
	publisher *Publisher    // nil = none is connected
	muxer     *muxer        // of the publisher; nil = no frame came that players can begin with
	end       time.Duration // of the media so far, on the timeline
	allowance *allowance
	received  weir.Received // how the media came, since the session was opened here
	bytes     int64         // from publishers, since the session was opened here
	lastFrame time.Time     // when the last frame came
	jumpLog   time.Time     // when the log last named a jump of the encoder's clock
	offAir    time.Time     // when an encoder that is away counts as disconnected; zero = the store knows that it is
	dropping  bool          // the disk is full, and what is sent is dropped
	written   uint32        // parts of the source when that began
}

// connect connects a publisher that sends these tracks. The publisher before it must end.
func (s *session) connect(p *Publisher, tracks []cmaf.Track, now time.Time) error {
	s.audio.drainAAC()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.released {
		return ErrHandedOver
	}
	for _, r := range s.renditions.source() {
		if n, _ := r.totals(); !s.numbers.mayShow(n, now) {
			return weir.Errorf(weir.Busy, "the encoder connects too often while the database is away; try again in a few seconds")
		}
	}
	if err := s.conn.allowance.countChange(now); err != nil {
		return err
	}
	if err := s.endSegments(); err != nil {
		return err
	}
	before := s.conn.publisher
	if before != nil && before != p {
		before.stop(errTakenOver)
	}
	s.health.connected(tracks, before != p, now)
	s.conn.publisher, s.conn.offAir = p, time.Time{}
	p.tracks = tracks
	p.clock = s.clockAt(now)
	return nil
}

// clockAt returns a clock for an encoder whose first frame comes now.
func (s *session) clockAt(now time.Time) *clock {
	c := newClock(max(s.conn.end, now.Sub(s.info.CreatedAt.Time())))
	if s.conn.end > 0 {
		c.earliest = max(c.earliest, s.conn.end) // media must not overlap: there would be no MP4 file
	}
	return c
}

// startPackers makes the packers of a publisher, at its first frame that players can begin with. aac
// encodes its audio; nil = the audio is packed as it comes.
func (s *session) startPackers(p *Publisher, first Frame, aac *aacEncoder) error {
	m := &muxer{timeline: s.ladder.sourceTimeline(), numbers: &s.numbers}
	defer func() {
		if aac != nil && s.audio.aac != aac {
			aac.release()
		}
	}()
	p.packers = make([]*packer, len(p.tracks))
	for i, track := range p.tracks {
		name, to, pack := videoName, &s.renditions.video, &m.video
		if track.Kind == cmaf.Audio {
			name, to, pack = audioName, &s.renditions.audio, &m.audio
		}
		if *pack != nil {
			continue // only the first track of a kind is used
		}
		if track.Kind == cmaf.Audio && aac != nil {
			track = aac.track
		}
		if track.Kind == cmaf.Video {
			// Stored segments have their times this far ahead. Otherwise players would have to
			// show frames before they are decoded. The first frame says how far the encoder
			// decodes ahead.
			track.Delay = max(track.Ticks(first.PTS-first.DTS), 0)
		}
		if err := s.renditions.setTrack(name, to, track); err != nil {
			return err
		}
		*pack = newPacker((*to).track, *to)
		p.packers[i] = *pack
	}
	s.conn.muxer = m
	s.conn.received.Add(weir.Received{Protocols: []string{p.from.Protocol}, Encoded: aac != nil})
	if s.audio.aac = aac; aac != nil {
		aac.start()
	}
	s.taps.share(TapItem{Tracks: p.tracks})
	return nil
}

// endSegments ends the open segments. The next ones begin with a discontinuity.
func (s *session) endSegments() error {
	if s.conn.muxer == nil {
		return nil
	}
	err := s.conn.muxer.end()
	if weir.KindOf(err) == weir.Full {
		s.stopWriting(err)
		return nil
	}
	for _, r := range s.renditions.source() {
		r.setDiscontinuity(true)
	}
	s.audio.stopAAC()
	s.conn.muxer = nil
	s.ladder.sourceTimeline().pause()
	return err
}

// write takes a frame of a publisher.
func (s *session) write(p *Publisher, f Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.publisher != p {
		return errTakenOver
	}
	now := time.Now()
	if err := s.conn.allowance.countFrame(len(f.Data), now); err != nil {
		return err
	}
	s.conn.bytes, s.conn.lastFrame = s.conn.bytes+int64(len(f.Data)), now
	err := s.packFrame(p, f, now)
	if weir.KindOf(err) == weir.Full {
		s.stopWriting(err)
		return nil
	}
	s.noteWritten()
	return err
}

// packFrame packs a frame of the publisher. The caller holds the session's lock.
func (s *session) packFrame(p *Publisher, f Frame, now time.Time) error {
	if s.conn.muxer == nil {
		if !p.opens(f) {
			return nil
		}
		if s.conn.dropping {
			p.clock = s.clockAt(now) // the frames before this one are missing
		}
		if err := s.startPackers(p, f, s.audio.newAAC(p.tracks, p.clock.start)); err != nil {
			return err
		}
	} else if err := s.retryAAC(p, f); err != nil {
		return err
	}
	pack := p.packers[f.Track]
	if pack == nil {
		return nil
	}
	audio := pack == s.conn.muxer.audio
	dts, pts, jumped := p.clock.at(f)
	if jumped && now.Sub(s.conn.jumpLog) > sampleEvery { // some jump all the time; the health counts them
		s.conn.jumpLog = now
		s.log.Info("the timestamps of the encoder jumped", "to", dts)
	}
	if audio && dts < p.clock.earliest {
		return nil // from before the first video frame, or the end of what there is
	}
	s.health.frame(audio, f.Sync, jumped, dts, len(f.Data), now)
	s.taps.share(TapItem{Track: f.Track, PTS: pts, DTS: dts, Sync: f.Sync || audio, Data: f.Data})
	if audio && s.audio.aac != nil {
		s.audio.aac.enqueue(pts, f.Data) // packAAC gets it when it is encoded
		return nil
	}
	settled, ok := pack.retimer.add(dts, pts, f.Sync || audio, f.Data)
	if ok {
		if !audio && !p.shared {
			settled.reuse = p.from.Reuse
		}
		if err := s.packSample(pack, settled); err != nil {
			return err
		}
	}
	if !audio {
		p.shared = len(s.taps.all) > 0
	}
	if err := s.packPending(p, pack); err != nil {
		return err
	}
	// The pending frame ends later than the packed ones, and the frame that is decoded last need
	// not be the one that is shown last. The next encoder must begin after both. The duration of
	// the pending frame is not known; it is not that of a gap before it.
	s.conn.end = max(s.conn.end, pts+min(pack.lastDuration(), maxFrame))
	return nil
}

// packPending does what need not wait until the duration of the pending frame of a track is known: the
// segment before it ends, or a part that it fills.
func (s *session) packPending(p *Publisher, pack *packer) error {
	m := s.conn.muxer
	if pack == m.video {
		if err := m.cut(pack.retimer.decoded, pack.last, pack.retimer.held.Sync); err != nil {
			return err
		}
	}
	filling, ok := m.takeFilling(pack)
	if !ok {
		return nil
	}
	if pack == m.video && !p.shared {
		filling.reuse = p.from.Reuse
	}
	err := s.packSample(pack, filling)
	pack.predicted = true
	return err
}

// packSample packs a frame whose duration is known or predicted. The caller holds the session's lock.
func (s *session) packSample(pack *packer, f sample) error {
	if err := pack.checkLimits(f); err != nil {
		return err
	}
	s.conn.end = max(s.conn.end, pack.Track.Time(f.at+int64(f.Duration)))
	if pack == s.conn.muxer.audio {
		return s.conn.muxer.addAudio(f)
	}
	if err := s.conn.muxer.addVideo(f); err != nil {
		return err
	}
	return s.audio.aac.fillSilence(pack.Track.Time(f.at))
}

// retryAAC encodes AAC from audio that stayed Opus as soon as there is CPU for it, from a frame on
// that players can begin with. Players see it like a reconnect of the encoder. A recorded stream
// keeps its Opus until the encoder does reconnect: an MP4 file can't have both.
func (s *session) retryAAC(p *Publisher, f Frame) error {
	if !s.audio.opusOnly || s.info.Recorded() || !p.opens(f) {
		return nil
	}
	aac := s.audio.newAAC(p.tracks, s.conn.end)
	if aac == nil {
		return nil
	}
	if err := s.endSegments(); err != nil {
		aac.release()
		return err
	}
	s.log.Info("the server has enough CPU again: the audio is transcoded to AAC")
	return s.startPackers(p, f, aac)
}

// packAAC takes an encoded audio frame. The caller holds the session's lock.
func (s *session) packAAC(track cmaf.Track, f sample) error {
	start := track.Time(f.at)
	s.conn.end = max(s.conn.end, track.Time(f.at+int64(f.Duration)))
	for _, t := range s.taps.all {
		if t.form == AudioAAC && t.transcoded >= 0 {
			t.addAudio(TapItem{Track: t.transcoded, PTS: start, DTS: start, Sync: true, Data: f.data})
		}
	}
	return s.conn.muxer.addAudio(f)
}

// disconnect disconnects a publisher. The session waits for it to reconnect.
func (s *session) disconnect(p *Publisher, clean bool) error {
	offAir := time.Now()
	s.mu.Lock()
	connected := s.conn.publisher == p
	s.mu.Unlock()
	if connected {
		s.audio.drainAAC()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.publisher != p {
		return nil
	}
	if !clean {
		// The connection may have been dead for seconds before that was noticed.
		offAir = s.conn.lastFrame.Add(idleAfterLoss)
	}
	s.conn.publisher, s.conn.offAir = nil, offAir
	return s.endSegments()
}

// away returns the state of the session, and whether to report to the store that the encoder is
// disconnected.
func (s *session) away(now time.Time) (store.Beat, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.beatLocked(now), s.conn.publisher == nil && !s.conn.offAir.IsZero() && now.After(s.conn.offAir)
}

// awayReported notes that the store knows, unless an encoder is back.
func (s *session) awayReported(epoch int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease.Epoch == epoch {
		s.conn.offAir = time.Time{}
	}
}
