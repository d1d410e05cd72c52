package work

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/ipfs"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

func (n *node) put(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := n.Media.Put(t.Context(), key, strings.NewReader("x"), 1, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func (n *node) has(t *testing.T, key string) bool {
	t.Helper()
	_, err := n.Media.Stat(t.Context(), key)
	if err != nil && weir.KindOf(err) != weir.NotFound {
		t.Fatal(err)
	}
	return err == nil
}

// TestPurgeAccount removes an account after the grace, with all its rows and bytes, also those in
// its own bucket, and nothing of another account.
func TestPurgeAccount(t *testing.T) {
	h := newFixture(t)
	n := newStudio(t, h)
	ctx, bob := t.Context(), n.account(t, "bob")
	bucket := s3test.Start(t)
	elsewhere := weir.ObjectStore{ID: weir.NewID(), UserID: n.caller.UserID, URL: weir.Secret(bucket.URL()), CreatedAt: 1}
	var hers, his []string
	for _, caller := range []*weir.Caller{n.caller, bob} {
		asset, task := n.asset(t, caller, weir.NewAsset{Name: "uploaded"})
		keys := []string{uploadFolder(asset.ID) + "/0", media.AssetFolder(asset.ID) + "/video", store.TaskDir(task.ID, 1) + "/x"}
		onIPFS := weir.IPFSUpload{ID: weir.NewID(), UserID: caller.UserID, TaskID: weir.NewID()}
		n.inTx(t, func(tx *store.Tx) (err error) { _, err = tx.OpenIPFSUpload(ctx, onIPFS); return err })
		keys = append(keys, ipfs.Folder(onIPFS.ID)+"/0.car")
		n.put(t, keys...)
		if caller == bob {
			his = append(his, keys...)
			continue
		}
		hers = append(hers, keys...)
		n.inTx(t, func(tx *store.Tx) error {
			_, err := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error { a.ObjectStoreID = elsewhere.ID; return nil })
			return errors.Join(err, tx.CreateObjectStore(ctx, &elsewhere))
		})
		outside := filepath.Join(bucket.Dir, asset.PlaybackID, "video")
		if err := os.MkdirAll(filepath.Dir(outside), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stream, session, air := n.onAir(t)
	recorded := media.AssetFolder(session.ID) + "/audio/0.m4s" // uploaded, and there is no asset yet
	n.put(t, recorded)
	hers = append(hers, recorded)

	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.DeleteUser(ctx, n.caller.UserID, n.Base, time.Now().Add(-n.DeleteGrace-time.Hour))
		return err
	})
	if err := n.purgeOld(ctx); err != nil {
		t.Fatal(err)
	}
	// While a session is open, nothing is removed.
	if err := n.purgeAccount(ctx, store.Job{}, n.caller.UserID); weir.KindOf(err) != weir.Busy {
		t.Errorf("purged while a session was open: %v", err)
	}
	for _, key := range append(hers, his...) {
		if !n.has(t, key) {
			t.Errorf("%s was deleted too early", key)
		}
	}
	worktest.Record(t, filepath.Join(n.dir, session.ID), 1)
	n.busy.Store(1 << 30) // the job of the recording waits
	n.close(t, air, 1, 5)
	wait.Until(t, "the account removed", func() bool {
		users, err := n.Store.Users(ctx, store.Query{Deleted: true})
		if err != nil {
			t.Fatal(err)
		}
		return len(users.Items) == 1
	})
	for _, key := range hers {
		if n.has(t, key) {
			t.Errorf("%s is left", key)
		}
	}
	if !empty(bucket.Dir) {
		t.Error("files in the account's bucket are left")
	}
	for _, key := range his {
		if !n.has(t, key) {
			t.Errorf("%s of another account was deleted", key)
		}
	}
	if _, err := n.Store.Stream(ctx, stream.ID); !weir.IsNotFound(err) {
		t.Errorf("the stream is left: %v", err)
	}
	// The job of the recording finds nothing to do, and leaves nothing.
	n.busy.Store(0)
	n.put(t, recorded)
	r := &Recordings{Store: n.Store, Media: n.Media, Log: n.Log}
	if err := r.Keep(ctx, store.Job{Ref: session.ID + "/here"}); err != nil || n.has(t, recorded) {
		t.Errorf("the job of a session that is gone: %v; its files are left: %v", err, n.has(t, recorded))
	}
	n.account(t, "ann") // the address is free
}

// TestRecordingOfBackup makes the asset of a session whose recording was finished before, and whose
// files are gone: a backup can have it so.
func TestRecordingOfBackup(t *testing.T) {
	n := newStudio(t, newFixture(t))
	_, session, air := n.onAir(t)
	folder := filepath.Join(n.dir, session.ID)
	worktest.Record(t, folder, 3)
	r := &Recordings{Store: n.Store, Media: n.Media, Base: n.Base, Log: n.Log, Folder: func(string) (string, error) { return folder, nil }}
	// It is kept, but the asset can't be written, because this is not a job.
	if err := r.Keep(t.Context(), store.Job{Ref: session.ID + "/here"}); err == nil {
		t.Fatal("the asset was made without a job")
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	n.close(t, air, 3, 100)
	n.recorded(t, session.ID, weir.RecordingReady)
	asset, err := n.Store.Asset(t.Context(), session.ID)
	if err != nil || asset.VideoSpec == nil || asset.VideoSpec.Duration != 3 {
		t.Errorf("asset %+v, %v", asset, err)
	}
}

// TestJoinedUpload starts a task again that was stopped while it deleted the parts of an upload.
func TestJoinedUpload(t *testing.T) {
	n := newFixture(t).node(t, "a")
	caller := n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip"})
	clip := made(t, short)
	for key, data := range map[string][]byte{sourceKey(asset.ID): clip, uploadFolder(asset.ID) + "/00000000000000000100": clip[100:]} {
		if err := n.Media.Put(t.Context(), key, bytes.NewReader(data), int64(len(data)), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateTask(t.Context(), task.ID, func(t *weir.Task) error { t.Queue(time.Now()); return nil })
		return err
	})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	if n.has(t, uploadFolder(asset.ID)+"/00000000000000000100") {
		t.Error("a part of the upload is left")
	}
}

// losing is a storage that loses the tracks of a source once.
type losing struct {
	blob.Store
	lose func(key string) bool
	lost atomic.Bool
}

func (l *losing) Get(ctx context.Context, key string, offset, length int64) (io.ReadCloser, blob.Info, error) {
	if folder, _, ok := strings.Cut(key, "/"+sourceTrack+"/"); ok && l.lose(key) && l.lost.CompareAndSwap(false, true) {
		if err := l.DeletePrefix(ctx, folder+"/"+sourceTrack); err != nil {
			return nil, blob.Info{}, err
		}
	}
	return l.Store.Get(ctx, key, offset, length)
}

// TestLostSource starts a task again whose source is gone from the storage: a backup has a task that
// ended while it was made, and not the files that were deleted then.
func TestLostSource(t *testing.T) {
	h := newFixture(t)
	var task atomic.Pointer[weir.Task]
	lossy := &losing{Store: h.media}
	h.options = func(o *Options) {
		o.Engine.Store = lossy
		st := o.Store
		lossy.lose = func(string) bool {
			if task.Load() == nil {
				return false
			}
			pieces, err := st.Pieces(t.Context(), task.Load().ID)
			return err == nil && len(pieces) > 0
		}
	}
	n := h.node(t, "a")
	bucket, server := s3test.Start(t), serve(t, plainClip(t))
	made := n.transcode(t, n.account(t, "ann"), server.URL+"/clip.mp4", bucket, func(made *weir.Task) { task.Store(made) })
	done := n.until(t, made.ID, phase(weir.TaskCompleted))
	if !lossy.lost.Load() {
		t.Error("the source was not lost")
	}
	decodes(t, filepath.Join(bucket.Dir, done.Output.Transcode.HLS.Path))
}
