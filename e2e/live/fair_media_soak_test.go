//go:build soak

package live

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
	words "weir/internal/weir"
)

// fairMedia uploads files that ask for more work than they are worth. Each must be refused soon, with a
// sentence of its own, and not be tried again.
func fairMedia(t *testing.T, w *harness.Weir, row func(what, quiet, attacked, limit string, ok bool)) {
	w.Start()
	dir := t.TempDir()
	file := func(name string, args ...string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		harness.FFmpeg(t, append(append([]string{"-y"}, args...), path)...)
		return path
	}
	jump := func(by string) []string {
		return []string{"-f", "lavfi", "-i", "sine=d=2:r=48000", "-af", "asetpts='PTS+gte(T,1)*" + by + "/TB'"}
	}
	tracks := slices.Concat([]string{"-f", "lavfi", "-i", "anullsrc", "-t", "0.1"}, slices.Repeat([]string{"-map", "0"}, 300))
	files := map[string]string{
		"hole of 10 h": file("bomb.m4a", append(jump("36000"), "-c:a", "aac", "-b:a", "16k")...),
		"1e6 segments": file("many.mka", append(jump("2000000"), "-c:a", "pcm_s16le")...),
		"300 tracks":   file("tracks.mka", append(tracks, "-c:a", "pcm_s16le")...),
		"16000² GIF":   file("large.gif", "-f", "lavfi", "-i", "color=size=16000x16000", "-frames:v", "1"),
	}
	sentences := map[string]string{}
	check := func(name string, task words.Task, took time.Duration) {
		t.Helper()
		retries := 0
		if task.Status.Retries != nil {
			retries = *task.Status.Retries
		}
		text := task.Status.ErrorMessage
		other, used := sentences[text]
		sentences[text] = name
		ok := task.Status.Phase == words.TaskFailed && retries == 0 && !used && text != "" && !strings.Contains(text, "internal error") && took <= 5*time.Second
		t.Logf("%s: %s", name, text)
		if used {
			t.Logf("%s has the sentence of %s", name, other)
		}
		row(name+" is refused after", "-", fmt.Sprintf("%.1f s", took.Seconds()), "5 s, no retry", ok)
	}
	for name, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var made struct {
			URL  string
			Task struct{ ID string }
		}
		w.Must("POST", "/api/asset/request-upload", map[string]any{"name": name}, &made)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, made.URL, bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		began := time.Now()
		check(name, w.Ended(made.Task.ID), time.Since(began))
	}

	var list bytes.Buffer
	list.WriteString("#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n")
	for i := range 1_000_000 {
		fmt.Fprintf(&list, "#EXTINF:0.01,\n%d.ts\n", i)
	}
	list.WriteString("#EXT-X-ENDLIST\n")
	server := httptest.NewServer(http.HandlerFunc(func(a http.ResponseWriter, _ *http.Request) { _, _ = a.Write(list.Bytes()) }))
	t.Cleanup(server.Close)
	var made struct{ Task struct{ ID string } }
	w.Must("POST", "/api/asset/upload/url", map[string]any{"name": "a", "url": server.URL + "/index.m3u8"}, &made)
	began := time.Now()
	check("playlist of 1e6 segments", w.Ended(made.Task.ID), time.Since(began))
	w.Stop()
}
