package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sort"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// File is a virtual file: its head is in memory, the rest are byte ranges of stored segments. Its
// size is known, and it can be read from any offset.
type File struct {
	layout cmaf.Layout
	tracks []*Track
	starts []int64 // of each extent, in the file
}

// NewFile returns the file that a layout describes. Extents refer to tracks by their index in
// tracks.
func NewFile(layout cmaf.Layout, tracks []*Track) (*File, error) {
	f := &File{layout: layout, tracks: tracks, starts: make([]int64, len(layout.Extents))}
	at := int64(len(layout.Head))
	for i, extent := range layout.Extents {
		if extent.Bytes == nil && (extent.Track < 0 || extent.Track >= len(tracks)) {
			return nil, fmt.Errorf("extent %d refers to track %d of %d", i, extent.Track, len(tracks))
		}
		f.starts[i] = at
		at += extent.Length
	}
	if at != layout.Size {
		return nil, fmt.Errorf("the extents of a file have %d bytes, its layout says %d", at, layout.Size)
	}
	return f, nil
}

// Progressive returns tracks as one MP4 file, with texts and boxes of the caller; see
// cmaf.Progressive.
func Progressive(tracks []*Track, texts []Text, boxes ...[]byte) (*File, error) {
	indexes := make([]cmaf.TrackIndex, len(tracks))
	for i, t := range tracks {
		indexes[i] = t.index
	}
	layout, err := cmaf.Progressive(indexes, TextTracks(texts, indexes), 0, boxes...)
	if err != nil {
		return nil, err
	}
	return NewFile(layout, tracks)
}

// Size returns the length of the file.
func (f *File) Size() int64 { return f.layout.Size }

// Memory returns about how many bytes of memory the file takes.
func (f *File) Memory() int64 {
	const extentBytes = 72
	bytes := len(f.layout.Head) + extentBytes*len(f.layout.Extents)
	for _, extent := range f.layout.Extents {
		bytes += len(extent.Bytes)
	}
	return int64(bytes)
}

// Reader opens the file; it reads until the context ends. Several readers of one file can be used
// at the same time, one reader can't. A closed reader can be used again.
func (f *File) Reader(ctx context.Context) io.ReadSeekCloser {
	open := func(track, segment int, offset int64) (io.ReadCloser, error) {
		return f.tracks[track].open(ctx, segment, offset, -1)
	}
	return &fileReader{file: f, open: open, bodies: make([]segmentBody, len(f.tracks))}
}

// fileReader reads a File. The current segment of each track stays open, so that reading in order
// takes one request to the store for each segment.
type fileReader struct {
	file   *File
	open   func(track, segment int, offset int64) (io.ReadCloser, error)
	at     int64
	bodies []segmentBody // by track
}

// segmentBody is an open segment and the offset of its reader.
type segmentBody struct {
	body    io.ReadCloser
	segment int
	at      int64
}

// nearSkip is how many bytes are skipped by reading instead of a new request.
const nearSkip = 256 << 10

func (r *fileReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.file.layout.Size
	}
	if offset < 0 {
		return 0, errors.New("seek to before the start of the file")
	}
	r.at = offset
	return offset, nil
}

func (r *fileReader) Read(p []byte) (int, error) {
	f := r.file
	if r.at >= f.layout.Size {
		return 0, io.EOF
	}
	if r.at < int64(len(f.layout.Head)) {
		n := copy(p, f.layout.Head[r.at:])
		r.at += int64(n)
		return n, nil
	}
	i := sort.Search(len(f.starts), func(i int) bool { return f.starts[i] > r.at }) - 1
	extent, within := f.layout.Extents[i], r.at-f.starts[i]
	if left := extent.Length - within; int64(len(p)) > left {
		p = p[:left]
	}
	if extent.Bytes != nil {
		r.at += int64(len(p))
		return copy(p, extent.Bytes[within:]), nil
	}
	body, err := r.body(extent.Track, extent.Segment, extent.Offset+within)
	if err != nil {
		return 0, err
	}
	n, err := io.ReadFull(body.body, p)
	body.at += int64(n)
	r.at += int64(n)
	if err != nil {
		return n, weir.Wrap(weir.Upstream, err, "could not read a segment from storage")
	}
	return n, nil
}

func (r *fileReader) body(track, segment int, offset int64) (*segmentBody, error) {
	b := &r.bodies[track]
	if b.body != nil && b.segment == segment && b.at <= offset && offset-b.at <= nearSkip {
		n, err := io.CopyN(io.Discard, b.body, offset-b.at)
		b.at += n
		if err != nil {
			return nil, weir.Wrap(weir.Upstream, err, "could not read a segment from storage")
		}
		return b, nil
	}
	if b.body != nil {
		b.body.Close()
		b.body = nil
	}
	body, err := r.open(track, segment, offset)
	if err != nil {
		return nil, err
	}
	*b = segmentBody{body, segment, offset}
	return b, nil
}

func (r *fileReader) Close() error {
	var errs []error
	for i := range r.bodies {
		if b := &r.bodies[i]; b.body != nil {
			errs = append(errs, b.body.Close())
			b.body = nil
		}
	}
	return errors.Join(errs...)
}
