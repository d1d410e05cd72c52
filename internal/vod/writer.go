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

// trackWriter stores a track, segment by segment. It is the sink of its packer, and holds the
// open segment in memory until it ends.
type trackWriter struct {
	store  blob.Store
	prefix string
	first  int // number of the first of segments

	ctx    context.Context
	packer cmaf.Packer
	part   int64 // target duration of parts, in ticks
	cut    cutFunc

	segments []cmaf.Segment // that are stored, since the last take
	sum      hash.Hash      // of their bytes
	parts    []cmaf.Part    // of the open segment
	data     [][]byte       // of the open segment
}

// cutFunc reports whether the open segment ends before the sample that is decoded at the given
// time.
type cutFunc func(open cmaf.Contents, at int64, s cmaf.Sample) bool

// maxPartBytes limits how much is read at once where bitrates are high.
const maxPartBytes = 4 << 20

// sequencesPerSegment is how many sequence numbers of parts each segment has. So the parts of a
// segment have the same numbers whichever node makes it.
const sequencesPerSegment = 1 << 10

// begin sets the track whose samples follow, the target duration of its parts, and where its
// segments end. The segments are stored with ctx.
func (w *trackWriter) begin(ctx context.Context, track cmaf.Track, partSeconds int64, cut cutFunc) {
	w.ctx, w.part, w.cut = ctx, partSeconds*int64(track.Timescale), cut
	w.packer = cmaf.Packer{Track: track, Sink: w}
}

// add adds samples, which are in weir's form and in order. The caller must not use f.Data again.
func (w *trackWriter) add(f cmaf.Fragment) error {
	p, at, data := &w.packer, f.Start, f.Data
	for _, s := range f.Samples {
		if p.OpenSegment.Samples > 0 && w.cut(p.OpenSegment, at, s) {
			if err := p.EndSegment(); err != nil {
				return err
			}
		}
		if w.partEnds(s) {
			if err := p.EndPart(); err != nil {
				return err
			}
		}
		if p.OpenSegment.Samples == 0 {
			p.Sequence = uint32((w.first + len(w.segments)) * sequencesPerSegment)
		}
		p.Add(at, s, data[:s.Size])
		data = data[s.Size:]
		at += int64(s.Duration)
	}
	return nil
}

// partEnds reports whether the open part ends before a sample: at sync samples, so that reading
// can start there, or when it is long or large enough.
func (w *trackWriter) partEnds(s cmaf.Sample) bool {
	part := w.packer.OpenPart
	return s.Sync && part.Duration >= w.part/2 || part.Duration >= w.part || part.Bytes+int64(s.Size) > maxPartBytes
}

// Part takes a part of the open segment. See cmaf.Sink.
func (w *trackWriter) Part(part cmaf.Part, last bool, pieces ...[]byte) error {
	w.parts, w.data = append(w.parts, part), append(w.data, pieces...)
	if last {
		return w.EndSegment()
	}
	return nil
}

// EndSegment stores the open segment. See cmaf.Sink.
func (w *trackWriter) EndSegment() error {
	segment := cmaf.Segment{Parts: w.parts}
	if err := media.Put(w.ctx, w.store, w.prefix, w.first+len(w.segments), segment, w.data...); err != nil {
		return err
	}
	if w.sum == nil {
		w.sum = sha256.New()
	}
	for _, data := range w.data {
		w.sum.Write(data)
	}
	w.segments = append(w.segments, segment)
	clear(w.data)
	w.parts, w.data = nil, w.data[:0]
	return nil
}

// finish stores the samples that are left.
func (w *trackWriter) finish() error { return w.packer.EndSegment() }

func (w *trackWriter) track() cmaf.Track { return w.packer.Track }

func (w *trackWriter) index() cmaf.TrackIndex {
	return cmaf.TrackIndex{Track: w.packer.Track, Segments: w.segments}
}

// take describes the segments that were stored since the last call.
func (w *trackWriter) take(name string) RenditionResult {
	index := w.index()
	r := RenditionResult{Name: name, Track: index.Track, Bytes: index.Size(), Frames: index.Frames()}
	for _, s := range w.segments {
		r.Index = cmaf.AppendEntry(r.Index, s)
	}
	if w.sum != nil {
		r.SHA256 = hex.EncodeToString(w.sum.Sum(nil))
	}
	w.first += len(w.segments)
	w.segments, w.sum = nil, nil
	return r
}
