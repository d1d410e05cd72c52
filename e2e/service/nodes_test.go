package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"weir/e2e/harness"
)

// newHook makes a webhook for the events of assets.
func newHook(w *harness.Weir, to *receiver) {
	w.T.Helper()
	w.Must("POST", "/api/webhook", map[string]any{"name": "hook", "url": to.url, "events": []string{"asset.created", "asset.updated"}}, nil)
}

// newAsset makes an asset and with it an event.
func newAsset(w *harness.Weir, name string) {
	w.T.Helper()
	w.Must("POST", "/api/asset/upload/url", map[string]any{"name": name, "url": "https://example.com/" + name}, nil)
}

// TestNodeLost kills a node in the middle of a delivery: another takes it over.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	a, b := harness.TwoNodes(t)
	to := newReceiver(t)
	newHook(a, to)
	to.holdResponses()
	newAsset(a, "taken-over")
	to.until(t, "something arrives", func(_ []arrival, held int) bool { return held == 1 })
	b.Start()
	if n := len(to.all()); n != 1 {
		t.Fatalf("%d arrivals while the first node still sends, want 1", n)
	}
	a.Kill()
	killed := time.Now()
	to.release()
	to.until(t, "the other node takes over", func(arrivals []arrival, _ int) bool { return len(arrivals) >= 2 })
	arrivals := to.all() // the source can't be fetched, which is a further event
	if arrivals[0].event != arrivals[1].event {
		t.Errorf("event %s was sent, then %s", arrivals[0].event, arrivals[1].event)
	}
	t.Logf("taken over %.1f s after the kill", arrivals[1].at.Sub(killed).Seconds())
	b.Stop()
}

// TestNodeSuspended stops a node for so long that another takes over its work, and
// lets it go on: what it still believes to be its own must not touch what the
// other one does.
func TestNodeSuspended(t *testing.T) {
	t.Parallel()
	a, b := harness.TwoNodes(t)
	to := newReceiver(t)
	newHook(a, to)
	st := a.OpenStore()
	asset := seedAssets(t, st, 1)[0]
	one := func(_ []arrival, held int) bool { return held == 1 }
	to.holdResponses()
	a.Must("PATCH", "/api/asset/"+asset, map[string]any{"name": "first"}, nil)
	to.until(t, "something arrives", one)
	b.Start()
	harness.Suspend(t, a.Cmd.Process.Pid)
	harness.Eventually(t, func() error { return stopped(a) })
	to.release() // the response waits for the node to read it
	to.until(t, "the response is sent", func(_ []arrival, held int) bool { return held == 0 })
	to.holdResponses()
	to.until(t, "the other node takes over", one)
	harness.Resume(t, a.Cmd.Process.Pid)
	harness.Eventually(t, func() error {
		if !strings.Contains(a.Log.String(), interrupted) {
			return fmt.Errorf("the node that was stopped does not say what became of its delivery:\n%s", a.Log)
		}
		return nil
	})
	to.release()
	harness.Eventually(t, func() error {
		left, err := st.PendingDeliveries(t.Context())
		if err == nil && left != 0 {
			err = fmt.Errorf("%d deliveries are left, want 0; the nodes say:\n%s\n%s", left, a.Log, b.Log)
		}
		return err
	})
	a.Must("PATCH", "/api/asset/"+asset, map[string]any{"name": "second"}, nil)
	to.until(t, "the next event arrives", func(arrivals []arrival, _ int) bool { return arrivals[len(arrivals)-1].name == "second" })
	// On a machine so busy that the other node could not say for a while that it is alive,
	// it interrupted the delivery too, which was sent once more.
	again := strings.Count(b.Log.String(), interrupted)
	if n := len(to.all()) - 1; n != 2+again {
		t.Errorf("the event arrived %d times, want once from each node and %d times more", n, again)
	}
	a.Stop()
	b.Stop()
}

const interrupted = "delivery interrupted"

// stopped reports whether a process that was told to stop stands still. On a busy machine
// its threads go on until one of them gets to see the signal.
func stopped(w *harness.Weir) error {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", w.Cmd.Process.Pid))
	if len(threads) == 0 {
		return errors.New("the process is gone")
	}
	for _, thread := range threads {
		status, err := os.ReadFile(thread)
		if err != nil || !bytes.Contains(status, []byte("\nState:\tT")) {
			return fmt.Errorf("%s does not say that it is stopped (%v):\n%s", thread, err, status)
		}
	}
	return nil
}

// TestNodesAgree changes things at one node and looks at the other.
func TestNodesAgree(t *testing.T) {
	t.Parallel()
	a, b := harness.TwoNodes(t)
	b.Start()
	agreeOnStream(t, a, b)
	agreeOnKey(t, a, b)
	agreeOnEvents(t, a, b)
	a.Stop()
	b.Stop()
}

