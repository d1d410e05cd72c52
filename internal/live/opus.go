package live

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/weir"
)

const (
	// opusCost is what making Opus of AAC costs, in thousandths of a core.
	opusCost = 30
	// opusStall is how long the encoder may say nothing: an encoder that is away sends
	// nothing either.
	opusStall = 5 * time.Minute
	// unheardGap is from where on audio does not go on where it ended: more than what encoders
	// round, less than what is seen on lips when it adds up.
	unheardGap = 30 * time.Millisecond
	// maxAwaited is how long pictures wait for the audio that is made for them; it takes
	// about half of that.
	maxAwaited = 200 * time.Millisecond
)

// joinOpus returns the maker of Opus for one more reader. One ffmpeg serves all of them; it
// starts with the first reader and ends with the last. The caller holds the session's mu.
func (s *session) joinOpus() *opusMaker {
	if s.opus == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.opus = &opusMaker{session: s, engine: s.engine, cancel: cancel, done: make(chan struct{})}
		go s.opus.run(ctx, s.openTap(TapOptions{})) // opened here, so that it misses no frame of the reader
	}
	s.opus.readers++
	return s.opus
}

// leave lets go of the maker of a tap that is closed. The caller has the lock of the
// session; what is returned waits for the end, without it.
func (m *opusMaker) leave() (wait func()) {
	if m == nil {
		return func() {}
	}
	if m.readers--; m.readers > 0 {
		return func() {}
	}
	if m.session.opus == m {
		m.session.opus = nil
	}
	m.cancel()
	return func() { <-m.done }
}

// tell hands on what the encoder sends, but for the audio that takes another form. The
// caller has the lock of the session.
func (t *Tap) tell(f Tapped) {
	switch {
	case len(f.Tracks) == 0 && f.Track == t.instead:
	case t.rung != nil:
		t.hold(f)
	case len(f.Tracks) > 0:
		t.announce(f.Tracks)
	case t.form == AudioOpus && t.instead >= 0:
		t.await(f)
	default:
		t.add(f)
	}
}

// await keeps a picture until its audio is made. Browsers show the two together anyway, but
// it takes them half a minute to find out that the audio always comes later.
func (t *Tap) await(picture Tapped) {
	t.pictures = append(t.pictures, picture)
	t.release(picture.DTS - maxAwaited)
}

// release hands on the pictures up to a time that wait for their audio.
func (t *Tap) release(until time.Duration) {
	n := 0
	for n < len(t.pictures) && t.pictures[n].DTS <= until {
		t.add(t.pictures[n])
		n++
	}
	t.pictures = slices.Delete(t.pictures, 0, n)
}

// announce says what comes from now on.
func (t *Tap) announce(tracks []cmaf.Track) {
	t.release(math.MaxInt64)
	switch t.form {
	case AudioAsSent:
	case AudioOpus:
		tracks, t.instead = withOpus(tracks)
	case AudioAAC:
		tracks, t.instead = t.session.withAAC(tracks)
	}
	t.add(Tapped{Tracks: tracks})
}

// withOpus returns tracks with Opus instead of AAC, and which one that is; -1 = none.
func withOpus(tracks []cmaf.Track) ([]cmaf.Track, int) {
	i := slices.IndexFunc(tracks, cmaf.Track.IsAAC)
	if i < 0 {
		return tracks, -1
	}
	config, err := codec.OpusConfig(2)
	if err != nil {
		return tracks, -1
	}
	opus, err := cmaf.NewTrack(config)
	if err != nil {
		return tracks, -1
	}
	tracks = slices.Clone(tracks)
	tracks[i] = opus
	return tracks, i
}

// opusMaker makes Opus of the audio of a session, as long as somebody listens.
type opusMaker struct {
	session *session
	engine  *ffmpeg.Engine
	readers int // guarded by the session
	cancel  context.CancelFunc
	done    chan struct{}
}

