package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/mpegts"
	"weir/internal/weir"
)

// startSRT runs an SRT server for the time of the test and returns its address.
func startSRT(t *testing.T, r SRT, hub *testHub) (address string, log *logBook) {
	t.Helper()
	log = &logBook{}
	at := make(chan net.Addr, 1)
	r.Addr, r.Log, r.publish = "127.0.0.1:0", log.logger(), hub.publish
	if r.Admission == nil {
		r.Admission = NewAdmission(nil, r.Log)
	}
	r.listening = func(a net.Addr) { at <- a }
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
		for _, secret := range []string{goodKey, "defect", passphrase} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log contains %q:\n%s", secret, log)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", log)
		}
	})
	return (<-at).String(), log
}

const passphrase = "correct horse battery"

// callSRT starts ffmpeg as an encoder.
func callSRT(t *testing.T, arguments, path, address, query string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	args := strings.Fields("-v error -nostdin " + arguments)
	args = append(args, "-i", path, "-c", "copy", "-map", "0", "-f", "mpegts", "srt://"+address+"?linger=2&"+query)
	cmd := exec.CommandContext(t.Context(), "ffmpeg", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &errs
}

// Every frame of a clip arrives as it is, when it is, also the last ones, which wait for their time
// when the encoder says goodbye.
func TestSRTPublish(t *testing.T) {
	for _, tt := range []struct {
		name, clip, query string
		secret            weir.Secret
		kinds             []cmaf.Kind
	}{
		{"key alone", "flv", "streamid=" + goodKey, "", []cmaf.Kind{cmaf.Video, cmaf.Audio}},
		{"publish", "audio.flv", "streamid=publish:" + goodKey, "", []cmaf.Kind{cmaf.Audio}},
		{"guidelines", "video.flv", "streamid=#!::r=" + goodKey + ",m=publish", "", []cmaf.Kind{cmaf.Video}},
		{"encrypted", "flv", "streamid=" + goodKey + "&pbkeylen=32&passphrase=" + passphrase, passphrase, []cmaf.Kind{cmaf.Video, cmaf.Audio}},
		{"late", "flv", "streamid=" + goodKey + "&latency=1500000", "", []cmaf.Kind{cmaf.Video, cmaf.Audio}},
		{"HEVC", "h265.mp4", "streamid=" + goodKey, "", []cmaf.Kind{cmaf.Video}},
		{"Opus", "opus.mp4", "streamid=" + goodKey, "", []cmaf.Kind{cmaf.Audio}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, _ := startSRT(t, SRT{Passphrase: tt.secret}, hub)
			path := clip(t, tt.clip)
			cmd, errs := callSRT(t, "-re", path, address, tt.query)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, errs)
			}
			p := hub.only(t)
			if p.closed != "clean" || p.from.Protocol != "srt" {
				t.Errorf("the publisher, %s, ended %s, want srt, clean", p.from.Protocol, p.closed)
			}
			if len(p.tracks) != 1 {
				t.Fatalf("%d sets of tracks, want 1", len(p.tracks))
			}
			var kinds []cmaf.Kind
			for _, track := range p.tracks[0] {
				kinds = append(kinds, track.Kind)
			}
			if diff := cmp.Diff(tt.kinds, kinds); diff != "" {
				t.Fatalf("tracks (-want +got):\n%s", diff)
			}
			sent, came := map[cmaf.Kind][]sent{}, map[cmaf.Kind][]sent{}
			for _, kind := range tt.kinds {
				sent[kind], came[kind] = packetsOf(t, path, kind), framesOf(p, kind)
			}
			// ffmpeg starts the clock of a transport stream anywhere.
			shift := came[tt.kinds[0]][0].DTS - sent[tt.kinds[0]][0].DTS
			for _, kind := range tt.kinds {
				for i := range came[kind] {
					came[kind][i].DTS -= shift
					came[kind][i].PTS -= shift
					if tt.clip == "h265.mp4" && came[kind][i].Sync {
						// ffmpeg puts the parameter sets of the file into these.
						came[kind][i].Digest = sent[kind][i].Digest
					}
				}
				near := cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() <= time.Millisecond })
				if diff := cmp.Diff(sent[kind], came[kind], near); diff != "" {
					t.Errorf("%s (-sent +came):\n%s", kind, diff)
				}
			}
		})
	}
}

