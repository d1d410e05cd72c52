package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Runner{M: m}) }

const secret = "a shared secret"

// fixture is a store with one account, and a Sender that may reach this machine.
type fixture struct {
	*testing.T
	store  *store.Store
	sender *Sender
	user   weir.User
	stream weir.Stream
	log    *lockedBuffer
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func storeOptions() store.Options {
	return store.Options{Secret: bytes.Repeat([]byte{3}, 32), NodeID: "n"}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, storetest.SQLite(t, store.Open, storeOptions()), netip.MustParsePrefix("127.0.0.1/32"))
}

func newFixtureOn(t *testing.T, url string, allow ...netip.Prefix) *fixture {
	t.Helper()
	h := newNode(t, url, storeOptions(), allow...)
	h.user = h.newUser("ann")
	h.stream = h.newStream("first")
	return h
}

// newNode is a node on a database, without an account.
func newNode(t *testing.T, url string, options store.Options, allow ...netip.Prefix) *fixture {
	t.Helper()
	st, err := store.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	h := &fixture{T: t, store: st, log: &lockedBuffer{}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", h.log)
		}
	})
	h.background(func(ctx context.Context) error {
		return st.Run(ctx, store.Retention{Events: time.Hour, Credentials: time.Hour})
	})
	g := guard.New(allow)
	h.sender = New(st, g, "v1.2.3", slog.New(slog.NewTextHandler(h.log, nil)))
	t.Cleanup(h.sender.client.CloseIdleConnections)
	return h
}

// background runs something until stop is called or the test ends.
func (h *fixture) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(h.Context())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			h.Errorf("Run: %v", err)
		}
	})
	h.Cleanup(stop)
	return stop
}

// run sends events until stop is called or the test ends.
func (h *fixture) run() (stop func()) { return h.background(h.sender.Run) }

func (h *fixture) newUser(name string) weir.User {
	h.Helper()
	u := weir.User{ID: weir.NewID(), Email: name + "@example.com", CreatedAt: weir.At(time.Now())}
	h.write(func(tx *store.Tx) error { return tx.CreateUser(h.Context(), &u) })
	return u
}

// as is the fixture with another account.
func (h *fixture) as(user weir.User) *fixture {
	other := *h
	other.user = user
	other.stream = other.newStream("first of " + user.Email)
	return &other
}

func (h *fixture) write(do func(*store.Tx) error) {
	h.Helper()
	if err := h.store.Tx(h.Context(), do); err != nil {
		h.Fatal(err)
	}
}

