package cmaf

import (
	"math"
	"slices"

	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/weir"
)

// SingleFile lays out a track as one fragmented file: its init segment, an index of its segments (a
// sidx box), then all segments as they are stored, except for their decode times: the file starts
// at 0, see ZeroShift. The boxes come after its ftyp box.
func SingleFile(t TrackIndex, boxes ...[]byte) (Layout, error) {
	var l Layout
	var segments []Segment // without empty ones
	for i, s := range t.Segments {
		if s.Size() > 0 {
			segments = append(segments, s)
			l.Extents = append(l.Extents, Extent{Segment: i, Length: s.Size()})
		}
	}
	if len(segments) == 0 {
		return Layout{}, weir.Errorf(weir.Invalid, "the track has no segments")
	}
	w := &boxWriter{data: afterFirst(ZeroInit(t), boxes)}
	l.Init = len(w.data)
	sidx := &mp4.SidxBox{
		Version:                  1,
		ReferenceID:              1,
		Timescale:                t.Track.Timescale,
		EarliestPresentationTime: uint64(max(0, segments[0].Start())),
	}
	each := (len(segments) + math.MaxUint16 - 1) / math.MaxUint16
	for first := 0; first < len(segments); first += each {
		ref, err := reference(segments, first, min(first+each, len(segments)))
		if err != nil {
			return Layout{}, err
		}
		sidx.SidxRefs = append(sidx.SidxRefs, ref)
	}
	w.box(sidx)
	l.Head = w.data
	l.Size = int64(len(l.Head))
	for i := range l.Extents {
		l.Extents[i].At = l.Size
		l.Size += l.Extents[i].Length
	}
	return l, nil
}

// reference returns the sidx entry of the segments from first up to end. Its duration extends to
// the start of the next segment: times in a sidx box have no gaps.
func reference(segments []Segment, first, end int) (mp4.SidxRef, error) {
	var size int64
	for _, s := range segments[first:end] {
		size += s.Size()
	}
	until := segments[end-1].End()
	if end < len(segments) {
		until = segments[end].Start()
	}
	duration := until - segments[first].Start()
	if size > math.MaxInt32 || duration < 0 || duration > math.MaxUint32 {
		return mp4.SidxRef{}, weir.Errorf(weir.Invalid, "segment %d has %d bytes and %d ticks, which is too much for the index of a single file", first, size, duration)
	}
	ref := mp4.SidxRef{ReferencedSize: uint32(size), SubSegmentDuration: uint32(duration)}
	if segments[first].Sync() {
		ref.StartsWithSAP, ref.SAPType = 1, 1
		if lead := segments[first].Parts[0].Samples[0].Offset; lead > 0 {
			ref.SAPType = 3 // frames that are shown before it may need the segment before
		}
	}
	return ref, nil
}

// WholeSegment lays out segment n of a track with all its samples in one fragment. The boxes come
// before its moof box. If zero is set, its times are those of a track that starts at 0, see
// ZeroShift.
func WholeSegment(t TrackIndex, n int, zero bool, boxes ...[]byte) (Layout, error) {
	parts := t.Segments[n].Parts
	whole := Fragment{Start: t.Segments[n].Start()}
	var l Layout
	offset := int64(0)
	for i, p := range parts {
		whole.Samples = append(whole.Samples, p.Samples...)
		if last := len(whole.Samples) - 1; i+1 < len(parts) && last >= 0 {
			// The next part has its own start: the sample before it is made longer or shorter.
			end := parts[i+1].Start
			for _, s := range p.Samples[:max(0, len(p.Samples)-1)] {
				end -= int64(s.Duration)
			}
			if end -= p.Start; len(p.Samples) > 0 && end >= 0 && end <= math.MaxUint32 {
				whole.Samples[last].Duration = uint32(end)
			}
		}
		if size := Bytes(p.Samples); size > 0 {
			l.Extents = append(l.Extents, Extent{Segment: n, Offset: offset + int64(p.Head), Length: size})
		}
		offset += p.Size()
	}
	if size := Bytes(whole.Samples); size > math.MaxUint32-8 {
		return Layout{}, weir.Errorf(weir.Invalid, "segment %d has %d bytes, which is too much for one fragment", n, size)
	}
	_, head := partHead(uint32(n+1), t.TrackOf(n), whole)
	if zero {
		if err := ShiftPart(head, t.ZeroShift()); err != nil {
			return Layout{}, err
		}
	}
	l.Head = afterFirst(head, boxes)
	l.Size = int64(len(l.Head))
	for i := range l.Extents {
		l.Extents[i].At = l.Size
		l.Size += l.Extents[i].Length
	}
	return l, nil
}

// afterFirst puts boxes after the first box of data.
func afterFirst(data []byte, boxes [][]byte) []byte {
	first, rest, _ := nextBox(data)
	return slices.Concat(first.whole, slices.Concat(boxes...), rest)
}