func agreeOnStream(t *testing.T, a, b *harness.Weir) {
	t.Helper()
	var stream struct{ ID, Name string }
	a.Must("POST", "/api/stream", map[string]any{"name": "before"}, &stream)
	b.Must("GET", "/api/stream/"+stream.ID, nil, &stream)
	a.Must("PATCH", "/api/stream/"+stream.ID, map[string]any{"name": "after"}, nil)
	shows(t, "a changed stream", func() error {
		b.Must("GET", "/api/stream/"+stream.ID, nil, &stream)
		if stream.Name != "after" {
			return fmt.Errorf("the other node still says %q", stream.Name)
		}
		return nil
	})
}

func agreeOnKey(t *testing.T, a, b *harness.Weir) {
	t.Helper()
	person := logIn(t, a)
	var key struct{ ID, Key string }
	if status := request(t, a.URL, "POST", "/api/api-token", person, `{"name":"short-lived"}`, &key); status != http.StatusCreated {
		t.Fatalf("create a key: %d", status)
	}
	ask := func(w *harness.Weir) int { return request(t, w.URL, "GET", "/api/stream", "Bearer "+key.Key, "", nil) }
	shows(t, "a new key", func() error {
		if sa, sb := ask(a), ask(b); sa != http.StatusOK || sb != http.StatusOK {
			return fmt.Errorf("a new key is answered with %d and, at the other node, %d", sa, sb)
		}
		return nil
	})
	if status := request(t, a.URL, "DELETE", "/api/api-token/"+key.ID, person, "", nil); status != http.StatusNoContent {
		t.Fatalf("revoke the key: %d", status)
	}
	if status := ask(a); status != http.StatusUnauthorized {
		t.Errorf("a revoked key is answered with %d at once", status)
	}
	shows(t, "a revoked key", func() error {
		if status := ask(b); status != http.StatusUnauthorized {
			return fmt.Errorf("the other node answers a revoked key with %d", status)
		}
		return nil
	})
}

func agreeOnEvents(t *testing.T, a, b *harness.Weir) {
	t.Helper()
	there := harness.Listen(t, b, "")
	newAsset(a, "first")
	_, first := created(there, t)
	newAsset(b, "second")
	cursor, second := created(there, t)
	newAsset(a, "third")
	// A client that was with one node can go on with the other.
	_, third := created(harness.Listen(t, a, cursor), t)
	if got := []string{first, second, third}; !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the events tell of %q", got)
	}
}

// shows waits until check finds what was changed elsewhere, and says how long
// that took.
func shows(t *testing.T, what string, check func() error) {
	t.Helper()
	changed := time.Now()
	harness.Eventually(t, check)
	t.Logf("%s shows at the other node after %v", what, time.Since(changed).Round(time.Millisecond))
}

var linkToken = regexp.MustCompile(`token=(\S+)`)

// logIn sets the password of the first account with a one-time link and logs in;
// it returns an Authorization header.
func logIn(t *testing.T, w *harness.Weir) string {
	t.Helper()
	token := linkToken.FindStringSubmatch(w.Output.String())
	if token == nil {
		t.Fatalf("no link to set a password in:\n%s", w.Output)
	}
	person := `"email":"ann@example.com","password":"correct horse battery"`
	if status := request(t, w.URL, "POST", "/api/user/password/reset", "", `{"resetToken":"`+token[1]+`",`+person+`}`, nil); status != http.StatusOK {
		t.Fatalf("set a password: %d", status)
	}
	var in struct{ Token string }
	if status := request(t, w.URL, "POST", "/api/user/token", "", `{`+person+`}`, &in); status != http.StatusCreated {
		t.Fatalf("log in: %d", status)
	}
	return "JWT " + in.Token
}

// request sends a request with an Authorization header of its own.
func request(t *testing.T, base, method, path, authorization, body string, v any) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if v != nil {
		if err := json.NewDecoder(response.Body).Decode(v); err != nil {
			t.Fatalf("%s %s: %d: %v", method, path, response.StatusCode, err)
		}
	}
	return response.StatusCode
}

// created returns the cursor of the next event that tells of a new asset, and the
// name of the asset.
func created(l *harness.Listener, t *testing.T) (cursor, name string) {
	t.Helper()
	e := l.Next(t, "a new asset", func(e harness.Event) bool { return e.Name == "asset.created" })
	var data struct {
		Payload struct {
			Asset struct{ Snapshot struct{ Name string } }
		}
	}
	e.Read(t, &data)
	return e.Cursor, data.Payload.Asset.Snapshot.Name
}
