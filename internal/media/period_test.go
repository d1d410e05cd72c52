package media

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// TestPeriods loses the machine that began a broadcast: its finished segments are in the storage,
// another machine continues, and the asset has both periods.
func TestPeriods(t *testing.T) {
	root := t.TempDir()
	store, err := blob.NewDisk(filepath.Join(root, "media"))
	must(t, err)
	defer store.Close()
	const prefix = "asset/one"
	lost, dirs := filepath.Join(root, "lost"), []string{filepath.Join(root, "first"), filepath.Join(root, "second")}
	if _, err := Restore(t.Context(), store, prefix, 0, dirs[0]); weir.KindOf(err) != weir.NotFound {
		t.Errorf("nothing is there: error %v, want one of kind not-found", err)
	}

	first := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(filepath.Join(lost, RecordedVideo), first.tracks[0])
	must(t, err)
	var is Uploaded
	upload := func() {
		t.Helper()
		must(t, r.Upload(t.Context(), store, prefix, 0, RecordedVideo, &is))
	}
	upload() // there is nothing yet
	growing := NewStoredPeriod(store, prefix, 0, RecordedVideo)
	for n := range 2 {
		must(t, growing.Load(t.Context()))
		if segments, _ := growing.Segments(); len(segments) != n {
			t.Errorf("%d segments are stored, want %d", len(segments), n)
		}
		if n == 0 {
			first.write(t, r, 3, true)
			upload()
		}
	}
	first.write(t, r, 1, true)
	first.change(t, r, recordedTrack(1))
	first.write(t, r, 2, true)
	upload()
	upload()
	// From here on it is another process, which does not know the state of the upload.
	kill(r)
	r, err = Recover(filepath.Join(lost, RecordedVideo))
	must(t, err)
	is = Uploaded{}
	first.write(t, r, 2, true)
	upload()
	first.write(t, r, 2, true)
	upload()
	first.write(t, r, 2, false) // is never uploaded
	kill(r)
	must(t, os.RemoveAll(lost))
	first.segments = first.segments[:5]

	stored := NewStoredPeriod(store, prefix, 0, RecordedVideo)
	for range 2 {
		must(t, stored.Load(t.Context()))
		segments, inits := stored.Segments()
		if diff := cmp.Diff([]int{0, 0, 1, 1, 1}, inits); diff != "" || len(stored.Tracks()) != 2 {
			t.Errorf("%d tracks, segments need (-want +got):\n%s", len(stored.Tracks()), diff)
		}
		for n, want := range first.segments {
			if diff := cmp.Diff(want.Segment, segments[n]); diff != "" {
				t.Errorf("segment %d differs (-want +got):\n%s", n, diff)
			}
		}
	}

	for range 2 {
		if n, err := Restore(t.Context(), store, prefix, 0, dirs[0]); n != 5 || err != nil {
			t.Errorf("%d segments were restored, error %v, want 5", n, err)
		}
	}
	restored, err := Recover(filepath.Join(dirs[0], RecordedVideo))
	must(t, err)
	first.check(t, restored, "restored")
	must(t, restored.Close())

	second := recorded{tracks: []cmaf.Track{recordedTrack(2)}}
	r, err = Record(filepath.Join(dirs[1], RecordedVideo), second.tracks[0])
	must(t, err)
	second.write(t, r, 3, true)
	is = Uploaded{}
	must(t, r.Upload(t.Context(), store, prefix, 1, RecordedVideo, &is))
	second.write(t, r, 2, true)
	must(t, r.Close())

	want := cmaf.TrackIndex{Track: recordedTrack(0), Changes: []cmaf.Change{{First: 2, Track: recordedTrack(1)}, {First: 5, Track: recordedTrack(2)}}}
	var bodies [][]byte
	for _, s := range append(first.segments, second.segments...) {
		want.Segments, bodies = append(want.Segments, s.Segment), append(bodies, s.data)
	}
	want.Segments[5].Discontinuity = true
	for range 2 {
		_, err := KeepRecording(t.Context(), store, prefix, dirs...)
		must(t, err)
		track := openTrack(t, store, prefix+"/"+RecordedVideo)
		if diff := cmp.Diff(want, track.Index()); diff != "" {
			t.Errorf("index differs (-want +got):\n%s", diff)
		}
		for n, data := range bodies {
			body, _, err := track.Segment(t.Context(), n)
			must(t, err)
			got, err := io.ReadAll(body)
			body.Close()
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("segment %d is another, error %v", n, err)
			}
		}
	}
	for info, err := range store.List(t.Context(), prefix+"/"+periodsFolder) {
		t.Errorf("%s is left, error %v", info.Key, err)
	}
}

