package ingest

import (
	"bytes"
	"context"
	"log/slog"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/weir"
)

const (
	// timeout is how long the first track waits for the second one, if nobody said that
	// there is none: a track that joins later costs viewers a discontinuity.
	timeout = time.Second
	// maxHeld is how many bytes wait meanwhile, and maxHeldFrames how many frames.
	maxHeld       = 4 << 20
	maxHeldFrames = 1000
	// maxAudio is how long a frame of audio may be: Opus of a second is shorter.
	maxAudio = 64 << 10
	// maxChanges is how often a minute an encoder may change what it sends.
	maxChanges = 30
)

// feed makes tracks and frames of the packets of one connection and gives them to its
// publisher. Of several tracks of a kind the first counts.
type feed struct {
	to    publisher
	log   *slog.Logger
	video lane
	audio lane

	told      map[cmaf.Kind]bool // what the encoder says it sends; nil = it says nothing
	started   bool               // the publisher knows the tracks
	changed   bool               // and they are others now
	changes   int                // since
	since     time.Time
	held      []heldFrame
	heldBytes int
}

// lane is the way of the audio or of the pictures.
type lane struct {
	codec   string
	decoder codec.Decoder // nil = nothing came so far, or weir can't take the codec
	id      byte          // of the track that counts
	ignored bool          // nothing of it can be used
	others  bool          // there are tracks that don't count, and the log says so
	config  codec.Config
	known   bool // the configuration is
	grid    grid
}

// heldFrame is a frame that waits for the other track to be known.
type heldFrame struct {
	kind  cmaf.Kind
	frame live.Frame
}

func newFeed(to publisher, log *slog.Logger) *feed { return &feed{to: to, log: log} }

// promise tells which kinds of tracks the encoder says it sends.
func (f *feed) promise(video, audio bool) {
	if video || audio {
		f.told = map[cmaf.Kind]bool{cmaf.Video: video, cmaf.Audio: audio}
	}
}

// add takes a packet. An error says why the connection must end.
func (f *feed) add(ctx context.Context, p codec.Packet, at time.Duration) error {
	l := f.lane(p.Kind)
	counts, err := f.take(ctx, l, p)
	if err != nil || !counts {
		return err
	}
	u, err := l.decode(p)
	if err == nil {
		err = f.notice(ctx, l)
	}
	switch {
	case err != nil && p.Kind == cmaf.Audio && p.Config:
		f.ignore(l, err.Error())
		return nil
	case err != nil:
		return weir.Wrap(weir.Invalid, err, "%s can't be read", p.Codec)
	case len(u.Data) == 0 || !l.known:
		return nil
	case p.Kind == cmaf.Audio && len(u.Data) > maxAudio:
		return weir.Errorf(weir.Invalid, "a frame of sound has %d bytes; %d are allowed", len(u.Data), maxAudio)
	}
	at += p.Offset
	if p.Kind == cmaf.Audio {
		at = l.grid.at(at, u)
	}
	return f.frame(ctx, p.Kind, live.Frame{DTS: at, PTS: at + p.Composition, Sync: u.Sync, Data: u.Data})
}

func (f *feed) lane(kind cmaf.Kind) *lane {
	if kind == cmaf.Audio {
		return &f.audio
	}
	return &f.video
}

// take reports whether a packet is of the track that counts, with a decoder for it.
func (f *feed) take(ctx context.Context, l *lane, p codec.Packet) (bool, error) {
	if l.codec != "" && l.id != p.Track {
		if !l.others {
			l.others = true
			f.log.Info("more than one track of a kind; the first one counts", "kind", p.Kind)
		}
		return false, nil
	}
	if l.codec == p.Codec {
		return !l.ignored, nil
	}
	if err := f.forget(ctx, l); err != nil {
		return false, err
	}
	if l.ignored {
		f.to.LeaveOut("")
	}
	l.codec, l.id, l.decoder, l.ignored = p.Codec, p.Track, codec.NewDecoder(p.Codec), false
	if l.decoder != nil {
		return true, nil
	}
	if p.Kind == cmaf.Video {
		return false, weir.Errorf(weir.Invalid, "pictures in %s can't be taken; send H.264, HEVC or AV1", p.Codec)
	}
	f.ignore(l, p.Codec+" can't be taken; send AAC or Opus")
	return false, nil
}

