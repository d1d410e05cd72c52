package guard

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/dns/dnsmessage"

	"weir/internal/weir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// The tests stay on this machine: 127.0.0.2 stands for the public internet, which the guard of the
// tests allows, and 127.0.0.1 for the private network.
const (
	public  = "127.0.0.2"
	private = "127.0.0.1"
)

func TestClientReachesAllowedServer(t *testing.T) {
	front := serve(t, public, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
	})
	resp, err := client(t).Get(front.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "hello" {
		t.Errorf("body = %q, %v, want hello", body, err)
	}
}

func TestRedirectToLoopbackIsBlocked(t *testing.T) {
	var reached atomic.Bool
	inner := serve(t, private, func(http.ResponseWriter, *http.Request) { reached.Store(true) })
	front := serve(t, public, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
	})
	err := get(t, client(t), front.URL)
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok {
		t.Fatalf("error = %v, want a BlockedError", err)
	}
	if blocked.Host != private || blocked.Addr != netip.MustParseAddr(private) {
		t.Errorf("blocked %q at %v, want %s at both", blocked.Host, blocked.Addr, private)
	}
	if reached.Load() {
		t.Error("the inner server was reached")
	}
}

func TestRedirectToAnotherSchemeIsRefused(t *testing.T) {
	front := serve(t, public, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	c := client(t)
	for _, start := range []string{front.URL, "file:///etc/passwd"} {
		err := get(t, c, start)
		if got := weir.KindOf(err); got != weir.Invalid || !strings.Contains(err.Error(), "use http or https") {
			t.Errorf("error from %s = %v, of kind %q", start, err, got)
		}
	}
}

func TestRedirectsAreLimited(t *testing.T) {
	front := serve(t, public, func(w http.ResponseWriter, r *http.Request) {
		left, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil || r.Header.Get("Referer") != "" {
			t.Errorf("path %q, Referer %q, want a number and none", r.URL.Path, r.Header.Get("Referer"))
		}
		if left > 0 {
			http.Redirect(w, r, "/"+strconv.Itoa(left-1)+"?token=t", http.StatusFound)
		}
	})
	c := client(t)
	if err := get(t, c, front.URL+"/10"); err != nil {
		t.Errorf("ten redirects: %v", err)
	}
	if err := get(t, c, front.URL+"/11"); weir.KindOf(err) != weir.Invalid {
		t.Errorf("eleven redirects: error = %v, want one of kind %q", err, weir.Invalid)
	}
}

func TestClientGivesUpAfterItsTimeout(t *testing.T) {
	done := make(chan struct{})
	front := serve(t, public, func(http.ResponseWriter, *http.Request) { <-done })
	c := testGuard(nil).Client(10 * time.Millisecond)
	t.Cleanup(c.CloseIdleConnections)
	err := get(t, c, front.URL)
	close(done)
	if e, ok := errors.AsType[*url.Error](err); !ok || !e.Timeout() {
		t.Errorf("error = %v, want a timeout", err)
	}
}

func TestClientUsesNoProxy(t *testing.T) {
	proxy := serve(t, public, func(http.ResponseWriter, *http.Request) { t.Error("the proxy was asked") })
	t.Setenv("HTTP_PROXY", proxy.URL)
	front := serve(t, public, func(http.ResponseWriter, *http.Request) {})
	_, port, _ := net.SplitHostPort(front.Listener.Addr().String())

	// A name, because the standard library never asks a proxy for loopback addresses.
	c := testGuard(resolver(t, func(int) []string { return []string{public} })).Client(0)
	t.Cleanup(c.CloseIdleConnections)
	if err := get(t, c, "http://front.test.:"+port); err != nil {
		t.Error(err)
	}
}

func TestDialTriesEveryAllowedAddress(t *testing.T) {
	front := listen(t, public+":0")
	_, port, _ := net.SplitHostPort(front.Addr().String())
	inner := listen(t, private+":"+port)
	g := testGuard(resolver(t, func(int) []string { return []string{private, public} }))
	conn, err := g.DialContext(t.Context(), "tcp", "both.test.:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); got != front.Addr().String() {
		t.Errorf("connected to %s, want %s (and never %s)", got, front.Addr(), inner.Addr())
	}
}

func TestNameThatChangesItsMindIsBlockedWhenDialed(t *testing.T) {
	inner := listen(t, private+":0")
	_, port, _ := net.SplitHostPort(inner.Addr().String())
	g := testGuard(resolver(t, func(n int) []string {
		if n == 0 {
			return []string{public}
		}
		return []string{private}
	}))
	pinned, err := g.Resolve(t.Context(), "rebind.test.")
	if err != nil || pinned != netip.MustParseAddr(public) {
		t.Fatalf("first look = %v, %v, want %s", pinned, err, public)
	}
	conn, err := g.DialContext(t.Context(), "tcp", "rebind.test.:"+port)
	if err == nil {
		_ = conn.Close()
	}
	blocked, ok := errors.AsType[*BlockedError](err)
	if !ok {
		t.Fatalf("error = %v, want a BlockedError", err)
	}
	if blocked.Host != "rebind.test." || blocked.Addr != netip.MustParseAddr(private) {
		t.Errorf("blocked %q at %v, want rebind.test. at %s", blocked.Host, blocked.Addr, private)
	}
}

func TestResolve(t *testing.T) {
	g := testGuard(resolver(t, func(int) []string { return []string{private, public} }))
	nothing := testGuard(resolver(t, func(int) []string { return nil }))
	inside := testGuard(resolver(t, func(int) []string { return []string{private, "10.0.0.1"} }))
	for _, tt := range []struct {
		name    string
		guard   *Guard
		host    string
		want    string // "" for an error
		blocked string
		missing bool // blocked because there is no such name
	}{
		{name: "name", guard: g, host: "both.test.", want: public},
		{name: "address", guard: g, host: public, want: public},
		{name: "IPv4-mapped address", guard: g, host: "::ffff:" + public, want: public},
		{name: "only private addresses", guard: inside, host: "inside.test.", blocked: private},
		{name: "private address", guard: g, host: "10.0.0.1", blocked: "10.0.0.1"},
		{name: "zone", guard: g, host: "fe80::1%lo", blocked: "fe80::1%lo"},
		{name: "no such name", guard: nothing, host: "nothing.test.", missing: true},
		{name: "not a name", guard: g, host: "a b", missing: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.guard.Resolve(t.Context(), tt.host)
			if tt.want != "" {
				if err != nil || got != netip.MustParseAddr(tt.want) {
					t.Errorf("Resolve = %v, %v, want %s", got, err, tt.want)
				}
				return
			}
			if weir.KindOf(err) != weir.Invalid {
				t.Errorf("error = %v, want one of kind %q", err, weir.Invalid)
			}
			blocked, ok := errors.AsType[*BlockedError](err)
			var addr netip.Addr
			if !tt.missing {
				addr = netip.MustParseAddr(tt.blocked)
			}
			if !ok || blocked.Addr != addr {
				t.Errorf("error = %v, want %q blocked", err, tt.blocked)
			}
		})
	}
}

