package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

// newAsset returns an asset of u1 that is to be made from the URL, or uploaded.
func newAsset(t *testing.T, url string) weir.Asset {
	t.Helper()
	a, _ := newImport(t, weir.NewAsset{Name: "asset", URL: url})
	return a
}

func newImport(t *testing.T, n weir.NewAsset) (weir.Asset, weir.Task) {
	t.Helper()
	a, task, err := n.Asset(&weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a, task
}

func createAssets(t *testing.T, st *Store, assets ...*weir.Asset) {
	t.Helper()
	ctx := t.Context()
	if err := st.Tx(ctx, func(tx *Tx) error {
		for _, a := range assets {
			if err := tx.CreateAsset(ctx, a); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAsset(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		a := newAsset(t, "https://example.com/a.mp4")
		a.StaticMP4, a.ObjectStoreID, a.Files = true, "os", []weir.File{{Type: "static_transcoded_mp4", Path: "a.mp4", Size: 7}}
		createAssets(t, st, &a)
		got, err := st.Asset(ctx, a.ID)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(a, got); diff != "" {
			t.Errorf("asset differs (-want +got):\n%s", diff)
		}
		if got, err := st.AssetByPlaybackID(ctx, a.PlaybackID); err != nil || got.ID != a.ID {
			t.Errorf("AssetByPlaybackID = %q, %v; want %q", got.ID, err, a.ID)
		}
		if _, err := st.AssetByPlaybackID(ctx, "nope"); weir.KindOf(err) != weir.NotFound {
			t.Errorf("AssetByPlaybackID of an unknown id: %v, want not found", err)
		}
		if err := st.Tx(ctx, func(tx *Tx) error {
			_, err := tx.UpdateAsset(ctx, a.ID, func(a *weir.Asset) error {
				a.Delete(time.Now())
				return nil
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if got, err := st.Asset(ctx, a.ID); err != nil || !got.Deleted || got.DeletedAt == 0 {
			t.Errorf("deleted asset: %+v, %v; want it marked", got, err)
		}
		for deleted, want := range map[bool]int{false: 0, true: 1} {
			page, err := st.Assets(ctx, Query{UserID: "u1", ProjectID: "p1", Deleted: deleted})
			if err != nil || len(page.Items) != want {
				t.Errorf("list with deleted %v: %d assets, %v; want %d", deleted, len(page.Items), err, want)
			}
		}
	})
}

// TestAssetPlaybackID checks that a playback id is unique over streams and assets.
func TestAssetPlaybackID(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		s := newStream(t, "s")
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) }); err != nil {
			t.Fatal(err)
		}
		a, b := newAsset(t, ""), newAsset(t, "")
		a.PlaybackID = s.PlaybackID
		createAssets(t, st, &a)
		b.PlaybackID = a.PlaybackID
		createAssets(t, st, &b)
		if a.PlaybackID == s.PlaybackID || b.PlaybackID == a.PlaybackID {
			t.Errorf("playback ids %q (stream), %q and %q are not unique", s.PlaybackID, a.PlaybackID, b.PlaybackID)
		}
	})
}

func TestAssetFilters(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		plain, ipfs, clip := newAsset(t, "https://example.com/a.mp4"), newAsset(t, "ipfs://bafy/a.mp4"), newAsset(t, "")
		stored := newAsset(t, "https://example.com/b.mp4")
		stored.Storage = &weir.AssetStorage{IPFS: &weir.IPFSStorage{CID: "bafz", NFTMetadata: &weir.NFTMetadata{CID: "bafn"}}}
		stored.CreatorID = &weir.CreatorID{Type: "unverified", Value: "cleo"}
		clip.Name = "A Clip"
		clip.Source = weir.AssetSource{Type: weir.SourceClip, SessionID: "session", PlaybackID: "playback", AssetID: "asset"}
		createAssets(t, st, &plain, &ipfs, &clip, &stored)
		for _, tt := range []struct {
			filter Filter
			want   string
		}{
			{Filter{"sourceUrl", "https://example.com/a.mp4"}, plain.ID},
			{Filter{"cid", "bafy"}, ipfs.ID},
			{Filter{"cid", "bafz"}, stored.ID},
			{Filter{"nftMetadataCid", "bafn"}, stored.ID},
			{Filter{"creatorId", "cleo"}, stored.ID},
			{Filter{"sourceType", "clip"}, clip.ID},
			{Filter{"sourceSessionId", "session"}, clip.ID},
			{Filter{"sourcePlaybackId", "playback"}, clip.ID},
			{Filter{"sourceAssetId", "asset"}, clip.ID},
			{Filter{"name", "a cl"}, clip.ID},
			{Filter{"phase", "uploading"}, clip.ID},
		} {
			page, err := st.Assets(t.Context(), Query{UserID: "u1", Filters: []Filter{tt.filter}})
			if err != nil || len(page.Items) != 1 || page.Items[0].ID != tt.want {
				t.Errorf("filter %v: %+v, %v; want %s", tt.filter, page.Items, err, tt.want)
			}
		}
		if a, err := st.AssetByCID(t.Context(), "u1", "p1", "bafz"); err != nil || a.ID != stored.ID {
			t.Errorf("AssetByCID = %q, %v; want %q", a.ID, err, stored.ID)
		}
		for _, other := range [][2]string{{"u2", "p1"}, {"u1", "p2"}} {
			if _, err := st.AssetByCID(t.Context(), other[0], other[1], "bafz"); weir.KindOf(err) != weir.NotFound {
				t.Errorf("AssetByCID of user %s, project %s: %v, want not found", other[0], other[1], err)
			}
		}
	})
}

func TestAssetsBeingImported(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), weir.At(time.Now())
		const url = "https://example.com/a.mp4"
		old, older, ready, deleted, other := newAsset(t, url), newAsset(t, url), newAsset(t, url), newAsset(t, url), newAsset(t, url)
		old.CreatedAt, older.CreatedAt = now-1000, now-2000
		ready.Status.Phase = weir.AssetReady
		deleted.Delete(now.Time())
		other.ProjectID = "p2"
		tooOld := newAsset(t, url)
		tooOld.CreatedAt = now - 10_000
		createAssets(t, st, &older, &old, &ready, &deleted, &other, &tooOld)
		found, err := st.AssetsBeingImported(ctx, "u1", "p1", url, now-5000)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range found {
			got = append(got, a.ID)
		}
		if diff := cmp.Diff([]string{old.ID, older.ID}, got); diff != "" {
			t.Errorf("assets (-want +got):\n%s", diff)
		}
	})
}
