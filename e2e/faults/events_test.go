package faults

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// receiver is the server behind a webhook.
type receiver struct {
	url string

	mu     sync.Mutex
	events map[string][]string // names of events by stream, in the order in which they came
	seen   map[string]bool     // ids
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{events: map[string][]string{}, seen: map[string]bool{}}
	server := httptest.NewServer(r)
	r.url = server.URL
	t.Cleanup(server.Close)
	return r
}

// ServeHTTP takes an event.
func (r *receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	var body struct {
		ID, Event string
		Stream    struct{ ID string }
	}
	text, err := io.ReadAll(hr.Body)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[body.ID] {
		r.seen[body.ID] = true
		r.events[body.Stream.ID] = append(r.events[body.Stream.ID], body.Event)
	}
}

// of returns the events of a stream so far.
func (r *receiver) of(stream string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events[stream]...)
}

// has returns an error unless there are so many events of a kind of a stream.
func (r *receiver) has(stream, kind string, n int) error {
	events := r.of(stream)
	for _, e := range events {
		if e == kind {
			n--
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %s are missing among the events %q", n, kind, events)
	}
	return nil
}
