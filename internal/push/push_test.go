package push

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib"
	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/message"
	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/guard"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// platform is an RTMP server that keeps the received messages.
type platform struct {
	t        *testing.T
	listener net.Listener
	serving  sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	got   map[string][]message.Message // by path, key and all
}

func newPlatform(t *testing.T, address string) *platform {
	t.Helper()
	l, err := net.Listen("tcp", cmp.Or(address, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	p := &platform{t: t, listener: l, got: map[string][]message.Message{}}
	p.serving.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *platform) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns = append(p.conns, conn)
		p.mu.Unlock()
		p.serving.Go(func() { p.serve(conn) })
	}
}

func (p *platform) serve(conn net.Conn) {
	defer conn.Close()
	c := &gortmplib.ServerConn{RW: conn}
	if c.Initialize() != nil || c.Accept() != nil {
		return
	}
	key := strings.TrimPrefix(c.URL.RequestURI(), "/")
	for {
		m, err := c.Read()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.got[key] = append(p.got[key], m)
		p.mu.Unlock()
	}
}

// close ends all connections.
func (p *platform) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.serving.Wait()
}

func (p *platform) url(key string) string {
	return "rtmp://" + p.listener.Addr().String() + "/live/" + key
}

// messages returns the messages with a key.
func (p *platform) messages(key string) []message.Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got["live/"+key])
}

