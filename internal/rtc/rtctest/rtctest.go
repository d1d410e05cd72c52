// Package rtctest is a WebRTC client for tests: pion's, with the HTTP of WHIP and WHEP.
package rtctest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"
	"github.com/pion/webrtc/v4/pkg/media"
	"github.com/pion/webrtc/v4/pkg/media/oggreader"

	"weir/internal/wait"
)

const (
	// Rate is the frame rate of a film.
	Rate = 25
	// AudioDuration is the duration of an audio packet.
	AudioDuration = 20 * time.Millisecond
)

// Film is encoded media.
type Film struct {
	Video [][]byte // access units of H.264, with start codes
	Audio [][]byte // packets of Opus
}

// MakeFilm makes some seconds of video and audio. args are further options of x264.
func MakeFilm(t testing.TB, seconds string, args ...string) Film {
	t.Helper()
	video := append([]string{
		"-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration=" + seconds, "-c:v", "libx264", "-profile:v", "baseline", "-preset", "ultrafast",
		"-pix_fmt", "yuv420p", "-g", "25",
	}, args...)
	stream := ffmpeg(t, append(video, "-bsf:v", "h264_metadata=aud=insert", "-f", "h264", "-")...)
	var film Film
	delimiter := []byte{0, 0, 0, 1, 9}
	for _, unit := range bytes.Split(stream, delimiter)[1:] {
		film.Video = append(film.Video, append(bytes.Clone(delimiter), unit...))
	}
	audio := ffmpeg(t, "-f", "lavfi", "-i", "sine=sample_rate=48000:duration="+seconds, "-c:a", "libopus", "-ac", "2", "-page_duration", "20000", "-f", "ogg", "-")
	pages, _, err := oggreader.NewWith(bytes.NewReader(audio))
	if err != nil {
		t.Fatal(err)
	}
	for {
		page, _, err := pages.ParseNextPage()
		if errors.Is(err, io.EOF) {
			return film
		}
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(page, []byte("OpusTags")) {
			film.Audio = append(film.Audio, page)
		}
	}
}

func ffmpeg(t testing.TB, args ...string) []byte {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "ffmpeg", append([]string{"-v", "error", "-nostdin"}, args...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("ffmpeg: %v\n%s", err, &said)
	}
	return out
}

// Peer is a client of WHIP or WHEP.
type Peer struct {
	testing.TB
	PC       *webrtc.PeerConnection
	Location string // of the session
	Keep     bool   // keeps what is received; set it before the offer

	connected chan struct{}
	ended     chan struct{} // closed when the connection has ended
	working   sync.WaitGroup
	stop      context.CancelFunc
	video     *webrtc.TrackLocalStaticSample
	audio     *webrtc.TrackLocalStaticSample

	mu       sync.Mutex
	received map[string]*received // by kind
}

// received is what has arrived of a track.
type received struct {
	packets     int
	first, last uint32             // RTP times
	report      *rtcp.SenderReport // the last one
	kept        []*rtp.Packet
}

// New returns a peer that is closed with the test. With networks, it uses only these.
func New(t testing.TB, networks ...webrtc.NetworkType) *Peer {
	t.Helper()
	var setting webrtc.SettingEngine
	setting.SetIncludeLoopbackCandidate(true)
	if len(networks) > 0 {
		setting.SetNetworkTypes(networks)
	}
	engine := &webrtc.MediaEngine{}
	if err := engine.RegisterDefaultCodecs(); err != nil {
		t.Fatal(err)
	}
	pc, err := webrtc.NewAPI(webrtc.WithMediaEngine(engine), webrtc.WithSettingEngine(setting)).NewPeerConnection(webrtc.Configuration{})
	if err != nil {
		t.Fatal(err)
	}
	p := &Peer{
		TB: t, PC: pc, connected: make(chan struct{}), ended: make(chan struct{}), stop: func() {},
		received: map[string]*received{"video": {}, "audio": {}},
	}
	var connect, end sync.Once
	pc.OnConnectionStateChange(func(state webrtc.PeerConnectionState) {
		switch state {
		case webrtc.PeerConnectionStateConnected:
			connect.Do(func() { close(p.connected) })
		case webrtc.PeerConnectionStateFailed, webrtc.PeerConnectionStateClosed:
			end.Do(func() { close(p.ended) })
		}
	})
	t.Cleanup(p.Close)
	return p
}