// ignore leaves out a lane: the stream is worth something without it.
func (f *feed) ignore(l *lane, why string) {
	f.log.Warn("sound is left out", "reason", why)
	f.to.LeaveOut("the sound is left out: " + why)
	l.ignored = true
	if l.known {
		l.known, f.changed = false, true
	}
}

// without leaves out audio of which no packets will come, because nothing can be made of
// them. What comes all the same is of another track, and is taken.
func (f *feed) without(why string) {
	f.ignore(&f.audio, why)
	f.audio.codec = ""
}

// forget lets go of the track of a lane, which will be another one.
func (f *feed) forget(ctx context.Context, l *lane) error {
	if !l.known {
		return nil
	}
	var err error
	if len(f.held) > 0 {
		err = f.start(ctx) // what waits is of the old track
	}
	l.config, l.known, f.changed = codec.Config{}, false, true
	return err
}

func (l *lane) decode(p codec.Packet) (codec.Sample, error) {
	if p.Config {
		return codec.Sample{}, l.decoder.Configure(p.Data)
	}
	return l.decoder.Sample(p.Data)
}

// notice looks whether what was just decoded is another track than before.
func (f *feed) notice(ctx context.Context, l *lane) error {
	if !l.decoder.Changed() {
		return nil
	}
	config, known, err := l.decoder.Config()
	if err != nil || known == l.known && bytes.Equal(config.Record, l.config.Record) {
		return err
	}
	if err := f.forget(ctx, l); err != nil {
		return err
	}
	l.config, l.known, f.changed = config, known, true
	return nil
}

// frame hands a frame on, or keeps it until the tracks are known.
func (f *feed) frame(ctx context.Context, kind cmaf.Kind, frame live.Frame) error {
	if f.started {
		return f.write(ctx, kind, frame)
	}
	f.held, f.heldBytes = append(f.held, heldFrame{kind, frame}), f.heldBytes+len(frame.Data)
	waited := (frame.DTS - f.held[0].frame.DTS).Abs()
	if f.complete() || waited >= timeout || f.heldBytes > maxHeld || len(f.held) >= maxHeldFrames {
		return f.start(ctx)
	}
	return nil
}

// complete reports whether all tracks are known that there will be.
func (f *feed) complete() bool {
	for _, kind := range []cmaf.Kind{cmaf.Video, cmaf.Audio} {
		l := f.lane(kind)
		if expected := f.told == nil || f.told[kind]; expected && !l.known && !l.ignored {
			return false
		}
	}
	return true
}

// start tells the publisher of the tracks and hands over what waited.
func (f *feed) start(ctx context.Context) error {
	f.started = true
	held := f.held
	f.held, f.heldBytes = nil, 0
	for _, h := range held {
		if err := f.write(ctx, h.kind, h.frame); err != nil {
			return err
		}
	}
	return nil
}

// finish hands over what still waits: nothing that was received is lost.
func (f *feed) finish(ctx context.Context) error {
	if len(f.held) == 0 || ctx.Err() != nil {
		return nil
	}
	return f.start(ctx)
}

func (f *feed) write(ctx context.Context, kind cmaf.Kind, frame live.Frame) error {
	if !f.lane(kind).known {
		return nil // it waited, and then its track could not be used
	}
	if f.changed {
		if err := f.setTracks(ctx); err != nil {
			return err
		}
	}
	if frame.Track = 0; kind == cmaf.Audio && f.video.known {
		frame.Track = 1
	}
	return f.to.Write(frame)
}

func (f *feed) setTracks(ctx context.Context) error {
	// Each change costs viewers a discontinuity and the disk an init segment.
	if now := time.Now(); now.Sub(f.since) > time.Minute {
		f.since, f.changes = now, 0
	}
	if f.changes++; f.changes > maxChanges {
		return weir.Errorf(weir.Invalid, "what is sent changes more than %d times a minute", maxChanges)
	}
	f.changed = false
	var tracks []cmaf.Track
	for _, l := range []*lane{&f.video, &f.audio} {
		if !l.known {
			continue
		}
		track, err := cmaf.NewTrack(l.config)
		if err != nil {
			return err
		}
		tracks = append(tracks, track)
	}
	return f.to.SetTracks(ctx, tracks)
}
