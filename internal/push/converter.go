package push

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/weir"
)

// targetConn is a connection to a target.
type targetConn interface {
	// announce announces the tracks of the frames that follow; either may be nil. It comes before the
	// first frame, and again when the tracks change.
	announce(video, audio *cmaf.Track, at time.Duration) error
	// pause announces that the next frame does not follow the last one in time.
	pause() error
	frame(f outgoing) error
	// sent returns how many bytes were sent to the target.
	sent() int64
	// limitWrite makes a write that waits for the target end soon. Any goroutine may call it.
	limitWrite()
	// close tells the target that the stream is over, and ends the connection.
	close()
}

// outgoing is a frame for a target. The timeline of a connection starts at 0.
type outgoing struct {
	kind     cmaf.Kind
	pts, dts time.Duration
	sync     bool
	data     []byte
}

// errOtherTracks says that the new tracks need a new connection.
var errOtherTracks = errors.New("the tracks have changed, which needs a new connection")

// maxSilenceBehind is how far silent audio may be behind the video. After a longer gap, it
// continues at the video.
const maxSilenceBehind = time.Second

// converter converts the frames of a tap for a target: one track of each kind, decode times that start
// at 0 and never fall, and silence in place of audio that is not sent. Platforms refuse streams
// without audio.
type converter struct {
	out       targetConn
	videoOnly bool

	tracks       []cmaf.Track
	video, audio int // positions in tracks; -1 = none
	silence      bool
	note         string // says what the target does not get, for people

	begun        bool // the tracks were announced to the target
	set          bool // base is set
	base         time.Duration
	last         map[cmaf.Kind]time.Duration
	silenceStart time.Duration
	silenceCount int64 // frames of silence since then
}

func newConverter(out targetConn, videoOnly bool) *converter {
	return &converter{out: out, videoOnly: videoOnly, last: map[cmaf.Kind]time.Duration{}}
}

// convert takes the next frame or tracks of a tap.
func (p *converter) convert(f live.TapItem) error {
	if len(f.Tracks) > 0 {
		return p.setTracks(f.Tracks)
	}
	if f.Track != p.video && f.Track != p.audio {
		return nil
	}
	if !p.set {
		p.base, p.set = f.DTS, true
	}
	g := outgoing{kind: p.tracks[f.Track].Kind, sync: f.Sync, data: f.Data}
	g.dts = max(f.DTS-p.base, p.last[g.kind])
	g.pts = max(f.PTS-p.base, g.dts)
	p.last[g.kind] = g.dts
	if !p.begun {
		if err := p.announce(g); err != nil {
			return err
		}
	}
	if p.silence && g.kind == cmaf.Video {
		if err := p.sendSilence(g.dts); err != nil {
			return err
		}
	}
	return p.out.frame(g)
}

// setTracks chooses the tracks that are sent.
func (p *converter) setTracks(tracks []cmaf.Track) error {
	same := slices.EqualFunc(p.tracks, tracks, func(a, b cmaf.Track) bool { return bytes.Equal(a.Entry, b.Entry) })
	if p.begun {
		if err := p.out.pause(); err != nil {
			return err
		}
	}
	if same {
		return nil
	}
	p.tracks, p.begun, p.note, p.silence = tracks, false, "", p.videoOnly
	p.video = slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
	p.audio = slices.IndexFunc(tracks, cmaf.Track.IsAAC)
	other := slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Audio })
	switch {
	case p.video < 0 && (p.videoOnly || p.audio < 0):
		return weir.Errorf(weir.Invalid, "the stream has no video for this target, and no AAC audio that it may get")
	case p.videoOnly:
		p.audio = -1
	case p.audio < 0 && other >= 0:
		p.silence = true
		p.note = "the audio of the stream is " + tracks[other].Codec + ", which targets do not support; silence is sent instead"
	}
	return nil
}

// announce announces the tracks to the target; g is the first frame.
func (p *converter) announce(g outgoing) error {
	var video, audio *cmaf.Track
	if p.video >= 0 {
		video = &p.tracks[p.video]
	}
	switch {
	case p.silence:
		track, err := cmaf.SilenceTrack()
		if err != nil {
			return err
		}
		audio = &track
		p.silenceStart, p.silenceCount = g.dts, 0
	case p.audio >= 0:
		audio = &p.tracks[p.audio]
	}
	p.begun = true
	return p.out.announce(video, audio, g.dts)
}

func (p *converter) sendSilence(until time.Duration) error {
	if until-p.silenceTime() > maxSilenceBehind {
		p.silenceStart, p.silenceCount = until, 0
	}
	for ; p.silenceTime() <= until; p.silenceCount++ {
		at := p.silenceTime()
		frame := outgoing{cmaf.Audio, at, at, true, []byte(codec.SilenceFrame)}
		if err := p.out.frame(frame); err != nil {
			return err
		}
	}
	return nil
}

func (p *converter) silenceTime() time.Duration {
	return p.silenceStart + codec.Duration(p.silenceCount*codec.SilenceDuration, codec.SilenceRate)
}
