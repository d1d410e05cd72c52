package service

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"weir/e2e/harness"
	"weir/internal/rtc/rtctest"
	"weir/internal/wait"
)

const (
	openFiles      = 1200
	keepAlives     = 1400
	rtmpAddresses  = 34
	rtmpPerAddress = 32
	offers         = 500

	// Addresses of this machine by their last byte. Honest clients come from 127.0.0.1.
	rtmpFrom       = 2 // the first
	keepAlivesFrom = 50
	offersFrom     = 51
)

// TestDescriptors gives weir fewer open files than clients want connections: idle ones over HTTP, encoders
// without a stream key, viewers over WebRTC that never connect. A stream on air loses nothing, another
// one starts, and the API answers.
func TestDescriptors(t *testing.T) {
	crowded(t, harness.NewWeir(t))
}

// crowded returns how long a new encoder took to be on air without the crowd, and beside it.
func crowded(t *testing.T, w *harness.Weir) (quiet, beside time.Duration) {
	rtmp := harness.FreeAddr(t)
	w.Binary = withOpenFiles(t, cmp.Or(w.Binary, harness.Binary), openFiles)
	w.Start("--rtmp", rtmp, "--webrtc", harness.FreeAddr(t), "--session-timeout", "3s")
	process := w.Cmd.Process.Pid

	before, during := newEncoded(w, rtmp), newEncoded(w, rtmp)
	began := time.Now()
	before.startEncoder("20")
	before.waitActive()
	quiet = time.Since(began)

	crowd := newCrowd(w, rtmp, before.PlaybackID)
	crowd.connectAll()
	for range 10 {
		crowd.checkResponses() // while all of them come
	}
	began = time.Now()
	during.startEncoder("5")
	during.waitActive()
	beside = time.Since(began)
	t.Logf("a new encoder is on air after %v, without the crowd after %v", beside, quiet)
	most := 0
	for range 20 {
		most = max(most, countFiles(t, process))
		crowd.checkResponses()
	}
	for _, e := range []*encoded{before, during} {
		e.checkFrames()
	}
	crowd.end()
	if most > openFiles {
		t.Errorf("%d files were open", most)
	}
	t.Logf("at most %d of %d files were open; offers were answered %v; %d connections were made", most, openFiles, crowd.offered, crowd.connected.Load())
	if text := w.Log.String(); strings.Contains(text, "too many open files") {
		t.Errorf("there were not enough open files:\n%s", harness.Tail(text))
	}
	w.Stop()
	return quiet, beside
}

