package work

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob"
	"weir/internal/blob/s3test"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// TestImportedAsset makes an asset from a URL: it is played before it is ready, and has all that
// belongs to it then.
func TestImportedAsset(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	n := newFixture(t).node(t, "a")
	server, caller := serve(t, plainClip(t)), n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", URL: server.URL + "/clip.mp4", TargetSegmentSizeSecs: 2})
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	ready, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil {
		t.Fatal(err)
	}
	base := "/hls/" + asset.PlaybackID
	if ready.Status.Phase != weir.AssetReady || ready.Status.Progress != nil || ready.PlaybackURL != base+"/index.m3u8" || ready.DownloadURL != base+"/download/video.mp4" {
		t.Errorf("asset = %+v", ready)
	}
	if ready.Type != "video" || ready.Size != int64(len(plainClip(t))) || ready.VideoSpec == nil || len(ready.VideoSpec.Tracks) != 2 {
		t.Errorf("asset = %+v, %+v", ready, ready.VideoSpec)
	}
	if diff := cmp.Diff([]weir.Hash{{Hash: hexSum(plainClip(t)), Algorithm: "sha256"}}, ready.Hash); diff != "" {
		t.Errorf("hash (-want +got):\n%s", diff)
	}
	if spec := task.Output.Upload.AssetSpec; spec.ID != asset.ID || spec.Source.URL == "" || spec.Status.Phase != weir.AssetReady || spec.PlaybackURL != "" {
		t.Errorf("output = %+v", spec)
	}

	// When the asset can be played.
	var phases []weir.AssetPhase
	early := false
	for _, e := range n.events(t, caller, "asset/"+asset.ID) {
		a := snapshot(t, e)
		phases = append(phases, a.Status.Phase)
		if a.PlaybackURL != "" && a.PlaybackURL != "https://weir.example"+base+"/index.m3u8" {
			t.Errorf("address in an event: %s", a.PlaybackURL)
		}
		early = early || a.Status.Phase == weir.AssetProcessing && a.PlaybackURL != ""
	}
	if phases = slices.Compact(phases); !early || !slices.Equal(phases, []weir.AssetPhase{weir.AssetProcessing, weir.AssetReady}) {
		t.Errorf("phases = %v; played before it was ready: %v", phases, early)
	}

	// The files that exist.
	p, err := media.LoadPresentation(t.Context(), n.Media, media.AssetFolder(asset.ID))
	if err != nil || !p.Complete || len(p.Renditions) < 2 || len(p.Audio) != 1 {
		t.Errorf("presentation = %+v, %v", p, err)
	}
	if info, err := n.Media.Stat(t.Context(), sourceKey(asset.ID)); err != nil || info.Size != ready.Size {
		t.Errorf("source = %+v, %v", info, err)
	}
	kinds := map[string]int{}
	for _, f := range ready.Files {
		kinds[f.Type]++
		if f.Type == "static_transcoded_mp4" && (f.Size == 0 || f.Width == 0 || f.Bitrate == 0 || strings.Contains(f.Path, "low-bitrate")) {
			t.Errorf("file = %+v", f)
		}
		if f.Type == "thumbnails_vtt" {
			if _, err := n.Media.Stat(t.Context(), media.AssetFolder(asset.ID)+"/"+f.Path); err != nil {
				t.Errorf("%s: %v", f.Path, err)
			}
		}
	}
	if kinds["catalyst_hls_manifest"] != 1 || kinds["source_file"] != 1 || kinds["static_transcoded_mp4"] != len(p.Renditions)-1 || kinds["thumbnails_vtt"] != 1 {
		t.Errorf("files = %+v", ready.Files)
	}

	// The source tracks are deleted, the renditions stay.
	folder := filepath.Join(n.Dir, "../media", media.AssetFolder(asset.ID))
	wait.Until(t, "tracks of the source deleted", func() bool {
		left, err := filepath.Glob(filepath.Join(folder, "source-audio*"))
		return err == nil && len(left) == 0
	})
	for _, r := range append(p.Renditions, p.Audio...) {
		if _, err := media.Open(t.Context(), n.Media, media.AssetFolder(asset.ID)+"/"+r.Dir); err != nil {
			t.Errorf("%s: %v", r.Name, err)
		}
	}

	// Deleted again.
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), asset.ID, func(a *weir.Asset) error { a.Delete(time.Now().Add(-8 * 24 * time.Hour)); return nil })
		return err
	})
	if err := n.purgeOld(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "bytes of the asset deleted", func() bool { return empty(filepath.Join(n.Dir, "../media/asset")) })
	if a, err := n.Store.Asset(t.Context(), asset.ID); err != nil || a.Status.Phase != weir.AssetDeleted || a.PlaybackURL != "" {
		t.Errorf("deleted asset = %+v, %v", a, err)
	}
}

