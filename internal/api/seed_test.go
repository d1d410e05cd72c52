package api

import (
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// seed puts what only the media engines make into the store: a stream of ann's
// with a finished, recorded session, its recording, a clip of it, an asset with
// its completed task, and views. Their ids are in the variables stream, session,
// clip, asset, task, and stream.playback, asset.playback, clip.playback.
func (f *fixture) seed(t testing.TB) {
	t.Helper()
	ctx, now := t.Context(), time.Now()
	caller := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"], TokenName: "ann's key"}
	stream, err := weir.NewStream{Name: "seeded", Record: true}.Stream(caller, now)
	if err != nil {
		t.Fatal(err)
	}
	stream.LastSeen = weir.At(now)
	counters := weir.Counters{SourceSegments: 30, SourceSegmentsDuration: 60, SourceBytes: 1 << 20}
	stream.Counters = counters
	session := weir.Session{
		ID: weir.NewID(), Kind: "session", Name: "video+" + stream.PlaybackID, ParentID: stream.ID, UserID: caller.UserID, ProjectID: caller.ProjectID,
		PlaybackID: stream.PlaybackID, CreatedAt: weir.At(now.Add(-time.Minute)), LastSeen: weir.At(now), Record: true, Profiles: stream.Profiles, Counters: counters,
	}
	recording := seededAsset(caller, now, session.ID, "recording", weir.AssetSource{Type: weir.SourceRecording, SessionID: session.ID})
	clip := seededAsset(caller, now, weir.NewID(), "clip", weir.AssetSource{Type: weir.SourceClip, SessionID: session.ID, PlaybackID: stream.PlaybackID})
	asset := seededAsset(caller, now, weir.NewID(), "ready", weir.AssetSource{Type: weir.SourceURL, URL: "https://example.com/a.mp4"})
	task := weir.Task{
		ID: weir.NewID(), Type: weir.TaskUpload, CreatedAt: weir.At(now), ScheduledAt: weir.At(now), UserID: caller.UserID, ProjectID: caller.ProjectID,
		OutputAssetID: asset.ID, Params: weir.TaskParams{Upload: &weir.UploadParams{URL: asset.Source.URL}},
	}
	task.Complete(&weir.TaskOutput{Upload: &weir.AssetOutput{AssetSpec: asset}}, []string{"about 2 frames of the video are damaged"}, now)
	err = f.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateStream(ctx, &stream); err != nil {
			return err
		}
		if err := tx.CreateSession(ctx, &session); err != nil {
			return err
		}
		for _, a := range []*weir.Asset{&recording, &clip, &asset} {
			if err := tx.CreateAsset(ctx, a); err != nil {
				return err
			}
		}
		for _, v := range seededViews(asset, now) {
			if err := tx.SaveViews(ctx, v); err != nil {
				return err
			}
		}
		if err := tx.SaveUsage(ctx, weir.Usage{
			UserID: asset.UserID, CreatorID: "cleo", Hour: weir.At(now.Add(-time.Hour)), DeliveryMs: 60_000, TotalMs: 120_000, StorageMs: 30_000,
		}); err != nil {
			return err
		}
		return tx.CreateTask(ctx, &task)
	})
	if err != nil {
		t.Fatal(err)
	}
	f.vars["stream"], f.vars["session"], f.vars["clip"], f.vars["asset"], f.vars["task"] = stream.ID, session.ID, clip.ID, asset.ID, task.ID
	f.vars["stream.playback"], f.vars["asset.playback"], f.vars["clip.playback"] = stream.PlaybackID, asset.PlaybackID, clip.PlaybackID
	f.vars["stream.key"] = stream.StreamKey.Reveal()
}

func seededAsset(caller *weir.Caller, now time.Time, id, name string, source weir.AssetSource) weir.Asset {
	playbackID := weir.NewPlaybackID(id)
	base := "http://weir.test/hls/" + playbackID
	return weir.Asset{
		ID: id, Name: name, Type: "video", PlaybackID: playbackID, UserID: caller.UserID, ProjectID: caller.ProjectID,
		CreatedAt: weir.At(now), CreatedByTokenName: caller.TokenName, Source: source,
		Status:      weir.AssetStatus{Phase: weir.AssetReady, UpdatedAt: weir.At(now)},
		PlaybackURL: base + "/index.m3u8", DownloadURL: base + "/download/video.mp4", Size: 123456,
		Hash: []weir.Hash{{Hash: "00ff", Algorithm: "sha256"}},
		VideoSpec: &weir.VideoSpec{Format: "mp4", Duration: 12.5, Bitrate: 2_000_000, Tracks: []weir.Track{
			{Type: "video", Codec: "h264", Duration: 12.5, Bitrate: 1_900_000, Width: 1280, Height: 720, PixelFormat: "yuv420p", FPS: 30},
			{Type: "audio", Codec: "aac", Duration: 12.5, Bitrate: 100_000, Channels: 2, SampleRate: 48000},
		}},
		Files: []weir.File{
			{Type: "catalyst_hls_manifest", Path: "index.m3u8"},
			{Type: "static_transcoded_mp4", Path: "720p0.mp4", Size: 99, Width: 1280, Height: 720, Bitrate: 3_000_000},
		},
	}
}

// seededViews are two views of an asset that are over: one that went well, and one
// that ended with an error before the first frame and of which little is known.
func seededViews(asset weir.Asset, now time.Time) []weir.View {
	well := weir.View{
		ID: weir.NewID(), PlaybackID: asset.PlaybackID, UserID: asset.UserID, ProjectID: asset.ProjectID, AssetID: asset.ID, ViewerID: "viewer-1",
		StartedAt: weir.At(now.Add(-time.Hour)), LastSeen: weir.At(now.Add(-time.Hour + time.Minute)), PlaytimeMs: 45_000, TTFFMs: 300, RebufferMs: 15_000,
		DeviceType: "desktop", Device: "PC", CPU: "amd64", OS: "Linux", Browser: "Firefox", BrowserEngine: "Gecko",
		Continent: "Europe", Country: "Germany", Subdivision: "Berlin", Timezone: "Europe/Berlin", Geohash: "u33",
	}
	badly := weir.View{
		ID: weir.NewID(), PlaybackID: asset.PlaybackID, UserID: asset.UserID, ProjectID: asset.ProjectID, AssetID: asset.ID, ViewerID: "viewer-2",
		StartedAt: well.StartedAt, LastSeen: well.StartedAt, Errors: 2, ExitedEarly: true,
	}
	return []weir.View{well, badly}
}
