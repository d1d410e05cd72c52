package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func newUpload(userID, taskID string) weir.IPFSUpload {
	now := weir.At(time.Now())
	return weir.IPFSUpload{
		ID: weir.NewID(), UserID: userID, ProjectID: "p1", TaskID: taskID, Space: "did:key:z6MkSpace", Remote: weir.IPFSLocal,
		Run: 1, CreatedAt: now, UpdatedAt: now,
	}
}

// openUpload creates an upload with blocks, whose hashes are the given texts.
func openUpload(t *testing.T, st *Store, u weir.IPFSUpload, hashes ...string) weir.IPFSUpload {
	t.Helper()
	ctx := t.Context()
	if err := st.Tx(ctx, func(tx *Tx) (err error) { u, err = tx.OpenIPFSUpload(ctx, u); return err }); err != nil {
		t.Fatal(err)
	}
	var blocks []weir.IPFSBlock
	for i, hash := range hashes {
		blocks = append(blocks, weir.IPFSBlock{Hash: []byte(hash), Shard: 1, Offset: int64(100 * i), Size: 7})
	}
	if err := st.AddIPFSBlocks(ctx, u.ID, blocks); err != nil {
		t.Fatal(err)
	}
	return u
}

func completeUpload(t *testing.T, st *Store, id, root string) weir.IPFSUpload {
	t.Helper()
	ctx := t.Context()
	var u weir.IPFSUpload
	if err := st.Tx(ctx, func(tx *Tx) (err error) { u, err = tx.CompleteIPFSUpload(ctx, id, root, time.Now()); return err }); err != nil {
		t.Fatal(err)
	}
	return u
}

func placesOf(t *testing.T, st *Store, hash string) (uploads []string) {
	t.Helper()
	places, err := st.IPFSBlocks(t.Context(), []byte(hash))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		uploads = append(uploads, p.Upload)
	}
	return uploads
}

// TestIPFSUpload: an upload is opened once, its blocks are found when it is complete, and it goes with
// its blocks.
func TestIPFSUpload(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		createUser(t, st, "ann", nil)
		u := openUpload(t, st, newUpload("ann", "t1"), "a", "b")
		if again := openUpload(t, st, newUpload("ann", "t1")); again.ID != u.ID {
			t.Errorf("the second attempt opens upload %s, want %s", again.ID, u.ID)
		}
		if other := openUpload(t, st, weir.IPFSUpload{ID: weir.NewID(), UserID: "ann", TaskID: "t1", Run: 1, Part: "metadata"}); other.ID == u.ID {
			t.Error("another part of the task has the same upload")
		}
		if got := placesOf(t, st, "a"); got != nil {
			t.Errorf("a block of an upload that is not complete is in %v", got)
		}
		done := completeUpload(t, st, u.ID, "bafyroot")
		got, err := st.IPFSUpload(ctx, u.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(done, got); diff != "" || !got.Complete || got.Root != "bafyroot" {
			t.Errorf("upload differs (-want +got):\n%s", diff)
		}
		// A shard that is made again has its blocks at other places.
		if err := st.AddIPFSBlocks(ctx, u.ID, []weir.IPFSBlock{{Hash: []byte("b"), Shard: 2, Offset: 5, Size: 9}}); err != nil {
			t.Fatal(err)
		}
		places, err := st.IPFSBlocks(ctx, []byte("b"))
		want := []weir.IPFSBlockPlace{{Upload: u.ID, IPFSBlock: weir.IPFSBlock{Hash: []byte("b"), Shard: 2, Offset: 5, Size: 9}}}
		if diff := cmp.Diff(want, places); diff != "" || err != nil {
			t.Errorf("places of a block (-want +got), %v:\n%s", err, diff)
		}
		for filter, want := range map[Filter]int{{"cid", "bafyroot"}: 1, {"space", u.Space}: 1, {"taskId", "t1"}: 1, {"taskId", "t2"}: 0, {"remote", "kubo"}: 0} {
			page, err := st.CompleteIPFSUploads(ctx, Query{UserID: "ann", Filters: []Filter{filter}})
			if err != nil || len(page.Items) != want {
				t.Errorf("filter %s: %d uploads, %v; want %d", filter.ID, len(page.Items), err, want)
			}
		}
		if err := st.ForgetIPFSUpload(ctx, u.ID); err != nil {
			t.Fatal(err)
		}
		if n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM ipfs_block"); err != nil || n != 0 {
			t.Errorf("%d blocks are left, %v", n, err)
		}
		if _, err := st.IPFSUpload(ctx, u.ID); !weir.IsNotFound(err) {
			t.Errorf("the upload is still there: %v", err)
		}
	})
}

