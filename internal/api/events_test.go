package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// emit writes an event of a project and returns its id.
func (f *fixture) emit(t *testing.T, user string, name weir.EventName) string {
	t.Helper()
	ctx := t.Context()
	e := weir.Event{
		ID: weir.NewID(), CreatedAt: weir.At(time.Now()), Name: name, UserID: f.vars[user+".id"], ProjectID: f.vars[user+".project"],
		Resource: "asset/1", Payload: []byte(`{"asset":{"id":"1"}}`),
	}
	if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.Emit(ctx, e) }); err != nil {
		t.Fatal(err)
	}
	return e.ID
}

// listener is a client of GET /api/events.
type listener struct {
	*testing.T
	lines *bufio.Reader
	body  io.Closer
	start string // cursor
}

// listen connects; when it returns, the stream has started.
func (f *fixture) listen(t *testing.T, base, as, query string, header ...string) *listener {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", base+"/api/events"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", f.credential(as))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("events: %d %s %s", resp.StatusCode, resp.Header, body)
	}
	return &listener{t, bufio.NewReader(resp.Body), resp.Body, resp.Header.Get("Last-Event-ID")}
}

// next returns the members of the next event.
func (l *listener) next() (id, name, data string) {
	l.Helper()
	for {
		line, err := l.lines.ReadString('\n')
		if err != nil {
			l.Fatalf("next event: %v", err)
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if id != "" {
				return id, name, data
			}
		}
	}
}

// want reads events and compares their ids in data.
func (l *listener) want(ids ...string) (cursor string) {
	l.Helper()
	for _, want := range ids {
		var data string
		if cursor, _, data = l.next(); !strings.HasPrefix(data, `{"id":"`+want+`"`) {
			l.Errorf("got %s, want event %s", data, want)
		}
	}
	return cursor
}

// over waits until the server ends the stream.
func (l *listener) over() {
	l.Helper()
	if rest, err := io.ReadAll(l.lines); err != nil {
		l.Errorf("stream did not end cleanly: %q, %v", rest, err)
	}
}

// serve serves the API; left is sent to after every response.
func (f *fixture) serve(t *testing.T) (base string, left chan struct{}) {
	t.Helper()
	left = make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { left <- struct{}{} }()
		f.server.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return server.URL, left
}

// TestStreamEventsStored reads the events of a stream page by page, the latest first.
func TestStreamEventsStored(t *testing.T) {
	t.Parallel()
	f, ctx := newFixture(t), t.Context()
	base, _ := f.serve(t)
	stream, err := f.store.Stream(ctx, f.vars["stream"])
	if err != nil {
		t.Fatal(err)
	}
	other := stream
	other.ID = weir.NewID()
	var want []string
	for i, of := range []weir.Stream{stream, other, stream, stream} {
		e, err := weir.NewStreamEvent(weir.StreamStarted, of, nil, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.Emit(ctx, e) }); err != nil {
			t.Fatal(err)
		}
		if i != 1 {
			want = append([]string{e.ID}, want...)
		}
	}
	f.emit(t, "ann", weir.AssetCreated)
	read := func(address string) (ids []string, next string) {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", f.credential("ann"))
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		var events []weir.Event
		if err := json.NewDecoder(response.Body).Decode(&events); err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %v", address, response.StatusCode, err)
		}
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		if link := response.Header.Get("Link"); link != "" {
			_, query, _ := strings.Cut(link, "?")
			query, _, _ = strings.Cut(query, ">")
			next = base + r.URL.Path + "?" + query
		}
		return ids, next
	}
	address := base + "/api/stream/" + stream.ID + "/events"
	all, next := read(address)
	if len(all) < 3 || next != "" || !slices.Equal(all[:3], want) {
		t.Errorf("the events are %q, want %q first; the next page is %q", all, want, next)
	}
	var paged []string
	for page := address + "?limit=2"; page != ""; {
		var ids []string
		if ids, page = read(page); len(ids) > 2 {
			t.Errorf("a page has %d events", len(ids))
		}
		paged = append(paged, ids...)
	}
	if !slices.Equal(paged, all) {
		t.Errorf("page by page they are %q, want %q", paged, all)
	}
}

