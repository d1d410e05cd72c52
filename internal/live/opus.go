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
	// opusCost is the CPU that encoding Opus from AAC takes, in thousandths of a core.
	opusCost = 30
	// minAudioGap is from where on a difference in time is a gap of the audio: more than encoders
	// round, less than a viewer sees on lips when it adds up.
	minAudioGap = 30 * time.Millisecond
)

// opusEncoder encodes Opus from the AAC of a session, while taps want it. One ffmpeg serves all of
// them; it starts with the first tap and ends with the last.
type opusEncoder struct {
	encoders *audioEncoders
	readers  int // guarded by the session
	cancel   context.CancelFunc
	done     chan struct{}
}

// joinOpus returns the encoder of Opus for one more tap. open opens a tap for the encoder. The
// caller holds the session's lock.
func (a *audioEncoders) joinOpus(open func(TapOptions) *Tap) *opusEncoder {
	if a.opus == nil {
		ctx, cancel := context.WithCancel(context.Background())
		a.opus = &opusEncoder{encoders: a, cancel: cancel, done: make(chan struct{})}
		go a.opus.run(ctx, open(TapOptions{})) // opened here, so that it misses no frame of the reader
	}
	a.opus.readers++
	return a.opus
}

// leave removes a tap that is closed. The caller holds the session's lock, and waits without it for
// the channel that is returned, unless it is nil.
func (m *opusEncoder) leave() (ended <-chan struct{}) {
	if m == nil {
		return nil
	}
	if m.readers--; m.readers > 0 {
		return nil
	}
	if m.encoders.opus == m {
		m.encoders.opus = nil
	}
	m.cancel()
	return m.done
}

// withOpus returns tracks with Opus instead of AAC, and its position; -1 = they stay as they are.
func withOpus(tracks []cmaf.Track) ([]cmaf.Track, int) {
	config, err := codec.OpusConfig(2)
	if err != nil {
		return tracks, -1
	}
	opus, err := cmaf.NewTrack(config)
	if err != nil {
		return tracks, -1
	}
	return replaceTrack(tracks, cmaf.Track.IsAAC, opus)
}

