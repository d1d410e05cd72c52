package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"weir/internal/budget"
	"weir/internal/config"
)

// newBudget returns a budget of 64 connections: 24 without a key, of which one address has 12, and 24 with
// one.
func newBudget(t *testing.T) *budget.Budget {
	t.Helper()
	b, err := budget.New(budget.Options{Files: 1000, Connections: 64, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// crowded is the HTTP of a node whose API answers one key, and whose viewers wait for parts.
type crowded struct {
	*testing.T
	budget  *budget.Budget
	address string
}

func newCrowded(t *testing.T) *crowded {
	t.Helper()
	s := &server{cfg: &config.Config{}, budget: newBudget(t)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", healthy)
	mux.Handle("/api/", s.bounded(hasAPIKey, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		budget.Authenticated(r.Context())
	})))
	mux.Handle("/hls/", s.bounded(hasNoKey, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // until the viewer leaves
	})))
	mux.Handle("/webrtc/", s.bounded(hasStreamKey, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: &httpServer{handler: mux}, ConnContext: budget.WithConn, ConnState: budget.ConnState, ReadHeaderTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- web.Serve(s.budget.HTTP(listener)) }()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return &crowded{t, s.budget, listener.Addr().String()}
}

// dial connects from an address of this machine, whose last byte is given.
func (c *crowded) dial(from byte) net.Conn {
	c.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	conn, err := d.DialContext(c.Context(), "tcp", c.address)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

// ask sends a request over a connection and returns the head of the response; nil = the connection is closed.
func ask(conn net.Conn, path, key string) *http.Response {
	_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\n\r\n", path, key)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil
	}
	return resp
}

// status is the status of a response; 0 = there is none.
func status(resp *http.Response) int {
	if resp == nil {
		return 0
	}
	return resp.StatusCode
}

// Idle connections and viewers that wait take all places that they may have, from many addresses. Callers of
// the API and publishers are answered as before.
func TestCrowd(t *testing.T) {
	c := newCrowded(t)
	caller := c.dial(2)
	if got := status(ask(caller, "/api/stream", "good")); got != http.StatusOK {
		t.Fatalf("the API answers %d", got)
	}
	for i := range 200 { // keep-alive connections
		if got := status(ask(c.dial(byte(10+i%20)), "/healthz", "")); got != http.StatusOK {
			t.Fatalf("connection %d: %d", i, got)
		}
	}
	for range 100 {
		c.dial(2) // without a byte
	}
	var refused *http.Response
	for i := range 200 {
		resp := ask(c.dial(byte(40+i%20)), "/hls/x/0/part", "")
		if status(resp) != http.StatusOK {
			refused = resp
			break
		}
	}
	if refused == nil {
		t.Fatal("200 viewers wait at once, where there are 24 connections")
	}
	body, _ := io.ReadAll(refused.Body)
	if refused.StatusCode != http.StatusServiceUnavailable || refused.Header.Get("Retry-After") == "" || !strings.HasPrefix(string(body), `{"errors":["`) {
		t.Errorf("a viewer too many: %d %v %s", refused.StatusCode, refused.Header, body)
	}
	var last *http.Response
	for range 20 { // one address has fewer than all
		last = ask(c.dial(61), "/hls/x/0/part", "")
	}
	if s := status(last); s != http.StatusServiceUnavailable && s != http.StatusTooManyRequests {
		t.Errorf("a viewer too many of one address: %d", s)
	}
	for path, key := range map[string]string{"/api/stream": "good", "/webrtc/1a2b-3c4d-5e6f-7a8b": "", "/healthz": ""} {
		for _, from := range []byte{2, 40, 100} {
			if got := status(ask(c.dial(from), path, key)); got != http.StatusOK {
				t.Errorf("a new connection from %d to %s: %d", from, path, got)
			}
		}
	}
	if got := status(ask(caller, "/api/stream", "good")); got != http.StatusOK {
		t.Errorf("the caller from before: %d", got)
	}
	if now := c.budget.Stats(); now.Anonymous > 24 || now.Requests > 18 || now.Evicted < 200 {
		t.Errorf("%+v", now)
	}
}

// Metrics have places of their own.
func TestOpsInACrowd(t *testing.T) {
	c := newCrowded(t)
	for range 30 {
		c.dial(2)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lines, logged := io.Pipe()
	done := make(chan error)
	go func() {
		done <- runOps(ctx, "127.0.0.1:0", opsHandler(newMetrics(Version{})), c.budget, slog.New(slog.NewTextHandler(logged, nil)))
	}()
	line, err := bufio.NewReader(lines).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "addr=")
	for i := range 40 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := status(ask(conn, "/metrics", "")); got != http.StatusOK {
			t.Fatalf("connection %d: %d", i, got)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
