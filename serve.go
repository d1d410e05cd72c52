package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/access"
	"weir/internal/account"
	"weir/internal/api"
	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/ingest"
	"weir/internal/live"
	"weir/internal/playback"
	"weir/internal/push"
	"weir/internal/rtc"
	"weir/internal/store"
	"weir/internal/ucan"
	"weir/internal/vod"
	"weir/internal/webhook"
	"weir/internal/weir"
	"weir/internal/work"
)

//go:embed openapi.yaml
var openAPI []byte

// credentialsKept is how long the credentials of a task are kept after its end,
// so that it can be tried again.
const credentialsKept = 7 * 24 * time.Hour

// Run is `weir serve`.
func (ServeCmd) Run(ctx context.Context, cfg *Config) error {
	log, flush := newLogger(os.Stderr, cfg.LogLevel)
	defer flush()
	return serve(ctx, cfg, log, os.Stdout)
}

// serve builds the parts, runs them until ctx ends, and waits for them. The
// greeting goes to out: it has the key of the first account in it, which the log
// must not have.
func serve(ctx context.Context, cfg *Config, log *slog.Logger, out io.Writer) error {
	node, err := openNode(cfg)
	if err != nil {
		return err
	}
	defer node.close()
	v := readVersion()
	tracer, err := newTracer(ctx, os.LookupEnv, v, log)
	if err != nil {
		return err
	}
	defer closeTracer(tracer, log)
	st, err := store.Open(ctx, cfg.Database.Reveal(), store.Options{
		Secret: node.secret, NodeID: node.id, Adopt: sharedStorage(cfg) && (cfg.Runs(partLive) || cfg.Runs(partWork)), Log: log.With("part", "store"),
	})
	if err != nil {
		return err
	}
	defer st.Close()
	media, err := blob.Open(cfg.Storage.Reveal(), blob.Options{Log: log.With("part", "blob")})
	if err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	defer media.Close()
	parts, err := build(ctx, cfg, node.id, st, media, log)
	if err != nil {
		return err
	}
	defer parts.peers.Close()
	defer parts.closeWebRTC(log)
	metrics := newMetrics(v)
	parts.watch(metrics)
	web, err := parts.web(ctx, cfg, v, tracer, metrics, log)
	if err != nil {
		return err
	}
	parts.watchLive(metrics)

	house, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	g, running := errgroup.WithContext(ctx)
	var keeping errgroup.Group
	keeping.Go(func() error {
		return st.Run(house, store.Retention{Events: cfg.EventRetention, Credentials: credentialsKept, Health: cfg.HealthRetention})
	})
	g.Go(func() error { return runOps(running, cfg.Ops, opsHandler(metrics), log) })
	g.Go(func() error { return returnMemory(running, parts.onAir) })
	if cfg.Runs(partWork) {
		g.Go(func() error { return parts.work.Run(running) })
	}
	if cfg.Runs(partLive) {
		g.Go(func() error { return parts.runLive(running, cfg, log) })
	}
	if cfg.Runs(partLive) && !cfg.Runs(partWork) {
		keep := map[string]store.Handler{store.JobRecording: parts.recordings(cfg, log).Keep}
		g.Go(func() error { return st.Work(running, store.Slots{}, cfg.Drain, keep) })
	}
	if listens(cfg) {
		keeping.Go(func() error { return parts.playback.Run(house) })
		g.Go(func() error {
			return web.run(running, cfg, log, func(base string, port int) {
				parts.announce(running, cfg, port, log)
				if cfg.Runs(partAPI) {
					parts.greet(out, cfg, base)
				}
			})
		})
	}
	err = g.Wait()
	// The house is kept until the last job and the last request have ended.
	leave()
	return errors.Join(err, keeping.Wait())
}