func (h *fixture) newStream(name string) weir.Stream {
	h.Helper()
	s, err := weir.NewStream{Name: name}.Stream(&weir.Caller{UserID: h.user.ID, ProjectID: h.user.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	return s
}

// hook makes a webhook with a token in its URL, for one stream or for all.
func (h *fixture) hook(url string, of ...weir.Stream) weir.Webhook {
	h.Helper()
	body := weir.WebhookBody{
		Name: "hook", URL: url + "/in?token=planted", Events: []weir.EventName{weir.StreamStarted, weir.StreamIdle}, SharedSecret: secret,
	}
	if len(of) > 0 {
		body.StreamID = of[0].ID
	}
	hook, err := body.Webhook(&weir.Caller{UserID: h.user.ID, ProjectID: h.user.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(h.Context(), &hook) })
	return hook
}

// emit writes an event whose payload has the number.
func (h *fixture) emit(s weir.Stream, n int) weir.Event {
	h.Helper()
	e, err := weir.NewStreamEvent(weir.StreamStarted, s, map[string]int{"n": n}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.Emit(h.Context(), e) })
	return e
}

// deliver sends until so many attempts of a webhook are in its log.
func (h *fixture) deliver(hook weir.Webhook, attempts int) {
	h.Helper()
	defer h.run()()
	wait.Until(h, "the attempts are logged", func() bool { return len(h.logs(hook)) >= attempts })
}

func (h *fixture) pending() int64 {
	h.Helper()
	n, err := h.store.PendingDeliveries(h.Context())
	if err != nil {
		h.Fatal(err)
	}
	return n
}

// logs returns the log of a webhook, oldest first.
func (h *fixture) logs(hook weir.Webhook) []weir.WebhookLog {
	h.Helper()
	page, err := h.store.WebhookLogs(h.Context(), store.Query{
		Where: []store.Filter{{ID: "webhookId", Value: hook.ID}}, Order: "createdAt-false", Limit: store.MaxLimit,
	})
	if err != nil {
		h.Fatal(err)
	}
	return page.Items
}

// status returns how deliveries to a webhook went.
func (h *fixture) status(hook weir.Webhook) weir.WebhookStatus {
	h.Helper()
	now, err := h.store.Webhook(h.Context(), hook.ID)
	if err != nil || now.Status == nil {
		h.Fatalf("status of the webhook: %v, %v", now.Status, err)
	}
	return *now.Status
}

// got is a request that a receiver took.
type got struct {
	method, url string
	header      http.Header
	body        []byte
}

// receiver is a server that records requests and responds as configured.
func receiver(t *testing.T, respond http.HandlerFunc) (url string, requests chan got) {
	t.Helper()
	requests = make(chan got, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("receiver: %v", err)
		}
		requests <- got{r.Method, r.URL.String(), r.Header, body}
		if respond != nil {
			respond(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

// genuine is the check that docs/webhooks.md describes.
func genuine(g got, secret string) bool {
	t, v1, _ := strings.Cut(g.header.Get("Livepeer-Signature"), ",")
	var body struct {
		Timestamp int64 `json:"timestamp"`
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(g.body)
	return json.Unmarshal(g.body, &body) == nil && t == "t="+strconv.FormatInt(body.Timestamp, 10) &&
		v1 == "v1="+hex.EncodeToString(mac.Sum(nil))
}

func number(t *testing.T, g got) (stream string, n int) {
	t.Helper()
	var body struct {
		Stream  struct{ Name string }
		Payload struct{ N int }
	}
	if err := json.Unmarshal(g.body, &body); err != nil {
		t.Fatal(err)
	}
	return body.Stream.Name, body.Payload.N
}

func TestDeliver(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return storetest.SQLite(t, store.Open, storeOptions()) },
		"postgres": func(t *testing.T) string { return storetest.PostgreSQL(t, store.Open, storeOptions()) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newFixtureOn(t, url(t), netip.MustParsePrefix("127.0.0.1/32"))
			address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, strings.Repeat("x", 2000))
			})
			hook := h.hook(address)
			second := h.newStream("second")
			first := h.emit(h.stream, 0)
			for n := 1; n < 5; n++ {
				h.emit(second, n)
				h.emit(h.stream, n)
			}
			h.deliver(hook, 9)

			last := map[string]int{"first": -1, "second": 0}
			for range 9 {
				g := <-requests
				stream, n := number(t, g)
				if n != last[stream]+1 {
					t.Errorf("stream %s: event %d after %d", stream, n, last[stream])
				}
				last[stream] = n
				if !genuine(g, secret) {
					t.Errorf("signature %q does not fit %s", g.header.Get("Livepeer-Signature"), g.body)
				}
				if g.method != "POST" || g.url != "/in?token=planted" || g.header.Get("Content-Type") != "application/json" || g.header.Get("User-Agent") != "weir/v1.2.3" {
					t.Errorf("got %s %s with %v", g.method, g.url, g.header)
				}
			}
			if n := h.pending(); n != 0 {
				t.Errorf("%d deliveries are left", n)
			}
			logs := h.logs(hook)
			if len(logs) != 9 {
				t.Fatalf("%d entries in the log, want 9", len(logs))
			}
			want := weir.WebhookLog{
				WebhookID: hook.ID, UserID: h.user.ID, ProjectID: h.user.DefaultProjectID, EventID: first.ID, Event: weir.StreamStarted, Success: true,
				Request: weir.WebhookRequest{URL: weir.Secret(address + "/in?token=planted"), Method: "POST"},
				Response: weir.WebhookResponse{
					Status: 202, StatusText: "Accepted", Body: base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 1024))),
				},
			}
			entry := logs[slices.IndexFunc(logs, func(l weir.WebhookLog) bool { return l.EventID == first.ID })]
			if entry.ID == "" || entry.Duration <= 0 || entry.Request.Headers["Livepeer-Signature"] == "" || !strings.Contains(entry.Request.Body, first.ID) {
				t.Errorf("incomplete entry: %+v", entry)
			}
			entry.ID, entry.CreatedAt, entry.Duration, entry.Request.Headers, entry.Request.Body = "", 0, 0, nil, ""
			if diff := cmp.Diff(want, entry); diff != "" {
				t.Errorf("entry in the log (-want +got):\n%s", diff)
			}
			if s := h.status(hook); s.LastTriggeredAt == 0 || s.LastFailure != nil {
				t.Errorf("status = %+v", s)
			}
			if got, want := h.sender.Stats(), (Stats{Delivered: 9}); got != want {
				t.Errorf("Stats() = %+v, want %+v", got, want)
			}
		})
	}
}