// A machine may be lost at any moment of an upload: the segments that are in the storage can be used.
func TestUploadBreaksOff(t *testing.T) {
	root := t.TempDir()
	disk, err := blob.NewDisk(filepath.Join(root, "media"))
	must(t, err)
	defer disk.Close()
	store := &failingStore{Store: disk, puts: 3}
	all := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(filepath.Join(root, "track"), all.tracks[0])
	must(t, err)
	for range 3 {
		all.write(t, r, 2, true)
	}
	if err := r.Upload(t.Context(), store, "asset/one", 0, RecordedVideo, &Uploaded{}); err == nil {
		t.Fatal("the storage took everything")
	}
	must(t, r.Close())
	if n, err := Restore(t.Context(), store, "asset/one", 0, filepath.Join(root, "restored")); n != 2 || err != nil {
		t.Errorf("%d segments were restored, error %v, want 2", n, err)
	}
}

// failingStore fails after so many objects.
type failingStore struct {
	blob.Store
	puts int
}

func (s *failingStore) Path(string) (string, bool) { return "", false }

func (s *failingStore) Put(ctx context.Context, key string, r io.Reader, size int64, o blob.PutOptions) error {
	if s.puts--; s.puts < 0 {
		return errors.New("the storage is full")
	}
	return s.Store.Put(ctx, key, r, size, o)
}

// TestStoredPeriodGrows reads a period while another node records it. Its index and journal have few
// objects, however long it is.
func TestStoredPeriodGrows(t *testing.T) {
	root := t.TempDir()
	store, err := blob.NewDisk(filepath.Join(root, "media"))
	must(t, err)
	defer store.Close()
	const prefix, segments, every = "asset/one", 400, 40
	all := recorded{tracks: []cmaf.Track{recordedTrack(0)}}
	r, err := Record(filepath.Join(root, "track"), all.tracks[0])
	must(t, err)
	var is Uploaded
	growing := NewStoredPeriod(store, prefix, 1, RecordedVideo)
	for n := range segments {
		all.write(t, r, 1, true)
		if n%every == 0 {
			must(t, r.Upload(t.Context(), store, prefix, 1, RecordedVideo, &is))
		}
		if n%(3*every) == 0 {
			must(t, growing.Load(t.Context()))
			if got, inits := growing.Segments(); len(got) != n+1 || len(inits) != n+1 {
				t.Fatalf("%d segments need %d init segments, want %d", len(got), len(inits), n+1)
			}
		}
	}
	must(t, r.Upload(t.Context(), store, prefix, 1, RecordedVideo, &is))
	must(t, r.Close())
	fresh := NewStoredPeriod(store, prefix, 1, RecordedVideo)
	for _, period := range []*StoredPeriod{growing, fresh} {
		must(t, period.Load(t.Context()))
		got, _ := period.Segments()
		for n, want := range all.segments {
			if diff := cmp.Diff(want.Segment, got[n]); diff != "" {
				t.Fatalf("segment %d differs (-want +got):\n%s", n, diff)
			}
		}
	}
	ranges := 0
	for _, folder := range []string{logPrefix(prefix, 1, RecordedVideo, indexName), logPrefix(prefix, 1, RecordedVideo, journalName)} {
		for _, err := range store.List(t.Context(), folder) {
			must(t, err)
			ranges++
		}
	}
	if ranges < 3 || ranges > 10 {
		t.Errorf("the index of %d segments has %d ranges", segments, ranges)
	}
}
