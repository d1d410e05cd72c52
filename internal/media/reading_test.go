package media

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// checkReading checks that a track has the segments with these numbers.
func (want *recorded) checkReading(t *testing.T, track *Track, numbers ...int) {
	t.Helper()
	index := cmaf.TrackIndex{}
	last := -1
	for i, n := range numbers {
		s := want.segments[n]
		if s.init != last && i > 0 {
			index.Changes = append(index.Changes, cmaf.Change{First: i, Track: want.tracks[s.init]})
		} else if i == 0 {
			index.Track = want.tracks[s.init]
		}
		last = s.init
		s.Discontinuity = s.Discontinuity || i > 0 && numbers[i-1] != n-1
		index.Segments = append(index.Segments, s.Segment)
	}
	if diff := cmp.Diff(index, track.Index()); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
		return
	}
	for i, n := range numbers {
		body, size, err := track.Segment(t.Context(), i)
		must(t, err)
		data, err := io.ReadAll(body)
		must(t, err)
		must(t, body.Close())
		if !bytes.Equal(data, want.segments[n].data) || size != int64(len(data)) {
			t.Errorf("segment %d has %d bytes that differ from the %d written", n, len(data), len(want.segments[n].data))
		}
		for p := range want.segments[n].Parts {
			part, err := track.Part(t.Context(), i, p)
			must(t, err)
			if start := partStart(want.segments[n], p); !bytes.Equal(part, want.segments[n].data[start:start+int64(len(part))]) {
				t.Errorf("part %d of segment %d differs", p, n)
			}
		}
	}
}

// A recording can be read while it grows: with the parts of the open segment, changes of the coding,
// and without what is trimmed.
func TestReading(t *testing.T) {
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(scratch(t), want.tracks[0])
	must(t, err)
	if _, err := r.Reading(true); weir.KindOf(err) != weir.NotFound {
		t.Errorf("without a segment: error %v", err)
	}
	want.write(t, r, 2, true)
	want.write(t, r, 3, true)
	want.change(t, r, recordedTrack(1))
	want.write(t, r, 1, false)
	before, err := r.Reading(true)
	must(t, err)
	want.checkReading(t, before, 0, 1, 2)

	// The track stays as it was when the segment grows and ends.
	part, data := recordedPart(want.tracks[1], 2, 1)
	grown := want.segments[2]
	grown.Parts = append([]cmaf.Part{}, grown.Parts...)
	grown.add(part, append([]byte{}, data...))
	must(t, r.Append(part, data))
	must(t, r.Finish(grown.Segment))
	want.checkReading(t, before, 0, 1, 2)
	want.segments[2] = grown
	want.write(t, r, 2, true)
	after, err := r.Reading(true)
	must(t, err)
	want.checkReading(t, after, 0, 1, 2, 3)

	must(t, r.Trim(2))
	trimmed, err := r.Reading(false)
	must(t, err)
	want.checkReading(t, trimmed, 2, 3)
	if _, _, err := after.Segment(t.Context(), 1); weir.KindOf(err) != weir.NotFound {
		t.Errorf("a segment that was trimmed: error %v", err)
	}
	want.write(t, r, 1, false)
	must(t, r.Close())
	closed, err := r.Reading(false)
	must(t, err)
	want.checkReading(t, closed, 2, 3, 4)
}

// After the recording of a stream has ended, its start and its end can be read.
func TestReadingSpared(t *testing.T) {
	_, want, r := threeSegments(t)
	must(t, r.Protect())
	for range 5 {
		want.write(t, r, 2, true)
	}
	must(t, r.Trim(6))
	for _, compacts := range []bool{false, true} {
		if compacts {
			must(t, compact(r))
		}
		track, err := r.Reading(false)
		must(t, err)
		want.checkReading(t, track, 0, 1, 2, 6, 7)
	}
}

