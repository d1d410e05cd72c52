package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// bodyTimeout is how long a client may take to send the body of a request.
const bodyTimeout = 20 * time.Second

// web is what is served over HTTP, and how far the service is.
type web struct {
	handler http.Handler
	ready   atomic.Bool  // this node is to be sent requests
	begun   atomic.Int64 // requests that began before the drain and have not ended
}

// ServeHTTP counts the request.
func (s *web) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.ready.Load() {
		s.begun.Add(1)
		defer s.begun.Add(-1)
	}
	if r.Body != http.NoBody {
		// For those that no handler wants too: net/http reads on to their end
		// before it takes the next request. Who takes longer sets a limit of its own.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
	}
	s.handler.ServeHTTP(w, r)
}

// run serves until ctx ends, then lets requests finish for as long as a drain may
// take. There is no limit on writing as a whole, because uploads and event streams
// last; handlers set their own.
func (s *web) run(ctx context.Context, cfg *Config, log *slog.Logger, listening func(base string, port int)) error {
	secure, err := tlsConfig(cfg)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return fmt.Errorf("--http: %w", err)
	}
	server := &http.Server{
		Handler: s, TLSConfig: secure, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
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
	listening(localBase(cfg, port, secure != nil), port)
	log.Info("serving", "addr", listener.Addr().String())
	s.ready.Store(true)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	log.Info("draining", "atMost", cfg.Drain)
	s.drain(ctx, server, cfg.Drain)
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// drain lets the requests that have begun end. Connections are taken meanwhile:
// /readyz must be able to say that no more of them should come.
func (s *web) drain(ctx context.Context, server *http.Server, atMax time.Duration) {
	s.ready.Store(false)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), atMax)
	defer cancel()
	for s.begun.Load() > 0 && stop.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := server.Shutdown(stop); err != nil {
		_ = server.Close()
	}
}

// localBase is how a person on this machine reaches the service.
func localBase(cfg *Config, port int, secure bool) string {
	switch {
	case cfg.PublicURL != "":
		return cfg.PublicURL
	case cfg.ACME != "":
		return "https://" + cfg.ACME
	}
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, _, _ := net.SplitHostPort(cfg.HTTP)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return fmt.Sprintf("%s://%s", scheme, net.JoinHostPort(host, fmt.Sprint(port)))
}
