package ingest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	"github.com/bluenviron/gortmplib/pkg/handshake"
	"github.com/bluenviron/gortmplib/pkg/rawmessage"

	"weir/internal/live"
	"weir/internal/wait"
)

// Kinds of messages.
const (
	messageChunkSize = 1
	messageAudio     = 8
	messageVideo     = 9
	messageData      = 18
	messageCommand   = 20
)

// client is an encoder that sends valid and invalid messages.
type client struct {
	net.Conn
	out  *rawmessage.Writer
	read sync.WaitGroup // until the server has closed
}

// hello does the handshake. Later replies of the server are dropped.
func hello(t testing.TB, conn net.Conn) *client {
	t.Helper()
	if _, _, err := handshake.DoClient(conn, false, true); err != nil {
		t.Fatal(err)
	}
	c := &client{Conn: conn, out: rawmessage.NewWriter(conn, bytecounter.NewWriter(conn), false)}
	c.read.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	return c
}

// send sends a message, unless the server has had enough.
func (c *client) send(kind byte, body ...byte) {
	_ = c.out.Write(&rawmessage.Message{ChunkStreamID: 2 + kind%16, Type: kind, MessageStreamID: 1 << 24, Body: body})
}

func (c *client) command(name string, arguments ...any) {
	body, err := append(amf0.Data{name, float64(1)}, arguments...).Marshal()
	if err != nil {
		panic(err)
	}
	c.send(messageCommand, body...)
}

// publish sends all commands before media.
func (c *client) publish(key string) {
	c.command("connect", amf0.Object{{Key: "app", Value: "live"}})
	c.command("createStream", nil)
	c.command("publish", nil, key, "live")
}

// metadata sends the metadata of the stream.
func (c *client) metadata(about amf0.ECMAArray) {
	body, err := amf0.Data{"@setDataFrame", "onMetaData", about}.Marshal()
	if err != nil {
		panic(err)
	}
	c.send(messageData, body...)
}

// AAC, stereo, 48 kHz.
func (c *client) audioConfig() { c.send(messageAudio, 0xAF, 0, 0x11, 0x90) }
func (c *client) audioFrame()  { c.send(messageAudio, 0xAF, 1, 0x21, 0x10, 0x04) }

// How long a connection may take.
func TestTimes(t *testing.T) {
	trickle := func(c net.Conn, n int) {
		for range n {
			time.Sleep(time.Second) // of the bubble's clock: it is what the test is about
			if _, err := c.Write([]byte{3}); err != nil {
				return
			}
		}
	}
	for _, tt := range []struct {
		name   string
		encode func(t *testing.T, conn net.Conn)
		want   time.Duration
		closed string
	}{
		{"says nothing", func(*testing.T, net.Conn) {}, 10 * time.Second, ""},
		{"a byte a second", func(_ *testing.T, c net.Conn) { trickle(c, 100) }, 10 * time.Second, ""},
		{"handshake, then nothing", func(t *testing.T, c net.Conn) { hello(t, c) }, 10 * time.Second, ""},
		{"handshake, then a byte a second", func(t *testing.T, c net.Conn) {
			hello(t, c)
			trickle(c, 100)
		}, 10 * time.Second, ""},
		{"no media", func(t *testing.T, c net.Conn) {
			time.Sleep(4 * time.Second)
			hello(t, c).publish(goodKey)
		}, 14 * time.Second, "lost"},
		{"no media, but a byte a second", func(t *testing.T, c net.Conn) {
			hello(t, c).publish(goodKey)
			trickle(c, 100)
		}, 10 * time.Second, "lost"},
		{"media, then nothing", func(t *testing.T, c net.Conn) {
			e := hello(t, c)
			e.publish(goodKey)
			e.audio(3*time.Second, 60)
		}, 60*3*time.Second + 10*time.Second, "lost"},
		{"media, then a byte a second", func(t *testing.T, c net.Conn) {
			e := hello(t, c)
			e.publish(goodKey)
			e.audio(time.Second, 5)
			trickle(c, 100)
		}, 5*time.Second + 30*time.Second, "lost"},
		{"a goodbye, but it stays", func(t *testing.T, c net.Conn) {
			e := hello(t, c)
			e.publish(goodKey)
			e.audio(time.Second, 5)
			e.command("deleteStream", nil, 1.0)
		}, 5*time.Second + 2*time.Second, "clean"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hub, log := newTestHub(), &logBook{}
				s := newServer(RTMP{Log: log.logger(), publish: hub.publish, Admission: NewAdmission(nil, log.logger())})
				theirs, ours := net.Pipe()
				slot, err := s.Admission.admit(addressOf(ours.RemoteAddr()))
				if err != nil {
					t.Fatal(err)
				}
				var encoding sync.WaitGroup
				encoding.Go(func() { tt.encode(t, theirs) })
				began := time.Now()
				s.serve(t.Context(), ours, slot)
				if took := time.Since(began); took != tt.want {
					t.Errorf("took %v, want %v", took, tt.want)
				}
				encoding.Wait()
				got := ""
				for _, p := range hub.publishers {
					got += p.closed
				}
				if n := s.Admission.Stats().Connections; got != tt.closed || n != 0 {
					t.Errorf("publisher ended %q, want %q; %d connections are counted", got, tt.closed, n)
				}
				if t.Failed() {
					t.Logf("log:\n%s", log)
				}
			})
		})
	}
}

