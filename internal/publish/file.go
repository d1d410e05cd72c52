package publish

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// growingFile is an MP4 file of an output.
type growingFile struct {
	key    string
	state  *itemState
	tracks []Track
	texts  []media.Text // that are inside
	form   string       // see itemState

	// render returns the layout of the file; pad and boxes are those of [cmaf.Progressive].
	render func(indexes []cmaf.TrackIndex, pad int, boxes ...[]byte) (cmaf.Layout, error)
	grows  bool         // render uses pad: the file can be uploaded while it grows
	title  string       // of the rendition, if it is signed
	beside *c2pa.Tracks // see run.signer
}

// complete reports whether nothing will be added to the file.
func (f growingFile) complete() bool { return !slices.ContainsFunc(f.tracks, Track.incomplete) }

// fileJob returns the job that puts the new bytes of a file.
func (r *run) fileJob(f growingFile) job {
	return func(ctx context.Context) error { return r.publishFile(ctx, f) }
}

func (r *run) publishFile(ctx context.Context, f growingFile) error {
	if f.state.Form != f.form {
		if err := r.dropUpload(ctx, f); err != nil {
			return err
		}
	}
	empty := func(t Track) bool { return len(t.Index.Segments) == 0 }
	if f.state.Done || slices.ContainsFunc(f.tracks, empty) {
		return nil
	}
	resumed := f.state.Upload != ""
	if !resumed && !f.complete() && !r.worthUpload(f) {
		return nil
	}
	err := r.extendFile(ctx, f)
	if !resumed || !errors.Is(err, errHeadTooLarge) && weir.KindOf(err) != weir.NotFound {
		return err
	}
	// Either it was completed before, and the state was lost; or the upload can't be used any more,
	// because it was deleted, or because the head is too small for all samples.
	if size, ok := r.completed(ctx, f); ok {
		r.change(func() { f.state.fileState = fileState{Done: true, Size: size} })
		return nil
	}
	if err := r.dropUpload(ctx, f); err != nil {
		return err
	}
	return r.publishFile(ctx, f)
}

// completed reports whether the destination has the complete file, and its size.
func (r *run) completed(ctx context.Context, f growingFile) (size int64, ok bool) {
	if !f.complete() {
		return 0, false
	}
	if r.Sign != nil {
		return 0, false // the manifest that was put is not known any more
	}
	layout, err := f.layout(int(f.state.Head))
	if err != nil {
		return 0, false
	}
	info, err := r.Dest.Stat(ctx, f.key)
	return info.Size, err == nil && info.Size == layout.Size
}

var errHeadTooLarge = errors.New("the head of the file needs more space than was reserved")

// extendFile puts a file, or the new parts of it.
func (r *run) extendFile(ctx context.Context, f growingFile) error {
	complete, begun := f.complete(), f.state.Upload != ""
	pad := 0
	if begun || !complete {
		pad = int(f.state.Head)
	}
	file, err := r.signer(f.title, f.beside)
	if err != nil {
		return err
	}
	var boxes [][]byte
	if file != nil {
		pad, boxes = 0, [][]byte{file.Blank()} // what was hashed has this head, or the upload begins again
	}
	layout, err := f.layout(pad, boxes...)
	head := int64(len(layout.Head))
	if begun && (err == nil && head != f.state.Head || err != nil && complete) {
		err = errHeadTooLarge
	}
	if err != nil {
		return err
	}
	body, err := r.file(layout, f.tracks)
	if err != nil {
		return err
	}
	o := outgoing{key: f.key, contentType: typeMP4, size: layout.Size, open: body.Reader}
	part := r.Dest.PartSize()
	whole := !begun && complete && (part == 0 || layout.Size < 2*part)
	if whole && file != nil {
		return r.sendSigned(ctx, f, file, o)
	}
	if whole {
		return r.inSlot(ctx, func() error {
			err := r.send(ctx, o)
			if err == nil {
				r.change(func() { f.state.Done, f.state.Size = true, o.size })
			}
			return err
		})
	}
	o.parts, o.head, o.complete, o.ready = &f.state.fileState, head, complete, layout.Size
	if !complete {
		o.ready = stable(layout, f.tracks)
	}
	if file != nil {
		return r.sendSigned(ctx, f, file, o)
	}
	return r.send(ctx, o)
}