// Close ends the connection in order.
func (p *Peer) Close() {
	p.stop()
	if err := p.PC.GracefulClose(); err != nil {
		p.Error(err)
	}
	p.working.Wait()
}

// OfferToSend returns the offer of a publisher.
func (p *Peer) OfferToSend() string {
	p.Helper()
	var err error
	if p.video, err = webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264}, "video", "film"); err != nil {
		p.Fatal(err)
	}
	if p.audio, err = webrtc.NewTrackLocalStaticSample(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus}, "audio", "film"); err != nil {
		p.Fatal(err)
	}
	for _, track := range []webrtc.TrackLocal{p.video, p.audio} {
		sender, err := p.PC.AddTrack(track)
		if err != nil {
			p.Fatal(err)
		}
		p.working.Go(func() {
			for {
				if _, _, err := sender.ReadRTCP(); err != nil {
					return
				}
			}
		})
	}
	return p.offer()
}

// OfferToWatch returns the offer of a viewer.
func (p *Peer) OfferToWatch() string {
	p.Helper()
	for _, kind := range []webrtc.RTPCodecType{webrtc.RTPCodecTypeVideo, webrtc.RTPCodecTypeAudio} {
		if _, err := p.PC.AddTransceiverFromKind(kind, webrtc.RTPTransceiverInit{Direction: webrtc.RTPTransceiverDirectionRecvonly}); err != nil {
			p.Fatal(err)
		}
	}
	p.PC.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		got := p.received[track.Kind().String()]
		p.working.Go(func() {
			for {
				packets, _, err := receiver.ReadRTCP()
				if err != nil {
					return
				}
				for _, one := range packets {
					if report, ok := one.(*rtcp.SenderReport); ok {
						p.mu.Lock()
						got.report = report
						p.mu.Unlock()
					}
				}
			}
		})
		p.working.Go(func() {
			for {
				packet, _, err := track.ReadRTP()
				if err != nil {
					return
				}
				p.mu.Lock()
				if got.packets == 0 {
					got.first = packet.Timestamp
				}
				got.packets, got.last = got.packets+1, packet.Timestamp
				if p.Keep {
					got.kept = append(got.kept, packet)
				}
				p.mu.Unlock()
			}
		})
	})
	return p.offer()
}

func (p *Peer) offer() string {
	p.Helper()
	offer, err := p.PC.CreateOffer(nil)
	if err != nil {
		p.Fatal(err)
	}
	gathered := webrtc.GatheringCompletePromise(p.PC)
	if err := p.PC.SetLocalDescription(offer); err != nil {
		p.Fatal(err)
	}
	<-gathered
	return p.PC.LocalDescription().SDP
}

// Answered takes the answer of the server.
func (p *Peer) Answered(sdp string) {
	p.Helper()
	if err := p.PC.SetRemoteDescription(webrtc.SessionDescription{Type: webrtc.SDPTypeAnswer, SDP: sdp}); err != nil {
		p.Fatalf("the answer can't be used: %v\n%s", err, sdp)
	}
}

// Post sends an offer to a server and takes its answer.
func (p *Peer) Post(url, offer string, headers ...string) {
	p.Helper()
	answer := Request(p, http.MethodPost, url, "application/sdp", offer, headers...)
	if answer.StatusCode != http.StatusCreated {
		p.Fatalf("POST %s: %d %s", url, answer.StatusCode, answer.Text)
	}
	location, err := answer.Location()
	if err != nil {
		p.Fatal(err)
	}
	p.Location = location.String()
	p.Answered(answer.Text)
}

// Answer is the answer to a request.
type Answer struct {
	*http.Response
	Text string
}

// Request sends a request; headers are names and values.
func Request(t testing.TB, method, url, contentType, body string, headers ...string) Answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return Answer{answer, string(text)}
}

