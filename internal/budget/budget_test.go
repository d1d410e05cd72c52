package budget

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"weir/internal/wait"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newBudget returns a budget with these numbers of connections: 16 are 6 without a key, 6 with one, 2
// of encoders and 2 of WebRTC.
func newBudget(t *testing.T, connections int, change ...func(*Options)) *Budget {
	t.Helper()
	o := Options{Files: 10_000, Connections: connections, PerAddress: connections, Log: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&o)
	}
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The parts of a budget fit into the limit of open files, whatever that is.
func TestDivision(t *testing.T) {
	for _, files := range []int{256, 1024, 1200, 4096, 20_000, 65_536, 1 << 20} {
		b := newBudget(t, 0, func(o *Options) { o.Files, o.PerAddress = files, 0 })
		connections := b.anonymous.limits.Members + b.authenticated.limits.Members + b.waiting.limits.Members + b.peers.limits.Members
		read := b.requests.limits.Members
		if used := connections + read + b.streamsLimit + maxOps; used > files {
			t.Errorf("with %d open files: %d connections, %d requests and %d for streams", files, connections, read, b.streamsLimit)
		}
		if b.requests.limits.Members >= b.anonymous.limits.Members || b.requests.limits.PerAddress >= b.anonymous.limits.PerAddress {
			t.Errorf("with %d open files, requests can keep all connections busy", files)
		}
	}
	if _, err := New(Options{Files: 100, Log: slog.New(slog.DiscardHandler)}); err == nil {
		t.Error("weir starts with 100 open files")
	}
	if _, err := New(Options{Files: 1000, Connections: 1000, Log: slog.New(slog.DiscardHandler)}); err == nil || !strings.Contains(err.Error(), "--max-connections") {
		t.Errorf("more connections than open files: %v", err)
	}
	if n, err := fileLimit(); err != nil || n < 64 {
		t.Errorf("the limit of this process: %d, %v", n, err)
	}
}

func TestStreams(t *testing.T) {
	b := newBudget(t, 16)
	b.streamsLimit = 20
	release, err := b.Stream(12)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Stream(9); weir.KindOf(err) != weir.Overloaded || !strings.Contains(err.Error(), "open files") {
		t.Errorf("more than there are: %v", err)
	}
	release()
	release()
	if got := b.Stats(); got.StreamFiles != 0 || got.Refused != 1 {
		t.Errorf("stats %+v", got)
	}
	if _, err := b.Stream(20); err != nil {
		t.Error(err)
	}
	var none *Budget
	if _, err := none.Stream(1 << 20); err != nil {
		t.Error(err)
	}
}

// service is an HTTP server on a listener of a budget.
//
//	/        answers at once
//	/key     has a good key, and answers at once
//	/upload  has a good key, and waits for the body
//	/body    waits for the body
//	/view    is a request of Budget.Request that waits for the body
type service struct {
	*testing.T
	budget  *Budget
	address string
	tls     *tls.Config // nil = plain
}

func newService(t *testing.T, b *Budget, secure bool) *service {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/key", func(_ http.ResponseWriter, r *http.Request) { Authenticated(r.Context()) })
	wait := func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		w.WriteHeader(http.StatusAccepted)
		_ = http.NewResponseController(w).Flush()
		_, _ = io.Copy(io.Discard, r.Body)
	}
	mux.HandleFunc("/upload", func(w http.ResponseWriter, r *http.Request) {
		Authenticated(r.Context())
		wait(w, r)
	})
	mux.HandleFunc("/body", wait)
	mux.HandleFunc("/view", func(w http.ResponseWriter, r *http.Request) {
		done, err := b.Request(r.Context(), netip.MustParseAddrPort(r.RemoteAddr).Addr())
		if err != nil {
			w.Header().Set("Connection", "close") // or the server waits for the body
			http.Error(w, err.Error(), weir.KindOf(err).Status())
			return
		}
		defer done()
		wait(w, r)
	})
	server := httptest.NewUnstartedServer(mux)
	server.Listener = b.HTTP(server.Listener)
	server.Config.ConnContext, server.Config.ConnState, server.Config.ErrorLog = WithConn, ConnState, log.New(io.Discard, "", 0)
	s := &service{T: t, budget: b, address: server.Listener.Addr().String()}
	if secure {
		server.StartTLS()
		s.tls = &tls.Config{InsecureSkipVerify: true}
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return s
}

// testClient is a connection to a service.
type testClient struct {
	net.Conn
	s       *service
	in      *bufio.Reader
	pending *http.Response // whose body is not read yet
}

