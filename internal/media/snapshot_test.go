package media

import (
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"sync"
	"testing"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// TestSnapshot copies a recording that goes on meanwhile, and then goes on with the original: the
// copy has all that was there when it was made, and does not change.
func TestSnapshot(t *testing.T) {
	dir, want, r := threeSegments(t)
	want.write(t, r, 2, false)
	s, err := TakeSnapshot(dir)
	must(t, err)
	part, data := recordedPart(want.tracks[0], 3, 2)
	must(t, r.Append(part, data))
	want.segments[3].add(part, data)
	must(t, r.Finish(want.segments[3].Segment))
	asCopied := recorded{tracks: want.tracks[:1], segments: want.segments[:4:4]}
	want.change(t, r, recordedTrack(1))
	want.write(t, r, 3, true)

	var copied int64
	to := filepath.Join(scratch(t), "copy")
	must(t, s.Copy(t.Context(), to, func(n int64) { copied += n }))
	if copied < s.Size() {
		t.Errorf("%d bytes were copied, at least %d were to be", copied, s.Size())
	}
	want.write(t, r, 3, true)
	for n := range int64(5) { // what a recorder does with segments that were trimmed
		must(t, os.WriteFile(filepath.Join(dir, segmentName(n)), []byte("other"), 0o600))
	}
	kill(r)
	again, err := Recover(to)
	must(t, err)
	asCopied.check(t, again, "copied")

	if _, err := TakeSnapshot(filepath.Join(dir, "nothing")); weir.KindOf(err) != weir.NotFound {
		t.Errorf("snapshot of nothing: %v, want not found", err)
	}
}

// TestSnapshotsOfGrowing copies a recording again and again while it is written. Each copy is a
// prefix of it.
func TestSnapshotsOfGrowing(t *testing.T) {
	dir, want := scratch(t), &recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	want.write(t, r, 3, true)
	copies := scratch(t)
	n := 0
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		defer close(done)
		for k := range 300 {
			if k%7 == 6 {
				want.change(t, r, recordedTrack(k))
			}
			want.write(t, r, 3, true)
		}
	})
	for over := false; !over; n++ {
		select {
		case <-done:
			over = true
		default:
		}
		s, err := TakeSnapshot(dir)
		must(t, err)
		must(t, s.Copy(t.Context(), filepath.Join(copies, strconv.Itoa(n)), func(int64) {}))
	}
	writer.Wait()
	for k := range n {
		got, err := Recover(filepath.Join(copies, strconv.Itoa(k)))
		must(t, err)
		index, _, err := got.Index()
		must(t, err)
		for i, segment := range index.Segments {
			full := want.segments[i]
			if len(segment.Parts) > len(full.Parts) || len(segment.Parts) < len(full.Parts) && i < len(index.Segments)-1 {
				t.Fatalf("copy %d: segment %d of %d has %d parts, want %d", k, i, len(index.Segments), len(segment.Parts), len(full.Parts))
			}
			part := full.first(len(segment.Parts))
			if !reflect.DeepEqual(part.Segment, segment) || got.InitOf(int64(i)) != full.init {
				t.Fatalf("copy %d: segment %d is %+v with init %d, want %+v with init %d", k, i, segment, got.InitOf(int64(i)), part.Segment, full.init)
			}
			body, size, err := got.Open(int64(i))
			if data := readAll(t, body, size, err); string(data) != string(part.data) {
				t.Fatalf("copy %d: segment %d has other bytes", k, i)
			}
		}
		if k == n-1 && len(index.Segments) != len(want.segments) {
			t.Errorf("the last copy has %d segments, want %d", len(index.Segments), len(want.segments))
		}
	}
	t.Logf("%d copies", n)
}
