package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"weir/internal/budget"
)

// TestResets: a client that takes responses may reset as many requests as it likes, and one that only
// resets them loses its connection.
func TestResets(t *testing.T) {
	t.Parallel()
	begun, ended, gone, closed := make(chan struct{}), make(chan struct{}), make(chan string, 10), &atomic.Int64{}
	mux := http.NewServeMux()
	mux.HandleFunc("/wait", func(w http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
		_, _ = io.WriteString(w, "too late")
	})
	mux.HandleFunc("/begin", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "the beginning")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/now", func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })
	counted := &httpServer{handler: mux}
	web := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		counted.ServeHTTP(w, r)
		if r.URL.Path != "/now" {
			ended <- struct{}{}
		}
	}))
	web.EnableHTTP2 = true
	web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	web.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return withResets(budget.WithConn(ctx, c), c, closed)
	}
	web.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			gone <- c.RemoteAddr().String()
		}
	}
	web.StartTLS()
	defer web.Close()
	client := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: web.Client().Transport.(*http.Transport).TLSClientConfig.Clone(),
	}}
	defer client.CloseIdleConnections()
	get := func(ctx context.Context, path string) (string, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, web.URL+path, nil)
		if err != nil {
			return "", err
		}
		response, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		if response.ProtoMajor != 2 {
			t.Fatal(response.Proto)
		}
		if path == "/begin" {
			_, err = io.ReadFull(response.Body, make([]byte, 5))
			return "", err
		}
		text, err := io.ReadAll(response.Body)
		return string(text), err
	}
	reset := func() {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := get(ctx, "/wait")
			done <- err
		}()
		<-begun
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		<-ended
	}
	first, err := get(t.Context(), "/now")
	if err != nil {
		t.Fatal(err)
	}
	same := func() bool {
		t.Helper()
		from, err := get(t.Context(), "/now")
		if err != nil {
			t.Fatal(err)
		}
		return from == first
	}
	for i := range 2 * maxResets {
		if reset(); !same() {
			t.Fatalf("a client that took %d responses lost its connection", i)
		}
	}
	// What was begun is a response, also if the client does not want the rest.
	for range 2 * maxResets {
		if _, err := get(t.Context(), "/begin"); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
	if !same() || closed.Load() != 0 {
		t.Fatal("a client that left downloads lost its connection")
	}
	for i := range maxResets {
		if closed.Load() != 0 {
			t.Fatalf("the connection was closed after %d resets", i)
		}
		reset()
	}
	if closed.Load() != 1 {
		t.Fatalf("after %d resets without a response the client has its connection", maxResets)
	}
	if address := <-gone; address != first {
		t.Errorf("the connection from %s was closed, want that from %s", address, first)
	}
}
