package rtc

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/weir"
)

func numbered(n uint16) *rtp.Packet { return &rtp.Packet{Header: rtp.Header{SequenceNumber: n}} }

// The sequencer passes each packet on once, in order, and reports gaps.
func TestSequencer(t *testing.T) {
	type out struct {
		N   uint16
		Gap bool
	}
	many := func(from, count uint16) (all []uint16) {
		for i := range count {
			all = append(all, from+i)
		}
		return all
	}
	for name, tt := range map[string]struct {
		in   []uint16
		late time.Duration // between packets
		want []out
	}{
		"in order":      {[]uint16{7, 8, 9}, 0, []out{{7, false}, {8, false}, {9, false}}},
		"runs over":     {[]uint16{65535, 0, 1}, 0, []out{{65535, false}, {0, false}, {1, false}}},
		"swapped":       {[]uint16{1, 3, 2, 4}, 0, []out{{1, false}, {2, false}, {3, false}, {4, false}}},
		"twice":         {[]uint16{1, 1, 2, 1, 2}, 0, []out{{1, false}, {2, false}}},
		"lost":          {[]uint16{1, 3, 4, 5, 6}, 110 * time.Millisecond, []out{{1, false}, {3, true}, {4, false}, {5, false}, {6, false}}},
		"lost and late": {[]uint16{1, 3, 4, 5, 6, 2}, 110 * time.Millisecond, []out{{1, false}, {3, true}, {4, false}, {5, false}, {6, false}}},
		"two lost":      {[]uint16{1, 3, 5, 6, 7, 8, 9, 10}, 110 * time.Millisecond, []out{{1, false}, {3, true}, {5, true}, {6, false}, {7, false}, {8, false}, {9, false}, {10, false}}},
		"starts again":  {[]uint16{1, 2, 40000, 40001}, 0, []out{{1, false}, {2, false}, {40000, true}, {40001, false}}},
		"waits for one": {[]uint16{1, 3, 4}, 0, []out{{1, false}}},
		"too many wait": {append([]uint16{1}, many(3, maxWaiting)...), 0, append([]out{{1, false}, {3, true}}, func() (all []out) {
			for _, n := range many(4, maxWaiting-1) {
				all = append(all, out{n, false})
			}
			return all
		}()...)},
	} {
		t.Run(name, func(t *testing.T) {
			var s sequencer
			var got []out
			now := time.Unix(0, 0)
			for _, n := range tt.in {
				s.add(numbered(n), now, func(p *rtp.Packet, gap bool) { got = append(got, out{p.SequenceNumber, gap}) })
				now = now.Add(tt.late)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("packets (-want +got):\n%s", diff)
			}
		})
	}
}

// assemble returns the sizes of the units that an assembler makes of packets; -1 = a loss.
func assemble(packets []*rtp.Packet, gapBefore int) (got []int) {
	var a assembler
	for i, p := range packets {
		a.add(p, i == gapBefore, func(unit []byte, _ uint32) { got = append(got, len(unit)) }, func() { got = append(got, -1) })
	}
	return got
}

