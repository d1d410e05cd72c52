package live

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weir/e2e/harness"
)

// TestFullDisk sends two streams to a small disk, one of them recorded, until it is full, and then
// takes the rest of the disk too. Whatever happens, requests get responses, playlists do not go back,
// and after weir was killed the database and what was recorded are whole.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	w := harness.NewWeir(t)
	fullDisk(t, w, "64m", "9MB", 10, func(poll *poller, rtmp string) {
		// Something else takes more of the disk, and then all of it.
		balloon := filepath.Join(w.Data, "balloon")
		fill(t, balloon, 5<<20)
		harness.Eventually(t, func() error {
			if log := w.Log.String(); !strings.Contains(log, "new encoders are refused") && !strings.Contains(log, "playlists are cut") {
				return errors.New("new encoders are not refused")
			}
			return nil
		})
		if newEncoder(w, rtmp).wait() == nil {
			t.Error("a new encoder is not refused")
		}
		from := poll.rounds.Load()
		harness.Eventually(t, func() error {
			fill(t, balloon, 0) // streams make room for themselves
			if n := poll.rounds.Load(); n < from+20 {
				return fmt.Errorf("weir was asked %d times on a full disk", n-from)
			}
			return nil
		})
		if err := os.Remove(balloon); err != nil {
			t.Fatal(err)
		}
	})
}

// fullDisk sends two streams of so many Mbit/s to a disk until the recording of one ends, calls more,
// kills weir, and looks what is there. It returns how many frames were recorded when the recording
// ended, and how many are there.
func fullDisk(t *testing.T, w *harness.Weir, size, minFree string, rate int, more func(poll *poller, rtmp string)) (promised, recorded int) {
	smallDisk(t, w, size)
	rtmp := harness.FreeAddr(t)
	args := []string{"--rtmp", rtmp, "--min-free", minFree}
	w.Start(args...)
	bitrate := fmt.Sprintf("%dM", rate)
	clip := harness.MakeClip(t, "noise"+bitrate+".mp4", "-f", "lavfi", "-i", "testsrc2=size=480x270:rate=25:duration=10,noise=alls=100:allf=t",
		"-f", "lavfi", "-i", "sine=sample_rate=48000:duration=10", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p",
		"-b:v", bitrate, "-maxrate", bitrate, "-bufsize", bitrate, "-g", "50", "-sc_threshold", "0", "-c:a", "aac")
	plain, kept := newStream(w, rtmp), newRecordedStream(w, rtmp)
	var encoders []*encoder
	for _, s := range []*liveStream{plain, kept} {
		encoders = append(encoders, s.encode("-re", "-stream_loop", "-1", "-i", clip, "-c", "copy", "-f", "flv", s.ingest()))
	}
	plain.waitLive()
	kept.waitLive()
	poll := pollAll(w, plain, kept)

	// The recording ends, and the stream goes on.
	plain.waitIssue("playlists")
	kept.waitIssue("continues without recording")
	promised = kept.recordedFrames()
	if promised < 25*5 {
		t.Errorf("only %d frames were recorded until the disk was full", promised)
	}
	kept.waitNewSegments(3)
	plain.waitNewSegments(2)

	more(poll, rtmp)
	for _, e := range encoders {
		if err := e.running(); err != nil {
			t.Error(err)
		}
	}
	plain.waitNewSegments(2)
	kept.waitNewSegments(2)
	harness.Eventually(t, func() error {
		if status, text := w.Do("GET", "/readyz?for=api", nil); status != http.StatusOK {
			return fmt.Errorf("with room again /readyz answers %d %s", status, text)
		}
		return nil
	})

	poll.stop()
	checkModes(t, w)
	balloon := filepath.Join(w.Data, "balloon")
	fill(t, balloon, 0)
	w.Kill()
	for _, e := range encoders {
		e.kill()
	}
	if strings.HasPrefix(w.Database, "sqlite:") {
		checkDatabase(t, w)
	}
	if err := os.Remove(balloon); err != nil {
		t.Fatal(err)
	}
	w.Start(args...)
	w.Must("DELETE", "/api/stream/"+kept.id+"/terminate", nil, nil)
	asset := kept.waitRecorded("ready")
	response, err := http.Get(asset.MP4URL)
	if err != nil {
		t.Fatal(err)
	}
	file, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, error %v", asset.MP4URL, response.Status, err)
	}
	sent := harness.FrameSums(t, clip)
	got := harness.FrameSums(t, mediaFile(t, file))
	if len(got) < promised {
		t.Fatalf("the recording has %d frames, %d were promised", len(got), promised)
	}
	for i := range promised {
		if got[i] != sent[i%len(sent)] {
			t.Fatalf("frame %d of %d that were promised is not the one that was sent", i, promised)
		}
	}
	t.Logf("%d frames are recorded, %d were promised", len(got), promised)
	if shown := ffmpegReads(t, asset.RecordingURL); shown["video"] != len(got) {
		t.Errorf("ffmpeg read %d frames of the playlist, the file has %d", shown["video"], len(got))
	}
	w.Stop()
	poll.report()
	return promised, len(got)
}

