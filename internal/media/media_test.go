package media

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(s3test.Runner{M: m})
}

// eachStore runs a test on every kind of store.
func eachStore(t *testing.T, test func(t *testing.T, store blob.Store)) {
	t.Run("disk", func(t *testing.T) {
		store, err := blob.NewDisk(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		test(t, store)
	})
	t.Run("s3", func(t *testing.T) {
		store, err := blob.Open(s3test.Start(t).URL(), blob.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		test(t, store)
	})
}

// testTrack returns a track of a few segments with random samples, and its fragments.
func testTrack(kind cmaf.Kind, seed uint64) (cmaf.Track, [][]cmaf.Fragment) {
	random := rand.New(rand.NewPCG(seed, 0))
	track := cmaf.Track{Kind: kind, Codec: "mp4a.40.2", Timescale: 1000, Channels: 2, SampleRate: 48000, Language: "deu", Default: true, Entry: box("mp4a", make([]byte, 28))}
	if kind == cmaf.Video {
		track = cmaf.Track{Kind: kind, Codec: "avc1.64001f", Timescale: 1000, Width: 320, Height: 180, Entry: box("avc1", make([]byte, 78))}
	}
	var segments [][]cmaf.Fragment
	at := int64(0)
	for range 4 {
		var fragments []cmaf.Fragment
		for range 3 {
			f := cmaf.Fragment{Start: at}
			for i := range 5 {
				data := make([]byte, 1+random.IntN(3000))
				for k := range data {
					data[k] = byte(random.Uint32())
				}
				f.Samples = append(f.Samples, cmaf.Sample{Duration: 100, Size: uint32(len(data)), Sync: i == 0})
				f.Data = append(f.Data, data...)
			}
			at = f.End()
			fragments = append(fragments, f)
		}
		segments = append(segments, fragments)
	}
	return track, segments
}

func box(name string, body []byte) []byte {
	return append(append([]byte{0, 0, 0, byte(8 + len(body))}, name...), body...)
}

// putTrack stores a track and returns its index.
func putTrack(t *testing.T, store blob.Store, prefix string, track cmaf.Track, segments [][]cmaf.Fragment) cmaf.TrackIndex {
	t.Helper()
	index := cmaf.TrackIndex{Track: track}
	for n, fragments := range segments {
		var segment cmaf.Segment
		var data []byte
		for _, f := range fragments {
			part, bytes := cmaf.EncodePart(1, track, f)
			segment.Parts = append(segment.Parts, part)
			data = append(data, bytes...)
		}
		if err := Put(t.Context(), store, prefix, n, segment, data); err != nil {
			t.Fatal(err)
		}
		index.Segments = append(index.Segments, segment)
	}
	if err := Seal(t.Context(), store, prefix, index); err != nil {
		t.Fatal(err)
	}
	return index
}

func openTrack(t *testing.T, store blob.Store, prefix string) *Track {
	t.Helper()
	track, err := Open(t.Context(), store, prefix)
	if err != nil {
		t.Fatal(err)
	}
	return track
}

func TestTrack(t *testing.T) {
	eachStore(t, func(t *testing.T, store blob.Store) {
		described, segments := testTrack(cmaf.Audio, 1)
		if _, err := Open(t.Context(), store, "a/t"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("a track that is not there: error %v, want one of kind not-found", err)
		}
		want := putTrack(t, store, "a/t", described, segments)
		track := openTrack(t, store, "a/t")
		if diff := cmp.Diff(want, track.Index()); diff != "" {
			t.Errorf("index differs (-want +got):\n%s", diff)
		}
		for n, want := range segments {
			got, err := track.Fragments(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("segment %d differs (-want +got):\n%s", n, diff)
			}
			body, size, err := track.Segment(t.Context(), n)
			if err != nil {
				t.Fatal(err)
			}
			whole, err := io.ReadAll(body)
			body.Close()
			if err != nil || int64(len(whole)) != size {
				t.Errorf("segment %d: %d bytes of %d, error %v", n, len(whole), size, err)
			}
			sample, err := track.Sample(t.Context(), n, 2, 3)
			if err != nil {
				t.Fatal(err)
			}
			before := cmaf.Bytes(want[2].Samples[:3])
			if !bytes.Equal(sample, want[2].Data[before:before+int64(len(sample))]) || len(sample) != int(want[2].Samples[3].Size) {
				t.Errorf("a sample of segment %d is wrong", n)
			}
			last, err := track.Part(t.Context(), n, 2)
			if err != nil || !bytes.HasSuffix(whole, last) || int64(len(last)) != track.Index().Segments[n].Parts[2].Size() {
				t.Errorf("the last part of segment %d is wrong: %v", n, err)
			}
		}
		if _, _, err := track.Segment(t.Context(), 4); weir.KindOf(err) != weir.NotFound {
			t.Errorf("segment after the last: error %v, want one of kind not-found", err)
		}
	})
}

// Buffers are read as if they were one, from any offset.
func TestJoined(t *testing.T) {
	buffers := [][]byte{nil, []byte("one "), {}, []byte("track in "), []byte("buffers"), nil}
	whole := bytes.Join(buffers, nil)
	if err := iotest.TestReader(io.NewSectionReader(bufferReader(buffers), 0, int64(len(whole))), whole); err != nil {
		t.Error(err)
	}
}

// A stored segment of another size than in the index is an error.
func TestSegmentOfWrongSize(t *testing.T) {
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	described, segments := testTrack(cmaf.Video, 2)
	index := putTrack(t, store, "a", described, segments)
	if err := Put(t.Context(), store, "a", 1, index.Segments[1], []byte("short")); err == nil {
		t.Error("a segment of another length was stored")
	}
	replace := func(key string, change func([]byte) []byte) {
		body, _, err := store.Get(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
		data = change(data)
		if err := store.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	replace(SegmentKey("a", 2), func(data []byte) []byte { return data[:100] })
	if _, err := openTrack(t, store, "a").Fragments(t.Context(), 2); err == nil {
		t.Error("a segment that was cut off was read")
	}
	replace("a/index", func(data []byte) []byte { return data[:len(data)-3] })
	if _, err := Open(t.Context(), store, "a"); err == nil {
		t.Error("an index that was cut off was read")
	}
	replace("a/index", func([]byte) []byte { return []byte("{}") })
	if _, err := Open(t.Context(), store, "a"); err == nil {
		t.Error("an index without entries was read")
	}
}

func TestFile(t *testing.T) {
	eachStore(t, func(t *testing.T, store blob.Store) {
		var tracks []*Track
		var indexes []cmaf.TrackIndex
		for i, kind := range []cmaf.Kind{cmaf.Video, cmaf.Audio} {
			described, segments := testTrack(kind, uint64(3+i))
			prefix := fmt.Sprintf("p/%d", i)
			indexes = append(indexes, putTrack(t, store, prefix, described, segments))
			tracks = append(tracks, openTrack(t, store, prefix))
		}
		layout := testLayout(indexes)
		file, err := NewFile(layout, tracks)
		if err != nil {
			t.Fatal(err)
		}
		want := wholeFile(t, layout, tracks)
		if int64(len(want)) != file.Size() {
			t.Fatalf("the file has %d bytes, its size is %d", len(want), file.Size())
		}
		reader := file.Reader(t.Context())
		defer reader.Close()
		if err := iotest.TestReader(reader, want); err != nil {
			t.Error(err)
		}
		random := rand.New(rand.NewPCG(9, 9))
		for range 50 {
			from := random.IntN(len(want))
			part := make([]byte, random.IntN(len(want)-from))
			if _, err := reader.Seek(int64(from), io.SeekStart); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(reader, part); err != nil || !bytes.Equal(part, want[from:from+len(part)]) {
				t.Fatalf("bytes %d to %d are wrong, error %v", from, from+len(part), err)
			}
		}
	})
}

// testLayout interleaves the parts of tracks.
func testLayout(indexes []cmaf.TrackIndex) cmaf.Layout {
	layout := cmaf.Layout{Head: []byte("this is the head of the file")}
	layout.Size = int64(len(layout.Head))
	for n := range indexes[0].Segments {
		offsets := make([]int64, len(indexes))
		for p := range indexes[0].Segments[n].Parts {
			for i, index := range indexes {
				part := index.Segments[n].Parts[p]
				length := part.Size() - int64(part.Head)
				layout.Extents = append(layout.Extents, cmaf.Extent{Track: i, Segment: n, Offset: offsets[i] + int64(part.Head), Length: length})
				offsets[i] += part.Size()
				layout.Size += length
			}
		}
	}
	return layout
}

func wholeFile(t *testing.T, layout cmaf.Layout, tracks []*Track) []byte {
	t.Helper()
	whole := bytes.Clone(layout.Head)
	for _, extent := range layout.Extents {
		body, _, err := tracks[extent.Track].Segment(t.Context(), extent.Segment)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(body)
		body.Close()
		if err != nil {
			t.Fatal(err)
		}
		whole = append(whole, data[extent.Offset:extent.Offset+extent.Length]...)
	}
	return whole
}

// counting counts the Gets of a store.
type counting struct {
	blob.Store
	gets int
}

func (c *counting) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	c.gets++
	return c.Store.Get(ctx, key, offset, length)
}

func TestFileReadsEverySegmentOnce(t *testing.T) {
	disk, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	store := &counting{Store: disk}
	described, segments := testTrack(cmaf.Video, 5)
	index := putTrack(t, store, "v", described, segments)
	track := openTrack(t, store, "v")
	file, err := NewFile(testLayout([]cmaf.TrackIndex{index}), []*Track{track})
	if err != nil {
		t.Fatal(err)
	}
	reader := file.Reader(t.Context())
	defer reader.Close()
	store.gets = 0
	if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{reader}, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if store.gets != len(segments) {
		t.Errorf("the store was asked %d times for %d segments", store.gets, len(segments))
	}
}

func TestFileOfOtherSize(t *testing.T) {
	described, segments := testTrack(cmaf.Video, 6)
	store, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	layout := testLayout([]cmaf.TrackIndex{putTrack(t, store, "v", described, segments)})
	layout.Size++
	if _, err := NewFile(layout, []*Track{openTrack(t, store, "v")}); err == nil {
		t.Error("a layout whose parts don't add up was taken")
	}
	layout.Size--
	if _, err := NewFile(layout, nil); err == nil {
		t.Error("a layout with extents of no track was taken")
	}
}

func TestPresentation(t *testing.T) {
	eachStore(t, func(t *testing.T, store blob.Store) {
		if _, err := LoadPresentation(t.Context(), store, "asset/1"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("error %v, want one of kind not-found", err)
		}
		want := Presentation{
			Renditions: []Rendition{{Name: "720p0", Dir: "source", Complete: true}, {Name: "360p0", Dir: "360p0"}},
			Audio:      []Rendition{{Name: "audio0", Dir: "audio0", Complete: true}},
			Duration:   12.5,
		}
		for range 2 {
			if err := SavePresentation(t.Context(), store, "asset/1", want); err != nil {
				t.Fatal(err)
			}
			got, err := LoadPresentation(t.Context(), store, "asset/1")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("presentation differs (-want +got):\n%s", diff)
			}
			want.Complete = true
		}
	})
}

func FuzzParseIndex(f *testing.F) {
	described, segments := testTrack(cmaf.Video, 8)
	part, _ := cmaf.EncodePart(1, described, segments[0][0])
	f.Add(cmaf.AppendEntry([]byte("{\"kind\":\"video\"}\n"), cmaf.Segment{Parts: []cmaf.Part{part}}))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		index, err := parseIndex(data)
		if err == nil && len(index.Segments) > len(data) {
			t.Errorf("%d segments in %d bytes", len(index.Segments), len(data))
		}
	})
}
