package media

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// compact removes all trimmed segments from the index of a recorder.
func compact(r *Recorder) error {
	r.syncing.Lock()
	defer r.syncing.Unlock()
	return r.compact(1)
}

// The files of a track that is trimmed do not grow with its length, and it can be recovered.
func TestForget(t *testing.T) {
	dir := scratch(t)
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	logs := func() (size int64) {
		for _, name := range []string{indexName, journalName} {
			info, err := os.Stat(filepath.Join(dir, name))
			must(t, err)
			size += info.Size()
		}
		return size
	}
	limit := int64(0)
	for n := range 5 * compactAfter {
		want.write(t, r, 2, true)
		must(t, r.Trim(int64(n-8)))
		want.first = max(0, n-8)
		if n%10 == 0 {
			must(t, r.Sync())
		}
		switch size := logs(); {
		case n < compactAfter+20:
			limit = max(limit, size)
		case size > limit+1000: // for the note on compacted segments
			t.Fatalf("index and journal have %d bytes after %d segments, and had %d", size, n+1, limit)
		}
	}
	want.check(t, r, "recorded")
	want.change(t, r, recordedTrack(1))
	want.write(t, r, 2, false)
	kill(r)
	for range 2 {
		r, err = Recover(dir)
		must(t, err)
		want.check(t, r, "recovered")
	}
	want.write(t, r, 2, true)
	must(t, r.Trim(r.Next()))
	want.first = len(want.segments) - 1
	must(t, compact(r))
	want.check(t, r, "recorded on")
}

// A process that is killed while it shortens its files loses nothing.
func TestForgetInterrupted(t *testing.T) {
	dir := filepath.Join(scratch(t), "track")
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	for n := range 12 {
		if n == 4 || n == 9 {
			want.change(t, r, recordedTrack(n))
		}
		want.write(t, r, 2, true)
		if n == 6 {
			must(t, r.Trim(3))
			must(t, compact(r))
		}
	}
	must(t, r.Trim(8))
	want.first = 8
	want.write(t, r, 1, false)
	before := take(t, dir)
	must(t, compact(r))
	kill(r)
	after := take(t, dir)
	for what, files := range map[string]snapshot{
		"only the index is new":        after.with(journalName, before[journalName]),
		"only the journal is new":      after.with(indexName, before[indexName]),
		"neither is":                   before.with(indexName+tempSuffix, after[indexName]).with(journalName+tempSuffix, after[journalName][:20]),
		"both are":                     after,
		"and the index is lost":        after.without(indexName),
		"and a trimmed file is left":   after.with(segmentName(5), []byte("stray")),
		"and the index is cut in half": after.with(indexName, after[indexName][:len(after[indexName])-50]),
	} {
		files.put(t, dir)
		r, err := Recover(dir)
		must(t, err)
		want.check(t, r, what)
		want.checkContinues(t, dir)
	}
}

// A track can continue with a later number.
func TestSkip(t *testing.T) {
	dir, want, r := threeSegments(t)
	const to = 100_000
	must(t, r.Skip(to, 7))
	if err := r.Skip(to-1, 7); err == nil {
		t.Error("a number that was skipped is taken")
	}
	restart := func(segments int) {
		t.Helper()
		must(t, r.Sync())
		for range 2 {
			index, compacted, err := r.Index()
			must(t, err)
			wanted := Compacted{End: to, Parts: 6, Discontinuities: 7, Total: compacted.Total, Max: compacted.Max}
			if r.Next() != to+int64(segments) || len(index.Segments) != segments || compacted != wanted || compacted.Total == 0 {
				t.Errorf("next is %d, the index has %d segments, compacted are %+v", r.Next(), len(index.Segments), compacted)
			}
			for _, n := range []int64{0, 2, 3, to - 1} {
				if _, _, err := r.Open(n); weir.KindOf(err) != weir.NotFound {
					t.Errorf("segment %d: error %v, want one of kind not-found", n, err)
				}
			}
			kill(r)
			r, err = Recover(dir)
			must(t, err)
		}
	}
	restart(0)
	part, data := recordedPart(want.tracks[0], to, 0)
	must(t, r.Begin(wallOf(0), false))
	must(t, r.Append(part, data))
	kill(r)
	r, err := Recover(dir)
	must(t, err)
	restart(1)
	body, size, err := r.Part(to, 0)
	if got := readAll(t, body, size, err); !bytes.Equal(got, data) {
		t.Error("the part is another")
	}
	must(t, r.Trim(to+5))
	restart(1)
	if left := take(t, dir); len(left) != 4 {
		t.Errorf("there are %d files, want the index, the journal, an init segment and a segment", len(left))
	}
}