// TestAddressesOfNamesAreForTheLog refuses names of private addresses: the log has the addresses, the
// messages for callers do not. What a caller wrote as an address is repeated.
func TestAddressesOfNamesAreForTheLog(t *testing.T) {
	var log strings.Builder
	g := testGuard(resolver(t, func(int) []string { return []string{"10.7.8.9"} }))
	g.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := g.Client(0)
	t.Cleanup(c.CloseIdleConnections)
	shown := func(err error) string {
		e, ok := errors.AsType[*weir.Error](err)
		if !ok {
			t.Fatalf("error = %v, want one for callers", err)
		}
		blocked, _ := errors.AsType[*BlockedError](err)
		return strings.Join(e.Messages, " ") + blocked.Error()
	}
	_, resolved := g.Resolve(t.Context(), "db.internal.")
	conn, dialled := g.DialContext(t.Context(), "tcp", "db.internal.:80")
	if dialled == nil {
		_ = conn.Close()
	}
	for way, err := range map[string]error{"Resolve": resolved, "DialContext": dialled, "Client": get(t, c, "http://db.internal.:80/")} {
		if text := shown(err); strings.Contains(text, "10.") || !strings.Contains(text, "host db.internal. has no public address") {
			t.Errorf("%s shows %q", way, text)
		}
	}
	if n := strings.Count(log.String(), "host=db.internal. address=10.7.8.9"); n != 3 {
		t.Errorf("the log has the address %d times, want 3:\n%s", n, log.String())
	}
	if text := shown(g.CheckHost("10.7.8.9")); !strings.Contains(text, "10.7.8.9 is a private address") {
		t.Errorf("an address shows %q", text)
	}
}

