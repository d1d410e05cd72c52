package service

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/store"
	domain "weir/internal/weir"
)

// TestSDK drives the official JavaScript SDK through every operation that is not
// about live video. sdk/sdk.mjs has the cases.
func TestSDK(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join("..", "sdk", "node_modules", "livepeer")); err != nil {
		t.Fatalf("the SDK is not installed (%v); run: make test", err)
	}
	w := harness.NewWeirOn(t, "postgres")    // the store suite has both
	w.Start("--webrtc", harness.FreeAddr(t)) // playback info tells of it
	seed, err := json.Marshal(seed(w))
	if err != nil {
		t.Fatal(err)
	}
	script := exec.CommandContext(t.Context(), "node", "sdk.mjs")
	script.Dir = "../sdk"
	script.Env = append(os.Environ(), "WEIR_URL="+w.URL+"/api", "WEIR_KEY="+w.Key, "WEIR_SEED="+string(seed))
	out, err := script.CombinedOutput()
	if err != nil {
		t.Errorf("sdk.mjs: %v\n%s", err, out)
	}
	w.Stop()
}

// seeded is what only media engines make, as sdk.mjs wants to be told of it.
type seeded struct {
	StreamID   string `json:"streamId"`
	SessionID  string `json:"sessionId"`
	AssetID    string `json:"assetId"`
	PlaybackID string `json:"playbackId"`
	ClipID     string `json:"clipId"`
	TaskID     string `json:"taskId"`
	Views      int    `json:"views"`

	File      string         `json:"file"`
	SourceURL string         `json:"sourceUrl"`
	Storage   map[string]any `json:"storage"`
}

// seed writes a stream of the first account's with a finished session, its
// recording and a clip of it, an asset with the task that made it, and views of
// that asset, beside the running weir.
func seed(w *harness.Weir) seeded {
	w.T.Helper()
	ctx, st, now := w.T.Context(), w.OpenStore(), time.Now()
	u, err := st.FirstUser(ctx)
	if err != nil {
		w.T.Fatal(err)
	}
	owner := &domain.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}
	stream, err := domain.NewStream{Name: "seeded", Record: true}.Stream(owner, now.Add(-time.Hour))
	if err != nil {
		w.T.Fatal(err)
	}
	stream.LastSeen = domain.At(now.Add(-time.Minute))
	stream.Counters = domain.Counters{SourceSegments: 30, SourceSegmentsDuration: 60, SourceBytes: 1 << 20}
	session := domain.Session{
		ID: domain.NewID(), Kind: "session", Name: "video+" + stream.PlaybackID, ParentID: stream.ID,
		UserID: owner.UserID, ProjectID: owner.ProjectID, PlaybackID: stream.PlaybackID,
		CreatedAt: domain.At(now.Add(-2 * time.Minute)), LastSeen: stream.LastSeen, Record: true, Profiles: stream.Profiles, Counters: stream.Counters,
	}
	recording := readyAsset(w, owner, session.ID, domain.AssetSource{Type: domain.SourceRecording, SessionID: session.ID})
	clip := readyAsset(w, owner, domain.NewID(), domain.AssetSource{Type: domain.SourceClip, SessionID: session.ID, PlaybackID: stream.PlaybackID})
	asset := readyAsset(w, owner, domain.NewID(), domain.AssetSource{Type: domain.SourceURL, URL: "https://example.com/source.mp4"})
	task := domain.Task{
		ID: domain.NewID(), Type: domain.TaskUpload, CreatedAt: domain.At(now), ScheduledAt: domain.At(now),
		UserID: owner.UserID, ProjectID: owner.ProjectID, OutputAssetID: asset.ID,
		Params: domain.TaskParams{Upload: &domain.UploadParams{URL: asset.Source.URL}},
		Status: domain.TaskStatus{Phase: domain.TaskCompleted, UpdatedAt: domain.At(now)},
		Output: &domain.TaskOutput{Upload: &domain.AssetOutput{AssetSpec: asset}},
	}
	source := harness.TinyClip(w.T)
	seeded := seeded{
		stream.ID, session.ID, asset.ID, asset.PlaybackID, clip.ID, task.ID, 3,
		source, harness.NewOrigin(w.T, source).URL + "/source.mp4", harness.Transcode("", s3test.Start(w.T))["storage"].(map[string]any),
	}
	err = st.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateStream(ctx, &stream); err != nil {
			return err
		}
		if err := tx.CreateSession(ctx, &session); err != nil {
			return err
		}
		for _, a := range []*domain.Asset{&recording, &clip, &asset} {
			if err := tx.CreateAsset(ctx, a); err != nil {
				return err
			}
		}
		if err := tx.CreateTask(ctx, &task); err != nil {
			return err
		}
		for range seeded.Views {
			start := now.Add(-30 * time.Minute)
			if err := tx.SaveViews(ctx, domain.View{
				ID: domain.NewID(), PlaybackID: asset.PlaybackID, AssetID: asset.ID, UserID: owner.UserID, ProjectID: owner.ProjectID,
				ViewerID: domain.NewID(), StartedAt: domain.At(start), LastSeen: domain.At(start.Add(10 * time.Minute)), PlaytimeMs: 600_000,
				Country: "Portugal", Device: "Phone", Browser: "Firefox",
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return seeded
}

// readyAsset is an asset as it is when all work on it is done.
func readyAsset(w *harness.Weir, owner *domain.Caller, id string, source domain.AssetSource) domain.Asset {
	playbackID, now := domain.NewPlaybackID(id), domain.At(time.Now())
	base := w.URL + "/hls/" + playbackID
	return domain.Asset{
		ID: id, Name: "seeded " + source.Type, Type: "video", PlaybackID: playbackID, UserID: owner.UserID, ProjectID: owner.ProjectID,
		CreatedAt: now, Source: source, Status: domain.AssetStatus{Phase: domain.AssetReady, UpdatedAt: now},
		PlaybackURL: base + "/index.m3u8", DownloadURL: base + "/download/video.mp4", Size: 123456,
		Hash: []domain.Hash{{Hash: "00ff", Algorithm: "sha256"}},
		VideoSpec: &domain.VideoSpec{Format: "mp4", Duration: 12.5, Bitrate: 2_000_000, Tracks: []domain.Track{
			{Type: "video", Codec: "h264", Duration: 12.5, Bitrate: 1_900_000, Width: 1280, Height: 720, PixelFormat: "yuv420p", FPS: 30},
			{Type: "audio", Codec: "aac", Duration: 12.5, Bitrate: 100_000, Channels: 2, SampleRate: 48000},
		}},
		Files: []domain.File{
			{Type: "catalyst_hls_manifest", Path: "index.m3u8"},
			{Type: "static_transcoded_mp4", Path: "720p0.mp4", Size: 99, Width: 1280, Height: 720, Bitrate: 3_000_000},
		},
	}
}
