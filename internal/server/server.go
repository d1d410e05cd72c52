// Package server is `weir serve`: a node. It is the only package that knows all parts of the
// service. It makes them, connects and runs them, and ends them in order.
//
// Start at [Run]. The open methods make the parts in the order of their dependencies: live.go those
// for live streams, work.go those for tasks, routes.go those for HTTP. peers.go connects nodes,
// ops.go has the metrics.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"weir/internal/access"
	"weir/internal/account"
	"weir/internal/blob"
	"weir/internal/budget"
	"weir/internal/config"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/ingest"
	"weir/internal/ipfs"
	"weir/internal/live"
	"weir/internal/playback"
	"weir/internal/publish"
	"weir/internal/push"
	"weir/internal/rtc"
	"weir/internal/store"
	"weir/internal/ucan"
	"weir/internal/webhook"
	"weir/internal/weir"
	"weir/internal/work"
)

// credentialsKept is how long the credentials of a task are stored after its end, so that it can be
// tried again.
const credentialsKept = 7 * 24 * time.Hour

// Options are the inputs of a node beside its settings.
type Options struct {
	OpenAPI []byte // the contract of the API
	Files   fs.FS  // has the folder web/, with the pages for viewers

	// Greeting gets the text for the operator at the start. It contains the API key of the first
	// account, which must not be logged.
	Greeting io.Writer
	Log      *os.File
}

type server struct {
	o       Options
	cfg     *config.Config
	log     *slog.Logger
	version Version
	closers []func() // of the parts, in the order in which they were opened

	metrics    *metrics
	tracer     *tracer // nil = no spans
	nodeID     string
	secret     []byte // the master secret
	store      *store.Store
	media      blob.Store
	guard      *guard.Guard
	identity   ucan.Identity
	did        string
	ipfs       config.IPFSRemote
	kubo       ipfs.Remote // nil = there is none
	signer     *publish.Signer
	c2paRoot   []byte // PEM; nil = it is not known
	accounts   *account.Accounts
	first      account.First
	firstStart bool // the first account was made now
	sender     *webhook.Sender
	gate       *access.Gate
	encryption *access.Encryption
	peers      *playback.Peers // client for other nodes
	engine     *ffmpeg.Engine  // nil = this node runs neither live nor work
	hub        *live.Hub       // nil = this node does not run live
	push       *push.Manager   // nil = this node does not run live
	budget     *budget.Budget
	admission  *ingest.Admission // of encoders
	webrtc     *rtc.Server       // nil = no WebRTC
	whip       *rtc.Endpoint     // nil = no WebRTC
	work       *work.Work        // nil = this node does not run work
	clips      *work.Clips
	playback   *playback.Server
	http       *httpServer
	written    writeCheck
}

// Run is `weir serve`. It makes the parts, runs them until ctx ends, and waits for them.
func Run(ctx context.Context, cfg *config.Config, o Options) error {
	log, flush := newLogger(o.Log, cfg.LogLevel)
	defer flush()
	v := ReadVersion()
	s := &server{o: o, cfg: cfg, log: log, version: v, metrics: newMetrics(v), guard: guard.New(cfg.AllowNetworks)}
	s.guard.Log = s.logger("guard")
	defer s.close()
	for _, open := range []func(context.Context) error{
		s.openNode,
		s.openTracer,
		s.openStore,
		s.openBudget,
		s.openMedia,
		s.openAccounts,
		s.openIPFS,
		s.openSigner,
		s.openAccess,
		s.openPeers,
		s.openEngine,
		s.openLive,
		s.openWebRTC,
		s.openWork,
		s.openPlayback,
		s.openHTTP,
	} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	s.addMetrics()
	return s.run(ctx)
}

// run runs the parts until ctx ends or one of them fails.
func (s *server) run(ctx context.Context) error {
	// The store and the count of viewers are needed until the last job and the last request have
	// ended.
	until, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var last errgroup.Group
	last.Go(func() error {
		return s.store.Run(until, store.Retention{
			Events: s.cfg.EventRetention, Credentials: credentialsKept, Health: s.cfg.HealthRetention, Views: s.cfg.ViewRetention,
		})
	})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return runOps(ctx, s.cfg.Ops, opsHandler(s.metrics), s.budget, s.log) })
	g.Go(func() error { return returnMemory(ctx, s.onAir) })
	if s.work != nil {
		g.Go(func() error { return s.work.Run(ctx) })
		g.Go(func() error { return s.sender.Run(ctx) })
	}
	if s.hub != nil {
		g.Go(func() error { return s.runLive(ctx) })
	}
	if s.hub != nil && s.work == nil {
		g.Go(func() error { return s.runLiveJobs(ctx) })
	}
	if s.listens() {
		last.Go(func() error { return s.playback.Run(until) })
		g.Go(func() error { return s.runHTTP(ctx) })
	}
	err := g.Wait()
	end()
	return errors.Join(err, last.Wait())
}

