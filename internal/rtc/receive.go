package rtc

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/pion/rtcp"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"

	"weir/internal/cmaf"
	"weir/internal/codec"
)

const (
	// keyEvery is how often a sender is asked for a key frame: a segment ends before one.
	keyEvery = 2 * time.Second
	// askEvery is how often it is asked at most.
	askEvery = 500 * time.Millisecond
	// queued is how many frames wait for the reader; after that, packets are lost.
	queued = 256
	// leastStep is how far the times of pictures are apart at least.
	leastStep = time.Millisecond
)

// Frame is a frame of a peer that sends.
type Frame struct {
	Kind     cmaf.Kind
	DTS, PTS time.Duration // since the first packet
	// Data are NAL units of H.264 with their lengths (four bytes) in front, with parameter
	// sets at key frames, or a packet of Opus.
	Data []byte
}

// Receiver is a peer that sends.
type Receiver struct {
	*peer
	offer  offer
	clock  *clock
	frames chan Frame

	mu   sync.Mutex
	seen map[cmaf.Kind]bool // of which a track is there
}

// Accept answers the offer of a peer that sends H.264, Opus, or both; from is who posted
// it.
func (s *Server) Accept(ctx context.Context, from netip.Addr, sdp string) (*Receiver, error) {
	o, err := readOffer(sdp, "recvonly")
	if err != nil {
		return nil, err
	}
	p, err := s.newPeer(from, o)
	if err != nil {
		return nil, err
	}
	r := &Receiver{peer: p, offer: o, clock: newClock(), frames: make(chan Frame, queued), seen: map[cmaf.Kind]bool{}}
	p.pc.OnTrack(func(track *webrtc.TrackRemote, receiver *webrtc.RTPReceiver) {
		kind := cmaf.Video
		if track.Kind() == webrtc.RTPCodecTypeAudio {
			kind = cmaf.Audio
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.seen[kind] || p.Err() != nil {
			return // one of a kind is enough
		}
		r.seen[kind] = true
		p.working.Go(func() { r.readReports(kind, receiver) })
		p.working.Go(func() { r.read(kind, track) })
	})
	if err := p.answerOffer(ctx, o, func() error { return nil }); err != nil {
		p.close()
		return nil, err
	}
	return r, nil
}

// Sends reports what the peer said it would send.
func (r *Receiver) Sends() (video, audio bool) { return r.offer.video, r.offer.audio }

// Next waits for the next frame. When the connection is over, the error says why.
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

// put hands a frame to the reader, as soon as there is room.
func (r *Receiver) put(f Frame) {
	select {
	case r.frames <- f:
	case <-r.done:
	}
}

// readReports reads what the sender says of the time, until the connection ends.
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

// read reads a track until the connection ends.
func (r *Receiver) read(kind cmaf.Kind, track *webrtc.TrackRemote) {
	var order sequencer
	take := func(p *rtp.Packet, _ bool) {
		if len(p.Payload) > 0 {
			at := r.clock.at(kind, p.Timestamp, time.Now())
			r.put(Frame{Kind: kind, DTS: at, PTS: at, Data: p.Payload})
		}
	}
	if kind == cmaf.Video {
		take = newPictures(r, uint32(track.SSRC())).take
	}
	for {
		p, _, err := track.ReadRTP()
		if err != nil {
			return
		}
		order.add(p, time.Now(), take)
	}
}

// pictures makes frames of the packets of a track of H.264.
type pictures struct {
	r      *Receiver
	source uint32 // of the track

	units   assembler
	decode  codec.DecodeTimes
	damaged bool          // until the next key frame
	key     time.Duration // when the last one was shown
	asked   time.Time     // for one
	last    time.Duration // decode time
}

func newPictures(r *Receiver, source uint32) *pictures {
	return &pictures{r: r, source: source, damaged: true}
}

func (v *pictures) take(p *rtp.Packet, gap bool) {
	v.units.add(p, gap, v.unit, func() { v.damaged = true })
	if v.damaged {
		v.ask()
	}
}

// ask asks the sender for a key frame.
func (v *pictures) ask() {
	if now := time.Now(); now.Sub(v.asked) >= askEvery {
		v.asked = now
		// If it gets lost, it is asked again.
		_ = v.r.pc.WriteRTCP([]rtcp.Packet{&rtcp.PictureLossIndication{MediaSSRC: v.source}})
	}
}

// unit takes an access unit.
func (v *pictures) unit(unit []byte, stamp uint32) {
	nals, key, sets := split(unit)
	at := v.r.clock.at(cmaf.Video, stamp, time.Now())
	if key && !sets && len(v.r.offer.sets) > 0 {
		nals = append(append([][]byte{}, v.r.offer.sets...), nals...)
		unit = join(nals)
	}
	switch {
	case key:
		v.damaged, v.key = false, at
	case v.damaged:
		return
	case at-v.key >= keyEvery:
		v.ask()
	}
	pts := int64(at) * h264Rate / int64(time.Second)
	early := duration(pts-v.decode.Next(nals, pts, key), h264Rate)
	dts := min(max(at-early, v.last+leastStep), at)
	if dts <= v.last {
		dts, at = v.last+leastStep, v.last+leastStep
	}
	v.last = dts
	v.r.put(Frame{Kind: cmaf.Video, DTS: dts, PTS: at, Data: unit})
}

// split takes an access unit apart. key says that decoding can start there, sets that it
// has parameter sets.
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

// join puts NAL units together.
func join(nals [][]byte) (unit []byte) {
	for _, nal := range nals {
		unit = codec.AppendUnit(unit, nal)
	}
	return unit
}