func TestBody(t *testing.T) {
	stream, err := weir.NewStream{Name: "s"}.Stream(&weir.Caller{UserID: "u", ProjectID: "p"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	e, err := weir.NewStreamEvent(weir.StreamStarted, stream, nil, time.UnixMilli(1_700_000_000_000))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(eventBody(e, "hook-1", time.UnixMilli(1_700_000_000_500)))
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"id":"%s","webhookId":"hook-1","createdAt":1700000000000,"timestamp":1700000000500,"event":"stream.started","stream":%s}`, e.ID, e.Stream)
	if string(text) != want {
		t.Errorf("body = %s\nwant   %s", text, want)
	}
	if strings.Contains(string(text), stream.StreamKey.Reveal()) {
		t.Error("the body has the stream key in it")
	}
}

func TestUnsignedWithoutSecret(t *testing.T) {
	if h := headers("weir/test", &weir.Webhook{}, []byte("{}"), time.Now()); len(h) != 2 {
		t.Errorf("headers without a secret = %v", h)
	}
}

func TestWhichFailuresAreRetried(t *testing.T) {
	h := newFixture(t)
	for _, tt := range []struct {
		status int
		again  bool
	}{
		{200, false},
		{204, false},
		{304, false},
		{400, false},
		{401, false},
		{404, false},
		{410, false},
		{408, true},
		{429, true},
		{500, true},
		{502, true},
		{503, true},
		{599, true},
	} {
		t.Run(strconv.Itoa(tt.status), func(t *testing.T) {
			address, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				if tt.status >= 400 {
					_, _ = io.WriteString(w, "no")
				}
			})
			stream, before := h.newStream("of a case"), h.pending()
			hook := h.hook(address, stream)
			h.emit(stream, 1)
			h.deliver(hook, 1)
			if got := h.pending() > before; got != tt.again {
				t.Errorf("tried again: %v, want %v", got, tt.again)
			}
			entry := h.logs(hook)[0]
			if entry.Success != (tt.status < 300) || entry.Response.Status != tt.status {
				t.Errorf("entry: success %v, status %d", entry.Success, entry.Response.Status)
			}
			failure := h.status(hook).LastFailure
			if (failure == nil) != entry.Success || failure != nil && failure.StatusCode != tt.status {
				t.Errorf("last failure = %+v", failure)
			}
		})
	}
}

// TestAllRetries plays a receiver that never gets better, without the pauses.
func TestAllRetries(t *testing.T) {
	h := newFixture(t)
	h.sender.firstBackoff = 0
	address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	hook := h.hook(address)
	e := h.emit(h.stream, 1)
	h.run()
	wait.Until(t, "no delivery is left", func() bool { return h.pending() == 0 })
	if n := len(h.logs(hook)); n != 34 {
		t.Errorf("%d attempts, want the first and 33 retries", n)
	}
	for range 34 {
		g := <-requests
		var b body
		if err := json.Unmarshal(g.body, &b); err != nil || b.ID != e.ID || b.CreatedAt != e.CreatedAt {
			t.Errorf("body %s is not of event %s", g.body, e.ID)
		}
		if !genuine(g, secret) {
			t.Errorf("attempt at %d is not signed", b.Timestamp)
		}
	}
	if got, want := h.sender.Stats(), (Stats{Failed: 1, Retried: 33}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
	if text := h.log.String(); !strings.Contains(text, "webhook delivery failed for good") || strings.Contains(text, "planted") {
		t.Errorf("log: %s", text)
	}
}

// TestRetryDoesNotDelayOthers shows that what waits for its retry lets later events pass.
func TestRetryDoesNotDelayOthers(t *testing.T) {
	h := newFixture(t)
	address, requests := receiver(t, func(w http.ResponseWriter, r *http.Request) {})
	failing, _ := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	hook := h.hook(failing)
	h.emit(h.stream, 1)
	h.deliver(hook, 1)
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateWebhook(t.Context(), hook.ID, func(w *weir.Webhook) error {
			w.URL, w.SharedSecret = weir.Secret(address), "another secret"
			return nil
		})
		return err
	})
	h.emit(h.stream, 2)
	h.deliver(hook, 2)
	g := <-requests
	if _, n := number(t, g); n != 2 {
		t.Errorf("got event %d, want 2", n)
	}
	// The URL and the secret are those of the moment of sending.
	if !genuine(g, "another secret") {
		t.Error("not signed with the present secret")
	}
	if n := h.pending(); n != 1 {
		t.Errorf("%d deliveries wait, want the first", n)
	}
	// A deleted webhook gets nothing any more.
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateWebhook(t.Context(), hook.ID, func(w *weir.Webhook) error {
			w.Deleted = true
			return nil
		})
		return err
	})
	if n := h.pending(); n != 0 {
		t.Errorf("%d deliveries wait after deletion", n)
	}
}

func TestSuspendedUser(t *testing.T) {
	h := newFixture(t)
	address, requests := receiver(t, nil)
	hook := h.hook(address)
	h.emit(h.stream, 1)
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateUser(t.Context(), h.user.ID, func(u *weir.User) error {
			u.Suspended = true
			return nil
		})
		return err
	})
	h.run()
	wait.Until(t, "no delivery is left", func() bool { return h.pending() == 0 })
	if h.pending() != 0 || len(requests) != 0 || len(h.logs(hook)) != 0 {
		t.Errorf("%d wait, %d sent, %d logged; want none of each", h.pending(), len(requests), len(h.logs(hook)))
	}
}

// A test event is signed and logged like a real one, and an account can't send many.
func TestTest(t *testing.T) {
	h := newFixture(t)
	status := http.StatusTeapot
	address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	hook := h.hook(address)
	send := func() (weir.WebhookLog, error) {
		e, err := hook.SampleEvent("", weir.Base{URL: "https://weir.test"}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return h.sender.Test(t.Context(), hook, e)
	}
	entry, err := send()
	if err != nil {
		t.Fatal(err)
	}
	g := <-requests
	var sent body
	if err := json.Unmarshal(g.body, &sent); err != nil {
		t.Fatal(err)
	}
	if !genuine(g, hook.SharedSecret.Reveal()) || sent.Event != hook.Events[0] || sent.WebhookID != hook.ID || !strings.Contains(string(sent.Payload), `"test":true`) {
		t.Errorf("sent %s, genuine: %v", g.body, genuine(g, hook.SharedSecret.Reveal()))
	}
	if entry.Success || entry.Response.Status != http.StatusTeapot || entry.Request.Body != string(g.body) {
		t.Errorf("entry %+v", entry)
	}
	if logs := h.logs(hook); len(logs) != 1 || logs[0].ID != entry.ID || logs[0].Event != hook.Events[0] {
		t.Errorf("log %+v", logs)
	}
	for range testsAtOnce - 1 {
		if _, err := send(); err != nil {
			t.Fatal(err)
		}
		<-requests
	}
	if _, err := send(); weir.KindOf(err) != weir.Busy {
		t.Errorf("one test too many: %v", err)
	}
}

func TestResend(t *testing.T) {
	h := newFixture(t)
	status := http.StatusNotFound
	address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	hook := h.hook(address)
	e := h.emit(h.stream, 7)
	h.deliver(hook, 1)
	<-requests
	entry := h.logs(hook)[0]

	// The present URL and secret count, and the caller's leaving does not.
	hook.SharedSecret = "another secret"
	hook.URL = weir.Secret(address + "/moved")
	status = http.StatusOK
	ctx, leave := context.WithCancel(t.Context())
	leave()
	again, err := h.sender.Resend(ctx, hook, entry)
	if err != nil {
		t.Fatal(err)
	}
	g := <-requests
	var first, second body
	if err := json.Unmarshal([]byte(entry.Request.Body), &first); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(g.body, &second); err != nil {
		t.Fatal(err)
	}
	if second.Timestamp < first.Timestamp {
		t.Errorf("timestamp went back from %d to %d", first.Timestamp, second.Timestamp)
	}
	first.Timestamp = second.Timestamp
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("body of the second (-want +got):\n%s", diff)
	}
	if g.url != "/moved" || !genuine(g, "another secret") {
		t.Errorf("sent to %s, signed with the present secret: %v", g.url, genuine(g, "another secret"))
	}
	if !again.Success || again.ID == entry.ID || again.EventID != e.ID || again.Event != e.Name || again.Request.Body != string(g.body) {
		t.Errorf("new entry = %+v", again)
	}
	if n := len(h.logs(hook)); n != 2 {
		t.Errorf("%d entries, want 2", n)
	}
}

func TestAsk(t *testing.T) {
	h := newFixture(t)
	status, response := http.StatusForbidden, "no"
	address, requests := receiver(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, response)
	})
	hook := h.hook(address)
	ask := func() (int, string, error) {
		now := time.Now()
		check := fmt.Appendf(nil, `{"accessKey":"viewer's","timestamp":%d}`, now.UnixMilli())
		status, response, err := h.sender.Ask(t.Context(), hook, now, check, []byte(`{"accessKey":"***"}`))
		return status, string(response), err
	}
	if got, text, err := ask(); err != nil || got != 403 || text != "no" {
		t.Errorf("Ask = %d %q, %v", got, text, err)
	}
	if g := <-requests; !strings.Contains(string(g.body), "viewer's") || !genuine(g, secret) {
		t.Errorf("access check = %s with %v", g.body, g.header)
	}
	if s := h.status(hook); s.LastFailure == nil || s.LastFailure.StatusCode != 403 {
		t.Errorf("status = %+v", s)
	}
	// More than the log keeps is read, and no more than that is logged.
	status, response = http.StatusOK, strings.Repeat("y", 5000)
	if got, text, err := ask(); err != nil || got != 200 || text != response {
		t.Errorf("Ask = %d and %d bytes, %v", got, len(text), err)
	}
	response = strings.Repeat("z", maxResponse+1)
	if _, _, err := ask(); weir.KindOf(err) != weir.Upstream || !strings.Contains(err.Error(), "64 KiB") {
		t.Errorf("an endless response gave %v", err)
	}
	logs := h.logs(hook)
	if len(logs) != 3 {
		t.Fatalf("%d entries, want 3", len(logs))
	}
	for _, entry := range logs {
		if entry.Event != weir.PlaybackAccessControl || entry.Request.Body != `{"accessKey":"***"}` || len(entry.Response.Body) > 1368 {
			t.Errorf("entry = %+v", entry)
		}
	}
	if _, err := h.sender.Resend(t.Context(), hook, logs[0]); weir.KindOf(err) != weir.Refused {
		t.Errorf("Resend of an access check: %v, want it refused", err)
	}
}
