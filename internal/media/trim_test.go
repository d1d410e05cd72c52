package media

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// The file of a trimmed segment is used again, unless it is still being read.
func TestTrimmedFileIsUsedAgain(t *testing.T) {
	dir, want, r := threeSegments(t)
	inode := func(n int64) uint64 {
		info, err := os.Stat(r.path(n))
		must(t, err)
		return info.Sys().(*syscall.Stat_t).Ino
	}
	read, free := inode(0), inode(1)
	reader, _, err := r.Open(0)
	must(t, err)
	must(t, r.Trim(2))
	want.first = 2
	want.write(t, r, 3, true)
	want.write(t, r, 1, true)
	if n := inode(3); n != free || inode(4) == read {
		t.Errorf("segment 3 has file %d, want %d; segment 4 has %d, which is still read", n, free, inode(4))
	}
	got, err := io.ReadAll(reader)
	must(t, errors.Join(err, reader.Close()))
	_ = reader.Close() // has no effect
	if !bytes.Equal(got, want.segments[0].data) {
		t.Error("what is read of a segment while it is trimmed has changed")
	}
	if len(r.reading) != 0 {
		t.Errorf("readers after the last one was closed: %v", r.reading)
	}
	want.check(t, r, "with a file that was used again")

	must(t, r.Trim(3))
	if info, err := os.Stat(filepath.Join(dir, spareName)); err != nil || info.Size() > 0 {
		t.Errorf("the file that waits for a segment takes space: %v, %v", info, err)
	}
	kill(r)
	want.first = 3
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered")
	if _, err := os.Stat(filepath.Join(dir, spareName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file that waited for a segment is still there: %v", err)
	}
}

func TestTrim(t *testing.T) {
	dir := scratch(t)
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	must(t, r.Trim(5))
	want.write(t, r, 2, true)
	want.write(t, r, 2, true)
	want.change(t, r, recordedTrack(1))
	for range 3 {
		want.write(t, r, 2, true)
	}
	must(t, r.Trim(3))
	must(t, r.Trim(1)) // is done
	must(t, r.Sync())
	want.first = 3
	want.check(t, r, "trimmed")
	for n := range int64(3) {
		_, _, err := r.Open(n)
		_, _, partErr := r.Part(n, 0)
		if weir.KindOf(err) != weir.NotFound || weir.KindOf(partErr) != weir.NotFound {
			t.Errorf("segment %d: errors %v and %v, want both of kind not-found", n, err, partErr)
		}
	}
	store, err := blob.NewDisk(t.TempDir())
	must(t, err)
	defer store.Close()
	track, err := keep(t, r, store, "kept")
	must(t, err)
	if diff := cmp.Diff(cmaf.TrackIndex{Track: recordedTrack(1), Segments: []cmaf.Segment{want.segments[3].Segment, want.segments[4].Segment}}, track.Index()); diff != "" {
		t.Errorf("what is not trimmed (-want +kept):\n%s", diff)
	}
	kill(r)
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered")
	if _, _, err := r.Open(2); weir.KindOf(err) != weir.NotFound {
		t.Errorf("error %v, want one of kind not-found", err)
	}
	want.write(t, r, 2, false)
	must(t, r.Trim(100))
	want.first = 4 // the newest finished one stays
	kill(r)

	// Without an index, trimmed segments keep their numbers.
	must(t, os.Remove(filepath.Join(dir, indexName)))
	for n := range want.first {
		want.segments[n].Parts = nil
	}
	for range 2 {
		r, err = Recover(dir)
		must(t, err)
		want.check(t, r, "recovered without an index")
	}
	must(t, r.Trim(100))
	must(t, r.Sync())
	want.first = 5
	want.check(t, r, "trimmed again")
	must(t, os.WriteFile(filepath.Join(dir, segmentName(1<<40)), []byte("stray"), 0o600))
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered with a stray file")
}

// The segment that is open when a recording ends belongs to it, also after a crash.
func TestSpareOpenSegment(t *testing.T) {
	dir, want, r := threeSegments(t)
	want.write(t, r, 1, false)
	must(t, r.Protect())
	if n := r.Protected(); n != 4 {
		t.Errorf("the segments before %d are protected, want 4", n)
	}
	must(t, r.Finish(want.segments[3].Segment))
	for range 4 {
		want.write(t, r, 2, true)
	}
	if r.HasTrimmed() {
		t.Error("nothing was trimmed")
	}
	must(t, r.Trim(6))
	kill(r)
	r, err := Recover(dir)
	must(t, err)
	if n := r.Protected(); n != 4 || !r.HasTrimmed() {
		t.Errorf("after a crash the segments before %d are protected, want 4", n)
	}
	must(t, r.Protect()) // is too late for others
	if n := r.Protected(); n != 4 {
		t.Errorf("the segments before %d are protected, want 4", n)
	}
	for n := range int64(8) {
		body, size, err := r.Open(n)
		if gone := n == 4 || n == 5; gone {
			if weir.KindOf(err) != weir.NotFound {
				t.Errorf("segment %d: error %v, want one of kind not-found", n, err)
			}
			continue
		}
		if !bytes.Equal(readAll(t, body, size, err), want.segments[n].data) {
			t.Errorf("segment %d is another", n)
		}
	}
}

// A segment whose first part did not fit on the disk is begun again.
func TestAbandon(t *testing.T) {
	dir, want, r := threeSegments(t)
	must(t, r.Begin(wallOf(3), false))
	file := r.file
	var err error
	r.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	part, data := recordedPart(want.tracks[0], 3, 0)
	if err := r.Append(part, data); weir.KindOf(err) != weir.Full {
		t.Errorf("error %v, want one of kind full", err)
	}
	must(t, errors.Join(r.Abandon(), file.Close()))
	must(t, r.Abandon()) // there is none
	want.change(t, r, recordedTrack(1))
	want.write(t, r, 2, false)
	must(t, r.Abandon()) // it has parts
	must(t, r.Finish(want.segments[3].Segment))
	want.check(t, r, "abandoned")
	kill(r)
	r, err = Recover(dir)
	must(t, err)
	want.check(t, r, "recovered")
}
