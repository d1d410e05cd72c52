package rtc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pion/webrtc/v4"
	"go.uber.org/goleak"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/rtc"
	"weir/internal/rtc/rtctest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is who posts the offers of these tests.
var here = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// listen opens a port that is free for UDP and for TCP.
func listen(t *testing.T) (*net.UDPConn, net.Listener) {
	t.Helper()
	for {
		udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		tcp, err := net.Listen("tcp4", udp.LocalAddr().String())
		if err == nil {
			return udp, tcp
		}
		_ = udp.Close()
		if !errors.Is(err, syscall.EADDRINUSE) {
			t.Fatal(err)
		}
	}
}

// newServer returns a server on free ports of this machine.
func newServer(t *testing.T, change ...func(*rtc.Options)) *rtc.Server {
	t.Helper()
	udp, tcp := listen(t)
	o := rtc.Options{UDP: udp, TCP: tcp, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	s, err := rtc.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// What a peer sends comes out as it was sent: each picture with its parameter sets at key
// frames, each packet of audio, at the times that they have.
func TestAccept(t *testing.T) {
	for name, networks := range map[string][]webrtc.NetworkType{"UDP": {webrtc.NetworkTypeUDP4}, "TCP": {webrtc.NetworkTypeTCP4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			film := rtctest.MakeFilm(t, "2")
			p := rtctest.New(t, networks...)
			r, err := s.Accept(t.Context(), here, p.OfferToSend())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if video, audio := r.Sends(); !video || !audio {
				t.Errorf("Sends() = %v, %v, want both", video, audio)
			}
			p.Answered(r.Answer())
			p.Connected()
			p.Play(film)
			sent := map[string]int{}
			for i, unit := range film.Video {
				sent[string(withoutDelimiter(unit))] = i
			}
			var video, audio []rtc.Frame
			for len(video) < 2*rtctest.Rate || len(audio) < 90 {
				f, err := r.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if f.Kind == cmaf.Audio {
					audio = append(audio, f)
					continue
				}
				video = append(video, f)
				if _, ok := sent[string(nals(f.Data))]; !ok {
					t.Fatalf("picture %d was never sent: % x…", len(video), f.Data[:min(32, len(f.Data))])
				}
			}
			checkSteps(t, "video", video, time.Second/rtctest.Rate)
			checkSteps(t, "audio", audio, 20*time.Millisecond)
			p.Close()
			for err == nil {
				_, err = r.Next(t.Context())
			}
			// The peer's end of TCP closes its buffer, and may do so before the goodbye has left it.
			if !errors.Is(err, rtc.ErrLeft) && name != "TCP" {
				t.Errorf("the peer said goodbye, and the end is %v", err)
			}
		})
	}
}

// withoutDelimiter returns NAL units without their start codes and without the delimiter.
func withoutDelimiter(unit []byte) (all []byte) {
	for nal := range bytes.SplitSeq(bytes.ReplaceAll(unit, []byte{0, 0, 0, 1}, []byte{0, 0, 1}), []byte{0, 0, 1}) {
		if len(nal) > 0 && nal[0]&31 != 9 {
			all = append(append(all, 0, 0, 1), nal...)
		}
	}
	return all
}

// nals returns NAL units with start codes instead of lengths.
func nals(unit []byte) (all []byte) {
	for len(unit) > 0 {
		size := binary.BigEndian.Uint32(unit)
		if nal := unit[4 : 4+size]; nal[0]&31 != 9 {
			all = append(append(all, 0, 0, 1), nal...)
		}
		unit = unit[4+size:]
	}
	return all
}

// checkSteps looks whether frames follow one another at the right distance, on the whole.
func checkSteps(t *testing.T, kind string, frames []rtc.Frame, step time.Duration) {
	t.Helper()
	for i := 1; i < len(frames); i++ {
		if frames[i].DTS <= frames[i-1].DTS {
			t.Fatalf("%s: frame %d is decoded at %v, the one before it at %v", kind, i, frames[i].DTS, frames[i-1].DTS)
		}
	}
	length, want := frames[len(frames)-1].PTS-frames[0].PTS, time.Duration(len(frames)-1)*step
	// The peer of the test reports the time by when it sends, which is not exact.
	if (length - want).Abs() > 250*time.Millisecond {
		t.Errorf("%d frames of %s last %v, want %v", len(frames), kind, length, want)
	}
}

// What is sent reaches a viewer, with audio and video on one clock.
func TestSend(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	film := rtctest.MakeFilm(t, "1")
	p := rtctest.New(t)
	out, err := s.Send(t.Context(), here, p.OfferToWatch())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.Answered(out.Answer())
	if err := out.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	track := h264Track(t, film.Video[0])
	if err := out.SetVideo(track); err != nil {
		t.Fatal(err)
	}
	for i, unit := range film.Video {
		if err := out.WriteVideo(time.Duration(i)*time.Second/rtctest.Rate, i == 0, lengths(unit)); err != nil {
			t.Fatal(err)
		}
	}
	for i, packet := range film.Audio {
		if err := out.WriteAudio(time.Duration(i)*20*time.Millisecond, packet); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, video := p.Got("video")
		_, audio := p.Got("audio")
		if video == time.Second-time.Second/rtctest.Rate && audio == time.Duration(len(film.Audio)-1)*20*time.Millisecond {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v of video and %v of sound came", video, audio)
		}
		time.Sleep(5 * time.Millisecond)
	}
	checkTogether(t, p, time.Now().Add(20*time.Second))
	p.Close()
	<-out.Done()
	if !errors.Is(out.Err(), rtc.ErrLeft) {
		t.Errorf("the viewer said goodbye, and the end is %v", out.Err())
	}
}

// checkTogether waits until a viewer knows which audio belongs to which picture: that of
// the same time.
func checkTogether(t *testing.T, p *rtctest.Peer, deadline time.Time) {
	t.Helper()
	for {
		video, seen := p.Began("video")
		audio, heard := p.Began("audio")
		if apart := (video - audio).Abs(); seen && heard && apart > time.Millisecond {
			t.Errorf("sound and picture of the same time are %v apart", apart)
		}
		if seen && heard {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the viewer is not told which sound belongs to which picture")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// h264Track returns the track of a film by its first access unit.
func h264Track(t *testing.T, unit []byte) cmaf.Track {
	t.Helper()
	d := codec.NewDecoder(codec.H264)
	if _, err := d.Sample(codec.FromAnnexB(unit)); err != nil {
		t.Fatal(err)
	}
	config, ok, err := d.Config()
	if err != nil || !ok {
		t.Fatalf("no parameter sets: %v", err)
	}
	track, err := cmaf.NewTrack(config)
	if err != nil {
		t.Fatal(err)
	}
	return track
}

// lengths returns NAL units with their lengths in front.
func lengths(unit []byte) (all []byte) {
	for nal := range bytes.SplitSeq(withoutDelimiter(unit), []byte{0, 0, 1}) {
		if len(nal) > 0 {
			all = append(binary.BigEndian.AppendUint32(all, uint32(len(nal))), nal...)
		}
	}
	return all
}

// Offers that can't be used are refused with a sentence, and leave nothing behind.
func TestOffersRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	good := rtctest.New(t).OfferToSend()
	watching := rtctest.New(t).OfferToWatch()
	for name, tt := range map[string]struct {
		offer string
		kind  weir.Kind
		says  string
	}{
		"nothing":       {"", weir.Refused, "not SDP"},
		"no SDP":        {"hello", weir.Refused, "not SDP"},
		"too long":      {strings.Repeat("a", rtc.MaxOffer+1), weir.TooLarge, "longer"},
		"no H.264":      {strings.ReplaceAll(good, "H264/90000", "VP8/90000"), weir.Unsupported, "no H.264"},
		"no media":      {before(good, "m="), weir.Unsupported, "neither"},
		"wants, not":    {watching, weir.Refused, "recvonly"},
		"no ICE":        {without(good, "a=ice-ufrag"), weir.Refused, "can't be used"},
		"no key":        {without(good, "a=fingerprint"), weir.Refused, "can't be used"},
		"ICE-lite":      {strings.Replace(good, "t=0 0\r\n", "t=0 0\r\na=ice-lite\r\n", 1), weir.Refused, "ICE-lite"},
		"too many":      {good + strings.Repeat("m=video 9 UDP/TLS/RTP/SAVPF 96\r\n", 20), weir.Refused, "more than"},
		"foreign hosts": {strings.Replace(good, "a=mid:", "a=candidate:1 1 udp 1 10.0.0.1 9 typ host\r\na=candidate:rubbish\r\na=mid:", 1), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := s.Accept(t.Context(), here, tt.offer)
			if err == nil {
				r.Close()
			}
			if tt.kind == "" {
				if err != nil {
					t.Errorf("Accept() = %v", err)
				}
				return
			}
			if err == nil || weir.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("Accept() = %v (%v), want %q (%v)", err, weir.KindOf(err), tt.says, tt.kind)
			}
		})
	}
	if n := s.Peers(); n != 0 {
		t.Errorf("%d peers are left", n)
	}
}

func before(text, mark string) string {
	head, _, _ := strings.Cut(text, mark)
	return head
}

func without(text, prefix string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, prefix) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// There are only so many peers, and a server that ends lets all of them go.
func TestBounds(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.MaxPeers = 1 })
	p := rtctest.New(t)
	r, err := s.Accept(t.Context(), here, p.OfferToSend())
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Accept(t.Context(), here, rtctest.New(t).OfferToSend())
	if weir.KindOf(err) != weir.Busy {
		t.Errorf("a second peer: %v, want Busy", err)
	}
	p.Answered(r.Answer())
	p.Connected()
	if err := r.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	p.Ended()
	if _, err := r.Next(context.Background()); weir.KindOf(err) != weir.Busy {
		t.Errorf("the end of the peer is %v, want a word on the server's end", err)
	}
	if _, err := s.Accept(t.Context(), here, rtctest.New(t).OfferToSend()); weir.KindOf(err) != weir.Busy {
		t.Errorf("after the end: %v, want Busy", err)
	}
}