// TestPrivateNamesLookMissing looks up names of private addresses and names that do not exist: who gives
// a name must not learn which names there are in the network of the operator.
func TestPrivateNamesLookMissing(t *testing.T) {
	const host = "db.internal."
	said := map[string]string{}
	for what, addresses := range map[string][]string{"private": {"10.7.8.9"}, "missing": nil} {
		g := testGuard(resolver(t, func(int) []string { return addresses }))
		c := g.Client(0)
		t.Cleanup(c.CloseIdleConnections)
		_, resolved := g.Resolve(t.Context(), host)
		conn, dialled := g.DialContext(t.Context(), "tcp", host+":80")
		if dialled == nil {
			_ = conn.Close()
		}
		for way, err := range map[string]error{"Resolve": resolved, "DialContext": dialled, "Client": get(t, c, "http://"+host+":80/")} {
			blocked, ok := errors.AsType[*BlockedError](err)
			if !ok || blocked.Literal() {
				t.Errorf("%s of a %s name: error = %v, want a BlockedError of a name", way, what, err)
				continue
			}
			said[what] = blocked.Error()
		}
	}
	if said["private"] != said["missing"] {
		t.Errorf("a private name is told from a missing one: %q", said)
	}
}

func TestResolveTellsATroubledServerFromAMissingName(t *testing.T) {
	r := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way to the server")
	}}
	_, err := testGuard(r).Resolve(t.Context(), "some.test.")
	if got := weir.KindOf(err); got != weir.Upstream {
		t.Errorf("kind = %q, want %q (%v)", got, weir.Upstream, err)
	}
}

func TestDialUDP(t *testing.T) {
	g := testGuard(nil)
	conn, err := g.DialContext(t.Context(), "udp", public+":9")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := g.DialContext(t.Context(), "udp", private+":9"); !isBlocked(err) {
		t.Errorf("error = %v, want a BlockedError", err)
	}
}

func TestDialRefusesOtherNetworks(t *testing.T) {
	g := testGuard(nil)
	for _, network := range []string{"unix", "unixgram", "ip4:icmp", ""} {
		if conn, err := g.DialContext(t.Context(), network, public+":9"); err == nil {
			_ = conn.Close()
			t.Errorf("network %q was dialed", network)
		}
	}
}

func isBlocked(err error) bool {
	_, ok := errors.AsType[*BlockedError](err)
	return ok
}

func testGuard(r *net.Resolver) *Guard {
	g := New([]netip.Prefix{netip.MustParsePrefix(public + "/32")})
	if r != nil {
		g.resolver = r
	}
	return g
}

func client(t *testing.T) *http.Client {
	c := testGuard(nil).Client(0)
	t.Cleanup(c.CloseIdleConnections)
	return c
}

// get makes a GET request and returns its error.
func get(t *testing.T, c *http.Client, address string) error {
	t.Helper()
	resp, err := c.Get(address)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func serve(t *testing.T, host string, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = listen(t, host+":0")
	s.Start()
	t.Cleanup(s.Close)
	return s
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp4", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// resolver returns a resolver that asks a name server of the test, which has the
// same IPv4 addresses for every name: those of answer for the nth question.
func resolver(t *testing.T, answer func(n int) []string) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp4", private+":0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { serveDNS(t, server, answer) })
	t.Cleanup(func() {
		_ = server.Close()
		wg.Wait()
	})
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", server.LocalAddr().String())
	}}
}

// serveDNS answers questions until server is closed.
func serveDNS(t *testing.T, server net.PacketConn, answer func(n int) []string) {
	asked := 0
	for buf := make([]byte, 1500); ; {
		n, from, err := server.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var m dnsmessage.Message
		if err == nil {
			err = m.Unpack(buf[:n])
		}
		if err != nil || len(m.Questions) != 1 {
			t.Errorf("a question that can't be read: %v", err)
			return
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			for _, a := range answer(asked) {
				m.Answers = append(m.Answers, dnsmessage.Resource{
					Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class},
					Body:   &dnsmessage.AResource{A: netip.MustParseAddr(a).As4()},
				})
			}
			asked++
		}
		reply, err := m.Pack()
		if err == nil {
			_, err = server.WriteTo(reply, from)
		}
		if err != nil {
			t.Errorf("answer: %v", err)
			return
		}
	}
}
