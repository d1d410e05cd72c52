package live

import (
	"cmp"
	"time"

	"weir/internal/cmaf"
)

// packer packs one track of a connection for its rendition. It decides where parts end; the
// muxer, or the timeline of a ladder, decides where segments end.
type packer struct {
	cmaf.Packer
	retimer   retimer
	out       *rendition // the sink
	target    int64      // maximum duration of a part, in ticks
	last      int64      // duration of the newest sample, in ticks
	predicted bool       // that duration
	reusable  []sample   // samples of the open part whose data goes back to the sender
}

func newPacker(track cmaf.Track, out *rendition) *packer {
	// Without parts in playlists, media is written in short parts too: a crash loses only the newest.
	target := cmp.Or(out.partTarget, partTarget(DefaultPart))
	return &packer{
		Packer: cmaf.Packer{Track: track, Sink: out, Sequence: out.parts}, retimer: retimer{track: track}, out: out, target: track.Ticks(target),
	}
}

// addSample adds a sample to the open part, or to a new one if it would make that too long or too large.
func (p *packer) addSample(s sample) error {
	if !p.fits(s) {
		if err := p.endPart(); err != nil {
			return err
		}
	}
	full := p.fills(s)
	p.Add(s.at, s.Sample, s.data)
	p.last = int64(s.Duration)
	if s.reuse != nil {
		p.reusable = append(p.reusable, s)
	}
	if full {
		return p.endPart()
	}
	return nil
}

// fits reports whether the open part has room for a sample.
func (p *packer) fits(s sample) bool {
	part := &p.OpenPart
	return part.Duration+int64(s.Duration) <= p.target && part.Bytes+int64(s.Size) <= maxPart
}

// fills reports whether the open part need not wait for the sample after this one, because another
// one of the same duration would make it longer than the target. Where the segment may end it
// waits: playlists would announce a part that does not come. The margin is maxFrame: audio and
// renditions end where the source does, and the next frame may be longer than this one.
func (p *packer) fills(s sample) bool {
	last, target := int64(s.Duration), p.target
	next := s.at + last + max(last, p.Track.Ticks(maxFrame))
	duration := p.OpenPart.Duration + last
	return duration+last > target && 100*duration >= shortestPart*target && p.segmentDuration(next) < SegmentTarget
}

// settleEnd notes when the sample after the packed ones is decoded: the duration of the last one
// may have been predicted.
func (p *packer) settleEnd(at int64) {
	if p.predicted {
		p.out.endAt(at)
	}
	p.predicted = false
}

func (p *packer) endPart() error {
	defer p.giveBack()
	return p.EndPart()
}

func (p *packer) endSegment() error {
	defer p.giveBack()
	return p.EndSegment()
}

// giveBack gives the data of samples that are written back to the sender.
func (p *packer) giveBack() {
	for _, s := range p.reusable {
		s.reuse(s.data)
	}
	clear(p.reusable)
	p.reusable = p.reusable[:0]
}

// segmentDuration returns the duration of the open segment if it ends at the given time; 0 = no
// segment is open.
func (p *packer) segmentDuration(end int64) time.Duration {
	if p.OpenSegment.Samples == 0 {
		return 0
	}
	return p.Track.Time(end - p.OpenSegment.Start)
}

// lastDuration returns the duration of the last frame, which no other follows: that of the frame
// before it.
func (p *packer) lastDuration() time.Duration {
	if p.last > 0 {
		return p.Track.Time(p.last)
	}
	return 20 * time.Millisecond
}

// muxer packs the tracks of one connection so that their segments end together: those of audio
// end where those of video do. So audio waits for video, for at most maxWaiting.
type muxer struct {
	video    *packer   // nil = audio only
	audio    *packer   // nil = no audio
	timeline *timeline // for the rungs of a ladder; nil = there is none

	numbers *numbers // which segments may begin; nil = all

	waiting  []sample // audio that video has not reached yet
	cuts     []int64  // where segments of audio are still to end, in ticks of audio
	videoEnd int64    // where the packed video ends, in ticks of audio
}

// mayCut reports whether a segment may begin after the open one of a track.
func (m *muxer) mayCut(p *packer) bool {
	if m.numbers == nil {
		return true
	}
	next, _ := p.out.totals()
	return m.numbers.mayShow(next, time.Now())
}

// maxWaiting is how much audio waits for video that does not come.
const maxWaiting = 2 * time.Second

// takeFilling returns the frame of a track whose duration is not known yet, if it fills a part, which
// need not wait then. The frame has a predicted duration, which is corrected when the next one comes.
func (m *muxer) takeFilling(p *packer) (s sample, ok bool) {
	s, ok = p.retimer.predicted()
	inOrder := p == m.video || len(m.waiting)+len(m.cuts) == 0 && (m.video == nil || s.at < m.videoEnd)
	if !ok || !inOrder || !p.fits(s) || !p.fills(s) {
		return sample{}, false
	}
	p.retimer.release()
	return s, true
}

// cut ends the segment of video if a frame at a time begins the next one.
func (m *muxer) cut(at, duration int64, sync bool) error {
	v := m.video
	if !sync || v.segmentDuration(at+duration/2) < SegmentTarget || !m.mayCut(v) {
		return nil
	}
	v.settleEnd(at)
	if err := v.endSegment(); err != nil {
		return err
	}
	if m.audio != nil {
		m.cuts = append(m.cuts, m.audio.Track.Ticks(v.Track.Time(at)))
	}
	return nil
}

func (m *muxer) addVideo(s sample) error {
	v := m.video
	if err := m.cut(s.at, int64(s.Duration), s.Sync); err != nil {
		return err
	}
	v.settleEnd(s.at)
	if v.OpenSegment.Samples == 0 {
		number, discontinuity := v.out.upcoming()
		m.timeline.addStart(segmentStart{number: number, at: v.Track.Time(s.at), discontinuity: discontinuity})
	}
	if err := v.addSample(s); err != nil {
		return err
	}
	m.timeline.settle(v.Track.Time(s.at + int64(s.Duration)))
	if m.audio == nil {
		return nil
	}
	m.videoEnd = m.audio.Track.Ticks(v.Track.Time(s.at + int64(s.Duration)))
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
		alone := m.video == nil || s.at >= m.videoEnd // there is no video that decides where to cut
		if m.video != nil && alone && a.Track.Time(newest.at-s.at) < maxWaiting && len(m.waiting) < maxWaitingFrames {
			return nil
		}
		cut := alone && a.segmentDuration(s.at) >= SegmentTarget && m.mayCut(a)
		for len(m.cuts) > 0 && s.at >= m.cuts[0] {
			cut, m.cuts = true, m.cuts[1:]
		}
		a.settleEnd(s.at)
		if cut {
			if err := a.endSegment(); err != nil {
				return err
			}
		}
		if err := a.addSample(s); err != nil {
			return err
		}
		m.waiting = m.waiting[1:]
	}
	return nil
}

// end packs what is left and ends the segments.
func (m *muxer) end() error {
	if m.video != nil {
		m.video.reusable = nil // the sender may have left, and is not the caller of end
		if s, ok := m.video.retimer.finish(m.video.lastDuration()); ok {
			if err := m.addVideo(s); err != nil {
				return err
			}
		}
		if err := m.video.endSegment(); err != nil {
			return err
		}
	}
	if m.audio == nil {
		return nil
	}
	if s, ok := m.audio.retimer.finish(m.audio.lastDuration()); ok {
		m.waiting = append(m.waiting, s)
	}
	m.videoEnd = 1 << 62
	if err := m.release(); err != nil {
		return err
	}
	return m.audio.endSegment()
}
