package store

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(pgtest.Runner{M: m})
}

var testSecret = bytes.Repeat([]byte{7}, 32)

// each runs a test on both engines.
func each(t *testing.T, test func(t *testing.T, st *Store)) {
	t.Helper()
	eachEngine(t, func(t *testing.T, url string) { test(t, open(t, url, "node-a")) })
}

// engines are the kinds of databases; url makes one.
var engines = []struct {
	name string
	url  func(testing.TB) string
}{
	{"sqlite", func(t testing.TB) string { return storetest.SQLite(t, Open, Options{Secret: testSecret}) }},
	{"postgres", func(t testing.TB) string { return storetest.PostgreSQL(t, Open, Options{Secret: testSecret}) }},
}

// eachEngine runs a test on a database of each engine, in parallel with others: many of them wait
// for timers.
func eachEngine(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Parallel()
	for _, engine := range engines {
		t.Run(engine.name, func(t *testing.T) {
			t.Parallel()
			test(t, engine.url(t))
		})
	}
}

func open(t *testing.T, url, node string) *Store {
	t.Helper()
	st, err := Open(t.Context(), url, Options{Secret: testSecret, NodeID: node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// run runs the store's background work until the test ends.
func run(t *testing.T, st *Store) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- st.Run(ctx, Retention{Events: time.Hour, Credentials: time.Hour}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

func newStream(t testing.TB, name string) weir.Stream {
	t.Helper()
	s, err := weir.NewStream{Name: name}.Stream(&weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestQuiet checks that errors of libraries, which retry, are logged as warnings, and what is less
// not at all.
func TestQuiet(t *testing.T) {
	var out strings.Builder
	log := quiet(slog.New(slog.NewJSONHandler(&out, nil))).With("part", "library")
	log.Info("it works")
	log.Error("it does not work")
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `"level":"WARN","msg":"it does not work","part":"library"`) {
		t.Errorf("logged %s", got)
	}
}