// dial opens a connection from an address of this machine: its last byte is given.
func (s *service) dial(from byte) *testClient {
	s.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	conn, err := d.DialContext(s.Context(), "tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	if s.tls != nil {
		conn = tls.Client(conn, s.tls)
	}
	s.Cleanup(func() { _ = conn.Close() })
	return &testClient{Conn: conn, s: s, in: bufio.NewReader(conn)}
}

// ask sends a request and returns the status of the response; 0 = the connection is closed.
func (c *testClient) ask(path string) int {
	body := ""
	if strings.HasPrefix(path, "/u") || strings.HasPrefix(path, "/b") || strings.HasPrefix(path, "/v") {
		body = "Content-Length: 1\r\n" // which comes with finish
	}
	_, _ = io.WriteString(c, "POST "+path+" HTTP/1.1\r\nHost: a\r\n"+body+"\r\n")
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0
	}
	if response.StatusCode == http.StatusAccepted {
		c.pending = response
	} else {
		_, _ = io.Copy(io.Discard, response.Body)
	}
	return response.StatusCode
}

// finish sends the body that a request waits for.
func (c *testClient) finish() {
	_, _ = io.WriteString(c, "x")
	_, _ = io.Copy(io.Discard, c.pending.Body)
}

// isOpen reports whether a connection can be used.
func (c *testClient) isOpen() bool { return c.ask("/") == http.StatusOK }

// wait waits until the numbers of the budget are as wanted.
func (s *service) wait(what string, is func(Stats) bool) {
	s.Helper()
	wait.NoError(s, func() error {
		if now := s.budget.Stats(); !is(now) {
			return fmt.Errorf("%s: %+v", what, now)
		}
		return nil
	})
}

// busy returns the number of connections with a key that can't be evicted.
func (s *service) busy() int {
	s.budget.authenticated.mu.Lock()
	defer s.budget.authenticated.mu.Unlock()
	return s.budget.authenticated.busy
}

// Connections that do nothing make room for new ones, also those that have never sent a byte.
func TestIdleConnections(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, newBudget(t, 16), secure)
			first := s.dial(2)
			if !first.isOpen() {
				t.Fatal("the first connection is closed")
			}
			var others []*testClient
			for i := range 40 {
				others = append(others, s.dial(byte(3+i%10)))
				s.wait("a place", func(now Stats) bool { return now.Anonymous+now.Evicted == int64(i+2) })
			}
			if first.isOpen() {
				t.Error("the oldest connection is still open")
			}
			if last := others[len(others)-1]; !last.isOpen() {
				t.Error("the newest connection is closed")
			}
			if now := s.budget.Stats(); now.Anonymous > 6 || now.Refused > 0 {
				t.Errorf("%+v, want at most 6 without a key", now)
			}
		})
	}
}

// Connections with a good key are not evicted for those without.
func TestAuthenticated(t *testing.T) {
	s := newService(t, newBudget(t, 16), false)
	caller := s.dial(2)
	if caller.ask("/key") != http.StatusOK {
		t.Fatal("no response")
	}
	s.wait("a caller", func(now Stats) bool { return now.Authenticated == 1 && now.Anonymous == 0 })
	for range 40 {
		s.dial(2)
	}
	s.wait("all places are taken", func(now Stats) bool { return now.Evicted == 34 })
	if caller.ask("/key") != http.StatusOK {
		t.Error("the connection with a key was evicted")
	}
	s.wait("it is idle", func(Stats) bool { return s.busy() == 0 })
	// Those with a key make room for one another, unless a request runs.
	var uploads []*testClient
	for range 5 {
		u := s.dial(2)
		if u.ask("/upload") != http.StatusAccepted {
			t.Fatal("an upload gets no response")
		}
		uploads = append(uploads, u)
	}
	newer := s.dial(3)
	if newer.ask("/key") != http.StatusOK {
		t.Error("a caller gets no response")
	}
	if caller.isOpen() {
		t.Error("the idle connection with a key is still open")
	}
	if newer.ask("/upload") != http.StatusAccepted {
		t.Error("a caller gets no response")
	}
	// All six are busy. Another one is answered too, and keeps its place among those without a key.
	if s.dial(4).ask("/key") != http.StatusOK {
		t.Error("a caller gets no response where all places are busy")
	}
	for _, u := range uploads {
		u.finish()
		s.wait("an upload ends", func(now Stats) bool { return now.Requests == 0 })
	}
}

