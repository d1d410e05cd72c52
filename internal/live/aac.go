package live

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

const (
	// aacCost is what making AAC of Opus costs, in thousandths of a core.
	aacCost = 50
	// audioRest is how long no audio comes before it counts as away. Encoders that say
	// nothing while nobody speaks send a sign of life every 0.4 s.
	audioRest = time.Second
	// audioStall is how long its encoder may make nothing of the audio that waits.
	audioStall = 3 * time.Second
	// maxAudioBytes is how much audio waits for its encoder: a minute or more.
	maxAudioBytes = 1 << 20
)

// aacMaker makes AAC of the Opus that a connection sends. Safari, platforms and many players
// of files take only that, so it is the audio of HLS, of recordings and of targets; viewers
// over WebRTC get the Opus as it came.
//
// What comes out is one line of frames without a hole: where there is no audio, or its
// encoder is away, there is silence, because players wait for audio that does not come.
type aacMaker struct {
	session *session
	engine  *ffmpeg.Engine
	opus    cmaf.Track
	track   cmaf.Track    // that it makes
	from    time.Duration // before it, nothing is heard
	release func()        // gives back the share of a core
	cancel  context.CancelFunc
	done    chan struct{}

	line aacLine // guarded by the session

	mu      sync.Mutex
	queue   []audioPacket
	size    int           // of the queue, in bytes
	end     time.Duration // of the newest packet
	closed  bool          // no more packets come
	resting bool          // all that came is made
	heard   time.Time     // when that came
	moved   time.Time     // when something was made, or there was nothing to do
	failed  bool
	wake    chan struct{}
}

// audioPacket is a packet of Opus, in ticks of its track.
type audioPacket struct {
	at, length int64
	data       []byte
}

// newAACMaker returns what makes AAC of the audio of a publisher; nil = the packager gets
// the audio as it comes, because it is not Opus or because there is no room.
func (s *session) newAACMaker(tracks []cmaf.Track, from time.Duration) *aacMaker {
	s.opusOnly = false
	i := slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Audio })
	if s.engine == nil || i < 0 || !isOpus(tracks[i]) {
		return nil
	}
	track, err := cmaf.SilenceTrack()
	if err != nil {
		return nil // it is what silence is sent as
	}
	chosen, release := s.engine.Reserve([]int{aacCost})
	if chosen < 0 {
		s.opusOnly = true
		return nil
	}
	now := time.Now()
	return &aacMaker{
		session: s, engine: s.engine, opus: tracks[i], track: track, from: from, release: release,
		done: make(chan struct{}), resting: true, heard: now, moved: now, wake: make(chan struct{}, 1),
	}
}

// makeUp makes AAC of audio that stayed Opus as soon as there is room, from a frame on that
// players can begin with; for them it is as if the encoder had come back. What is recorded
// stays as it is until the encoder does come back: an MP4 file can't have both.
func (s *session) makeUp(p *Publisher, f Frame) error {
	if !s.opusOnly || s.info.Record || !p.opens(f) {
		return nil
	}
	maker := s.newAACMaker(p.tracks, s.end)
	if maker == nil {
		return nil
	}
	if err := s.pause(); err != nil {
		maker.release()
		return err
	}
	s.log.Info("there is room now to make AAC of the sound")
	return s.start(p, f, maker)
}

func isOpus(t cmaf.Track) bool { return t.Kind == cmaf.Audio && strings.EqualFold(t.Codec, "opus") }

// start begins to make audio. The caller has the lock of the session.
func (m *aacMaker) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.session.making.Go(func() {
		defer close(m.done)
		defer m.release()
		defer cancel()
		m.run(ctx)
	})
}

// endAudio lets what is still in the encoder of the audio come out, for as long as something
// does. It is called before the packers of a connection end, without the lock of the session.
func (s *session) endAudio() {
	s.mu.Lock()
	m := s.aac
	s.mu.Unlock()
	if m == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.tell()
	tick := time.NewTicker(audioRest / 4)
	defer tick.Stop()
	for {
		select {
		case <-m.done:
			return
		case <-tick.C:
			if m.still() > audioStall {
				m.cancel()
			}
		}
	}
}

// add takes a packet of Opus. The caller has the lock of the session.
func (m *aacMaker) add(at time.Duration, packet []byte) {
	length := codec.OpusSamples(packet)
	if length <= 0 || len(packet) == 0 {
		return
	}
	p := audioPacket{m.opus.Ticks(at), length, packet}
	m.mu.Lock()
	defer m.mu.Unlock()
	if middle := m.opus.Time(p.at + length/2); m.closed || middle < m.end {
		return // it was heard already
	}
	m.end, m.heard = m.opus.Time(p.at+length), time.Now()
	m.queue, m.size = append(m.queue, p), m.size+len(packet)
	for m.size > maxAudioBytes {
		m.size -= len(m.queue[0].data)
		m.queue = slices.Delete(m.queue, 0, 1)
	}
	m.tell()
}

