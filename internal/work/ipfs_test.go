package work

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/blob/s3test"
	"weir/internal/ipfs"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

const (
	testSpace = "did:key:z6MkSpaceOfAnn"
	ownSpace  = "did:key:z6MkWeir"
)

// onIPFS lets nodes write to IPFS; change may replace the remote of an upload.
func (h *fixture) onIPFS(t *testing.T, change func(ipfs.Remote) ipfs.Remote) {
	t.Helper()
	st, before := h.open(t, ""), h.options
	h.options = func(o *Options) {
		before(o)
		o.IPFS = IPFS{Kind: weir.IPFSLocal, Open: func(proof string, _ time.Time) (Space, error) {
			space := Space{DID: ownSpace, Remote: func(id string) (ipfs.Remote, error) {
				return change(ipfs.NewLocal(h.media, st, id)), nil
			}}
			switch proof {
			case "ended":
				return space, weir.Errorf(weir.Invalid, "the proof has ended")
			case "good":
				space.DID = testSpace
			}
			return space, nil
		}}
	}
}

// noBucket stands for the bucket of a task that has none.
var noBucket = s3test.Bucket{Endpoint: "http://none.example", Name: "none"}

func asIt(r ipfs.Remote) ipfs.Remote { return r }

// toIPFS makes a task one whose outputs go to IPFS.
func toIPFS(proof string) func(*weir.Task) {
	return func(t *weir.Task) {
		t.Params.Transcode.Storage.URL = "w3s://***@/"
		t.Secrets = weir.TaskSecrets{Proof: proof}
	}
}

