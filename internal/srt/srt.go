// Package srt carries bytes over SRT, both ways.
//
// [Dial] calls a peer that a URL names (dial.go). [Listen] waits for callers: each is a
// [Request] that is accepted or rejected (listen.go), and whose stream id has a stream key in it
// (streamid.go). Both end in a [Conn] (conn.go), which reads and writes bytes without a look at
// what they are; weir sends MPEG-TS.
//
// This package is the only one that knows the SRT library. What the library lacks is made up
// for here: a receive queue that is long enough, an end that delivers what has arrived, a limit
// on what a peer may make it keep, a pace of sending that it can take.
package srt

import (
	"sync"
	"time"

	gosrt "github.com/datarhei/gosrt"
)

const (
	// dialTimeout is how long a peer that is called may take to answer.
	dialTimeout = 5 * time.Second
	// idleTimeout is how long a peer may be silent. Peers send a keep-alive every second. What
	// waits for its delivery time is lost when the connection ends, so the timeout is longer
	// than the latency that is usual.
	idleTimeout = 5 * time.Second
	// payloadSize is that of a packet: seven packets of MPEG-TS, which every receiver takes.
	payloadSize = 7 * 188
	// readerInterval is how often the library's reader of a caller's socket looks whether the
	// connection is over, with a margin.
	readerInterval = 3100 * time.Millisecond
)

// config returns the options that all connections share.
func (h *hooks) config() gosrt.Config {
	c := gosrt.DefaultConfig()
	c.ConnectionTimeout, c.PeerIdleTimeout = dialTimeout, idleTimeout
	c.PayloadSize = payloadSize
	c.Logger = h
	return c
}

// hooks is a logger of the library, which is the only way to get in between its steps. It knows
// connections by the ids of their sockets. The library calls only Print.
type hooks struct {
	gosrt.Logger

	mu    sync.Mutex
	conns map[uint32]*Conn
}

func newHooks() *hooks { return &hooks{conns: map[uint32]*Conn{}} }

// enter notes which connection has a socket; nil = none.
func (h *hooks) enter(socket uint32, c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c == nil {
		delete(h.conns, socket)
	} else {
		h.conns[socket] = c
	}
}

// Print is called at each step of the library, which waits for it.
func (h *hooks) Print(topic string, socket uint32, _ int, message func() string) {
	switch topic {
	case "control:recv:shutdown:dump":
		// The peer ends the connection. The library would drop at once what it has received
		// and not delivered yet.
		h.mu.Lock()
		c := h.conns[socket]
		h.mu.Unlock()
		if c != nil {
			c.hearShutdown()
		}
	case "dial":
		// The reader of the socket never ends if the socket is closed before it has seen that
		// the connection is over.
		if message() == "closing socket" {
			time.Sleep(readerInterval)
		}
	}
}
