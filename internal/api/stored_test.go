package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// call sends a request as ann and returns the response, which must have the status.
func (f *fixture) call(t *testing.T, method, path, body string, status int) map[string]any {
	t.Helper()
	r := httptest.NewRequest(method, "http://weir.test"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+f.vars["ann.key"])
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, r)
	if w.Code != status {
		t.Fatalf("%s %s answers %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	var response map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &response); err != nil {
			t.Fatal(err)
		}
	}
	return response
}

func idOf(t *testing.T, response map[string]any, member string) string {
	t.Helper()
	object, _ := response[member].(map[string]any)
	id, ok := object["id"].(string)
	if !ok {
		t.Fatalf("no %s.id in %v", member, response)
	}
	return id
}

// events returns the names of ann's events since the last call, and whose they are,
// and fails when one has a secret in it.
func (f *fixture) events(t *testing.T, after *int64, secrets ...string) []string {
	t.Helper()
	events, err := f.store.Events(t.Context(), f.vars["ann.id"], f.vars["ann.project"], *after, 100)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range events {
		*after = e.Seq
		var payload map[string]struct {
			Snapshot struct {
				Status struct {
					Phase string `json:"phase"`
				} `json:"status"`
			} `json:"snapshot"`
		}
		text := string(e.Payload)
		kind, _, _ := strings.Cut(string(e.Name), ".")
		_ = json.Unmarshal(e.Payload, &payload) // `success` is no object; the rest is read all the same
		names = append(names, fmt.Sprintf("%s %s", e.Name, payload[kind].Snapshot.Status.Phase))
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("event %s has %q in it: %s", e.Name, secret, text)
			}
		}
	}
	return names
}

func TestStoredEvents(t *testing.T) {
	f := newFixture(t)
	var seen int64
	check := func(what string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, f.events(t, &seen, "hunter2", "c2VjcmV0")); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", what, diff)
		}
	}
	const source = `{"name":"a","url":"https://user:hunter2@example.com/a.mp4","encryption":{"encryptedKey":"c2VjcmV0"},"playbackPolicy":{"type":"jwt"}}`
	imported := f.call(t, "POST", "/api/asset/upload/url", source, http.StatusCreated)
	asset, task := idOf(t, imported, "asset"), idOf(t, imported, "task")
	check("import", "asset.created waiting", "task.spawned waiting")
	f.call(t, "POST", "/api/asset/upload/url", source, http.StatusOK)
	check("the same again")
	f.call(t, "POST", "/api/task/"+task+"/cancel", "", http.StatusOK)
	check("cancel", "task.updated cancelled", "asset.updated failed", "asset.failed failed")
	f.call(t, "POST", "/api/task/"+task+"/cancel", "", http.StatusBadRequest)
	check("cancel again")
	f.call(t, "POST", "/api/asset/"+asset+"/retry", "", http.StatusNoContent)
	check("retry", "task.updated waiting", "asset.updated waiting")
	f.call(t, "DELETE", "/api/asset/"+asset, "", http.StatusNoContent)
	check("delete", "task.updated failed", "task.failed failed", "asset.deleted waiting")
	f.call(t, "POST", "/api/asset/"+asset+"/restore", "", http.StatusNoContent)
	check("restore", "asset.updated failed")

	f.call(t, "PATCH", "/api/asset/"+f.vars["asset"], `{"name":"b"}`, http.StatusOK)
	check("patch", "asset.updated ready")
	f.call(t, "POST", "/api/asset/"+f.vars["asset"]+"/export", `{"custom":{"url":"https://example.com/?sig=hunter2","headers":{"A":"hunter2"}}}`, http.StatusCreated)
	check("export", "task.spawned waiting")
	exported := f.call(t, "POST", "/api/asset/"+f.vars["asset"]+"/export", `{"ipfs":{}}`, http.StatusCreated)
	check("export of our own", "task.spawned waiting", "asset.updated ready")
	f.call(t, "POST", "/api/task/"+idOf(t, exported, "task")+"/cancel", "", http.StatusOK)
	check("cancelled export", "task.updated cancelled", "asset.updated ready")
}