// tell wakes whoever waits for packets.
func (m *aacMaker) tell() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take returns the next packet; false = there is none, or none came for a while.
func (m *aacMaker) take(stop <-chan struct{}, timeout time.Duration) (audioPacket, bool) {
	var late <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		m.mu.Lock()
		if len(m.queue) > 0 {
			defer m.mu.Unlock()
			p := m.queue[0]
			m.queue, m.size = m.queue[1:], m.size-len(p.data)
			return p, true
		}
		closed := m.closed
		m.mu.Unlock()
		if closed {
			return audioPacket{}, false
		}
		select {
		case <-m.wake:
		case <-late:
			return audioPacket{}, false
		case <-stop:
			return audioPacket{}, false
		}
	}
}

// rest notes whether there is nothing to do.
func (m *aacMaker) rest(resting bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.resting, m.moved = resting, time.Now()
}

// still returns for how long nothing was made.
func (m *aacMaker) still() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.moved)
}

// run makes audio until no more comes.
func (m *aacMaker) run(ctx context.Context) {
	pause := firstPause
	for {
		first, ok := m.take(ctx.Done(), 0)
		if !ok {
			return
		}
		m.rest(false)
		began := time.Now()
		err := m.encode(ctx, first)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			m.rest(true)
			pause = firstPause
			continue
		}
		if time.Since(began) > ranWell {
			pause = firstPause
		}
		m.mu.Lock()
		m.failed = true
		m.mu.Unlock()
		m.session.log.Warn("the encoder of the sound ended; it is started again", "err", err, "in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// encode makes AAC of a packet and of all that follow, until none comes for a while.
func (m *aacMaker) encode(ctx context.Context, first audioPacket) error {
	in := &aacFeed{maker: m, packet: first, have: true, ready: cmaf.Init(m.opus), closed: make(chan struct{})}
	output, made := io.Pipe()
	var reading sync.WaitGroup
	var failed error
	reading.Go(func() {
		failed = m.read(output)
		_ = output.CloseWithError(failed)
	})
	err := m.engine.Run(ctx, ffmpeg.Command{
		Args: aacArgs(), Stdin: in, Outputs: []io.Writer{made}, Priority: ffmpeg.Live, Reserved: true, Pixels: 1, Stall: opusStall, CPU: longest,
	})
	_ = made.CloseWithError(err)
	reading.Wait()
	switch {
	case err != nil:
		return err
	case failed == nil && !in.drained.Load():
		return errors.New("the encoder of the sound ended before the sound did")
	}
	return failed
}

// aacArgs says what ffmpeg does: make AAC of Opus, and hold back nothing. Times go through:
// of small holes and of clocks that drift the filter makes an even line.
func aacArgs() []string {
	return append(ffmpeg.InputOptions(), "-copyts", "-probesize", "32", "-analyzeduration", "0", "-f", "mp4", "-i", "pipe:0",
		"-af", "aresample=osr=48000:async=1000:min_hard_comp=0.03", "-ac", "2", "-c:a", "aac", "-b:a", "128k",
		"-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-flush_packets", "1",
		"-f", "mp4", "-movflags", "+delay_moov+default_base_moof+frag_discont+frag_every_frame", "-use_editlist", "0", "-write_btrt", "0",
		"-avoid_negative_ts", "disabled", "pipe:3")
}

// aacFeed gives packets to ffmpeg as fragmented MP4, one in each fragment.
type aacFeed struct {
	maker    *aacMaker
	packet   audioPacket // that is next, if there is one in hand
	have     bool
	ready    []byte
	sequence uint32
	last     int64       // when the last packet was
	drained  atomic.Bool // there is nothing more
	closed   chan struct{}
	closing  sync.Once
}

// Read gives the next bytes.
func (f *aacFeed) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if !f.have {
			if f.packet, f.have = f.maker.take(f.closed, audioRest); !f.have {
				f.drained.Store(true)
				return 0, io.EOF
			}
		}
		f.have = false
		at := f.packet.at
		if f.sequence > 0 {
			at = max(at, f.last+1)
		}
		f.last = at
		f.sequence++
		_, f.ready = cmaf.EncodePart(f.sequence, f.maker.opus, cmaf.Fragment{
			Start: at, Data: f.packet.data, Samples: []cmaf.Sample{{Duration: uint32(f.packet.length), Size: uint32(len(f.packet.data)), Sync: true}},
		})
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// Close says that nobody reads any more.
func (f *aacFeed) Close() error {
	f.closing.Do(func() { close(f.closed) })
	return nil
}

// read takes what ffmpeg makes.
func (m *aacMaker) read(from io.Reader) error {
	reader := cmaf.NewReader(from)
	for {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		at, data := f.Start-m.track.Ticks(cmaf.Lead), f.Data
		for _, s := range f.Samples {
			if int64(s.Size) > int64(len(data)) {
				return weir.Errorf(weir.Internal, "the encoder of sound wrote less than it said")
			}
			if err := m.emit(at, data[:s.Size:s.Size]); err != nil {
				return err
			}
			at, data = at+int64(s.Duration), data[s.Size:]
		}
	}
}

// errNotWanted says that the connection is over whose audio is made.
var errNotWanted = errors.New("the sound is not wanted any more")

// emit hands a frame of AAC to the packager and to readers, after the silence that is before
// it.
func (m *aacMaker) emit(at int64, frame []byte) error {
	m.mu.Lock()
	m.moved, m.failed = time.Now(), false
	m.mu.Unlock()
	s := m.session
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.aac != m:
		return errNotWanted
	case at < m.track.Ticks(m.from): // what encoders put in front, or of before the first picture
		return nil
	}
	silence, ok := m.line.place(at)
	if !ok {
		return nil // there was silence instead, or the same
	}
	for range silence {
		if err := m.put([]byte(codec.SilenceFrame)); err != nil {
			return err
		}
	}
	return m.put(frame)
}

// put puts a frame at the end of the line. The caller has the lock of the session.
func (m *aacMaker) put(frame []byte) error {
	s := m.session
	at := m.line.next
	m.line.next += codec.SilenceDuration
	start, end := m.track.Time(at), m.track.Time(m.line.next)
	s.end = max(s.end, end)
	for _, t := range s.taps {
		if t.form == AudioAAC && t.instead >= 0 {
			t.addAudio(Tapped{Track: t.instead, PTS: start, DTS: start, Sync: true, Data: frame})
		}
	}
	return s.muxer.addAudio(sample{Sample: cmaf.Sample{Duration: codec.SilenceDuration, Size: uint32(len(frame)), Sync: true}, at: at, data: frame})
}

// follow puts silence where no audio comes although the picture goes on, and where its
// encoder makes nothing of it. The caller has the lock of the session.
func (m *aacMaker) follow(picture time.Duration) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	away, stuck := m.resting && time.Since(m.heard) > audioRest, !m.resting && time.Since(m.moved) > audioStall
	m.mu.Unlock()
	behind := audioRest
	switch {
	case stuck:
		behind = audioStall
	case !away:
		return nil
	}
	until := m.track.Ticks(picture - behind)
	if until > m.track.Ticks(m.from) && !m.line.begun {
		m.line.place(m.track.Ticks(m.from))
	}
	if !m.line.begun {
		return nil
	}
	for m.line.next+codec.SilenceDuration <= until {
		if err := m.put([]byte(codec.SilenceFrame)); err != nil {
			return err
		}
	}
	m.skip(m.line.next)
	return nil
}