// An encoder that stops ends its stream in order; one that is killed does not.
func TestSRTPublisherStops(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for _, tt := range []struct {
		signal syscall.Signal
		want   string
	}{{syscall.SIGTERM, "clean"}, {syscall.SIGKILL, "lost"}} {
		t.Run(tt.signal.String(), func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, log := startSRT(t, SRT{}, hub)
			cmd, _ := callSRT(t, "-re -stream_loop -1", clip(t, "flv"), address, "streamid="+goodKey)
			hub.wait(t, "media", func() bool { return hub.count() > 20 })
			if err := cmd.Process.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if p := hub.only(t); p.closed != tt.want {
				t.Errorf("ended %s, want %s", p.closed, tt.want)
			}
			_ = cmd.Wait()
			log.wait(t, "stream=stream-1", "remote=127.0.0.1:")
		})
	}
}

// An encoder without a valid stream key is refused at the handshake, with a reason.
func TestSRTRefused(t *testing.T) {
	for _, tt := range []struct {
		name, query string
		secret      weir.Secret
		log         string
	}{
		{"wrong key", "streamid=0000-1111-2222-3333", "", "no stream has this stream key"},
		{"no key", "", "", "the streamid must be"},
		{"to watch", "streamid=#!::r=" + goodKey + ",m=request", "", "this address is for publishing"},
		{"not encrypted", "streamid=" + goodKey, passphrase, "does not encrypt"},
		{"another passphrase", "streamid=" + goodKey + "&passphrase=0000-1111-2222-3333", passphrase, "another passphrase"},
		{"encrypted for nobody", "streamid=" + goodKey + "&passphrase=0000-1111-2222-3333", "", "there is no passphrase here"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, log := startSRT(t, SRT{Passphrase: tt.secret}, hub)
			cmd, errs := callSRT(t, "-re -stream_loop -1", clip(t, "flv"), address, tt.query)
			checkRefused(t, hub, cmd, errs, "REJECT reported", log, tt.log)
		})
	}
}

// The hub can end a stream.
func TestSRTHubEndsStream(t *testing.T) {
	t.Parallel()
	hub := newTestHub()
	address, log := startSRT(t, SRT{}, hub)
	cmd, _ := callSRT(t, "-re -stream_loop -1", clip(t, "flv"), address, "streamid="+goodKey)
	checkHubEnds(t, hub, cmd, log)
}

// Invalid datagrams, invalid media and unfinished handshakes do not disturb other connections.
func TestSRTGarbage(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	hub := newTestHub()
	address, log := startSRT(t, SRT{}, hub)
	conn, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(b []byte) {
		if _, err := conn.Write(b); err != nil {
			t.Error(err)
		}
	}
	chance := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		b := make([]byte, chance.IntN(1500))
		for i := range b {
			b[i] = byte(chance.Uint32())
		}
		switch {
		case len(b) < 16:
		case chance.IntN(2) == 0:
			copy(b, handshakePacket)
		default:
			clear(b[12:16]) // for nobody
		}
		send(b)
	}
	for n := range 80 { // a handshake that ends at each of its bytes, and one with more behind it
		send(append(slices.Clone(handshakePacket), make([]byte, n)...))
		send(handshakePacket[:min(n, len(handshakePacket))])
	}

	noise := exec.CommandContext(t.Context(), "ffmpeg", "-v", "error", "-nostdin", "-re", "-f", "lavfi", "-i", "nullsrc=s=160x90:r=25,geq=random(1)*255:128:128",
		"-f", "rawvideo", "srt://"+address+"?streamid="+goodKey)
	if err := noise.Start(); err != nil {
		t.Fatal(err)
	}
	hub.wait(t, "the connection of the noise", func() bool { return len(hub.publishers) == 1 })
	path := clip(t, "flv")
	cmd, errs := callSRT(t, "-re", path, address, "streamid="+goodKey)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	hub.wait(t, "the end of the clip", func() bool { return len(hub.publishers) == 2 && hub.publishers[1].closed != "" })
	if err := noise.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = noise.Wait()
	hub.wait(t, "the end of the noise", func() bool { return hub.publishers[0].closed != "" })
	if got, want := len(hub.publishers[1].of(cmaf.Video)), len(packetsOf(t, path, cmaf.Video)); got != want {
		t.Errorf("%d video frames arrived, want %d", got, want)
	}
	log.wait(t, "damaged")
	if n := len(hub.publishers[0].frames); n > 0 {
		t.Errorf("%d frames in noise", n)
	}
}

// handshakePacket is the second packet of a handshake, with an extension of no length.
var handshakePacket = func() []byte {
	b := make([]byte, 16+48+4)
	b[0] = 0x80                                 // control, handshake
	binary.BigEndian.PutUint32(b[16:], 5)       // version
	binary.BigEndian.PutUint16(b[22:], 1)       // there are extensions
	binary.BigEndian.PutUint32(b[36:], 1<<32-1) // conclusion
	binary.BigEndian.PutUint16(b[64:], 5)       // streamid
	return b
}()

