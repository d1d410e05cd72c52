package vod

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/e2e/harness"
	"weir/internal/ipld"
	"weir/internal/ucan"
	words "weir/internal/weir"
)

// newProof makes a space and delegates it to weir, as the tools of upload services do.
func newProof(t *testing.T, w *harness.Weir, life time.Duration) (space, proof string) {
	t.Helper()
	var service struct {
		DID string `json:"did"`
	}
	w.Must("GET", "/api/did", nil, &service)
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	key := ucan.NewIdentity(seed)
	invocation, err := key.Invoke(ucan.Command{Audience: service.DID, Can: "*", With: key.DID(), Expires: time.Now().Add(life)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	// Invocations and delegations have the same form. The root of an archive is the delegation.
	blocks, err := ipld.NewCARReader(bytes.NewReader(invocation.Message), len(invocation.Message))
	if err != nil {
		t.Fatal(err)
	}
	for {
		c, block, err := blocks.Next()
		if err != nil {
			t.Fatal(err)
		}
		if c == invocation.Link {
			archive := ipld.AppendCARBlock(ipld.AppendCARHeader(nil, c), c, block)
			return key.DID(), base64.StdEncoding.EncodeToString(archive)
		}
	}
}

func toSpace(input, proof string) map[string]any {
	return map[string]any{
		"input":   map[string]any{"url": input},
		"storage": map[string]any{"type": "web3.storage", "credentials": map[string]any{"proof": proof}},
		"outputs": map[string]any{"hls": map[string]any{"path": "/hls"}, "mp4": map[string]any{"path": "/mp4"}},
	}
}

// anonymous asks for something without a key, and returns the response with its body.
func anonymous(t *testing.T, address string, headers ...string) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, body
}

// TestIPFS transcodes a film into a space, plays it from the gateway, and removes it.
func TestIPFS(t *testing.T) {
	t.Parallel()
	w, o := harness.NewWeir(t), harness.NewOrigin(t, harness.TinyClip(t))
	w.Start()
	_, soon := newProof(t, w, time.Minute)
	for proof, want := range map[string]string{
		"AAAA": "storage.credentials.proof: the proof is not a UCAN delegation archive",
		soon:   "it must last until",
	} {
		if status, text := w.Do("POST", "/api/transcode", toSpace(o.URL+"/tiny.mp4", proof)); status != http.StatusUnprocessableEntity || !strings.Contains(string(text), want) {
			t.Errorf("a bad proof: %d %s, want 422 with %q", status, text, want)
		}
	}
	space, proof := newProof(t, w, 24*time.Hour)
	var posted words.Task
	w.Must("POST", "/api/transcode", toSpace(o.URL+"/tiny.mp4", proof), &posted)
	task := w.Completed(posted.ID)
	out := task.Output.Transcode
	root, ok := strings.CutPrefix(out.BaseURL, "ipfs://")
	if !ok || out.HLS == nil || len(out.MP4) == 0 {
		t.Fatalf("the output is %+v", out)
	}
	if text, _ := json.Marshal(task); bytes.Contains(text, []byte(proof[:40])) || strings.Contains(w.Output.String(), proof[:40]) {
		t.Error("the task or the log shows the proof")
	}
	gateway := w.URL + "/ipfs/" + root
	if got := len(harness.FrameSums(t, gateway+out.HLS.Path)); got != 50 {
		t.Errorf("the playlist has %d frames, want 50", got)
	}
	for _, file := range out.MP4 {
		harness.FFmpeg(t, "-i", gateway+file.Path, "-f", "null", "-")
		_, whole := anonymous(t, gateway+file.Path)
		response, part := anonymous(t, gateway+file.Path, "Range", "bytes=1000-1999")
		if response.StatusCode != http.StatusPartialContent || !bytes.Equal(part, whole[1000:2000]) {
			t.Errorf("a range of %s: %d with %d bytes", file.Path, response.StatusCode, len(part))
		}
	}
	player := harness.NewBrowser(t, t.TempDir())
	check(player, "hls.js", gateway+out.HLS.Path, "", 50, 2, len(out.MP4))
	check(player, "video", gateway+out.MP4[0].Path, "", 50, 2, 1)
	files := unpackCAR(t, gateway+"?format=car", root)
	for _, name := range []string{out.HLS.Path, out.MP4[0].Path} {
		_, want := anonymous(t, gateway+name)
		if got, err := os.ReadFile(files + name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s in the CAR file has %d bytes, %v, and at the gateway %d", name, len(got), err, len(want))
		}
	}

	var uploads []words.IPFSUpload
	w.Must("GET", "/api/ipfs/upload?space="+space, nil, &uploads)
	if len(uploads) != 1 || uploads[0].Root != root || uploads[0].TaskID != task.ID || uploads[0].Size == 0 {
		t.Fatalf("the uploads are %+v", uploads)
	}
	var quota struct {
		Storage struct{ Used int64 } `json:"storage"`
	}
	w.Must("GET", "/api/user/quota", nil, &quota)
	if quota.Storage.Used != uploads[0].Size {
		t.Errorf("the account uses %d bytes, its upload has %d", quota.Storage.Used, uploads[0].Size)
	}

	damage(t, w, uploads[0], gateway, out.MP4[0].Path, out.HLS.Path)
	if status, text := w.Do("POST", "/ucan", "not an invocation"); status != http.StatusUnprocessableEntity && status != http.StatusBadRequest {
		t.Errorf("POST /ucan without an invocation: %d %s", status, text)
	}

	// The outputs are a source, too: weir reads its own blocks.
	w.Must("POST", "/api/transcode", toSpace(out.BaseURL+out.MP4[0].Path, proof), &posted)
	if again := w.Completed(posted.ID).Output.Transcode; again.InputVideo.Size == 0 {
		t.Errorf("the output is %+v", again)
	}

	w.Must("DELETE", "/api/ipfs/upload/"+uploads[0].ID, nil, nil)
	if response, text := anonymous(t, gateway+out.HLS.Path); response.StatusCode != http.StatusNotFound {
		t.Errorf("what was deleted: %d %s, want 404", response.StatusCode, text)
	}
	harness.Eventually(t, func() error {
		if files, err := os.ReadDir(w.Data + "/media/ipfs/" + uploads[0].ID); err == nil {
			return fmt.Errorf("%d CAR files are left", len(files))
		}
		return nil
	})
}

// unpackCAR lets ipfs-car verify and unpack a CAR file with a root, and returns the folder with the files.
func unpackCAR(t *testing.T, address, root string) string {
	t.Helper()
	response, data := anonymous(t, address)
	if kind := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK || !strings.HasPrefix(kind, "application/vnd.ipld.car") {
		t.Fatalf("%s: %d, %s", address, response.StatusCode, kind)
	}
	file, folder := filepath.Join(t.TempDir(), "fetched.car"), filepath.Join(t.TempDir(), "files")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := harness.IPFSCar(t, "roots", file); got != root {
		t.Errorf("the CAR file has the root %s, want %s", got, root)
	}
	harness.IPFSCar(t, "unpack", file, "--output", folder)
	if again := harness.IPFSCar(t, "pack", "--no-wrap", folder, "--output", file); again != root {
		t.Errorf("ipfs-car makes the root %s of the files, weir made %s", again, root)
	}
	return folder
}

// damage flips a byte of a file in a stored CAR file. The gateway refuses the file in every form, says so in
// the log once, and serves the others.
func damage(t *testing.T, w *harness.Weir, u words.IPFSUpload, gateway, file, other string) {
	t.Helper()
	response, good := anonymous(t, gateway+file)
	block := strings.Trim(response.Header.Get("Etag"), `"`)
	shard := fmt.Sprintf("%s/media/ipfs/%s/0.car", w.Data, u.ID)
	stored, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(stored, good)
	if at < 0 {
		t.Fatalf("%s is not in %s", file, shard)
	}
	flip := func() {
		t.Helper()
		stored[at+len(good)/2] ^= 1
		if err := os.WriteFile(shard, stored, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flip()
	for _, address := range []string{gateway + file, gateway + file + "?format=raw", w.URL + "/ipfs/" + block, w.URL + "/ipfs/" + block + "?format=raw"} {
		if response, body := anonymous(t, address); response.StatusCode != http.StatusInternalServerError || len(body) > 300 || response.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s with a flipped byte: %d with %d bytes, %v", address, response.StatusCode, len(body), response.Header)
		}
	}
	// The header of a CAR file is sent before the blocks are read, so that it is not complete.
	if response, err := http.Get(gateway + "?format=car"); err == nil {
		data, broken := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if response.StatusCode == http.StatusOK && broken == nil && !bytes.Contains(data, []byte("truncated")) || bytes.Contains(data, stored[at:at+len(good)]) {
			t.Errorf("a CAR file with a flipped byte: %d with %d bytes", response.StatusCode, len(data))
		}
	}
	if response, body := anonymous(t, gateway+other); response.StatusCode != http.StatusOK || len(body) == 0 {
		t.Errorf("%s beside a damaged file: %d", other, response.StatusCode)
	}
	if n := strings.Count(w.Log.String(), "stored block is damaged"); n != 1 || !strings.Contains(w.Log.String(), block) {
		t.Errorf("%d lines about damage are in the log, want one about %s", n, block)
	}
	flip()
	if _, body := anonymous(t, gateway+file); !bytes.Equal(body, good) {
		t.Errorf("the file was mended, and has %d bytes, want %d", len(body), len(good))
	}
}

// TestIPFSCopy copies a gated asset to IPFS: those who may play it may read the copy.
func TestIPFSCopy(t *testing.T) {
	t.Parallel()
	w, o := harness.NewWeir(t), harness.NewOrigin(t, harness.TinyClip(t))
	w.Start()
	var key struct{ ID, PublicKey, PrivateKey string }
	w.Must("POST", "/api/access-control/signing-key", map[string]any{"name": "signer"}, &key)
	var made struct {
		Asset words.Asset
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{
		"name": "gated", "url": o.URL + "/tiny.mp4", "playbackPolicy": map[string]any{"type": "jwt"}, "storage": map[string]any{"ipfs": true},
	}, &made)
	w.Completed(made.Task.ID)
	var asset words.Asset
	w.Must("GET", "/api/asset/"+made.Asset.ID, nil, &asset)
	if asset.Storage == nil || asset.Storage.IPFS == nil || asset.Storage.IPFS.GatewayURL != w.URL+"/ipfs/"+asset.Storage.IPFS.CID {
		t.Fatalf("the storage of the asset is %+v", asset.Storage)
	}
	address := asset.Storage.IPFS.GatewayURL
	forms := []string{"", "?format=raw", "?format=car"}
	for _, form := range forms {
		if response, text := anonymous(t, address+form); response.StatusCode != http.StatusForbidden || response.Header.Get("Cache-Control") != "private, no-store" {
			t.Errorf("%s without a JWT: %d %s, %v, want 403", form, response.StatusCode, text, response.Header)
		}
		if response, text := anonymous(t, address+form, "If-None-Match", "*"); response.StatusCode != http.StatusForbidden {
			t.Errorf("%s without a JWT, for a cache: %d %s, want 403", form, response.StatusCode, text)
		}
	}
	pem, err := base64.StdEncoding.DecodeString(key.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	private, err := jwt.ParseECPrivateKeyFromPEM(pem)
	if err != nil {
		t.Fatal(err)
	}
	token := signed(t, private, key.PublicKey, asset.PlaybackID)
	source, err := os.ReadFile(harness.TinyClip(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range forms {
		response, body := anonymous(t, address+form, "Livepeer-Jwt", token)
		if response.StatusCode != http.StatusOK || !bytes.Contains(body, source) || !strings.Contains(response.Header.Get("Cache-Control"), "private") {
			t.Errorf("%s with a JWT: %d with %d bytes, %v", form, response.StatusCode, len(body), response.Header)
		}
	}
	unpacked, err := os.ReadFile(unpackCAR(t, address+"?format=car&jwt="+token, asset.Storage.IPFS.CID))
	if err != nil || !bytes.Equal(unpacked, source) {
		t.Errorf("the CAR file has %d bytes of the film, %v", len(unpacked), err)
	}

	// It is played by its CID, and gone with the asset.
	w.Must("GET", "/api/playback/"+asset.Storage.IPFS.CID, nil, nil)
	w.Must("DELETE", "/api/asset/"+asset.ID, nil, nil)
	harness.Eventually(t, func() error {
		if response, _ := anonymous(t, address+"?jwt="+token); response.StatusCode != http.StatusNotFound {
			return fmt.Errorf("the copy of a deleted asset: %d", response.StatusCode)
		}
		return nil
	})
}

// signed returns a JWT for a viewer.
func signed(t *testing.T, key *ecdsa.PrivateKey, public, playbackID string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"action": "pull", "iss": "test", "pub": public, "sub": playbackID, "video": "none", "exp": time.Now().Add(time.Hour).Unix(),
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
