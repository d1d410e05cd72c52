package rtc

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"weir/internal/endpoint"
	"weir/internal/weir"
)

// EndpointPath is the prefix of WHIP and WHEP paths: /webrtc/<id> and /webrtc/<id>/<session>. The
// id is a stream key or a playback id.
const EndpointPath = "/webrtc/"

const (
	typeOffer    = "application/sdp"
	typeFragment = "application/trickle-ice-sdpfrag"
)

// Session is the WebRTC session that an offer started.
type Session interface {
	Answer() string
	Trickle(fragment string) error
	// End ends the session without waiting for its end. The cause is [ErrLeft] or [ErrShutdown].
	End(cause error)
	// Done is closed when the session has ended.
	Done() <-chan struct{}
}

// Endpoint implements the HTTP side of WHIP and WHEP. A client posts an offer and gets the answer
// and the URL of its session. It patches that URL with new ICE candidates and deletes it at the end.
type Endpoint struct {
	// Open starts a session. The id is that of the path, without the prefix that the Livepeer
	// Studio API puts before it.
	Open func(r *http.Request, id, offer string) (Session, error)
	// Route is the path in logs and metrics; ids can be secrets.
	Route string
	Log   *slog.Logger
	// Observe is called after every request, for metrics; may be nil.
	Observe func(ctx context.Context, route string, status int, took time.Duration)

	mu       sync.Mutex
	sessions map[address]Session
	closed   bool
	open     sync.WaitGroup
}

// address is the URL of a session.
type address struct{ id, name string }

// ServeHTTP answers everything below EndpointPath.
func (d *Endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	endpoint.CORS{Origin: "*", Expose: "Location, Accept-Post, Accept-Patch, Retry-After"}.Allow(h)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "cross-origin")
	endpoint.Never.Set(h)
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

// endpoint answers requests without a session: those that start one.
func (d *Endpoint) endpoint(w http.ResponseWriter, r *http.Request, at address) (status int) {
	w.Header().Set("Accept-Post", typeOffer)
	switch r.Method {
	case http.MethodPost:
	case http.MethodHead:
		// Players follow redirects with HEAD before they post. There are none here.
		w.WriteHeader(http.StatusOK)
		return http.StatusOK
	default:
		return other(w, r, "POST, HEAD, OPTIONS")
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
	if !d.addSession(at, session) {
		session.End(ErrShutdown)
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

// session answers requests to a session.
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
		session.End(ErrLeft)
		w.WriteHeader(http.StatusOK)
		return http.StatusOK
	}
	return other(w, r, "PATCH, DELETE, OPTIONS")
}

// other answers OPTIONS, and methods that are not allowed.
func other(w http.ResponseWriter, r *http.Request, methods string) (status int) {
	h := w.Header()
	h.Set("Allow", methods)
	if r.Method != http.MethodOptions {
		f := endpoint.Failure{Status: http.StatusMethodNotAllowed, Messages: []string{"use one of " + methods}}
		f.Write(w)
		return f.Status
	}
	endpoint.CORS{Methods: methods}.Preflight(h, r)
	w.WriteHeader(http.StatusNoContent)
	return http.StatusNoContent
}

func body(w http.ResponseWriter, r *http.Request, want string) (string, error) {
	if got, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); got != want {
		return "", weir.Errorf(weir.Unsupported, "the content type must be %s", want)
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxOffer))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return "", weir.Errorf(weir.TooLarge, "the body is longer than %d bytes", MaxOffer)
	}
	if err != nil {
		return "", weir.Errorf(weir.Refused, "the body is incomplete")
	}
	return string(text), nil
}

// addSession keeps a session until it ends. It returns false if the endpoint is closed.
func (d *Endpoint) addSession(at address, session Session) bool {
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

// Close ends all sessions and waits for their end. No session starts after that.
func (d *Endpoint) Close() {
	d.mu.Lock()
	d.closed = true
	for _, session := range d.sessions {
		session.End(ErrShutdown)
	}
	d.mu.Unlock()
	d.open.Wait()
}

func (d *Endpoint) fail(w http.ResponseWriter, r *http.Request, err error) (status int) {
	if e, ok := errors.AsType[*weir.Error](err); r.Context().Err() == nil && (!ok || e.Kind == weir.Internal || e.Err != nil) {
		d.Log.ErrorContext(r.Context(), "request failed", "route", d.Route, "err", err)
	}
	f := endpoint.FailureOf(err, "Internal server error")
	f.Write(w)
	return f.Status
}
