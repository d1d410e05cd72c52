package live

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

const (
	// aacCost is the CPU that encoding AAC from Opus takes, in thousandths of a core.
	aacCost = 50
	// maxAudioPause is how long no audio may come before there is silence instead. Encoders that
	// send nothing while nobody speaks send a sign of life every 0.4 s.
	maxAudioPause = time.Second
	// maxAudioStall is how long ffmpeg may produce nothing while audio waits for it.
	maxAudioStall = 3 * time.Second
	// maxAudioBytes is how much audio waits for ffmpeg: a minute or more.
	maxAudioBytes = 1 << 20
)

// aacEncoder encodes AAC from the Opus of a connection. Safari, platforms and many players of files
// take only AAC, so it is the audio of HLS, of recordings and of targets; viewers over WebRTC get
// the Opus as it came.
//
// Its output is a sequence of frames without gaps: there is silence where no audio comes or
// ffmpeg has failed, because players wait for audio that does not come.
type aacEncoder struct {
	encoders *audioEncoders
	source   cmaf.Track    // Opus
	track    cmaf.Track    // AAC
	from     time.Duration // where the audio begins on the timeline
	release  func()        // gives back the reserved CPU
	cancel   context.CancelFunc
	done     chan struct{}

	// Guarded by the session.
	timeline aacTimeline
	stopped  bool // the output is not used any more

	mu       sync.Mutex
	queue    []audioPacket
	size     int           // of the queue, in bytes
	end      time.Duration // of the newest packet
	closed   bool          // no more packets come
	idle     bool          // all packets are encoded
	received time.Time     // when the newest packet came
	advanced time.Time     // when something was encoded, or there was nothing to do
	failed   bool
	wake     chan struct{}
}

// audioPacket is a packet of Opus, in ticks of its track.
type audioPacket struct {
	at, duration int64
	data         []byte
}

// newAAC returns an encoder for the audio of a publisher; nil = the packager gets the audio as it
// comes, because it is not Opus or because there is no CPU for it.
func (a *audioEncoders) newAAC(tracks []cmaf.Track, from time.Duration) *aacEncoder {
	a.opusOnly = false
	i := slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Audio })
	if a.engine == nil || i < 0 || !isOpus(tracks[i]) {
		return nil
	}
	track, err := cmaf.SilenceTrack()
	if err != nil {
		return nil
	}
	chosen, release := a.engine.Reserve([]int{aacCost})
	if chosen < 0 {
		a.opusOnly = true
		return nil
	}
	now := time.Now()
	return &aacEncoder{
		encoders: a, source: tracks[i], track: track, from: from, release: release,
		done: make(chan struct{}), idle: true, received: now, advanced: now, wake: make(chan struct{}, 1),
	}
}

// start starts the encoder. The caller holds the session's lock.
func (m *aacEncoder) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.encoders.running.Go(func() {
		defer close(m.done)
		defer m.release()
		defer cancel()
		m.run(ctx)
	})
}

// stopAAC stops the encoder at once, if there is one. The caller holds the session's lock.
func (a *audioEncoders) stopAAC() {
	if a.aac == nil {
		return
	}
	a.aac.stopped = true
	a.aac.cancel()
	a.aac = nil
}

// drainAAC waits for the audio that is still in ffmpeg, as long as some comes out. It is called
// before the packers of a connection end, without the session's lock.
func (a *audioEncoders) drainAAC() {
	a.taps.mu.Lock()
	m := a.aac
	a.taps.mu.Unlock()
	if m == nil {
		return
	}
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	notify(m.wake)
	tick := time.NewTicker(maxAudioPause / 4)
	defer tick.Stop()
	for {
		select {
		case <-m.done:
			return
		case <-tick.C:
			m.mu.Lock()
			stalled := time.Since(m.advanced) > maxAudioStall
			m.mu.Unlock()
			if stalled {
				m.cancel()
			}
		}
	}
}