// videoFrames returns the times and the data of the video frames with a key.
func (p *platform) videoFrames(key string) (at []time.Duration, data [][]byte) {
	for _, m := range p.messages(key) {
		if v, ok := m.(*message.Video); ok && v.Type == message.VideoTypeAU {
			at, data = append(at, v.DTS), append(data, v.AU)
		}
	}
	return at, data
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tracks of tests: 640x360 in H.264 and AAC at 48 kHz.
func testTracks(t *testing.T) []cmaf.Track {
	t.Helper()
	video := newTrack(t)(codec.H264Config(
		[]byte{0x67, 0x42, 0xc0, 0x1e, 0xd9, 0x00, 0xa0, 0x2f, 0xf9, 0x61, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00, 0x3c, 0x0f, 0x16, 0x2e, 0x48},
		[]byte{0x68, 0xcb, 0x83, 0xcb, 0x20},
	))
	return []cmaf.Track{video, newTrack(t)(codec.AACConfig([]byte(codec.SilenceConfig)))}
}

// newTrack returns the track of a configuration.
func newTrack(t *testing.T) func(codec.Config, error) cmaf.Track {
	return func(config codec.Config, err error) cmaf.Track {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		track, err := cmaf.NewTrack(config)
		if err != nil {
			t.Fatal(err)
		}
		return track
	}
}

// station is a node with a hub, a manager and a stream.
type testHub struct {
	*testing.T
	dir     string
	store   *store.Store
	log     *slog.Logger
	manager *Manager
	stream  weir.Stream

	mu   sync.Mutex
	hub  *live.Hub
	stop func() // ends the hub
}

// newTestHub runs a node whose targets may be in the given network.
func newTestHub(t *testing.T, allowed string) *testHub {
	t.Helper()
	options := store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: "here"}
	st, err := store.Open(t.Context(), storetest.SQLite(t, store.Open, options), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	s := &testHub{T: t, dir: t.TempDir(), store: st, log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	s.startHub()
	t.Cleanup(func() { s.stop() })
	s.manager = New(Options{OnAir: s, Store: st, Guard: guard.New([]netip.Prefix{netip.MustParsePrefix(allowed)}), Log: s.log})
	t.Cleanup(start(t, s.manager.Run))
	u := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(time.Now())}
	s.stream, err = weir.NewStream{Name: "x", Profiles: &[]weir.Profile{}}.Stream(&weir.Caller{UserID: u.ID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.write(func(tx *store.Tx) error {
		return errors.Join(tx.CreateUser(t.Context(), &u), tx.CreateStream(t.Context(), &s.stream))
	})
	return s
}

// start runs a component and returns a function that stops it.
func start(t *testing.T, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// startHub starts a hub with the folder of the node.
func (s *testHub) startHub() {
	s.Helper()
	hub, err := live.New(s.Context(), live.Options{
		Store: s.store, Dir: s.dir, Node: "here", SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: s.log,
		Targets: func(sessionID string) ([]weir.TargetHealth, []string) { return s.manager.Targets(sessionID) },
	})
	if err != nil {
		s.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hub, s.stop = hub, start(s.T, hub.Run)
}

// Broadcasts returns those of the hub that runs.
func (s *testHub) Broadcasts() []*live.Broadcast {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub.Broadcasts()
}

// Opened is that of the hub that runs.
func (s *testHub) Opened() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hub.Opened()
}

func (s *testHub) write(do func(*store.Tx) error) {
	s.Helper()
	if err := s.store.Tx(s.Context(), do); err != nil {
		s.Fatal(err)
	}
}

// encoder sends frames with a number in each.
type encoder struct {
	*testHub
	publisher    *live.Publisher
	frame, audio int
}

func (s *testHub) publish() *encoder {
	s.Helper()
	// Overwritten data shows if a reader still uses a returned buffer.
	from := live.Source{Protocol: "test", Reuse: func(data []byte) { clear(data) }}
	p, err := s.hub.Publish(s.Context(), s.stream.StreamKey.Reveal(), from)
	if err == nil {
		err = p.SetTracks(s.Context(), testTracks(s.T))
	}
	if err != nil {
		s.Fatal(err)
	}
	return &encoder{testHub: s, publisher: p}
}

// send sends so many seconds at 25 frames a second, a key frame every two seconds.
func (e *encoder) send(seconds float64) {
	e.Helper()
	write := func(f live.Frame) {
		if err := e.publisher.Write(f); err != nil {
			e.Fatal(err)
		}
	}
	for range int(seconds * 25) {
		at := time.Duration(e.frame) * 40 * time.Millisecond
		write(live.Frame{Track: 0, PTS: at, DTS: at, Sync: e.frame%50 == 0, Data: bytes.Repeat([]byte{byte(e.frame)}, 100)})
		e.frame++
		for ; time.Duration(e.audio)*time.Second*1024/48000 < at; e.audio++ {
			at := time.Duration(e.audio) * time.Second * 1024 / 48000
			write(live.Frame{Track: 1, PTS: at, DTS: at, Data: []byte{byte(e.audio)}})
		}
	}
}

// sessionID returns the id of the session on air.
func (s *testHub) sessionID() string {
	for _, b := range s.Broadcasts() {
		return b.SessionID()
	}
	return ""
}

// target adds a target to a stream.
func (s *testHub) target(tx *store.Tx, stream *weir.Stream, url string, videoOnly bool) (weir.Target, error) {
	target, err := weir.NewTarget{URL: url, Name: "x"}.Target(stream.UserID, stream.ProjectID, time.Now())
	if err != nil {
		return target, err
	}
	stream.Multistream.Targets = append(slices.Clip(stream.Multistream.Targets), weir.TargetRef{ID: target.ID, Profile: weir.SourceProfile, VideoOnly: videoOnly})
	return target, tx.CreateTarget(s.Context(), &target)
}

// add adds a target while the stream is on air.
func (s *testHub) add(url string, videoOnly bool) (target weir.Target) {
	s.Helper()
	s.write(func(tx *store.Tx) (err error) {
		_, err = tx.UpdateStream(s.Context(), s.stream.ID, func(stream *weir.Stream) error {
			target, err = s.target(tx, stream, url, videoOnly)
			return err
		})
		return err
	})
	return target
}

// health returns how a push does.
func (s *testHub) health(id string) weir.TargetHealth {
	all, _ := s.manager.Targets(s.sessionID())
	for _, h := range all {
		if h.ID == id {
			return h
		}
	}
	return weir.TargetHealth{}
}

// events returns the names of the events of targets so far.
func (s *testHub) events() (names []string) {
	s.Helper()
	all, err := s.store.Events(s.Context(), s.stream.UserID, s.stream.ProjectID, 0, 100)
	if err != nil {
		s.Fatal(err)
	}
	for _, e := range all {
		if name, ok := strings.CutPrefix(string(e.Name), "multistream."); ok {
			names = append(names, name)
		}
	}
	return names
}

// Targets are added and removed during the stream, and each gets its frames.
func TestPush(t *testing.T) {
	first := newPlatform(t, "")
	var one weir.Target
	s := newTestHub(t, "127.0.0.0/8")
	one = s.add(first.url("one?a=b"), false)
	e := s.publish()
	// A tap begins with a key frame, so frames are sent until there is one.
	wait.Until(t, "the first frames", func() bool { e.send(0.2); at, _ := first.videoFrames("one?a=b"); return len(at) > 10 })
	second := newPlatform(t, "")
	two := s.add(second.url("two"), true)
	wait.Until(t, "the second target", func() bool {
		e.send(0.2)
		at, _ := second.videoFrames("two")
		return len(at) > 10
	})
	if h := s.health(one.ID); h.Status != statusConnected || h.LastError != "" || h.Profile != weir.SourceProfile {
		t.Errorf("the first target is %+v", h)
	}

	// The first target is down for a while. The second gets every frame.
	address := first.listener.Addr().String()
	first.close()
	wait.Until(t, "the error", func() bool { e.send(0.04); return s.health(one.ID).Status == statusError })
	back := newPlatform(t, address)
	wait.Until(t, "the first target again", func() bool { e.send(0.2); at, _ := back.videoFrames("one?a=b"); return len(at) > 10 })

	// Both are taken away.
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateTarget(t.Context(), one.ID, func(target *weir.Target) error { target.Disabled = true; return nil })
		return err
	})
	wait.Until(t, "the end of the first", func() bool { return len(s.events()) > 0 })
	s.write(func(tx *store.Tx) error { return tx.DeleteTarget(t.Context(), two.ID) })
	wait.Until(t, "the end of the second", func() bool { return s.health(two.ID) == weir.TargetHealth{} })
	wait.Until(t, "two events", func() bool { return strings.Count(strings.Join(s.events(), " "), "disconnected") == 2 })
	e.send(2)

	checkTimes(t, first.messages("one?a=b"), true)
	checkTimes(t, back.messages("one?a=b"), true)
	checkTimes(t, second.messages("two"), true)
	_, data := second.videoFrames("two")
	for i, d := range data {
		if i > 0 && d[0] != data[i-1][0]+1 {
			t.Fatalf("frame %d comes after frame %d", d[0], data[i-1][0])
		}
	}
	for _, m := range second.messages("two") {
		if a, ok := m.(*message.Audio); ok && a.AACType == message.AudioAACTypeAU && string(a.AU) != codec.SilenceFrame {
			t.Fatalf("a target that must not get audio got %x", a.AU)
		}
	}
}

// A session that is closed and opened again with the same id gets new pushes.
func TestPushAfterReopening(t *testing.T) {
	p := newPlatform(t, "")
	s := newTestHub(t, "127.0.0.0/8")
	target := s.add(p.url("key"), false)
	before := s.publish()
	wait.Until(t, "the first frames", func() bool { before.send(0.2); at, _ := p.videoFrames("key"); return len(at) > 10 })
	id := s.sessionID()
	s.stop()
	s.startHub()
	if s.sessionID() != id {
		t.Fatalf("the session is %q, want %q", s.sessionID(), id)
	}
	after := s.publish()
	restarts := func() (n int) {
		at, _ := p.videoFrames("key")
		for i := range at {
			if i > 0 && at[i] < at[i-1] {
				n++
			}
		}
		return n
	}
	wait.Until(t, "frames from 0 on", func() bool { after.send(0.2); return restarts() == 1 })
	if h := s.health(target.ID); h.Status != statusConnected {
		t.Errorf("the target is %+v", h)
	}
}

// checkTimes checks that the messages of a target start with the configurations, and that their
// times start at 0 and never fall.
func checkTimes(t *testing.T, all []message.Message, audio bool) {
	t.Helper()
	last := map[string]time.Duration{}
	known := map[string]bool{}
	frames := map[string]int{}
	note := func(kind string, config bool, at time.Duration) {
		switch {
		case config:
			known[kind] = true
			return
		case !known[kind]:
			t.Errorf("%s comes before its configuration", kind)
		case frames[kind] == 0 && at > 100*time.Millisecond:
			t.Errorf("%s starts at %v, want 0", kind, at)
		case at < last[kind]:
			t.Errorf("%s goes back from %v to %v", kind, last[kind], at)
		}
		last[kind] = at
		frames[kind]++
	}
	for _, m := range all {
		switch m := m.(type) {
		case *message.Video:
			note("video", m.Type == message.VideoTypeConfig, m.DTS)
		case *message.Audio:
			note("audio", m.AACType == message.AudioAACTypeConfig, m.DTS)
		}
	}
	if frames["video"] == 0 || (frames["audio"] > 0) != audio {
		t.Errorf("%v frames came", frames)
	}
	if d := last["video"] - last["audio"]; audio && d.Abs() > 100*time.Millisecond {
		t.Errorf("audio and video are %v apart at the end", d)
	}
}

// The error of a target that refuses the stream is a sentence, which has nothing of its URL but the
// host in it.
func TestPushRefused(t *testing.T) {
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := refusing.Accept()
			if err != nil {
				return
			}
			c := &gortmplib.ServerConn{RW: conn}
			if c.Initialize() == nil {
				_ = c.Write(&message.CommandAMF0{ChunkStreamID: 3, Name: "_error", CommandID: 1, Arguments: amf0.Data{nil, amf0.Object{
					{Key: "level", Value: "error"}, {Key: "code", Value: "NetConnection.Connect.Rejected"}, {Key: "description", Value: "no hunter2 here"},
				}}})
			}
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = refusing.Close()
		serving.Wait()
	})
	s := newTestHub(t, "127.0.0.1/32")
	targets := map[string]string{}
	for url, want := range map[string]string{
		"rtmp://" + refusing.Addr().String() + "/live/hunter2": "the target refused the stream (NetConnection.Connect.Rejected)",
		"rtmp://127.0.0.1:1/live/hunter2":                      "no connection to the target: connection refused",
		"rtmp://127.0.0.2/live/hunter2":                        "127.0.0.2 is a loopback address; start weir with --allow-networks",
		"rtmp://127.0.0.1/hunter2":                             "the URL of the target must be rtmp://host/app/key",
		"srt://127.0.0.1?streamid=hunter2":                     "the URL of the target must be srt://host:port",
	} {
		targets[s.add(url, false).ID] = want
	}
	e := s.publish()
	for id, want := range targets {
		wait.Until(t, want, func() bool {
			e.send(0.2)
			return s.health(id).Status == statusError
		})
		if got := s.health(id).LastError; !strings.HasPrefix(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("last error %q, want %q", got, want)
		}
	}
	wait.Until(t, "five events", func() bool {
		e.send(0.2)
		return len(s.events()) == len(targets)
	})
	if diff := gocmp.Diff(slices.Repeat([]string{"error"}, len(targets)), s.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	_, issues := s.manager.Targets(s.sessionID())
	if len(issues) != len(targets) || strings.Contains(fmt.Sprint(issues), "hunter2") {
		t.Errorf("issues of the stream: %q", issues)
	}
	// The store has it with the next beat, for requests to other nodes.
	wait.Until(t, "the health in the store", func() bool {
		kept, err := s.store.TargetHealth(t.Context(), s.stream.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(kept) == len(targets) && !slices.ContainsFunc(kept, func(h weir.TargetHealth) bool { return h.Status != statusError })
	})
}

// kept is an connection that keeps its frames.
type kept struct {
	mu     sync.Mutex
	begun  [][]string // codecs
	at     []time.Duration
	paused int
	frames []outgoing
	err    error
	closed bool
}

func (k *kept) announce(video, audio *cmaf.Track, at time.Duration) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var codecs []string
	for _, t := range []*cmaf.Track{video, audio} {
		if t != nil {
			codecs = append(codecs, t.Codec)
		}
	}
	k.begun, k.at = append(k.begun, codecs), append(k.at, at)
	return k.err
}

func (k *kept) pause() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.paused++
	return k.err
}

