// Package api answers every path under /api.
//
// Every request goes through the same steps: router (routes.go lists all routes) → credential
// (auth.go) → body against openapi.yaml (package contract) → handler → a constructor or a patch of
// package weir, which has the rules → store, one transaction for row, event and job → JSON. A
// handler returns its error; only writeError turns an error into a response and logs it.
//
// There is one file per resource; resource.go has what handlers share. To add an endpoint, write
// its line in routes.go, its handler in the resource's file, its path in openapi.yaml, and its row in
// isolation_test.go, which says what it keeps apart between projects. Tests compare the lists.
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
	"weir/internal/budget"
	"weir/internal/contract"
	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

// Options are the dependencies and the settings of the API.
type Options struct {
	Store    *store.Store
	Accounts *account.Accounts
	Gate     *access.Gate
	OpenAPI  []byte // openapi.yaml
	DID      string
	C2PARoot []byte // PEM of the root of the certificate that signs media; nil = not known
	// Resend sends an event to a webhook once more and returns the log entry.
	Resend func(ctx context.Context, hook weir.Webhook, entry weir.WebhookLog) (weir.WebhookLog, error)
	// TestWebhook sends an event that is not in the store to a webhook and returns the log entry.
	TestWebhook func(ctx context.Context, hook weir.Webhook, event weir.Event) (weir.WebhookLog, error)
	// EncryptionKey is the public key with which callers encrypt the keys of their sources: base64
	// of an SPKI public key.
	EncryptionKey   string
	PublicURL       string    // "" = taken from the request
	EventBase       weir.Base // the URLs of this service in events
	WebRTC          bool      // streams can be watched over WebRTC, here or on other nodes
	TrustedProxies  []netip.Prefix
	KeyRate         int // requests a second of a key; 0 = no limit
	AccountRate     int // of all keys of an account together
	MaxPendingTasks int
	Signup          bool
	Version, Commit string
	Log             *slog.Logger
	// Ingest returns the URL to which encoders send RTMP, for callers that reach the API at base;
	// "" = there is none.
	Ingest func(base string) string
	// Ingests returns the URLs of other protocols, to each of which the stream key is appended; may
	// be nil.
	Ingests func(base string) map[string]string
	// CheckSource refuses a source that can't be fetched, judged by its URL.
	CheckSource func(source string) error
	// CheckExport refuses an export that can't succeed.
	CheckExport func(blob.Delivery) error
	// CheckDestination tries to write into folders of a caller's storage.
	CheckDestination func(ctx context.Context, storageURL string, paths []string, taskID string) error
	IPFS             IPFS
	Media            blob.Store // where uploads are kept
	MaxUpload        int64      // bytes
	Clips            Clips
	PublicClips      bool          // viewers may make clips, unless the stream says otherwise
	MaxDuration      time.Duration // of a clip; 0 = no limit
	// MayPlay returns nil if the request is of a viewer who may play the content. token is one of its playback
	// tokens; "" = the request has none.
	MayPlay func(r *http.Request, playbackID string, token weir.Secret) error
	// FreeSpace returns an error when there is no free space for more media.
	FreeSpace func() error
	// timeout is how long a client may take to send uploadStep bytes of an upload.
	timeout time.Duration
	// Observe is called after every request, for metrics.
	Observe func(ctx context.Context, route string, status int, took time.Duration)
	// Stopping is closed when the server drains, so that event streams end.
	Stopping <-chan struct{}
}

// server is what handlers use.
type server struct {
	Options
	contract *contract.Contract
	limits   *limiter
	routes   *router
	large    chan struct{} // semaphore for checks of large bodies
	files    chan struct{} // semaphore for large files of text, which are received into memory
	// playbacks are the ways to play content as viewers get them, by the address of weir and the id.
	playbacks store.Recent[playbackInfo]
	tus       *tusd.UnroutedHandler

	eventStreams slots // open streams of GET /events, by key
	destinations slots // running checks of destinations, by account
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
	s := &server{Options: opt, contract: c, limits: newLimiter(opt.KeyRate, opt.AccountRate), large: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)), files: make(chan struct{}, maxFiles)}
	s.playbacks.Store, s.playbacks.Max = opt.Store, maxPlaybacks
	var err error
	if s.tus, err = s.newTus(); err != nil {
		return nil, err
	}
	s.routes = newRouter(s.table())
	return s, nil
}

