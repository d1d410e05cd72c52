package store

import (
	"context"
	"reflect"
	"strings"
	"time"

	"weir/internal/weir"
)

type assetHidden struct {
	StaticMP4     bool          `json:"staticMp4,omitempty"`
	Sign          bool          `json:"sign,omitempty"`
	ObjectStoreID string        `json:"objectStoreId,omitempty"`
	Deleted       bool          `json:"deleted,omitempty"`
	DeletedAt     weir.Millis   `json:"deletedAt,omitempty"`
	Files         []weir.File   `json:"files,omitempty"`
	Stored        int64         `json:"stored,omitempty"`
	Tracks        []trackHidden `json:"tracks,omitempty"`
}

// trackHidden is a track with what the API does not show of it.
type trackHidden struct {
	weir.AssetTrack
	Object  string  `json:"object,omitempty"`
	Size    int64   `json:"size,omitempty"`
	Start   float64 `json:"start,omitempty"`
	Charset string  `json:"charset,omitempty"`
}

func hideTracks(tracks []weir.AssetTrack) (hidden []trackHidden) {
	for _, t := range tracks {
		hidden = append(hidden, trackHidden{t, t.Object, t.Size, t.Start, t.Charset})
	}
	return hidden
}

func unhideTracks(hidden []trackHidden) (tracks []weir.AssetTrack) {
	for _, h := range hidden {
		t := h.AssetTrack
		t.Object, t.Size, t.Start, t.Charset = h.Object, h.Size, h.Start, h.Charset
		tracks = append(tracks, t)
	}
	return tracks
}

// trackSources is the sealed part of an asset: where its tracks are to be fetched from, by their ids.
type trackSources map[string]weir.TrackSource

func sourcesOf(a *weir.Asset) any {
	sources := trackSources{}
	for _, t := range a.Tracks {
		if t.Source != (weir.TrackSource{}) {
			sources[t.ID] = t.Source
		}
	}
	return &sources
}

func restoreSources(a *weir.Asset, secrets any) {
	sources := *secrets.(*trackSources)
	for i, t := range a.Tracks {
		a.Tracks[i].Source = sources[t.ID]
	}
}

var assets = table[weir.Asset]{
	name:    "asset",
	deleted: true,
	project: true,
	order:   "updatedAt-true,createdAt-true",
	columns: func(_ *queries, a *weir.Asset) []column {
		return []column{
			{"id", a.ID},
			{"user_id", a.UserID},
			{"project_id", a.ProjectID},
			{"deleted", a.Deleted},
			{"created_at", int64(a.CreatedAt)},
			{"updated_at", int64(a.Status.UpdatedAt)},
			{"name_lower", strings.ToLower(a.Name)},
			{"creator_id", a.CreatorID.String()},
			{"playback_id", a.PlaybackID},
			{"phase", string(a.Status.Phase)},
			{"cid", assetCID(a)},
			{"nft_metadata_cid", nftMetadataCID(a)},
			{"object_store_id", a.ObjectStoreID},
			{"source_type", a.Source.Type},
			{"source_url", a.Source.URL},
			{"source_session_id", a.Source.SessionID},
			{"source_asset_id", a.Source.AssetID},
			{"source_playback_id", a.Source.PlaybackID},
			{"stored", a.Stored},
		}
	},
	search: true,
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name_lower", searchField}, "objectStoreId": {"object_store_id", textField},
		"createdAt": {"created_at", numberField}, "updatedAt": {"updated_at", numberField}, "userId": {"user_id", textField},
		"creatorId": {"creator_id", textField}, "playbackId": {"playback_id", textField}, "playbackRecordingId": {"''", textField},
		"projectId": {"project_id", textField}, "phase": {"phase", textField}, "user.email": {"user_id", emailField},
		"cid": {"cid", textField}, "nftMetadataCid": {"nft_metadata_cid", textField}, "sourceUrl": {"source_url", textField},
		"sourceSessionId": {"source_session_id", textField}, "sourceAssetId": {"source_asset_id", textField},
		"sourceType": {"source_type", textField}, "sourcePlaybackId": {"source_playback_id", textField},
		"sourceStreamId": {"source_session_id", streamField},
	},
	hidden: func(a *weir.Asset) any {
		return &assetHidden{a.StaticMP4, a.Sign, a.ObjectStoreID, a.Deleted, a.DeletedAt, a.Files, a.Stored, hideTracks(a.Tracks)}
	},
	unhide: func(a *weir.Asset, hidden any) {
		h := hidden.(*assetHidden)
		a.StaticMP4, a.ObjectStoreID, a.Deleted, a.DeletedAt, a.Files = h.StaticMP4, h.ObjectStoreID, h.Deleted, h.DeletedAt, h.Files
		a.Sign, a.Stored, a.Tracks = h.Sign, h.Stored, unhideTracks(h.Tracks)
	},
	secrets: sourcesOf,
	restore: restoreSources,
}

// assetCID returns the id of an asset on IPFS, or that of its source.
func assetCID(a *weir.Asset) string {
	if a.Storage != nil && a.Storage.IPFS != nil && a.Storage.IPFS.CID != "" {
		return a.Storage.IPFS.CID
	}
	if path, ok := strings.CutPrefix(a.Source.URL, "ipfs://"); ok {
		cid, _, _ := strings.Cut(path, "/")
		return cid
	}
	return ""
}

