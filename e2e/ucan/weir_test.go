package ucan

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/blob/s3test"
	"weir/internal/ucan"
	words "weir/internal/weir"
)

// recordedSeed is the seed of the key that the recorded proofs of internal/ucan are for.
var recordedSeed = bytes.Repeat([]byte{0x12}, 32)

// newWeir starts a weir that uploads to the service, with the key of the recorded proofs.
func newWeir(t *testing.T, r *rig) (w *harness.Weir, did string) {
	t.Helper()
	w = harness.NewWeir(t)
	st := w.OpenStore()
	if _, err := st.NamedSecret(t.Context(), "did", func() ([]byte, error) { return recordedSeed, nil }); err != nil {
		t.Fatal(err)
	}
	w.Start("--ipfs", "upload:"+r.URL+"#"+r.DID)
	var service struct{ DID string }
	w.Must("GET", "/api/did", nil, &service)
	return w, service.DID
}

// transcode is a request for outputs in the space of a proof. The film passes through, so the outputs
// are the same each time.
func transcode(film string, proof any) map[string]any {
	return map[string]any{
		"input":    map[string]any{"url": film},
		"storage":  map[string]any{"type": "web3.storage", "credentials": map[string]any{"proof": proof}},
		"outputs":  map[string]any{"hls": map[string]any{"path": "/hls"}, "mp4": map[string]any{"path": "/mp4"}},
		"profiles": []any{harness.Rung("same", "H.264", 228, 128, 250_000_000)},
	}
}

// post creates a task.
func post(w *harness.Weir, body map[string]any) (id string) {
	w.T.Helper()
	var task words.Task
	w.Must("POST", "/api/transcode", body, &task)
	return task.ID
}

// TestTranscode transcodes a film into spaces of the upload service.
func TestTranscode(t *testing.T) {
	t.Parallel()
	r, o := newRig(t), harness.NewOrigin(t, harness.TinyClip(t))
	w, did := newWeir(t, r)
	film := o.URL + "/tiny.mp4"

	t.Run("bad proofs", func(t *testing.T) { refused(t, r, w, did, film) })

	// What the outputs must be: those of a task that writes them to a bucket.
	b := s3test.Start(t)
	reference := harness.Transcode(film, b)
	reference["outputs"], reference["profiles"] = transcode(film, "")["outputs"], transcode(film, "")["profiles"]
	w.Completed(post(w, reference))
	outputs := t.TempDir()
	for _, name := range []string{"hls", "mp4"} { // the server has more in its folder
		if err := os.Rename(filepath.Join(b.Dir, name), filepath.Join(outputs, name)); err != nil {
			t.Fatal(err)
		}
	}
	root := harness.IPFSCar(t, "pack", "--no-wrap", outputs, "--output", filepath.Join(t.TempDir(), "outputs.car"))

	// Each form of a proof is that of another space. The first two PUTs of bytes fail.
	before := r.stats(t)
	r.failPuts(t, 2)
	var spaces []string
	for _, form := range []string{"storacha", "storacha --base64", "w3", "w3 --base64", "wrapped base64url"} {
		space := r.space(t)
		text := r.prove(t, space, did, ucan.UploadAbilities(), nil).Forms[form]
		task := w.Completed(post(w, transcode(film, text)))
		out := task.Output.Transcode
		if out.BaseURL != "ipfs://"+root || out.HLS == nil || out.HLS.Path != "/hls/index.m3u8" || len(out.MP4) != 1 {
			t.Errorf("%s: the output is %+v, ipfs-car makes the root %s", form, out, root)
		}
		if shown, err := json.Marshal(task); err != nil || bytes.Contains(shown, []byte(text[:40])) {
			t.Errorf("%s: the task shows the proof, %v", form, err)
		}
		listed := r.list(t, space)
		if len(listed) != 1 || "ipfs://"+listed[0].Root != out.BaseURL {
			t.Fatalf("%s: the owner of the space sees %v, want %s", form, listed, out.BaseURL)
		}
		if len(spaces) == 0 {
			if n := r.stats(t).Count - before.Count; n != 4 {
				t.Errorf("%d PUTs, want three for the CAR file and one for its index", n)
			}
			sameFiles(t, r.fetch(t, listed[0]), outputs)
			owner := storacha(t, r, space, r.URL, r.DID)
			if out := owner("ls"); !strings.Contains(out, root) {
				t.Errorf("storacha ls: %s", out)
			}
		}
		spaces = append(spaces, space)
	}
	var uploads []words.IPFSUpload
	w.Must("GET", "/api/ipfs/upload", nil, &uploads)
	for _, u := range uploads {
		if u.Root != root || !slices.Contains(spaces, u.Space) || u.Remote != words.IPFSUCAN {
			t.Errorf("the account has the upload %+v", u)
		}
	}
	if len(uploads) != len(spaces) {
		t.Errorf("the account has %d uploads, want one in each of %d spaces", len(uploads), len(spaces))
	}
	if status, text := w.Do("GET", "/ipfs/"+root, nil); status != http.StatusNotFound {
		t.Errorf("weir serves what it does not have: %d %.200s", status, text)
	}

	copied := map[string]any{"name": "copy", "storage": map[string]any{"ipfs": true}}
	if status, text := w.Do("POST", "/api/asset/request-upload", copied); status != http.StatusUnprocessableEntity {
		t.Errorf("a copy without a proof: %d %s, want 422", status, text)
	}

	t.Run("revoked", func(t *testing.T) {
		space := r.space(t)
		proof := r.prove(t, space, did, ucan.UploadAbilities(), nil)
		call[any](t, r, "revoke", map[string]any{"space": space, "cid": proof.CID})
		before := r.stats(t)
		task := w.Ended(post(w, transcode(film, proof.Forms["storacha"])))
		const want = "error saving file to storage: the delegation was revoked; make another proof"
		if s := task.Status; s.Phase != words.TaskFailed || s.ErrorMessage != want || s.Retries != nil && *s.Retries > 0 {
			t.Errorf("the task is %+v", s)
		}
		if after := r.stats(t); after.Orders[ucan.BlobAdd] != before.Orders[ucan.BlobAdd]+1 || after.Count != before.Count {
			t.Errorf("the service got %+v, and before %+v", after, before)
		}
		if listed := r.list(t, space); len(listed) > 0 {
			t.Errorf("the owner of the space sees %v", listed)
		}
		var uploads []words.IPFSUpload
		if w.Must("GET", "/api/ipfs/upload?space="+space, nil, &uploads); len(uploads) > 0 {
			t.Errorf("the account has the uploads %+v", uploads)
		}
	})
	if strings.Contains(w.Log.String(), "will be retried") {
		t.Errorf("a task was repeated:\n%s", harness.WithoutRequests(w.Log.String()))
	}
	w.Stop()
}