func (n *node) uploadsOf(t *testing.T, userID string) []weir.IPFSUpload {
	t.Helper()
	page, err := n.Store.IPFSUploads(t.Context(), store.Query{UserID: userID, Deleted: true, Order: "createdAt-false", Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return page.Items
}

// carBytes returns the size of the CAR files of an upload.
func (h *fixture) carBytes(t *testing.T, id string) (total int64) {
	t.Helper()
	for info, err := range h.media.List(t.Context(), ipfs.Folder(id)) {
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size
	}
	return total
}

// TestTranscodeToIPFS: the outputs of a task become one upload, which counts as storage and goes with its bytes.
func TestTranscodeToIPFS(t *testing.T) {
	h := newFixture(t)
	h.onIPFS(t, asIt)
	n := h.node(t, "a")
	server, caller := serve(t, plainClip(t)), n.account(t, "ann")
	task := n.transcode(t, caller, server.URL+"/clip.mp4", noBucket, toIPFS("good"))
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	out := task.Output.Transcode
	root, ok := strings.CutPrefix(out.BaseURL, "ipfs://")
	if !ok || !strings.HasPrefix(root, "baf") || out.HLS.Path != "/out/hls/index.m3u8" || len(out.MP4) != 1 || out.MP4[0].Path != "/out/mp4/small.mp4" {
		t.Fatalf("output = %+v", out)
	}
	all := n.uploadsOf(t, caller.UserID)
	if len(all) != 1 {
		t.Fatalf("uploads = %+v", all)
	}
	u := all[0]
	if !u.Complete || u.Root != root || u.TaskID != task.ID || u.Space != testSpace || u.ProjectID != caller.ProjectID || u.AssetID != "" ||
		u.Remote != weir.IPFSLocal || u.Shards != 1 || u.Size != h.carBytes(t, u.ID) || u.Size == 0 {
		t.Errorf("upload = %+v, with %d bytes of CAR files", u, h.carBytes(t, u.ID))
	}
	if used, err := n.Store.Used(t.Context(), caller.UserID, weir.Storage); err != nil || used != u.Size {
		t.Errorf("the account uses %d bytes, %v; want %d", used, err, u.Size)
	}
	wait.Until(t, "the upload is counted", func() bool { s := n.Stats(); return s.Uploads == 1 && s.UploadedBytes == u.Size })
	wait.Until(t, "staged files are deleted", func() bool { return empty(filepath.Join(h.dir, "media", "work")) })
	n.remove(t, u.ID)
	wait.Until(t, "the upload is removed", func() bool {
		return len(n.uploadsOf(t, caller.UserID)) == 0 && empty(filepath.Join(h.dir, "media", "ipfs"))
	})
}

// failing is a remote that fails the first times.
type failing struct {
	ipfs.Remote
	err   error
	left  *atomic.Int64 // failures of Finish
	sends *atomic.Int64
}

func (f failing) PutShard(ctx context.Context, s ipfs.Shard, open func() (io.ReadCloser, error)) error {
	f.sends.Add(1)
	return f.Remote.PutShard(ctx, s, open)
}

func (f failing) Finish(ctx context.Context, root string, shards []ipfs.Shard) error {
	if f.left.Add(-1) >= 0 {
		return f.err
	}
	return f.Remote.Finish(ctx, root, shards)
}

// TestUploadContinues: a task whose upload fails sends nothing again that was stored.
func TestUploadContinues(t *testing.T) {
	h := newFixture(t)
	var left, sends atomic.Int64
	left.Store(2)
	h.onIPFS(t, func(r ipfs.Remote) ipfs.Remote {
		return failing{r, weir.Errorf(weir.Upstream, "the service does not answer"), &left, &sends}
	})
	n := h.node(t, "a")
	server, caller := serve(t, made(t, short)), n.account(t, "ann")
	task := n.transcode(t, caller, server.URL+"/clip.mp4", noBucket, toIPFS("good"))
	n.until(t, task.ID, phase(weir.TaskCompleted))
	wait.Until(t, "two retries are counted", func() bool { return n.Stats().Retried == 2 })
	if sends.Load() != 1 {
		t.Errorf("%d shards were sent, want 1", sends.Load())
	}
	if all := n.uploadsOf(t, caller.UserID); len(all) != 1 || !all[0].Complete {
		t.Errorf("uploads = %+v", all)
	}
}

// TestFailedUpload: a task that fails or is refused leaves neither staged files nor CAR files nor rows.
func TestFailedUpload(t *testing.T) {
	for name, tt := range map[string]struct {
		proof, want string
		quota       int64
		err         error
	}{
		"refused by the service": {"good", "error saving file to storage: the delegation was revoked", 0, weir.Errorf(weir.Invalid, "the delegation was revoked")},
		"proof has ended":        {"ended", "error saving file to storage: the proof has ended", 0, nil},
		"no room":                {"good", "this account has reached its quota of storage", 100, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t)
			var left, sends atomic.Int64
			if tt.err != nil {
				left.Store(1 << 30)
			}
			h.onIPFS(t, func(r ipfs.Remote) ipfs.Remote { return failing{r, tt.err, &left, &sends} })
			n := h.node(t, "a")
			server, caller := serve(t, made(t, short)), n.account(t, "ann")
			if tt.quota > 0 {
				n.inTx(t, func(tx *store.Tx) error {
					_, err := tx.UpdateUser(t.Context(), caller.UserID, func(u *weir.User) error {
						u.SetQuota(weir.Quota{weir.Storage: &tt.quota})
						return nil
					})
					return err
				})
			}
			task := n.transcode(t, caller, server.URL+"/clip.mp4", noBucket, toIPFS(tt.proof))
			task = n.until(t, task.ID, phase(weir.TaskFailed))
			if !strings.Contains(task.Status.ErrorMessage, tt.want) || *task.Status.Retries != 0 {
				t.Errorf("status = %+v, want %q", task.Status, tt.want)
			}
			if err := n.purgeTask(t.Context(), store.Job{}, task.ID, 1); err != nil {
				t.Fatal(err)
			}
			if all := n.uploadsOf(t, caller.UserID); len(all) != 0 {
				t.Errorf("uploads = %+v", all)
			}
			for _, folder := range []string{"ipfs", "work"} {
				if !empty(filepath.Join(h.dir, "media", folder)) {
					t.Errorf("there are files in %s", folder)
				}
			}
		})
	}
}

