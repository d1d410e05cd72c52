package live

import (
	"context"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// maxTapBytes is how much waits for a reader before it loses frames: some seconds of a usual stream.
// Readers share the memory of the frames.
const maxTapBytes = 8 << 20

// maxHeldAudio is how many audio frames wait for the video of a rung: some seconds.
const maxHeldAudio = 500

// maxAudioWait is how long video waits for the audio that is transcoded; that takes about half as
// long.
const maxAudioWait = 200 * time.Millisecond

// taps holds the taps of a session.
type taps struct {
	mu   *sync.Mutex // the session's; guards all that follows
	all  []*Tap
	lost int64 // frames that closed taps lost
}

// share gives a frame of the encoder to all taps. The caller holds the session's lock.
func (a *taps) share(f TapItem) {
	for _, t := range a.all {
		t.receive(f)
	}
}

// lostFrames returns how many frames the readers were too slow for. The caller holds the session's
// lock.
func (a *taps) lostFrames() int64 {
	n := a.lost
	for _, t := range a.all {
		n += t.lostFrames()
	}
	return n
}

// Tap hands frames to one reader beside the packager: a push to another platform, a viewer over
// WebRTC, the encoder of the ladder. A reader that is too slow loses frames up to the next key
// frame, and affects nothing else.
type Tap struct {
	session *session
	form    AudioForm
	rung    *rung // whose frames these are; nil = the encoder's

	// Guarded by the session.
	opus       *opusEncoder
	transcoded int       // position of the track that is transcoded, -1 = none
	audio      []TapItem // waits for the video of the rung
	video      []TapItem // waits for audio that is transcoded

	mu      sync.Mutex
	tracks  []cmaf.Track
	queue   []TapItem
	waiting int64 // bytes in queue
	skip    bool  // until the next frame that decoding can start with
	late    bool  // because the reader was too slow
	lost    int64
	err     error // why nothing more comes
	wake    chan struct{}
}

// TapItem is a frame on the timeline of the session, or announces the tracks of the frames that
// follow.
type TapItem struct {
	// Tracks are announced at first, and when an encoder came back or changed what it sends.
	// Times jump there. If there are tracks, this is no frame.
	Tracks []cmaf.Track

	Track    int           // position in Tracks
	PTS, DTS time.Duration // since the session began
	Sync     bool          // decoding can start here; true for all audio
	Data     []byte        // as cmaf keeps samples; shared with other readers
}

// TapOptions say which frames a reader gets.
type TapOptions struct {
	// Rendition is the name of the video rendition; empty = the source. The frames of
	// another one come while it is made, with the audio of the source beside them.
	Rendition string
	Audio     AudioForm
}

// AudioForm is the codec that a reader gets audio in.
type AudioForm int

// The forms of audio.
const (
	AudioAsSent AudioForm = iota
	AudioOpus             // AAC is transcoded to Opus while there are readers that want it (opus.go)
	AudioAAC              // Opus is transcoded to AAC, as it is for the packager (aac.go)
)

// Tap returns the frames of the stream from the next key frame on; nil = there is no such
// rendition. It must be closed.
func (b *Broadcast) Tap(o TapOptions) *Tap { return b.session.tap(o) }

func (s *session) tap(o TapOptions) *Tap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openTap(o)
}

// openTap is tap for a caller that holds mu.
func (s *session) openTap(o TapOptions) *Tap {
	t := &Tap{session: s, form: o.Audio, transcoded: -1, skip: true, wake: make(chan struct{}, 1)}
	if o.Rendition != "" && o.Rendition != videoName {
		if t.rung = s.ladder.rung(o.Rendition); t.rung == nil {
			return nil
		}
	}
	if t.form == AudioOpus && s.audio.engine == nil {
		t.form = AudioAsSent
	}
	s.taps.all = append(s.taps.all, t)
	switch {
	case t.rung != nil && t.rung.tracks != nil:
		t.announce(t.rung.tracks)
	case t.rung == nil && s.conn.muxer != nil:
		t.announce(s.conn.publisher.tracks)
	}
	if s.stopped {
		t.end(io.EOF)
	}
	if t.form == AudioOpus {
		t.opus = s.audio.joinOpus(s.openTap)
	}
	return t
}

