package rtc

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

const (
	// keyEvery is how often a sender is asked for a key frame: segments start with one.
	keyEvery = 2 * time.Second
	// askEvery is the minimum interval between two such requests.
	askEvery = 500 * time.Millisecond
	// maxQueued is the maximum number of frames that wait for the reader. More packets are lost.
	maxQueued = 256
	// minStep is the minimum distance between the decode times of video frames.
	minStep = time.Millisecond
)

// Frame is a frame that a peer sent.
type Frame struct {
	Kind     cmaf.Kind
	DTS, PTS time.Duration // since the first packet
	// Data holds NAL units of H.264 with length prefixes of four bytes, with parameter sets at key
	// frames, or a packet of Opus.
	Data []byte
}

// Receiver is a connection with a peer that sends.
type Receiver struct {
	*peer
	clock  *clock
	frames chan Frame

	mu   sync.Mutex
	seen map[cmaf.Kind]bool // kinds of tracks that are received
}

// Accept answers the offer of a peer that sends H.264, Opus, or both.
func (s *Server) Accept(ctx context.Context, sdp string) (*Receiver, error) {
	p, err := s.newPeer(netip.Addr{}, sdp, "recvonly", false)
	if err != nil {
		return nil, err
	}
	r := &Receiver{peer: p, clock: newClock(), frames: make(chan Frame, maxQueued), seen: map[cmaf.Kind]bool{}}
	p.pc.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		kind := cmaf.Video
		if track.Kind() == webrtc.RTPCodecTypeAudio {
			kind = cmaf.Audio
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.seen[kind] || p.Err() != nil {
			return // one track of a kind is used
		}
		r.seen[kind] = true
		p.working.Go(func() { r.readReports(kind, receiver) })
		p.working.Go(func() { r.read(kind, track) })
	})
	if err := p.answerOffer(ctx, func() error { return nil }); err != nil {
		p.Close()
		return nil, err
	}
	return r, nil
}

// Sends reports which kinds of tracks the offer has.
func (r *Receiver) Sends() (video, audio bool) { return r.offer.video, r.offer.audio }

// Next waits for the next frame. When the connection has ended, the error says why.
func (r *Receiver) Next(ctx context.Context) (Frame, error) {
	select {
	case f := <-r.frames:
		return f, nil
	default:
	}
	select {
	case f := <-r.frames:
		return f, nil
	case <-r.done:
		return Frame{}, r.cause
	case <-ctx.Done():
		return Frame{}, context.Cause(ctx)
	}
}

// put adds a frame to the queue. It waits while the queue is full.
func (r *Receiver) put(f Frame) {
	select {
	case r.frames <- f:
	case <-r.done:
	}
}

func (r *Receiver) readReports(kind cmaf.Kind, from *webrtc.RTPReceiver) {
	for {
		packets, _, err := from.ReadRTCP()
		if err != nil {
			return
		}
		for _, p := range packets {
			if report, ok := p.(*rtcp.SenderReport); ok {
				r.clock.report(kind, report.RTPTime, report.NTPTime)
			}
		}
	}
}

func (r *Receiver) read(kind cmaf.Kind, track *webrtc.TrackRemote) {
	var order sequencer
	take := func(p *rtp.Packet, _ bool) {
		if len(p.Payload) > 0 {
			at := r.clock.at(kind, p.Timestamp, time.Now())
			r.put(Frame{Kind: kind, DTS: at, PTS: at, Data: p.Payload})
		}
	}
	if kind == cmaf.Video {
		take = (&videoFrames{r: r, source: uint32(track.SSRC()), damaged: true}).addPacket
	}
	for {
		p, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		order.add(p, time.Now(), take)
	}
}

// videoFrames makes frames of the packets of a track of H.264.
type videoFrames struct {
	r      *Receiver
	source uint32 // SSRC of the track

	units   assembler
	decode  codec.DecodeTimes
	damaged bool          // until the next key frame
	key     time.Duration // presentation time of the last key frame
	asked   time.Time     // when a key frame was last requested
	last    time.Duration // decode time
}

func (v *videoFrames) addPacket(p *rtp.Packet, gap bool) {
	v.units.add(p, gap, v.unit, func() { v.damaged = true })
	if v.damaged {
		v.requestKeyFrame()
	}
}

func (v *videoFrames) requestKeyFrame() {
	if now := time.Now(); now.Sub(v.asked) >= askEvery {
		v.asked = now
		// A request that is lost is repeated after askEvery.
		_ = v.r.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: v.source}})
	}
}

func (v *videoFrames) unit(unit []byte, stamp uint32) {
	nals, key, sets := split(unit)
	at := v.r.clock.at(cmaf.Video, stamp, time.Now())
	if key && !sets {
		var head []byte
		for _, set := range v.r.offer.sets {
			head = codec.AppendUnit(head, set)
		}
		nals, unit = slices.Concat(v.r.offer.sets, nals), append(head, unit...)
	}
	switch {
	case key:
		v.damaged, v.key = false, at
	case v.damaged:
		return
	case at-v.key >= keyEvery:
		v.requestKeyFrame()
	}
	pts := int64(at) * h264Rate / int64(time.Second)
	early := codec.Duration(pts-v.decode.Next(nals, pts, key), h264Rate)
	dts := min(max(at-early, v.last+minStep), at)
	if dts <= v.last {
		dts, at = v.last+minStep, v.last+minStep
	}
	v.last = dts
	v.r.put(Frame{Kind: cmaf.Video, DTS: dts, PTS: at, Data: unit})
}

// split returns the NAL units of an access unit. key says that decoding can start there, sets that
// it has parameter sets.
func split(unit []byte) (nals [][]byte, key, sets bool) {
	for nal, err := range codec.Units(unit, 4) {
		if err != nil {
			break
		}
		if len(nal) == 0 {
			continue
		}
		switch codec.H264NAL(nal) {
		case codec.NALKeySlice:
			key = true
		case codec.NALSPS:
			sets = true
		}
		nals = append(nals, nal)
	}
	return nals, key, sets
}