// TestUploadedAsset makes an asset of an upload in two parts, and sends it on.
func TestUploadedAsset(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	n := newFixture(t).node(t, "a")
	caller, data := n.account(t, "ann"), plainClip(t)
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", TargetSegmentSizeSecs: 2})
	cut := len(data) / 3
	for _, part := range [][2]int{{0, cut}, {cut, len(data)}} {
		key := fmt.Sprintf("%s/%020d", uploadFolder(asset.ID), part[0])
		if err := n.Media.Put(t.Context(), key, bytes.NewReader(data[part[0]:part[1]]), int64(part[1]-part[0]), blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Media.Put(t.Context(), uploadFolder(asset.ID)+"/info.json", strings.NewReader("{}"), 2, blob.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateTask(t.Context(), task.ID, func(t *weir.Task) error { t.Queue(time.Now()); return nil })
		return err
	})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	ready, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil || ready.Status.Phase != weir.AssetReady || ready.Hash[0].Hash != hexSum(data) {
		t.Errorf("asset = %+v, %v", ready, err)
	}
	if !empty(filepath.Join(n.Dir, "../media/upload")) {
		t.Error("the parts of the upload are still there")
	}

	got := make(chan []byte, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method == http.MethodPost && r.Header.Get("X-Key") == "planted" {
			got <- body
		}
	}))
	defer receiver.Close()
	export := weir.NewExport(weir.ExportParams{Custom: &weir.CustomExport{
		URL: receiver.URL + "/in", Method: "POST", Headers: map[string]string{"X-Key": "planted"},
	}}, ready, caller, time.Now())
	n.inTx(t, func(tx *store.Tx) error { return tx.CreateTask(t.Context(), &export) })
	n.until(t, export.ID, phase(weir.TaskCompleted))
	if body := <-got; !bytes.Equal(body, data) {
		t.Errorf("%d bytes were sent, want %d", len(body), len(data))
	}
}

// TestSequentialAsset makes an asset of a source that can't be demuxed: the job that fetched it
// does all pieces.
func TestSequentialAsset(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	n := newFixture(t).node(t, "a")
	caller := n.account(t, "ann")
	data := made(t, func() ([]byte, error) {
		return film("clip.avi", "-f", "lavfi", "-i", "testsrc2=s=160x90:r=24:d=3", "-f", "lavfi", "-i", "sine=d=3:r=48000", "-c:v", "huffyuv", "-pix_fmt", "yuv422p", "-c:a", "pcm_s16le")
	})
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", URL: serve(t, data).URL + "/clip.avi", TargetSegmentSizeSecs: 2})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	p, err := media.LoadPresentation(t.Context(), n.Media, media.AssetFolder(asset.ID))
	if err != nil || !p.Complete || len(p.Renditions) == 0 || len(p.Audio) != 1 {
		t.Errorf("presentation = %+v, %v", p, err)
	}
	if _, err := n.Media.Stat(t.Context(), media.AssetFolder(asset.ID)+"/thumbnails/thumbnails.vtt"); err != nil {
		t.Errorf("thumbnails: %v", err)
	}
	wait.Until(t, "audio of the source deleted", func() bool {
		left, err := filepath.Glob(filepath.Join(n.Dir, "../media", media.AssetFolder(asset.ID), "source*"))
		return err == nil && len(left) == 0
	})
	pieces, err := n.Store.Pieces(t.Context(), task.ID)
	if err != nil || len(pieces) != 3 {
		t.Fatalf("pieces = %+v, %v", pieces, err)
	}
	for _, p := range pieces {
		if p.Started != 1 || p.Finished != 1 {
			t.Errorf("piece %s was started %d times and finished %d times", p.Name, p.Started, p.Finished)
		}
	}
}

// encrypt encrypts a file like a caller.
func encrypt(t *testing.T, data, key []byte) []byte {
	t.Helper()
	return encryptWith(t, data, bytes.Repeat([]byte{3}, aes.BlockSize), key)
}

func encryptWith(t *testing.T, data, vector, key []byte) []byte {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	pad := aes.BlockSize - len(data)%aes.BlockSize
	padded := append(slices.Clone(data), bytes.Repeat([]byte{byte(pad)}, pad)...)
	cipher.NewCBCEncrypter(block, vector).CryptBlocks(padded, padded)
	return append(slices.Clone(vector), padded...)
}