// openBudget divides the connections that this process can have.
func (s *server) openBudget(context.Context) (err error) {
	s.budget, err = budget.New(budget.Options{
		Connections: s.cfg.MaxConnections, PerAddress: s.cfg.MaxConnectionsPerAddress,
		TrustedProxies: s.cfg.TrustedProxies, Log: s.logger("budget"),
	})
	return err
}

// logger returns the logger of a part of the service.
func (s *server) logger(name string) *slog.Logger { return s.log.With("part", name) }

// onClose adds a function that close calls.
func (s *server) onClose(closer func()) { s.closers = append(s.closers, closer) }

// close closes the parts, the last one first.
func (s *server) close() {
	for _, closer := range slices.Backward(s.closers) {
		closer()
	}
}

func (s *server) openStore(ctx context.Context) (err error) {
	s.store, err = store.Open(ctx, s.cfg.Database.Reveal(), store.Options{
		Secret: s.secret, NodeID: s.nodeID, Log: s.logger("store"),
		Adopt:  s.sharedStorage() && (s.cfg.Runs(config.Live) || s.cfg.Runs(config.Work)),
		Report: s.report,
		Stale:  s.cfg.Stale,
	})
	if err != nil {
		return err
	}
	s.onClose(s.store.Close)
	return nil
}

// report returns what this node says about itself.
func (s *server) report() weir.NodeReport {
	r := weir.NodeReport{Version: s.version.Tag, Runs: s.cfg.Parts, Cores: runtime.NumCPU()}
	if free, keep, err := blob.Room(s.cfg.Data, s.cfg.MinFree); err == nil {
		r.DiskFree, r.DiskKeep = free, keep
	}
	return r
}

func (s *server) openMedia(context.Context) (err error) {
	o := blob.Options{Log: s.logger("blob"), Observe: s.metrics.observeBucket}
	if dir, local := s.cfg.MediaDir(); local {
		o.FreeSpace = func(need int64) error { return blob.ReserveAt(dir, s.cfg.MinFree, need) }
	}
	s.media, err = blob.Open(s.cfg.Storage.Reveal(), o)
	if err != nil {
		return fmt.Errorf("--storage: %w", err)
	}
	s.onClose(func() { _ = s.media.Close() })
	return nil
}

// sharedStorage reports whether other nodes use the same storage.
func (s *server) sharedStorage() bool {
	_, local := s.cfg.MediaDir()
	return !local
}

// openAccess makes the sender of webhooks and the access control of playback.
func (s *server) openAccess(ctx context.Context) (err error) {
	s.sender = webhook.New(s.store, s.guard, s.version.Tag, s.logger("webhook"))
	s.sender.Drain = s.cfg.Drain
	s.gate = access.New(s.store, s.sender, s.logger("access"))
	s.encryption, err = access.OpenEncryption(ctx, s.store)
	return err
}

// openEngine makes the engine of ffmpeg, for tasks and for the renditions of live streams.
func (s *server) openEngine(ctx context.Context) (err error) {
	if !s.cfg.Runs(config.Live) && !s.cfg.Runs(config.Work) {
		return nil
	}
	s.engine, err = ffmpeg.New(ffmpeg.Options{
		Sandbox: ffmpeg.Mode(s.cfg.Sandbox), Cores: s.cfg.Workers, Speed: s.cfg.SpeedFile(),
		Log: s.logger("ffmpeg"),
	})
	if err != nil {
		return err
	}
	// A sandbox that does not work must be noticed now, and not by the first task.
	if _, err := s.engine.Capabilities(ctx); err != nil {
		return fmt.Errorf("ffmpeg can't be used (for details, run weir doctor): %w", err)
	}
	if warning := s.engine.Unconfined(ffmpeg.ReadKernel()); warning != "" {
		s.log.Warn(warning)
	}
	return nil
}
