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
	// secondTrackTimeout is how long the first track waits for the second one, unless the encoder
	// announced that there is none: a track that is added later costs viewers a discontinuity.
	secondTrackTimeout = time.Second
	// maxHeld is the maximum number of bytes that wait meanwhile, maxHeldFrames that of frames.
	maxHeld       = 4 << 20
	maxHeldFrames = 1000
	// maxAudio is the maximum size of an audio frame: a second of Opus is smaller.
	maxAudio = 64 << 10
	// maxChanges is how often an encoder may change its tracks in a minute.
	maxChanges = 30
)

// feed makes tracks and frames of the packets of one connection and writes them to a publisher. It
// uses the first track of each kind.
type feed struct {
	to    publisher
	log   *slog.Logger
	video feedTrack
	audio feedTrack

	announced map[cmaf.Kind]bool // kinds of tracks that the encoder announced; nil = none yet
	started   bool               // the publisher knows the tracks
	changed   bool               // the tracks have changed since
	changes   int                // of tracks, since the time below
	since     time.Time
	held      []heldFrame
	heldBytes int
}

// feedTrack is the state of the video or the audio track.
type feedTrack struct {
	codec   string
	decoder codec.Decoder // nil = no packet yet, or the codec is not supported
	id      byte          // of the track
	ignored bool          // the track can't be used
	others  bool          // there are further tracks of this kind, which is logged
	config  codec.Config
	known   bool // the configuration is known
	clock   audioClock
}

// heldFrame is a frame that waits for the other track to be known.
type heldFrame struct {
	kind  cmaf.Kind
	frame live.Frame
}

func newFeed(to publisher, log *slog.Logger) *feed { return &feed{to: to, log: log} }

// announce notes which kinds of tracks the encoder says it sends.
func (f *feed) announce(video, audio bool) {
	if video || audio {
		f.announced = map[cmaf.Kind]bool{cmaf.Video: video, cmaf.Audio: audio}
	}
}

// addPacket takes a packet. An error ends the connection.
func (f *feed) addPacket(ctx context.Context, p codec.Packet, at time.Duration) error {
	l := f.track(p.Kind)
	used, err := f.selectTrack(ctx, l, p)
	if err != nil || !used {
		return err
	}
	var u codec.Sample
	if p.Config {
		err = l.decoder.Configure(p.Data)
	} else {
		u, err = l.decoder.Sample(p.Data)
	}
	if err == nil {
		err = f.updateConfig(ctx, l)
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
		return weir.Errorf(weir.Invalid, "an audio frame has %d bytes; the maximum is %d", len(u.Data), maxAudio)
	}
	at += p.Offset
	if p.Kind == cmaf.Audio {
		at = l.clock.at(at, u)
	}
	return f.addFrame(ctx, p.Kind, live.Frame{DTS: at, PTS: at + p.Composition, Sync: u.Sync, Data: u.Data})
}

func (f *feed) track(kind cmaf.Kind) *feedTrack {
	if kind == cmaf.Audio {
		return &f.audio
	}
	return &f.video
}

// selectTrack reports whether a packet is used, and makes a decoder for a new track.
func (f *feed) selectTrack(ctx context.Context, l *feedTrack, p codec.Packet) (bool, error) {
	if l.codec != "" && l.id != p.Track {
		if !l.others {
			l.others = true
			f.log.Info("the encoder sends several tracks of a kind; the first one is used", "kind", p.Kind)
		}
		return false, nil
	}
	if l.codec == p.Codec {
		return !l.ignored, nil
	}
	if err := f.dropConfig(ctx, l); err != nil {
		return false, err
	}
	if l.ignored {
		f.to.SetIssue("")
	}
	l.codec, l.id, l.decoder, l.ignored = p.Codec, p.Track, codec.NewDecoder(p.Codec), false
	if l.decoder != nil {
		return true, nil
	}
	if p.Kind == cmaf.Video {
		return false, weir.Errorf(weir.Invalid, "video in %s is not supported; send H.264, HEVC or AV1", p.Codec)
	}
	f.ignore(l, p.Codec+" is not supported; send AAC or Opus")
	return false, nil
}