// parts is what every kind of node has.
type parts struct {
	store      *store.Store
	media      blob.Store
	guard      *guard.Guard
	accounts   *account.Accounts
	sender     *webhook.Sender
	gate       *access.Gate
	encryption *access.Encryption
	engine     *ffmpeg.Engine
	work       *work.Work
	hub        *live.Hub // nil = nothing is on air here
	push       *push.Manager
	rtc        *rtc.Server // nil = no WebRTC
	whip       *rtc.Door   // of it
	doors      ingest.Counters
	playback   *playback.Server
	peers      *playback.Peers // the way to other nodes
	did        string
	first      account.First
	created    bool
}

func build(ctx context.Context, cfg *Config, nodeID string, st *store.Store, media blob.Store, log *slog.Logger) (*parts, error) {
	p := &parts{store: st, media: media, guard: guard.New(cfg.AllowNetworks)}
	seed, err := st.NamedSecret(ctx, "did", func() ([]byte, error) {
		seed := make([]byte, 32)
		_, err := rand.Read(seed)
		return seed, err
	})
	if err != nil {
		return nil, err
	}
	p.did = ucan.DID([32]byte(seed))
	p.accounts, err = account.New(ctx, st, account.Options{
		Signup: cfg.Signup, TrustedProxies: cfg.TrustedProxies, PublicURL: cfg.PublicURL, Log: log.With("part", "account"),
	})
	if err != nil {
		return nil, err
	}
	if p.first, p.created, err = p.accounts.CreateFirst(ctx, cfg.APIKey); err != nil {
		return nil, err
	}
	p.sender = webhook.New(st, p.guard, log.With("part", "webhook"))
	p.gate = access.New(st, p.sender, log.With("part", "access"))
	if p.encryption, err = access.OpenEncryption(ctx, st); err != nil {
		return nil, err
	}
	if p.peers, err = playback.OpenPeers(ctx, st); err != nil {
		return nil, err
	}
	if cfg.Runs(partLive) || cfg.Runs(partWork) {
		if p.engine, err = openEngine(ctx, cfg, log.With("part", "ffmpeg")); err != nil {
			return nil, err
		}
	}
	if cfg.Runs(partLive) {
		p.hub, err = live.New(ctx, live.Options{
			Store: st, Dir: liveDir(cfg), Node: nodeID, FFmpeg: p.engine, SessionTimeout: cfg.SessionTimeout, Log: log.With("part", "live"),
			Room: func() error { return blob.RoomAt(cfg.Data, int64(cfg.MinFree), 0) }, Upload: uploads(cfg, media),
			Targets: func(sessionID string) ([]weir.TargetHealth, []string) { return p.push.Targets(sessionID) },
		})
		if err != nil {
			return nil, err
		}
		p.push = push.New(push.Options{OnAir: p.hub, Store: st, Guard: p.guard, Log: log.With("part", "push")})
	}
	if cfg.Runs(partLive) && cfg.Runs(partAPI) && cfg.WebRTC != "" {
		if p.rtc, err = openWebRTC(ctx, cfg, log.With("part", "rtc")); err != nil {
			return nil, err
		}
	}
	if cfg.Runs(partWork) {
		return p, p.buildWork(ctx, cfg, log)
	}
	return p, nil
}

// onAir returns how many streams are on air here.
func (p *parts) onAir() int64 {
	if p.hub == nil {
		return 0
	}
	return p.hub.Stats().OnAir
}

