package service

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"weir/e2e/harness"
	"weir/internal/store/pgtest"
)

// TestDatabaseCrash takes PostgreSQL away under a service, asks the API for something meanwhile,
// and gives it back.
func TestDatabaseCrash(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	w := harness.NewWeir(t)
	w.Database = server.URL()
	ops := harness.FreeAddr(t)
	w.Start("--ops", ops)
	w.Must("POST", "/api/stream", map[string]any{"name": "before"}, nil)
	server.Crash(t)
	create := func() (*http.Response, []byte) {
		return send(w, "POST", "/api/stream", http.Header{"Authorization": {"Bearer " + w.Key}, "Content-Type": {"application/json"}},
			strings.NewReader(`{"name":"meanwhile"}`))
	}
	const want = `{"errors":["the database does not answer; try again in a few seconds"]}`
	response, body := create()
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") != "5" || string(body) != want {
		t.Errorf("without a database: %d, Retry-After %q, %s", response.StatusCode, response.Header.Get("Retry-After"), body)
	}
	server.Start(t)
	harness.Eventually(t, func() error {
		if response, body := create(); response.StatusCode != http.StatusCreated {
			return fmt.Errorf("after the crash: %d %s", response.StatusCode, body)
		}
		return nil
	})
	public := w.URL
	w.URL = "http://" + ops
	_, metrics := page(w, "/metrics")
	for _, want := range []string{"weir_database_connections_max 3\n", "weir_database_connections ", "weir_database_waits_total ", "weir_database_wait_seconds_total "} {
		if !strings.Contains(metrics, "\n"+want) {
			t.Errorf("GET /metrics: without %q", want)
		}
	}
	w.URL = public
	w.Stop()
}
