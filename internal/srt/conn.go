package srt

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	gosrt "github.com/datarhei/gosrt"
	"github.com/datarhei/gosrt/circular"
	"github.com/datarhei/gosrt/packet"
	"golang.org/x/time/rate"

	"weir/internal/weir"
)

const (
	// queueLength is how many packets may wait for the reader, beside a thousand in the library:
	// more than a second of 50 Mbit/s, for a slow disk. Further packets are lost.
	queueLength = 4096
	// maxAhead is how many packets may wait for their delivery time: five seconds of 35 Mbit/s. The
	// library iterates over all of them a hundred times a second.
	maxAhead = 1 << 14
	// checkEvery is the interval of checks of that limit and of idleTimeout.
	checkEvery = 250 * time.Millisecond
	// After the peer has ended the connection, drainEvery is the interval of checks whether
	// everything was delivered. That may take drainMore longer than the latency.
	drainEvery = 10 * time.Millisecond
	drainMore  = 500 * time.Millisecond

	// The maximum rate of sending: the library drops what it can't queue.
	maxRate  = 32 << 20 // bytes a second
	maxBurst = 512 << 10
	// A connection is closed after the peer's latency and lingerMore, but no later than maxLinger.
	lingerMore = 200 * time.Millisecond
	maxLinger  = 2 * time.Second
)

// Conn is a connection. One goroutine may read and another one write.
type Conn struct {
	conn     gosrt.Conn
	hooks    *hooks
	maxAhead int
	received chan packet.Packet
	over     chan struct{} // closed when receiving has ended
	closing  sync.Once
	alive    atomic.Uint64 // keep-alives of the peer

	shutdown, finished         chan struct{} // closed when the peer has ended the connection; when reading has ended
	noteShutdown, noteFinished func()

	// Of the reader.
	check   *time.Ticker
	drainBy time.Time // zero = the peer has not ended the connection
	packet  packet.Packet
	rest    []byte // of the packet
	read    uint64 // packets
	next    circular.Number
	lost    bool

	pace  *rate.Limiter
	wrote atomic.Bool
}

func newConn(h *hooks, maxAhead int) *Conn {
	c := &Conn{
		hooks: h, maxAhead: maxAhead, received: make(chan packet.Packet, queueLength),
		shutdown: make(chan struct{}), finished: make(chan struct{}), over: make(chan struct{}), pace: rate.NewLimiter(maxRate, maxBurst),
	}
	c.noteShutdown = sync.OnceFunc(func() { close(c.shutdown) })
	c.noteFinished = sync.OnceFunc(func() { close(c.finished) })
	return c
}

func (c *Conn) start(conn gosrt.Conn) {
	c.conn, c.check = conn, time.NewTicker(checkEvery)
	go func() {
		defer close(c.over)
		defer close(c.received)
		for {
			p, err := conn.ReadPacket()
			if err != nil {
				return
			}
			select {
			case c.received <- p:
			case <-c.finished:
				return
			}
		}
	}()
	go c.watch()
}

// watch closes the connection when the peer was silent for idleTimeout. It counts ticks, so a pause
// of this process is no silence: what the peer has sent meanwhile waits in the kernel.
func (c *Conn) watch() {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	var heard uint64
	for silent := time.Duration(0); silent < idleTimeout; {
		select {
		case <-c.over:
			return
		case <-ticker.C:
		}
		if now := c.heard(); now != heard {
			heard, silent = now, 0
		} else {
			silent += checkEvery
		}
	}
	_ = c.conn.Close()
}

// heard counts what has come from the peer. Each side sends a keep-alive every second in which it
// sends nothing else.
func (c *Conn) heard() uint64 {
	n := c.stats().Accumulated
	return c.alive.Load() + n.PktRecv + n.PktRecvACK + n.PktRecvNAK
}

// Ended reports whether the peer has ended the connection. If not, it was lost.
func (c *Conn) Ended() bool {
	select {
	case <-c.shutdown:
		return true
	default:
		return false
	}
}

// Latency returns how long packets wait before they are delivered.
func (c *Conn) Latency() time.Duration {
	return time.Duration(c.stats().Instantaneous.MsRecvTsbPdDelay) * time.Millisecond
}

func (c *Conn) stats() (s gosrt.Statistics) {
	c.conn.Stats(&s)
	return s
}

// Read returns bytes of one packet. It returns io.EOF when the peer has ended the connection, when
// the connection was lost, and after Close.
func (c *Conn) Read(b []byte) (int, error) {
	c.lost = false
	for len(c.rest) == 0 {
		if err := c.nextPacket(); err != nil {
			c.noteFinished()
			return 0, err
		}
	}
	n := copy(b, c.rest)
	if c.rest = c.rest[n:]; len(c.rest) == 0 {
		c.packet.Decommission()
	}
	return n, nil
}

// Lost reports whether packets are missing before what the last Read returned.
func (c *Conn) Lost() bool { return c.lost }

func (c *Conn) nextPacket() error {
	shutdown := c.shutdown
	if !c.drainBy.IsZero() {
		shutdown = nil
	}
	for {
		select {
		case p, ok := <-c.received:
			if !ok {
				return io.EOF
			}
			number := p.Header().PacketSequenceNumber
			c.lost = c.lost || c.read > 0 && !number.Equals(c.next)
			c.next = number.Inc()
			c.read++
			c.packet, c.rest = p, p.Data()
			return nil
		case <-shutdown:
			shutdown = nil
			c.drainBy = time.Now().Add(c.Latency() + drainMore)
			c.check.Reset(drainEvery)
		case now := <-c.check.C:
			stats := c.stats()
			switch waiting := stats.Instantaneous.PktRecvBuf; {
			case waiting > uint64(c.maxAhead):
				return weir.Errorf(weir.Invalid, "more than %d packets wait for their time; "+
					"set a lower latency at the encoder", c.maxAhead)
			case c.drainBy.IsZero():
			case now.After(c.drainBy), waiting == 0 && c.read >= stats.Accumulated.PktRecvUnique:
				return io.EOF
			}
		case <-c.finished:
			return io.EOF
		}
	}
}

// Write sends bytes, seven packets of MPEG-TS at a time.
func (c *Conn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	n := 0
	for n < len(b) {
		some := b[n:min(n+payloadSize, len(b))]
		time.Sleep(c.pace.ReserveN(time.Now(), len(some)).Delay()) // moments, after a burst
		if _, err := c.conn.Write(some); err != nil {
			return n, err
		}
		n += len(some)
	}
	return n, nil
}

// Close ends the connection. It waits, up to seconds, until the peer has got what was written. A
// Read of a connection without writes returns at once.
func (c *Conn) Close() error {
	c.closing.Do(func() {
		if c.wrote.Load() {
			// The peer delivers packets after its latency, and drops the rest when the connection
			// ends.
			latency := time.Duration(c.stats().Instantaneous.MsSendTsbPdDelay) * time.Millisecond
			select {
			case <-c.over:
			case <-time.After(min(latency+lingerMore, maxLinger)):
			}
		}
		c.noteFinished()
		_ = c.conn.Close()
		<-c.over
		c.check.Stop()
		c.hooks.register(c.conn.SocketId(), nil)
	})
	return nil
}
