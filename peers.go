package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/ingest"
	"weir/internal/playback"
	"weir/internal/rtc"
	"weir/internal/weir"
)

// listens reports whether this node answers over HTTP: viewers and callers, or only other
// nodes about the streams that it carries.
func listens(cfg *Config) bool {
	return cfg.Runs(partAPI) || cfg.Runs(partLive) && cfg.HTTP != "" && cfg.NodeURL != ""
}

// announce tells the other nodes how they reach this one.
func (p *parts) announce(ctx context.Context, cfg *Config, port int, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := p.store.AnnounceURL(ctx, nodeURL(cfg, port)); err != nil {
		log.Warn("the other nodes hear later how they reach this one", "err", err)
	}
}

// nodeURL is how other nodes reach this one, which listens on a port.
func nodeURL(cfg *Config, port int) string {
	if cfg.NodeURL != "" {
		return cfg.NodeURL
	}
	host, _, _ := net.SplitHostPort(cfg.HTTP)
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = firstAddress()
	}
	scheme := "http"
	if cfg.TLSCert != "" || cfg.ACME != "" {
		scheme = "https"
	}
	return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(port))
}

// routeNodes adds what other nodes are answered with to their routes, and to those of
// viewers the offers of WebRTC, which may be for another node.
func (p *parts) routeNodes(viewers, nodes *http.ServeMux, cfg *Config, m *metrics, log *slog.Logger) {
	var here http.Handler
	nobody := p.accounts.Pages()
	if p.rtc != nil {
		p.whip = p.newWHIP(cfg, m, log)
		here = webRTC(p.whip, p.playback.WHEP())
		nobody = here
	}
	viewers.Handle(rtc.DoorPath, p.playback.Relay(nobody, p.playbackOf))
	nodes.Handle(playback.NodePath, p.peers.Only(p.playback.Node(here)))
	if p.hub != nil {
		nodes.Handle("GET "+sessionsForNodes, p.peers.Only(p.hub.Files(sessionsForNodes)))
	}
}

// sessionsForNodes is where nodes ask one another for the files of sessions.
const sessionsForNodes = playback.NodePath + "session/"

// askForFiles asks another node for files of sessions.
func (p *parts) askForFiles(ctx context.Context, node, path string) (io.ReadCloser, error) {
	gone := func(err error) error { return weir.Wrap(weir.Upstream, err, "node %s does not answer", node) }
	base, err := p.store.NodeURL(ctx, node)
	if weir.KindOf(err) == weir.NotFound {
		return nil, gone(err)
	}
	if err != nil {
		return nil, err
	}
	answer, err := p.peers.Do(ctx, http.MethodGet, base, sessionsForNodes+path, nil, nil)
	if err != nil {
		return nil, gone(err)
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	_ = answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusNotFound:
		return nil, weir.Errorf(weir.NotFound, "node %s does not have %s", node, path)
	case http.StatusTooManyRequests:
		return nil, weir.Errorf(weir.Busy, "node %s still writes the session", node)
	}
	return nil, gone(fmt.Errorf("it answers %d", answer.StatusCode))
}

// uploads returns the storage that recordings go to while they are made; nil = the storage
// is a disk of this machine.
func uploads(cfg *Config, media blob.Store) blob.Store {
	if !sharedStorage(cfg) {
		return nil
	}
	return media
}

// sharedStorage reports whether other nodes have the same storage.
func sharedStorage(cfg *Config) bool { return !strings.HasPrefix(cfg.Storage.Reveal(), "file:") }

// playbackOf returns what a stream is played under, given what stands in an address of
// WebRTC: its key, or that.
func (p *parts) playbackOf(ctx context.Context, id string) (string, error) {
	if !ingest.IsStreamKey(id) {
		return id, nil
	}
	stream, err := p.store.StreamByKey(ctx, weir.Secret(id))
	return stream.PlaybackID, err
}