// runLive lets encoders in until ctx ends. The hub goes on until the last of them has
// been told.
func (p *parts) runLive(ctx context.Context, cfg *Config, log *slog.Logger) error {
	secure, err := tlsConfig(cfg)
	if err != nil {
		return err
	}
	hub, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	var carrying errgroup.Group
	carrying.Go(func() error { return p.hub.Run(hub) })
	carrying.Go(func() error { return p.push.Run(hub) })
	g, ctx := errgroup.WithContext(ctx)
	for _, door := range []struct {
		flag, addr string
		secure     *tls.Config
	}{{"--rtmp", cfg.RTMP, nil}, {"--rtmps", cfg.RTMPS, secure}} {
		if door.addr == "" {
			continue
		}
		g.Go(func() error {
			listener, err := net.Listen("tcp", door.addr)
			if err != nil {
				return fmt.Errorf("%s: %w", door.flag, err)
			}
			if door.secure != nil {
				listener = tls.NewListener(listener, door.secure)
			}
			rtmp := &ingest.RTMP{Listener: listener, Hub: p.hub, Counters: &p.doors, Log: log.With("part", "ingest")}
			return rtmp.Run(ctx)
		})
	}
	if cfg.SRT != "" {
		srt := ingest.SRT{Addr: cfg.SRT, Passphrase: cfg.SRTPassphrase, Hub: p.hub, Counters: &p.doors, Log: log.With("part", "ingest")}
		g.Go(func() error {
			if err := srt.Run(ctx); err != nil {
				return fmt.Errorf("--srt: %w", err)
			}
			return nil
		})
	}
	puller := ingest.Puller{Hub: p.hub, Guard: p.guard, Log: log.With("part", "ingest")}
	g.Go(func() error { return puller.Run(ctx) })
	if p.whip != nil {
		g.Go(func() error {
			<-ctx.Done()
			p.whip.Close()
			return nil
		})
	}
	err = g.Wait()
	leave()
	return errors.Join(err, carrying.Wait())
}

// openEngine makes what starts ffmpeg, for tasks and for the renditions of streams.
func openEngine(ctx context.Context, cfg *Config, log *slog.Logger) (*ffmpeg.Engine, error) {
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Mode(cfg.Sandbox), Cores: cfg.Workers, Speed: speedFile(cfg), Log: log})
	if err != nil {
		return nil, err
	}
	// A sandbox that does not work is found out now, and not by the first task.
	if _, err := engine.Capabilities(ctx); err != nil {
		return nil, fmt.Errorf("ffmpeg can't be used, weir doctor says more: %w", err)
	}
	return engine, nil
}

// speedFile keeps how fast this machine encodes.
func speedFile(cfg *Config) string { return filepath.Join(cfg.Data, "speed.json") }

// fetcher reads the files that callers name.
func (p *parts) fetcher(cfg *Config) *blob.Fetcher {
	return &blob.Fetcher{
		Guard: p.guard, Gateways: blob.Gateways{IPFS: cfg.IPFSGateways, Arweave: cfg.ArweaveGateways}, MaxSize: int64(cfg.MaxUpload),
		Room: func(need int64) error { return blob.RoomAt(cfg.Data, int64(cfg.MinFree), need) },
	}
}

// buildWork makes what does the tasks.
func (p *parts) buildWork(ctx context.Context, cfg *Config, log *slog.Logger) (err error) {
	p.work, err = work.New(work.Options{
		Store: p.store, Media: p.media, Engine: vod.Engine{FFmpeg: p.engine, Store: p.media},
		Fetcher: p.fetcher(cfg),
		Caller:  blob.Options{Guard: p.guard, Log: log.With("part", "blob")},
		Decrypt: p.encryption.Decrypt, Dir: filepath.Join(cfg.Data, "work"), Base: eventBase(cfg), MinFree: int64(cfg.MinFree),
		Slots: cmp.Or(cfg.Workers, runtime.NumCPU()), MaxRunning: cfg.MaxRunningTasks, DeleteGrace: cfg.DeleteGrace, UploadExpiry: cfg.UploadExpiry,
		Drain: cfg.Drain, Others: map[string]store.Handler{store.JobWebhook: p.sender.Deliver, store.JobRecording: p.recordings(cfg, log).Keep},
		Log: log.With("part", "work"),
	})
	return err
}

