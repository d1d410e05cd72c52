// Package api answers every path under /api.
//
// A request walks one way: router (routes.go has every route on one screen) →
// credential (auth.go) → body against openapi.yaml (package contract) → handler → a
// constructor or a patch of package weir, which has the rules → store, one
// transaction for row, event and job → JSON. A handler returns its error;
// writeError is the only place where an error becomes an answer, and the only one
// that logs it.
//
// There is one file a resource. To add an endpoint: its line in routes.go, its
// handler in the resource's file, its path in openapi.yaml. A test holds the two
// lists to each other.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"runtime"
	"time"

	tusd "github.com/tus/tusd/v2/pkg/handler"

	"weir/internal/access"
	"weir/internal/account"
	"weir/internal/blob"
	"weir/internal/contract"
	"weir/internal/store"
	"weir/internal/weir"
)

// Options are the parts that the API stands on and the settings it obeys.
type Options struct {
	Store    *store.Store
	Accounts *account.Accounts
	Gate     *access.Gate
	OpenAPI  []byte // openapi.yaml
	DID      string
	// Resend sends an event to a webhook once more and returns the log entry.
	Resend func(ctx context.Context, hook weir.Webhook, entry weir.WebhookLog) (weir.WebhookLog, error)
	// EncryptionKey is what callers encrypt the keys of their sources with:
	// base64 of an SPKI public key.
	EncryptionKey   string
	PublicURL       string // "" = as the request says
	EventBase       string // how those who are told of events reach this service
	WebRTC          bool   // streams can be watched over WebRTC, here or on other nodes
	TrustedProxies  []netip.Prefix
	RateLimit       int // requests a second and key; 0 = none
	MaxPendingTasks int
	Signup          bool
	Version, Commit string
	Log             *slog.Logger
	// Ingest is where encoders send to over RTMP, for callers who reach the API at base;
	// "" = nowhere.
	Ingest func(base string) string
	// CheckSource refuses a source that could never be fetched, by its URL alone.
	CheckSource func(source string) error
	// CheckExport refuses what could never be sent to where a caller wants it.
	CheckExport func(blob.Delivery) error
	// CheckDestination tries to write into folders of a caller's storage.
	CheckDestination func(ctx context.Context, storageURL string, paths []string, taskID string) error
	Media            blob.Store // where uploads are kept
	MaxUpload        int64      // bytes
	// FreeSpace returns an error when there is no room for more media.
	FreeSpace func() error
	// timeout is how long a client may take to send a little of an upload.
	timeout time.Duration
	// Observe is told of every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
	// Stopping is closed when the server drains, so that event streams end.
	Stopping <-chan struct{}
}

// server has what handlers need.
type server struct {
	Options
	contract *contract.Contract
	limits   *limiter
	routes   *router
	large    chan struct{} // turns at checking large bodies
	// eventStreams are the open streams of GET /events.
	eventStreams eventStreams
	tus          *tusd.UnroutedHandler
	destinations turnstile // destinations of transcode tasks that are being tried
}

// New returns the handler of everything under /api.
func New(opt Options) (http.Handler, error) {
	c, err := contract.New(opt.OpenAPI)
	if err != nil {
		return nil, err
	}
	return newServer(opt, c)
}

