package api

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// The log and the metrics say of a client that disconnected that it got nothing.
func TestClientGone(t *testing.T) {
	f := newFixture(t)
	var log bytes.Buffer
	observed := 0
	f.server.Log = slog.New(slog.NewTextHandler(&log, nil))
	f.server.Observe = func(_ context.Context, _ string, status int, _ time.Duration) { observed = status }
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/stream", nil)
	r.Header.Set("Authorization", "Bearer "+f.vars["ann.key"])
	f.server.ServeHTTP(httptest.NewRecorder(), r)
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, " status=499 bytes=0 ") || observed != 499 {
		t.Errorf("status %d, the log has:\n%s", observed, text)
	}
}