// Protected segments stay, whatever is trimmed and compacted after them.
func TestProtect(t *testing.T) {
	for _, compacts := range []bool{false, true} {
		t.Run(fmt.Sprintf("compacts=%v", compacts), func(t *testing.T) { testProtect(t, compacts) })
	}
}

func testProtect(t *testing.T, compacts bool) {
	store, err := blob.NewDisk(t.TempDir())
	must(t, err)
	defer store.Close()
	dir := scratch(t)
	want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(dir, want.tracks[0])
	must(t, err)
	for range 3 {
		want.write(t, r, 2, true)
	}
	must(t, r.Protect())
	for range 5 {
		want.write(t, r, 2, true)
	}
	must(t, r.Trim(6))
	if compacts {
		must(t, compact(r))
	}
	check := func(what string) {
		t.Helper()
		for n := range r.Next() {
			body, _, err := r.Open(n)
			if gone := n >= 3 && n < 6; gone != (weir.KindOf(err) == weir.NotFound) {
				t.Errorf("%s: segment %d: error %v", what, n, err)
			}
			if err == nil {
				body.Close()
			}
		}
	}
	check("trimmed")
	want.write(t, r, 2, false)
	kill(r)
	for range 2 {
		r, err = Recover(dir)
		must(t, err)
		check("recovered")
	}
	if r.Next() != 9 {
		t.Errorf("next is segment %d, want 9", r.Next())
	}
	kept := cmaf.TrackIndex{Track: recordedTrack(0)}
	for n := range 3 {
		kept.Segments = append(kept.Segments, want.segments[n].Segment)
	}
	track, err := keep(t, r, store, "kept")
	must(t, err)
	if diff := cmp.Diff(kept, track.Index()); diff != "" {
		t.Errorf("index (-want +kept):\n%s", diff)
	}
	must(t, r.Trim(100))
	if _, _, err := r.Open(2); err != nil {
		t.Errorf("a protected segment is missing: %v", err)
	}
	if _, _, err := r.Open(7); weir.KindOf(err) != weir.NotFound {
		t.Errorf("what was not protected is there: error %v", err)
	}
}

// What is written after the end of a recording is no part of it, also after a crash and if nothing was
// trimmed.
func TestProtectEndsRecording(t *testing.T) {
	for _, before := range []int{0, 3} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			store, err := blob.NewDisk(t.TempDir())
			must(t, err)
			defer store.Close()
			dir := scratch(t)
			want := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
			r, err := Record(dir, want.tracks[0])
			must(t, err)
			for range before {
				want.write(t, r, 2, true)
			}
			must(t, r.Protect())
			for range 3 {
				want.write(t, r, 2, true)
			}
			kill(r)
			for range 2 {
				r, err = Recover(dir)
				must(t, err)
				must(t, r.Protect()) // it has ended already
				if n := r.Protected(); n != int64(before) || !r.Ended() {
					t.Errorf("after a crash the segments before %d are protected, ended: %v", n, r.Ended())
				}
			}
			want.write(t, r, 2, true)
			must(t, r.Close())
			track, err := keep(t, r, store, "kept")
			if before == 0 {
				if weir.KindOf(err) != weir.NotFound {
					t.Errorf("nothing was recorded: error %v, want one of kind not-found", err)
				}
				return
			}
			must(t, err)
			if n := len(track.Index().Segments); n != before {
				t.Errorf("the recording has %d segments, want %d", n, before)
			}
		})
	}
}

// On a full disk the index is not shortened, which is no error, and takes no space.
func TestForgetOnFullDisk(t *testing.T) {
	dir, want, r := threeSegments(t)
	for range compactAfter {
		want.write(t, r, 1, true)
	}
	want.first = len(want.segments) - 2
	must(t, r.Trim(int64(want.first)))
	temp := filepath.Join(dir, indexName+tempSuffix)
	must(t, os.Symlink("/dev/full", temp))
	must(t, r.Tidy())
	if _, err := os.Lstat(temp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
	if r.compacted.End != 0 {
		t.Errorf("%+v are compacted", r.compacted)
	}
	must(t, r.Tidy())
	if r.compacted.End == 0 {
		t.Error("with space nothing is compacted")
	}
	want.check(t, r, "compacted")
}
