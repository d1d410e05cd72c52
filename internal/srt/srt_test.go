package srt

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gosrt "github.com/datarhei/gosrt"
	"go.uber.org/goleak"

	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	goodKey    = "1111-2222-3333-4444"
	passphrase = "correct horse battery"
)

// startListener listens for the time of the test and accepts callers that have the key.
func startListener(t *testing.T, passphrase weir.Secret, maxAhead int) (address string, conns <-chan *Conn) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", passphrase)
	if err != nil {
		t.Fatal(err)
	}
	l.maxAhead = maxAhead
	accepted := make(chan *Conn, 10)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			request, err := l.Accept()
			if err != nil {
				return
			}
			key, err := request.StreamKey()
			if err == nil && key != goodKey {
				err = weir.ErrNotFound()
			}
			if err != nil {
				request.Reject(err)
				continue
			}
			conn, err := request.Accept()
			if err != nil {
				t.Error(err)
				continue
			}
			t.Cleanup(func() { _ = conn.Close() })
			accepted <- conn
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String(), accepted
}

// here resolves every name to this machine.
func here(context.Context, string) (netip.Addr, error) { return netip.MustParseAddr("127.0.0.1"), nil }

// dial calls a listener by a name.
func dial(t *testing.T, address, query string) (*Conn, error) {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return Dial(t.Context(), "srt://a.example:"+port+"?"+query, here)
}

// All written bytes are read, also those in flight at the end.
func TestDial(t *testing.T) {
	for name, tt := range map[string]struct {
		query  string
		secret weir.Secret
	}{
		"plain":                     {"streamid=publish:" + goodKey, ""},
		"encrypted, with a latency": {"streamid=" + goodKey + "&latency=700&pbkeylen=32&passphrase=correct+horse+battery", passphrase},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, conns := startListener(t, tt.secret, maxAhead)
			conn, err := dial(t, address, tt.query)
			if err != nil {
				t.Fatal(err)
			}
			sent := bytes.Repeat([]byte("0123456789"), 10_000)
			var got []byte
			var reading sync.WaitGroup
			peer := <-conns
			reading.Go(func() { got, err = io.ReadAll(peer) })
			for part := range slices.Chunk(sent, 7777) {
				if n, err := conn.Write(part); n != len(part) || err != nil {
					t.Fatalf("%d of %d bytes written: %v", n, len(part), err)
				}
			}
			_ = conn.Close()
			reading.Wait()
			if err != nil || !peer.Ended() || !bytes.Equal(got, sent) {
				t.Errorf("%d of %d bytes came, error %v, ended by the caller: %v", len(got), len(sent), err, peer.Ended())
			}
		})
	}
}

// The side that was called may send, too, and end the connection.
func TestDialToRead(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	address, conns := startListener(t, "", maxAhead)
	conn, err := dial(t, address, "streamid="+goodKey)
	if err != nil {
		t.Fatal(err)
	}
	peer := <-conns
	if _, err := peer.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	_ = peer.Close()
	if got, err := io.ReadAll(conn); string(got) != "hello" || err != nil || !conn.Ended() {
		t.Errorf("got %q, %v, ended by the peer: %v", got, err, conn.Ended())
	}
	_ = conn.Close()
}

func TestCloseEndsRead(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	address, conns := startListener(t, "", maxAhead)
	conn, err := dial(t, address, "streamid="+goodKey)
	if err != nil {
		t.Fatal(err)
	}
	<-conns
	var closing sync.WaitGroup
	closing.Go(func() { _ = conn.Close() })
	if n, err := conn.Read(make([]byte, 10)); n != 0 || !errors.Is(err, io.EOF) || conn.Ended() {
		t.Errorf("read %d bytes, %v, ended by the peer: %v", n, err, conn.Ended())
	}
	closing.Wait()
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	address, _ := startListener(t, passphrase, maxAhead)
	t.Run("wrong key", func(t *testing.T) {
		t.Parallel()
		_, err := dial(t, address, "streamid=hunter2hunter2&passphrase=correct+horse+battery")
		if !errors.Is(err, ErrConnect) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error %v, want ErrConnect without a secret", err)
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		why := errors.New("not wanted")
		ctx, cancel := context.WithCancelCause(t.Context())
		resolve := func(ctx context.Context, host string) (netip.Addr, error) {
			cancel(why)
			return here(ctx, host)
		}
		if _, err := Dial(ctx, "srt://a.example:9", resolve); !errors.Is(err, why) {
			t.Errorf("error %v, want the cause", err)
		}
	})
	t.Run("no address", func(t *testing.T) {
		t.Parallel()
		why := errors.New("blocked")
		resolve := func(context.Context, string) (netip.Addr, error) { return netip.Addr{}, why }
		if _, err := Dial(t.Context(), "srt://a.example:9", resolve); !errors.Is(err, why) {
			t.Errorf("error %v, want that of the resolver", err)
		}
	})
}

func TestParse(t *testing.T) {
	host, port, config, err := parse(
		"srt://a.example:99?streamid=%23!::r=key&passphrase=0123456789&pbkeylen=32&latency=500&mode=caller", newHooks().config(),
	)
	if err != nil || host != "a.example" || port != "99" || config.StreamId != "#!::r=key" || config.Passphrase != "0123456789" ||
		config.PBKeylen != 32 || config.PeerLatency != 500*time.Millisecond {
		t.Errorf("parse = %q, %q, %+v, %v", host, port, config, err)
	}
	for query, want := range map[string]error{
		"": ErrURL, ":0": ErrURL, ":x": ErrURL, ":99?a=%zz": ErrURL, ":99?pbkeylen=x": ErrURL,
		":99?passphrase=hunter2": ErrOptions, ":99?pbkeylen=17": ErrOptions,
		":99?latency=99999": ErrLatency, ":99?latency=x": ErrLatency, ":99?mode=listener": ErrMode,
	} {
		if _, _, _, err := parse("srt://a.example"+query, newHooks().config()); !errors.Is(err, want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("parse of %q: %v, want %v", query, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("srt://a.example:99?streamid=key&latency=1")
	f.Fuzz(func(_ *testing.T, raw string) { _, _, _, _ = parse(raw, newHooks().config()) })
}

// Callers hear why they are rejected.
func TestRejections(t *testing.T) {
	for err, want := range map[error]gosrt.RejectionReason{
		ErrOverload:                                gosrt.REJX_OVERLOAD,
		weir.ErrNotFound():                         gosrt.REJX_NOTFOUND,
		weir.Errorf(weir.Refused, "suspended"):     gosrt.REJX_FORBIDDEN,
		weir.Errorf(weir.Busy, "shutting down"):    gosrt.REJX_DOWN,
		weir.Errorf(weir.Outage, "no database"):    gosrt.REJX_DOWN,
		weir.Errorf(weir.Full, "no disk space"):    gosrt.REJX_NOROOM,
		errors.New("the database does not answer"): gosrt.REJX_ISE,
	} {
		if got := rejection(err); got != want {
			t.Errorf("%v: code %d, want %d", err, got, want)
		}
	}
}
