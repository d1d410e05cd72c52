package server

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/guard"
	"weir/internal/ipfs"
	"weir/internal/playback"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/ucan"
	"weir/internal/weir"
)

// recordedProof returns one of the proofs for the key with this seed.
func recordedProof(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../ucan/testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func newSpaceServer(kind string) *server {
	s := &server{identity: ucan.NewIdentity([32]byte(bytes.Repeat([]byte{0x12}, 32))), ipfs: config.IPFSRemote{Kind: kind}}
	s.did = s.identity.DID()
	return s
}

// TestProofs: what becomes of the proof of a task, when it is created and later.
func TestProofs(t *testing.T) {
	local, service := newSpaceServer(weir.IPFSLocal), newSpaceServer(weir.IPFSUCAN)
	recorded := time.Date(2026, 11, 18, 1, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		server  *server
		proof   string
		created time.Time
		want    string // in the error
	}{
		"good":                      {local, recordedProof(t, "good/no-end"), recorded, ""},
		"ended meanwhile":           {local, recordedProof(t, "bad/expired"), recorded.Add(-2 * time.Hour), "the proof expired at 2026-11-17T23:34:24Z"},
		"ended before":              {local, recordedProof(t, "bad/expired"), recorded, "ended at 2026-11-17T23:34:24Z"},
		"own space":                 {local, "", recorded, ""},
		"own space, upload service": {service, "", recorded, "needs a proof from the owner of a space"},
	} {
		space, err := tt.server.openSpace(tt.proof, tt.created)
		switch {
		case tt.want == "" && (err != nil || !strings.HasPrefix(space.DID, "did:key:") || (space.DID == local.did) != (tt.proof == "")):
			t.Errorf("%s: space %q, %v", name, space.DID, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want) || weir.KindOf(err) != weir.Invalid):
			t.Errorf("%s: %v, want an error with %q", name, err, tt.want)
		}
	}
	account := recordedProof(t, "good/account")
	if _, err := service.proof(account, recorded, recorded); err != nil {
		t.Errorf("a proof of an account, with an upload service: %v", err)
	}
	for _, kind := range []string{weir.IPFSLocal, weir.IPFSKubo} {
		if _, err := newSpaceServer(kind).proof(account, recorded, recorded); err == nil || !strings.Contains(err.Error(), "did:mailto") {
			t.Errorf("a proof of an account, with %s: %v", kind, err)
		}
	}
}

