package rtc

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/weir"
)

// EndpointPath is where offers are taken: one address for all, the id of what is sent or
// watched behind it, and behind that the session.
const EndpointPath = "/webrtc/"

const (
	typeOffer    = "application/sdp"
	typeFragment = "application/trickle-ice-sdpfrag"
)

// Session is what an offer led to.
type Session interface {
	Answer() string
	Trickle(fragment string) error
	// Leave ends it because the peer wants it, Stop because this server ends. They don't
	// wait for it.
	Leave()
	Stop()
	// Done is closed when nothing of it is left.
	Done() <-chan struct{}
}

// Endpoint is the HTTP of WHIP and WHEP: an offer is posted, the answer comes back with the
// address of a session, which is patched with what the peer finds out about its addresses,
// and deleted at the end.
type Endpoint struct {
	// Open makes a session of an offer. The id is that of the address, without what stands
	// before it in addresses of the Livepeer Studio API.
	Open func(r *http.Request, id, offer string) (Session, error)
	// Route is how the endpoint is called in logs and metrics; ids can be secrets.
	Route string
	Log   *slog.Logger
	// Observe is told of every request, for metrics; may be nil.
	Observe func(ctx context.Context, route string, status int, took time.Duration)

	mu       sync.Mutex
	sessions map[address]Session
	closed   bool
	open     sync.WaitGroup
}

// address is that of a session.
type address struct{ id, name string }

// ServeHTTP answers everything below /webrtc/.
func (d *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Expose-Headers", "Location, Accept-Post, Accept-Patch, Retry-After")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	h.Set("Cache-Control", "no-store")
	id, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, EndpointPath), "/")
	at := address{strings.TrimPrefix(id, "video+"), name}
	route, status := d.Route, 0
	if name == "" {
		status = d.endpoint(w, r, at)
	} else {
		route += "/{session}"
		status = d.session(w, r, at)
	}
	if d.Observe != nil {
		d.Observe(r.Context(), r.Method+" "+route, status, time.Since(start))
	}
	d.Log.DebugContext(r.Context(), "request", "method", r.Method, "route", route, "status", status, "took", time.Since(start))
}

// endpoint answers where sessions begin.
func (d *Endpoint) endpoint(w http.ResponseWriter, r *http.Request, at address) (status int) {
	const methods = "POST, HEAD, OPTIONS"
	w.Header().Set("Accept-Post", typeOffer)
	switch r.Method {
	case http.MethodPost:
	case http.MethodHead:
		// Players ask where they are sent on to before they post; it is here.
		w.WriteHeader(http.StatusOK)
		return http.StatusOK
	default:
		return other(w, r, methods)
	}
	offer, err := body(w, r, typeOffer)
	if err != nil {
		return d.fail(w, r, err)
	}
	session, err := d.Open(r, at.id, offer)
	if err != nil {
		return d.fail(w, r, err)
	}
	at.name = rand.Text()
	if !d.add(at, session) {
		session.Stop()
		<-session.Done()
		return d.fail(w, r, errClosed())
	}
	w.Header().Set("Content-Type", typeOffer)
	w.Header().Set("Location", (&url.URL{Path: EndpointPath + at.id + "/" + at.name}).String())
	w.Header().Set("Accept-Patch", typeFragment)
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, session.Answer())
	return http.StatusCreated
}

// session answers where sessions are.
func (d *Endpoint) session(w http.ResponseWriter, r *http.Request, at address) (status int) {
	d.mu.Lock()
	session := d.sessions[at]
	d.mu.Unlock()
	if session == nil && r.Method != http.MethodOptions {
		return d.fail(w, r, weir.Errorf(weir.NotFound, "there is no such session, or it is over"))
	}
	switch r.Method {
	case http.MethodPatch:
		fragment, err := body(w, r, typeFragment)
		if err == nil {
			err = session.Trickle(fragment)
		}
		if err != nil {
			return d.fail(w, r, err)
		}
		w.WriteHeader(http.StatusNoContent)
		return http.StatusNoContent
	case http.MethodDelete:
		session.Leave()
		w.WriteHeader(http.StatusOK)
		return http.StatusOK
	}
	return other(w, r, "PATCH, DELETE, OPTIONS")
}

// other answers methods that do nothing.
func other(w http.ResponseWriter, r *http.Request, methods string) (status int) {
	h := w.Header()
	h.Set("Allow", methods)
	if r.Method != http.MethodOptions {
		return writeErrors(w, http.StatusMethodNotAllowed, []string{"use one of " + methods})
	}
	h.Set("Access-Control-Allow-Methods", methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	h.Set("Access-Control-Max-Age", "7200")
	w.WriteHeader(http.StatusNoContent)
	return http.StatusNoContent
}

// body reads the body of a request, which must be of a type.
func body(w http.ResponseWriter, r *http.Request, want string) (string, error) {
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got != want {
		return "", weir.Errorf(weir.Unsupported, "the content type must be %s", want)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxOffer))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", weir.Errorf(weir.TooLarge, "the body is longer than %d bytes", MaxOffer)
	}
	if err != nil {
		return "", weir.Errorf(weir.Refused, "the body did not come whole")
	}
	return string(text), nil
}

// add keeps a session until it is over.
func (d *Endpoint) add(at address, session Session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if d.sessions == nil {
		d.sessions = map[address]Session{}
	}
	d.sessions[at] = session
	d.open.Go(func() {
		<-session.Done()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.sessions, at)
	})
	return true
}

// Close ends all sessions and waits for their end. There are no new ones from here on.
func (d *Endpoint) Close() {
	d.mu.Lock()
	d.closed = true
	for _, session := range d.sessions {
		session.Stop()
	}
	d.mu.Unlock()
	d.open.Wait()
}

// fail is the only place where an error becomes an answer.
func (d *Endpoint) fail(w http.ResponseWriter, r *http.Request, err error) (status int) {
	kind, messages := weir.KindOf(err), []string{"Internal server error"}
	e, ok := errors.AsType[*weir.Error](err)
	if ok && kind != weir.Internal {
		messages = e.Messages
	}
	if r.Context().Err() == nil && (!ok || kind == weir.Internal || e.Err != nil) {
		d.Log.ErrorContext(r.Context(), "request failed", "route", d.Route, "err", err)
	}
	if ok && e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(e.RetryAfter.Seconds())))
	}
	return writeErrors(w, kind.Status(), messages)
}

func writeErrors(w http.ResponseWriter, status int, messages []string) int {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string][]string{"errors": messages})
	return status
}