// refused sends proofs that the API refuses, each with a sentence of its own.
func refused(t *testing.T, r *rig, w *harness.Weir, did, film string) {
	const testdata = "../../internal/ucan/testdata/"
	golden, err := os.ReadFile(testdata + "bad.txt")
	if err != nil {
		t.Fatal(err)
	}
	type bad struct {
		proof any
		want  string
	}
	all := map[string]bad{}
	for text := range strings.SplitSeq(strings.ReplaceAll(string(golden), "\n\t", "\t"), "\n") {
		name, sentence, _ := strings.Cut(text, "\t")
		if proof, err := os.ReadFile(testdata + "bad/" + name + ".txt"); err == nil && name != "ends-soon" {
			all["recorded "+name] = bad{string(proof), strings.ReplaceAll(sentence, "\t", "")}
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d recorded proofs", len(all))
	}
	space, soon := r.space(t), time.Now().Add(30*time.Minute)
	prove := func(abilities []string, options map[string]any) string {
		return r.prove(t, space, did, abilities, options).Forms["storacha --base64"]
	}
	good := prove(ucan.UploadAbilities(), nil)
	all["none"] = bad{nil, "proof"}
	all["empty"] = bad{"", "proof"}
	all["ends soon"] = bad{prove(ucan.UploadAbilities(), map[string]any{"expiration": soon.Unix()}), " ends at " + soon.UTC().Format(time.RFC3339) + "; it must last until "}
	all["ended"] = bad{prove(ucan.UploadAbilities(), map[string]any{"expiration": 1_700_000_000}), " ended at 2023-11-14T22:13:20Z"}
	all["later"] = bad{prove(ucan.UploadAbilities(), map[string]any{"notBefore": soon.Unix()}), " starts at " + soon.UTC().Format(time.RFC3339)}
	all["other audience"] = bad{r.prove(t, space, r.DID, ucan.UploadAbilities(), nil).Forms["w3"], r.DID + " is its audience, but the DID of this server is " + did}
	all["abilities"] = bad{prove([]string{ucan.UploadAdd}, nil), "it does not allow space/blob/add, space/index/add on the space " + space}
	all["cut off"] = bad{good[:len(good)-100], "it is truncated"}
	all["changed"] = bad{good[:700] + string(good[700]^1) + good[701:], "so it was changed"}
	for name, b := range all {
		status, response := w.Do("POST", "/api/transcode", transcode(film, b.proof))
		var body struct{ Errors []string }
		if err := json.Unmarshal(response, &body); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(body.Errors, "\n"); status != http.StatusUnprocessableEntity || !strings.Contains(got, "storage.credentials.proof: ") || !strings.Contains(got, b.want) {
			t.Errorf("%s: %d %s, want 422 with %q", name, status, got, b.want)
		}
	}
	var tasks []words.Task
	if w.Must("GET", "/api/task", nil, &tasks); len(tasks) > 0 {
		t.Errorf("there are %d tasks", len(tasks))
	}
}
