package vod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// defaultPartSize is the size of a part of an upload. Stores want at least 5 MiB.
const defaultPartSize = 8 << 20

// maxParts is how many parts an upload may have in S3.
const maxParts = 10_000

// FileState is how far one MP4 file is. A small file is put whole when it is
// complete; a large one is uploaded in parts of equal size while it grows. Its first
// part has the head of the file and is sent last, because the head lists all samples:
// so room is kept for it, and filled up with padding when it needs less.
type FileState struct {
	Upload   string                `json:"upload,omitempty"`   // id of the upload in parts; "" = not begun
	Head     int64                 `json:"head,omitempty"`     // bytes before the media data
	PartSize int64                 `json:"partSize,omitempty"` // of all parts but the last
	Parts    map[int]blob.PartInfo `json:"parts,omitempty"`    // by number, from 1
	Done     bool                  `json:"done,omitempty"`
}

func (s *FileState) put(part blob.PartInfo) {
	if s.Parts == nil { // empty maps don't survive JSON
		s.Parts = map[int]blob.PartInfo{}
	}
	s.Parts[part.Number] = part
}

// growingFile is a file that is put into the destination.
type growingFile struct {
	key     string
	state   *FileState
	streams []Stream

	// render returns the layout of the file over the streams; pad is as for
	// [cmaf.Progressive].
	render func(indexes []cmaf.TrackIndex, pad int) (cmaf.Layout, error)
	grows  bool // render heeds pad: the file can be uploaded while it grows
}

// complete reports whether nothing will be added to the file.
func (f growingFile) complete() bool {
	return !slices.ContainsFunc(f.streams, func(s Stream) bool { return !s.Complete })
}

// fileJobs returns what puts the MP4 files.
func (r *publishing) fileJobs() (jobs []publishJob) {
	for _, f := range r.files() {
		jobs = append(jobs, func(ctx context.Context) error { return r.publishFile(ctx, f) })
	}
	return jobs
}

