package rtc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pion/webrtc/v4"
	"go.uber.org/goleak"

	"weir/internal/budget"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/rtc"
	"weir/internal/rtc/rtctest"
	"weir/internal/wait"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is the address of the clients.
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

// Accept returns the frames that a peer sends, in order and with their media times: key frames have
// their parameter sets. The peer sends two seconds of media at once, so arrival times would be wrong.
func TestAccept(t *testing.T) {
	for name, networks := range map[string][]webrtc.NetworkType{"UDP": {webrtc.NetworkTypeUDP4}, "TCP": {webrtc.NetworkTypeTCP4}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			film := rtctest.MakeFilm(t, "2")
			p := rtctest.New(t, networks...)
			r, err := s.Accept(t.Context(), p.OfferToSend())
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if video, audio := r.Sends(); !video || !audio {
				t.Errorf("Sends() = %v, %v, want both", video, audio)
			}
			p.Answered(r.Answer())
			p.Connected()
			if err := r.Connected(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.Send(film)
			ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
			defer cancel()
			var video, audio []rtc.Frame
			for len(video) < len(film.Video)-1 || len(audio) < 90 {
				f, err := r.Next(ctx)
				if err != nil {
					t.Fatalf("after %d video and %d audio frames: %v", len(video), len(audio), err)
				}
				if f.Kind == cmaf.Audio {
					audio = append(audio, f)
					continue
				}
				if want := withoutDelimiter(film.Video[len(video)]); !bytes.Equal(nals(f.Data), want) {
					t.Fatalf("video frame %d is % x…", len(video), f.Data[:min(32, len(f.Data))])
				}
				video = append(video, f)
			}
			checkSteps(t, "video", video, time.Second/rtctest.Rate)
			checkSteps(t, "audio", audio, rtctest.AudioDuration)
			p.Close()
			for err == nil {
				_, err = r.Next(ctx)
			}
			// A TCP connection may close before the last packet, which ends the session, is sent.
			if !errors.Is(err, rtc.ErrLeft) && name != "TCP" {
				t.Errorf("the peer closed the connection, and it ended with %v", err)
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

// checkSteps checks that decode times rise and that frames are one media step apart. The median
// counts: a sender report, which comes once a second, may move the video once.
func checkSteps(t *testing.T, kind string, frames []rtc.Frame, want time.Duration) {
	t.Helper()
	var steps []time.Duration
	for i := 1; i < len(frames); i++ {
		if frames[i].DTS <= frames[i-1].DTS {
			t.Fatalf("%s: frame %d is decoded at %v, the one before it at %v", kind, i, frames[i].DTS, frames[i-1].DTS)
		}
		steps = append(steps, frames[i].PTS-frames[i-1].PTS)
	}
	slices.Sort(steps)
	if got := steps[len(steps)/2]; (got - want).Abs() > time.Millisecond {
		t.Errorf("%s frames are %v apart, want %v", kind, got, want)
	}
}

// Send delivers frames to a viewer, with audio and video on one clock.
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
	wait.NoError(t, func() error {
		_, video := p.Got("video")
		_, audio := p.Got("audio")
		if video != time.Second-time.Second/rtctest.Rate || audio != time.Duration(len(film.Audio)-1)*20*time.Millisecond {
			return fmt.Errorf("%v of video and %v of audio arrived", video, audio)
		}
		return nil
	})
	checkTogether(t, p)
	p.Close()
	<-out.Done()
	if !errors.Is(out.Err(), rtc.ErrLeft) {
		t.Errorf("the viewer closed the connection, and it ended with %v", out.Err())
	}
}

// checkTogether waits until the sender reports relate audio to video, and checks that they do so by
// their presentation times.
func checkTogether(t *testing.T, p *rtctest.Peer) {
	t.Helper()
	wait.Until(t, "the viewer gets sender reports", func() bool {
		video, seen := p.Began("video")
		audio, heard := p.Began("audio")
		if apart := (video - audio).Abs(); seen && heard && apart > time.Millisecond {
			t.Errorf("audio and video of the same time are %v apart", apart)
		}
		return seen && heard
	})
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

// lengths returns NAL units with length prefixes.
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
			r, err := s.Accept(t.Context(), tt.offer)
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

// Close ends all peers.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := rtctest.New(t)
	r, err := s.Accept(t.Context(), p.OfferToSend())
	if err != nil {
		t.Fatal(err)
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
		t.Errorf("the connection ended with %v, want Busy", err)
	}
	if _, err := s.Accept(t.Context(), rtctest.New(t).OfferToSend()); weir.KindOf(err) != weir.Busy {
		t.Errorf("after the end: %v, want Busy", err)
	}
}

// watch connects a viewer.
func watch(t *testing.T, s *rtc.Server, from netip.Addr) *rtc.Sender {
	t.Helper()
	p := rtctest.New(t)
	out, err := s.Send(t.Context(), from, p.OfferToWatch())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	p.Answered(out.Answer())
	p.Connected()
	if err := out.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

// refused checks that a viewer is refused, and when it may try again.
func refused(t *testing.T, s *rtc.Server, from netip.Addr, want weir.Kind) {
	t.Helper()
	_, err := s.Send(t.Context(), from, rtctest.New(t).OfferToWatch())
	e, ok := errors.AsType[*weir.Error](err)
	if !ok || e.Kind != want || e.RetryAfter == 0 {
		t.Errorf("Send() = %v (%v), want %v", err, weir.KindOf(err), want)
	}
}

// Viewers are limited in total and per address. Those who publish are not refused because of them.
func TestMaxViewers(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.MaxViewers = 4 })
	second, third := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	first := watch(t, s, here)
	watch(t, s, here)
	refused(t, s, here, weir.Busy)
	watch(t, s, second)
	// One that is not connected makes room.
	waiting, err := s.Send(t.Context(), second, rtctest.New(t).OfferToWatch())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	watch(t, s, third)
	<-waiting.Done()
	refused(t, s, third, weir.Overloaded)
	if r, err := s.Accept(t.Context(), rtctest.New(t).OfferToSend()); err != nil {
		t.Errorf("one who publishes: %v", err)
	} else {
		r.Close()
	}
	if got, want := s.Viewers(), (budget.PoolStats{Members: 4, Refused: 2, Evicted: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	first.Close()
	watch(t, s, third)
}

// A client that posts offers and never connects does not block those of other addresses, nor itself from
// publishing.
func TestMaxWaiting(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.MaxWaiting = 1 })
	p := rtctest.New(t)
	out, err := s.Send(t.Context(), here, p.OfferToWatch())
	if err != nil {
		t.Fatal(err)
	}
	refused(t, s, here, weir.Busy)
	if _, err := s.Send(t.Context(), netip.MustParseAddr("192.0.2.1"), rtctest.New(t).OfferToWatch()); err != nil {
		t.Errorf("an offer of another address: %v", err)
	}
	for range 3 {
		if _, err := s.Accept(t.Context(), rtctest.New(t).OfferToSend()); err != nil {
			t.Errorf("an offer to publish: %v", err)
		}
	}
	p.Answered(out.Answer())
	p.Connected()
	if err := out.Connected(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits, err := s.Send(t.Context(), here, rtctest.New(t).OfferToWatch())
	if err != nil {
		t.Fatalf("the first is connected, and a second: %v", err)
	}
	waits.Close()
	if _, err := s.Send(t.Context(), here, rtctest.New(t).OfferToWatch()); err != nil {
		t.Errorf("the second is closed, and a third: %v", err)
	}
}

// A TCP connection that a peer uses is not closed for others.
func TestTCPConnections(t *testing.T) {
	t.Parallel()
	b, err := budget.New(budget.Options{Files: 1000, Connections: 64, Log: slog.New(slog.DiscardHandler)}) // 8 over TCP, of which one address has 4
	if err != nil {
		t.Fatal(err)
	}
	var address string
	s := newServer(t, func(o *rtc.Options) {
		address, o.TCP = o.TCP.Addr().String(), b.Peers(o.TCP)
	})
	film := rtctest.MakeFilm(t, "1")
	p, viewer := rtctest.New(t, webrtc.NetworkTypeTCP4), rtctest.New(t, webrtc.NetworkTypeTCP4)
	in, err := s.Accept(t.Context(), p.OfferToSend())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p.Answered(in.Answer())
	p.Connected()
	out, err := s.Send(t.Context(), here, viewer.OfferToWatch())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	viewer.Answered(out.Answer())
	viewer.Connected()
	if err := errors.Join(in.Connected(t.Context()), out.Connected(t.Context())); err != nil {
		t.Fatal(err)
	}
	evicted := b.Stats().Evicted
	for range 40 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	wait.Until(t, "36 connections were evicted", func() bool { return b.Stats().Evicted >= evicted+36 })
	p.Send(film)
	for range 20 {
		if _, err := in.Next(t.Context()); err != nil {
			t.Fatalf("the connection of one who publishes: %v", err)
		}
	}
	if err := out.SetVideo(h264Track(t, film.Video[0])); err != nil {
		t.Fatal(err)
	}
	for i, unit := range film.Video {
		if err := out.WriteVideo(time.Duration(i)*time.Second/rtctest.Rate, i == 0, lengths(unit)); err != nil {
			t.Fatal(err)
		}
	}
	wait.Until(t, "the viewer gets video", func() bool {
		if err := out.Err(); err != nil {
			t.Fatalf("the connection of a viewer: %v", err)
		}
		_, got := viewer.Got("video")
		return got > 0
	})
}

// Answers have the addresses that the operator sets, and no others.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(o *rtc.Options) { o.Hosts = []netip.Addr{netip.MustParseAddr("203.0.113.7")} })
	r, err := s.Accept(t.Context(), rtctest.New(t).OfferToSend())
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