// skip forgets packets of before a time: silence is there instead.
func (m *aacMaker) skip(before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 && m.queue[0].at+m.queue[0].length <= before {
		m.size -= len(m.queue[0].data)
		m.queue = m.queue[1:]
	}
}

// audioIssues says what is not well with the audio. The caller has the lock of the session,
// which has a publisher.
func (s *session) audioIssues() []string {
	if s.publisher.leftOut != "" {
		return []string{s.publisher.leftOut}
	}
	if s.opusOnly {
		return []string{"the sound stays Opus, which Safari and multistream targets do not take: this server is too busy to make AAC of it; the encoder may send AAC, or connect again later"}
	}
	if s.aac == nil {
		return nil
	}
	s.aac.mu.Lock()
	defer s.aac.mu.Unlock()
	if !s.aac.failed {
		return nil
	}
	return []string{"the sound is missing for the moment: its encoder failed and is started again"}
}

// aacLine puts frames of AAC one after the other: each begins where the one before it ended,
// so that times are at most half a frame, 11 ms, away from where the encoder has them.
type aacLine struct {
	next  int64 // where the next frame is
	begun bool
}

// place returns how much silence is before a frame that is heard at a time; false = there is
// no place for it any more.
func (l *aacLine) place(at int64) (silence int64, ok bool) {
	if !l.begun {
		l.begun, l.next = true, at
	}
	if at < l.next-codec.SilenceDuration/2 {
		return 0, false
	}
	return (at - l.next + codec.SilenceDuration/2) / codec.SilenceDuration, true
}

// withAAC returns tracks with AAC instead of Opus, and which one that is; -1 = none. The
// caller has the lock of the session.
func (s *session) withAAC(tracks []cmaf.Track) ([]cmaf.Track, int) {
	i := slices.IndexFunc(tracks, isOpus)
	if s.aac == nil || i < 0 {
		return tracks, -1
	}
	tracks = slices.Clone(tracks)
	tracks[i] = s.aac.track
	return tracks, i
}