func TestAssembler(t *testing.T) {
	packet := func(stamp uint32, marker bool, payload ...byte) *rtp.Packet {
		return &rtp.Packet{Header: rtp.Header{Timestamp: stamp, Marker: marker}, Payload: payload}
	}
	for name, tt := range map[string]struct {
		packets []*rtp.Packet
		gap     int
		want    []int
	}{
		"one packet":        {[]*rtp.Packet{packet(1, true, 0x65, 1, 2)}, -1, []int{4 + 3}},
		"two NAL units":     {[]*rtp.Packet{packet(1, false, 0x67, 1), packet(1, true, 0x65, 1, 2)}, -1, []int{4 + 2 + 4 + 3}},
		"together":          {[]*rtp.Packet{packet(1, true, 24, 0, 2, 0x67, 1, 0, 3, 0x65, 1, 2)}, -1, []int{4 + 2 + 4 + 3}},
		"in pieces":         {[]*rtp.Packet{packet(1, false, 28, 0x85, 1), packet(1, false, 28, 0x05, 2), packet(1, true, 28, 0x45, 3)}, -1, []int{4 + 4}},
		"no marker":         {[]*rtp.Packet{packet(1, false, 0x65, 1), packet(2, true, 0x41, 1)}, -1, []int{4 + 2, 4 + 2}},
		"a piece is lost":   {[]*rtp.Packet{packet(1, false, 28, 0x85, 1), packet(1, true, 28, 0x45, 3), packet(2, true, 0x41, 1)}, 1, []int{-1, 6, 6}},
		"a unit is lost":    {[]*rtp.Packet{packet(1, true, 0x65, 1), packet(3, true, 0x41, 1)}, 1, []int{6, -1, 6}},
		"padding":           {[]*rtp.Packet{packet(1, false, 0x65, 1), packet(9, false), packet(1, true, 0x65, 1)}, -1, []int{12}},
		"cut off":           {[]*rtp.Packet{packet(1, true, 24, 0, 200, 0x67), packet(2, true, 0x41, 1)}, -1, []int{-1, 6}},
		"unknown form":      {[]*rtp.Packet{packet(1, true, 30, 1, 2)}, -1, []int{-1}},
		"a piece without 1": {[]*rtp.Packet{packet(1, true, 28)}, -1, []int{-1}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, assemble(tt.packets, tt.gap)); diff != "" {
				t.Errorf("lengths of units, -1 = loss (-want +got):\n%s", diff)
			}
		})
	}
	// A unit without an end does not take all memory.
	var a assembler
	piece := packet(1, false, append([]byte{28, 0x05}, make([]byte, 60000)...)...)
	for range codec.MaxFrame/60000*2 + 2 {
		a.add(piece, false, func([]byte, uint32) { t.Error("a unit that is too long came out") }, func() {})
	}
	if !a.broken || cap(a.unit) > codec.MaxFrame {
		t.Errorf("%d bytes are kept of a unit that is too long", cap(a.unit))
	}
}

// The assembler makes NAL units with length prefixes of arbitrary packets.
func FuzzAssembler(f *testing.F) {
	f.Add([]byte{3, 0x65, 1, 2, 4, 28, 0x85, 1, 2, 3, 28, 0x45, 3}, uint8(3))
	f.Add([]byte{6, 24, 0, 2, 0x67, 1, 0, 0, 2, 30, 1}, uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, marks uint8) {
		var s sequencer
		var a assembler
		now := time.Unix(0, 0)
		for i := 0; len(data) > 0; i++ {
			n := min(int(data[0]), len(data)-1)
			p := &rtp.Packet{Header: rtp.Header{SequenceNumber: uint16(i) + uint16(marks&1)*uint16(n), Timestamp: uint32(n), Marker: marks>>(i%8)&1 != 0}, Payload: data[1 : 1+n]}
			data = data[1+n:]
			s.add(p, now, func(p *rtp.Packet, gap bool) {
				a.add(p, gap, func(unit []byte, _ uint32) {
					nals, _, _ := split(unit)
					if size := 4*len(nals) + len(bytes.Join(nals, nil)); size > len(unit) {
						t.Errorf("NAL units of %d bytes in % x", size, unit)
					}
				}, func() {})
			})
			now = now.Add(50 * time.Millisecond)
		}
	})
}

// A connection that was lost and one that was never made have different errors.
func TestConnectionFailed(t *testing.T) {
	newPeer := func() *peer {
		return &peer{server: &Server{}, connected: make(chan struct{}), done: make(chan struct{}), timer: time.NewTimer(time.Hour)}
	}
	never, lost := newPeer(), newPeer()
	never.changed(webrtc.PeerConnectionStateFailed)
	lost.changed(webrtc.PeerConnectionStateConnected)
	lost.changed(webrtc.PeerConnectionStateFailed)
	if !errors.Is(never.Err(), errNotConnected) || !errors.Is(lost.Err(), errLost) {
		t.Errorf("never connected: %v; lost: %v", never.Err(), lost.Err())
	}
}

