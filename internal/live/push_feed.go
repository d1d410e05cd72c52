package live

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/weir"
)

// dialer connects to an address that a caller gave: guard.Guard.DialContext.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// outlet is a connection to a target.
type outlet interface {
	// begin says what the frames from here on are; either may be nil. It comes before the
	// first frame, and again when that changes.
	begin(video, audio *cmaf.Track, at time.Duration) error
	// pause says that times leap.
	pause() error
	frame(f outgoing) error
	// sent is how many bytes the target was sent.
	sent() int64
	// hurry ends a wait for the target soon; others may call it.
	hurry()
	// close tells the target that the stream is over.
	close()
}

// outgoing is a frame on the timeline of a connection to a target, which starts at 0.
type outgoing struct {
	kind     cmaf.Kind
	pts, dts time.Duration
	sync     bool
	data     []byte
}

// errOtherTracks says that a connection can't go on with what comes now, but another one
// can.
var errOtherTracks = errors.New("the stream needs another connection for what it has become")

// Silence in AAC. It takes the place of the audio where a target shall not have it:
// platforms want some.
const (
	silenceRate   = 48000
	silenceLength = 1024 // of a frame
	// silenceConfig is AAC-LC, 48 kHz, stereo.
	silenceConfig = "\x11\x90"
	// silenceFrame is a pair of channels without a window in common, each with no bands in
	// use, and the end.
	silenceFrame = "\x20\x00\x00\x00\x00\x00\x0e"
)

// maxSilenceBehind is how far the picture may be ahead of the silence before it leaps
// after it.
const maxSilenceBehind = time.Second

// pushFeed makes of what a tap gives what a target gets: one track of each kind, times
// that start at 0 and rise, silence where there shall be no audio.
type pushFeed struct {
	out    outlet
	silent bool // no audio is wanted

	tracks       []cmaf.Track
	video, audio int // positions in tracks; -1 = none
	quiet        bool
	note         string // what is not as it was wanted, for people

	begun  bool // the target knows the tracks
	set    bool // there was a frame
	base   time.Duration
	last   map[cmaf.Kind]time.Duration
	hushed time.Duration // where the next silence is
	count  int64         // of silence since then
}

func newPushFeed(out outlet, silent bool) *pushFeed {
	return &pushFeed{out: out, silent: silent, last: map[cmaf.Kind]time.Duration{}}
}

// add takes what comes next from a tap.
func (p *pushFeed) add(f Tapped) error {
	if len(f.Tracks) > 0 {
		return p.take(f.Tracks)
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
		if err := p.begin(g); err != nil {
			return err
		}
	}
	if p.quiet && g.kind == cmaf.Video {
		if err := p.hush(g.dts); err != nil {
			return err
		}
	}
	return p.out.frame(g)
}

// take chooses among the tracks that there are from here on.
func (p *pushFeed) take(tracks []cmaf.Track) error {
	same := len(p.tracks) == len(tracks)
	for i := range p.tracks {
		same = same && bytes.Equal(p.tracks[i].Entry, tracks[i].Entry)
	}
	if p.begun {
		if err := p.out.pause(); err != nil {
			return err
		}
	}
	if same {
		return nil
	}
	p.tracks, p.begun, p.note, p.quiet = tracks, false, "", p.silent
	p.video = slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Video })
	p.audio = slices.IndexFunc(tracks, isAAC)
	other := slices.IndexFunc(tracks, func(t cmaf.Track) bool { return t.Kind == cmaf.Audio })
	switch {
	case p.video < 0 && (p.silent || p.audio < 0):
		return weir.Errorf(weir.Invalid, "the stream has nothing for this target: no picture, and no sound in AAC that it is to get")
	case p.silent:
		p.audio = -1
	case p.audio < 0 && other >= 0:
		p.quiet = true
		p.note = "the sound of the stream is " + tracks[other].Codec + ", which targets do not take; silence is sent in its place"
	}
	return nil
}

func isAAC(t cmaf.Track) bool {
	c := t.Config()
	return c.Codec == codec.AAC && c.Record != nil
}

// silenceTrack returns the track that silence is sent as.
func silenceTrack() (cmaf.Track, error) {
	config, err := codec.AACConfig([]byte(silenceConfig))
	if err != nil {
		return cmaf.Track{}, err
	}
	return cmaf.NewTrack(config)
}

// begin tells the target what comes, of which g is the first.
func (p *pushFeed) begin(g outgoing) error {
	var video, audio *cmaf.Track
	if p.video >= 0 {
		track := p.tracks[p.video]
		if g.kind == cmaf.Video {
			track.Delay = max(track.Ticks(g.pts-g.dts), 0)
		}
		video = &track
	}
	switch {
	case p.quiet:
		track, err := silenceTrack()
		if err != nil {
			return err
		}
		audio = &track
		p.hushed, p.count = g.dts, 0
	case p.audio >= 0:
		audio = &p.tracks[p.audio]
	}
	p.begun = true
	return p.out.begin(video, audio, g.dts)
}

// hush sends silence up to a time.
func (p *pushFeed) hush(until time.Duration) error {
	at := func() time.Duration { return p.hushed + time.Duration(p.count)*time.Second*silenceLength/silenceRate }
	if until-at() > maxSilenceBehind {
		p.hushed, p.count = until, 0
	}
	for ; at() <= until; p.count++ {
		if err := p.out.frame(outgoing{kind: cmaf.Audio, pts: at(), dts: at(), sync: true, data: []byte(silenceFrame)}); err != nil {
			return err
		}
	}
	return nil
}
