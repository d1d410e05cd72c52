package budget

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// HTTP returns a listener whose connections are without a good key until [Authenticated].
func (b *Budget) HTTP(l net.Listener) net.Listener { return &listener{l, b, b.anonymous} }

// Ingest returns a listener for encoders: a connection that shows a good stream key must leave the
// budget ([Conn.Leave]), and is not evicted from then on.
func (b *Budget) Ingest(l net.Listener) net.Listener { return &listener{l, b, b.waiting} }

// Peers returns a listener for WebRTC over TCP. A connection is evicted unless it is busy.
func (b *Budget) Peers(l net.Listener) net.Listener { return &listener{l, b, b.peers} }

// Ops returns a listener for metrics. It has places of its own, so that metrics are always answered.
func (b *Budget) Ops(l net.Listener) net.Listener { return &listener{l, b, b.ops} }

// listener accepts connections that have a place in a pool, and closes all others.
type listener struct {
	net.Listener
	budget *Budget
	pool   *Pool
}

// Accept waits for the next connection that gets a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		c := &Conn{TCPConn: tcp, budget: l.budget}
		c.place, err = l.pool.Enter(c.addrPort(), c.evict)
		l.budget.report()
		if err == nil {
			return c, nil
		}
		_ = tcp.Close()
	}
}

// Conn is a connection that has a place in a budget. It embeds *net.TCPConn, so that the kernel can
// still copy files to it. A nil Conn has no limits.
type Conn struct {
	*net.TCPConn
	budget *Budget

	mu      sync.Mutex
	place   *Place // nil = it is closed, or does not need a place any more
	active  bool   // requests run
	viewing int    // of these, those of Budget.Request
	good    bool   // one of them had a good key
}

// Of returns the connection of a listener of a budget, which may be below TLS; nil = it is none.
func Of(c net.Conn) *Conn {
	for {
		switch below := c.(type) {
		case *Conn:
			return below
		case interface{ NetConn() net.Conn }:
			c = below.NetConn()
		default:
			return nil
		}
	}
}

// evict closes the connection for another one. Its place is given to that one already.
func (c *Conn) evict() { _ = c.TCPConn.Close() }

func (c *Conn) addrPort() netip.AddrPort { return addrPort(c.RemoteAddr()) }

// addrPort returns the address of a client; none = it has no IP address.
func addrPort(a net.Addr) netip.AddrPort {
	if with, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return with.AddrPort()
	}
	return netip.AddrPort{}
}

// Close closes the connection and gives its place back.
func (c *Conn) Close() error {
	err := c.TCPConn.Close()
	c.Leave()
	return err
}

// Leave gives the place of the connection back. It stays open: its descriptor is one of those that
// [Budget.Stream] has taken.
func (c *Conn) Leave() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil {
		c.place.Leave()
		c.place = nil
	}
}

// Busy notes that the connection must not be evicted.
func (c *Conn) Busy() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place != nil {
		c.place.Busy()
	}
}

// setActive notes whether requests run. A connection whose last requests had no good key is one without.
func (c *Conn) setActive(active bool) {
	c.change(func() {
		if c.active && !active {
			if !c.good {
				c.move(c.budget.anonymous)
			}
			c.good = false
		}
		c.active = active
	})
}

// view counts requests that protect the connection.
func (c *Conn) view(n int) {
	c.change(func() { c.viewing += n })
}

func (c *Conn) authenticated() {
	c.change(func() {
		c.good = true
		c.move(c.budget.authenticated)
	})
}

// change changes what the connection does.
func (c *Conn) change(do func()) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.place == nil {
		return
	}
	do()
	switch {
	case c.viewing > 0, c.active && c.place.pool == c.budget.authenticated:
		c.place.Busy()
	case c.active:
		c.place.Active()
	default:
		c.place.Idle()
	}
}

// move gives the connection a place in another pool. If there is none, it keeps the one it has.
func (c *Conn) move(to *Pool) {
	if c.place.pool == to {
		return
	}
	place, err := to.try(c.addrPort(), c.evict, 0)
	if err != nil {
		return
	}
	c.place.Leave()
	c.place = place
}

type connKey struct{}

// WithConn returns a context that has the connection; it is a ConnContext of http.Server.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	if of := Of(c); of != nil {
		return context.WithValue(ctx, connKey{}, of)
	}
	return ctx
}

// connOf returns the connection of a context; nil = it has none.
func connOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// ConnState notes when a connection begins to answer a request and when it has; it is a ConnState of
// http.Server.
func ConnState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateActive:
		Of(c).setActive(true)
	case http.StateIdle: // the response was sent
		Of(c).setActive(false)
	}
}

// Authenticated notes that the credential of a request was found good: its connection gets a place
// among those of clients with a key, which others can't take. ctx is that of the request.
func Authenticated(ctx context.Context) { connOf(ctx).authenticated() }
