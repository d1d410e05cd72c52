package srt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	gosrt "github.com/datarhei/gosrt"
)

// MaxLatency is the maximum latency in a URL.
const MaxLatency = 8 * time.Second

// Errors of Dial, beside those of resolve. None repeats a part of the URL, which may be secret.
var (
	ErrURL     = errors.New("the URL is not of the form srt://host:port?streamid=…")
	ErrMode    = errors.New("the mode in the URL is not caller")
	ErrLatency = errors.New("the latency in the URL is not a number of milliseconds up to MaxLatency")
	ErrOptions = errors.New("a passphrase has 10 to 80 characters, pbkeylen is 16, 24 or 32, streamid has at most 512 characters")
	ErrConnect = errors.New("the peer did not take the call")
)

// Resolver returns the address of a host.
type Resolver func(ctx context.Context, host string) (netip.Addr, error)

// Dial connects to a URL of the form srt://host:port?streamid=…, with passphrase, pbkeylen and
// latency, in milliseconds, as further options.
func Dial(ctx context.Context, url string, resolve Resolver) (*Conn, error) {
	hooks := newHooks()
	host, port, config, err := parse(url, hooks.config())
	if err != nil {
		return nil, err
	}
	addr, err := resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	conn, err := gosrt.DialWithContext(ctx, "srt", net.JoinHostPort(addr.String(), port), config)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("%w: %w", ErrConnect, err)
	}
	c := newConn(hooks, maxAhead)
	hooks.register(conn.SocketId(), c)
	c.start(conn)
	return c, nil
}

// parse adds the options of a URL to a configuration.
func parse(raw string, config gosrt.Config) (host, port string, _ gosrt.Config, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", "", config, ErrURL
	}
	host, port = u.Hostname(), u.Port()
	number, err := strconv.ParseUint(port, 10, 16)
	query, queryErr := url.ParseQuery(u.RawQuery)
	if err != nil || queryErr != nil || host == "" || number == 0 {
		return "", "", config, ErrURL
	}
	if mode := query.Get("mode"); mode != "" && mode != "caller" {
		return "", "", config, ErrMode
	}
	config.StreamId, config.Passphrase = query.Get("streamid"), query.Get("passphrase")
	if text := query.Get("pbkeylen"); text != "" {
		if config.PBKeylen, err = strconv.Atoi(text); err != nil {
			return "", "", config, ErrURL
		}
	}
	if text := query.Get("latency"); text != "" {
		ms, err := strconv.Atoi(text)
		if err != nil || ms < 0 || ms > int(MaxLatency.Milliseconds()) {
			return "", "", config, ErrLatency
		}
		config.Latency = time.Duration(ms) * time.Millisecond
	}
	if config.Validate() != nil { // its text may repeat a secret
		return "", "", config, ErrOptions
	}
	return host, port, config, nil
}