// A whole segment is shared without a copy where that is safe, and copied where its file may change.
func TestShare(t *testing.T) {
	eachStore(t, func(t *testing.T, to blob.Store) {
		_, want, r := threeSegments(t)
		want.write(t, r, 1, false)
		read := func(key string) []byte {
			t.Helper()
			body, _, err := to.Get(t.Context(), key, 0, -1)
			must(t, err)
			defer body.Close()
			data, err := io.ReadAll(body)
			must(t, err)
			return data
		}
		linked := func(key string, n int64) bool {
			t.Helper()
			path, ok := to.Path(key)
			if !ok {
				return false
			}
			one, err := os.Stat(path)
			must(t, err)
			other, err := os.Stat(r.path(n))
			must(t, err)
			return os.SameFile(one, other)
		}
		for _, kept := range []bool{true, false} {
			track, err := r.Reading(kept)
			must(t, err)
			for i := range want.segments {
				for range 2 { // it can be repeated
					must(t, track.Share(t.Context(), i, to, SegmentKey("a", i)))
				}
				if !bytes.Equal(read(SegmentKey("a", i)), want.segments[i].data) {
					t.Errorf("kept %v: segment %d differs", kept, i)
				}
				if link := linked(SegmentKey("a", i), int64(i)); link && (!kept || i == 3) {
					t.Errorf("kept %v: segment %d is the file that may change", kept, i)
				}
			}
			if err := track.Share(t.Context(), 4, to, "a/4.m4s"); weir.KindOf(err) != weir.NotFound {
				t.Errorf("a segment that does not exist: error %v", err)
			}
			must(t, to.DeletePrefix(t.Context(), "a"))
		}

		// From one prefix of a store to another, and from another store.
		other, err := blob.NewDisk(t.TempDir())
		must(t, err)
		defer other.Close()
		track, fragments := testTrack(cmaf.Video, 1)
		for _, from := range []blob.Store{to, other} {
			putTrack(t, from, "from", track, fragments)
			stored := openTrack(t, from, "from")
			for _, track := range []*Track{stored, stored.FromZero()} {
				must(t, track.Share(t.Context(), 2, to, "b/0.m4s"))
				body, _, err := track.Segment(t.Context(), 2)
				must(t, err)
				data, err := io.ReadAll(body)
				must(t, err)
				must(t, body.Close())
				if !bytes.Equal(read("b/0.m4s"), data) {
					t.Error("the segment of a stored track differs")
				}
			}
			must(t, to.DeletePrefix(t.Context(), "from"))
			if len(read("b/0.m4s")) == 0 {
				t.Error("the segment is gone with the track that it came from")
			}
		}
	})
}

// What is read while another goroutine writes and trims is what was written, or an error.
func TestReadingWhileItGrows(t *testing.T) {
	for _, kept := range []bool{true, false} {
		want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
		r, err := Record(scratch(t), want.tracks[0])
		must(t, err)
		to, err := blob.NewDisk(filepath.Join(scratch(t), "to"))
		must(t, err)
		defer to.Close()
		const segments = 300
		done := make(chan struct{})
		var readers sync.WaitGroup
		for range 3 {
			readers.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					track, err := r.Reading(kept)
					if weir.KindOf(err) == weir.NotFound {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					checkGrowing(t, track, to, kept)
				}
			})
		}
		for n := range segments {
			want.write(t, r, 1+n%3, true)
			if !kept {
				must(t, r.Trim(int64(n-3)))
			}
			if n%10 == 0 {
				must(t, r.Sync())
			}
		}
		close(done)
		readers.Wait()
		must(t, r.Close())
	}
}

// checkGrowing checks the newest segments of a track that is being recorded.
func checkGrowing(t *testing.T, track *Track, to blob.Store, kept bool) {
	t.Helper()
	index := track.Index()
	for i := max(0, len(index.Segments)-4); i < len(index.Segments); i++ {
		s := index.Segments[i]
		n := s.Start() / 18000
		var want []byte
		for p := range s.Parts {
			_, data := recordedPart(recordedTrack(0), n, p)
			want = append(want, data...)
		}
		if !s.Wall.Equal(wallOf(n)) || s.Discontinuity != (n%2 == 1) {
			t.Errorf("segment %d: %v, discontinuity %v", n, s.Wall, s.Discontinuity)
		}
		body, _, err := track.Segment(t.Context(), i)
		if !kept && weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		data, err := io.ReadAll(body)
		if closed := body.Close(); err != nil || closed != nil || !bytes.Equal(data, want) {
			t.Errorf("segment %d has %d bytes, want %d; error %v", n, len(data), len(want), err)
		}
		key := weir.NewID()
		if err := track.Share(t.Context(), i, to, key); err != nil {
			if kept || weir.KindOf(err) != weir.NotFound {
				t.Error(err)
			}
			continue
		}
		path, _ := to.Path(key)
		if data, err := os.ReadFile(path); err != nil || !bytes.Equal(data, want) {
			t.Errorf("shared segment %d has %d bytes, want %d; error %v", n, len(data), len(want), err)
		}
		if err := to.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
}