// audio sends audio for some time.
func (c *client) audio(every time.Duration, times int) {
	c.audioConfig()
	for range times {
		time.Sleep(every) // of the bubble's clock
		c.audioFrame()
	}
}

// A hostile encoder affects only its own connection.
func TestGarbage(t *testing.T) {
	noise := make([]byte, 200<<10)
	_, _ = rand.Read(noise)
	deep := bytes.Repeat([]byte{0x0A, 0, 0, 0, 1}, 6000) // arrays in arrays
	published := func(send func(*client)) func(*testing.T, net.Conn) {
		return func(t *testing.T, conn net.Conn) {
			c := hello(t, conn)
			c.publish(goodKey)
			send(c)
		}
	}
	bytesOf := func(b ...byte) func(*client) {
		return func(c *client) { _, _ = c.Write(b) }
	}
	for _, tt := range []struct {
		name string
		send func(t *testing.T, conn net.Conn)
		log  string
	}{
		{"HTTP", func(_ *testing.T, c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n") }, "the other end does not speak RTMP"},
		{"TLS", func(_ *testing.T, c net.Conn) { _, _ = c.Write([]byte{0x16, 3, 1, 2, 0}) }, "the other end does not speak RTMP"},
		{"nothing", func(*testing.T, net.Conn) {}, "connection closed without data"},
		{"half a handshake", func(_ *testing.T, c net.Conn) { _, _ = c.Write(append([]byte{3}, noise[:700]...)) }, "closed in the middle"},
		{"noise", func(_ *testing.T, c net.Conn) { _, _ = c.Write(append([]byte{3}, noise...)) }, "before it sent a stream key"},
		{"noise after the handshake", func(t *testing.T, c net.Conn) { _, _ = hello(t, c).Write(noise) }, "before it sent a stream key"},
		{"too much before the key", func(t *testing.T, conn net.Conn) {
			c := hello(t, conn)
			for range 100 {
				c.send(messageData, noise[:1000]...)
			}
		}, "more than 65536 bytes without a stream key"},
		{"a large message before the key", func(t *testing.T, c net.Conn) {
			_, _ = hello(t, c).Write([]byte{3, 0, 0, 0, 0xFF, 0xFF, 0xFF, messageCommand, 0, 0, 0, 0})
		}, "a message of 16777215 bytes"},
		{"media before the key", func(t *testing.T, c net.Conn) { hello(t, c).audioConfig() }, "media arrived before a stream key"},
		{"publish before connect", func(t *testing.T, c net.Conn) { hello(t, c).command("publish", nil, goodKey) }, "unexpected publish command"},
		{"deep command", func(t *testing.T, c net.Conn) { hello(t, c).send(messageCommand, deep...) }, "a command can't be read"},
		{"long command", func(t *testing.T, c net.Conn) { hello(t, c).send(messageCommand, noise[:40<<10]...) }, "a command of 40960 bytes"},
		{"empty command", func(t *testing.T, c net.Conn) { hello(t, c).send(messageCommand) }, "a command without a number"},
		{"play", func(t *testing.T, conn net.Conn) {
			c := hello(t, conn)
			c.command("connect", amf0.Object{{Key: "app", Value: "live"}})
			c.command("play", nil, goodKey)
		}, "this address is for publishing"},
		{"publish twice", published(func(c *client) { c.publish(goodKey) }), "unexpected publish command"},
		{"stops in the middle", published(bytesOf(4, 0, 0, 0, 0, 1, 0, messageVideo, 1, 0, 0, 0, 0x17, 1)), "closed in the middle"},
		{"noise as video", published(func(c *client) { c.send(messageVideo, append([]byte{0x17, 0}, noise[:300]...)...) }), "publisher sent unusable media"},
		{"noise for a frame", published(func(c *client) { c.send(messageVideo, 0x17, 1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 1) }), "publisher sent unusable media"},
		{"obsolete video codec", published(func(c *client) { c.send(messageVideo, 0x12, 0, 0, 0, 0) }), "send H.264, HEVC or AV1"},
		{"short video tag", published(func(c *client) { c.send(messageVideo, 0x17) }), "ends too early"},
		{"a huge message", published(bytesOf(4, 0, 0, 0, 0xFF, 0xFF, 0xFF, messageVideo, 1, 0, 0, 0)), "a message of 16777215 bytes"},
		{"chunks of nothing", published(func(c *client) { c.send(messageChunkSize, 0, 0, 0, 0) }), "a chunk size of 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			address, log := start(t, RTMP{}, hub)
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			tt.send(t, conn)
			_ = conn.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn) // until the server has closed, too
			log.wait(t, tt.log)
			if len(hub.publishers) > 0 {
				if p := hub.only(t); p.closed != "lost" || len(p.frames) > 0 {
					t.Errorf("ended %s with %d frames, want lost, none", p.closed, len(p.frames))
				}
			}
		})
	}
}

