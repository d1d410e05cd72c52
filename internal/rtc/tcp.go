package rtc

import (
	"net"
	"net/netip"
	"sync"

	"github.com/pion/webrtc/v4"

	"weir/internal/budget"
)

// tcpListener knows its connections by the addresses of the peers: pion does not say which connection a
// peer uses, but its address.
type tcpListener struct {
	net.Listener

	mu    sync.Mutex
	conns map[netip.AddrPort]*tcpConn
}

// tcpConn is a connection of a peer over TCP.
type tcpConn struct {
	net.Conn
	listener *tcpListener
	remote   netip.AddrPort
}

// Accept waits for the next connection.
func (l *tcpListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	at := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	c := &tcpConn{conn, l, netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[c.remote] = c
	return c, nil
}

// NetConn returns the connection below.
func (c *tcpConn) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *tcpConn) Close() error {
	c.listener.mu.Lock()
	if c.listener.conns[c.remote] == c {
		delete(c.listener.conns, c.remote)
	}
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// markUsed notes which connection a peer uses: nobody takes its place then.
func (l *tcpListener) markUsed(p *peer, remote *webrtc.ICECandidate) {
	if l == nil || remote == nil || remote.Protocol != webrtc.ICEProtocolTCP {
		return
	}
	addr, err := netip.ParseAddr(remote.Address)
	if err != nil {
		return
	}
	l.mu.Lock()
	c := l.conns[netip.AddrPortFrom(addr.Unmap(), remote.Port)]
	l.mu.Unlock()
	switch {
	case c == nil:
	case p.place == nil: // it publishes, and its stream has a descriptor for it
		budget.Of(c).Leave()
	default:
		budget.Of(c).Busy()
	}
}
