package ucan

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"weir/e2e/harness"
	"weir/internal/ucan"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }

// didOf returns the DID of a running weir.
func didOf(w *harness.Weir) string {
	w.T.Helper()
	var service struct{ DID string }
	w.Must("GET", "/api/did", nil, &service)
	return service.DID
}

// intoSpace is the body of a request whose outputs go to a space.
func intoSpace(input, proof string) map[string]any {
	return map[string]any{
		"input":   map[string]any{"url": input},
		"storage": map[string]any{"type": "web3.storage", "credentials": map[string]any{"proof": proof}},
		"outputs": map[string]any{"hls": map[string]any{"path": "/hls"}, "mp4": map[string]any{"path": "/mp4"}},
	}
}

// TestTranscode: weir writes the outputs of a task into a space at an upload service, with a proof in each form;
// the owner of the space lists and fetches them. A proof that was revoked fails the task at once.
func TestTranscode(t *testing.T) {
	t.Parallel()
	r, w, source := newRig(t), harness.NewWeir(t), harness.NewOrigin(t, harness.TinyClip(t))
	w.Start("--ipfs", "upload:"+r.URL+"#"+r.DID)
	space := r.space(t)
	good := r.prove(t, space, didOf(w), ucan.UploadAbilities(), nil)
	roots := map[string]bool{}
	for form, proof := range good.Forms {
		var posted weir.Task
		w.Must("POST", "/api/transcode", intoSpace(source.URL+"/tiny.mp4", proof), &posted)
		out := w.Completed(posted.ID).Output.Transcode
		root, ok := strings.CutPrefix(out.BaseURL, "ipfs://")
		if !ok {
			t.Fatalf("%s: the output is %+v", form, out)
		}
		roots[root] = true
		for _, u := range r.list(t, space) {
			if u.Root != root {
				continue
			}
			files := r.fetch(t, u)
			if got := len(harness.FrameSums(t, filepath.Join(files, out.HLS.Path))); got != 50 {
				t.Errorf("%s: the playlist has %d frames, want 50", form, got)
			}
			if packed := ipfsCar(t, "pack", "--no-wrap", files, "--output", filepath.Join(t.TempDir(), "again.car")); packed != root {
				t.Errorf("%s: ipfs-car makes %s of the files, weir %s", form, packed, root)
			}
			root = ""
		}
		if root != "" {
			t.Errorf("%s: the owner of the space does not see %s", form, root)
		}
	}
	var uploads []weir.IPFSUpload
	w.Must("GET", "/api/ipfs/upload?space="+space, nil, &uploads)
	if len(uploads) != len(roots) {
		t.Errorf("weir lists %d uploads, want %d", len(uploads), len(roots))
	}
	for _, u := range uploads {
		if !roots[u.Root] || u.Remote != weir.IPFSUCAN {
			t.Errorf("weir lists %+v", u)
		}
	}
	if status, text := w.Do("POST", "/api/asset/request-upload", map[string]any{"name": "a", "storage": map[string]any{"ipfs": true}}); status != http.StatusUnprocessableEntity {
		t.Errorf("a copy without a proof: %d %s, want 422", status, text)
	}

	revoked := r.prove(t, space, didOf(w), ucan.UploadAbilities(), map[string]any{"nonce": "to be revoked"})
	call[any](t, r, "revoke", map[string]any{"space": space, "cid": revoked.CID})
	var posted weir.Task
	w.Must("POST", "/api/transcode", intoSpace(source.URL+"/tiny.mp4", revoked.Forms["storacha"]), &posted)
	task := w.Ended(posted.ID)
	if task.Status.Phase != weir.TaskFailed || *task.Status.Retries != 0 || !strings.Contains(task.Status.ErrorMessage, "the delegation was revoked") {
		t.Errorf("with a revoked proof the task is %+v", task.Status)
	}
}
