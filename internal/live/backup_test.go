package live

import (
	"os"
	"path/filepath"
	"testing"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// TestBackup copies a recorded session that is on air. A node that starts with the copy has all of it.
func TestBackup(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	s.hub.beat(t.Context())
	b := Backup{Store: s.store, Dir: s.dir}
	size, err := b.Size(t.Context())
	if err != nil || size == 0 {
		t.Errorf("size %d, %v", size, err)
	}
	to := filepath.Join(t.TempDir(), "live")
	var copied int64
	n, err := b.Copy(t.Context(), to, func(n int64) { copied += n })
	if err != nil || n != 1 || copied < size {
		t.Fatalf("%d recordings were copied, %d of %d bytes, %v", n, copied, size, err)
	}
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(to, s.broadcast().SessionID())
	for _, name := range []string{media.RecordedVideo, media.RecordedAudio} {
		r, err := media.Recover(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		index, _, err := r.Index()
		if err != nil || len(index.Segments) != 3 || len(index.Segments[2].Parts) == 0 {
			t.Errorf("%s has %d segments, %v; want 3", name, len(index.Segments), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}

	// As another node would, with the same database: the copy is continued.
	s.stop()
	s.dir = to
	s.start()
	if err := s.publish().send(1); err != nil {
		t.Errorf("the copy can't be continued: %v", err)
	}
}

// TestBackupLeavesOut shows what is not copied: sessions that are not recorded, and recordings that
// are assets already, or became one while they were copied.
func TestBackupLeavesOut(t *testing.T) {
	for name, record := range map[string]bool{"not recorded": false, "an asset": true} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, record)
			if err := s.publish().send(5); err != nil {
				t.Fatal(err)
			}
			session := s.broadcast().SessionID()
			b, to := Backup{Store: s.store, Dir: s.dir}, filepath.Join(t.TempDir(), "live")
			asset := func(int64) {}
			if record {
				asset = func(int64) { // while it is copied
					s.write(func(tx *store.Tx) error {
						_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(st *weir.Stream) error { st.Deleted = true; return nil })
						return err
					})
					s.hub.beat(t.Context())
					if _, err := s.store.Asset(t.Context(), session); weir.IsNotFound(err) {
						a := weir.Asset{ID: session, UserID: s.stream.UserID, PlaybackID: "p", Status: weir.AssetStatus{Phase: weir.AssetReady}}
						s.write(func(tx *store.Tx) error { return tx.CreateAsset(t.Context(), &a) })
					}
				}
			}
			if n, err := b.Copy(t.Context(), to, asset); err != nil || n > 0 && !record {
				t.Errorf("%d recordings were copied, %v", n, err)
			}
			if left, _ := filepath.Glob(filepath.Join(to, "*")); len(left) > 0 {
				t.Errorf("the backup has %v", left)
			}
			if _, err := os.Stat(filepath.Join(s.dir, session)); err != nil {
				t.Errorf("the original: %v", err)
			}
		})
	}
}
