package ingest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
)

var source = live.Source{Protocol: "rtmp", Remote: "127.0.0.1:1"}

// A stream with real parameter sets, of two sizes.
func realSets(t testing.TB, clipName string) (config []byte) {
	t.Helper()
	track, _ := samplesOf(t, clipName)
	return track.Config().Record
}

// someAVCC is an avcC record with parameter sets of two bytes.
const someAVCC = "\x01\x64\x00\x0A\xFF\xE1\x00\x02\x67\x01\x01\x00\x02\x68\x80"

// NAL units of H.264.
var (
	key   = []byte{0x65, 1, 2}
	slice = []byte{0x41, 1, 2}
)

// feeder feeds a feed, one packet after the other.
type feeder struct {
	*feed
	t   *testing.T
	pub *testPublisher
	err error
}

func newFeeder(t *testing.T) *feeder {
	t.Helper()
	hub := newTestHub()
	p, err := hub.publish(t.Context(), goodKey, source)
	if err != nil {
		t.Fatal(err)
	}
	return &feeder{newFeed(p, (&logBook{}).logger()), t, hub.publishers[0], nil}
}

func (f *feeder) send(p codec.Packet, at time.Duration) {
	if f.err == nil {
		f.err = f.addPacket(f.t.Context(), p, at)
	}
}

func (f *feeder) videoFrame(at time.Duration, nals ...[]byte) {
	var frame []byte
	for _, nal := range nals {
		frame = codec.AppendUnit(frame, nal)
	}
	f.send(codec.Packet{Kind: cmaf.Video, Codec: codec.H264, Data: frame}, at)
}

func (f *feeder) videoConfig(config []byte) {
	f.send(codec.Packet{Kind: cmaf.Video, Codec: codec.H264, Config: true, Data: config}, 0)
}

func (f *feeder) audio(at time.Duration) {
	f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.AAC, Data: []byte{1}}, at)
}

func (f *feeder) audios(config ...byte) {
	f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.AAC, Config: true, Data: config}, 0)
}

// story returns what the publisher has received: tracks in brackets, then frames.
func (f *feeder) story() string {
	var b strings.Builder
	set := -1
	for _, frame := range f.pub.frames {
		for set < frame.set {
			set++
			b.WriteString("[")
			for _, track := range f.pub.tracks[set] {
				fmt.Fprintf(&b, "%.1s%d", track.Kind, max(track.Height, track.SampleRate))
			}
			b.WriteString("]")
		}
		fmt.Fprintf(&b, " %.1s%d", frame.kind, frame.DTS.Milliseconds())
	}
	if f.err != nil {
		b.WriteString(" " + f.err.Error())
	}
	return b.String()
}

