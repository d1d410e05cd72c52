package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// goodProof begins a proof that checkTestProof accepts.
const goodProof = "bafy-good-proof"

func checkTestProof(proof string) error {
	if strings.HasPrefix(proof, goodProof) {
		return nil
	}
	return weir.Errorf(weir.Invalid, "the proof is not a UCAN delegation archive")
}

// uploaded returns a complete upload. Without an asset it has the outputs of a task.
func uploaded(of *weir.Caller, root, assetID string, now time.Time) weir.IPFSUpload {
	return weir.IPFSUpload{
		ID: weir.NewID(), UserID: of.UserID, ProjectID: of.ProjectID, TaskID: weir.NewID(), AssetID: assetID, Space: "did:key:z6MkSpace",
		Remote: weir.IPFSLocal, Size: 1000, Shards: 1, CreatedAt: weir.At(now), UpdatedAt: weir.At(now), Root: root,
	}
}

func createUpload(ctx context.Context, tx *store.Tx, u weir.IPFSUpload) error {
	u, err := tx.OpenIPFSUpload(ctx, u)
	if err != nil {
		return err
	}
	_, err = tx.CompleteIPFSUpload(ctx, u.ID, u.Root, u.UpdatedAt.Time())
	return err
}

// seedUploads adds uploads of ann: the outputs of a task, the copy of her asset, one that is not
// complete and one at an IPFS node. Bob has an upload too.
func (f *fixture) seedUploads(t testing.TB) {
	t.Helper()
	ctx, now := t.Context(), time.UnixMilli(aired)
	ann := &weir.Caller{UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"]}
	bob := &weir.Caller{UserID: f.vars["bob.id"], ProjectID: f.vars["bob.project"]}
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		for name, u := range map[string]weir.IPFSUpload{
			"outputs": uploaded(ann, "bafyoutputs", "", now),
			"copy":    uploaded(ann, "bafycopy", f.vars["asset"], now.Add(time.Second)),
			"node":    uploaded(ann, "bafynode", "", now.Add(2*time.Second)),
			"bob":     uploaded(bob, "bafybob", "", now),
		} {
			if name == "node" {
				u.Remote = weir.IPFSKubo
			}
			f.vars["upload."+name], f.vars["upload."+name+".task"] = u.ID, u.TaskID
			if err := createUpload(ctx, tx, u); err != nil {
				return err
			}
		}
		unfinished := uploaded(ann, "", "", now)
		f.vars["upload.unfinished"] = unfinished.ID
		if _, err := tx.OpenIPFSUpload(ctx, unfinished); err != nil {
			return err
		}
		_, err := tx.UpdateAsset(ctx, f.vars["asset"], func(a *weir.Asset) error {
			a.StoredOnIPFS(weir.IPFSCopy{CID: "bafycopy", MetadataCID: "bafymetadata", Served: true}, weir.IPFSSpec{}, weir.NewID(), now)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestProofIsSecret: a proof is sealed, shown nowhere, deleted with the other credentials, and checked
// again when the task is retried.
func TestProofIsSecret(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	const proof = goodProof + "-of-ann"
	body := `{"input":{"url":"https://example.com/in.mp4"},"storage":{"type":"web3.storage","credentials":{"proof":"` + proof + `"}},"outputs":{"hls":{"path":"/a"}}}`
	response := f.call(t, "POST", "/api/transcode", body, http.StatusOK)
	text, _ := json.Marshal(response)
	id := response["id"].(string)
	shown, _ := json.Marshal(f.call(t, "GET", "/api/task/"+id, "", http.StatusOK))
	events, err := f.store.Events(ctx, f.vars["ann.id"], f.vars["ann.project"], 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	told, _ := json.Marshal(events)
	for name, text := range map[string]string{"response": string(text), "task": string(shown), "events": string(told)} {
		if strings.Contains(text, goodProof) {
			t.Errorf("the %s has the proof: %s", name, text)
		}
	}
	if !strings.Contains(string(shown), `"url":"w3s://***@/"`) {
		t.Errorf("the task does not show its storage: %s", shown)
	}
	task, err := f.store.Task(ctx, id)
	if err != nil || task.Secrets.Proof != proof || !task.OnIPFS() {
		t.Fatalf("the task has the proof %q, %v", task.Secrets.Proof, err)
	}

	// A retry checks the proof again.
	f.call(t, "POST", "/api/task/"+id+"/cancel", "", http.StatusOK)
	f.server.IPFS.CheckProof = func(string) error { return weir.Errorf(weir.Invalid, "it has ended") }
	refused, _ := json.Marshal(f.call(t, "POST", "/api/task/"+id+"/retry", "", http.StatusUnprocessableEntity))
	if !strings.Contains(string(refused), "storage.credentials.proof: it has ended") {
		t.Errorf("the retry answers %s", refused)
	}
	f.server.IPFS.CheckProof = checkTestProof
	f.call(t, "POST", "/api/task/"+id+"/retry", "", http.StatusOK)

	// It is deleted a while after the end.
	f.call(t, "POST", "/api/task/"+id+"/cancel", "", http.StatusOK)
	if err := f.store.Prune(ctx, store.Retention{Credentials: -time.Hour}); err != nil {
		t.Fatal(err)
	}
	if task, err = f.store.Task(ctx, id); err != nil || task.Secrets.Proof != "" || !task.Secrets.Gone {
		t.Errorf("after the retention the task has the proof %q, %v", task.Secrets.Proof, err)
	}
	f.call(t, "POST", "/api/task/"+id+"/retry", "", http.StatusUnprocessableEntity)
}

// TestUploadsCountAsStorage: what weir stores of an account on IPFS counts against its quota, and a full
// account is refused at the door.
func TestUploadsCountAsStorage(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	f.seedUploads(t)
	used, err := f.store.Used(ctx, f.vars["bob.id"], weir.Storage)
	if err != nil || used != 1000 {
		t.Fatalf("bob uses %d bytes, %v; want 1000", used, err)
	}
	if err := f.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, f.vars["ann.id"], func(u *weir.User) error {
			u.SetQuota(weir.Quota{weir.Storage: new(int64(2000))})
			return nil
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	body := `{"input":{"url":"https://example.com/in.mp4"},"storage":{"type":"web3.storage","credentials":{"proof":"` + goodProof + `"}},"outputs":{"hls":{"path":"/a"}}}`
	f.call(t, "POST", "/api/transcode", body, http.StatusForbidden)
	f.call(t, "POST", "/api/asset/"+f.vars["asset"]+"/export", `{"ipfs":{}}`, http.StatusForbidden)
	f.server.IPFS.Local = false
	f.call(t, "POST", "/api/transcode", body, http.StatusOK)
}

// TestCopiesNeedASpace: where uploads go to an upload service, nobody gives a proof for copies of assets.
func TestCopiesNeedASpace(t *testing.T) {
	f := newFixture(t)
	f.server.IPFS.CheckCopy = func() error { return weir.Errorf(weir.Invalid, "a proof is needed") }
	for request, body := range map[string]string{
		"POST /api/asset/" + f.vars["asset"] + "/export": `{"ipfs":{}}`,
		"PATCH /api/asset/" + f.vars["asset"]:            `{"storage":{"ipfs":true}}`,
		"POST /api/asset/request-upload":                 `{"name":"a","storage":{"ipfs":true}}`,
		"POST /api/asset/upload/url":                     `{"name":"a","url":"https://example.com/a.mp4","storage":{"ipfs":{}}}`,
	} {
		method, path, _ := strings.Cut(request, " ")
		text, _ := json.Marshal(f.call(t, method, path, body, http.StatusUnprocessableEntity))
		if !strings.Contains(string(text), "ipfs: a proof is needed") {
			t.Errorf("%s answers %s", request, text)
		}
	}
}