func TestEventStream(t *testing.T) {
	f := newFixture(t)
	t.Run("events", func(t *testing.T) { testEvents(t, f) })
	t.Run("pruned", func(t *testing.T) { testPrunedEvents(t, f) })
	t.Run("too many", func(t *testing.T) { testTooManyStreams(t, f) })
	t.Run("dead client", func(t *testing.T) { testDeadClient(t, f) })
	t.Run("ends", func(t *testing.T) { testStreamEnds(t, f) })
}

func testEvents(t *testing.T, f *fixture) {
	base, _ := f.serve(t)
	f.emit(t, "ann", weir.AssetCreated) // before anybody listened

	l := f.listen(t, base, "ann", "")
	first := f.emit(t, "ann", weir.AssetCreated)
	f.emit(t, "bob", weir.AssetCreated) // not ann's
	second := f.emit(t, "ann", weir.AssetReadyEvent)
	cursor, name, data := l.next()
	if name != "asset.created" || !strings.HasPrefix(data, `{"id":"`+first+`","createdAt":1`) || !strings.HasSuffix(data, `,"event":"asset.created","payload":{"asset":{"id":"1"}}}`) {
		t.Errorf("first event: %s %s", name, data)
	}
	l.want(second)

	// A second client continues where the first began, or after its first event, by either way; the header takes
	// precedence.
	f.listen(t, base, "ann", "?cursor="+l.start).want(first, second)
	f.listen(t, base, "ann", "?cursor="+cursor).want(second)
	f.listen(t, base, "ann", "", "Last-Event-ID", cursor).want(second)
	f.listen(t, base, "ann", "?cursor=0", "Last-Event-ID", cursor).want(second)

	// More than are read at once.
	ids := []string{}
	for range 2*eventsAtOnce + 1 {
		ids = append(ids, f.emit(t, "ann", weir.AssetUpdated))
	}
	last := l.want(ids...)
	f.listen(t, base, "ann", "?cursor="+cursor).want(append([]string{second}, ids...)...)
	n, err := strconv.Atoi(last)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask(t, "ann", "GET", fmt.Sprintf("/api/events?cursor=%d", n+1)); status != http.StatusGone {
		t.Errorf("cursor ahead of everything: %d %s", status, body)
	}
}