func TestUploadToken(t *testing.T) {
	f := newFixture(t)
	response := f.call(t, "POST", "/api/asset/request-upload", `{"name":"a"}`, http.StatusOK)
	key, err := f.server.uploadKey(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for member, path := range map[string]string{"url": "/api/asset/upload/direct", "tusEndpoint": "/api/asset/upload/tus"} {
		u, err := url.Parse(response[member].(string))
		if err != nil {
			t.Fatal(err)
		}
		if u.Host != "weir.test" || u.Path != path {
			t.Errorf("%s = %s, want http://weir.test%s", member, u, path)
		}
		var claims uploadClaims
		if _, err := jwt.ParseWithClaims(u.Query().Get("token"), &claims, func(*jwt.Token) (any, error) { return key, nil },
			jwt.WithValidMethods([]string{"HS256"}), jwt.WithAudience("upload"), jwt.WithExpirationRequired()); err != nil {
			t.Fatal(err)
		}
		if claims.Subject != idOf(t, response, "asset") || claims.PlaybackID == "" || claims.ExpiresAt.Sub(claims.IssuedAt.Time) != 12*time.Hour {
			t.Errorf("%s: claims = %+v, want the asset's ids and 12 hours", member, claims)
		}
	}
}

// sources returns the kinds and addresses in a response of GET /playback.
func sources(t *testing.T, list any) []string {
	t.Helper()
	items, ok := list.([]any)
	if !ok {
		t.Fatalf("no list: %v", list)
	}
	var out []string
	for _, item := range items {
		s := item.(map[string]any)
		out = append(out, fmt.Sprintf("%v %v", s["hrn"], s["url"]))
	}
	return out
}

func TestPlaybackOnAir(t *testing.T) {
	f := newFixture(t)
	ctx, playbackID := t.Context(), f.vars["stream.playback"]
	if err := f.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateStream(ctx, f.vars["stream"], func(s *weir.Stream) error {
			s.IsActive = true
			return nil
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	meta := f.call(t, "GET", "/api/playback/"+playbackID+"?recordings=true", "", http.StatusOK)["meta"].(map[string]any)
	if meta["live"] != 1.0 {
		t.Errorf("live = %v, want 1", meta["live"])
	}
	want := []string{"HLS (TS) http://weir.test/hls/" + playbackID + "/dvr.m3u8"}
	if diff := cmp.Diff(want, sources(t, meta["dvrPlayback"])); diff != "" {
		t.Errorf("dvrPlayback (-want +got):\n%s", diff)
	}
	for _, on := range []bool{true, false} {
		f.server.WebRTC = on
		meta := f.call(t, "GET", "/api/playback/"+playbackID, "", http.StatusOK)["meta"].(map[string]any)
		if got := slices.Contains(sources(t, meta["source"]), "WebRTC (H264) http://weir.test/webrtc/"+playbackID); got != on {
			t.Errorf("with WebRTC %t it is among the sources: %t", on, got)
		}
	}
}

// TestPlaybackEarly plays an asset before it is ready, one without a stored address,
// and one of which only the owner knows the address on IPFS.
func TestPlaybackEarly(t *testing.T) {
	f := newFixture(t)
	ctx, playbackID := t.Context(), f.vars["asset.playback"]
	const cid = "QmYwAPJzv5CZsnA625s3Xf2nemtYgPpHdWEz79ojWnPbdG"
	change := func(change func(a *weir.Asset)) {
		t.Helper()
		if err := f.store.Tx(ctx, func(tx *store.Tx) error {
			_, err := tx.UpdateAsset(ctx, f.vars["asset"], func(a *weir.Asset) error {
				change(a)
				return nil
			})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(id string, want ...string) {
		t.Helper()
		info := f.call(t, "GET", "/api/playback/"+id, "", http.StatusOK)
		if diff := cmp.Diff(want, sources(t, info["meta"].(map[string]any)["source"])); diff != "" {
			t.Errorf("sources (-want +got):\n%s", diff)
		}
	}
	base := "http://weir.test/hls/" + playbackID
	change(func(a *weir.Asset) {
		a.Status.Phase, a.PlaybackURL = weir.AssetProcessing, "https://cdn.example.com/early.m3u8"
		a.Files = append(a.Files, weir.File{Type: "thumbnails_vtt", Path: "thumbnails/thumbnails.vtt"},
			weir.File{Type: "static_transcoded_mp4", Path: "a b?.mp4"})
		a.Storage = &weir.AssetStorage{IPFS: &weir.IPFSStorage{CID: cid}}
	})
	check(playbackID, "MP4 "+base+"/720p0.mp4", "MP4 "+base+"/a%20b%3F.mp4", "HLS (TS) https://cdn.example.com/early.m3u8", "Thumbnails "+base+"/thumbnails/thumbnails.vtt")
	change(func(a *weir.Asset) { a.Status.Phase, a.PlaybackURL, a.Files = weir.AssetReady, "", nil })
	check(playbackID, "HLS (TS) "+base+"/index.m3u8")
	check(cid, "HLS (TS) "+base+"/index.m3u8")
	change(func(a *weir.Asset) {
		a.Status.Phase, a.PlaybackURL = weir.AssetFailed, "https://cdn.example.com/early.m3u8"
	})
	f.call(t, "GET", "/api/playback/"+playbackID, "", http.StatusUnprocessableEntity)
}

func TestViewsNow(t *testing.T) {
	f := newFixture(t)
	ctx := t.Context()
	if err := f.store.Tx(ctx, func(tx *store.Tx) error {
		for i, ago := range []time.Duration{5 * time.Second, time.Second, 2 * time.Minute} {
			if err := tx.SaveViews(ctx, weir.View{
				ID: weir.NewID(), UserID: f.vars["ann.id"], ProjectID: f.vars["ann.project"], StreamID: f.vars["stream"], PlaybackID: f.vars["stream.playback"],
				Country: "Peru", StartedAt: weir.At(time.Now().Add(-time.Hour)), LastSeen: weir.At(time.Now().Add(-ago)), Errors: i,
			}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"", "&playbackId=" + f.vars["stream.playback"], "&streamId=" + f.vars["stream"]} {
		r := httptest.NewRequest("GET", "/api/data/views/now?breakdownBy[]=country"+path, nil)
		r.Header.Set("Authorization", f.vars["ann.key"])
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		if want := `[{"country":"Peru","errorRate":0,"viewCount":2}]`; w.Body.String() != want {
			t.Errorf("%s: %d %s, want %s", path, w.Code, w.Body, want)
		}
	}
}

func TestIngest(t *testing.T) {
	f := newFixture(t)
	f.server.Ingests = func(base string) map[string]string { return map[string]string{"whip": base + "/webrtc/"} }
	for _, tt := range []struct {
		at     string
		status int
		want   string
	}{
		{"rtmp://weir.test:1936/live", http.StatusOK, `[{"base":"http://weir.test","ingest":"rtmp://weir.test:1936/live","ingests":{"whip":"http://weir.test/webrtc/"},"playback":"http://weir.test/hls"}]`},
		{"", http.StatusNotImplemented, `{"errors":["Ingest not configured"]}`},
	} {
		f.server.Ingest = func(string) string { return tt.at }
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, httptest.NewRequest("GET", "/api/ingest", nil))
		if w.Code != tt.status || w.Body.String() != tt.want {
			t.Errorf("ingest at %q: %d %s, want %d %s", tt.at, w.Code, w.Body, tt.status, tt.want)
		}
	}
}
