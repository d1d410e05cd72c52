package media

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
)

// Writer stores the samples of a track, segment by segment; the caller seals it. It holds the open
// segment in memory until it ends.
type Writer struct {
	Store  blob.Store
	Prefix string
	First  int // number of the first segment

	packer cmaf.Packer
	part   int64 // target duration of parts, in ticks
	cut    Cut

	segments []cmaf.Segment // that are stored, since the last Take
	sum      hash.Hash      // of their bytes
	open     openSegment
}

// Cut reports whether the open segment ends before the sample that is decoded at the given time.
type Cut func(open cmaf.Contents, at int64, s cmaf.Sample) bool

// maxPartBytes limits how much is read at once where bitrates are high.
const maxPartBytes = 4 << 20

// sequencesPerSegment is how many sequence numbers of parts each segment has. So the parts of a
// segment have the same numbers whichever node makes it.
const sequencesPerSegment = 1 << 10

// Begin sets the track whose samples follow, the target duration of its parts, and where its
// segments end; nil = only with Finish.
func (w *Writer) Begin(track cmaf.Track, part time.Duration, cut Cut) {
	w.part, w.cut = track.Ticks(part), cut
	w.packer = cmaf.Packer{Track: track, Sink: &w.open}
}

// Add adds samples, which are in weir's form and in order. The caller must not use f.Data again.
func (w *Writer) Add(ctx context.Context, f cmaf.Fragment) error {
	p, at, data := &w.packer, f.Start, f.Data
	for _, s := range f.Samples {
		if p.OpenSegment.Samples > 0 && w.cut != nil && w.cut(p.OpenSegment, at, s) {
			if err := w.Finish(ctx); err != nil {
				return err
			}
		}
		if w.partEnds(s) {
			if err := p.EndPart(); err != nil {
				return err
			}
		}
		if p.OpenSegment.Samples == 0 {
			p.Sequence = uint32((w.First + len(w.segments)) * sequencesPerSegment)
		}
		p.Add(at, s, data[:s.Size])
		data = data[s.Size:]
		at += int64(s.Duration)
	}
	return nil
}

// partEnds reports whether the open part ends before a sample: at sync samples, so that reading
// can start there, or when it is long or large enough.
func (w *Writer) partEnds(s cmaf.Sample) bool {
	part := w.packer.OpenPart
	return s.Sync && part.Duration >= w.part/2 || part.Duration >= w.part || part.Bytes+int64(s.Size) > maxPartBytes
}

// Finish ends the open segment, if there is one, and stores it.
func (w *Writer) Finish(ctx context.Context) error {
	if err := w.packer.EndSegment(); err != nil || len(w.open.parts) == 0 {
		return err
	}
	segment := cmaf.Segment{Parts: w.open.parts}
	if err := Put(ctx, w.Store, w.Prefix, w.First+len(w.segments), segment, w.open.data...); err != nil {
		return err
	}
	if w.sum == nil {
		w.sum = sha256.New()
	}
	for _, data := range w.open.data {
		w.sum.Write(data)
	}
	w.segments = append(w.segments, segment)
	clear(w.open.data)
	w.open.parts, w.open.data = nil, w.open.data[:0]
	return nil
}

// Track describes the track.
func (w *Writer) Track() cmaf.Track { return w.packer.Track }

// Index returns the index of the segments that were stored since the last Take.
func (w *Writer) Index() cmaf.TrackIndex {
	return cmaf.TrackIndex{Track: w.packer.Track, Segments: w.segments}
}

// Take returns the index of the segments that were stored since the last call, and the SHA-256 of
// their bytes in hexadecimal; "" = there are none.
func (w *Writer) Take() (index cmaf.TrackIndex, sum string) {
	index = w.Index()
	if w.sum != nil {
		sum = hex.EncodeToString(w.sum.Sum(nil))
	}
	w.First += len(w.segments)
	w.segments, w.sum = nil, nil
	return index, sum
}

// openSegment holds the parts of a segment and their bytes.
type openSegment struct {
	parts []cmaf.Part
	data  [][]byte
}

// Part takes a part. See cmaf.Sink.
func (o *openSegment) Part(part cmaf.Part, _ bool, data ...[]byte) error {
	o.parts, o.data = append(o.parts, part), append(o.data, data...)
	return nil
}

// EndSegment does nothing: the writer stores the segment.
func (o *openSegment) EndSegment() error { return nil }
