// Package guard makes all connections to addresses from callers: inputs, storage, webhooks,
// multistream targets, pull sources, and each redirect of any of them.
//
// Such an address may be that of a machine that only weir can reach: the database beside it, the
// metadata service of the cloud, a printer. So a Guard connects only to public unicast addresses,
// and to the networks of --allow-networks. It checks the address of the connection and not the name
// in the URL: the check runs after DNS, on each address that the dialer connects to, so a name that
// resolves to another address later does no harm.
//
// Use Client for HTTP, DialContext for other protocols, and Resolve for UDP and for libraries that
// dial by themselves: give those the address and not the name. The table of refused addresses is in
// address.go.
package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"weir/internal/weir"
)

const (
	maxRedirects     = 10
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 90 * time.Second
	maxHeaderBytes   = 256 << 10
	maxIdlePerHost   = 16 // many files are sent to a storage at the same time
)

// Guard connects to public addresses and to allowed networks. It is safe for concurrent use.
type Guard struct {
	// Log gets the addresses of the names that the Guard refuses, which callers must not see; nil = none
	// does. It is set before the Guard is used.
	Log *slog.Logger

	allow     []netip.Prefix
	resolver  *net.Resolver
	transport *http.Transport
}

// New returns a Guard that also connects to the networks of allow.
func New(allow []netip.Prefix) *Guard {
	g := &Guard{allow: slices.Clone(allow), resolver: net.DefaultResolver}
	g.transport = &http.Transport{
		// A proxy would connect to addresses that we must not. Pooled connections were checked when
		// they were made.
		Proxy:                  nil,
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           100,
		MaxIdleConnsPerHost:    maxIdlePerHost,
		IdleConnTimeout:        idleTimeout,
		TLSHandshakeTimeout:    handshakeTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return g
}

// Client returns an HTTP client with a timeout, which includes reading the response; 0 = only that
// of the request's context. All clients of one Guard share its connections.
//
// Like every error of an http.Client, its errors contain the URL, which may have credentials: show
// or log the result of errors.Unwrap.
func (g *Guard) Client(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     webOnly{g.transport},
		CheckRedirect: checkRedirect,
		Timeout:       timeout,
	}
}

// webOnly refuses every request and redirect that is not HTTP.
type webOnly struct {
	transport *http.Transport
}

func (w webOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if s := r.URL.Scheme; s != "http" && s != "https" {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, weir.Errorf(weir.Invalid, "the scheme %q is not supported; use http or https", s)
	}
	return w.transport.RoundTrip(r)
}

// CloseIdleConnections is called by the method of the client.
func (w webOnly) CloseIdleConnections() { w.transport.CloseIdleConnections() }

func checkRedirect(r *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return weir.Errorf(weir.Invalid, "%s redirects more than %d times", via[0].URL.Hostname(), maxRedirects)
	}
	// The query of the URL before may have a token, which the next host must not get.
	r.Header.Del("Referer")
	return nil
}

// DialContext connects to address, a host and a port, over a network of the tcp or
// the udp family. All allowed addresses of the host are tried; if there is none,
// the error has a *BlockedError in its chain.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	switch network {
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
	default:
		return nil, fmt.Errorf("network %q is not supported", network)
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{
		Timeout:  dialTimeout,
		Resolver: g.resolver,
		Control: func(_, resolved string, _ syscall.RawConn) error {
			return g.check(host, resolved)
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if missing(err) {
		return nil, &BlockedError{Host: host}
	}
	return conn, err
}

// missing reports whether a lookup has shown that a name does not exist.
func missing(err error) bool {
	dns, ok := errors.AsType[*net.DNSError](err)
	return ok && dns.IsNotFound
}

// Resolve returns an allowed address of host, a name or an address. Connect to it instead of the
// name: another lookup could give another address. If host has no allowed address, the error is a
// *BlockedError.
func (g *Guard) Resolve(ctx context.Context, host string) (netip.Addr, error) {
	addrs, err := g.lookup(ctx, host)
	if err != nil {
		return netip.Addr{}, err
	}
	var blocked error
	for _, addr := range addrs {
		addr = addr.Unmap()
		err := g.checkAddr(host, addr)
		if err == nil {
			return addr, nil
		}
		if blocked == nil {
			blocked = err
		}
	}
	return netip.Addr{}, blocked
}

// CheckHost refuses a host that is an address which is not allowed. It makes no lookup: names are
// checked when they are connected to.
func (g *Guard) CheckHost(host string) error {
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return nil
	}
	return g.checkAddr(host, addr)
}

// lookup returns the addresses of host, at least one.
func (g *Guard) lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}, nil
	}
	addrs, err := g.resolver.LookupNetIP(ctx, "ip", host)
	if missing(err) || err == nil && len(addrs) == 0 {
		return nil, &BlockedError{Host: host}
	}
	if err != nil {
		return nil, weir.Wrap(weir.Upstream, err, "the DNS lookup of host %s failed", host)
	}
	return addrs, nil
}

// check is checkAddr for an address with a port.
func (g *Guard) check(host, resolved string) error {
	addrPort, err := netip.ParseAddrPort(resolved)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	return g.checkAddr(host, addrPort.Addr())
}

// checkAddr returns nil if addr may be connected to, else a *BlockedError.
func (g *Guard) checkAddr(host string, addr netip.Addr) error {
	if classify(addr) == nil {
		return nil
	}
	plain, embedded := addr.Unmap(), destination(addr)
	allowed := func(p netip.Prefix) bool { return p.Contains(plain) || p.Contains(embedded) }
	if addr.Zone() == "" && slices.ContainsFunc(g.allow, allowed) {
		return nil
	}
	blocked := &BlockedError{Host: host, Addr: plain}
	if g.Log != nil && !blocked.Literal() {
		g.Log.Info("connection to a non-public address refused", "host", host, "address", plain)
	}
	return blocked
}

// BlockedError means that weir does not connect to the address of a host, or that the name of the host
// does not exist. As an error of kind weir.Invalid it may be shown to the caller: it has the address only
// if the caller wrote it, because what names there are inside the operator's network, and what they
// resolve to, is not the caller's business.
type BlockedError struct {
	Host string     // as the caller gave it
	Addr netip.Addr // zero if the name does not exist
}

// Literal reports whether the caller gave the address, not a name.
func (e *BlockedError) Literal() bool {
	addr, err := netip.ParseAddr(e.Host)
	return err == nil && addr.Unmap() == e.Addr
}

func (e *BlockedError) Error() string {
	if !e.Literal() {
		return "host " + e.Host + " has no public address; check its name, or if it is in a private network, start weir with --allow-networks and that network"
	}
	c := classify(e.Addr)
	switch {
	case c == nil:
		return e.Host + " is blocked"
	case !c.network.IsValid():
		return fmt.Sprintf("%s %s and can't be used", e.Host, c.is)
	default:
		return fmt.Sprintf("%s %s; start weir with --allow-networks %s to allow it", e.Host, c.is, c.network)
	}
}

// Unwrap makes it an error that callers may see.
func (e *BlockedError) Unwrap() error { return weir.Errorf(weir.Invalid, "%s", e.Error()) }
