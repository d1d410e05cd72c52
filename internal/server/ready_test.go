package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/account"
	"weir/internal/config"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// A node is ready for viewers and encoders whatever its database does, and for callers of the API only
// while that can be read and written.
func TestReadiness(t *testing.T) {
	o := store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: "here"}
	st, err := store.Open(t.Context(), storetest.SQLite(t, store.Open, o), o)
	if err != nil {
		t.Fatal(err)
	}
	free := live.Space{Free: 100, Keep: 100}
	hub, err := live.New(t.Context(), live.Options{
		Store: st, Dir: t.TempDir(), Node: "here", SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: slog.New(slog.DiscardHandler),
		Space: func() (live.Space, error) { return free, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{store: st, hub: hub, http: &httpServer{}}
	ready := http.HandlerFunc(s.readiness)
	want := func(of string, status int, body string) {
		t.Helper()
		if gotStatus, got := get(t, ready, "/readyz"+of); gotStatus != status || got != body {
			t.Errorf("/readyz%s: %d %s, want %d %s", of, gotStatus, got, status, body)
		}
	}
	const ok, viewers, encoders, callers = `{"ok":true}`, "?for=viewers", "?for=encoders", "?for=api"
	all := []string{"", viewers, encoders, callers}
	for _, of := range all {
		want(of, 503, `{"ok":false,"why":"starting or draining"}`)
	}
	want("?for=nothing", 400, `{"ok":false,"why":"for must be viewers, encoders or api"}`)
	s.http.ready.Store(true)
	for _, of := range all {
		want(of, 200, ok)
	}
	for err, body := range map[error]string{
		weir.Errorf(weir.Full, "full"): `{"ok":false,"why":"the database can't be written: its disk is full"}`,
		errors.New("locked"):           `{"ok":false,"why":"the database can't be written"}`,
	} {
		s.written.err = err // as if the last try had failed
		want(callers, 503, body)
		want("", 200, ok)
	}
	run, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	free.Free = 70
	go func() { ended <- hub.Run(run) }()
	wait.Until(t, "the full disk is noticed", func() bool { status, _ := get(t, ready, "/readyz"+encoders); return status != 200 })
	want(encoders, 503, `{"ok":false,"why":"the disk is too full for new encoders"}`)
	want(viewers, 200, ok)
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	st.Close()
	want(callers, 503, `{"ok":false,"why":"the database does not answer"}`)
	want(viewers, 200, ok)
	s.hub = nil
	want(encoders, 503, `{"ok":false,"why":"this node takes no encoders: it does not run live"}`)
}

// Anybody may ask whether weir is ready, and must not make it write for that.
func TestWriteCheckIsRemembered(t *testing.T) {
	var c writeCheck
	writes := 0
	for range 10 {
		if err := c.check(t.Context(), func(context.Context) error { writes++; return errors.New("no") }); err == nil {
			t.Error("an error is forgotten")
		}
	}
	if writes != 1 {
		t.Errorf("10 requests write %d times", writes)
	}
	c.at = c.at.Add(-writeEvery)
	gone, cancel := context.WithCancel(t.Context())
	cancel() // the client does not wait; others do
	if err := c.check(gone, func(ctx context.Context) error { writes++; return ctx.Err() }); err != nil || writes != 2 {
		t.Errorf("later: %v after %d writes", err, writes)
	}
}

// No response lets a browser guess its type, whoever makes it.
func TestNoSniffing(t *testing.T) {
	here := &httpServer{handler: http.NewServeMux()}
	for name, handler := range map[string]http.Handler{"service": here, "operations": opsHandler(newMetrics(Version{}))} {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/nowhere", nil))
		if got := recorder.Header().Get("X-Content-Type-Options"); recorder.Code != http.StatusNotFound || got != "nosniff" {
			t.Errorf("%s: %d with %q", name, recorder.Code, got)
		}
	}
}

// The first start prints the key that it has made, and never one of the settings.
func TestGreetingHasNoKeyOfTheSettings(t *testing.T) {
	for chosen, want := range map[weir.Secret]bool{"": true, "chosen-by-the-operator": false} {
		var said bytes.Buffer
		s := &server{o: Options{Greeting: &said}, cfg: &config.Config{APIKey: chosen}, firstStart: true, first: account.First{Key: "the-key-of-the-start", LinkToken: "link"}}
		if chosen != "" {
			s.first.Key = chosen
		}
		s.greet("http://weir.test")
		if got := bytes.Contains(said.Bytes(), []byte(s.first.Key.Reveal())); got != want || !bytes.Contains(said.Bytes(), []byte("token=link")) {
			t.Errorf("with the key %q in the settings it says:\n%s", chosen.Reveal(), said.String())
		}
	}
}

// A start prints where encoders send to.
func TestGreetingHasAddressesOfEncoders(t *testing.T) {
	var said bytes.Buffer
	cfg := &config.Config{Parts: []string{config.API, config.Live}, RTMP: ":1935", SRT: ":8890", WebRTC: ":8189"}
	(&server{o: Options{Greeting: &said}, cfg: cfg}).greet("http://weir.test")
	want := `
  Send live streams to one of these:
  RTMP          rtmp://weir.test/live/STREAM-KEY
  SRT           srt://weir.test:8890?streamid=STREAM-KEY
  WHIP          http://weir.test/webrtc/STREAM-KEY
  A new stream:  weir stream create NAME
`
	if !strings.Contains(said.String(), want) {
		t.Errorf("it says:\n%s\nwant in it:\n%s", said.String(), want)
	}
	said.Reset()
	cfg.Parts = []string{config.API}
	if (&server{o: Options{Greeting: &said}, cfg: cfg}).greet("http://weir.test"); strings.Contains(said.String(), "rtmp:") {
		t.Errorf("a node without encoders says:\n%s", said.String())
	}
}
