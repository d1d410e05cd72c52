package rtmp

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	"github.com/bluenviron/gortmplib/pkg/handshake"
	library "github.com/bluenviron/gortmplib/pkg/message"
	"github.com/bluenviron/gortmplib/pkg/rawmessage"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/codec"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// goodKey is the stream key that the servers of these tests accept.
const goodKey = "1a2b-3c4d"

// taken is a packet with its time.
type taken struct {
	codec.Packet
	At time.Duration
}

// sink keeps the packets that a server receives.
type sink struct {
	conn    *Conn
	key     string
	tracks  string
	packets []taken
	done    sync.WaitGroup
	err     error
}

// serve starts a server for one connection.
func serve(ctx context.Context, conn net.Conn) *sink {
	s := &sink{conn: NewConn(conn)}
	s.done.Go(func() {
		s.err = s.conn.Serve(ctx, Handler{
			App: "live",
			Publish: func(_ context.Context, key string) error {
				if s.key = key; key != goodKey {
					return errors.New("no such key")
				}
				return nil
			},
			Tracks: func(video, audio bool) { s.tracks = fmt.Sprintf("video %v, audio %v", video, audio) },
			Packet: func(p codec.Packet, at time.Duration) error {
				s.packets = append(s.packets, taken{p, at})
				return nil
			},
		})
		s.conn.Close()
	})
	return s
}

// peer is the other end of a connection, as a library speaks it, right or wrong.
type peer struct {
	net.Conn
	t   *testing.T
	out *rawmessage.Writer
	in  *library.Reader
}

func newPeer(t *testing.T, conn net.Conn) *peer {
	t.Helper()
	return &peer{
		Conn: conn, t: t, out: rawmessage.NewWriter(conn, bytecounter.NewWriter(conn), false),
		in: library.NewReader(conn, bytecounter.NewReader(conn), func(uint32) error { return nil }),
	}
}

func (p *peer) send(kind byte, body ...byte) {
	_ = p.out.Write(&rawmessage.Message{ChunkStreamID: 2 + kind%16, Type: kind, MessageStreamID: 1 << 24, Body: body})
}

func (p *peer) command(name string, number int, arguments ...any) {
	body, err := append(amf0.Data{name, float64(number)}, arguments...).Marshal()
	if err != nil {
		panic(err)
	}
	p.send(messageCommand, body...)
}

func (p *peer) read() library.Message {
	p.t.Helper()
	m, err := p.in.Read()
	if err != nil {
		p.t.Fatal(err)
	}
	return m
}

// hears returns the next command that the other end sends.
func (p *peer) hears() string {
	p.t.Helper()
	for {
		if m, ok := p.read().(*library.CommandAMF0); ok {
			return fmt.Sprint(m.Name, " ", m.CommandID, " ", m.Arguments)
		}
	}
}

// The replies to an encoder, read by a library.
func TestServer(t *testing.T) {
	theirs, ours := net.Pipe()
	s := serve(t.Context(), ours)
	if _, _, err := handshake.DoClient(theirs, false, true); err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, theirs)
	p.command("connect", 1, amf0.Object{{Key: "app", Value: "live/?x=y"}, {Key: "fourCcList", Value: amf0.StrictArray{"*"}}})
	if got := p.hears(); !strings.Contains(got, "_result 1") || !strings.Contains(got, "NetConnection.Connect.Success") || !strings.Contains(got, "hvc1") {
		t.Errorf("connect: %s", got)
	}
	p.command("releaseStream", 1, nil, goodKey)
	p.command("createStream", 1, nil)
	if got := p.hears(); got != "_result 1 [<nil> 1]" {
		t.Errorf("createStream: %s", got)
	}
	p.command("publish", 1, nil, goodKey+"?x=y", "live")
	if got := p.hears(); !strings.Contains(got, "onStatus") || !strings.Contains(got, "NetStream.Publish.Start") {
		t.Errorf("publish: %s", got)
	}
	about, err := amf0.Data{"@setDataFrame", "onMetaData", amf0.ECMAArray{{Key: "audiocodecid", Value: "mp4a"}, {Key: "videocodecid", Value: 0.0}}}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	p.send(messageData, about...)
	p.send(messageUserControl, 0, 6, 0, 0, 0, 42)
	if got, ok := p.read().(*library.UserControlPingResponse); !ok || got.ServerTime != 42 {
		t.Errorf("ping: %+v", got)
	}
	p.send(messageWindow, 0, 0, 16, 0)
	p.send(messageAudio, make([]byte, 8000)...)
	if got, ok := p.read().(*library.Acknowledge); !ok || got.Value < 4096 {
		t.Errorf("acknowledgement: %+v", got)
	}
	p.command("FCUnpublish", 2, nil, goodKey)
	_ = p.Close()
	s.done.Wait()
	if !errors.Is(s.err, ErrEnded) || s.key != goodKey || s.tracks != "video false, audio true" || len(s.packets) != 1 {
		t.Errorf("ended with %v, key %q, %s, %d packets", s.err, s.key, s.tracks, len(s.packets))
	}
}