func newServer(opt Options, c *contract.Contract) (*server, error) {
	if opt.timeout == 0 {
		opt.timeout = uploadTimeout
	}
	s := &server{Options: opt, contract: c, limits: newLimiter(opt.RateLimit), large: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
	var err error
	if s.tus, err = s.newTus(); err != nil {
		return nil, err
	}
	s.routes = newRouter(s.table())
	return s, nil
}

// request is what a handler gets: the HTTP request, who sends it and the body,
// which fits openapi.yaml.
type request struct {
	*http.Request
	caller *weir.Caller // nil = anonymous
	body   []byte
}

// decode reads the body.
func (r *request) decode(v any) error {
	if len(r.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(r.body, v); err != nil {
		// The body fits the contract, so only a number can be too large for its type.
		return weir.Wrap(weir.Invalid, err, "the body has a number that is out of range")
	}
	return nil
}

// handler answers one endpoint, or returns the error that answers it.
type handler func(w http.ResponseWriter, r *request) error

// ServeHTTP is the walk of every request.
func (s *server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	start := time.Now()
	rec := &recorder{ResponseWriter: w}
	r := &request{Request: hr}
	id := s.requestID(hr)
	rec.Header().Set("X-Request-Id", id)
	route, err := s.serve(rec, r)
	pattern := "unknown"
	if route != nil {
		pattern = route.method + " /api" + route.path
	}
	if err != nil {
		s.writeError(rec, r, pattern, id, err)
	}
	took := time.Since(start)
	if s.Observe != nil {
		s.Observe(hr.Context(), pattern, rec.status, took)
	}
	// Never the path or the query: they carry keys and tokens.
	attrs := [...]slog.Attr{
		slog.String("route", pattern), slog.Int("status", rec.status), slog.Int64("bytes", rec.bytes),
		slog.Duration("took", took), slog.String("request", id), slog.String("user", r.user()),
	}
	s.Log.LogAttrs(hr.Context(), slog.LevelInfo, "request", attrs[:]...)
}

func (r *request) user() string {
	if r.caller == nil {
		return ""
	}
	return r.caller.UserID
}

// serve answers a request or returns the error that answers it. The route is nil
// when there is none.
func (s *server) serve(w *recorder, r *request) (route *route, err error) {
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			err = &panicError{p}
		}
	}()
	w.Header().Set("Vary", "Authorization, Origin")
	if r.Method == http.MethodOptions {
		return nil, s.preflight(w, r)
	}
	route = s.routes.match(r.Request)
	if err := s.authenticate(r, route); err != nil {
		allowOrigin(w, r)
		return route, err
	}
	if err := s.checkOrigin(w, r); err != nil {
		return route, err
	}
	if route == nil {
		return nil, weir.ErrNotFound()
	}
	if err := checkAddress(r.Request); err != nil {
		return route, err
	}
	if err := s.authorize(r, route); err != nil {
		return route, err
	}
	if err := s.limits.allow(s.limitKey(r)); err != nil {
		return route, err
	}
	if err := s.readBody(w, r, route); err != nil {
		return route, err
	}
	return route, route.handle(w, r)
}

// writeError is the only place where an error becomes an answer, and the only
// place of this package that logs one.
func (s *server) writeError(w *recorder, r *request, route, id string, err error) {
	if w.status != 0 {
		// The answer has begun; all that is left is to say so to the operator,
		// unless it was the client who left.
		if r.Context().Err() == nil {
			s.Log.ErrorContext(r.Context(), "answer broke off", "route", route, "request", id, "err", err)
		}
		return
	}
	kind, messages := weir.KindOf(err), []string{"Internal server error: ask the operator to look for request " + id}
	e, ok := errors.AsType[*weir.Error](err)
	switch {
	case ok && kind != weir.Internal:
		messages = e.Messages
		if e.RetryAfter > 0 {
			w.Header().Set("Retry-After", retryAfter(e.RetryAfter))
		}
		if e.Err != nil {
			s.Log.InfoContext(r.Context(), "request refused", "route", route, "request", id, "err", err)
		}
	case r.Context().Err() != nil: // the client left; there is nobody to answer
		kind, messages = weir.Refused, []string{"the request was cancelled"}
	default:
		s.Log.ErrorContext(r.Context(), "request failed", "route", route, "request", id, "err", err)
	}
	if err := writeJSON(w, kind.Status(), map[string][]string{"errors": messages}); err != nil {
		s.Log.InfoContext(r.Context(), "answer was not read", "route", route, "request", id, "err", err)
	}
}

// writeTimeout is how long a client may take to read an answer.
const writeTimeout = 30 * time.Second

// writeJSON answers with v.
func writeJSON(w http.ResponseWriter, code int, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	return writeText(w, code, buf.Bytes()[:buf.Len()-1]) // without the line feed
}

// writeText answers with what is JSON already.
func writeText(w http.ResponseWriter, code int, text []byte) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(code)
	_, err := w.Write(text)
	return err
}

var jsonType = []string{"application/json; charset=utf-8"}

// noContent answers that it was done.
func noContent(w http.ResponseWriter) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// recorder notes what was answered, for the log.
type recorder struct {
	http.ResponseWriter
	status int
	bytes  int64
}

func (w *recorder) WriteHeader(code int) {
	if w.status == 0 {
		w.status = code
	}
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprint("panic: ", p.value) }
