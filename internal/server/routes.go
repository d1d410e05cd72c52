package server

import (
	"context"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"sync"
	"time"

	"weir/internal/api"
	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/endpoint"
	"weir/internal/playback"
	"weir/internal/rtc"
	"weir/internal/web"
	"weir/internal/weir"
)

func (s *server) openPlayback(ctx context.Context) (err error) {
	o := playback.Options{
		Store: s.store, Media: s.media, Gate: s.gate, Peers: s.peers, Dir: s.cfg.Data,
		CacheSecret: s.cfg.CacheSecret, CacheAdmission: s.cfg.CacheAdmission, EdgeCache: s.cfg.EdgeCache,
		TrustedProxies: s.cfg.TrustedProxies, Observe: s.metrics.observe, Log: s.logger("playback"),
	}
	if s.hub != nil {
		o.Live, o.RTC = s.hub, s.webrtc
	}
	s.playback, err = playback.New(ctx, o)
	return err
}

// openHTTP makes the routes of HTTP. A node that does not run api serves only other nodes and
// health checks.
func (s *server) openHTTP(ctx context.Context) error {
	apiHandler, err := s.newAPI(ctx)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	s.http = &httpServer{handler: mux}
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", s.readiness)
	s.routeNodes(mux)
	if !s.cfg.Runs(config.API) {
		return nil
	}
	public := http.NewServeMux()
	public.Handle("/", s.accounts.Pages())
	if err := s.routeUI(public); err != nil {
		return err
	}
	public.Handle("/api/", s.bounded(hasAPIKey, s.tracer.wrap(apiHandler)))
	public.Handle("/hls/", s.bounded(hasNoKey, s.playback))
	s.routeIPFS(public)
	public.Handle(rtc.EndpointPath, s.bounded(hasStreamKey, s.playback.Relay(s.webRTCHere(s.accounts.Pages()), s.playbackOf)))
	mux.Handle("/", s.separate(public))
	return nil
}

// routeUI adds the pages for people, unless the program was built without them.
func (s *server) routeUI(mux *http.ServeMux) error {
	if s.o.Files == nil {
		return nil
	}
	files, err := fs.Sub(s.o.Files, "web")
	if err != nil {
		return err
	}
	built, err := web.ReadBuilt(files)
	if err != nil {
		return err
	}
	console, err := web.NewConsole(files, built, s.logger("console"))
	if err != nil {
		return err
	}
	watch, err := web.NewWatchPage(web.Options{
		Files: files, Built: built, Store: s.store, PublicClips: s.cfg.PublicClips, Base: s.requestBase,
		Observe: s.metrics.observe, Log: s.logger("watch"),
	})
	if err != nil {
		return err
	}
	manual, err := fs.Sub(s.o.Files, "docs")
	if err != nil {
		return err
	}
	docs, err := web.NewDocs(web.DocsOptions{
		Files: files, Built: built, Manual: manual, OpenAPI: s.o.OpenAPI, Observe: s.metrics.observe, Log: s.logger("docs"),
	})
	if err != nil {
		return err
	}
	mux.Handle("/_/", built)
	mux.Handle("/play/", watch)
	mux.Handle("/oembed", watch)
	mux.Handle("/docs", docs)
	mux.Handle("/docs/", docs)
	for _, pattern := range console.Patterns() {
		mux.Handle(pattern, s.accounts.RequireLogIn(console))
	}
	return nil
}

// requestBase returns the address of weir as the client of a request sees it.
func (s *server) requestBase(r *http.Request) string {
	if s.cfg.PublicURL != "" {
		return s.cfg.PublicURL
	}
	return endpoint.RequestBase(r, s.cfg.TrustedProxies)
}