// TestEncryptedAsset makes an asset of an encrypted source, at the second try.
func TestEncryptedAsset(t *testing.T) {
	key := bytes.Repeat([]byte{9}, 32)
	h := newFixture(t)
	tries := 0
	h.options = func(o *Options) {
		o.Decrypt = func(encrypted string) ([]byte, error) {
			if tries++; tries == 1 {
				return nil, weir.Errorf(weir.Upstream, "the keys are away")
			}
			return base64.StdEncoding.DecodeString(encrypted)
		}
	}
	n := h.node(t, "a")
	server, caller := serve(t, encrypt(t, plainClip(t), key)), n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{
		Name: "clip", URL: server.URL + "/clip", PlaybackPolicy: &weir.PlaybackPolicy{Type: "jwt"},
		Encryption: &weir.Encryption{EncryptedKey: base64.StdEncoding.EncodeToString(key)}, TargetSegmentSizeSecs: 2,
	})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	ready, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil || ready.Status.Phase != weir.AssetReady || ready.DownloadURL != "" {
		t.Errorf("asset = %+v, %v", ready, err)
	}
	if _, err := n.Media.Stat(t.Context(), sourceKey(asset.ID)); weir.KindOf(err) != weir.NotFound {
		t.Errorf("the source is kept in the clear: %v", err)
	}
	waited := false
	for _, e := range n.events(t, caller, "task/"+task.ID) {
		waited = waited || bytes.Contains(e.Payload, []byte(`"retries":1,"errorMessage":"the keys are away"`)) ||
			bytes.Contains(e.Payload, []byte(`"errorMessage":"the keys are away","retries":1`))
	}
	if !waited {
		t.Error("no event about the failed attempt")
	}
	for _, e := range n.events(t, caller, "asset/"+asset.ID) {
		if snapshot(t, e).Status.Phase == weir.AssetFailed {
			t.Error("the asset failed while its task had another attempt")
		}
	}
}

// TestObjectStore puts an asset also into its owner's bucket.
func TestObjectStore(t *testing.T) {
	n := newFixture(t).node(t, "a")
	bucket, server, caller := s3test.Start(t), serve(t, plainClip(t)), n.account(t, "ann")
	o, err := weir.NewObjectStore{URL: bucket.URL(), PublicURL: "https://cdn.example/v"}.ObjectStore(caller.UserID, caller.ProjectID, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	n.inTx(t, func(tx *store.Tx) error { return tx.CreateObjectStore(t.Context(), &o) })
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip", URL: server.URL + "/clip.mp4", ObjectStoreID: o.ID, TargetSegmentSizeSecs: 2})
	n.until(t, task.ID, phase(weir.TaskCompleted))
	ready, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil || ready.PlaybackURL != "https://cdn.example/v/"+asset.PlaybackID+"/index.m3u8" {
		t.Errorf("asset = %+v, %v", ready, err)
	}
	decodes(t, filepath.Join(bucket.Dir, asset.PlaybackID, "index.m3u8"))
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), asset.ID, func(a *weir.Asset) error { a.Delete(time.Now().Add(-8 * 24 * time.Hour)); return nil })
		return err
	})
	if err := n.purgeOld(t.Context()); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "copy of the asset deleted", func() bool { return empty(filepath.Join(bucket.Dir, asset.PlaybackID)) })
}

// TestUploadExpires fails an asset that is not uploaded in time. Its parts are deleted later, with
// the one that was being written at that moment.
func TestUploadExpires(t *testing.T) {
	t.Parallel()
	h := newFixture(t)
	h.options = func(o *Options) { o.UploadExpiry = -time.Hour }
	n := h.node(t, "a")
	caller := n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{Name: "clip"})
	part := func(offset int) {
		key := fmt.Sprintf("%s/%020d", uploadFolder(asset.ID), offset)
		if err := n.Media.Put(t.Context(), key, strings.NewReader("part"), 4, blob.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	part(0)
	if err := n.purgeOld(t.Context()); err != nil {
		t.Fatal(err)
	}
	part(4)
	a, err := n.Store.Asset(t.Context(), asset.ID)
	if err != nil || a.Status.Phase != weir.AssetFailed || !strings.Contains(a.Status.ErrorMessage, "request a new upload") {
		t.Errorf("asset = %+v, %v", a.Status, err)
	}
	if task, err := n.Store.Task(t.Context(), task.ID); err != nil || task.Status.Phase != weir.TaskFailed {
		t.Errorf("task = %+v, %v", task.Status, err)
	}
	jobs, err := n.Store.JobStats(t.Context())
	if err != nil || jobs[[2]string{"control", "scheduled"}] != 1 {
		t.Errorf("the purge is not scheduled: %v, %v", jobs, err)
	}
	// It is due when the last part must have arrived. The test does not wait for it.
	if err := n.purgeAsset(t.Context(), store.Job{}, asset.ID); err != nil || !empty(filepath.Join(n.Dir, "../media/upload")) {
		t.Errorf("the parts are not deleted: %v", err)
	}
}