// withOpenFiles returns a program that is weir with a limit of open files.
func withOpenFiles(t *testing.T, binary string, limit int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir")
	script := fmt.Sprintf("#!/bin/sh\nulimit -n %d\nexec '%s' \"$@\"\n", limit, binary)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func countFiles(t *testing.T, process int) int {
	t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", process))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// encoded is a stream and its encoder, which keeps a copy of what it sends.
type encoded struct {
	w                         *harness.Weir
	ID, StreamKey, PlaybackID string
	rtmp, sent, shown         string
	cmd                       *exec.Cmd
	said                      bytes.Buffer
	ended                     chan error // of keepShown
}

func newEncoded(w *harness.Weir, rtmp string) *encoded {
	w.T.Helper()
	folder := w.T.TempDir()
	e := &encoded{w: w, rtmp: rtmp, sent: filepath.Join(folder, "sent.flv"), shown: filepath.Join(folder, "shown.mp4"), ended: make(chan error, 1)}
	w.Must("POST", "/api/stream", map[string]any{"name": "x", "profiles": []any{}}, e)
	return e
}

// startEncoder starts the encoder.
func (e *encoded) startEncoder(seconds string) {
	e.w.T.Helper()
	e.cmd = exec.CommandContext(e.w.T.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "testsrc2=size=160x90:rate=25:duration="+seconds,
		"-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p", "-g", "50", "-map", "0:v", "-flags", "+global_header",
		"-f", "tee", "[f=flv]rtmp://"+e.rtmp+"/live/"+e.StreamKey+"|[f=flv]"+e.sent)
	e.cmd.Stderr = &e.said
	if err := e.cmd.Start(); err != nil {
		e.w.T.Fatal(err)
	}
	go func() { e.ended <- e.keepShown() }()
}

func (e *encoded) waitActive() {
	e.w.T.Helper()
	harness.Eventually(e.w.T, func() error {
		var now struct{ IsActive bool }
		e.w.Must("GET", "/api/stream/"+e.ID, nil, &now)
		if !now.IsActive {
			return fmt.Errorf("stream %s is not active", e.ID)
		}
		return nil
	})
}

// keepShown waits for the end of the encoder and keeps what viewers get then. It does not wait for the
// test: a stream that has ended can be watched for a minute.
func (e *encoded) keepShown() error {
	if err := e.cmd.Wait(); err != nil {
		return fmt.Errorf("the encoder ended with %w\n%s", err, &e.said)
	}
	get := func(name string) (body []byte, err error) {
		r, err := http.NewRequestWithContext(e.w.T.Context(), http.MethodGet, e.w.URL+"/hls/"+e.PlaybackID+"/source/"+name, nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+e.w.Key) // the crowd has none
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			return nil, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", name, response.Status)
		}
		body, readErr := io.ReadAll(response.Body)
		return body, errors.Join(err, readErr)
	}
	list, err := get("index.m3u8?ll=0")
	for ; err != nil || !bytes.Contains(list, []byte("#EXT-X-ENDLIST")); list, err = get("index.m3u8?ll=0") {
		select {
		case <-e.w.T.Context().Done():
			return fmt.Errorf("the playlist has no end: %s, %w", list, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if bytes.Contains(list, []byte("DISCONTINUITY\n")) || bytes.Contains(list, []byte("GAP")) {
		return fmt.Errorf("the stream was interrupted:\n%s", list)
	}
	var all []byte
	for line := range strings.Lines(string(list)) {
		name := strings.TrimSpace(line)
		if uri, ok := strings.CutPrefix(name, `#EXT-X-MAP:URI="`); ok {
			name, _, _ = strings.Cut(uri, `"`)
		}
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		body, err := get(name)
		if err != nil {
			return err
		}
		all = append(all, body...)
	}
	return os.WriteFile(e.shown, all, 0o600)
}

// checkFrames waits for the end of the stream and checks that viewers get all its frames.
func (e *encoded) checkFrames() {
	t := e.w.T
	t.Helper()
	select {
	case err := <-e.ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(wait.Limit):
		t.Fatalf("after %v viewers have not got the end of the stream", wait.Limit)
	}
	sent := harness.FFprobe(t, e.sent, "-show_packets").Packets
	got := harness.FFprobe(t, e.shown, "-show_packets").Packets
	if len(got) != len(sent) || len(sent) == 0 {
		t.Errorf("viewers get %d frames, %d were sent", len(got), len(sent))
	}
}

// crowd is clients that want more connections than there are.
type crowd struct {
	t         *testing.T
	w         *harness.Weir
	rtmp      string
	offersTo  string
	offer     string
	stop      context.CancelFunc
	running   sync.WaitGroup
	connected atomic.Int64 // over HTTP and RTMP

	mu      sync.Mutex
	offered map[int]int // offers by the status of their responses; 0 = none
}

func newCrowd(w *harness.Weir, rtmp, playbackID string) *crowd {
	return &crowd{
		t: w.T, w: w, rtmp: rtmp, offersTo: w.URL + "/webrtc/" + playbackID, offer: rtctest.New(w.T).OfferToWatch(), offered: map[int]int{},
	}
}

// connectAll begins to fill weir with connections. Who is hung up on connects again.
func (c *crowd) connectAll() {
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	c.stop = stop
	c.t.Cleanup(c.end)
	for range keepAlives {
		c.running.Go(func() {
			c.connect(ctx, strings.TrimPrefix(c.w.URL, "http://"), keepAlivesFrom, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		})
	}
	for i := range rtmpAddresses * rtmpPerAddress {
		c.running.Go(func() { c.connect(ctx, c.rtmp, byte(rtmpFrom+i%rtmpAddresses), "\x03") })
	}
	for range offers {
		c.running.Go(func() { c.postOffer(ctx) })
	}
}

func (c *crowd) end() {
	c.stop()
	c.running.Wait()
}

// dialer dials from an address of this machine, whose last byte is given.
func dialer(from byte) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
}

// connect connects, says something, and waits until it is hung up on; again and again.
func (c *crowd) connect(ctx context.Context, to string, from byte, say string) {
	for ctx.Err() == nil {
		if conn, err := dialer(from).DialContext(ctx, "tcp", to); err == nil {
			c.connected.Add(1)
			left := context.AfterFunc(ctx, func() { _ = conn.Close() })
			_, _ = io.WriteString(conn, say)
			_, _ = io.Copy(io.Discard, conn)
			left()
			_ = conn.Close()
		}
		select {
		case <-time.After(2 * time.Second):
		case <-ctx.Done():
		}
	}
}

// postOffer posts an offer of a viewer that never connects.
func (c *crowd) postOffer(ctx context.Context) {
	status := 0
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.offersTo, strings.NewReader(c.offer))
	if err != nil {
		c.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/sdp")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(offersFrom).DialContext}}
	if response, err := client.Do(r); err == nil {
		_ = response.Body.Close()
		status = response.StatusCode
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offered[status]++
}

// checkResponses sends requests over new connections: they must all be answered.
func (c *crowd) checkResponses() {
	c.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, key := range map[string]string{"/api/stream": c.w.Key, "/healthz": ""} {
		r, err := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.w.URL+path, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key)
		}
		response, err := client.Do(r)
		if err != nil {
			c.t.Errorf("%s: %v", path, err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			c.t.Errorf("%s: %d", path, response.StatusCode)
		}
	}
}