// packets are the packets in tests: two tracks, a key frame, times that wrap around.
func packets() (all []taken) {
	const start = (1<<32 - 30) * time.Millisecond
	all = []taken{
		{codec.Packet{Kind: codec.Video, Codec: codec.H265, Config: true, Data: []byte("hvcC")}, start},
		{codec.Packet{Kind: codec.Audio, Codec: codec.AAC, Config: true, Data: []byte{0x11, 0x90}}, start},
	}
	for i := range 5 {
		at := start + time.Duration(i)*20*time.Millisecond
		all = append(all,
			taken{codec.Packet{Kind: codec.Video, Codec: codec.H265, Composition: time.Duration(i) * 20 * time.Millisecond, Data: make([]byte, 1+i*50_000)}, at},
			taken{codec.Packet{Kind: codec.Audio, Codec: codec.AAC, Data: []byte{0x21, byte(i)}}, at})
	}
	return all
}

// dialPipe returns a function that dials one end of a pipe.
func dialPipe(conn net.Conn) func(context.Context, string, string) (net.Conn, error) {
	return func(context.Context, string, string) (net.Conn, error) { return conn, nil }
}

// Our client brings our server a stream.
func TestPublish(t *testing.T) {
	theirs, ours := net.Pipe()
	s := serve(t.Context(), ours)
	c, err := Dial(t.Context(), "rtmp://a.example/live/"+goodKey+"?x=y", dialPipe(theirs))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Publish(t.Context()); err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() {
		if err := c.Wait(); err == nil {
			t.Error("the connection ends without a reason")
		}
	})
	want := packets()
	var tracks []codec.Config
	for _, p := range want[:2] {
		tracks = append(tracks, codec.Config{Kind: p.Kind, Codec: p.Codec, Record: p.Data})
	}
	if err := c.WriteTracks(want[0].At, tracks...); err != nil {
		t.Error(err)
	}
	for _, p := range want[2:] {
		if err := c.WritePacket(p.Packet, false, p.At); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	s.done.Wait()
	waiting.Wait()
	if !errors.Is(s.err, ErrEnded) || s.key != goodKey || s.tracks != "video true, audio true" {
		t.Errorf("ended with %v, key %q, %s", s.err, s.key, s.tracks)
	}
	if diff := cmp.Diff(want, s.packets, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("packets (-sent +received):\n%s", diff)
	}
	if c.Sent() < 500_000 || s.conn.Received() < 500_000 { // the packets alone
		t.Errorf("%d bytes sent, %d received", c.Sent(), s.conn.Received())
	}
}

// greet replies to a client like a server until it requests a stream. It returns the command with
// which it does.
func greet(t *testing.T, conn net.Conn) (*peer, string) {
	t.Helper()
	if _, _, err := handshake.DoServer(conn, true); err != nil {
		t.Error(err)
	}
	p := newPeer(t, conn)
	if got := p.hears(); !strings.Contains(got, "connect 1") || !strings.Contains(got, "{tcUrl rtmp://a.example/live}") {
		t.Errorf("the client asks %s", got)
	}
	p.command("_result", 1, nil, nil)
	for {
		asked := p.hears()
		var number int
		if _, err := fmt.Sscanf(asked, "createStream %d", &number); err != nil {
			continue // what old servers need
		}
		p.command("_result", number, nil, 7.0)
		break
	}
	return p, p.hears()
}