// Who posts offers and never connects is in nobody else's way.
func TestWaitingPeers(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.MaxWaiting = 1 })
	other := netip.MustParseAddr("192.0.2.1")
	p := rtctest.New(t)
	r, err := s.Accept(t.Context(), here, p.OfferToSend())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Send(t.Context(), here, rtctest.New(t).OfferToWatch()); weir.KindOf(err) != weir.Busy {
		t.Errorf("a second offer of the same address: %v, want Busy", err)
	}
	if _, err := s.Send(t.Context(), other, rtctest.New(t).OfferToWatch()); err != nil {
		t.Errorf("an offer of another address: %v", err)
	}
	p.Answered(r.Answer())
	p.Connected()
	if err := r.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits, err := s.Send(t.Context(), here, rtctest.New(t).OfferToWatch())
	if err != nil {
		t.Fatalf("the first is connected, and a second: %v", err)
	}
	waits.Close()
	if _, err := s.Send(t.Context(), here, rtctest.New(t).OfferToWatch()); err != nil {
		t.Errorf("the second has gone, and a third: %v", err)
	}
}

// Peers are told the addresses that the operator names, and no others.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.Hosts = []netip.Addr{netip.MustParseAddr("203.0.113.7")} })
	r, err := s.Accept(t.Context(), here, rtctest.New(t).OfferToSend())
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	found := map[string]bool{}
	for line := range strings.Lines(r.Answer()) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "a=candidate:") {
			found[strings.ToLower(fields[2])+" "+fields[4]] = true
		}
	}
	if diff := cmp.Diff(map[string]bool{"udp 203.0.113.7": true, "tcp 203.0.113.7": true}, found); diff != "" {
		t.Errorf("candidates (-want +got):\n%s\n%s", diff, r.Answer())
	}
	if !strings.Contains(r.Answer(), "a=ice-lite") {
		t.Errorf("the answer is not that of an ICE-lite agent:\n%s", r.Answer())
	}
}