// readCopy returns the metadata of a copy, from the only block of its upload.
func (h *fixture) readCopy(t *testing.T, n *node, part, userID string) (u weir.IPFSUpload, data []byte) {
	t.Helper()
	for _, u = range n.uploadsOf(t, userID) {
		if u.Part == part {
			body, _, err := h.media.Get(t.Context(), ipfs.Folder(u.ID)+"/0.car", 0, -1)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = body.Close() }()
			data, err = io.ReadAll(body)
			if err != nil {
				t.Fatal(err)
			}
			return u, data
		}
	}
	t.Fatalf("there is no upload of the %s", part)
	return u, nil
}

// TestCopyToIPFS: the copy of an asset that its creation asks for, another one by an export, and what becomes of
// them with the asset.
func TestCopyToIPFS(t *testing.T) {
	h := newFixture(t)
	var left, sends atomic.Int64
	h.onIPFS(t, func(r ipfs.Remote) ipfs.Remote {
		return failing{r, weir.Errorf(weir.Invalid, "no"), &left, &sends}
	})
	n := h.node(t, "a")
	ctx, server, caller := t.Context(), serve(t, made(t, short)), n.account(t, "ann")
	asset, task := n.asset(t, caller, weir.NewAsset{
		Name: "film", URL: server.URL + "/clip.mp4",
		Storage: &weir.StorageBody{IPFS: &weir.IPFSSpec{NFTMetadataTemplate: "player", NFTMetadata: json.RawMessage(`{"description":null,"properties":{"mine":1}}`)}},
	})
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	if s := task.Output.Upload.AssetSpec.Storage; s == nil || !strings.HasPrefix(s.IPFS.GatewayURL, "https://weir.example/ipfs/baf") {
		t.Errorf("the output of the task has the storage %+v", s)
	}
	asset, err := n.Store.Asset(ctx, asset.ID)
	if err != nil || asset.Storage == nil || asset.Storage.IPFS == nil {
		t.Fatalf("asset = %+v, %v", asset, err)
	}
	got := *asset.Storage.IPFS
	video, car := h.readCopy(t, n, partVideo, caller.UserID)
	if !strings.Contains(string(car), string(made(t, short)[:1000])) {
		t.Error("the copy does not have the bytes of the source")
	}
	metadata, text := h.readCopy(t, n, partMetadata, caller.UserID)
	want := weir.IPFSStorage{
		Spec: got.Spec, CID: video.Root, URL: "ipfs://" + video.Root, GatewayURL: "/ipfs/" + video.Root, UpdatedAt: got.UpdatedAt,
		NFTMetadata: &weir.NFTMetadata{CID: metadata.Root, URL: "ipfs://" + metadata.Root, GatewayURL: "/ipfs/" + metadata.Root},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("storage of the asset (-want +got):\n%s", diff)
	}
	if s := asset.Storage.Status; s == nil || s.Phase != "ready" || s.Tasks.Last != task.ID {
		t.Errorf("status of the storage = %+v", s)
	}
	if video.Space != ownSpace || video.AssetID != asset.ID || !strings.HasPrefix(video.Root, "baf") {
		t.Errorf("upload = %+v", video)
	}
	for _, part := range []string{`"mine":1`, `"video":"ipfs://` + video.Root, `"name":"film"`, `https://weir.example/play/` + asset.PlaybackID} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the metadata lacks %s: %s", part, text)
		}
	}
	if strings.Contains(string(text), "description") {
		t.Errorf("the metadata has a member that was removed: %s", text)
	}

	// Another spec is another copy; the file is the same.
	export := func(spec weir.IPFSSpec) weir.Task {
		var task weir.Task
		n.inTx(t, func(tx *store.Tx) error {
			_, err := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error {
				task = weir.NewExport(weir.ExportParams{IPFS: &weir.IPFSExport{NFTMetadataTemplate: spec.NFTMetadataTemplate}}, *a, caller, time.Now())
				a.StoreOnIPFS(spec, task.ID, time.Now())
				return nil
			})
			return errors.Join(err, tx.CreateTask(ctx, &task))
		})
		return task
	}
	task = export(weir.IPFSSpec{NFTMetadataTemplate: "file"})
	task = n.until(t, task.ID, phase(weir.TaskCompleted))
	out := task.Output.Export.IPFS
	if out == nil || out.VideoFileCID != video.Root || out.VideoFileGatewayURL != "https://weir.example/ipfs/"+video.Root || out.NFTMetadataCID == metadata.Root ||
		out.NFTMetadataURL != "ipfs://"+out.NFTMetadataCID {
		t.Errorf("output = %+v", out)
	}
	if asset, err = n.Store.Asset(ctx, asset.ID); err != nil || asset.Storage.IPFS.NFTMetadata.CID != out.NFTMetadataCID || asset.Storage.Status.Tasks.Last != task.ID {
		t.Errorf("storage of the asset = %+v, %v", asset.Storage, err)
	}
	phases := map[string]bool{}
	for _, e := range n.events(t, caller, "asset/"+asset.ID) {
		if s := snapshot(t, e).Storage; s != nil && s.Status != nil {
			phases[s.Status.Phase] = true
		}
	}
	if !phases["processing"] || !phases["ready"] {
		t.Errorf("events show the phases %v", phases)
	}

	// A copy that fails leaves the one that exists.
	left.Store(1)
	task = export(weir.IPFSSpec{NFTMetadataTemplate: "player"})
	n.until(t, task.ID, phase(weir.TaskFailed))
	if asset, err = n.Store.Asset(ctx, asset.ID); err != nil || asset.Storage.Status.Phase != "reverted" || asset.Storage.Status.Tasks.Failed != task.ID ||
		asset.Storage.IPFS.Spec.NFTMetadataTemplate != "file" || asset.Storage.IPFS.CID != video.Root {
		t.Errorf("storage of the asset = %+v, %v", asset.Storage, err)
	}

	// Copies go with their asset.
	n.inTx(t, func(tx *store.Tx) error {
		if _, err := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error { a.Delete(time.Now().Add(-time.Hour)); return nil }); err != nil {
			return err
		}
		_, err := tx.PurgeDeletedAssets(ctx, time.Now(), time.Now(), 10)
		return err
	})
	wait.Until(t, "copies are removed", func() bool {
		return len(n.uploadsOf(t, caller.UserID)) == 0 && empty(filepath.Join(h.dir, "media", "ipfs"))
	})
}