func (f growingFile) layout(pad int, boxes ...[]byte) (cmaf.Layout, error) {
	indexes := make([]cmaf.TrackIndex, len(f.tracks))
	for i, t := range f.tracks {
		indexes[i] = t.Index
	}
	return f.render(indexes, pad, boxes...)
}

func (r *run) file(layout cmaf.Layout, tracks []Track) (*media.File, error) {
	stored := make([]*media.Track, len(tracks))
	for i, t := range tracks {
		stored[i] = r.track(t)
	}
	return media.NewFile(layout, stored)
}

// track returns a stored track in the form for the destination.
func (r *run) track(t Track) *media.Track {
	return media.NewTrack(r.Store, t.Prefix, t.Index).FromZero()
}

// formZero is the form of items of CMAF segments whose times start at 0. Without a form they start
// at cmaf.Lead.
const formZero = "zero"

// stable returns how many bytes from the start of the file will not change, except for the head.
// The file is sorted by time, and new samples start no earlier than the end of the shortest
// incomplete track.
func stable(layout cmaf.Layout, tracks []Track) int64 {
	limit := time.Duration(math.MaxInt64)
	for _, t := range tracks {
		if !t.Complete {
			limit = min(limit, t.Index.Track.Time(t.Index.End()))
		}
	}
	size, before := int64(len(layout.Head)), int64(0)
	for _, extent := range layout.Extents {
		if extent.Bytes != nil { // of a text or before a sample: it stays if what follows does
			before += extent.Length
			continue
		}
		index := tracks[extent.Track].Index
		segment := index.Segments[extent.Segment]
		if index.Track.Time(segment.End()) > limit && index.Track.Time(lastSample(segment, extent)) >= limit {
			break
		}
		size, before = size+before+extent.Length, 0
	}
	return size
}

// lastSample returns the decode time of the last sample of an extent.
func lastSample(s cmaf.Segment, extent cmaf.Extent) int64 {
	end := extent.Offset + extent.Length
	offset := int64(0)
	for _, part := range s.Parts {
		at := part.Start
		offset += int64(part.Head)
		for _, sample := range part.Samples {
			if offset += int64(sample.Size); offset >= end {
				return at
			}
			at += int64(sample.Duration)
		}
	}
	return s.End()
}

// worthUpload reports whether the second part of the file can be sent, and sets the size of its
// head and of its parts.
func (r *run) worthUpload(f growingFile) bool {
	if !f.grows || r.Sign != nil || r.Dest.PartSize() == 0 {
		return false
	}
	head := int64(headBase)
	for _, t := range f.tracks {
		if !t.Complete && t.Samples == 0 {
			return false // the size of the head has no bound
		}
		head += t.headBound()
	}
	for _, t := range f.texts {
		head += textBound(t)
	}
	size := r.Dest.PartSize()
	for size < head {
		size += 1 << 20
	}
	r.change(func() { f.state.Head, f.state.PartSize = head, size })
	bytes := int64(0)
	for _, t := range f.tracks {
		bytes += t.Index.Size()
	}
	return head+bytes >= 2*size
}

// headBase bounds the head of an MP4 file without the tables of its tracks.
const headBase = 64 << 10

// headBound bounds the bytes of a track's tables in the head of an MP4 file: for each sample its
// duration and its size, of video its composition offset and whether it is a sync sample, and the
// offsets of chunks, of which there are not more than five a second.
func (t Track) headBound() int64 {
	samples := int64(max(t.Samples, t.Index.Frames()))
	seconds := int64(max(t.Length, t.Index.Duration())/time.Second) + 1
	each := int64(8 + 4)
	if t.Index.Track.Kind == cmaf.Video {
		each += 8 + 4
	}
	const place = 8 + 12
	return samples*each + min(samples, 5*seconds)*place
}

// textBound bounds the bytes of a text in the head of an MP4 file: of each cue and of the pause after
// it the duration, the size and the place. An overlap has two more ends, and no pause.
func textBound(t media.Text) int64 {
	const trackBase, sample = 1 << 10, 8 + 4 + 8
	return trackBase + int64(2*len(t.Cues)+1)*sample
}

// dropUpload aborts the upload of a file and resets its state.
func (r *run) dropUpload(ctx context.Context, f growingFile) error {
	if f.state.Upload != "" {
		if err := r.abortUpload(ctx, f.key, f.state.Upload); err != nil {
			return err
		}
	}
	r.change(func() { *f.state = itemState{Form: f.form} })
	return r.save(ctx)
}