// enqueue takes a packet of Opus. The caller holds the session's lock.
func (m *aacEncoder) enqueue(at time.Duration, packet []byte) {
	duration := codec.OpusSamples(packet)
	if duration <= 0 || len(packet) == 0 {
		return
	}
	p := audioPacket{m.source.Ticks(at), duration, packet}
	m.mu.Lock()
	defer m.mu.Unlock()
	if middle := m.source.Time(p.at + duration/2); m.closed || middle < m.end {
		return // other audio has this time already
	}
	m.end, m.received = m.source.Time(p.at+duration), time.Now()
	m.queue, m.size = append(m.queue, p), m.size+len(packet)
	for m.size > maxAudioBytes {
		m.size -= len(m.queue[0].data)
		m.queue = slices.Delete(m.queue, 0, 1)
	}
	notify(m.wake)
}

// dequeue returns the next packet; false = no more come, or ctx has ended.
func (m *aacEncoder) dequeue(ctx context.Context) (audioPacket, bool) {
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
		case <-ctx.Done():
			return audioPacket{}, false
		}
	}
}

// setIdle notes whether there is nothing to encode.
func (m *aacEncoder) setIdle(idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.idle, m.advanced = idle, time.Now()
}

func (m *aacEncoder) hasFailed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// run encodes audio until no more comes.
func (m *aacEncoder) run(ctx context.Context) {
	var retry backoff
	for {
		first, ok := m.dequeue(ctx)
		if !ok {
			return
		}
		m.setIdle(false)
		began := time.Now()
		err := m.encode(ctx, first)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			m.setIdle(true)
			retry = backoff{}
			continue
		}
		pause := retry.next(began)
		m.mu.Lock()
		m.failed = true
		m.mu.Unlock()
		m.encoders.log.Warn("the audio encoder failed and will be restarted", "err", err, "in", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// encode encodes a packet and all that follow, until none comes for a while.
func (m *aacEncoder) encode(ctx context.Context, first audioPacket) error {
	in := &aacInput{encoder: m, packet: first, pending: true, ready: cmaf.Init(m.source)}
	in.ctx, in.cancel = context.WithCancel(ctx)
	defer in.cancel()
	err := m.encoders.transcode(ctx, aacArgs(), in, m.emit)
	if err == nil && !in.drained {
		return errors.New("the audio encoder exited before the end of its input")
	}
	return err
}

// aacArgs are the arguments of ffmpeg: it encodes AAC from Opus without delay. Times are kept; the
// filter evens out small gaps and clocks that drift.
func aacArgs() []string {
	return append(ffmpeg.InputOptions(), "-copyts", "-probesize", "32", "-analyzeduration", "0", "-f", "mp4", "-i", "pipe:0",
		"-af", "aresample=osr=48000:async=1000:min_hard_comp=0.03", "-ac", "2", "-c:a", "aac", "-b:a", "128k",
		"-map_metadata", "-1", "-fflags", "+bitexact", "-flags", "+bitexact", "-flush_packets", "1",
		"-f", "mp4", "-movflags", "+delay_moov+default_base_moof+frag_discont+frag_every_frame", "-use_editlist", "0", "-write_btrt", "0",
		"-avoid_negative_ts", "disabled", "pipe:3")
}

// aacInput gives packets to ffmpeg as fragmented MP4, one in each fragment.
type aacInput struct {
	ctx      context.Context // of the run of ffmpeg, which reads: a Read has no context of its own
	cancel   context.CancelFunc
	encoder  *aacEncoder
	packet   audioPacket // the next one, if pending
	pending  bool
	ready    []byte
	sequence uint32
	last     int64 // time of the last packet
	drained  bool  // there is nothing more
}

// Read gives the next bytes.
func (f *aacInput) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		if !f.pending {
			ctx, cancel := context.WithTimeout(f.ctx, maxAudioPause)
			f.packet, f.pending = f.encoder.dequeue(ctx)
			cancel()
			if !f.pending {
				f.drained = true
				return 0, io.EOF
			}
		}
		f.pending = false
		at := f.packet.at
		if f.sequence > 0 {
			at = max(at, f.last+1)
		}
		f.last = at
		f.sequence++
		_, f.ready = cmaf.EncodePart(f.sequence, f.encoder.source, cmaf.Fragment{
			Start: at, Data: f.packet.data, Samples: []cmaf.Sample{{Duration: uint32(f.packet.duration), Size: uint32(len(f.packet.data)), Sync: true}},
		})
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// Close ends a Read that waits for packets.
func (f *aacInput) Close() error {
	f.cancel()
	return nil
}

// errNotWanted ends an encoder whose connection has ended.
var errNotWanted = errors.New("the audio is no longer needed")

// emit gives an AAC frame to the packager and to taps, after the silence that is before it.
func (m *aacEncoder) emit(at int64, frame []byte) error {
	at -= m.track.Ticks(cmaf.Lead)
	m.mu.Lock()
	m.advanced, m.failed = time.Now(), false
	m.mu.Unlock()
	m.encoders.taps.mu.Lock()
	defer m.encoders.taps.mu.Unlock()
	switch {
	case m.stopped:
		return errNotWanted
	case at < m.track.Ticks(m.from): // encoders put some in front, or it is from before the first video frame
		return nil
	}
	silence, ok := m.timeline.place(at)
	if !ok {
		return nil // other audio or silence has this time already
	}
	err := m.putSilence(m.timeline.next + silence*codec.SilenceDuration)
	if err == nil {
		err = m.put(frame)
	}
	if weir.KindOf(err) == weir.Full {
		m.encoders.full(err)
		return errNotWanted
	}
	return err
}

// put appends a frame. The caller holds the session's lock.
func (m *aacEncoder) put(frame []byte) error {
	at := m.timeline.next
	m.timeline.next += codec.SilenceDuration
	return m.encoders.pack(m.track, sample{Sample: cmaf.Sample{Duration: codec.SilenceDuration, Size: uint32(len(frame)), Sync: true}, at: at, data: frame})
}

// putSilence appends silent frames that end at a time or less than a frame before it.
func (m *aacEncoder) putSilence(until int64) error {
	for m.timeline.next+codec.SilenceDuration <= until {
		if err := m.put([]byte(codec.SilenceFrame)); err != nil {
			return err
		}
	}
	return nil
}

// fillSilence puts silence where no audio comes although the video continues, and where ffmpeg produces
// nothing. The caller holds the session's lock.
func (m *aacEncoder) fillSilence(video time.Duration) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	away, stuck := m.idle && time.Since(m.received) > maxAudioPause, !m.idle && time.Since(m.advanced) > maxAudioStall
	m.mu.Unlock()
	behind := maxAudioPause
	switch {
	case stuck:
		behind = maxAudioStall
	case !away:
		return nil
	}
	from, until := m.track.Ticks(m.from), m.track.Ticks(video-behind)
	if !m.timeline.begun {
		if until <= from {
			return nil
		}
		m.timeline.place(from)
	}
	if err := m.putSilence(until); err != nil {
		return err
	}
	m.dropBefore(m.timeline.next)
	return nil
}

// dropBefore drops packets that have silence in their place, which ends at a time.
func (m *aacEncoder) dropBefore(before int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.queue) > 0 && m.queue[0].at+m.queue[0].duration <= before {
		m.size -= len(m.queue[0].data)
		m.queue = m.queue[1:]
	}
}

// aacTimeline puts AAC frames one after the other: each begins where the one before it ended, so that
// times differ from those of the encoder by at most half a frame, 11 ms.
type aacTimeline struct {
	next  int64 // where the next frame is
	begun bool
}

// place returns how many silent frames are before a frame that has a time; false = there is no
// place for it any more.
func (l *aacTimeline) place(at int64) (silence int64, ok bool) {
	if !l.begun {
		l.begun, l.next = true, at
	}
	if at < l.next-codec.SilenceDuration/2 {
		return 0, false
	}
	return (at - l.next + codec.SilenceDuration/2) / codec.SilenceDuration, true
}

// withAAC returns tracks with AAC instead of Opus, and its position; -1 = they stay as they are.
func (a *audioEncoders) withAAC(tracks []cmaf.Track) ([]cmaf.Track, int) {
	if a.aac == nil {
		return tracks, -1
	}
	return replaceTrack(tracks, isOpus, a.aac.track)
}
