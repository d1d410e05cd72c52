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
	// payloadSize leaves space for all headers on any network.
	payloadSize = 1180
	// reportEvery is the interval of sender reports, which relate audio to video.
	reportEvery = time.Second
	// ntpEpoch is the number of seconds from 1900 to 1970.
	ntpEpoch = 2208988800
)

// Sender is a connection with a viewer. One goroutine writes to it.
type Sender struct {
	*peer
	video, audio *outgoing // nil = not asked for
	sets         []byte    // of the video track, with start codes
	lengthSize   int       // of its NAL units

	origin time.Time     // when the first frame was sent
	first  time.Duration // its presentation time
}

// outgoing is a track that is sent.
type outgoing struct {
	track    *webrtc.TrackLocalStaticRTP
	source   uint32 // SSRC
	rate     int64
	sequence uint16
	offset   uint32 // of its RTP times

	packets, bytes uint32
	reported       time.Time
}

// Send answers the offer of a viewer that wants H.264, Opus, or both; from is its address.
func (s *Server) Send(ctx context.Context, from netip.Addr, sdp string) (*Sender, error) {
	p, err := s.newPeer(from, sdp, "sendonly", true)
	if err != nil {
		return nil, err
	}
	out := &Sender{peer: p}
	if err := p.answerOffer(ctx, out.addTracks); err != nil {
		p.Close()
		return nil, err
	}
	return out, nil
}

func (s *Sender) addTracks() (err error) {
	if s.offer.video {
		s.video, err = s.addTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264, ClockRate: h264Rate}, cmaf.Video)
	}
	if s.offer.audio && err == nil {
		s.audio, err = s.addTrack(webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeOpus, ClockRate: opusRate, Channels: 2}, cmaf.Audio)
	}
	return err
}

func (s *Sender) addTrack(capability webrtc.RTPCodecCapability, kind cmaf.Kind) (*outgoing, error) {
	// Players keep the tracks of one stream in sync.
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
	// Reading lets the interceptors see the viewer's reports, and retransmit lost packets.
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

// SetVideo sets the track, of H.264, of the video frames that follow.
func (s *Sender) SetVideo(track cmaf.Track) error {
	sets, err := codec.ParseAVCC(track.Config().Record)
	if err != nil {
		return weir.Errorf(weir.Invalid, "the avcC box of the video track can't be read")
	}
	s.sets, s.lengthSize = sets.AnnexB(), sets.LengthSize
	return nil
}

// WriteVideo sends a frame of the video track, in the form of an MP4 sample.
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
	// The library would lose parameter sets if it put several NAL units into a packet.
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
	// Both tracks are on one clock, so players show them together whenever they are sent.
	wall := s.origin.Add(shown - s.first)
	err := s.pc.WriteRTCP([]rtcp.Packet{&rtcp.SenderReport{
		SSRC: to.source, NTPTime: ntp(wall), RTPTime: stamp, PacketCount: to.packets, OctetCount: to.bytes,
	}})
	if errors.Is(err, io.ErrClosedPipe) {
		return nil // the connection is about to end
	}
	return err
}

// ntp returns a time in the format of sender reports.
func ntp(t time.Time) uint64 {
	return uint64(t.Unix()+ntpEpoch)<<32 | uint64(t.Nanosecond())<<32/uint64(time.Second)
}
