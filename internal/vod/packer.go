package vod

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
)

// packer makes segments out of the samples of a track, which come in weir's form and
// in order, and stores them. It holds one segment in memory.
type packer struct {
	store  blob.Store
	prefix string
	track  cmaf.Track
	first  int // number of its first segment

	// cut reports whether a new segment starts with the sample that is decoded at the
	// given time; s is the segment in hand, which is not empty.
	cut func(s segmentInHand, at int64, sample cmaf.Sample) bool
	// part is the length of parts to aim at, in ticks.
	part int64

	segments []cmaf.Segment // that are stored
	sum      hash.Hash
	now      segmentInHand
	piece    cmaf.Fragment // the part in hand
}

// segmentInHand is what a segment has so far.
type segmentInHand struct {
	start int64
	bytes int
	parts []cmaf.Part
	data  [][]byte // of each part
}

// maxPartBytes keeps what is read at once small where bitrates are large.
const maxPartBytes = 4 << 20

// partsOfSegment is how many sequence numbers a segment has: parts of a segment that
// another machine makes must get the same numbers.
const partsOfSegment = 1 << 10

// add takes samples on. The caller does not use f.Data again.
func (p *packer) add(ctx context.Context, f cmaf.Fragment) error {
	at, data := f.Start, f.Data
	for _, s := range f.Samples {
		if p.now.bytes > 0 && p.cut(p.now, at, s) {
			if err := p.store1(ctx); err != nil {
				return err
			}
		}
		if p.partEnds(at, s) {
			p.endPart()
		}
		if p.now.bytes == 0 {
			p.now.start = at
		}
		if len(p.piece.Samples) == 0 {
			p.piece.Start = at
		}
		p.piece.Samples = append(p.piece.Samples, s)
		p.piece.Data = append(p.piece.Data, data[:s.Size]...)
		p.now.bytes += int(s.Size)
		data = data[s.Size:]
		at += int64(s.Duration)
	}
	return nil
}

// partEnds reports whether a part ends before a sample: at sync samples, so that
// reading can start there, or when it has become long.
func (p *packer) partEnds(at int64, s cmaf.Sample) bool {
	if len(p.piece.Samples) == 0 {
		return false
	}
	length := at - p.piece.Start
	return s.Sync && length >= p.part/2 || length >= p.part || len(p.piece.Data)+int(s.Size) > maxPartBytes
}

func (p *packer) endPart() {
	if len(p.piece.Samples) == 0 {
		return
	}
	sequence := (p.first+len(p.segments))*partsOfSegment + min(len(p.now.parts), partsOfSegment-1) + 1
	part, data := cmaf.EncodePart(uint32(sequence), p.track, p.piece)
	p.now.parts = append(p.now.parts, part)
	p.now.data = append(p.now.data, data)
	p.piece = cmaf.Fragment{Data: p.piece.Data[:0]}
}

// store1 stores the segment in hand.
func (p *packer) store1(ctx context.Context) error {
	p.endPart()
	if len(p.now.parts) == 0 {
		return nil
	}
	segment := cmaf.Segment{Parts: p.now.parts}
	if err := media.Put(ctx, p.store, p.prefix, p.first+len(p.segments), segment, p.now.data...); err != nil {
		return err
	}
	if p.sum == nil {
		p.sum = sha256.New()
	}
	for _, data := range p.now.data {
		p.sum.Write(data)
	}
	p.segments = append(p.segments, segment)
	p.now = segmentInHand{}
	return nil
}

// finish stores what is left.
func (p *packer) finish(ctx context.Context) error { return p.store1(ctx) }

func (p *packer) index() cmaf.TrackIndex {
	return cmaf.TrackIndex{Track: p.track, Segments: p.segments}
}

// result is what others must know of the segments.
func (p *packer) result(name string) RenditionResult {
	r := RenditionResult{Name: name, Track: p.track, Bytes: p.index().Size(), Frames: p.index().Frames()}
	for _, s := range p.segments {
		r.Index = cmaf.AppendEntry(r.Index, s)
	}
	if p.sum != nil {
		r.SHA256 = hex.EncodeToString(p.sum.Sum(nil))
	}
	return r
}
