package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// puller is a node whose sources play or fail, as their names say.
type puller struct {
	f       *fixture
	claimed []string // what was pulled, in order
	mu      sync.Mutex
}

func newPuller(t *testing.T, f *fixture) *puller {
	p := &puller{f: f}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		changes, stop := f.store.Watch(store.TopicPull)
		defer stop()
		for {
			claimed, stream, ok, err := f.store.ClaimPull(ctx, time.Now())
			if ok && err == nil {
				p.pull(ctx, t, claimed, stream)
				continue
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return p
}

func (p *puller) pull(ctx context.Context, t *testing.T, claimed store.Pulling, stream weir.Stream) {
	p.mu.Lock()
	p.claimed = append(p.claimed, stream.Pull.Source)
	p.mu.Unlock()
	beat := store.PullBeat{StreamID: stream.ID, Claim: claimed.Claim}
	var err error
	if strings.HasSuffix(stream.Pull.Source, "bad") {
		err = p.f.store.PullFailed(ctx, beat, "the pull source failed: example.com answers with status 404", 0, time.Now())
	} else {
		err = p.f.store.PullPlays(ctx, beat)
	}
	if err != nil {
		t.Errorf("pull: %v", err)
	}
}

// ask sends a request of Ann's and checks its response against openapi.yaml.
func (p *puller) ask(t *testing.T, method, path, body string) (int, streamResponse, string) {
	t.Helper()
	r := httptest.NewRequest(method, "http://weir.test/api"+path, strings.NewReader(body))
	r.Header.Set("Authorization", p.f.credential(""))
	w := httptest.NewRecorder()
	p.f.server.ServeHTTP(w, r)
	p.f.check(t, 0, r, w)
	var s streamResponse
	if w.Code < 300 && w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
	}
	return w.Code, s, w.Body.String()
}

func (p *puller) wanted(t *testing.T, id string) bool {
	t.Helper()
	now, err := p.f.store.PullOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return now.Wanted
}

// TestPull wants streams to be pulled in all ways that there are.
func TestPull(t *testing.T) {
	t.Parallel()
	p := newPuller(t, newFixture(t))
	const good = `{"name": "one", "pull": {"source": "https://example.com/good"}}`
	status, made, text := p.ask(t, "PUT", "/stream/pull", good)
	if status != http.StatusCreated || made.Name != "one" || !p.wanted(t, made.ID) {
		t.Fatalf("put: %d %s", status, text)
	}
	// The same again is the same stream, replaced, and is still pulled.
	status, same, text := p.ask(t, "PUT", "/stream/pull", `{"name": "two", "creatorId": "c", "profiles": [], "pull": {"source": "https://example.com/good"}}`)
	if status != http.StatusOK || same.ID != made.ID || same.Name != "two" || len(same.Profiles) != 0 || same.StreamKey != made.StreamKey {
		t.Errorf("put again: %d %s", status, text)
	}
	// Found by its creator it gets another source, which is pulled instead.
	status, other, text := p.ask(t, "PUT", "/stream/pull?key=creatorId", `{"name": "three", "creatorId": "c", "pull": {"source": "https://example.com/other"}}`)
	if status != http.StatusOK || other.ID != made.ID || other.Pull.Source != "https://example.com/other" {
		t.Errorf("put with another source: %d %s", status, text)
	}
	p.mu.Lock()
	got := strings.Join(p.claimed, " ")
	p.mu.Unlock()
	if got != "https://example.com/good https://example.com/other" {
		t.Errorf("pulled: %s", got)
	}
	if status, _, text := p.ask(t, "POST", "/stream/"+made.ID+"/start-pull", ""); status != http.StatusNoContent {
		t.Errorf("start of what is pulled: %d %s", status, text)
	}

	// The owner ends it, and starts it again.
	if status, _, text := p.ask(t, "DELETE", "/stream/"+made.ID+"/terminate", ""); status != http.StatusNoContent || p.wanted(t, made.ID) {
		t.Errorf("terminate: %d %s", status, text)
	}
	if status, _, text := p.ask(t, "POST", "/stream/"+made.ID+"/start-pull", ""); status != http.StatusNoContent || !p.wanted(t, made.ID) {
		t.Errorf("start: %d %s", status, text)
	}
	if status, _, text := p.ask(t, "PATCH", "/stream/"+made.ID, `{"suspended": true}`); status != http.StatusNoContent || p.wanted(t, made.ID) {
		t.Errorf("suspend: %d %s", status, text)
	}
	status, back, text := p.ask(t, "PUT", "/stream/pull", `{"name": "four", "pull": {"source": "https://example.com/other"}}`)
	if status != http.StatusOK || back.Suspended || back.ID != made.ID || !p.wanted(t, made.ID) {
		t.Errorf("put of a suspended stream: %d %s", status, text)
	}

	// autoStartPull finds it, or makes one.
	status, found, text := p.ask(t, "POST", "/stream?autoStartPull=true", `{"name": "five", "pull": {"source": "https://example.com/other"}}`)
	if status != http.StatusOK || found.ID != made.ID || found.Name != "four" {
		t.Errorf("autoStartPull: %d %s", status, text)
	}
	if status, _, text := p.ask(t, "POST", "/stream?autoStartPull=true", `{"name": "five", "pull": {"source": "https://example.com/five"}}`); status != http.StatusCreated {
		t.Errorf("autoStartPull of another source: %d %s", status, text)
	}
}

// TestPullFails pulls a source that fails: the caller gets the reason, and the pull ends.
func TestPullFails(t *testing.T) {
	t.Parallel()
	p := newPuller(t, newFixture(t))
	const body = `{"name": "one", "pull": {"source": "https://example.com/bad"}}`
	status, made, text := p.ask(t, "POST", "/stream", body)
	if status != http.StatusCreated {
		t.Fatalf("create: %d %s", status, text)
	}
	for _, request := range [][3]string{
		{"POST", "/stream/" + made.ID + "/start-pull", ""},
		{"PUT", "/stream/pull", body},
		{"POST", "/stream?autoStartPull=true", body},
	} {
		status, _, text := p.ask(t, request[0], request[1], request[2])
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, "example.com answers with status 404") || p.wanted(t, made.ID) {
			t.Errorf("%s %s: %d %s, wanted %v", request[0], request[1], status, text, p.wanted(t, made.ID))
		}
	}
	if _, s, _ := p.ask(t, "GET", "/stream/"+made.ID, ""); len(s.Issues) > 0 || s.IsHealthy != nil {
		t.Errorf("a stream that is not pulled has issues: %v", s.Issues)
	}
}

// TestPullAtOnce has many ask for the same source at the same time: there is one stream.
func TestPullAtOnce(t *testing.T) {
	t.Parallel()
	p := newPuller(t, newFixture(t))
	var asking sync.WaitGroup
	for range 5 {
		asking.Go(func() {
			if status, _, text := p.ask(t, "PUT", "/stream/pull", `{"name": "one", "pull": {"source": "https://example.com/good"}}`); status > 201 {
				t.Errorf("put: %d %s", status, text)
			}
		})
	}
	asking.Wait()
	page, err := p.f.store.Streams(t.Context(), store.Query{Where: []store.Filter{{ID: "pull.source", Value: "https://example.com/good"}}})
	if err != nil || len(page.Items) != 1 {
		t.Errorf("%d streams, want one, %v", len(page.Items), err)
	}
}
