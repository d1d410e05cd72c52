//go:build soak

package ucan

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"weir/e2e/harness"
	"weir/internal/ucan"
	"weir/internal/wait"
	words "weir/internal/weir"
)

var (
	soakBytes   = flag.Int64("ipfs-bytes", 2_000_000_000, "size of the upload during which weir is killed")
	soakMinutes = flag.Int("ipfs-minutes", 120, "length of the film that is played from the gateway")
)

// TestIPFSSoak plays the end of a long film from the gateway, and kills weir in the middle of uploads.
// `make soak-ipfs` runs it.
func TestIPFSSoak(t *testing.T) {
	binary := harness.Shipped(t)
	r := newRig(t)
	t.Run("seek", func(t *testing.T) { seekFar(t, r, binary) })
	t.Run("kill", func(t *testing.T) {
		film := harness.NewOrigin(t, harness.LoopedClip(t, *soakBytes)).URL + "/film.mp4"
		var local, service string
		t.Run("local", func(t *testing.T) { local = killLocal(t, r, binary, film) })
		t.Run("service", func(t *testing.T) { service = killService(t, r, binary, film) })
		if local != service {
			t.Errorf("the same outputs have the root %s in weir, %s at the service", local, service)
		}
	})
}

// copied is a request for outputs that are copied from a film of 320 by 180, and the space that they go to.
func copied(t *testing.T, r *rig, w *harness.Weir, film string, outputs ...string) (body map[string]any, space string) {
	t.Helper()
	var service struct{ DID string }
	w.Must("GET", "/api/did", nil, &service)
	space = r.space(t)
	body = transcode(film, r.prove(t, space, service.DID, ucan.UploadAbilities(), nil).Forms["storacha"])
	body["profiles"] = []any{harness.Rung("same", "H.264", 320, 180, 250_000_000)}
	paths := map[string]any{}
	for _, name := range outputs {
		paths[name] = map[string]any{"path": "/" + name}
	}
	body["outputs"] = paths
	return body, space
}

// seekFar compares a jump to near the end of a long film with one in a short film.
func seekFar(t *testing.T, r *rig, binary string) {
	minute := harness.MakeClip(t, "minute.mp4", append(harness.Pictures("320x180", 25, 60),
		"-c:v", "libx264", "-preset", "veryfast", "-pix_fmt", "yuv420p", "-g", "250", "-b:v", "250k", "-c:a", "aac", "-b:a", "48k")...)
	w := harness.NewWeir(t)
	w.Binary = binary
	w.Start()
	b := harness.NewBrowser(t, t.TempDir())
	for _, minutes := range []int{2, *soakMinutes} {
		film := harness.MakeClip(t, fmt.Sprintf("%d-minutes.mp4", minutes), "-stream_loop", strconv.Itoa(minutes-1), "-i", minute, "-c", "copy", "-movflags", "+faststart")
		began := time.Now()
		body, space := copied(t, r, w, harness.NewOrigin(t, film).URL+"/film.mp4", "hls", "mp4")
		out := w.Completed(post(w, body)).Output.Transcode
		took := time.Since(began)
		var uploads []words.IPFSUpload
		w.Must("GET", "/api/ipfs/upload?space="+space, nil, &uploads)
		if len(uploads) != 1 || uploads[0].Size < harness.FileSize(t, film) {
			t.Fatalf("the uploads are %+v", uploads)
		}
		t.Logf("%d minutes: %.0f MB in %d CAR files, made in %.0f s", minutes, float64(uploads[0].Size)/1e6, uploads[0].Shards, took.Seconds())
		gateway, to := w.URL+"/ipfs/"+strings.TrimPrefix(out.BaseURL, "ipfs://"), minutes*60*11/12
		for engine, path := range map[string]string{"hls.js": out.HLS.Path, "video": out.MP4[0].Path} {
			var times []float64
			var most int64
			for range 5 {
				before := bytesRead(t, w)
				times = append(times, jump(t, b, engine, gateway+path, to))
				most = max(most, bytesRead(t, w)-before)
			}
			slices.Sort(times)
			t.Logf("%d minutes, %s: plays from %d:%02d:%02d after %.0f ms (median of %.0f), weir read at most %.1f MB", minutes, engine,
				to/3600, to/60%60, to%60, times[len(times)/2], times, float64(most)/1e6)
			if minutes == *soakMinutes && most > uploads[0].Size/4 {
				t.Errorf("%d minutes, %s: weir read %d bytes to play two places of an upload of %d", minutes, engine, most, uploads[0].Size)
			}
		}
	}
	w.Stop()
}

// bytesRead is what weir has read so far from files, sockets and all else.
func bytesRead(t *testing.T, w *harness.Weir) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", w.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(harness.Match(t, string(text), `rchar: (\d+)`), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// jump returns how many milliseconds a player needs to play from another place.
func jump(t *testing.T, b *harness.Browser, engine, url string, to int) float64 {
	t.Helper()
	request, err := json.Marshal(map[string]any{"engine": engine, "url": url, "to": to})
	if err != nil {
		t.Fatal(err)
	}
	took, err := chromedp.Run(b.Ctx, chromedp.Evaluate[float64]("jump("+string(request)+")", chromedp.EvalAwaitPromise))
	if err != nil {
		t.Fatalf("%s at %s: %v", engine, url, err)
	}
	return took
}