// FuzzVideoFrames makes frames of arbitrary access units: their decode times rise.
func FuzzVideoFrames(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 0x67, 0x42, 0xC0, 0x1E, 0, 0, 0, 2, 0x68, 0xCB, 0, 0, 0, 2, 0x65, 0x88}, []byte{0, 0, 0, 3, 0x41, 0x9A, 1}, uint32(3600))
	f.Add([]byte{0, 0, 0, 2, 0x65, 0x88}, []byte{0, 0, 0, 0, 0, 0, 1}, uint32(1<<31))
	f.Fuzz(func(t *testing.T, first, second []byte, step uint32) {
		r := &Receiver{peer: &peer{done: make(chan struct{})}, clock: newClock(), frames: make(chan Frame, 8)}
		v := &videoFrames{r: r, source: 1, damaged: true}
		v.asked = time.Now().Add(time.Hour) // there is nobody to ask
		for i, unit := range [][]byte{first, second, second, first, second} {
			v.unit(slices.Clone(unit), uint32(i)*step)
		}
		close(r.frames)
		last := time.Duration(-1 << 62)
		for f := range r.frames {
			if f.DTS <= last || f.PTS < f.DTS {
				t.Errorf("a frame is decoded at %v, after %v, and shown at %v", f.DTS, last, f.PTS)
			}
			last = f.DTS
		}
	})
}

// Every text is either parsed or refused.
func FuzzOffer(f *testing.F) {
	const good = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\nc=IN IP4 0.0.0.0\r\na=ice-ufrag:abcd\r\na=sendonly\r\n" +
		"a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1;sprop-parameter-sets=Z0IAHg==,aM48gA==\r\na=candidate:1 1 udp 1 10.0.0.1 9 typ host\r\n"
	f.Add(good)
	f.Add("v=0\r\nm=audio 9 X 111\r\na=rtpmap:111 opus/48000/2\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		o, err := readOffer(text, "recvonly")
		_ = checkFragment(text, text)
		if err != nil {
			return
		}
		if !o.video && !o.audio {
			t.Error("an offer without media is taken")
		}
		for line := range strings.Lines(o.text) {
			if strings.HasPrefix(line, "a=candidate") || strings.HasPrefix(line, "a=ice-lite") {
				t.Errorf("pion gets %q", line)
			}
		}
	})
}

func TestOffer(t *testing.T) {
	o, err := readOffer("v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=video 9 UDP/TLS/RTP/SAVPF 96\r\na=rtpmap:96 h264/90000\r\n"+
		"a=fmtp:96 packetization-mode=1; sprop-parameter-sets=Z0IAHg==,aM48gA==\r\na=candidate:1 1 udp 1 10.0.0.1 9 typ host\r\na=end-of-candidates\r\n", "recvonly")
	if err != nil {
		t.Fatal(err)
	}
	if !o.video || o.audio || !slices.EqualFunc(o.sets, [][]byte{{0x67, 0x42, 0, 0x1e}, {0x68, 0xce, 0x3c, 0x80}}, slices.Equal) {
		t.Errorf("the offer is read as %+v", o)
	}
	offer := o.text + "a=ice-ufrag:abcd\r\n"
	if err := checkFragment("a=ice-ufrag:abcd\r\n", offer); err != nil {
		t.Errorf("a fragment of the same session: %v", err)
	}
	if err := checkFragment("a=ice-ufrag:abc\r\n", offer); weir.KindOf(err) != weir.Invalid {
		t.Errorf("an ICE restart: %v, want Invalid", err)
	}
	for _, word := range []string{"candidate", "10.0.0.1"} {
		if strings.Contains(o.text, word) {
			t.Errorf("pion gets %s:\n%s", word, o.text)
		}
	}
}

// The parameter sets of a track are found, or it is refused.
func TestSetVideo(t *testing.T) {
	config, err := codec.H264Config([]byte{0x67, 0x42, 0xc0, 0x1f, 0xda, 0x01, 0x40, 0x16, 0xe8}, []byte{0x68, 0xcb, 0x83, 0xcb, 0x20})
	if err != nil {
		t.Fatal(err)
	}
	track, err := cmaf.NewTrack(config)
	if err != nil {
		t.Fatal(err)
	}
	var s Sender
	err = s.SetVideo(track)
	if sets := s.sets; err != nil || len(sets) != 4+9+4+5 || binary.BigEndian.Uint32(sets) != 1 || sets[4] != 0x67 || sets[4+9+4] != 0x68 {
		t.Errorf("parameter sets % x, %v", sets, err)
	}
	if err := s.SetVideo(cmaf.Track{}); err == nil {
		t.Error("nothing is taken for parameter sets")
	}
}