// ignore drops a track. The stream goes on without it.
func (f *feed) ignore(l *feedTrack, why string) {
	f.log.Warn("the audio is left out", "reason", why)
	f.to.SetIssue("the audio is left out: " + why)
	l.ignored = true
	if l.known {
		l.known, f.changed = false, true
	}
}

// ignoreAudio drops audio whose packets are not added, because they can't be used. Packets that are
// added nevertheless are of another track, which is used.
func (f *feed) ignoreAudio(why string) {
	f.ignore(&f.audio, why)
	f.audio.codec = ""
}

// dropConfig drops the configuration of a track before a new one.
func (f *feed) dropConfig(ctx context.Context, l *feedTrack) error {
	if !l.known {
		return nil
	}
	err := f.flush(ctx) // held frames are of the old track
	l.config, l.known, f.changed = codec.Config{}, false, true
	return err
}

// updateConfig reads the configuration of a track from its decoder if it has changed.
func (f *feed) updateConfig(ctx context.Context, l *feedTrack) error {
	if !l.decoder.Changed() {
		return nil
	}
	config, known, err := l.decoder.Config()
	if err != nil || known == l.known && bytes.Equal(config.Record, l.config.Record) {
		return err
	}
	if err := f.dropConfig(ctx, l); err != nil {
		return err
	}
	l.config, l.known, f.changed = config, known, true
	return nil
}

// addFrame writes a frame, or holds it until the tracks are known.
func (f *feed) addFrame(ctx context.Context, kind cmaf.Kind, frame live.Frame) error {
	if f.started {
		return f.write(ctx, kind, frame)
	}
	f.held, f.heldBytes = append(f.held, heldFrame{kind, frame}), f.heldBytes+len(frame.Data)
	waited := (frame.DTS - f.held[0].frame.DTS).Abs()
	if f.complete() || waited >= secondTrackTimeout || f.heldBytes > maxHeld || len(f.held) >= maxHeldFrames {
		return f.start(ctx)
	}
	return nil
}

// complete reports whether all expected tracks are known.
func (f *feed) complete() bool {
	for _, kind := range []cmaf.Kind{cmaf.Video, cmaf.Audio} {
		l := f.track(kind)
		if expected := f.announced == nil || f.announced[kind]; expected && !l.known && !l.ignored {
			return false
		}
	}
	return true
}

// start writes the held frames, and from now on frames at once.
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

// flush writes the held frames, if there are any.
func (f *feed) flush(ctx context.Context) error {
	if len(f.held) == 0 || ctx.Err() != nil {
		return nil
	}
	return f.start(ctx)
}

func (f *feed) write(ctx context.Context, kind cmaf.Kind, frame live.Frame) error {
	if !f.track(kind).known {
		return nil // the track was dropped while the frame was held
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
	// Each change costs a discontinuity and an init segment.
	if now := time.Now(); now.Sub(f.since) > time.Minute {
		f.since, f.changes = now, 0
	}
	if f.changes++; f.changes > maxChanges {
		return weir.Errorf(weir.Invalid, "the encoder changes its tracks more than %d times a minute; check its settings", maxChanges)
	}
	f.changed = false
	var tracks []cmaf.Track
	for _, l := range []*feedTrack{&f.video, &f.audio} {
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

// maxRounded is the maximum difference between a time stamp and the end of the audio before it that
// counts as a rounding error.
const maxRounded = 3 * time.Millisecond

// audioClock restores the exact times of audio whose time stamps are in whole milliseconds: without gaps,
// each frame begins where the one before it ends.
type audioClock struct {
	start time.Duration
	count int64 // samples since then
	rate  int64
}

// at returns the exact time of a sample that was sent with a time stamp.
func (g *audioClock) at(sent time.Duration, u codec.Sample) time.Duration {
	if u.Timescale == 0 {
		return sent
	}
	if g.rate == u.Timescale {
		if at := g.start + codec.Duration(g.count, g.rate); (sent - at).Abs() < maxRounded {
			g.count += u.Duration
			return at
		}
	}
	*g = audioClock{sent, u.Duration, u.Timescale}
	return sent
}