// killLocal kills weir when it has stored half of the CAR files, and returns the root. What was stored
// is not written again.
func killLocal(t *testing.T, r *rig, binary, film string) (root string) {
	w := harness.NewWeir(t)
	w.Binary = binary
	w.Start()
	body, _ := copied(t, r, w, film, "mp4")
	id := post(w, body)
	half := int(*soakBytes/133_169_152) / 2
	var before []string
	wait.Progress(t, func() error {
		if before, _ = filepath.Glob(w.Data + "/media/ipfs/*/*.car"); len(before) < half+1 {
			return fmt.Errorf("%d CAR files", len(before))
		}
		return nil
	})
	w.Kill()
	// The last one may have been stored in the moment of the kill, before weir noted it.
	slices.SortFunc(before, func(a, b string) int { return number(a) - number(b) })
	infos := map[string]os.FileInfo{}
	for _, name := range before[:len(before)-1] {
		infos[name] = stat(t, name)
	}
	w.Start()
	restarted := time.Now()
	out := w.Completed(id).Output.Transcode
	for name, info := range infos {
		if now := stat(t, name); !os.SameFile(info, now) || !now.ModTime().Equal(info.ModTime()) {
			t.Errorf("%s was written again", name)
		}
	}
	all, _ := filepath.Glob(w.Data + "/media/ipfs/*/*.car")
	root = theUpload(t, w, out, len(all))
	t.Logf("killed with %d of %d CAR files stored; completed %.1f s after the restart", len(before), len(all), time.Since(restarted).Seconds())

	// ipfs-car makes the same CID of the file that the gateway serves.
	file := filepath.Join(t.TempDir(), "same.mp4")
	got := save(t, w.URL+"/ipfs/"+root+out.MP4[0].Path, file)
	if want := harness.IPFSCar(t, "pack", "--no-wrap", file, "--output", filepath.Join(t.TempDir(), "same.car")); want != got {
		t.Errorf("the file has the CID %s, that of ipfs-car %s", got, want)
	}
	w.Stop()
	return root
}

// killService kills weir when half of the CAR files are at the upload service, and returns the root. What was
// stored is not sent again.
func killService(t *testing.T, r *rig, binary, film string) (root string) {
	w, start := harness.NewWeir(t), r.stats(t)
	w.Binary = binary
	setting := "upload:" + r.URL + "#" + r.DID
	w.Start("--ipfs", setting)
	body, space := copied(t, r, w, film, "mp4")
	id := post(w, body)
	half := int(*soakBytes/133_169_152) / 2
	var before stats
	wait.Progress(t, func() error {
		// In the middle of one: it has begun, and those before are stored.
		if before = r.stats(t); before.Stored-start.Stored < half || before.Count-start.Count == before.Stored-start.Stored {
			return fmt.Errorf("%d CAR files", before.Stored-start.Stored)
		}
		return nil
	})
	w.Kill()
	w.Start("--ipfs", setting)
	restarted := time.Now()
	out := w.Completed(id).Output.Transcode
	after := r.stats(t)
	listed := r.list(t, space)
	if len(listed) != 1 || "ipfs://"+listed[0].Root != out.BaseURL {
		t.Fatalf("the owner of the space sees %v, want %s", listed, out.BaseURL)
	}
	shards := len(listed[0].Shards)
	root = theUpload(t, w, out, shards)
	t.Logf("killed with %d of %d CAR files stored and one on its way; completed %.1f s after the restart with %d PUTs (one is the index)",
		before.Stored-start.Stored, shards, time.Since(restarted).Seconds(), after.Count-before.Count)
	if after.Again != start.Again {
		t.Errorf("%d PUTs of what was stored", after.Again-start.Again)
	}
	if stored := after.Stored - start.Stored; stored != shards+1 {
		t.Errorf("%d objects are stored, want %d CAR files and an index", stored, shards)
	}
	w.Stop()
	return root
}

// theUpload checks that the account has one upload, that of the output, and returns its root.
func theUpload(t *testing.T, w *harness.Weir, out *words.TranscodeOutput, shards int) string {
	t.Helper()
	var uploads []words.IPFSUpload
	w.Must("GET", "/api/ipfs/upload", nil, &uploads)
	if len(uploads) != 1 || "ipfs://"+uploads[0].Root != out.BaseURL || uploads[0].Shards != shards || uploads[0].Size < *soakBytes {
		t.Fatalf("the uploads are %+v, the output is at %s, with %d CAR files", uploads, out.BaseURL, shards)
	}
	return uploads[0].Root
}

// number is that of a CAR file.
func number(name string) int {
	n, _ := strconv.Atoi(strings.TrimSuffix(filepath.Base(name), ".car"))
	return n
}

func stat(t *testing.T, name string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// save writes what is at an address to a file, and returns its CID as the gateway says it.
func save(t *testing.T, address, name string) (cid string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(f, response.Body); err != nil || response.StatusCode != http.StatusOK {
		t.Fatal(response.Status, err)
	}
	return strings.Trim(response.Header.Get("Etag"), `"`)
}