// A connection whose last request had no key is one without.
func TestAnonymousAgain(t *testing.T) {
	s := newService(t, newBudget(t, 16), false)
	c := s.dial(2)
	for _, path := range []string{"/key", "/", "/key", "/key", "/"} {
		if c.ask(path) != http.StatusOK {
			t.Fatal("no response")
		}
		good := int64(strings.Count(path, "key"))
		s.wait("after "+path, func(now Stats) bool { return now.Authenticated == good && now.Anonymous == 1-good })
	}
	_ = c.Close()
	s.wait("the end", func(now Stats) bool { return now.Authenticated == 0 && now.Anonymous == 0 })
}

// Requests of viewers protect their connections. There are fewer of them than connections, so that
// new connections always find a place.
func TestRequests(t *testing.T) {
	s := newService(t, newBudget(t, 16, func(o *Options) { o.PerAddress = 4 }), false)
	viewer := s.dial(2)
	if viewer.ask("/view") != http.StatusAccepted {
		t.Fatal("no response")
	}
	for range 2 {
		if s.dial(2).ask("/view") != http.StatusAccepted {
			t.Fatal("no response")
		}
	}
	if got := s.dial(2).ask("/view"); got != http.StatusTooManyRequests {
		t.Errorf("a fourth request of an address: %d, want 429", got)
	}
	if s.dial(3).ask("/view") != http.StatusAccepted {
		t.Error("another address gets no response")
	}
	if got := s.dial(4).ask("/view"); got != http.StatusServiceUnavailable {
		t.Errorf("a fifth request: %d, want 503", got)
	}
	// Other requests that wait are evicted, after idle connections.
	slow := s.dial(5)
	if slow.ask("/body") != http.StatusAccepted {
		t.Fatal("no response")
	}
	for i := range 20 {
		if got := s.dial(byte(10 + i)).ask("/key"); got != http.StatusOK {
			t.Fatalf("new connection %d: %d", i, got)
		}
	}
	if s.dial(6).ask("/body") != http.StatusAccepted {
		t.Fatal("no response")
	}
	if !s.dial(7).isOpen() {
		t.Error("a new connection finds no place")
	}
	slow.finish()
	if slow.isOpen() {
		t.Error("a request that is not of a viewer kept its connection")
	}
	viewer.finish()
	if got := viewer.ask("/"); got != http.StatusOK {
		t.Errorf("the viewer was evicted: %d", got)
	}
}

// Connections of a trusted proxy are not limited per address.
func TestTrustedProxy(t *testing.T) {
	s := newService(t, newBudget(t, 16, func(o *Options) {
		o.PerAddress, o.TrustedProxies = 1, []netip.Prefix{netip.MustParsePrefix("127.0.0.9/32")}
	}), false)
	var proxy, direct []*testClient
	for i := range 2 {
		proxy, direct = append(proxy, s.dial(9)), append(direct, s.dial(2))
		if !proxy[i].isOpen() || !direct[i].isOpen() {
			t.Fatal("a new connection is closed")
		}
	}
	if !proxy[0].isOpen() {
		t.Error("a connection of the proxy was evicted")
	}
	if direct[0].isOpen() {
		t.Error("the first connection of an address that may have one is still open")
	}
}

// An encoder that has shown its key leaves the budget.
func TestIngest(t *testing.T) {
	b := newBudget(t, 32) // 4 places for encoders, of which one address has 2
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	wrapped := b.Ingest(l)
	dial := func() (theirs, ours net.Conn) {
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = theirs.Close() })
		if ours, err = wrapped.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Close() })
		return theirs, ours
	}
	first, onAir := dial()
	Of(tls.Server(onAir, nil)).Leave()
	second, _ := dial()
	for range 4 {
		dial()
	}
	if _, err := second.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an encoder without a key: %v, want the end", err)
	}
	if _, err := onAir.Write([]byte("x")); err != nil {
		t.Errorf("the encoder on air was evicted: %v", err)
	}
	if _, err := io.ReadFull(first, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if got := b.Stats(); got.Waiting != 2 || got.Evicted != 3 {
		t.Errorf("stats %+v, want 2 that wait and 3 evicted", got)
	}
	place, err := b.Wait(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}, func() {})
	if err != nil || b.Stats().Waiting != 3 {
		t.Errorf("an encoder without a connection: %v, %+v", err, b.Stats())
	}
	place.Leave()
}

// The kernel copies files to a connection: it can be written to as a *net.TCPConn.
func TestSendfile(t *testing.T) {
	b := newBudget(t, 16)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		defer theirs.Close()
		if got, _ := io.ReadAll(theirs); string(got) != "hello" {
			t.Errorf("got %q", got)
		}
	})
	conn, err := b.HTTP(l).Accept()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := conn.(io.ReaderFrom).ReadFrom(file); err != nil {
		t.Error(err)
	}
	_ = conn.Close()
	reading.Wait()
}