func testStreamEnds(t *testing.T, f *fixture) {
	change := func(t *testing.T, f *fixture, do func(ctx context.Context, tx *store.Tx) error) {
		t.Helper()
		if err := f.store.Tx(t.Context(), func(tx *store.Tx) error { return do(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
	}
	stopping := make(chan struct{})
	f.server.Stopping = stopping
	base, _ := f.serve(t)
	token := func(name string) string {
		caller, err := f.store.CallerByKey(t.Context(), weir.Secret(f.vars[name+".key"]))
		if err != nil {
			t.Fatal(err)
		}
		return caller.TokenID
	}

	revoked, suspended, stays := f.listen(t, base, "ann", ""), f.listen(t, base, "bob-jwt", ""), f.listen(t, base, "root-jwt", "")
	change(t, f, func(ctx context.Context, tx *store.Tx) error { return tx.DeleteToken(ctx, token("ann")) })
	f.emit(t, "ann", weir.AssetCreated)
	if rest, err := io.ReadAll(revoked.lines); err != nil || len(rest) != 0 {
		t.Errorf("after its key was revoked the stream had %q, %v", rest, err)
	}
	change(t, f, func(ctx context.Context, tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, f.vars["bob.id"], func(u *weir.User) error {
			u.Suspended = true
			return nil
		})
		return err
	})
	suspended.over()
	id := f.emit(t, "root", weir.AssetCreated)
	stays.want(id)
	close(stopping)
	stays.over()
}

func testPrunedEvents(t *testing.T, f *fixture) {
	last, _, err := f.store.EventBounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.store.Run(ctx, store.Retention{Events: -time.Hour, Credentials: time.Hour}) }()
	for deleted := int64(0); deleted < last && err == nil; {
		_, deleted, err = f.store.EventBounds(ctx)
	}
	stop()
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask(t, "ann", "GET", fmt.Sprintf("/api/events?cursor=%d", last-1)); status != http.StatusGone {
		t.Errorf("cursor before what was deleted: %d %s", status, body)
	}
	if status, body := f.ask(t, "ann", "HEAD", fmt.Sprintf("/api/events?cursor=%d", last)); status != http.StatusOK {
		t.Errorf("cursor at the last event: %d %s", status, body)
	}
}

func testTooManyStreams(t *testing.T, f *fixture) {
	base, left := f.serve(t)
	var streams []*listener
	for range maxEventStreams {
		streams = append(streams, f.listen(t, base, "ann", ""))
	}
	if status, body := f.ask(t, "ann", "GET", "/api/events"); status != http.StatusTooManyRequests {
		t.Errorf("one more: %d %s", status, body)
	}
	f.listen(t, base, "bob", "") // those of another key do not count
	// When one closes, another can open.
	_ = streams[0].body.Close()
	<-left
	f.listen(t, base, "ann", "")
}

// TestEventStreamKeepsAlive lets the time pass without anything happening.
func TestEventStreamKeepsAlive(t *testing.T) {
	newFixture(t) // the first one logs in, which should not be in the year 2000
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ctx, leave := context.WithCancel(t.Context())
		r := httptest.NewRequestWithContext(ctx, "GET", "http://weir.test/api/events", nil)
		r.Header.Set("Authorization", f.credential("ann"))
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.server.ServeHTTP(w, r)
		}()
		time.Sleep(time.Minute + time.Second)
		leave()
		<-done
		if got, want := w.Body.String(), strings.Repeat(": nothing new\n\n", 4); got != want {
			t.Errorf("in a minute came %q, want %q", got, want)
		}
	})
}

// stuckWriter is a client that does not read any more.
type stuckWriter struct {
	http.ResponseWriter
	deadlines int
}

func (w *stuckWriter) SetWriteDeadline(t time.Time) error {
	if !t.IsZero() {
		w.deadlines++
	}
	return nil
}
func (w *stuckWriter) FlushError() error         { return nil }
func (w *stuckWriter) Write([]byte) (int, error) { return 0, context.DeadlineExceeded }

// testDeadClient shows that every write has a deadline, and that missing it ends
// the stream and is no error.
func testDeadClient(t *testing.T, f *fixture) {
	last, _, err := f.store.EventBounds(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.emit(t, "ann", weir.AssetCreated)
	r := httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("http://weir.test/api/events?cursor=%d", last), nil)
	r.Header.Set("Authorization", f.credential("ann"))
	w := &stuckWriter{ResponseWriter: httptest.NewRecorder()}
	caller, err := f.store.CallerByKey(t.Context(), weir.Secret(f.vars["ann.key"]))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.server.streamEvents(w, &request{Request: r, caller: &caller}); err != nil {
		t.Errorf("streamEvents: %v", err)
	}
	if w.deadlines < 2 {
		t.Errorf("%d deadlines, want one for each write", w.deadlines)
	}
}

func FuzzEventCursor(f *testing.F) {
	for _, seed := range []string{"", "0", "42", "-1", "+1", "007", "9223372036854775807", "9223372036854775808", "1e3", "٣", "0x10", "1_000"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := parseEventCursor(text)
		if err != nil {
			if weir.KindOf(err) != weir.Refused {
				t.Errorf("parseEventCursor(%q): %v", text, err)
			}
			return
		}
		if n < 0 || eventCursor(&weir.Event{Seq: n}) != text {
			t.Errorf("parseEventCursor(%q) = %d, which is written %q", text, n, eventCursor(&weir.Event{Seq: n}))
		}
	})
}