// publishFile uploads what is new of a file.
func (r *publishing) publishFile(ctx context.Context, f growingFile) error {
	if f.state.Done || slices.ContainsFunc(f.streams, func(s Stream) bool { return len(s.Index.Segments) == 0 }) {
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
	// Either it was completed before, and nobody noted it; or the upload is of no use
	// any more: somebody took it away, or there are more samples than there is room for.
	if r.completed(ctx, f) {
		r.change(func() { *f.state = FileState{Done: true} })
		return nil
	}
	if err := r.dropUpload(ctx, f); err != nil {
		return err
	}
	if !f.complete() && !r.worthUpload(f) {
		return nil
	}
	return r.extendFile(ctx, f)
}

// completed reports whether the whole file is in place.
func (r *publishing) completed(ctx context.Context, f growingFile) bool {
	if !f.complete() {
		return false
	}
	layout, err := f.layout(int(f.state.Head))
	if err != nil {
		return false
	}
	info, err := r.Dest.Stat(ctx, f.key)
	return err == nil && info.Size == layout.Size
}

// errHeadTooLarge is the error for a file whose head needs more room than was kept.
var errHeadTooLarge = errors.New("the head of the file needs more room than was kept for it")

// extendFile puts a file, or those of its parts that can be put now.
func (r *publishing) extendFile(ctx context.Context, f growingFile) error {
	complete, begun := f.complete(), f.state.Upload != ""
	pad := 0
	if begun || !complete {
		pad = int(f.state.Head)
	}
	layout, err := f.layout(pad)
	if err == nil && begun && int64(len(layout.Head)) != f.state.Head || err != nil && begun && complete {
		err = errHeadTooLarge
	}
	if err != nil {
		return err
	}
	file, err := r.file(layout, f.streams)
	if err != nil {
		return err
	}
	if !begun {
		if complete && (layout.Size < 2*r.partSize() || !r.inParts(f.key)) {
			return r.putWhole(ctx, f, file)
		}
		if err := r.beginUpload(ctx, f, layout); err != nil {
			return err
		}
	}
	end := layout.Size
	if !complete {
		end = stable(layout, f.streams)
	}
	return r.uploadParts(ctx, f, file, end)
}

func (f growingFile) layout(pad int) (cmaf.Layout, error) {
	indexes := make([]cmaf.TrackIndex, len(f.streams))
	for i, s := range f.streams {
		indexes[i] = s.Index
	}
	return f.render(indexes, pad)
}

// stable returns how many bytes from the start of the file will stay as they are,
// but for the head, whatever else comes. The file is sorted by time, and what comes
// later starts no earlier than the shortest of the incomplete streams ends.
func stable(layout cmaf.Layout, streams []Stream) int64 {
	limit := time.Duration(math.MaxInt64)
	for _, s := range streams {
		if !s.Complete {
			limit = min(limit, s.Index.Track.Time(s.Index.End()))
		}
	}
	size := int64(len(layout.Head))
	for _, extent := range layout.Extents {
		index := streams[extent.Track].Index
		segment := index.Segments[extent.Segment]
		if index.Track.Time(segment.End()) > limit && index.Track.Time(lastSample(segment, extent)) >= limit {
			break
		}
		size += extent.Length
	}
	return size
}

// lastSample returns when the last sample of an extent is decoded.
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

// worthUpload reports whether the second part of the file can be sent, and decides
// on the size of its head and of its parts.
func (r *publishing) worthUpload(f growingFile) bool {
	if !f.grows || !r.inParts(f.key) {
		return false
	}
	head := int64(headRoom)
	for _, s := range f.streams {
		if !s.Complete && s.Samples == 0 {
			return false // without its number of samples there is no bound for the head
		}
		head += s.headBound()
	}
	size := r.partSize()
	for size < head {
		size += 1 << 20
	}
	r.change(func() { f.state.Head, f.state.PartSize = head, size })
	bytes := int64(0)
	for _, s := range f.streams {
		bytes += s.Index.Size()
	}
	return head+bytes >= 2*size
}

// headRoom is for what the head of an MP4 file has beside the tables of its tracks.
const headRoom = 64 << 10

// headBound returns how many bytes the tables of a stream need in the head of an MP4
// file, at most: for each sample how long it lasts and its size, of video its offset
// and whether decoding can start there, and the places of runs of samples, of which
// there are not more than five a second.
func (s Stream) headBound() int64 {
	samples := int64(max(s.Samples, s.Index.Frames()))
	seconds := int64(max(s.Length, s.Index.Duration())/time.Second) + 1
	each := int64(8 + 4)
	if s.Index.Track.Kind == cmaf.Video {
		each += 8 + 4
	}
	const place = 8 + 12
	return samples*each + min(samples, 5*seconds)*place
}

// inParts reports whether large files are uploaded in parts. On a disk that would only
// be writing them twice.
func (r *publishing) inParts(key string) bool {
	_, disk := r.Dest.Path(key)
	return !disk || r.PartSize > 0
}

func (r *publishing) partSize() int64 {
	if r.PartSize > 0 {
		return r.PartSize
	}
	return defaultPartSize
}

// file returns the file that a layout over streams describes.
func (r *publishing) file(layout cmaf.Layout, streams []Stream) (*media.File, error) {
	tracks := make([]*media.Track, len(streams))
	for i, s := range streams {
		tracks[i] = media.NewTrack(r.Work, s.Prefix, s.Index).FromZero()
	}
	return media.NewFile(layout, tracks)
}

// putWhole puts a file that is small.
func (r *publishing) putWhole(ctx context.Context, f growingFile, file *media.File) error {
	err := r.inSlot(ctx, func() error {
		body := file.Reader(ctx)
		defer body.Close()
		return r.Dest.Put(ctx, f.key, body, file.Size(), blob.PutOptions{ContentType: typeMP4})
	})
	if err != nil {
		return err
	}
	r.change(func() { f.state.Done = true })
	return nil
}

func (r *publishing) beginUpload(ctx context.Context, f growingFile, layout cmaf.Layout) error {
	size := max(f.state.PartSize, r.partSize())
	// A store takes only so many parts. What is not known yet may be much more than what is.
	for size*maxParts/8 < layout.Size || size < int64(len(layout.Head)) {
		size *= 2
	}
	upload, err := r.Dest.Upload(ctx, f.key, blob.PutOptions{ContentType: typeMP4})
	if err != nil {
		return err
	}
	r.change(func() {
		*f.state = FileState{Upload: upload.ID(), Head: int64(len(layout.Head)), PartSize: size}
	})
	return r.save(ctx)
}

// dropUpload begins a file anew, whose upload is lost.
func (r *publishing) dropUpload(ctx context.Context, f growingFile) error {
	upload, err := r.Dest.Resume(ctx, f.key, f.state.Upload)
	switch {
	case err == nil:
		err = upload.Abort(ctx)
	case weir.KindOf(err) == weir.NotFound:
		err = nil
	}
	if err != nil {
		return err
	}
	r.change(func() { *f.state = FileState{} })
	return r.save(ctx)
}

// uploadParts uploads the parts that lie before end and were not uploaded yet. When
// the file is complete, it uploads the last part too, then the first, and joins them.
func (r *publishing) uploadParts(ctx context.Context, f growingFile, file *media.File, end int64) error {
	complete := f.complete()
	upload, err := r.Dest.Resume(ctx, f.key, f.state.Upload)
	if err != nil {
		return err
	}
	part := func(ctx context.Context, n int) error {
		start := int64(n-1) * f.state.PartSize
		size := min(f.state.PartSize, end-start)
		return r.inSlot(ctx, func() error {
			body := file.Reader(ctx)
			defer body.Close()
			info, err := upload.Part(ctx, n, &fileSection{body, start, size, 0}, size)
			if err == nil {
				r.change(func() { f.state.put(info) })
			}
			return err
		})
	}
	group, groupCtx := errgroup.WithContext(ctx)
	count := int(end / f.state.PartSize)
	if complete {
		count = int((end + f.state.PartSize - 1) / f.state.PartSize)
	}
	for n := 2; n <= count; n++ {
		r.mu.Lock()
		_, done := f.state.Parts[n]
		r.mu.Unlock()
		if !done && groupCtx.Err() == nil {
			group.Go(func() error { return part(groupCtx, n) })
		}
	}
	if err := group.Wait(); err != nil || !complete {
		return err
	}
	if err := part(ctx, 1); err != nil {
		return err
	}
	parts := make([]blob.PartInfo, 0, count)
	for _, n := range slices.Sorted(maps.Keys(f.state.Parts)) {
		parts = append(parts, f.state.Parts[n])
	}
	if len(parts) != count {
		return fmt.Errorf("%s: %d of %d parts were uploaded", f.key, len(parts), count)
	}
	if err := upload.Complete(ctx, parts); err != nil {
		return err
	}
	r.change(func() { *f.state = FileState{Done: true} })
	return nil
}

// fileSection is a part of a file that can be read twice.
type fileSection struct {
	body  io.ReadSeeker
	start int64
	size  int64
	at    int64
}

func (s *fileSection) Read(p []byte) (int, error) {
	if s.at >= s.size {
		return 0, io.EOF
	}
	if _, err := s.body.Seek(s.start+s.at, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := s.body.Read(p[:min(int64(len(p)), s.size-s.at)])
	s.at += int64(n)
	return n, err
}

func (s *fileSection) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, errors.New("seek to before the start of a part")
	}
	s.at = offset
	return offset, nil
}