func (s *server) newAPI(ctx context.Context) (http.Handler, error) {
	return api.New(api.Options{
		Store: s.store, Accounts: s.accounts, Gate: s.gate, OpenAPI: s.o.OpenAPI, DID: s.did, C2PARoot: s.c2paRoot,
		Resend: s.sender.Resend, TestWebhook: s.sender.Test, EncryptionKey: s.encryption.PublicKey(), Media: s.media,
		PublicURL: s.cfg.PublicURL, EventBase: s.cfg.EventBase(), Ingest: s.cfg.RTMPServer, Ingests: s.cfg.Ingests,
		WebRTC: s.cfg.WebRTC != "", TrustedProxies: s.cfg.TrustedProxies, Signup: s.cfg.Signup,
		KeyRate: s.cfg.RateLimit, AccountRate: s.cfg.AccountRateLimit, MaxPendingTasks: s.cfg.MaxPendingTasks, MaxUpload: s.cfg.MaxUpload,
		Version: s.version.Tag, Commit: s.version.Commit, Stopping: ctx.Done(), Log: s.logger("api"),
		FreeSpace:   func() error { return blob.FreeSpace(ctx, s.media, s.cfg.MinFree, 0) },
		CheckSource: s.fetcher().Check,
		CheckExport: func(d blob.Delivery) error { return d.Check(blob.Options{Guard: s.guard}) },
		CheckDestination: func(ctx context.Context, url string, paths []string, taskID string) error {
			return blob.Check(ctx, url, paths, taskID, blob.Options{Guard: s.guard})
		},
		IPFS:  s.apiIPFS(),
		Clips: s.clips, PublicClips: s.cfg.PublicClips, MaxDuration: s.cfg.MaxDuration, MayPlay: s.playback.MayPlay,
		Observe: func(ctx context.Context, route string, status int, took time.Duration) {
			s.metrics.observe(ctx, route, status, took)
			s.tracer.observe(ctx, route, status)
		},
	})
}

func healthy(w http.ResponseWriter, _ *http.Request) {
	writeHealth(w, http.StatusOK, `{"ok":true}`)
}

// readiness serves GET /readyz?for=…: whether this node can do what a balancer has it for. Viewers
// and encoders need nothing of the database: a node that asked it would be taken out together with
// all others, just when streams go on from what each of them knows.
func (s *server) readiness(w http.ResponseWriter, r *http.Request) {
	var why string
	switch purpose := r.URL.Query().Get("for"); {
	case !slices.Contains([]string{"", "viewers", "encoders", "api"}, purpose):
		writeHealth(w, http.StatusBadRequest, `{"ok":false,"why":"for must be viewers, encoders or api"}`)
		return
	case !s.http.ready.Load():
		why = "starting or draining"
	case purpose == "encoders":
		why = s.refusesEncoders()
	case purpose == "api":
		why = s.refusesCallers(r.Context())
	}
	if why != "" {
		writeHealth(w, http.StatusServiceUnavailable, `{"ok":false,"why":"`+why+`"}`)
		return
	}
	healthy(w, r)
}

// refusesEncoders returns why a new encoder should go to another node; "" = it need not.
func (s *server) refusesEncoders() string {
	switch {
	case s.hub == nil:
		return "this node takes no encoders: it does not run live"
	case s.hub.RefusesNew():
		return "the disk is too full for new encoders"
	}
	return ""
}

// refusesCallers returns why requests of the API would fail; "" = they would not.
func (s *server) refusesCallers(ctx context.Context) string {
	ping, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if s.store.Ping(ping) != nil {
		return "the database does not answer"
	}
	err := s.written.check(ctx, s.store.TryWrite)
	switch {
	case err == nil:
		return ""
	case weir.KindOf(err) == weir.Full:
		return "the database can't be written: its disk is full"
	}
	return "the database can't be written"
}

// writeCheck tries to write to the database, at most every writeEvery: anybody may ask for it.
type writeCheck struct {
	mu  sync.Mutex // held while it writes, so that all wait for one
	at  time.Time
	err error
}

const (
	writeEvery   = 5 * time.Second
	writeTimeout = 5 * time.Second
)

// check returns the result of the last write, or of a new one if that is old.
func (c *writeCheck) check(ctx context.Context, write func(context.Context) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() || time.Since(c.at) >= writeEvery {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
		defer cancel()
		c.err = write(ctx)
		c.at = time.Now()
	}
	return c.err
}

func writeHealth(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}
