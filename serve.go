package main

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/access"
	"weir/internal/account"
	"weir/internal/api"
	"weir/internal/guard"
	"weir/internal/store"
	"weir/internal/ucan"
	"weir/internal/webhook"
)

//go:embed openapi.yaml
var openAPI []byte

// credentialsKept is how long the credentials of a task are kept after its end,
// so that it can be tried again.
const credentialsKept = 7 * 24 * time.Hour

// webhookSlots is how many deliveries a node makes at once.
const webhookSlots = 32

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
	st, err := store.Open(ctx, cfg.Database.Reveal(), store.Options{Secret: node.secret, NodeID: node.id, Log: log.With("part", "store")})
	if err != nil {
		return err
	}
	defer st.Close()
	parts, err := build(ctx, cfg, st, log)
	if err != nil {
		return err
	}
	metrics := newMetrics(v)
	parts.watch(metrics)
	web, err := parts.web(ctx, cfg, v, tracer, metrics, log)
	if err != nil {
		return err
	}

	house, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	g, running := errgroup.WithContext(ctx)
	var keeping errgroup.Group
	keeping.Go(func() error {
		return st.Run(house, store.Retention{Events: cfg.EventRetention, Credentials: credentialsKept})
	})
	g.Go(func() error { return runOps(running, cfg.Ops, opsHandler(metrics), log) })
	g.Go(func() error { return returnMemory(running) })
	if cfg.Runs(partWork) {
		g.Go(func() error {
			return st.Work(running, store.Slots{Webhook: webhookSlots}, cfg.Drain, map[string]store.Handler{
				store.JobWebhook: parts.sender.Deliver,
			})
		})
	}
	if cfg.Runs(partAPI) {
		g.Go(func() error { return web.run(running, cfg, log, func(base string) { parts.greet(out, cfg, base) }) })
	}
	err = g.Wait()
	// The house is kept until the last job and the last request have ended.
	leave()
	return errors.Join(err, keeping.Wait())
}

// parts is what every kind of node has.
type parts struct {
	store    *store.Store
	accounts *account.Accounts
	sender   *webhook.Sender
	gate     *access.Gate
	did      string
	first    account.First
	created  bool
}

func build(ctx context.Context, cfg *Config, st *store.Store, log *slog.Logger) (*parts, error) {
	p := &parts{store: st}
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
	p.sender = webhook.New(st, guard.New(cfg.AllowNetworks), log.With("part", "webhook"))
	p.gate = access.New(st, p.sender, log.With("part", "access"))
	return p, nil
}

// web is everything that is served over HTTP.
func (p *parts) web(ctx context.Context, cfg *Config, v version, tr *tracer, m *metrics, log *slog.Logger) (*web, error) {
	encryptionKey, err := access.EncryptionKey(ctx, p.store)
	if err != nil {
		return nil, err
	}
	apiHandler, err := api.New(api.Options{
		Store: p.store, Accounts: p.accounts, Gate: p.gate, OpenAPI: openAPI, DID: p.did, Resend: p.sender.Resend,
		EncryptionKey: encryptionKey, PublicURL: cfg.PublicURL, TrustedProxies: cfg.TrustedProxies, RateLimit: cfg.RateLimit,
		MaxPendingTasks: cfg.MaxPendingTasks, Signup: cfg.Signup, Version: v.Tag, Commit: v.Commit, Stopping: ctx.Done(),
		Log: log.With("part", "api"),
		Observe: func(ctx context.Context, route string, status int, took time.Duration) {
			m.observe(route, status, took)
			tr.answered(ctx, route, status)
		},
	})
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	web := &web{handler: mux}
	mux.Handle("/api/", tr.wrap(apiHandler))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, `{"ok":true}`) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
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
}

func closeTracer(t *tracer, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := t.close(ctx); err != nil {
		log.Warn("spans not sent", "err", err)
	}
}