// Our client gets a stream from a server.
func TestPlay(t *testing.T) {
	theirs, ours := net.Pipe()
	want := packets()
	var serving sync.WaitGroup
	serving.Go(func() {
		p, asked := greet(t, ours)
		if asked != "play 3 [<nil> some key%20?x=y]" {
			t.Errorf("the client asks %q", asked)
		}
		p.command("onStatus", 0, nil, amf0.Object{{Key: "level", Value: "status"}, {Key: "code", Value: "NetStream.Play.Start"}})
		w := chunkWriter{to: ours, size: defaultChunkSize}
		for _, m := range want {
			head, err := appendTagHeader(nil, m.Packet, false)
			if err != nil {
				t.Error(err)
			}
			kind := byte(messageVideo)
			if m.Kind == codec.Audio {
				kind = messageAudio
			}
			if err := w.write(audioChunks, 7, message{kind, milliseconds(m.At), m.Data}, head); err != nil {
				t.Error(err)
			}
		}
		p.send(messageUserControl, 0, 1, 0, 0, 0, 7)
		_, _ = io.Copy(io.Discard, ours)
	})
	c, err := Dial(t.Context(), "rtmp://a.example/live/some key%20?x=y", dialPipe(theirs))
	if err != nil {
		t.Fatal(err)
	}
	var got []taken
	err = c.Play(t.Context(), func(p codec.Packet, at time.Duration) error {
		got = append(got, taken{p, at})
		return nil
	})
	if !errors.Is(err, ErrEnded) {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Errorf("packets (-sent +received):\n%s", diff)
	}
	c.Cut()
	serving.Wait()
}

// A server that refuses our client, and the part of its reason that can be shown.
func TestRefused(t *testing.T) {
	reason := func(code string) amf0.Object {
		return amf0.Object{{Key: "level", Value: "error"}, {Key: "code", Value: code}, {Key: "description", Value: "not " + goodKey}}
	}
	shake := func(conn net.Conn) *peer {
		if _, _, err := handshake.DoServer(conn, true); err != nil {
			t.Error(err)
		}
		p := newPeer(t, conn)
		p.hears()
		return p
	}
	for _, tt := range []struct {
		name   string
		server func(conn net.Conn)
		code   string
	}{
		{"connect", func(conn net.Conn) { shake(conn).command("_error", 1, nil, reason("NetConnection.Connect.Rejected")) }, "NetConnection.Connect.Rejected"},
		{"with the key", func(conn net.Conn) { shake(conn).command("_error", 1, nil, reason("Net."+goodKey)) }, ""},
		{"another kind of code", func(conn net.Conn) { shake(conn).command("_error", 1, nil, reason("no")) }, ""},
		{"close", func(conn net.Conn) { shake(conn).command("close", 0, nil) }, ""},
		{"status", func(conn net.Conn) {
			p, _ := greet(t, conn)
			p.command("onStatus", 0, nil, reason("NetStream.Publish.BadName"))
		}, "NetStream.Publish.BadName"},
		{"a reply", func(conn net.Conn) {
			p, _ := greet(t, conn)
			p.command("_error", 5, nil, reason("NetStream.Failed"))
		}, "NetStream.Failed"},
	} {
		for _, play := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, play %v", tt.name, play), func(t *testing.T) {
				theirs, ours := net.Pipe()
				var serving sync.WaitGroup
				serving.Go(func() {
					tt.server(ours)
					_, _ = io.Copy(io.Discard, ours)
				})
				c, err := Dial(t.Context(), "rtmp://a.example/live/"+goodKey, dialPipe(theirs))
				if err != nil {
					t.Fatal(err)
				}
				if play {
					err = c.Play(t.Context(), nil)
				} else {
					err = c.Publish(t.Context())
				}
				refusal, ok := errors.AsType[*Refusal](err)
				if !ok || refusal.Code != tt.code || strings.Contains(err.Error(), goodKey) {
					t.Errorf("error %v, want %q", err, tt.code)
				}
				c.Close()
				serving.Wait()
			})
		}
	}
}