// request is the HTTP request, its caller, and its body, which is valid by openapi.yaml.
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
		// The body is valid, so only a number can be too large for its type.
		return weir.Wrap(weir.Invalid, err, "the body has a number that is out of range")
	}
	return nil
}

// handler answers one endpoint, or returns the error that answers it.
type handler func(w http.ResponseWriter, r *request) error

// ServeHTTP answers a request.
func (s *server) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	start := time.Now()
	out := &endpoint.Response{ResponseWriter: w, Request: hr}
	r := &request{Request: hr}
	id := s.requestID(hr)
	out.Header().Set("X-Request-Id", id)
	route, err := s.serve(out, r)
	pattern := "unknown"
	if route != nil {
		pattern = route.method + " /api" + route.path
	}
	if err != nil {
		s.writeError(out, r, pattern, id, err)
	}
	out.End()
	took := time.Since(start)
	if s.Observe != nil {
		s.Observe(hr.Context(), pattern, out.Status(), took)
	}
	// Never the path or the query: they can have keys and tokens in them.
	attrs := [...]slog.Attr{
		slog.String("route", pattern), slog.Int("status", out.Status()), slog.Int64("bytes", out.Bytes()),
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

// serve answers a request or returns the error that answers it. The route is nil when there is
// none.
func (s *server) serve(w *endpoint.Response, r *request) (route *route, err error) {
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
	if r.caller != nil {
		budget.Authenticated(r.Context())
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
	account := ""
	if r.caller != nil {
		account = r.caller.UserID
	}
	if err := s.limits.allow(s.limitKey(r), account); err != nil {
		return route, err
	}
	if err := s.readBody(w, r, route); err != nil {
		return route, err
	}
	return route, route.handle(w, r)
}

// internalError is what callers see of an error that is our fault.
func internalError(requestID string) string {
	return "Internal server error: ask the operator to look for request " + requestID
}

// writeError answers with an error and logs it.
func (s *server) writeError(w *endpoint.Response, r *request, route, id string, err error) {
	if w.Begun() {
		// The response has begun, so it can only be logged, unless the client has disconnected.
		if r.Context().Err() == nil {
			s.Log.ErrorContext(r.Context(), "response broke off", "route", route, "request", id, "err", err)
		}
		return
	}
	e, ok := errors.AsType[*weir.Error](err)
	switch {
	case ok && e.Kind != weir.Internal:
		if e.Err != nil {
			s.Log.InfoContext(r.Context(), "request refused", "route", route, "request", id, "err", err)
		}
	case r.Context().Err() != nil: // the client has disconnected
		return
	default:
		s.Log.ErrorContext(r.Context(), "request failed", "route", route, "request", id, "err", err)
	}
	f := endpoint.FailureOf(err, internalError(id))
	f.SetHeader(w.Header())
	if err := writeText(w, f.Status, f.Body()); err != nil {
		s.Log.InfoContext(r.Context(), "client did not read the response", "route", route, "request", id, "err", err)
	}
}

// writeTimeout is how long a client may take to read a response.
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

// writeText answers with JSON text.
func writeText(w http.ResponseWriter, code int, text []byte) error {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
	w.Header()["Content-Type"] = jsonType
	w.WriteHeader(code)
	_, err := w.Write(text)
	return err
}

var jsonType = []string{endpoint.JSON}

// noContent answers a request that succeeded, or returns the error of one that did not.
func noContent(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

type panicError struct{ value any }

func (p *panicError) Error() string { return fmt.Sprint("panic: ", p.value) }
