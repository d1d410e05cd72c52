package vod

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/e2e/harness"
	"weir/internal/ipld"
	words "weir/internal/weir"
)

// TestIPFSScripts: no script comes from the gateway to a page of weir: none of a caller's CID, and none of
// an upload. The gateway's own host is in the addresses that weir hands out, and has nothing else.
func TestIPFSScripts(t *testing.T) {
	t.Parallel()
	w, o := harness.NewWeir(t), harness.NewOrigin(t, harness.TinyClip(t))
	w.Start("--ipfs-url", "http://ipfs.localhost")
	var made struct {
		Asset words.Asset
		Task  struct{ ID string }
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{"name": "film", "url": o.URL + "/tiny.mp4", "storage": map[string]any{"ipfs": true}}, &made)
	w.Completed(made.Task.ID)
	var asset words.Asset
	w.Must("GET", "/api/asset/"+made.Asset.ID, nil, &asset)
	if asset.Storage == nil || asset.Storage.IPFS == nil || asset.Storage.IPFS.GatewayURL != "http://ipfs.localhost/ipfs/"+asset.Storage.IPFS.CID {
		t.Fatalf("the storage of the asset is %+v", asset.Storage)
	}
	film := "/ipfs/" + asset.Storage.IPFS.CID
	script := "document.title = 'mine'"
	inline := ipld.CID(append([]byte{1, ipld.Raw, ipld.Identity, byte(len(script))}, script...))

	page := harness.NewBrowser(t, t.TempDir())
	page.Open(w.URL + "/docs")
	for _, address := range []string{"/ipfs/" + inline.String(), film} {
		page.Text(fmt.Sprintf(`{
			globalThis.outcome = ''
			const script = document.createElement('script')
			script.onload = () => { outcome = 'run' }
			script.onerror = () => { outcome = 'refused' }
			script.src = %q
			document.head.append(script)
			''
		}`, address+"?filename=a.js"))
		harness.Eventually(t, func() error {
			if page.Text("outcome") == "" {
				return fmt.Errorf("%s is not loaded yet", address)
			}
			return nil
		})
		if outcome, title := page.Text("outcome"), page.Text("document.title"); outcome != "refused" || title == "mine" {
			t.Errorf("%s as a script: %s, the title of the page is %q", address, outcome, title)
		}
	}

	for path, want := range map[string]struct {
		status int
		kind   string
	}{
		film + "?filename=a.js":     {200, "text/javascript; charset=utf-8"},
		film + "?filename=film.mp4": {200, "video/mp4"},
		"/ipfs/" + inline.String():  {404, "text/plain; charset=utf-8"},
		"/api/asset":                {404, "application/json; charset=utf-8"},
		"/login":                    {404, "application/json; charset=utf-8"},
		"/docs":                     {404, "application/json; charset=utf-8"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "ipfs.localhost"
		r.Header.Set("Authorization", "Bearer "+w.Key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if kind := response.Header.Get("Content-Type"); response.StatusCode != want.status || !strings.HasPrefix(kind, want.kind) {
			t.Errorf("%s on the gateway's host: %d %s, want %d %s", path, response.StatusCode, kind, want.status, want.kind)
		}
	}
}