// A server that is sent a stream may not send much itself.
func TestServerSendsTooMuch(t *testing.T) {
	for name, say := range map[string]func(p *peer){
		"a message of 40000 bytes": func(p *peer) { p.send(messageData, make([]byte, 40_000)...) },
		"more data than a server":  func(p *peer) { p.send(messageData, make([]byte, 10_000)...) },
	} {
		t.Run(name, func(t *testing.T) {
			theirs, ours := net.Pipe()
			var serving sync.WaitGroup
			serving.Go(func() {
				p, _ := greet(t, ours)
				p.command("onStatus", 0, nil, amf0.Object{{Key: "code", Value: "NetStream.Publish.Start"}})
				for range 40 {
					say(p)
				}
			})
			c, err := Dial(t.Context(), "rtmp://a.example/live/"+goodKey, dialPipe(theirs))
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Publish(t.Context()); err != nil {
				t.Fatal(err)
			}
			err = c.Wait()
			if _, ok := errors.AsType[LimitError](err); !ok || !strings.Contains(err.Error(), name) {
				t.Errorf("error %v, want a limit", err)
			}
			c.Cut()
			serving.Wait()
		})
	}
}

// How long a server may take.
func TestClientTimes(t *testing.T) {
	start := amf0.Object{{Key: "level", Value: "status"}, {Key: "code", Value: "NetStream.Play.Start"}}
	for _, tt := range []struct {
		name   string
		server func(t *testing.T, conn net.Conn)
		want   time.Duration
	}{
		{"says nothing", func(*testing.T, net.Conn) {}, handshakeTime},
		{"handshake, then nothing", func(t *testing.T, conn net.Conn) {
			if _, _, err := handshake.DoServer(conn, true); err != nil {
				t.Error(err)
			}
		}, handshakeTime},
		{"no media", func(t *testing.T, conn net.Conn) {
			p, _ := greet(t, conn)
			time.Sleep(4 * time.Second) // of the bubble's clock: it is what the test is about
			p.command("onStatus", 0, nil, start)
		}, 4*time.Second + firstMediaTime},
		{"media, then nothing", func(t *testing.T, conn net.Conn) {
			p, _ := greet(t, conn)
			p.command("onStatus", 0, nil, start)
			for range 20 {
				time.Sleep(3 * time.Second)
				p.send(messageAudio, 0xAF, 1, 0x21)
			}
		}, 20*3*time.Second + idleTime},
		{"media, then other messages", func(t *testing.T, conn net.Conn) {
			p, _ := greet(t, conn)
			p.command("onStatus", 0, nil, start)
			p.send(messageAudio, 0xAF, 1, 0x21)
			for range 40 {
				time.Sleep(time.Second)
				p.send(messageData)
			}
		}, noMediaTime},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				theirs, ours := net.Pipe()
				var serving sync.WaitGroup
				serving.Go(func() {
					tt.server(t, ours)
					_, _ = io.Copy(io.Discard, ours)
				})
				began := time.Now()
				c, err := Dial(t.Context(), "rtmp://a.example/live/"+goodKey, dialPipe(theirs))
				if err == nil {
					err = c.Play(t.Context(), func(codec.Packet, time.Duration) error { return nil })
					c.Cut()
				}
				timeout, ok := errors.AsType[net.Error](err)
				if took := time.Since(began); took != tt.want || !ok || !timeout.Timeout() {
					t.Errorf("it ended after %v with %v, want %v", took, err, tt.want)
				}
				_ = ours.Close()
				serving.Wait()
			})
		})
	}
}

// A client ends with its context, whatever it waits for.
func TestClientIsCancelled(t *testing.T) {
	theirs, ours := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		greet(t, ours)
		cancel()
		_, _ = io.Copy(io.Discard, ours)
	})
	c, err := Dial(ctx, "rtmp://a.example/live/"+goodKey, dialPipe(theirs))
	if err == nil {
		err = c.Play(ctx, nil)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	serving.Wait()
}