// Connected waits for the connection.
func (p *Peer) Connected() {
	p.Helper()
	wait.Receive(p, "the peers connect", p.connected)
}

// Ended waits for the end of the connection.
func (p *Peer) Ended() {
	p.Helper()
	wait.Receive(p, "the connection ends", p.ended)
}

// Send sends a film once, as fast as possible.
func (p *Peer) Send(film Film) {
	p.Helper()
	write := func(track *webrtc.TrackLocalStaticSample, data []byte, duration time.Duration) {
		if err := track.WriteSample(media.Sample{Data: data, Duration: duration}); err != nil {
			p.Fatal(err)
		}
	}
	audio := film.Audio
	for i, frame := range film.Video {
		write(p.video, frame, time.Second/Rate)
		for ; len(audio) > 0 && time.Duration(len(film.Audio)-len(audio))*AudioDuration <= time.Duration(i)*time.Second/Rate; audio = audio[1:] {
			write(p.audio, audio[0], AudioDuration)
		}
	}
}

// Play sends a film in real time, over and over, until the peer is closed.
func (p *Peer) Play(film Film) {
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	play := func(track *webrtc.TrackLocalStaticSample, frames [][]byte, length time.Duration) {
		tick := time.NewTicker(length)
		defer tick.Stop()
		for i := 0; ; i++ {
			if err := track.WriteSample(media.Sample{Data: frames[i%len(frames)], Duration: length}); err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
	p.working.Go(func() { play(p.video, film.Video, time.Second/Rate) })
	p.working.Go(func() { play(p.audio, film.Audio, AudioDuration) })
}

// Got returns how much of a kind of media has arrived.
func (p *Peer) Got(kind string) (packets int, length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.received[kind]
	return got.packets, time.Duration(got.last-got.first) * time.Second / rate(kind)
}

// rate returns the RTP clock rate of a kind of media.
func rate(kind string) time.Duration {
	if kind == "audio" {
		return 48000
	}
	return 90000
}

// Began returns the time of the first packet of a kind on the clock of the sender, by its last
// report; false = there was no report yet.
func (p *Peer) Began(kind string) (at time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := p.received[kind]
	if got.report == nil || got.packets == 0 {
		return 0, false
	}
	return senderTime(got.report, kind, got.first), true
}

// senderTime returns an RTP time on the clock of the sender, by its report.
func senderTime(report *rtcp.SenderReport, kind string, stamp uint32) time.Duration {
	seconds, fraction := time.Duration(report.NTPTime>>32), report.NTPTime&(1<<32-1)
	wall := seconds*time.Second + time.Duration(fraction*uint64(time.Second)>>32)
	return wall + time.Duration(int32(stamp-report.RTPTime))*time.Second/rate(kind)
}

// Kept is a frame that was received.
type Kept struct {
	At   time.Duration // on the clock of the sender
	Data []byte        // NAL units of H.264 with length prefixes, or a packet of Opus
}

// Kept returns the complete frames of a kind, in the order in which they were sent.
func (p *Peer) Kept(kind string) (frames []Kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	report := p.received[kind].report
	if report == nil {
		return nil
	}
	packets := slices.Clone(p.received[kind].kept)
	slices.SortStableFunc(packets, func(a, b *rtp.Packet) int { return int(int16(a.SequenceNumber - b.SequenceNumber)) })
	if kind == "audio" {
		for _, packet := range packets {
			frames = append(frames, Kept{senderTime(report, kind, packet.Timestamp), packet.Payload})
		}
		return frames
	}
	units := codecs.H264Packet{IsAVC: true}
	var unit []byte
	whole := true
	for i, packet := range packets {
		nals, err := units.Unmarshal(packet.Payload)
		unit = append(unit, nals...)
		whole = whole && err == nil && (i == 0 || packet.SequenceNumber == packets[i-1].SequenceNumber+1)
		if packet.Marker {
			if whole && len(unit) > 0 {
				frames = append(frames, Kept{senderTime(report, kind, packet.Timestamp), unit})
			}
			units, unit, whole = codecs.H264Packet{IsAVC: true}, nil, true
		}
	}
	return frames
}