// An address is not shared with another program.
func TestSRTAddressInUse(t *testing.T) {
	other, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	err = SRT{Addr: other.LocalAddr().String(), Log: (&logBook{}).logger(), publish: newTestHub().publish}.Run(t.Context())
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("error %v, want that the address is in use", err)
	}
}

// No more streams are let in than there are open files for.
func TestSRTLimits(t *testing.T) {
	t.Parallel()
	hub := newTestHub()
	admission, b := newAdmission(t, 2)
	address, _ := startSRT(t, SRT{Admission: admission}, hub)
	first, _ := callSRT(t, "-re -stream_loop -1", clip(t, "flv"), address, "streamid="+goodKey)
	hub.wait(t, "media", func() bool { return hub.count() > 0 })
	second, errs := callSRT(t, "-re", clip(t, "flv"), address, "streamid="+goodKey)
	if err := second.Wait(); err == nil || !strings.Contains(errs.String(), "REJECT reported") {
		t.Errorf("ffmpeg ended with %v, want that it was rejected:\n%s", err, errs)
	}
	if got := admission.Stats(); got.TurnedAway != 1 {
		t.Errorf("stats %+v, want that one was turned away", got)
	}
	if got := b.Stats(); got.Waiting != 0 || got.StreamFiles != filesOfStream {
		t.Errorf("budget %+v, want one stream and nobody who waits", got)
	}
	if err := first.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hub.wait(t, "the end of the first", func() bool { return hub.publishers[0].closed != "" })
	hub.mu.Lock()
	if p := hub.publishers[0]; p.closed != "clean" {
		t.Errorf("the first ended %s", p.closed)
	}
	hub.mu.Unlock()
	_ = first.Wait()
}

// A caller whose stream key is being checked makes room for others.
func TestSRTWaiting(t *testing.T) {
	t.Parallel()
	admission, b := newAdmission(t, 2) // one of an address
	hub := newTestHub()
	address, _ := startSRT(t, SRT{Admission: admission}, hub)
	asked := make(chan struct{})
	place, err := b.Wait(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, func() { close(asked) })
	if err != nil {
		t.Fatal(err)
	}
	cmd, errs := callSRT(t, "-re", clip(t, "flv"), address, "streamid="+goodKey)
	<-asked // its place is needed
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, errs)
	}
	place.Leave()
	// A busy one does not.
	if place, err = b.Wait(&net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, func() {}); err != nil {
		t.Fatal(err)
	}
	place.Busy()
	cmd, errs = callSRT(t, "-re", clip(t, "flv"), address, "streamid="+goodKey)
	if err := cmd.Wait(); err == nil || !strings.Contains(errs.String(), "REJECT reported") {
		t.Errorf("ffmpeg ended with %v, want that it was rejected:\n%s", err, errs)
	}
}

// lossySRT is a connection that loses every 16th packet, and ends cleanly.
type lossySRT struct {
	packets [][]byte
	read    int
	missing int
	lost    bool
}

func (c *lossySRT) Read(b []byte) (int, error) {
	c.read++
	c.lost = c.read%16 == 0
	if c.lost {
		c.read++
		c.missing++
	}
	if c.read > len(c.packets) {
		return 0, io.EOF
	}
	return copy(b, c.packets[c.read-1]), nil
}

func (c *lossySRT) Lost() bool             { return c.lost }
func (c *lossySRT) Ended() bool            { return true }
func (c *lossySRT) Latency() time.Duration { return 0 }
func (c *lossySRT) Close() error           { return nil }

// Lost packets cost only the frames that they belong to.
func TestSRTLoss(t *testing.T) {
	hub, log := newTestHub(), &logBook{}
	publisher, err := hub.publish(t.Context(), goodKey, live.Source{})
	if err != nil {
		t.Fatal(err)
	}
	conn := &lossySRT{packets: slices.Collect(slices.Chunk(tsClip(t, "flv", "-c copy"), 7*mpegts.PacketSize))}
	c := newSRTConnection(publisher, log.logger())
	c.run(t.Context(), conn)
	p := hub.only(t)
	if p.closed != "clean" || len(p.tracks) != 1 {
		t.Errorf("ended %s with %d sets of tracks, want clean, 1", p.closed, len(p.tracks))
	}
	if n := len(p.of(cmaf.Video)); n < 50-3*conn.missing || n >= 50 || conn.missing == 0 {
		t.Errorf("%d of 50 video frames arrived, where %d packets were lost", n, conn.missing)
	}
	log.wait(t, "frames were dropped")
}