// Sender reports keep audio and video in sync, whatever their arrival times are.
func TestClock(t *testing.T) {
	start := time.Unix(1000, 0)
	ntpAt := func(d time.Duration) uint64 { return ntp(start.Add(d)) }
	c := newClock()
	// Video arrives 120 ms after the audio of the same time.
	const late = 120 * time.Millisecond
	var apart time.Duration
	for i := range 250 {
		d := time.Duration(i) * 40 * time.Millisecond
		audio := c.at(cmaf.Audio, 77+uint32(d*48000/time.Second), start.Add(d))
		video := c.at(cmaf.Video, 0xFFFFFF00+uint32(d*90000/time.Second), start.Add(d+late))
		apart = video - audio
		if i == 10 && apart != late {
			t.Errorf("before the reports they are %v apart, want %v", apart, late)
		}
		if i == 20 {
			c.report(cmaf.Audio, 77+uint32(d*48000/time.Second), ntpAt(d))
			c.report(cmaf.Video, 0xFFFFFF00+uint32(d*90000/time.Second), ntpAt(d))
		}
	}
	if apart.Abs() > time.Millisecond {
		t.Errorf("after the reports they are %v apart", apart)
	}
	d := 250 * 40 * time.Millisecond
	report := func(off time.Duration) {
		c.report(cmaf.Audio, 77+uint32(d*48000/time.Second), ntpAt(d+off))
	}
	// A single late report has no effect.
	before := c.shift
	report(200 * time.Millisecond)
	for range 100 {
		d += 40 * time.Millisecond
		c.at(cmaf.Video, 0xFFFFFF00+uint32(d*90000/time.Second), start.Add(d+late))
	}
	if c.shift != before {
		t.Errorf("a single late report moved the video by %v", c.shift-before)
	}
	// The clock of the audio drifts slowly: the video follows it.
	report(-30 * time.Millisecond)
	report(-30 * time.Millisecond)
	report(-30 * time.Millisecond)
	for range 100 {
		d += 40 * time.Millisecond
		was := c.shift
		c.at(cmaf.Video, 0xFFFFFF00+uint32(d*90000/time.Second), start.Add(d+late))
		if step := (c.shift - was).Abs(); step > maxStep {
			t.Fatalf("the video is moved by %v at once", step)
		}
	}
	if moved := c.shift - before; (moved - 30*time.Millisecond).Abs() > time.Millisecond {
		t.Errorf("the video was moved by %v, want 30ms", moved)
	}
}

// After a jump of the RTP times, the timeline continues at the arrival time.
func TestClockJumps(t *testing.T) {
	start := time.Unix(1000, 0)
	c := newClock()
	c.at(cmaf.Video, 5, start)
	if got := c.at(cmaf.Video, 5+90000, start.Add(time.Second)); got != time.Second {
		t.Errorf("after a second it is %v", got)
	}
	if got := c.at(cmaf.Video, 5+90000*1000, start.Add(1040*time.Millisecond)); got != 1040*time.Millisecond {
		t.Errorf("after a jump of 1000 s it is %v", got)
	}
	if got := c.at(cmaf.Video, 5+90000*1000+3600, start.Add(1100*time.Millisecond)); got != 1080*time.Millisecond {
		t.Errorf("a frame later it is %v", got)
	}
}

// After a jump of the audio times, older reports do not move the video.
func TestClockJumpsAfterReports(t *testing.T) {
	start := time.Unix(1000, 0)
	c := newClock()
	c.at(cmaf.Audio, 0, start)
	c.at(cmaf.Video, 0, start)
	c.report(cmaf.Audio, 0, ntp(start))
	c.report(cmaf.Video, 0, ntp(start))
	c.at(cmaf.Video, 90000, start.Add(time.Second))
	c.at(cmaf.Audio, 48000*1000, start.Add(time.Second))
	if got := c.at(cmaf.Video, 90000+3600, start.Add(1040*time.Millisecond)); got != 1040*time.Millisecond {
		t.Errorf("after the audio has jumped, a video frame is at %v, want 1.04s", got)
	}
}
