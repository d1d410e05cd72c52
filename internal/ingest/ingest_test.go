package ingest

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/budget"
	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/wait"
	"weir/internal/weir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// goodKey is the stream key that the hub of these tests knows.
const goodKey = "1a2b-3c4d-5e6f-7a8b"

// testHub is a hub that keeps its publishers.
type testHub struct {
	mu         sync.Mutex
	publishers []*testPublisher
	refusals   int
}

func newTestHub() *testHub { return &testHub{} }

// filesOfStream is how many open files a stream takes.
const filesOfStream = 30

// newAdmission returns an admission with a budget: waiting encoders may not have shown a key yet, of
// which half from one address, and one stream may be on air.
func newAdmission(t *testing.T, waiting int) (*Admission, *budget.Budget) {
	t.Helper()
	b, err := budget.New(budget.Options{Files: 256, Connections: 8 * waiting, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return NewAdmission(b, slog.New(slog.DiscardHandler)), b
}

// testPublisher keeps tracks and frames.
type testPublisher struct {
	hub    *testHub
	from   live.Source
	tracks [][]cmaf.Track
	frames []testFrame
	done   chan struct{}
	closed string // "clean" or "lost"
	left   string // what was left out
}

// testFrame is a frame with the track that it is of.
type testFrame struct {
	live.Frame
	set  int // which call of SetTracks counted
	kind cmaf.Kind
}

func (h *testHub) publish(_ context.Context, key string, from live.Source) (publisher, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if key != goodKey {
		h.refusals++
		return nil, weir.ErrNotFound()
	}
	p := &testPublisher{hub: h, from: from, done: make(chan struct{})}
	h.publishers = append(h.publishers, p)
	return p, nil
}

// wait waits until something is true, which is asked under the lock.
func (h *testHub) wait(t testing.TB, what string, is func() bool) {
	t.Helper()
	wait.Until(t, what, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return is()
	})
}

// only waits for the first publisher and for its end, and returns it.
func (h *testHub) only(t testing.TB) *testPublisher {
	t.Helper()
	h.wait(t, "the end of the publisher", func() bool { return len(h.publishers) > 0 && h.publishers[0].closed != "" })
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.publishers) != 1 {
		t.Fatalf("%d publishers, want 1", len(h.publishers))
	}
	return h.publishers[0]
}

// count returns the number of frames.
func (h *testHub) count() (n int) {
	for _, p := range h.publishers {
		n += len(p.frames)
	}
	return n
}

func (p *testPublisher) StreamID() string { return "stream-1" }

func (p *testPublisher) Files() int { return filesOfStream }

func (p *testPublisher) SetTracks(_ context.Context, tracks []cmaf.Track) error {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.tracks = append(p.tracks, slices.Clone(tracks))
	return nil
}

func (p *testPublisher) SetIssue(what string) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	p.left = what
}

func (p *testPublisher) Write(f live.Frame) error {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	select {
	case <-p.done:
		return weir.Errorf(weir.Refused, "the stream was ended by its owner")
	default:
	}
	set := len(p.tracks) - 1
	if set < 0 || f.Track >= len(p.tracks[set]) {
		return fmt.Errorf("frame of track %d that was not announced", f.Track)
	}
	p.frames = append(p.frames, testFrame{f, set, p.tracks[set][f.Track].Kind})
	return nil
}

func (p *testPublisher) Done() <-chan struct{} { return p.done }

func (p *testPublisher) Close(clean bool) {
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if p.closed != "" {
		p.closed += " again"
	} else if p.closed = "lost"; clean {
		p.closed = "clean"
	}
}

// of returns the frames of a kind.
func (p *testPublisher) of(kind cmaf.Kind) (frames []testFrame) {
	for _, f := range p.frames {
		if f.kind == kind {
			frames = append(frames, f)
		}
	}
	return frames
}

// logBook keeps log lines.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// wait waits until all of these are in the log: the peer may see an end before it is logged.
func (b *logBook) wait(t testing.TB, wanted ...string) {
	t.Helper()
	wait.NoError(t, func() error {
		text := b.String()
		if slices.ContainsFunc(wanted, func(w string) bool { return !strings.Contains(text, w) }) {
			return fmt.Errorf("log, want %q:\n%s", wanted, text)
		}
		return nil
	})
}

func (b *logBook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// start runs an RTMP server for the time of the test and returns its address.
func start(t *testing.T, r RTMP, hub *testHub) (address string, log *logBook) {
	t.Helper()
	log = &logBook{}
	if r.Listener == nil {
		r.Listener = listen(t)
	}
	r.Log, r.publish = log.logger(), hub.publish
	if r.Admission == nil {
		r.Admission = NewAdmission(nil, r.Log)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if strings.Contains(log.String(), goodKey) || strings.Contains(log.String(), "defect") || strings.Contains(log.String(), "panic") {
			t.Errorf("the log has a key or a panic:\n%s", log)
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return r.Listener.Addr().String(), log
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Clips that the tests send, by their name.
var clips = map[string]string{
	"flv":       "-f lavfi -i testsrc2=s=160x90:r=25:d=2 -f lavfi -i sine=440:r=48000:d=2 -c:v libx264 -preset veryfast -bf 2 -g 25 -c:a aac -b:a 64k",
	"audio.flv": "-f lavfi -i sine=440:r=44100:d=2 -c:a aac -b:a 64k",
	"video.flv": "-f lavfi -i testsrc2=s=160x90:r=25:d=2 -c:v libx264 -preset ultrafast -g 25",
	"h265.mp4":  "-f lavfi -i testsrc2=s=160x90:r=25:d=1 -c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=10:bframes=2 -tag:v hvc1 -movflags frag_keyframe+empty_moov+default_base_moof",
	"av1.mp4":   "-f lavfi -i testsrc2=s=160x90:r=25:d=1 -c:v libaom-av1 -cpu-used 8 -usage realtime -g 10 -movflags frag_keyframe+empty_moov+default_base_moof",
	"small.mp4": "-f lavfi -i testsrc2=s=160x90:r=25:d=0.2 -c:v libx264 -preset ultrafast -movflags frag_keyframe+empty_moov+default_base_moof",
	"large.mp4": "-f lavfi -i testsrc2=s=320x180:r=25:d=0.2 -c:v libx264 -preset ultrafast -movflags frag_keyframe+empty_moov+default_base_moof",
	"opus.mp4":  "-f lavfi -i sine=440:r=48000:d=1 -c:a libopus -b:a 64k -movflags frag_keyframe+empty_moov+default_base_moof",
}

var made struct {
	sync.Mutex
	clips map[string][]byte
}

// clip returns the path of a clip; the ending of its name is its form.
func clip(t testing.TB, name string) string {
	t.Helper()
	made.Lock()
	defer made.Unlock()
	if made.clips == nil {
		made.clips = map[string][]byte{}
	}
	path := filepath.Join(t.TempDir(), "clip."+name)
	if data, ok := made.clips[name]; ok {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	run(t, "ffmpeg", slices.Concat(strings.Fields("-v error -nostdin -y -threads 1"), strings.Fields(clips[name]), []string{path})...)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	made.clips[name] = data
	return path
}

func run(t testing.TB, program string, args ...string) []byte {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes()
}