// run makes audio until nobody listens any more, or nothing comes.
func (m *opusMaker) run(ctx context.Context, tap *Tap) {
	defer close(m.done)
	defer tap.Close()
	var tracks []cmaf.Track
	pause := firstPause
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
		if time.Since(began) > ranWell {
			pause = firstPause
		}
		m.session.log.Warn("sound for viewers over WebRTC could not be made; it is tried again", "err", err, "in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// encode makes Opus of a track until there is another one, which it returns, or until an
// error.
func (m *opusMaker) encode(ctx context.Context, tap *Tap, track cmaf.Track, position int) (next []cmaf.Track, err error) {
	frames, err := newADTS(track)
	if err != nil {
		return nil, err
	}
	chosen, release := m.engine.Reserve([]int{opusCost})
	defer release()
	if chosen < 0 {
		return nil, errNoRoom
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	input, feed := io.Pipe()
	output, made := io.Pipe()
	var line audioLine
	var working sync.WaitGroup
	working.Go(func() {
		err := m.engine.Run(ctx, ffmpeg.Command{
			Args: opusArgs(), Stdin: input, Outputs: []io.Writer{made}, Priority: ffmpeg.Live, Reserved: true, Pixels: 1, Stall: opusStall,
		})
		if err == nil {
			err = errors.New("the encoder of sound ended")
		}
		cancel(err)
		_ = input.CloseWithError(err)
		_ = made.CloseWithError(err)
	})
	working.Go(func() {
		err := m.read(output, &line)
		cancel(err)
		_ = output.CloseWithError(err)
	})
	for err == nil && next == nil {
		var item Tapped
		switch item, err = tap.Next(ctx); {
		case err != nil:
		case len(item.Tracks) > 0:
			next = item.Tracks
		case item.Track == position:
			line.add(item.PTS, frames.length)
			err = frames.write(feed, item.Data)
		}
	}
	// What is still inside is a few hundredths of a second: nobody waits for it.
	cancel(err)
	_ = feed.CloseWithError(err)
	working.Wait()
	return next, err
}

// opusArgs says what ffmpeg does: make Opus of AAC, and hold back nothing. It must lose
// nothing either: audioLine counts. (With the flag nobuffer it would throw away what it has
// looked at before it began.)
func opusArgs() []string {
	return append(ffmpeg.InputOptions(), "-probesize", "32", "-analyzeduration", "0", "-f", "aac", "-i", "pipe:0",
		"-ac", "2", "-ar", "48000", "-c:a", "libopus", "-b:a", "96k", "-frame_duration", "20", "-flush_packets", "1",
		"-movflags", "frag_every_frame+empty_moov+default_base_moof", "-f", "mp4", "pipe:3")
}

// read takes what ffmpeg makes and hands it to those who listen.
func (m *opusMaker) read(from io.Reader, line *audioLine) error {
	reader := cmaf.NewReader(from)
	for {
		f, err := reader.Next()
		if err != nil {
			return err
		}
		data := f.Data
		for _, s := range f.Samples {
			if int64(s.Size) > int64(len(data)) {
				return weir.Errorf(weir.Internal, "the encoder of sound wrote less than it said")
			}
			packet := data[:s.Size:s.Size]
			data = data[s.Size:]
			// How long it is it says itself; what the file says is ffmpeg's idea of time.
			at := line.take(time.Duration(codec.OpusSamples(packet)) * time.Second / codec.OpusRate)
			m.share(at, packet)
		}
	}
}

// share hands a packet of Opus to those who listen.
func (m *opusMaker) share(at time.Duration, packet []byte) {
	s := m.session
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.taps {
		if t.maker == m && t.instead >= 0 {
			t.addAudio(Tapped{Track: t.instead, PTS: at, DTS: at, Sync: true, Data: packet})
		}
	}
}

// addAudio hands on audio that takes another form. The caller has the lock of the session.
func (t *Tap) addAudio(f Tapped) {
	switch {
	case t.rung == nil:
		t.release(f.PTS)
		t.add(f)
	case len(t.audio) < maxAudio: // it waits for the picture
		t.audio = append(t.audio, f)
	}
}

// audioLine knows when audio is heard that went through an encoder, which itself has no
// idea of time.
type audioLine struct {
	mu    sync.Mutex
	in    time.Duration // how much went in
	out   time.Duration // how much came out
	steps []audioStep   // where it did not go on where it ended, the last one that counts first
}

// audioStep says that audio that went in at a position is heard at a time.
type audioStep struct{ position, at time.Duration }

// add notes that a frame goes in.
func (l *audioLine) add(at, length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.steps); n == 0 || (l.steps[n-1].time(l.in)-at).Abs() > unheardGap {
		l.steps = append(l.steps, audioStep{l.in, at})
	}
	l.in += length
}

// take notes that a packet came out, and returns when it is heard.
func (l *audioLine) take(length time.Duration) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.steps) > 1 && l.steps[1].position <= l.out {
		l.steps = l.steps[1:]
	}
	var at time.Duration
	if len(l.steps) > 0 {
		at = l.steps[0].time(l.out)
	}
	l.out += length
	return max(at-codec.OpusPreSkip*time.Second/codec.OpusRate, 0)
}

func (s audioStep) time(position time.Duration) time.Duration { return s.at + position - s.position }

// adts writes frames of AAC as a stream that says of each what it is.
type adts struct {
	header []byte
	length time.Duration // of a frame
}

func newADTS(track cmaf.Track) (*adts, error) {
	config, ok := codec.ParseAudioConfig(track.Config().Record)
	if !ok || config.CoreRate == 0 {
		return nil, weir.Errorf(weir.Invalid, "the configuration of the sound can't be read")
	}
	header, err := config.ADTSHeader()
	return &adts{header, time.Duration(config.FrameSamples) * time.Second / time.Duration(config.CoreRate)}, err
}

func (a *adts) write(to io.Writer, frame []byte) error {
	stream, err := codec.AppendADTS(nil, a.header, frame)
	if err == nil {
		_, err = to.Write(stream)
	}
	return err
}