// TestManyIPFSBlocks: more blocks than one statement writes or deletes.
func TestManyIPFSBlocks(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		createUser(t, st, "ann", nil)
		var hashes []string
		for i := range 10*blocksAtOnce + 1 {
			hashes = append(hashes, fmt.Sprint("block ", i))
		}
		u := openUpload(t, st, newUpload("ann", "t1"), hashes...)
		completeUpload(t, st, u.ID, "bafyroot")
		for _, hash := range []string{hashes[0], hashes[blocksAtOnce], hashes[len(hashes)-1]} {
			if got := placesOf(t, st, hash); len(got) != 1 {
				t.Errorf("%s is in %v", hash, got)
			}
		}
		if err := st.ForgetIPFSUpload(t.Context(), u.ID); err != nil {
			t.Fatal(err)
		}
		if n, err := one(t.Context(), st.conn, scanInt, "SELECT count(*) FROM ipfs_block"); err != nil || n != 0 {
			t.Errorf("%d blocks are left, %v", n, err)
		}
	})
}

// TestSameIPFSUpload: an upload replaces an earlier one with the same root, but only of the same account,
// project, space and asset.
func TestSameIPFSUpload(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		for _, name := range []string{"ann", "bob"} {
			createUser(t, st, name, nil)
		}
		var ids []string
		for i, change := range []func(*weir.IPFSUpload){
			func(*weir.IPFSUpload) {},
			func(u *weir.IPFSUpload) { u.UserID = "bob" },
			func(u *weir.IPFSUpload) { u.ProjectID = "p2" },
			func(u *weir.IPFSUpload) { u.Space = "did:key:z6MkOther" },
			func(u *weir.IPFSUpload) { u.AssetID = "a1" },
		} {
			u := newUpload("ann", fmt.Sprint("t", i))
			change(&u)
			u = openUpload(t, st, u, "a")
			completeUpload(t, st, u.ID, "bafyroot")
			ids = append(ids, u.ID)
		}
		if got := placesOf(t, st, "a"); len(got) != 5 || got[4] != ids[4] {
			t.Errorf("the block is in %v, want all of %v and the copy of the asset last", got, ids)
		}
		again := openUpload(t, st, newUpload("ann", "again"), "a")
		completeUpload(t, st, again.ID, "bafyroot")
		if first, err := st.IPFSUpload(ctx, ids[0]); err != nil || !first.Deleted {
			t.Errorf("the earlier upload is deleted: %v, %v", first.Deleted, err)
		}
		if got := placesOf(t, st, "a"); len(got) != 5 {
			t.Errorf("the block is in %v, want 5 uploads", got)
		}
		// The owner of the space removes those of all accounts.
		if err := st.Tx(ctx, func(tx *Tx) error {
			return tx.RemoveFromSpace(ctx, again.Space, "bafyroot", weir.NewEventBatch(weir.Base{}, time.Now()))
		}); err != nil {
			t.Fatal(err)
		}
		if got := placesOf(t, st, "a"); len(got) != 1 || got[0] != ids[3] {
			t.Errorf("the block is in %v, want that of the other space, %s", got, ids[3])
		}
		err := st.Tx(ctx, func(tx *Tx) error {
			return tx.RemoveFromSpace(ctx, again.Space, "bafyroot", weir.NewEventBatch(weir.Base{}, time.Now()))
		})
		if !weir.IsNotFound(err) {
			t.Errorf("removing it again: %v", err)
		}
		deleteUser(t, st, "ann")
		if got := placesOf(t, st, "a"); got != nil {
			t.Errorf("blocks of a deleted account are in %v", got)
		}
	})
}

// TestIPFSUploadQuota: uploads in weir's own storage count, and are refused where there is no room.
func TestIPFSUploadQuota(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		createUser(t, st, "ann", func(u *weir.User) { u.SetQuota(weir.Quota{weir.Storage: new(int64(1000))}) })
		reserve := func(u weir.IPFSUpload, bytes int64) error {
			return st.Tx(ctx, func(tx *Tx) error { return tx.ReserveIPFSUpload(ctx, u.ID, bytes) })
		}
		u := openUpload(t, st, newUpload("ann", "t1"))
		for range 2 { // another attempt does not count again
			if err := reserve(u, 600); err != nil {
				t.Fatal(err)
			}
		}
		second := openUpload(t, st, newUpload("ann", "t2"))
		if err := reserve(second, 600); weir.KindOf(err) != weir.Denied {
			t.Errorf("more than the quota: %v", err)
		}
		elsewhere := newUpload("ann", "t3")
		elsewhere.Remote, elsewhere.Size = weir.IPFSKubo, 1<<40
		openUpload(t, st, elsewhere)
		if used, err := st.Used(ctx, "ann", weir.Storage); err != nil || used != 600 {
			t.Errorf("the account uses %d bytes, %v; want 600", used, err)
		}
	})
}