func TestFeed(t *testing.T) {
	small, large := realSets(t, "small.mp4"), realSets(t, "large.mp4")
	largeSets, err := codec.ParseAVCC(large)
	if err != nil {
		t.Fatal(err)
	}
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		feed func(f *feeder)
		want string
	}{
		{"both are announced", func(f *feeder) {
			f.videoConfig(small)
			f.audios(0x11, 0x90)
			f.videoFrame(0, key)
			f.audio(10 * ms)
		}, "[v90a48000] v0 a10"},
		{"the second is late", func(f *feeder) {
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.videoFrame(40*ms, slice)
			f.audios(0x11, 0x90)
			f.audio(50 * ms)
		}, "[v90a48000] v0 v40 a50"},
		{"no audio, not announced", func(f *feeder) {
			f.videoConfig(small)
			for i := range 26 {
				f.videoFrame(time.Duration(i)*50*ms, slice)
			}
		}, "[v90] v0 v50 v100 v150 v200 v250 v300 v350 v400 v450 v500 v550 v600 v650 v700 v750 v800 v850 v900 v950 v1000 v1050 v1100 v1150 v1200 v1250"},
		{"no audio, announced", func(f *feeder) {
			f.announce(true, false)
			f.videoConfig(small)
			f.videoFrame(0, key)
		}, "[v90] v0"},
		{"audio is added later", func(f *feeder) {
			f.announce(true, false)
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.audios(0x11, 0x90)
			f.audio(10 * ms)
			f.videoFrame(40*ms, key)
		}, "[v90] v0[v90a48000] a10 v40"},
		{"the size changes ahead of a frame", func(f *feeder) {
			f.announce(true, false)
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.videoConfig(small)
			f.videoFrame(40*ms, slice)
			f.videoConfig(large)
			f.videoFrame(80*ms, key)
		}, "[v90] v0 v40[v180] v80"},
		{"the size changes within a frame", func(f *feeder) {
			f.announce(true, false)
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.videoFrame(40*ms, largeSets.Units[0], largeSets.Units[1], key)
		}, "[v90] v0[v180] v40"},
		{"it changes while frames wait", func(f *feeder) {
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.videoConfig(large)
			f.videoFrame(40*ms, key)
		}, "[v90] v0[v180] v40"},
		{"the codec changes", func(f *feeder) {
			f.announce(false, true)
			f.audios(0x11, 0x90)
			f.audio(0)
			f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.Opus, Data: []byte{0xFC, 1}}, 20*ms) // not known yet
			f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.Opus, Config: true, Data: []byte("OpusHead\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00")}, 0)
			f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.Opus, Data: []byte{0xFC, 1}}, 40*ms)
			f.audios(0x12, 0x10)
			f.audio(60 * ms)
		}, "[a48000] a0[a48000] a40[a44100] a60"},
		{"frames before anything is known", func(f *feeder) {
			f.videoFrame(0, slice)
			f.audio(0)
			f.videoConfig(small)
			f.audios(0x11, 0x90)
			f.videoFrame(40*ms, key)
		}, "[v90a48000] v40"},
		{"unsupported audio codec", func(f *feeder) {
			f.announce(true, true)
			f.send(codec.Packet{Kind: cmaf.Audio, Codec: "FLV audio codec 2", Data: []byte{1}}, 0)
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.send(codec.Packet{Kind: cmaf.Audio, Codec: "FLV audio codec 2", Data: []byte{1}}, 0)
		}, "[v90] v0"},
		{"audio becomes invalid", func(f *feeder) {
			f.videoConfig(small)
			f.audios(0x11, 0x90)
			f.videoFrame(0, key)
			f.audio(10 * ms)
			f.audios(0xFF)
			f.audio(30 * ms)
			f.videoFrame(40*ms, key)
		}, "[v90a48000] v0 a10[v90] v40"},
		{"unsupported video codec", func(f *feeder) {
			f.send(codec.Packet{Kind: cmaf.Video, Codec: `"vp09"`, Data: []byte{1}}, 0)
		}, ` video in "vp09" is not supported; send H.264, HEVC or AV1`},
		{"changes without end", func(f *feeder) {
			f.announce(true, false)
			for i := range 100 {
				f.videoConfig([][]byte{small, large}[i%2])
				f.videoFrame(0, key)
			}
			f.pub.frames = nil
		}, " the encoder changes its tracks more than 30 times a minute; check its settings"},
		{"the end comes early", func(f *feeder) {
			f.videoConfig(small)
			f.videoFrame(0, key)
			f.videoFrame(40*ms, slice)
			f.err = f.flush(f.t.Context())
		}, "[v90] v0 v40"},
		{"too much waits", func(f *feeder) {
			f.videoConfig(small)
			big := append([]byte{0x65}, make([]byte, 3<<20)...)
			f.videoFrame(0, big)
			f.videoFrame(1*ms, big)
		}, "[v90] v0 v1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFeeder(t)
			tt.feed(f)
			if diff := cmp.Diff(tt.want, f.story()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Times in milliseconds become those that frames of audio really have, gaps stay.
func TestGrid(t *testing.T) {
	var g audioClock
	u := codec.Sample{Duration: 1024, Timescale: 48000}
	var got []time.Duration
	for _, sent := range []time.Duration{7, 28, 50, 71, 200, 221, 0} {
		got = append(got, g.at(sent*time.Millisecond, u))
	}
	want := []time.Duration{7000000, 28333333, 49666666, 71000000, 200000000, 221333333, 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The frames that wait for the other track are limited, and so is the size of an audio frame.
func TestFeedLimits(t *testing.T) {
	f := newFeeder(t)
	f.videoConfig(realSets(t, "small.mp4"))
	for range 2 * maxHeldFrames {
		f.videoFrame(0, slice)
	}
	if f.err != nil || len(f.held) > 0 || len(f.pub.frames) != 2*maxHeldFrames {
		t.Errorf("of %d frames at one time %d wait, %d were handed on (%v)", 2*maxHeldFrames, len(f.held), len(f.pub.frames), f.err)
	}
	f.audios(0x11, 0x90)
	f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.AAC, Data: make([]byte, maxAudio)}, 0)
	if f.err != nil {
		t.Errorf("a frame of %d bytes of audio: %v", maxAudio, f.err)
	}
	f.send(codec.Packet{Kind: cmaf.Audio, Codec: codec.AAC, Data: make([]byte, maxAudio+1)}, 0)
	if f.err == nil {
		t.Error("a frame of more bytes of audio is taken")
	}
}

// An encoder whose audio is of another codec all the time does not fill the log.
func TestFeedLogLimit(t *testing.T) {
	hub, book := newTestHub(), &logBook{}
	p, err := hub.publish(t.Context(), goodKey, source)
	if err != nil {
		t.Fatal(err)
	}
	f := newFeed(p, bounded(book.logger()))
	for i := range 1000 {
		name := []string{codec.AAC, codec.Opus}[i%2]
		if err := f.addPacket(t.Context(), codec.Packet{Kind: cmaf.Audio, Codec: name, Config: true, Data: []byte{0xFF}}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(book.String(), "the audio is left out"); n == 0 || n > mediaLinesAtOnce+1 {
		t.Errorf("%d lines about audio that is left out, want at most %d", n, mediaLinesAtOnce)
	}
}