// A stream is published over TLS. Only the host of the URL gets the key.
func TestPublishOverTLS(t *testing.T) {
	web := httptest.NewTLSServer(nil) // it has a certificate for example.com
	config := web.TLS.Clone()
	web.Close()
	roots := filepath.Join(t.TempDir(), "roots.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: config.Certificates[0].Certificate[0]}
	if err := os.WriteFile(roots, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SSL_CERT_FILE", roots)
	for host, trusted := range map[string]bool{"example.com": true, "example.net": false} {
		theirs, ours := net.Pipe()
		s := serve(t.Context(), tls.Server(ours, config))
		c, err := Dial(t.Context(), "rtmps://"+host+"/live/"+goodKey, dialPipe(theirs))
		if err == nil {
			err = c.Publish(t.Context())
			c.Cut()
		}
		_, failed := errors.AsType[*TLSError](err)
		s.done.Wait()
		if failed == trusted || (err == nil) != trusted || (s.key == goodKey) != trusted {
			t.Errorf("%s: error %v; the server has the key %q", host, err, s.key)
		}
	}
}

// A server without TLS gets no stream key.
func TestDialTLS(t *testing.T) {
	theirs, ours := net.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() {
		_, _ = ours.Read(make([]byte, 16<<10))
		_, _ = io.WriteString(ours, "HTTP/1.1 400 Bad Request\r\n\r\n")
		_ = ours.Close()
	})
	_, err := Dial(t.Context(), "rtmps://a.example/live/"+goodKey, dialPipe(theirs))
	if _, ok := errors.AsType[*TLSError](err); !ok {
		t.Errorf("error %v, want one about TLS", err)
	}
	serving.Wait()
}

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]address{
		"rtmp://a.example/live2/key":         {false, "a.example", "1935", "live2", "key", "rtmp://a.example/live2"},
		"rtmps://a.example/rtmp/k?s=1&t=2":   {true, "a.example", "443", "rtmp", "k?s=1&t=2", "rtmps://a.example/rtmp"},
		"rtmp://[2001:db8::1]:99/a/b/k%2F x": {false, "2001:db8::1", "99", "a/b", "k%2F x", "rtmp://[2001:db8::1]:99/a/b"},
		"rtmp://a.example/live/key/?s=/1":    {false, "a.example", "1935", "live", "key?s=/1", "rtmp://a.example/live"},
		"rtmp://u:p@a.example/live/key":      {false, "a.example", "1935", "live", "key", "rtmp://a.example/live"},
	} {
		if got, err := parseURL(raw); err != nil || got != want {
			t.Errorf("parseURL(%q) = %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{"rtmp://a.example", "rtmp://a.example/", "rtmp://a.example/hunter2", "rtmp://a.example/live/", "rtmp:///a/hunter2", "\x00"} {
		if _, err := parseURL(raw); !errors.Is(err, ErrURL) {
			t.Errorf("parseURL(%q): %v", raw, err)
		}
	}
}

// A pause of this process is no silence of the encoder: what has come meanwhile is read.
func TestPauseIsNoSilence(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	encoder, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := encoder.Write([]byte("media")); err != nil {
		t.Fatal(err)
	}
	for name, pause := range map[string]time.Duration{"idle": idleTime + time.Second, "no media": noMediaTime + time.Second} {
		w := wire{conn: &passed{Conn: conn}, lastMedia: time.Now().Add(-pause)}
		var b [1]byte
		if n, err := w.Read(b[:]); n != 1 || err != nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		if n, err := w.Read(b[:]); n != 1 || err != nil {
			t.Errorf("%s: then %d bytes, %v", name, n, err)
		}
	}
}

// passed is a connection whose first deadline has passed when it is read, as after a pause.
type passed struct {
	net.Conn
	once sync.Once
}

func (c *passed) SetReadDeadline(at time.Time) error {
	c.once.Do(func() { at = time.Now().Add(-time.Second) })
	return c.Conn.SetReadDeadline(at)
}
