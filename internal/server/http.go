package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"weir/internal/budget"
	"weir/internal/config"
	"weir/internal/endpoint"
	"weir/internal/ingest"
	"weir/internal/rtc"
)

// bodyTimeout is how long a client may take to send the body of a request.
const bodyTimeout = 20 * time.Second

type httpServer struct {
	handler http.Handler
	ready   atomic.Bool  // this node accepts requests
	begun   atomic.Int64 // requests that began before the drain and have not ended
	reset   atomic.Int64 // connections that were closed because their client reset too many requests
}

func (s *httpServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	noSniffing(w)
	if s.ready.Load() {
		s.begun.Add(1)
		defer s.begun.Add(-1)
	}
	if r.Body != http.NoBody {
		// Also for bodies that no handler reads: net/http reads them to their end before the next request.
		// Handlers that need longer set a deadline of their own.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	countReset(w, r, s.handler)
}

// noSniffing tells browsers to trust the content type of a response.
func noSniffing(w http.ResponseWriter) { w.Header().Set("X-Content-Type-Options", "nosniff") }

// bounded answers requests of clients without a key while there are not too many at once. They may take
// long: players wait for parts, and read slowly. Requests with a key pass, whether it is good or
// not: a wrong one is answered at once.
func (s *server) bounded(hasKey func(*http.Request) bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hasKey(r) {
			next.ServeHTTP(w, r)
			return
		}
		done, err := s.budget.Request(r.Context(), endpoint.ClientAddr(r, s.cfg.TrustedProxies))
		if err != nil {
			refuse(w, err)
			return
		}
		defer done()
		next.ServeHTTP(w, r)
	})
}

func hasNoKey(*http.Request) bool { return false }

func hasAPIKey(r *http.Request) bool { return r.Header.Get("Authorization") != "" }

func hasStreamKey(r *http.Request) bool {
	id, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, rtc.EndpointPath), "/")
	return ingest.IsStreamKey(id)
}

// refuse answers with an error of the budget.
func refuse(w http.ResponseWriter, err error) {
	endpoint.CORS{Origin: "*", Expose: "Retry-After"}.Allow(w.Header()) // for players on other sites
	f := endpoint.FailureOf(err, "Internal server error")
	f.Caching = endpoint.Never
	if f.Status == http.StatusServiceUnavailable { // of all clients, not of one address
		f.Caching = endpoint.For(time.Second)
	}
	f.Write(w)
}

// listens reports whether this node serves HTTP: for viewers and callers, or only for other nodes that
// request its streams.
func (s *server) listens() bool {
	return s.cfg.Runs(config.API) || s.cfg.Runs(config.Live) && s.cfg.HTTP != "" && s.cfg.NodeURL != ""
}

// runHTTP serves until ctx ends, and then waits for requests until the drain timeout. There
// is no timeout for writing, because uploads and event streams are long; handlers set their own.
func (s *server) runHTTP(ctx context.Context) error {
	secure, err := TLSConfig(s.cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	listener = s.budget.HTTP(listener)
	server := &http.Server{
		Handler: s.http, TLSConfig: secure, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return withResets(budget.WithConn(ctx, c), c, &s.http.reset)
		},
		ConnState: budget.ConnState,
	}
	done := make(chan error, 1)
	go func() {
		if secure != nil {
			done <- server.ServeTLS(listener, "", "")
		} else {
			done <- server.Serve(listener)
		}
	}()
	port := listener.Addr().(*net.TCPAddr).Port
	s.announce(ctx, port)
	if noted, err := noteAddresses(s.cfg, port); err != nil { // such as on a full disk
		s.log.Warn("commands need the addresses of this node among their settings", "err", err)
	} else {
		defer func() { _ = noted.Close() }()
	}
	if s.cfg.Runs(config.API) {
		s.greet(s.cfg.LocalURL(port))
	}
	s.log.Info("serving", "addr", listener.Addr().String())
	s.http.ready.Store(true)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	s.log.Info("draining", "atMost", s.cfg.Drain)
	s.http.drain(ctx, server, s.cfg.Drain)
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// drain waits for the end of requests that have begun. The listener still accepts connections
// meanwhile: /readyz must answer that this node accepts no more requests.
func (s *httpServer) drain(ctx context.Context, server *http.Server, timeout time.Duration) {
	s.ready.Store(false)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	for s.begun.Load() > 0 && stop.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close()
	}
}
