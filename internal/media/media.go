// Package media stores the tracks of package cmaf in a blob.Store. It is the only reader and writer
// of inits, segments and indexes.
//
// A track has a prefix:
//
//	<prefix>/init.mp4   its init segment
//	<prefix>/<n>.m4s    its segments, from 0; see cmaf.Folder for others
//	<prefix>/index      its description, and an entry for each segment
//
// The index is a line of JSON, the cmaf.Track with the changes of its coding, and after it the
// entries as cmaf writes them. A track exists when its index does: [Put] stores segments in any
// order and from any machine, [Seal] writes the init segment and then the index. So a reader never
// sees an index with a segment that does not exist.
//
// [Open] reads an index; a [File] presents one or several tracks as one file, without storing it.
// [Recorder] writes a track to a folder while it grows; [Recover] resumes it after a crash, and
// [Recorder.Reading] reads it like a stored one.
package media

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// maxIndex is far above the index of a day of video, and keeps a damaged store from filling the
// memory.
const maxIndex = 256 << 20

var (
	segmentOptions = blob.PutOptions{ContentType: "video/mp4"}
	indexOptions   = blob.PutOptions{ContentType: "application/octet-stream"}
)

// AssetFolder returns the prefix of an asset: of its presentation, its tracks and its other files.
func AssetFolder(assetID string) string { return "asset/" + assetID }

// SegmentKey returns the key of segment n of a track.
func SegmentKey(prefix string, n int) string { return prefix + "/" + strconv.Itoa(n) + ".m4s" }

func indexKey(prefix string) string { return prefix + "/index" }

// Put stores segment n, whose bytes may be in buffers. Storing it again has no effect.
func Put(ctx context.Context, store blob.Store, prefix string, n int, segment cmaf.Segment, data ...[]byte) error {
	var size int64
	for _, buffer := range data {
		size += int64(len(buffer))
	}
	if segment.Size() != size {
		return fmt.Errorf("segment %d of %s has %d bytes, its index entry says %d", n, prefix, size, segment.Size())
	}
	return store.Put(ctx, SegmentKey(prefix, n), io.NewSectionReader(bufferReader(data), 0, size), size, segmentOptions)
}

// bufferReader reads buffers as one, without copying them into one.
type bufferReader [][]byte

func (j bufferReader) ReadAt(p []byte, from int64) (n int, err error) {
	for _, buffer := range j {
		if from >= int64(len(buffer)) {
			from -= int64(len(buffer))
			continue
		}
		n += copy(p[n:], buffer[from:])
		from = 0
		if n == len(p) {
			return n, nil
		}
	}
	return n, io.EOF
}

// Seal makes a track from the segments that were put.
func Seal(ctx context.Context, store blob.Store, prefix string, index cmaf.TrackIndex) error {
	initSegment := cmaf.Init(index.Track)
	if err := store.Put(ctx, prefix+"/init.mp4", bytes.NewReader(initSegment), int64(len(initSegment)), segmentOptions); err != nil {
		return err
	}
	head := indexHead{Track: index.Track, Changes: index.Changes, Folders: index.Folders}
	data, err := writeIndex(head, index.Segments)
	if err != nil {
		return err
	}
	return store.Put(ctx, indexKey(prefix), bytes.NewReader(data), int64(len(data)), indexOptions)
}

type indexHead struct {
	cmaf.Track
	Changes   []cmaf.Change `json:"changes,omitempty"`
	Folders   []cmaf.Folder `json:"folders,omitempty"`
	Compacted Compacted     `json:"forgotten,omitzero"` // of a recording
}

func writeIndex(head indexHead, segments []cmaf.Segment) ([]byte, error) {
	data, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	data = append(data, '\n')
	for _, segment := range segments {
		data = cmaf.AppendEntry(data, segment)
	}
	return data, nil
}

// Track is a track in a store, or one that is being recorded (see Recorder.Reading).
type Track struct {
	store   blob.Store
	prefix  string
	index   cmaf.TrackIndex
	zero    bool     // see FromZero
	growing *growing // nil = it is in the store
}

// Open reads the index of a sealed track.
func Open(ctx context.Context, store blob.Store, prefix string) (*Track, error) {
	body, info, err := store.Get(ctx, indexKey(prefix), 0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if info.Size > maxIndex {
		return nil, fmt.Errorf("index of %s: %d bytes exceed the maximum", prefix, info.Size)
	}
	data, err := io.ReadAll(io.LimitReader(body, maxIndex))
	if err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "could not read the index of a track from storage")
	}
	index, err := parseIndex(data)
	if err != nil {
		return nil, fmt.Errorf("index of %s: %w", prefix, err)
	}
	return NewTrack(store, prefix, index), nil
}

func parseIndex(data []byte) (cmaf.TrackIndex, error) {
	line, entries, found := bytes.Cut(data, []byte("\n"))
	if !found {
		return cmaf.TrackIndex{}, fmt.Errorf("it has no description of the track")
	}
	var head indexHead
	if err := json.Unmarshal(line, &head); err != nil {
		return cmaf.TrackIndex{}, err
	}
	segments, good, err := cmaf.ReadIndex(entries)
	if err != nil {
		return cmaf.TrackIndex{}, err
	}
	if good != len(entries) {
		return cmaf.TrackIndex{}, fmt.Errorf("it is damaged after %d of %d bytes", good, len(entries))
	}
	return cmaf.TrackIndex{Track: head.Track, Changes: head.Changes, Folders: head.Folders, Segments: segments}, nil
}

