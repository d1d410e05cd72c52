package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"weir/internal/blob"
	"weir/internal/config"
	"weir/internal/ingest"
	"weir/internal/live"
	"weir/internal/push"
	"weir/internal/weir"
)

// openLive makes the hub of live streams (their sessions, renditions and recordings), and the manager of
// multistream targets.
func (s *server) openLive(ctx context.Context) (err error) {
	if !s.cfg.Runs(config.Live) {
		return nil
	}
	o := live.Options{
		Store: s.store, Dir: s.cfg.LiveDir(), Node: s.nodeID, FFmpeg: s.engine,
		SessionTimeout: s.cfg.SessionTimeout, PartDuration: s.cfg.PartDuration, Log: s.logger("live"),
		Space: func() (left live.Space, err error) {
			left.Free, left.Keep, err = blob.Room(s.cfg.Data, s.cfg.MinFree)
			return left, err
		},
		Targets:   func(sessionID string) ([]weir.TargetHealth, []string) { return s.push.Targets(sessionID) },
		Release:   s.askToRelease,
		Published: s.metrics.observePart,
	}
	if s.sharedStorage() {
		o.Upload = s.media
	}
	if s.hub, err = live.New(ctx, o); err != nil {
		return err
	}
	s.admission = ingest.NewAdmission(s.budget, s.logger("ingest"))
	s.push = push.New(push.Options{OnAir: s.hub, Store: s.store, Guard: s.guard, Log: s.logger("push")})
	return nil
}

// onAir returns the number of live streams on this node.
func (s *server) onAir() int64 {
	if s.hub == nil {
		return 0
	}
	return s.hub.Stats().OnAir
}

// runLive accepts streams until ctx ends: from encoders that connect, and from sources that are pulled. The
// hub and the multistream run until the last connection of an encoder is closed.
func (s *server) runLive(ctx context.Context) error {
	secure, err := TLSConfig(s.cfg)
	if err != nil {
		return err
	}
	until, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var last errgroup.Group
	last.Go(func() error { return s.hub.Run(until) })
	last.Go(func() error { return s.push.Run(until) })
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.runRTMP(ctx, "--rtmp", s.cfg.RTMP, nil) })
	g.Go(func() error { return s.runRTMP(ctx, "--rtmps", s.cfg.RTMPS, secure) })
	g.Go(func() error { return s.runSRT(ctx) })
	puller := ingest.Puller{Hub: s.hub, Guard: s.guard, Budget: s.budget, Log: s.logger("ingest")}
	g.Go(func() error { return puller.Run(ctx) })
	if s.whip != nil {
		g.Go(func() error {
			<-ctx.Done()
			s.whip.Close()
			return nil
		})
	}
	err = g.Wait()
	end()
	return errors.Join(err, last.Wait())
}

// runRTMP accepts streams over RTMP, or over RTMPS if secure is not nil. An empty address is off.
func (s *server) runRTMP(ctx context.Context, flag, addr string, secure *tls.Config) error {
	if addr == "" {
		return nil
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	listener = s.budget.Ingest(listener)
	if secure != nil {
		listener = tls.NewListener(listener, secure)
	}
	rtmp := &ingest.RTMP{Listener: listener, Hub: s.hub, Admission: s.admission, Log: s.logger("ingest")}
	return rtmp.Run(ctx)
}

// runSRT accepts streams over SRT. An empty address is off.
func (s *server) runSRT(ctx context.Context) error {
	if s.cfg.SRT == "" {
		return nil
	}
	srt := ingest.SRT{
		Addr: s.cfg.SRT, Passphrase: s.cfg.SRTPassphrase, Hub: s.hub, Admission: s.admission,
		Log: s.logger("ingest"),
	}
	if err := srt.Run(ctx); err != nil {
		return fmt.Errorf("--srt: %w", err)
	}
	return nil
}
