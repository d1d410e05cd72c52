package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"weir/e2e/harness"
)

// arrival is one request that a webhook got.
type arrival struct {
	hook  string // id of the webhook
	event string // id of the event
	name  string // of the asset that the event tells of, after the change
	at    time.Time
}

// receiver is the server behind a webhook. It notes what arrives and answers 200,
// or holds its responses back.
type receiver struct {
	url string

	mu       sync.Mutex
	arrivals []arrival
	held     int           // requests that wait for their response
	open     chan struct{} // closed when responses are sent
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{open: make(chan struct{})}
	close(r.open)
	server := httptest.NewServer(r)
	r.url = server.URL
	t.Cleanup(func() {
		r.release()
		server.Close()
	})
	return r
}

// ServeHTTP takes an event.
func (r *receiver) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	var body struct {
		ID        string `json:"id"`
		WebhookID string `json:"webhookId"`
		Payload   struct {
			Asset struct {
				Snapshot struct {
					Name string `json:"name"`
				} `json:"snapshot"`
			} `json:"asset"`
		} `json:"payload"`
	}
	text, err := io.ReadAll(hr.Body)
	if err != nil {
		return // weir was killed while it sent
	}
	if err := json.Unmarshal(text, &body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	open := r.record(arrival{body.WebhookID, body.ID, body.Payload.Asset.Snapshot.Name, time.Now()})
	defer r.responded()
	select {
	case <-open:
	case <-hr.Context().Done(): // weir is gone
	}
}

func (r *receiver) record(a arrival) (open <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrivals = append(r.arrivals, a)
	r.held++
	return r.open
}

func (r *receiver) responded() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held--
}

// holdResponses keeps back the responses to what arrives from now on.
func (r *receiver) holdResponses() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = make(chan struct{})
}

// release gives the responses that were held back, and all later ones at once.
func (r *receiver) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case <-r.open:
	default:
		close(r.open)
	}
}

// all returns what has arrived so far, in the order of arrival.
func (r *receiver) all() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.arrivals[:len(r.arrivals):len(r.arrivals)]
}

// check returns an error unless the receiver is as wanted, which what names.
func (r *receiver) check(what string, wanted func(arrivals []arrival, held int) bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if wanted(r.arrivals, r.held) {
		return nil
	}
	return fmt.Errorf("waited in vain: %s; %d arrived, %d are held", what, len(r.arrivals), r.held)
}

// until waits until the receiver is as wanted.
func (r *receiver) until(t *testing.T, what string, wanted func(arrivals []arrival, held int) bool) {
	t.Helper()
	harness.Eventually(t, func() error { return r.check(what, wanted) })
}