func (k *kept) frame(f outgoing) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.frames = append(k.frames, f)
	return k.err
}

func (k *kept) sent() int64 { return 0 }
func (k *kept) limitWrite() {}

func (k *kept) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
}

// state returns the received frames, and whether the connection is closed.
func (k *kept) state() (frames []outgoing, closed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.frames), k.closed
}

func (k *kept) times(kind cmaf.Kind) (all []time.Duration) {
	for _, f := range k.frames {
		if f.kind == kind {
			all = append(all, f.dts)
		}
	}
	return all
}

func TestPushFeed(t *testing.T) {
	const second = time.Second
	tracks := testTracks(t)
	opus := newTrack(t)(codec.OpusConfig(2))
	add := func(f *converter, all ...live.TapItem) {
		t.Helper()
		for _, x := range all {
			if err := f.convert(x); err != nil {
				t.Fatal(err)
			}
		}
	}
	videoAt := func(dts, pts time.Duration) live.TapItem {
		return live.TapItem{Track: 0, DTS: dts, PTS: pts, Sync: true}
	}
	audio := func(at time.Duration) live.TapItem { return live.TapItem{Track: 1, DTS: at, PTS: at, Sync: true} }

	t.Run("times", func(t *testing.T) {
		k := &kept{}
		f := newConverter(k, false)
		add(f, live.TapItem{Tracks: tracks}, videoAt(50*second, 51*second), audio(49*second), videoAt(52*second, 52*second), audio(51*second))
		// The encoder reconnects with the same tracks after a while, then with others.
		add(f, live.TapItem{Tracks: tracks}, videoAt(70*second, 70*second), live.TapItem{Tracks: tracks[:1]}, videoAt(69*second, 69*second))
		if diff := gocmp.Diff([]time.Duration{0, 2 * second, 20 * second, 20 * second}, k.times(cmaf.Video)); diff != "" {
			t.Errorf("video (-want +got):\n%s", diff)
		}
		if diff := gocmp.Diff([]time.Duration{0, 1 * second}, k.times(cmaf.Audio)); diff != "" {
			t.Errorf("audio (-want +got):\n%s", diff)
		}
		if k.frames[0].pts != second {
			t.Errorf("a frame that is shown 1 s after it is decoded is shown at %v", k.frames[0].pts)
		}
		if diff := gocmp.Diff([][]string{{"avc1.42c01e", "mp4a.40.2"}, {"avc1.42c01e"}}, k.begun); diff != "" || k.paused != 2 {
			t.Errorf("%d pauses, want 2; begun (-want +got):\n%s", k.paused, diff)
		}
	})
	t.Run("silence", func(t *testing.T) {
		for name, f := range map[string]struct {
			silent bool
			tracks []cmaf.Track
			note   string
		}{
			"wanted":     {true, tracks, ""},
			"not AAC":    {false, []cmaf.Track{tracks[0], opus}, "the audio of the stream is opus, which targets do not support; silence is sent instead"},
			"without it": {true, tracks[:1], ""},
		} {
			t.Run(name, func(t *testing.T) {
				k := &kept{}
				feed := newConverter(k, f.silent)
				add(feed, live.TapItem{Tracks: f.tracks}, videoAt(5*second, 5*second), audio(5*second), videoAt(5*second+second/2, 5*second+second/2),
					videoAt(60*second, 60*second), videoAt(60*second+second/2, 60*second+second/2))
				times := k.times(cmaf.Audio)
				// Half a second has 24 frames, the first at its start; then there is a gap.
				if len(times) != 24+1+23 || times[0] != 0 || times[24] != 55*second || times[1] != second*1024/48000 {
					t.Errorf("silence at %v", times)
				}
				if feed.note != f.note {
					t.Errorf("note %q, want %q", feed.note, f.note)
				}
			})
		}
	})
	t.Run("silence for a week", func(t *testing.T) {
		k := &kept{}
		f := newConverter(k, true)
		add(f, live.TapItem{Tracks: tracks}, videoAt(0, 0))
		f.silenceCount = 7 * 24 * 3600 * codec.SilenceRate / codec.SilenceDuration
		at := f.silenceTime()
		if add(f, videoAt(at, at)); len(k.times(cmaf.Audio)) != 2 || at.Round(time.Second) != 7*24*time.Hour {
			t.Errorf("silence at %v, in %d frames", at, len(k.times(cmaf.Audio)))
		}
	})
	t.Run("nothing to send", func(t *testing.T) {
		if err := newConverter(&kept{}, true).convert(live.TapItem{Tracks: tracks[1:]}); weir.KindOf(err) != weir.Invalid {
			t.Errorf("audio alone for a target without audio: %v", err)
		}
	})
	t.Run("errors", func(t *testing.T) {
		broken := errors.New("broken")
		f := newConverter(&kept{err: broken}, false)
		add(f, live.TapItem{Tracks: tracks})
		if err := f.convert(videoAt(0, 0)); !errors.Is(err, broken) {
			t.Errorf("an outlet that fails: %v", err)
		}
	})
}

// A URL that names no stream is refused before anybody is called, and is not repeated.
func TestBadURL(t *testing.T) {
	dial := func(context.Context, string, string) (net.Conn, error) {
		t.Error("somebody is called")
		return nil, io.EOF
	}
	for _, raw := range []string{"rtmp://a.example", "rtmp://a.example/", "rtmp://a.example/hunter2", "rtmp://a.example/live/", "rtmp://u:hunter2@a.example/a/b", "rtmp:///a/hunter2", "\x00"} {
		if _, err := dialRTMP(t.Context(), raw, dial, nil); weir.KindOf(err) != weir.Invalid || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("dialRTMP(%q): %v", raw, err)
		}
	}
}