// NewTrack returns a track that need not be sealed: its segments are in the store, and the caller
// knows the index.
func NewTrack(store blob.Store, prefix string, index cmaf.TrackIndex) *Track {
	return &Track{store: store, prefix: prefix, index: index}
}

// FromZero returns the track as callers get it: it starts at 0, and not at cmaf.Lead like the
// stored one. Only the times in its init segment and its segments differ.
func (t *Track) FromZero() *Track {
	from := *t
	from.zero = true
	return &from
}

// Index returns the description of the track and its segments. Callers must not change it.
func (t *Track) Index() cmaf.TrackIndex { return t.index }

// Prefix returns the prefix of the track in the store; "" = it is being recorded.
func (t *Track) Prefix() string { return t.prefix }

// SegmentKey returns the key of segment n in the store.
func (t *Track) SegmentKey(n int) string {
	prefix := t.prefix
	if folder := t.index.FolderOf(n); folder != "" {
		prefix += "/" + folder
	}
	return SegmentKey(prefix, n)
}

// Init returns the init segment.
func (t *Track) Init() []byte {
	if t.zero {
		return cmaf.ZeroInit(t.index)
	}
	return cmaf.Init(t.index.Track)
}

// InitAfter returns the init segment after k changes of the coding.
func (t *Track) InitAfter(k int) ([]byte, error) {
	track, ok := t.index.Coded(k)
	if !ok {
		return nil, weir.Errorf(weir.NotFound, "there is no init segment %d", k)
	}
	return cmaf.Init(track), nil
}

// Segment opens segment n as it is stored.
func (t *Track) Segment(ctx context.Context, n int) (body io.ReadCloser, size int64, err error) {
	if err := t.check(n); err != nil {
		return nil, 0, err
	}
	body, err = t.open(ctx, n, 0, -1)
	return body, t.index.Segments[n].Size(), err
}

func (t *Track) check(n int) error {
	if n < 0 || n >= len(t.index.Segments) {
		return weir.Errorf(weir.NotFound, "there is no segment %d", n)
	}
	return nil
}

// SegmentFile returns segment n as a file.
func (t *Track) SegmentFile(n int) *File {
	size := t.index.Segments[n].Size()
	layout := cmaf.Layout{Extents: []cmaf.Extent{{Segment: n, Length: size}}, Size: size}
	return &File{layout: layout, tracks: []*Track{t}, starts: []int64{0}}
}

// WholeSegment returns segment n as a file in which all samples are in one fragment, with boxes
// before it.
func (t *Track) WholeSegment(n int, boxes ...[]byte) (*File, error) {
	layout, err := cmaf.WholeSegment(t.index, n, t.zero, boxes...)
	if err != nil {
		return nil, err
	}
	return NewFile(layout, []*Track{t})
}

// Part reads one part of segment n.
func (t *Track) Part(ctx context.Context, n, part int) ([]byte, error) {
	parts := t.index.Segments[n].Parts
	return t.read(ctx, n, partsSize(parts[:part]), parts[part].Size())
}

// Sample reads the bytes of one sample.
func (t *Track) Sample(ctx context.Context, n, part, sample int) ([]byte, error) {
	parts := t.index.Segments[n].Parts
	offset := partsSize(parts[:part]) + int64(parts[part].Head) + cmaf.Bytes(parts[part].Samples[:sample])
	return t.read(ctx, n, offset, int64(parts[part].Samples[sample].Size))
}

func (t *Track) read(ctx context.Context, n int, offset, length int64) ([]byte, error) {
	body, err := t.open(ctx, n, offset, length)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	data := make([]byte, length)
	if _, err := io.ReadFull(body, data); err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "could not read a segment from storage")
	}
	return data, nil
}

// Fragments reads the samples of segment n, one fragment for each part.
func (t *Track) Fragments(ctx context.Context, n int) ([]cmaf.Fragment, error) {
	if err := t.check(n); err != nil {
		return nil, err
	}
	data, err := t.read(ctx, n, 0, t.index.Segments[n].Size())
	if err != nil {
		return nil, err
	}
	var fragments []cmaf.Fragment
	for _, part := range t.index.Segments[n].Parts {
		whole := part.Size()
		fragments = append(fragments, cmaf.Fragment{Start: part.Start, Samples: part.Samples, Data: data[part.Head:whole:whole]})
		data = data[whole:]
	}
	return fragments, nil
}

// open opens length bytes (-1 = all) of segment n. It is an error if the stored object has another
// size than in the index.
func (t *Track) open(ctx context.Context, n int, offset, length int64) (io.ReadCloser, error) {
	if t.zero {
		return t.openShifted(ctx, n, offset, length)
	}
	return t.openStored(ctx, n, offset, length)
}

func (t *Track) openStored(ctx context.Context, n int, offset, length int64) (io.ReadCloser, error) {
	if t.growing != nil {
		return t.growing.open(n, offset, length, t.index.Segments[n].Size())
	}
	body, info, err := t.store.Get(ctx, t.SegmentKey(n), offset, length)
	if err != nil {
		return nil, err
	}
	if want := t.index.Segments[n].Size(); info.Size != want {
		body.Close()
		return nil, fmt.Errorf("segment %d of %s has %d bytes, its index entry says %d", n, t.prefix, info.Size, want)
	}
	return body, nil
}

func partsSize(parts []cmaf.Part) (size int64) {
	for _, part := range parts {
		size += part.Size()
	}
	return size
}