// smallDisk gives a weir a disk of its own.
func smallDisk(t *testing.T, w *harness.Weir, size string) {
	t.Helper()
	if err := unix.Mount("tmpfs", w.Data, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		w.Kill()
		if err := unix.Unmount(w.Data, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(w.Data, "secret"), fmt.Appendf(nil, "%x\n", w.Secret), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fill lets a file grow until so much of the disk is free, or less.
func fill(t *testing.T, path string, free int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for {
		var disk unix.Statfs_t
		if err := unix.Statfs(path, &disk); err != nil {
			t.Fatal(err)
		}
		left := int64(disk.Bavail)*disk.Bsize - free
		if left <= 0 {
			return
		}
		if _, err := f.Write(make([]byte, min(left, 1<<20))); err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// waitIssue waits until a text is among the issues of the stream.
func (s *liveStream) waitIssue(text string) {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() error {
		status, body := s.w.Do("GET", "/api/stream/"+s.id, nil)
		var stream struct{ Issues []string }
		if err := json.Unmarshal(body, &stream); err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %s %w", status, body, err)
		}
		if !strings.Contains(strings.Join(stream.Issues, "\n"), text) {
			return fmt.Errorf("the issues are %q, want %q", stream.Issues, text)
		}
		return nil
	})
}

// waitNewSegments waits until the playlist of the stream has so many more.
func (s *liveStream) waitNewSegments(n int64) {
	s.w.T.Helper()
	last := func() int64 {
		list := s.plainPlaylist("source")
		return list.sequence + int64(len(list.segments))
	}
	from := last()
	harness.Eventually(s.w.T, func() error {
		if now := last(); now < from+n {
			return fmt.Errorf("the playlist ends with segment %d, want %d", now, from+n)
		}
		return nil
	})
}

// recordedFrames returns how many frames there are in the list of what is recorded, which has ended.
func (s *liveStream) recordedFrames() (frames int) {
	s.w.T.Helper()
	harness.Eventually(s.w.T, func() error {
		status, text := s.get("source/dvr.m3u8")
		list, err := parseLive(bytes.Replace(text, []byte("#EXT-X-PLAYLIST-TYPE:EVENT\n"), nil, 1))
		if status != http.StatusOK || err != nil || !list.ended {
			return fmt.Errorf("dvr.m3u8: %d, error %w\n%s", status, err, text)
		}
		frames = 50 * len(list.segments) // each is from one key frame to the next
		return nil
	})
	return frames
}

// newEncoder sends to a stream that is not on air.
func newEncoder(w *harness.Weir, rtmp string) *encoder {
	w.T.Helper()
	type stream struct{ ID, StreamKey, PlaybackID, Name string }
	var all []stream
	w.Must("GET", "/api/stream?limit=100", nil, &all)
	i := slices.IndexFunc(all, func(s stream) bool { return s.Name == polled })
	if i < 0 {
		w.T.Fatal("no stream was made meanwhile")
	}
	other := &liveStream{w, all[i].ID, all[i].StreamKey, all[i].PlaybackID, rtmp}
	return other.send(harness.SmallClip(w.T))
}

// checkModes looks whether others can read the files of a weir.
func checkModes(t *testing.T, w *harness.Weir) {
	t.Helper()
	err := filepath.WalkDir(w.Data, func(path string, entry os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || path == w.Data {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkDatabase checks a copy of the database of a weir that was killed.
func checkDatabase(t *testing.T, w *harness.Weir) {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(w.Data, "weir.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the database has %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "weir.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var result string
	if err := db.QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		t.Errorf("the database: %s, %v", result, err)
	}
}

// polled is the name of the streams that are made while weir is polled.
const polled = "made meanwhile"

// poller sends requests of all kinds and collects what is wrong with the responses.
type poller struct {
	t       *testing.T
	client  http.Client
	cancel  context.CancelFunc
	running sync.WaitGroup
	rounds  atomic.Int64 // of callers

	mu     sync.Mutex
	counts map[string]int // by request and status
	wrong  []string
}

// pollAll polls until it is stopped.
func pollAll(w *harness.Weir, streams ...*liveStream) *poller {
	ctx, cancel := context.WithCancel(w.T.Context())
	p := &poller{t: w.T, cancel: cancel, counts: map[string]int{}}
	w.T.Cleanup(p.stop)
	p.running.Go(func() { p.every(ctx, 300*time.Millisecond, func() { p.callers(ctx, w, streams) }) })
	for _, s := range streams {
		p.running.Go(func() {
			before := map[string]*livePlaylist{}
			p.every(ctx, 300*time.Millisecond, func() { p.viewer(ctx, s, before) })
		})
	}
	return p
}

func (p *poller) every(ctx context.Context, pause time.Duration, do func()) {
	for ctx.Err() == nil {
		do()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (p *poller) stop() {
	p.cancel()
	p.running.Wait()
}

// say collects what is wrong.
func (p *poller) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wrong) < 20 {
		p.wrong = append(p.wrong, fmt.Sprintf(format, args...))
	}
}

func (p *poller) report() {
	for _, text := range p.wrong {
		p.t.Error(text)
	}
	p.t.Logf("requests: %v", p.counts)
	if p.counts["PUT upload 507"] == 0 || p.counts["POST stream 201"] == 0 {
		p.t.Errorf("no stream was made, or no upload was refused: %v", p.counts)
	}
}

// send sends a request. No response may be a failure, but for those that say that there is no room.
func (p *poller) send(ctx context.Context, what, method, url, key string, body []byte) (status int, text []byte) {
	r, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		p.say("%v", err)
		return 0, nil
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	response, err := p.client.Do(r)
	if err == nil {
		text, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err != nil {
		if ctx.Err() == nil {
			p.say("%s: %v", what, err)
		}
		return 0, nil
	}
	status = response.StatusCode
	p.mu.Lock()
	p.counts[fmt.Sprintf("%s %s %d", method, what, status)]++
	p.mu.Unlock()
	if status >= 500 && status != http.StatusInsufficientStorage && status != http.StatusServiceUnavailable {
		p.say("%s %s: %d %s", method, what, status, text)
	}
	if response.Header.Get("X-Content-Type-Options") != "nosniff" {
		p.say("%s %s: %d without nosniff", method, what, status)
	}
	return status, text
}

// callers sends requests of the API: reads, writes and uploads.
func (p *poller) callers(ctx context.Context, w *harness.Weir, streams []*liveStream) {
	defer p.rounds.Add(1)
	p.send(ctx, "healthz", "GET", w.URL+"/healthz", "", nil)
	p.send(ctx, "readyz", "GET", w.URL+"/readyz?for=api", "", nil)
	p.send(ctx, "streams", "GET", w.URL+"/api/stream", w.Key, nil)
	for _, s := range streams {
		p.send(ctx, "stream", "GET", w.URL+"/api/stream/"+s.id, w.Key, nil)
		p.send(ctx, "health", "GET", w.URL+"/api/stream/"+s.id+"/health", w.Key, nil)
	}
	p.send(ctx, "stream", "POST", w.URL+"/api/stream", w.Key, []byte(`{"name":"`+polled+`","profiles":[]}`))
	var upload struct{ URL string }
	status, text := p.send(ctx, "request-upload", "POST", w.URL+"/api/asset/request-upload", w.Key, []byte(`{"name":"film"}`))
	if status == http.StatusOK && json.Unmarshal(text, &upload) == nil {
		p.send(ctx, "upload", "PUT", upload.URL, "", make([]byte, 100_000))
	}
}

// viewer watches a stream: no playlist goes back, and the newest segment in it is there.
func (p *poller) viewer(ctx context.Context, s *liveStream, before map[string]*livePlaylist) {
	p.send(ctx, "master", "GET", s.url("index.m3u8"), "", nil)
	p.send(ctx, "dvr", "GET", s.url("dvr.m3u8"), "", nil)
	p.send(ctx, "parts", "GET", s.url("source/index.m3u8"), "", nil)
	for _, name := range []string{"source", "audio"} {
		status, text := p.send(ctx, "playlist", "GET", s.url(name+"/index.m3u8?ll=0"), "", nil)
		if status != http.StatusOK {
			continue
		}
		list, err := parseLive(text)
		if err != nil {
			p.say("playlist of %s: %v\n%s", name, err, text)
			continue
		}
		if b := before[name]; b != nil && (list.sequence < b.sequence || list.discontinuity < b.discontinuity || list.sequence+int64(len(list.segments)) < b.sequence+int64(len(b.segments))) {
			p.say("the playlist of %s goes back, from segment %d with %d to\n%s", name, b.sequence, len(b.segments), text)
		}
		before[name] = list
		if n := len(list.segments); n > 0 {
			p.send(ctx, "segment", "GET", s.url(name+"/"+list.segments[n-1].uri), "", nil)
		}
	}
}
