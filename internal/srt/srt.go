// Package srt carries bytes over SRT, both ways.
//
// [Dial] calls the peer of a URL (dial.go). [Listen] waits for callers: each is a [Request] that is
// accepted or rejected (listen.go), with a stream key in its stream id (streamid.go). Both result
// in a [Conn] (conn.go), which reads and writes bytes; weir sends MPEG-TS.
//
// This package is the only one that uses the SRT library. It adds what the library lacks: a longer
// receive queue, a shutdown that delivers what has arrived, a limit of buffered packets, a limit of
// the sending rate, and a timeout that does not count pauses of this process.
package srt

import (
	"sync"
	"time"

	gosrt "github.com/datarhei/gosrt"
)

const (
	// dialTimeout is how long a peer that is called may take to answer.
	dialTimeout = 5 * time.Second
	// idleTimeout is how long a peer may be silent. Peers send a keep-alive every second. Packets
	// that wait for their delivery time are lost when the connection ends, so the timeout is longer
	// than usual latencies.
	idleTimeout = 5 * time.Second
	// libraryTimeout keeps the library's own timeout, which counts pauses of this process, out of
	// the way: see Conn.watch.
	libraryTimeout = 24 * time.Hour
	// payloadSize is the size of a packet: seven packets of MPEG-TS, which every receiver accepts.
	payloadSize = 7 * 188
	// readerInterval is how often the library's reader of a caller's socket checks whether the
	// connection has ended, with a margin.
	readerInterval = 3100 * time.Millisecond
)

// config returns the options that all connections share.
func (h *hooks) config() gosrt.Config {
	c := gosrt.DefaultConfig()
	c.ConnectionTimeout, c.PeerIdleTimeout = dialTimeout, libraryTimeout
	c.PayloadSize = payloadSize
	c.Logger = h
	return c
}

// hooks is a logger of the library: the library has no other hooks. It knows connections by the ids
// of their sockets. The library calls only Print.
type hooks struct {
	gosrt.Logger

	mu    sync.Mutex
	conns map[uint32]*Conn
}

func newHooks() *hooks { return &hooks{conns: map[uint32]*Conn{}} }

// register notes the connection of a socket; nil = none.
func (h *hooks) register(socket uint32, c *Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c == nil {
		delete(h.conns, socket)
	} else {
		h.conns[socket] = c
	}
}

// conn returns the connection of a socket; nil = none.
func (h *hooks) conn(socket uint32) *Conn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[socket]
}

// Print is called at each step of the library, which waits for it.
func (h *hooks) Print(topic string, socket uint32, _ int, message func() string) {
	switch topic {
	case "control:recv:shutdown:dump":
		// The peer ends the connection. After this call, the library drops what it has received and
		// not delivered yet, so it has to be read first.
		if c := h.conn(socket); c != nil {
			c.noteShutdown()
			<-c.finished
		}
	case "control:recv:keepalive:dump":
		if c := h.conn(socket); c != nil {
			c.alive.Add(1)
		}
	case "dial":
		// The reader of the socket never ends if the socket is closed before it has seen the end of
		// the connection.
		if message() == "closing socket" {
			time.Sleep(readerInterval)
		}
	}
}
