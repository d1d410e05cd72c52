package c2pa

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// upload makes a signed asset of a file.
func upload(t *testing.T, w *harness.Weir, file string) words.Asset {
	t.Helper()
	o := harness.NewOrigin(t, file)
	var posted struct {
		Asset words.Asset
		Task  words.Task
	}
	w.Must("POST", "/api/asset/upload/url", map[string]any{
		"name": "the signed film", "url": o.URL + "/" + filepath.Base(file), "c2pa": true, "targetSegmentSizeSecs": 2, "creatorId": "somebody",
	}, &posted)
	w.Completed(posted.Task.ID)
	return ready(w, posted.Asset.ID)
}

func ready(w *harness.Weir, id string) (a words.Asset) {
	w.T.Helper()
	w.Must("GET", "/api/asset/"+id, nil, &a)
	if a.Status.Phase != words.AssetReady || a.PlaybackURL == "" || a.C2PA == nil || !a.C2PA.Signed {
		w.T.Fatalf("the asset is %+v", a)
	}
	return a
}

// record makes a signed recording.
func record(t *testing.T, w *harness.Weir, rtmp string) words.Asset {
	t.Helper()
	var stream struct{ ID, StreamKey string }
	w.Must("POST", "/api/stream", map[string]any{"name": "the show", "profiles": []any{}, "record": true, "c2pa": true}, &stream)
	harness.FFmpeg(t, "-re", "-i", harness.SmallClip(t), "-c", "copy", "-f", "flv", "rtmp://"+rtmp+"/live/"+stream.StreamKey)
	w.Must("DELETE", "/api/stream/"+stream.ID+"/terminate", nil, nil)
	var sessions []struct{ AssetID, RecordingStatus string }
	harness.Eventually(t, func() error {
		w.Must("GET", "/api/stream/"+stream.ID+"/sessions", nil, &sessions)
		if len(sessions) != 1 || sessions[0].RecordingStatus != "ready" {
			return fmt.Errorf("the sessions are %+v", sessions)
		}
		return nil
	})
	return ready(w, sessions[0].AssetID)
}

// cut makes a clip of a recording, which is signed because the recording is.
func cut(t *testing.T, w *harness.Weir, of words.Asset) words.Asset {
	t.Helper()
	var posted struct {
		Asset words.Asset
		Task  words.Task
	}
	w.Must("POST", "/api/clip", map[string]any{"playbackId": of.PlaybackID, "startTime": 1300, "endTime": 6200, "name": "the clip"}, &posted)
	w.Completed(posted.Task.ID)
	return ready(w, posted.Asset.ID)
}

// playedChecks are all files that a player gets of an asset.
func playedChecks(t *testing.T, w *harness.Weir, dir, name string, a words.Asset) (checks []check) {
	t.Helper()
	keep := func(address string) string {
		file := filepath.Join(dir, name+"-"+strings.NewReplacer("/", "-", ":", "-").Replace(strings.TrimPrefix(address, w.URL)))
		write(t, file, harness.Fetch(t, address))
		return file
	}
	named := func(address string) (found []string) {
		base, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(harness.Fetch(t, address))) {
			line = strings.TrimSpace(line)
			if _, after, ok := strings.Cut(line, `URI="`); ok {
				line, _, _ = strings.Cut(after, `"`)
			}
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			u, err := base.Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, u.String())
		}
		return found
	}
	master := w.URL + "/hls/" + a.PlaybackID + "/index.m3u8"
	for _, list := range named(master) {
		init := ""
		for _, address := range named(list) {
			file := keep(address)
			if strings.HasSuffix(address, ".m4s") {
				checks = append(checks, check{Name: name + " " + address, File: init, Segment: file, good: true})
				continue
			}
			init = file
		}
		if rendition := strings.TrimSuffix(list, "/index.m3u8"); !strings.Contains(filepath.Base(rendition), "audio") {
			checks = append(checks, check{Name: name + " " + rendition + ".mp4", File: keep(rendition + ".mp4"), good: true})
		}
	}
	if len(checks) < 5 {
		t.Errorf("%s: only %d files", name, len(checks))
	}
	return checks
}

// TestPlayed verifies what players get of a signed asset, a recording and a clip.
func TestPlayed(t *testing.T) {
	t.Parallel()
	w, rtmp := harness.NewWeir(t), harness.FreeAddr(t)
	w.Start("--rtmp", rtmp)
	status, root := w.Do("GET", "/api/c2pa/root.pem", nil)
	if status != http.StatusOK {
		t.Fatalf("the root: %d %s", status, root)
	}
	asset, recording := upload(t, w, harness.SmallClip(t)), record(t, w, rtmp)
	clip := cut(t, w, recording)
	dir := t.TempDir()
	trust := filepath.Join(dir, "root.pem")
	write(t, trust, root)
	var checks []check
	for name, a := range map[string]words.Asset{"asset": asset, "recording": recording, "clip": clip} {
		checks = append(checks, playedChecks(t, w, dir, name, a)...)
		if out, ok := verify(t, "verify", w.URL+"/hls/"+a.PlaybackID+"/index.m3u8", "--trust", trust); !ok || strings.Contains(out, "note ") {
			t.Errorf("%s: weir verify says\n%s", name, out)
		}
		if status, _ := w.Do("GET", "/hls/"+a.PlaybackID+"/ts.m3u8", nil); status != http.StatusNotFound {
			t.Errorf("%s: MPEG-TS is %d", name, status)
		}
	}
	askOthers(t, string(root), checks)
	// What made the pictures is not known, only that they came.
	for name, a := range map[string]words.Asset{"recording": recording, "clip": clip} {
		out, _ := verify(t, "verify", "--json", w.URL+"/hls/"+a.PlaybackID+"/index.m3u8")
		if strings.Contains(out, "digitalSourceType") || !strings.Contains(out, `"a live stream that weir received by RTMP from 20`) {
			t.Errorf("%s: weir verify says\n%s", name, out)
		}
	}
	w.Stop()
}