// idle opens connections that say nothing.
func idle(t *testing.T, address string, count int) (all []net.Conn) {
	t.Helper()
	for range count {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		all = append(all, conn)
	}
	return all
}

// isOpen reports whether the server lets a connection be: it replies to a handshake.
func isOpen(conn net.Conn) bool {
	_, _, err := handshake.DoClient(conn, false, true)
	return err == nil
}

func TestIdleConnections(t *testing.T) {
	hub := newTestHub()
	address, _ := start(t, RTMP{}, hub)
	idle(t, address, 100)
	cmd, errs := publish(t, "", clip(t, "flv"), "rtmp://"+address+"/live/"+goodKey)
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	if p := hub.only(t); p.closed != "clean" {
		t.Errorf("ended %s, want clean", p.closed)
	}
}

// Connections without a stream key make room for new ones. An encoder on air is never closed for
// others.
func TestTooManyConnections(t *testing.T) {
	hub := newTestHub()
	admission, b := newAdmission(t, 6)
	address, log := start(t, RTMP{Listener: b.Ingest(listen(t)), Admission: admission}, hub)
	onAir := hello(t, idle(t, address, 1)[0])
	onAir.publish(goodKey)
	hub.wait(t, "a publisher", func() bool { return len(hub.publishers) == 1 })
	wait.Until(t, "the place of the encoder on air is free", func() bool { return b.Stats().Waiting == 0 })
	all := idle(t, address, 4)
	wait.Until(t, "the fourth connection has a place", func() bool { return b.Stats().Evicted == 1 })
	if isOpen(all[0]) || !isOpen(all[3]) {
		t.Error("the fourth connection did not take the place of the first")
	}
	// 34 addresses fill all places, and connect again as soon as they are closed.
	var attack sync.WaitGroup
	attacking, stop := context.WithCancel(t.Context())
	for i := range 34 {
		attack.Go(func() {
			for attacking.Err() == nil {
				conn, err := dialFrom(attacking, address, byte(2+i))
				if err != nil {
					continue
				}
				left := context.AfterFunc(attacking, func() { _ = conn.Close() })
				_, _ = conn.Write([]byte{3})
				_, _ = conn.Read(make([]byte, 1))
				left()
				_ = conn.Close()
			}
		})
	}
	defer attack.Wait()
	defer stop()
	wait.Until(t, "all places are taken", func() bool { return b.Stats().Waiting == 6 })
	onAir.metadata(amf0.ECMAArray{{Key: "audiocodecid", Value: float64(10)}}) // no video will come
	onAir.audioConfig()
	onAir.audioFrame()
	hub.wait(t, "audio of the encoder on air", func() bool { return hub.count() == 1 })
	stop()
	log.wait(t, "another one needed its place")
	if n := admission.Stats().TurnedAway; n != 0 {
		t.Errorf("%d addresses were turned away for invalid keys", n)
	}
}