// TestUnpin: an IPFS node forgets an upload when no other one has the same content.
func TestUnpin(t *testing.T) {
	h := newFixture(t)
	unpinned := make(chan string, 10)
	h.options = func(o *Options) {
		o.IPFS = IPFS{Kind: weir.IPFSKubo, Unpin: func(_ context.Context, root string) error { unpinned <- root; return nil }}
	}
	n := h.node(t, "a")
	ctx, caller := t.Context(), n.account(t, "ann")
	var ids []string
	for _, space := range []string{"did:key:a", "did:key:b"} {
		u := weir.IPFSUpload{ID: weir.NewID(), UserID: caller.UserID, TaskID: weir.NewID(), Space: space, Remote: weir.IPFSKubo}
		ids = append(ids, u.ID)
		n.inTx(t, func(tx *store.Tx) error {
			if _, err := tx.OpenIPFSUpload(ctx, u); err != nil {
				return err
			}
			_, err := tx.CompleteIPFSUpload(ctx, u.ID, "bafyroot", time.Now())
			return err
		})
	}
	n.remove(t, ids[0])
	wait.Until(t, "an upload is removed", func() bool { return len(n.uploadsOf(t, caller.UserID)) == 1 })
	if len(unpinned) != 0 {
		t.Errorf("%s was unpinned, and another upload has it", <-unpinned)
	}
	n.remove(t, ids[1])
	wait.Until(t, "the other upload is removed", func() bool { return len(n.uploadsOf(t, caller.UserID)) == 0 })
	if len(unpinned) != 1 || <-unpinned != "bafyroot" {
		t.Error("the content was not unpinned")
	}
}

// remove deletes an upload, as its owner does.
func (n *node) remove(t *testing.T, id string) {
	t.Helper()
	n.inTx(t, func(tx *store.Tx) error {
		_, err := tx.DeleteIPFSUpload(t.Context(), id, func(*weir.IPFSUpload) error { return nil })
		return err
	})
}
