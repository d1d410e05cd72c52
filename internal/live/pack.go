package live

import (
	"time"

	"weir/internal/cmaf"
)

// packer makes parts and segments of one track and gives them to its rendition.
type packer struct {
	track    cmaf.Track
	order    order
	out      *rendition
	sequence uint32 // of parts, as the file form counts them

	part    cmaf.Fragment // in hand, without data
	pieces  [][]byte      // the data of its samples, after room for its head
	weight  int           // of them, in bytes
	unused  []sample      // whose data is to be used again when they are written
	span    int64         // how long its samples last together, in ticks
	last    int64         // how long the newest sample lasts, in ticks
	open    bool          // a segment is
	started int64         // when it started
	samples int           // in it
	size    int64         // of them, in bytes
}

func newPacker(track cmaf.Track, out *rendition) *packer {
	return &packer{track: track, order: order{track: track}, out: out, sequence: out.parts}
}

// add puts a sample into the part in hand, after the one that has no room for it is
// gone.
func (p *packer) add(s sample) error {
	length := p.track.Ticks(partTarget)
	if n := len(p.part.Samples); n > 0 && (p.span+int64(s.Duration) > length || p.weight+len(s.data) > maxPart) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if len(p.part.Samples) == 0 {
		p.part.Start = s.at
		p.pieces, p.weight = append(p.pieces[:0], nil), 0
	}
	if !p.open {
		p.open, p.started, p.samples, p.size = true, s.at, 0, 0
	}
	p.samples, p.size = p.samples+1, p.size+int64(len(s.data))
	p.part.Samples = append(p.part.Samples, s.Sample)
	p.span, p.last = p.span+int64(s.Duration), int64(s.Duration)
	p.pieces, p.weight = append(p.pieces, s.data), p.weight+len(s.data)
	if s.reuse != nil {
		p.unused = append(p.unused, s)
	}
	if p.full(s.at+int64(s.Duration), length) {
		return p.flush()
	}
	return nil
}

// full reports whether the part in hand, which ends at a time, need not wait for the next
// sample, because one that lasts as long as the newest has no room in it. Where the
// segment may end it waits: players would be told of a part that does not come. That may be
// a little earlier than it should: audio and renditions end where the source does, and the
// next frame may last longer than this one.
func (p *packer) full(end, length int64) bool {
	next := end + max(p.last, p.track.Ticks(maxFrame))
	return p.span+p.last > length && 100*p.span >= shortestPart*length && p.lasts(next) < segmentTarget
}

// flush hands the part in hand over.
func (p *packer) flush() error {
	if len(p.part.Samples) == 0 {
		return nil
	}
	part := p.take()
	defer p.written()
	return p.out.addPart(part, p.pieces...)
}

// take returns the part in hand, of which there is one, and empties the hand but for its
// pieces.
func (p *packer) take() cmaf.Part {
	p.sequence++
	part, head := cmaf.PartHead(p.sequence, p.track, p.part)
	p.pieces[0] = head
	p.part, p.span = cmaf.Fragment{Samples: make([]cmaf.Sample, 0, len(part.Samples))}, 0
	return part
}

// written lets go of the pieces of a part.
func (p *packer) written() {
	clear(p.pieces)
	for _, s := range p.unused {
		s.reuse(s.data)
	}
	clear(p.unused)
	p.unused = p.unused[:0]
}

// lasts returns how long the open segment will be when it ends at a time.
func (p *packer) lasts(end int64) time.Duration {
	if !p.open {
		return 0
	}
	return p.track.Time(end - p.started)
}

// cut ends the open segment.
func (p *packer) cut() error {
	if !p.open {
		return nil
	}
	var err error
	if len(p.part.Samples) > 0 {
		part := p.take()
		err = p.out.addLast(part, p.pieces...)
		p.written()
	} else {
		err = p.out.finish()
	}
	p.open = err != nil
	return err
}

// muxer packs the tracks of one connection so that their segments end together: those
// of audio where those of the picture do. Audio waits for the picture, for a moment.
type muxer struct {
	video *packer   // nil = audio only
	audio *packer   // nil = no audio
	line  *timeline // for the rungs of a ladder; nil = there is none

	waiting []sample // of audio, until the picture is as far
	cuts    []int64  // where audio is still to be cut, in its ticks
	behind  int64    // how far the picture is settled, in ticks of audio
}

// maxWaiting is how much audio waits for a picture that does not come.
const maxWaiting = 2 * time.Second

func (m *muxer) addVideo(s sample) error {
	v := m.video
	half := int64(s.Duration) / 2
	if s.Sync && v.open && v.lasts(s.at+half) >= segmentTarget {
		if err := v.cut(); err != nil {
			return err
		}
		if m.audio != nil {
			m.cuts = append(m.cuts, m.audio.track.Ticks(v.track.Time(s.at)))
		}
	}
	if !v.open {
		number, broken := v.out.upcoming()
		m.line.opens(start{number: number, at: v.track.Time(s.at), broken: broken})
	}
	if err := v.add(s); err != nil {
		return err
	}
	m.line.settle(v.track.Time(s.at + int64(s.Duration)))
	if m.audio == nil {
		return nil
	}
	m.behind = m.audio.track.Ticks(v.track.Time(s.at + int64(s.Duration)))
	return m.release()
}

func (m *muxer) addAudio(s sample) error {
	m.waiting = append(m.waiting, s)
	return m.release()
}

// release packs the audio that need not wait any longer.
func (m *muxer) release() error {
	a := m.audio
	for len(m.waiting) > 0 {
		s := m.waiting[0]
		newest := m.waiting[len(m.waiting)-1]
		alone := m.video == nil || s.at >= m.behind // no picture says where to cut
		if m.video != nil && alone && a.track.Time(newest.at-s.at) < maxWaiting && len(m.waiting) < maxWaitingFrames {
			return nil
		}
		cut := alone && a.lasts(s.at) >= segmentTarget
		for len(m.cuts) > 0 && s.at >= m.cuts[0] {
			cut, m.cuts = true, m.cuts[1:]
		}
		if cut {
			if err := a.cut(); err != nil {
				return err
			}
		}
		if err := a.add(s); err != nil {
			return err
		}
		m.waiting = m.waiting[1:]
	}
	return nil
}

// end packs what is left and ends the segments.
func (m *muxer) end() error {
	if m.video != nil {
		m.video.unused = nil // whoever sent it may be gone, and is not the one who calls this
		if s, ok := m.video.order.finish(m.video.lastDuration()); ok {
			if err := m.addVideo(s); err != nil {
				return err
			}
		}
		if err := m.video.cut(); err != nil {
			return err
		}
	}
	if m.audio == nil {
		return nil
	}
	if s, ok := m.audio.order.finish(m.audio.lastDuration()); ok {
		m.waiting = append(m.waiting, s)
	}
	m.behind = 1 << 62
	if err := m.release(); err != nil {
		return err
	}
	return m.audio.cut()
}

// lastDuration is how long the last frame is taken to last: like the one before it.
func (p *packer) lastDuration() time.Duration {
	if p.last > 0 {
		return p.track.Time(p.last)
	}
	return 20 * time.Millisecond
}
