package rtc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"
	"github.com/pion/webrtc/v4"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/weir"
)

const (
	// payloadSize leaves room for the headers of everything around it on any network.
	payloadSize = 1180
	// reportEvery is how often a viewer is told which audio belongs to which picture.
	reportEvery = time.Second
	// ntpEpoch is from 1900 to 1970.
	ntpEpoch = 2208988800
)

// Sender is a peer that watches. One goroutine writes to it.
type Sender struct {
	*peer
	video, audio *outgoing // nil = not asked for
	sets         []byte    // of the video track, with start codes
	lengthSize   int       // of its NAL units

	origin time.Time     // when the first frame was sent
	first  time.Duration // and when it is shown
}

// outgoing is a track on its way to a viewer.
type outgoing struct {
	track    *webrtc.TrackLocalStaticRTP
	source   uint32 // its SSRC
	rate     int64
	sequence uint16
	offset   uint32 // of its times

	packets, bytes uint32
	reported       time.Time
}

// Send answers the offer of a peer that wants H.264, Opus, or both; from is who posted it.
func (s *Server) Send(ctx context.Context, from netip.Addr, sdp string) (*Sender, error) {
	o, err := readOffer(sdp, "sendonly")
	if err != nil {
		return nil, err
	}
	p, err := s.newPeer(from, o)
	if err != nil {
		return nil, err
	}
	out := &Sender{peer: p}
	if err := p.answerOffer(ctx, o, func() error { return out.addTracks(o) }); err != nil {
		p.close()
		return nil, err
	}
	return out, nil
}

func (s *Sender) addTracks(o offer) (err error) {
	if o.video {
		s.video, err = s.addTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264, ClockRate: h264Rate}, cmaf.Video)
	}
	if o.audio && err == nil {
		s.audio, err = s.addTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: opusRate, Channels: 2}, cmaf.Audio)
	}
	return err
}

func (s *Sender) addTrack(capability webrtc.RTPCodecCapability, kind cmaf.Kind) (*outgoing, error) {
	// Tracks of one stream are kept in step by players.
	track, err := webrtc.NewTrackLocalStaticRTP(capability, string(kind), "weir")
	if err != nil {
		return nil, err
	}
	sender, err := s.pc.AddTrack(track)
	if err != nil {
		return nil, s.unusable(err)
	}
	var start [6]byte
	if _, err := rand.Read(start[:]); err != nil {
		return nil, err
	}
	out := &outgoing{
		track: track, rate: int64(capability.ClockRate), source: uint32(sender.GetParameters().Encodings[0].SSRC),
		offset: binary.BigEndian.Uint32(start[:]), sequence: binary.BigEndian.Uint16(start[4:]),
	}
	// What the viewer says is read so that losses are repaired on the way.
	s.working.Go(func() {
		buffer := make([]byte, 1500)
		for {
			if _, _, err := sender.Read(buffer); err != nil {
				return
			}
		}
	})
	return out, nil
}

// Wants reports what the peer asked for.
func (s *Sender) Wants() (video, audio bool) { return s.video != nil, s.audio != nil }

// SetVideo says what the pictures are from here on: a track of H.264.
func (s *Sender) SetVideo(track cmaf.Track) error {
	sets, err := codec.ParseAVCC(track.Config().Record)
	if err != nil {
		return weir.Errorf(weir.Invalid, "the avcC box of the video track can't be read")
	}
	s.sets, s.lengthSize = sets.AnnexB(), sets.LengthSize
	return nil
}

// WriteVideo sends a frame of the video track as cmaf keeps it.
func (s *Sender) WriteVideo(shown time.Duration, sync bool, sample []byte) error {
	if s.video == nil {
		return nil
	}
	var stream []byte
	if sync {
		stream = append(stream, s.sets...)
	}
	for unit, err := range codec.Units(sample, s.lengthSize) {
		if err != nil {
			break
		}
		if len(unit) > 0 {
			stream = append(append(stream, codec.StartCode...), unit...)
		}
	}
	// One at a time: players know packets of several, but the library would lose parameter sets.
	return s.write(s.video, shown, (&codecs.H264Payloader{DisableStapA: true}).Payload(payloadSize, stream))
}

// WriteAudio sends a packet of Opus.
func (s *Sender) WriteAudio(shown time.Duration, packet []byte) error {
	if s.audio == nil {
		return nil
	}
	return s.write(s.audio, shown, [][]byte{packet})
}

func (s *Sender) write(to *outgoing, shown time.Duration, payloads [][]byte) error {
	if err := s.Err(); err != nil {
		return err
	}
	now := time.Now()
	if s.origin.IsZero() {
		s.origin, s.first = now, shown
	}
	stamp := to.offset + uint32(int64(shown)/int64(time.Second)*to.rate+int64(shown)%int64(time.Second)*to.rate/int64(time.Second))
	for i, payload := range payloads {
		to.sequence++
		p := rtp.Packet{
			Header:  rtp.Header{Version: 2, Marker: i == len(payloads)-1, SequenceNumber: to.sequence, Timestamp: stamp},
			Payload: payload,
		}
		if err := to.track.WriteRTP(&p); err != nil && !errors.Is(err, io.ErrClosedPipe) {
			return err
		}
		to.packets, to.bytes = to.packets+1, to.bytes+uint32(len(payload))
	}
	if now.Sub(to.reported) < reportEvery {
		return nil
	}
	to.reported = now
	// The times of both tracks on one clock: whenever they are sent, players show them
	// together.
	wall := s.origin.Add(shown - s.first)
	err := s.pc.WriteRTCP([]rtcp.Packet{&rtcp.SenderReport{
		SSRC: to.source, NTPTime: ntp(wall), RTPTime: stamp, PacketCount: to.packets, OctetCount: to.bytes,
	}})
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // its end is about to be told
	}
	return err
}

// ntp returns a time as reports write it.
func ntp(t time.Time) uint64 {
	return uint64(t.Unix()+ntpEpoch)<<32 | uint64(t.Nanosecond())<<32/uint64(time.Second)
}