// recordings is what makes assets of the broadcasts that this node has carried.
func (p *parts) recordings(cfg *Config, log *slog.Logger) *work.Recordings {
	r := &work.Recordings{Store: p.store, Media: p.media, Base: eventBase(cfg), Log: log.With("part", "recording")}
	r.Folder = func(sessionID string) (string, error) { return filepath.Join(liveDir(cfg), sessionID), nil }
	if p.hub != nil {
		r.Folder = p.hub.Folder
	}
	r.Leg = live.Legs{Dir: liveDir(cfg), Node: p.store.NodeID(), Media: p.media, Ask: p.askForFiles}.Folder
	return r
}

// liveDir is where the files of broadcasts are.
func liveDir(cfg *Config) string { return filepath.Join(cfg.Data, "live") }

// web is everything that is served over HTTP.
func (p *parts) web(ctx context.Context, cfg *Config, v version, tr *tracer, m *metrics, log *slog.Logger) (*web, error) {
	var err error
	viewing := playback.Options{
		Store: p.store, Media: p.media, Gate: p.gate, TrustedProxies: cfg.TrustedProxies, Dir: cfg.Data, Log: log.With("part", "playback"),
		Observe: func(_ context.Context, route string, status int, took time.Duration) { m.observe(route, status, took) },
	}
	viewing.Peers = p.peers
	if p.hub != nil {
		viewing.Live, viewing.RTC = p.hub, p.rtc
	}
	if p.playback, err = playback.New(ctx, viewing); err != nil {
		return nil, err
	}
	apiHandler, err := api.New(api.Options{
		Store: p.store, Accounts: p.accounts, Gate: p.gate, OpenAPI: openAPI, DID: p.did, Resend: p.sender.Resend,
		EncryptionKey: p.encryption.PublicKey(), PublicURL: cfg.PublicURL, EventBase: eventBase(cfg), WebRTC: cfg.WebRTC != "",
		Ingest: func(base string) string { return rtmpAddress(cfg, base) }, TrustedProxies: cfg.TrustedProxies, RateLimit: cfg.RateLimit,
		MaxPendingTasks: cfg.MaxPendingTasks, Signup: cfg.Signup, Version: v.Tag, Commit: v.Commit, Stopping: ctx.Done(),
		Log: log.With("part", "api"), Media: p.media, MaxUpload: int64(cfg.MaxUpload),
		Room:        func() error { return blob.Room(ctx, p.media, int64(cfg.MinFree), 0) },
		CheckSource: p.fetcher(cfg).Check,
		CheckExport: func(d blob.Delivery) error { return d.Check(blob.Options{Guard: p.guard}) },
		CheckDestination: func(ctx context.Context, storageURL string, paths []string, taskID string) error {
			return blob.Check(ctx, storageURL, paths, taskID, blob.Options{Guard: p.guard})
		},
		Observe: func(ctx context.Context, route string, status int, took time.Duration) {
			m.observe(route, status, took)
			tr.answered(ctx, route, status)
		},
	})
	if err != nil {
		return nil, err
	}
	mux, nodes := http.NewServeMux(), http.NewServeMux()
	web := &web{handler: nodes}
	mux.Handle("/api/", tr.wrap(apiHandler))
	mux.Handle("/hls/", p.playback)
	p.routeNodes(mux, nodes, cfg, m, log)
	watch, err := newWatchPage(p.store, log.With("part", "watch"), m.observe)
	if err != nil {
		return nil, err
	}
	mux.Handle("/play/", watch)
	nodes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, `{"ok":true}`) })
	nodes.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		switch {
		case !web.ready.Load():
			say(w, http.StatusServiceUnavailable, `{"ok":false,"why":"starting or draining"}`)
		case p.store.Ping(ctx) != nil:
			say(w, http.StatusServiceUnavailable, `{"ok":false,"why":"the database does not answer"}`)
		default:
			say(w, http.StatusOK, `{"ok":true}`)
		}
	})
	mux.Handle("/", p.accounts.Pages())
	if cfg.Runs(partAPI) {
		nodes.Handle("/", mux)
	}
	return web, nil
}

func say(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
}