// run encodes audio until no tap wants it any more, or the session is over.
func (m *opusEncoder) run(ctx context.Context, tap *Tap) {
	defer close(m.done)
	defer tap.Close()
	var tracks []cmaf.Track
	var retry backoff
	for ctx.Err() == nil {
		position := slices.IndexFunc(tracks, cmaf.Track.IsAAC)
		if position < 0 {
			item, err := tap.Next(ctx)
			if err != nil {
				return
			}
			if len(item.Tracks) > 0 {
				tracks = item.Tracks
			}
			continue
		}
		began := time.Now()
		next, err := m.encode(ctx, tap, tracks[position], position)
		if next != nil {
			tracks = next
			continue
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return
		}
		pause := retry.next(began)
		m.encoders.log.Warn("the audio for WebRTC viewers could not be encoded and will be retried", "err", err, "in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// encode encodes a track until the tap announces other tracks, which it returns, or until an error.
func (m *opusEncoder) encode(ctx context.Context, tap *Tap, track cmaf.Track, position int) (next []cmaf.Track, err error) {
	in, err := newOpusInput(ctx, tap, track, position)
	if err != nil {
		return nil, err
	}
	defer in.cancel()
	chosen, release := m.encoders.engine.Reserve([]int{opusCost})
	defer release()
	if chosen < 0 {
		return nil, errNoCPU
	}
	err = m.encoders.transcode(ctx, opusArgs(), in, func(_ int64, packet []byte) error {
		// The packet itself says its duration; the times in the file are not those of the input.
		m.share(in.times.packetOut(time.Duration(codec.OpusSamples(packet))*time.Second/codec.OpusRate), packet)
		return nil
	})
	switch {
	case in.next != nil:
		return in.next, nil
	case in.ended:
		return nil, io.EOF
	case err == nil:
		err = errors.New("the audio encoder exited")
	}
	return nil, err
}

// opusArgs are the arguments of ffmpeg: it encodes Opus from AAC without delay. It must lose no
// frame, because audioTimes counts them. (With the flag nobuffer it would drop what it has analyzed
// before it began.)
func opusArgs() []string {
	return append(ffmpeg.InputOptions(), "-probesize", "32", "-analyzeduration", "0", "-f", "aac", "-i", "pipe:0",
		"-ac", "2", "-ar", "48000", "-c:a", "libopus", "-b:a", "96k", "-frame_duration", "20", "-flush_packets", "1",
		"-movflags", "frag_every_frame+empty_moov+default_base_moof", "-f", "mp4", "pipe:3")
}

// opusInput gives the AAC of a tap to ffmpeg, as ADTS.
type opusInput struct {
	ctx      context.Context // of the run of ffmpeg, which reads: a Read has no context of its own
	cancel   context.CancelFunc
	tap      *Tap
	position int // of the track
	header   []byte
	duration time.Duration // of a frame
	times    audioTimes
	ready    []byte

	next  []cmaf.Track // announced by the tap
	ended bool         // the session is over
}

func newOpusInput(ctx context.Context, tap *Tap, track cmaf.Track, position int) (*opusInput, error) {
	config, ok := codec.ParseAudioConfig(track.Config().Record)
	if !ok || config.CoreRate == 0 {
		return nil, weir.Errorf(weir.Invalid, "the AAC configuration of the audio can't be read")
	}
	header, err := config.ADTSHeader()
	if err != nil {
		return nil, err
	}
	f := &opusInput{
		tap: tap, position: position, header: header,
		duration: time.Duration(config.FrameSamples) * time.Second / time.Duration(config.CoreRate),
	}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f, nil
}

// errTracksChanged ends ffmpeg at once: the few hundredths of a second in it are not worth a wait.
var errTracksChanged = errors.New("the tracks have changed")

// Read gives the next bytes.
func (f *opusInput) Read(p []byte) (int, error) {
	for len(f.ready) == 0 {
		item, err := f.tap.Next(f.ctx)
		switch {
		case err != nil:
			f.ended = errors.Is(err, io.EOF)
			return 0, err
		case len(item.Tracks) > 0:
			f.next = item.Tracks
			return 0, errTracksChanged
		case item.Track == f.position:
			f.times.frameIn(item.PTS, f.duration)
			if f.ready, err = codec.AppendADTS(nil, f.header, item.Data); err != nil {
				return 0, err
			}
		}
	}
	n := copy(p, f.ready)
	f.ready = f.ready[n:]
	return n, nil
}

// Close ends a Read that waits for the tap.
func (f *opusInput) Close() error {
	f.cancel()
	return nil
}

// share gives a packet of Opus to the taps that want it.
func (m *opusEncoder) share(at time.Duration, packet []byte) {
	m.encoders.taps.mu.Lock()
	defer m.encoders.taps.mu.Unlock()
	for _, t := range m.encoders.taps.all {
		if t.opus == m && t.transcoded >= 0 {
			t.addAudio(TapItem{Track: t.transcoded, PTS: at, DTS: at, Sync: true, Data: packet})
		}
	}
}

// audioTimes keeps the times of audio that goes through an encoder which does not keep them.
type audioTimes struct {
	mu    sync.Mutex
	in    time.Duration // of all frames that went in
	out   time.Duration // of all packets that came out
	steps []audioStep   // where the times jump, the one that applies now first
}

// audioStep says that the audio at a position of the input has a time.
type audioStep struct{ position, at time.Duration }

// frameIn notes that a frame goes in.
func (l *audioTimes) frameIn(at, duration time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.steps); n == 0 || (l.steps[n-1].time(l.in)-at).Abs() > minAudioGap {
		l.steps = append(l.steps, audioStep{l.in, at})
	}
	l.in += duration
}

// packetOut notes that a packet came out, and returns its time.
func (l *audioTimes) packetOut(duration time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.steps) > 1 && l.steps[1].position <= l.out {
		l.steps = l.steps[1:]
	}
	var at time.Duration
	if len(l.steps) > 0 {
		at = l.steps[0].time(l.out)
	}
	l.out += duration
	return max(at-codec.OpusPreSkip*time.Second/codec.OpusRate, 0)
}

func (s audioStep) time(position time.Duration) time.Duration { return s.at + position - s.position }