// TestWatchPage lets a viewer ask the watch page where a video comes from.
func TestWatchPage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	w := harness.NewWeir(t)
	w.Start()
	asset := upload(t, w, harness.SmallClip(t))
	page := w.URL + "/play/" + asset.PlaybackID
	text := func(b *harness.Browser, id string) string {
		return b.Text(`document.getElementById('` + id + `').textContent`)
	}
	says := func(b *harness.Browser, badge, verdict string) {
		t.Helper()
		harness.Eventually(t, func() error {
			if got := text(b, "verdict"); text(b, "signed") != badge || !strings.HasPrefix(got, verdict) {
				return fmt.Errorf("the badge says %q: %q; want %q: %q", text(b, "signed"), got, badge, verdict)
			}
			return nil
		})
	}
	click := func(b *harness.Browser) { _ = b.Text(`document.getElementById('signed').click(); ''`) }

	b := harness.NewBrowser(t, t.TempDir())
	b.Open(page)
	b.Moves(nil)
	if loaded := b.Text(`performance.getEntriesByType('resource').map((r) => r.name).filter((n) => /wasm|verify|root/.test(n)).join()`); loaded != "" {
		t.Errorf("loaded before somebody asked: %s", loaded)
	}
	click(b)
	says(b, "Signed", "Valid: what you see is as it was signed by this server.")
	for id, want := range map[string]string{"who": "weir C2PA signer", "what": "the signed film", "when": "20", "from": "the signed film, which is not signed"} {
		if got := text(b, id); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q in it", id, got, want)
		}
	}
	b.Stays()

	// Somebody changes the signed file, and weir signs what is made of it.
	film := filepath.Join(t.TempDir(), "film.mp4")
	master := w.URL + "/hls/" + asset.PlaybackID + "/index.m3u8"
	list := regexp.MustCompile(`(?m)^[^#\n]+/index\.m3u8$`).Find(harness.Fetch(t, master))
	base, err := url.Parse(master)
	if err == nil {
		base, err = base.Parse(strings.Replace(string(list), "/index.m3u8", ".mp4", 1))
	}
	if err != nil || list == nil {
		t.Fatalf("the MP4 file of the first rendition: %q, %v", list, err)
	}
	data := harness.Fetch(t, base.String())
	data[len(data)-1] ^= 1
	write(t, film, data)
	again := harness.NewBrowser(t, t.TempDir())
	again.Open(w.URL + "/play/" + upload(t, w, film).PlaybackID)
	again.Moves(nil)
	click(again)
	says(again, "Source not valid", "The source was not valid: what you see is as it was signed, but what it was made from was not. the signed film: ")
	if got := text(again, "from"); got != "the signed film, which was signed, but was not valid any more" {
		t.Errorf("made from %q", got)
	}
	again.Stays()

	// Somebody changes the last byte of all segments in the storage.
	segments, err := filepath.Glob(filepath.Join(w.Data, "media", "asset", asset.ID, "*", "*.m4s"))
	if err != nil || len(segments) == 0 {
		t.Fatalf("segments: %v, %v", segments, err)
	}
	for _, name := range segments {
		data := read(t, name)
		data[len(data)-1] ^= 1
		write(t, name, data)
	}
	other := harness.NewBrowser(t, t.TempDir()) // one that has nothing in its cache
	other.Open(page)
	harness.Eventually(t, func() error {
		if other.Text("String(document.getElementById('video').currentTime > 0)") != "true" {
			return fmt.Errorf("it does not play")
		}
		return nil
	})
	click(other)
	says(other, "Not valid", "Not valid: ")
	if got := text(other, "verdict"); !strings.Contains(strings.ToLower(got), "fragment") && !strings.Contains(strings.ToLower(got), "hash") {
		t.Errorf("the reason is %q", got)
	}
	other.Stays()
	w.Stop()
}

// TestWatchPageValidator holds the validator of the watch page against the one of the tests.
func TestWatchPageValidator(t *testing.T) {
	t.Parallel()
	for ours, theirs := range map[string]string{"c2pa.js": "pkg/c2pa.js", "c2pa.wasm.gz": "pkg/c2pa_bg.wasm", "c2pa.LICENSE": "LICENSE"} {
		have := read(t, filepath.Join("..", "..", "web", "c2pa", ours))
		if strings.HasSuffix(ours, ".gz") {
			r, err := gzip.NewReader(bytes.NewReader(have))
			if err != nil {
				t.Fatal(err)
			}
			if have, err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(filepath.Join("node_modules", "@contentauth", "c2pa-wasm", theirs))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, want) {
			t.Errorf("web/c2pa/%s is not that of the c2pa-wasm that the tests use", ours)
		}
	}
}
