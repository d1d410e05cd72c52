//go:build soak

package live

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/store"
)

// fairViewers lets somebody without an account send random User-Agents and access keys for a minute.
// What is left of it after pruning must be what a quiet minute leaves, and the view counts those of the
// honest viewers.
func fairViewers(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	quiet, views := viewersMinute(t, harness.NewWeirOn(t, engineOf(w)), w.Binary, false)
	attacked, attackedViews := viewersMinute(t, w, w.Binary, true)
	for table, rows := range attacked.Rows {
		if more := rows - quiet.Rows[table]; more > 0 {
			row("rows of "+table, fmt.Sprint(quiet.Rows[table]), fmt.Sprint(rows), "quiet + 1,000", more <= 1000)
		}
	}
	row("bytes of the database in use", fmt.Sprint(quiet.Bytes), fmt.Sprint(attacked.Bytes), "quiet + 2 MB", attacked.Bytes <= quiet.Bytes+2_000_000)
	row("views of the public video", fmt.Sprint(views), fmt.Sprint(attackedViews), "1 viewer more", attackedViews >= views && attackedViews <= views+1)
}

// engineOf returns the name of the database of a weir.
func engineOf(w *harness.Weir) string {
	if len(w.Database) > 8 && w.Database[:8] == "postgres" {
		return "postgres"
	}
	return "sqlite"
}

// viewersMinute lets one honest viewer watch a public and a gated video for a minute, beside an attack or
// not. It returns the size of the database after pruning, and the views of the public video.
func viewersMinute(t *testing.T, w *harness.Weir, binary string, attack bool) (store.Size, int64) {
	t.Helper()
	w.Binary = binary
	receiver := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Good") == "" {
			a.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(receiver.Close)
	w.Start()
	var hook struct{ ID string }
	w.Must("POST", "/api/webhook", map[string]any{"name": "gate", "url": receiver.URL, "events": []string{"playback.accessControl"}}, &hook)
	public := upload(w, harness.TinyClip(t), nil)
	gated := upload(w, harness.TinyClip(t), map[string]any{"playbackPolicy": map[string]any{"type": "webhook", "webhookId": hook.ID}})

	media := w.URL + "/hls/" + public + "/index.m3u8" // its first segment: playlists alone are no view
	for strings.HasSuffix(media, ".m3u8") {
		status, list := get(t, media)
		lines := slices.DeleteFunc(strings.Fields(list), func(s string) bool { return !strings.HasSuffix(s, ".m3u8") && !strings.HasSuffix(s, ".m4s") })
		if status != http.StatusOK || len(lines) == 0 {
			t.Fatalf("%s: %d\n%s", media, status, list)
		}
		media = media[:strings.LastIndex(media, "/")+1] + lines[0]
	}

	end := time.Now().Add(time.Minute)
	var attackers sync.WaitGroup
	if attack {
		for range 8 {
			attackers.Go(func() {
				for time.Now().Before(end) {
					agent := random()
					send(w.URL+"/hls/"+public+"/index.m3u8", agent)
					send(media, agent)
					send(w.URL+"/hls/"+gated+"/index.m3u8?accessKey="+random(), random())
				}
			})
		}
	}
	for time.Now().Before(end) {
		const agent = "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"
		send(w.URL+"/hls/"+public+"/index.m3u8", agent)
		send(media, agent)
		time.Sleep(time.Second)
	}
	attackers.Wait()
	var views int64
	harness.Eventually(t, func() error {
		var total []struct{ ViewCount int64 }
		w.Must("GET", "/api/data/views/query?playbackId="+public, nil, &total)
		if len(total) != 1 || total[0].ViewCount == 0 {
			return fmt.Errorf("views are %+v", total)
		}
		views = total[0].ViewCount
		return nil
	})
	w.Stop()
	st := w.OpenStore()
	if err := st.Prune(t.Context(), store.Retention{Events: 0, Credentials: 0, Health: 0, Views: 0}); err != nil {
		t.Fatal(err)
	}
	size, err := st.Size(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return size, views
}

// send sends one request of a viewer.
func send(url, agent string) {
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return
	}
	r.Header.Set("User-Agent", agent)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
}

func random() string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()) }