func nftMetadataCID(a *weir.Asset) string {
	if a.Storage == nil || a.Storage.IPFS == nil || a.Storage.IPFS.NFTMetadata == nil {
		return ""
	}
	return a.Storage.IPFS.NFTMetadata.CID
}

// Asset returns the asset with the id, also one that was deleted.
func (q *queries) Asset(ctx context.Context, id string) (weir.Asset, error) {
	return assets.get(ctx, q, id)
}

// Assets returns a page of assets.
func (q *queries) Assets(ctx context.Context, query Query) (Page[weir.Asset], error) {
	return assets.list(ctx, q, query)
}

// AssetByPlaybackID returns the asset that is played under the id.
func (q *queries) AssetByPlaybackID(ctx context.Context, playbackID string) (weir.Asset, error) {
	return first(assets.where(ctx, q, "playback_id = $1", playbackID))
}

// AssetByCID returns the asset of a project with that id on IPFS.
func (q *queries) AssetByCID(ctx context.Context, userID, projectID, cid string) (weir.Asset, error) {
	return first(assets.where(ctx, q, "cid = $1 AND user_id = $2 AND project_id = $3 AND deleted = $4 ORDER BY created_at", cid, userID, projectID, false))
}

// RecordingAssets returns the recordings of sessions, by the id that both share.
func (q *queries) RecordingAssets(ctx context.Context, sessionIDs []string) (map[string]weir.Asset, error) {
	return assets.byID(ctx, q, sessionIDs)
}

// AssetsBeingImported returns a user's assets that are being imported from the URL and were created
// since then, the latest first.
func (q *queries) AssetsBeingImported(ctx context.Context, userID, projectID, url string, since weir.Millis) ([]weir.Asset, error) {
	return assets.where(ctx, q, `source_url = $1 AND user_id = $2 AND project_id = $3 AND created_at >= $4
		AND phase IN ('waiting', 'processing') AND deleted = $5 ORDER BY created_at DESC, id`, url, userID, projectID, int64(since), false)
}

// CreateAsset writes a new asset. It gets another playback id if that is taken.
func (tx *Tx) CreateAsset(ctx context.Context, a *weir.Asset) error {
	if err := tx.freePlaybackID(ctx, a.ID, &a.PlaybackID); err != nil {
		return err
	}
	return assets.insert(ctx, tx, a)
}

// UpdateAsset changes an asset.
func (tx *Tx) UpdateAsset(ctx context.Context, id string, change func(*weir.Asset) error) (weir.Asset, error) {
	var before weir.Asset
	a, err := assets.update(ctx, tx, id, func(a *weir.Asset) error {
		before = *a
		return change(a)
	})
	if err == nil && (a.Deleted != before.Deleted || !reflect.DeepEqual(a.PlaybackPolicy, before.PlaybackPolicy) || !reflect.DeepEqual(a.Tracks, before.Tracks)) {
		err = tx.forget(ctx, a.PlaybackID)
	}
	return a, err
}

// FailAsset marks the asset of a failed task as failed. An asset that is ready stays ready: the
// task would only have added to it.
func (tx *Tx) FailAsset(ctx context.Context, id, message string, events *weir.EventBatch) error {
	failed := false
	a, err := tx.UpdateAsset(ctx, id, func(a *weir.Asset) error {
		if failed = a.Status.Phase != weir.AssetReady && !a.Deleted; failed {
			a.Fail(message, events.Now)
		}
		return nil
	})
	if err == nil && failed {
		events.Asset(weir.AssetUpdated, a)
		events.Asset(weir.AssetFailedEvent, a)
	}
	return ignoreNotFound(err)
}

// PurgeDeletedAssets purges the assets that were deleted before then: they can't be restored any
// more, and jobs delete their bytes. It returns how many there were.
func (tx *Tx) PurgeDeletedAssets(ctx context.Context, before, now time.Time, limit int) (int, error) {
	due, err := assets.where(ctx, &tx.queries, "phase = 'deleting' AND updated_at < $1 ORDER BY updated_at LIMIT $2"+tx.store.engine.forUpdate(), weir.At(before), limit)
	if err != nil {
		return 0, err
	}
	for _, a := range due {
		if _, err := assets.update(ctx, tx, a.ID, func(a *weir.Asset) error { return a.Purge(now) }); err != nil {
			return 0, err
		}
		if err := tx.Enqueue(ctx, JobPurge, purgeAsset+a.ID); err != nil {
			return 0, err
		}
	}
	return len(due), nil
}

// PurgeUpload enqueues the deletion of an asset's partial upload. It runs a little later, because
// its last part may still be on its way to the storage.
func (tx *Tx) PurgeUpload(ctx context.Context, id string) error {
	return tx.enqueueAt(ctx, JobPurge, purgeAsset+id, time.Now().Add(purgeAfter))
}

// ExpiredUploads returns assets that were created before then and whose bytes have not arrived.
func (q *queries) ExpiredUploads(ctx context.Context, before time.Time, limit int) ([]weir.Asset, error) {
	return assets.where(ctx, q, "phase = 'uploading' AND created_at < $1 ORDER BY created_at LIMIT $2", weir.At(before), limit)
}
