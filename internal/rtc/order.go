package rtc

import (
	"time"

	"github.com/pion/rtp"
	"github.com/pion/rtp/codecs"

	"weir/internal/codec"
)

const (
	// At most maxWaiting packets wait for a missing one, for at most maxWait. The peer is asked to
	// send it again meanwhile.
	maxWaiting = 512
	maxWait    = 300 * time.Millisecond
	// maxJump is the maximum distance of sequence numbers. After a larger one the sender has
	// started again.
	maxJump = 3000
)

// sequencer puts the packets of a track in order.
type sequencer struct {
	next    uint16
	started bool
	waiting map[uint16]*rtp.Packet
	since   time.Time // when the first of them arrived
	gap     bool      // packets are missing before the next one
}

// add takes a packet and passes on those that are in order now; gap says that packets before one
// are missing, and will not come.
func (s *sequencer) add(p *rtp.Packet, now time.Time, take func(p *rtp.Packet, gap bool)) {
	if !s.started {
		s.next, s.started, s.waiting = p.SequenceNumber, true, map[uint16]*rtp.Packet{}
	}
	switch off := int16(p.SequenceNumber - s.next); {
	case off > maxJump || off < -maxJump:
		s.next, s.gap = p.SequenceNumber, true
		clear(s.waiting)
	case off < 0:
		return // a duplicate, or too late
	case off > 0:
		if len(s.waiting) == 0 {
			s.since = now
		}
		s.waiting[p.SequenceNumber] = p
		if len(s.waiting) < maxWaiting && now.Sub(s.since) < maxWait {
			return
		}
		s.skip()
	}
	if p.SequenceNumber == s.next {
		s.waiting[s.next] = p
	}
	for one := s.waiting[s.next]; one != nil; one = s.waiting[s.next] {
		delete(s.waiting, s.next)
		s.next++
		take(one, s.gap)
		s.gap, s.since = false, now
	}
}

// skip continues with the first packet that waits.
func (s *sequencer) skip() {
	first, nearest := s.next, uint16(1<<15)
	for number := range s.waiting {
		if off := number - s.next; off < nearest {
			first, nearest = number, off
		}
	}
	s.next, s.gap = first, true
}

// assembler makes access units of the packets of H.264.
type assembler struct {
	parser codecs.H264Packet
	open   bool
	stamp  uint32
	size   int // of the packets
	unit   []byte
	broken bool
}

// add takes the next packet and passes complete access units on, as NAL units with length prefixes.
// lost is called if a unit, or a part of one, is missing before the next.
func (a *assembler) add(p *rtp.Packet, gap bool, take func(unit []byte, stamp uint32), lost func()) {
	if gap {
		a.open = false
		lost()
	}
	if len(p.Payload) == 0 {
		return // padding that probes the bandwidth
	}
	if a.open && p.Timestamp != a.stamp {
		a.finish(take, lost)
	}
	if !a.open {
		*a = assembler{parser: codecs.H264Packet{IsAVC: true}, open: true, stamp: p.Timestamp}
	}
	if a.size += len(p.Payload); a.size > codec.MaxFrame {
		a.broken, a.parser, a.unit, a.size = true, codecs.H264Packet{IsAVC: true}, nil, 0
	}
	if !a.broken {
		nals, err := a.parser.Unmarshal(p.Payload)
		a.unit, a.broken = append(a.unit, nals...), err != nil
	}
	if p.Marker {
		a.finish(take, lost)
	}
}

func (a *assembler) finish(take func([]byte, uint32), lost func()) {
	unit := a.unit
	a.open, a.unit = false, nil
	switch {
	case a.broken:
		lost()
	case len(unit) > 0:
		take(unit, a.stamp)
	}
}