// TestWhoMayRead: outputs of tasks are public, copies of assets for those who may play the asset, and as
// sources for its project.
func TestWhoMayRead(t *testing.T) {
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	o := store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: "here"}
	st, err := store.Open(ctx, storetest.SQLite(t, store.Open, o), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	media, err := blob.NewDisk(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = media.Close() })
	s := &server{store: st, media: media, log: log, guard: guard.New(nil), cfg: &config.Config{IPFSGateways: []string{"http://192.168.0.1"}}}
	if s.playback, err = playback.New(ctx, playback.Options{Store: st, Media: media, Gate: access.New(st, nil, log), Log: log}); err != nil {
		t.Fatal(err)
	}

	ann := weir.User{ID: weir.NewID(), Email: "ann@example.com"}
	asset := weir.Asset{ID: weir.NewID(), PlaybackID: "gated", Status: weir.AssetStatus{Phase: weir.AssetWaiting}, PlaybackPolicy: &weir.PlaybackPolicy{Type: weir.PolicyJWT}}
	if err := st.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateUser(ctx, &ann); err != nil {
			return err
		}
		asset.UserID, asset.ProjectID = ann.ID, "p1"
		return tx.CreateAsset(ctx, &asset)
	}); err != nil {
		t.Fatal(err)
	}
	// add stores a file and returns the upload with its CID.
	add := func(text, assetID string) weir.IPFSUpload {
		u := weir.IPFSUpload{ID: weir.NewID(), UserID: ann.ID, ProjectID: "p1", TaskID: weir.NewID(), AssetID: assetID, Space: "did:key:z", Remote: weir.IPFSLocal}
		dest := ipfs.NewDest(ipfs.DestOptions{
			Staging: media, Prefix: "work/" + u.ID, Scratch: t.TempDir(), Remote: ipfs.NewLocal(media, st, u.ID), Single: true,
		})
		err := dest.Put(ctx, "file", strings.NewReader(text), int64(len(text)), blob.PutOptions{})
		base := ""
		if err == nil {
			base, err = dest.Seal(ctx)
		}
		if err == nil {
			err = st.Tx(ctx, func(tx *store.Tx) error {
				if _, err := tx.OpenIPFSUpload(ctx, u); err != nil {
					return err
				}
				u, err = tx.CompleteIPFSUpload(ctx, u.ID, strings.TrimPrefix(base, "ipfs://"), time.Now())
				return err
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	outputs, copied := add("outputs of a task", ""), add("copy of an asset", asset.ID)

	gateway := http.NewServeMux()
	s.metrics = newMetrics(Version{})
	gateway.Handle("/ipfs/", s.ipfsHandler("/ipfs/{path}", ipfs.NewGateway(s.blocks(), s.mayRead, s.onIPFSHost)))
	read := func(u weir.IPFSUpload) (int, string) { return get(t, gateway, "/ipfs/"+u.Root) }
	if status, text := read(outputs); status != http.StatusOK || text != "outputs of a task" {
		t.Errorf("outputs of a task: %d %s", status, text)
	}
	// The asset has no media, so playback does not know it; a gated one is in the e2e tests.
	if status, text := read(copied); status < 400 || strings.Contains(text, "copy of") {
		t.Errorf("copy of a gated asset: %d %s", status, text)
	}

	fetch := func(u weir.IPFSUpload, owner weir.Owner) (string, error) {
		content, err := s.ipfsSource(owner)(ctx, u.Root, "")
		if err != nil {
			return "", err
		}
		body, err := content.Open(ctx, 0, content.Size())
		if err != nil {
			return "", err
		}
		defer func() { _ = body.Close() }()
		text, err := io.ReadAll(body)
		return string(text), err
	}
	for _, tt := range []struct {
		upload weir.IPFSUpload
		owner  weir.Owner
		want   string
	}{
		{outputs, weir.Owner{UserID: "bob", ProjectID: "p2"}, "outputs of a task"},
		{copied, weir.Owner{UserID: ann.ID, ProjectID: "p1"}, "copy of an asset"},
		{copied, weir.Owner{UserID: ann.ID, ProjectID: "p2"}, ""},
		{copied, weir.Owner{UserID: "bob", ProjectID: "p1"}, ""},
	} {
		if text, err := fetch(tt.upload, tt.owner); text != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("source of %+v: %q, %v; want %q", tt.owner, text, err, tt.want)
		}
	}

	// What is deleted, or of a suspended account, is not read.
	if err := st.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, ann.ID, func(u *weir.User) error { u.Suspended = true; return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if status, text := read(outputs); status != http.StatusNotFound {
		t.Errorf("outputs of a suspended account: %d %s", status, text)
	}
	if _, err := fetch(outputs, weir.Owner{UserID: "bob"}); err == nil {
		t.Error("outputs of a suspended account are a source")
	}
}

// TestSpaces: the owner of a space lists and removes its uploads, of all accounts.
func TestSpaces(t *testing.T) {
	ctx := t.Context()
	o := store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: "here"}
	st, err := store.Open(ctx, storetest.SQLite(t, store.Open, o), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	var own ipfs.Uploads = spaces{st, &config.Config{}}
	for i, space := range []string{"did:key:a", "did:key:b", "did:key:a", "did:key:a"} {
		u := weir.IPFSUpload{ID: weir.NewID(), UserID: "u", TaskID: weir.NewID(), Space: space, CreatedAt: weir.Millis(i)}
		if err := st.Tx(ctx, func(tx *store.Tx) error {
			if _, err := tx.OpenIPFSUpload(ctx, u); err != nil || i == 3 { // the last one is not complete
				return err
			}
			_, err := tx.CompleteIPFSUpload(ctx, u.ID, "root"+string(rune('0'+i)), time.Now())
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	list := func(ctx context.Context) (roots []string) {
		t.Helper()
		cursor := ""
		for {
			page, next, err := own.List(ctx, "did:key:a", cursor, 1)
			if err != nil {
				t.Fatal(err)
			}
			for _, u := range page {
				roots = append(roots, u.Root)
			}
			if cursor = next; cursor == "" {
				return roots
			}
		}
	}
	if got := strings.Join(list(ctx), " "); got != "root0 root2" {
		t.Errorf("the space has %s", got)
	}
	if err := own.Remove(ctx, "did:key:a", "root1"); !weir.IsNotFound(err) {
		t.Errorf("removing the upload of another space: %v", err)
	}
	if err := own.Remove(ctx, "did:key:a", "root0"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(list(ctx), " "); got != "root2" {
		t.Errorf("the space has %s after the removal", got)
	}
}

// TestIPFSHost: the host for uploads to IPFS serves nothing else.
func TestIPFSHost(t *testing.T) {
	s := &server{cfg: &config.Config{IPFSURL: "https://ipfs.example:8443", TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}}
	handler := s.separate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		from, host, forwarded, path string
		alone                       bool
		status                      int
	}{
		{"192.0.2.1:5", "ipfs.example:8443", "", "/ipfs/bafy", true, 200},
		{"192.0.2.1:5", "IPFS.example", "", "/ipfs/bafy", true, 200},
		{"192.0.2.1:5", "ipfs.example", "", "/", true, 404},
		{"192.0.2.1:5", "ipfs.example", "", "/api/asset", true, 404},
		{"192.0.2.1:5", "ipfs.example", "", "/login", true, 404},
		{"192.0.2.1:5", "video.example", "", "/", false, 200},
		{"192.0.2.1:5", "video.example", "", "/ipfs/bafy", false, 200},
		{"192.0.2.1:5", "a.ipfs.example", "", "/", false, 200},
		{"192.0.2.1:5", "video.example", "ipfs.example", "/", false, 200}, // not a proxy of ours
		{"10.0.0.1:5", "weir:8080", "ipfs.example", "/", true, 404},
		{"10.0.0.1:5", "weir:8080", "ipfs.example", "/ipfs/bafy", true, 200},
	} {
		r := httptest.NewRequest(http.MethodGet, tt.path, nil)
		r.RemoteAddr, r.Host = tt.from, tt.host
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-Host", tt.forwarded)
		}
		w := httptest.NewRecorder()
		if handler.ServeHTTP(w, r); w.Code != tt.status || s.onIPFSHost(r) != tt.alone {
			t.Errorf("%+v: %d %s, alone %t", tt, w.Code, w.Body, s.onIPFSHost(r))
		}
	}
	if s = (&server{cfg: &config.Config{}}); s.onIPFSHost(httptest.NewRequest(http.MethodGet, "http:///ipfs/bafy", nil)) {
		t.Error("without the setting, a host is that of uploads")
	}
}
