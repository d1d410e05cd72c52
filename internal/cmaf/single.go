package cmaf

import (
	"math"

	"github.com/Eyevinn/mp4ff/mp4"

	"weir/internal/weir"
)

// SingleFile lays out a track as one fragmented file: its init segment, an index of its segments (a
// sidx box), then all segments as they are stored, except for their decode times: the file starts
// at 0, see ZeroShift.
func SingleFile(t TrackIndex) (Layout, error) {
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
	w := &boxWriter{data: ZeroInit(t)}
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
		return mp4.SidxRef{}, weir.Errorf(weir.Invalid, "segment %d has %d bytes and %d ticks; one file of fragments can't have such a segment", first, size, duration)
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