// Next waits for the next frame or announcement. It returns io.EOF when the session is over.
func (t *Tap) Next(ctx context.Context) (TapItem, error) {
	for {
		t.mu.Lock()
		if len(t.queue) > 0 {
			f := t.queue[0]
			t.queue[0] = TapItem{}
			t.queue = t.queue[1:]
			t.waiting -= int64(len(f.Data))
			t.mu.Unlock()
			return f, nil
		}
		err := t.err
		t.mu.Unlock()
		if err != nil {
			return TapItem{}, err
		}
		select {
		case <-ctx.Done():
			return TapItem{}, context.Cause(ctx)
		case <-t.wake:
		}
	}
}

func (t *Tap) lostFrames() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

// Close ends the tap.
func (t *Tap) Close() {
	var ended <-chan struct{}
	taps := &t.session.taps
	taps.mu.Lock()
	if i := slices.Index(taps.all, t); i >= 0 {
		taps.all = slices.Delete(taps.all, i, i+1)
		taps.lost += t.lostFrames()
		ended = t.opus.leave()
	}
	t.end(weir.Errorf(weir.Internal, "a tap was read after it was closed"))
	taps.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// receive takes a frame or tracks of the encoder, but for the audio that is transcoded. The caller
// holds the session's lock.
func (t *Tap) receive(f TapItem) {
	switch {
	case len(f.Tracks) == 0 && f.Track == t.transcoded:
	case t.rung != nil:
		t.hold(f)
	case len(f.Tracks) > 0:
		t.announce(f.Tracks)
	case t.form == AudioOpus && t.transcoded >= 0:
		// Video waits for its audio. Browsers show the two together anyway, but need half a
		// minute to find out that the audio always comes later.
		t.video = append(t.video, f)
		t.releaseVideo(f.DTS - maxAudioWait)
	default:
		t.enqueue(f)
	}
}

// hold keeps the encoder's audio until the video of the rung is as far. The caller holds the
// session's lock.
func (t *Tap) hold(f TapItem) {
	switch {
	case len(f.Tracks) > 0: // the held audio is of the encoder before
		t.audio = nil
	case t.session.conn.publisher.tracks[f.Track].Kind == cmaf.Video || len(t.audio) >= maxHeldAudio:
	default:
		t.audio = append(t.audio, f)
	}
}

// announce announces the tracks of the frames that follow.
func (t *Tap) announce(tracks []cmaf.Track) {
	t.releaseVideo(math.MaxInt64)
	switch t.form {
	case AudioAsSent:
	case AudioOpus:
		tracks, t.transcoded = withOpus(tracks)
	case AudioAAC:
		tracks, t.transcoded = t.session.audio.withAAC(tracks)
	}
	t.enqueue(TapItem{Tracks: tracks})
}

// addAudio takes audio that was transcoded. The caller holds the session's lock.
func (t *Tap) addAudio(f TapItem) {
	switch {
	case t.rung == nil:
		t.releaseVideo(f.PTS)
		t.enqueue(f)
	case len(t.audio) < maxHeldAudio:
		t.audio = append(t.audio, f)
	}
}

// releaseVideo hands on the video up to a time that waits for its audio.
func (t *Tap) releaseVideo(until time.Duration) { t.video = t.addUntil(t.video, until) }

// addUntil hands on the frames up to a time, and returns the rest.
func (t *Tap) addUntil(frames []TapItem, until time.Duration) []TapItem {
	n := 0
	for n < len(frames) && frames[n].DTS <= until {
		t.enqueue(frames[n])
		n++
	}
	return slices.Delete(frames, 0, n)
}

// enqueue queues a frame for the reader.
func (t *Tap) enqueue(f TapItem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
		return
	case len(f.Tracks) > 0:
		t.tracks, t.skip, t.late = f.Tracks, true, false
	case t.waiting+int64(len(f.Data)) > maxTapBytes || len(t.queue) >= maxTappedFrames:
		t.skip, t.late = true, true
		t.lost++
		return
	case t.skip && !t.startable(f):
		if t.late {
			t.lost++
		}
		return
	default:
		t.skip, t.late = false, false
	}
	t.queue, t.waiting = append(t.queue, f), t.waiting+int64(len(f.Data))
	notify(t.wake)
}

// notify wakes the goroutine that receives from a channel with a buffer of one, now or later.
func notify(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// startable reports whether a reader can begin with a frame.
func (t *Tap) startable(f TapItem) bool {
	if !f.Sync || f.Track >= len(t.tracks) {
		return false
	}
	return t.tracks[f.Track].Kind == cmaf.Video || !slices.ContainsFunc(t.tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
}

// end lets Next return an error after the queued frames.
func (t *Tap) end(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err == nil {
		t.err = err
	}
	notify(t.wake)
}