// An encoder alone at its address keeps its place, however many come from other addresses.
func TestCrowdOfAddresses(t *testing.T) {
	admission, b := newAdmission(t, 6)
	hub := newTestHub()
	address, _ := start(t, RTMP{Listener: b.Ingest(listen(t)), Admission: admission}, hub)
	encoder := idle(t, address, 1)[0]
	for i := range 60 {
		conn, err := dialFrom(t.Context(), address, byte(2+i%2))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	wait.Until(t, "55 connections were evicted", func() bool { return b.Stats().Evicted >= 55 })
	hello(t, encoder).publish(goodKey)
	hub.wait(t, "a publisher", func() bool { return len(hub.publishers) == 1 })
}

// dialFrom connects from an address of this machine, whose last byte is given.
func dialFrom(ctx context.Context, address string, from byte) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	return d.DialContext(ctx, "tcp", address)
}

// Encoders with a good key are refused when there are no open files left for their streams.
func TestNoFiles(t *testing.T) {
	hub := newTestHub()
	admission, b := newAdmission(t, 6)
	address, log := start(t, RTMP{Listener: b.Ingest(listen(t)), Admission: admission}, hub)
	first := hello(t, idle(t, address, 1)[0])
	first.publish(goodKey)
	hub.wait(t, "a publisher", func() bool { return len(hub.publishers) == 1 })
	second := hello(t, idle(t, address, 1)[0])
	second.publish(goodKey)
	log.wait(t, "publisher refused", "open files")
	wait.Until(t, "the second has ended", func() bool { return admission.Stats() == Stats{Connections: 1, TurnedAway: 1} })
	_ = first.Close()
	hub.wait(t, "the end of both", func() bool {
		return len(hub.publishers) == 2 && hub.publishers[0].closed != "" && hub.publishers[1].closed != ""
	})
	wait.Until(t, "the open files are given back", func() bool { return b.Stats().StreamFiles == 0 })
	hello(t, idle(t, address, 1)[0]).publish(goodKey)
	hub.wait(t, "another publisher", func() bool { return len(hub.publishers) == 3 && hub.publishers[2].closed == "" })
}

// An encoder that announces its tracks need not wait.
func TestMetadata(t *testing.T) {
	hub := newTestHub()
	address, _ := start(t, RTMP{}, hub)
	c := hello(t, idle(t, address, 1)[0])
	c.publish(goodKey)
	c.metadata(amf0.ECMAArray{{Key: "audiocodecid", Value: "mp4a"}, {Key: "videocodecid", Value: 0.0}})
	c.audioConfig()
	c.audioFrame()
	hub.wait(t, "audio", func() bool { return hub.count() == 1 })
}