// greet tells the operator where things are. The API key and the set-password
// link are shown at the first start only: weir itself does not know them later.
func (p *parts) greet(w io.Writer, cfg *Config, base string) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("")
	line("  weir serves at %s", base)
	line("")
	line("  account page  %s/", base)
	if p.created {
		line("  set password  %s/set-password?token=%s  (works once)", base, p.first.LinkToken.Reveal())
	}
	key := p.first.Key
	if p.created && key != "" {
		line("  API key       %s  (shown only now)", key.Reveal())
	}
	line("  DID           %s", p.did)
	line("")
	switch {
	case p.created && key != "":
		line("  Try it:  curl -H 'Authorization: Bearer %s' %s/api/stream", key.Reveal(), base)
	case cfg.APIKey != "":
		line("  Try it:  curl -H \"Authorization: Bearer $WEIR_API_KEY\" %s/api/stream", base)
	default:
		line("  A new API key:  weir key create NAME")
	}
	line("")
}

// watch shows the numbers of the parts as metrics.
func (p *parts) watch(m *metrics) {
	count := func(read func(context.Context) (int64, error)) func() float64 {
		return func() float64 {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			n, err := read(ctx)
			if err != nil {
				return -1
			}
			return float64(n)
		}
	}
	m.watch(gauge{"weir_webhook_deliveries_pending", "Deliveries to webhooks that are still to be made; -1 = unknown.", count(p.store.PendingDeliveries)})
	stats := func(read func(webhook.Stats) int64) func() float64 {
		return func() float64 { return float64(read(p.sender.Stats())) }
	}
	m.watch(
		gauge{"weir_webhook_delivered_total", "Deliveries that a webhook took.", stats(func(s webhook.Stats) int64 { return s.Delivered })},
		gauge{"weir_webhook_failed_total", "Deliveries that were given up.", stats(func(s webhook.Stats) int64 { return s.Failed })},
		gauge{"weir_webhook_retried_total", "Attempts that will be repeated.", stats(func(s webhook.Stats) int64 { return s.Retried })},
		gauge{"weir_webhook_blocked_total", "Deliveries to addresses that are not allowed.", stats(func(s webhook.Stats) int64 { return s.Blocked })},
	)
	if p.work == nil {
		return
	}
	tasks := func(read func(work.Stats) int64) func() float64 {
		return func() float64 { return float64(read(p.work.Stats())) }
	}
	m.watch(
		gauge{"weir_tasks_completed_total", "Tasks that were completed on this node.", tasks(func(s work.Stats) int64 { return s.Completed })},
		gauge{"weir_tasks_failed_total", "Tasks that failed for good on this node.", tasks(func(s work.Stats) int64 { return s.Failed })},
		gauge{"weir_tasks_retried_total", "Attempts at tasks that will be repeated.", tasks(func(s work.Stats) int64 { return s.Retried })},
		gauge{"weir_task_pieces_total", "Pieces of tasks (chunks, audio tracks, thumbnails) that this node has done.", tasks(func(s work.Stats) int64 { return s.Pieces })},
		gauge{"weir_task_jobs_running", "Jobs of tasks that this node does now.", tasks(func(s work.Stats) int64 { return s.Running })},
	)
}

// eventBase is how those who are told of events reach this service: they have sent
// no request that would say it.
func eventBase(cfg *Config) string {
	if cfg.PublicURL != "" || cfg.ACME != "" {
		return localBase(cfg, 0, true)
	}
	host, port, _ := net.SplitHostPort(cfg.HTTP)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = firstAddress()
	}
	scheme := "http"
	if cfg.TLSCert != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// firstAddress returns the first address of this machine that others can reach.
func firstAddress() string {
	addresses, _ := net.InterfaceAddrs()
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			return network.IP.String()
		}
	}
	return "localhost"
}

func closeTracer(t *tracer, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := t.close(ctx); err != nil {
		log.Warn("spans not sent", "err", err)
	}
}