// A defect of ours that an encoder finds is between the two.
func TestPanic(t *testing.T) {
	hub, log := newTestHub(), &logBook{}
	r := RTMP{Log: log.logger(), Admission: NewAdmission(nil, log.logger()), publish: func(ctx context.Context, key string, from live.Source) (publisher, error) {
		p, err := hub.publish(ctx, key, from)
		return defective{p}, err
	}}
	s := newServer(r)
	theirs, ours := net.Pipe()
	slot, err := s.Admission.admit(addressOf(ours.RemoteAddr()))
	if err != nil {
		t.Fatal(err)
	}
	var encoding sync.WaitGroup
	encoding.Go(func() {
		c := hello(t, theirs)
		c.publish(goodKey)
		c.audioConfig()
		c.audioFrame()
		c.command("deleteStream", nil)
	})
	s.serve(t.Context(), ours, slot)
	encoding.Wait()
	if p, n := hub.only(t), s.Admission.Stats().Connections; p.closed != "lost" || n != 0 {
		t.Errorf("ended %s, %d connections, want lost, none", p.closed, n)
	}
	log.wait(t, "connection ended by a panic")
}

// defective is a publisher that has a defect.
type defective struct{ publisher }

func (defective) Write(live.Frame) error { panic("a defect") }

// When the server stops, connections end as lost: encoders will connect again.
func TestRunWaits(t *testing.T) {
	hub, log := newTestHub(), &logBook{}
	r := RTMP{Listener: listen(t), Log: log.logger(), publish: hub.publish, Admission: NewAdmission(nil, log.logger())}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	all := idle(t, r.Listener.Addr().String(), 2)
	c := hello(t, all[0])
	c.publish(goodKey)
	c.audioConfig()
	c.audioFrame()
	hub.wait(t, "a publisher", func() bool { return len(hub.publishers) == 1 })
	cancel()
	running.Wait()
	if p := hub.only(t); p.closed != "lost" {
		t.Errorf("ended %s, want lost", p.closed)
	}
	c.read.Wait()
}

// While stream keys can't be looked up, an encoder does not wait for ever, and neither it nor others
// of its address count as having a wrong one.
func TestKeyIsNotLookedUp(t *testing.T) {
	for _, tt := range []struct {
		name   string
		lookUp func(ctx context.Context) error
		times  int
		want   time.Duration
	}{
		{"the database hangs", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, 1, 10 * time.Second},
		{"the database errs", func(context.Context) error { return errors.New("connection refused") }, maxFailuresAtOnce, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &logBook{}
				s := newServer(RTMP{Log: log.logger(), Admission: NewAdmission(nil, log.logger()), publish: func(ctx context.Context, _ string, _ live.Source) (publisher, error) {
					return nil, tt.lookUp(ctx)
				}})
				began := time.Now()
				var connected sync.WaitGroup
				for range tt.times {
					theirs, ours := net.Pipe()
					slot, err := s.Admission.admit(addressOf(ours.RemoteAddr()))
					if err != nil {
						t.Fatal(err)
					}
					connected.Go(func() { hello(t, theirs).publish(goodKey) })
					connected.Go(func() { s.serve(t.Context(), ours, slot) })
				}
				if tt.want == 0 { // before the connections are closed, and the clock goes on
					synctest.Wait()
				}
				if err := s.Admission.CheckKeys(netip.Addr{}); err != nil {
					t.Errorf("the next one: %v", err)
				}
				connected.Wait()
				if took := time.Since(began); took < tt.want || took > tt.want+5*time.Second {
					t.Errorf("took %v, want %v", took, tt.want)
				}
				if lines := strings.Count(log.String(), "could not be looked up"); lines == 0 || lines > unauthenticatedLinesAtOnce {
					t.Errorf("%d lines say it:\n%s", lines, log)
				}
			})
		})
	}
}
