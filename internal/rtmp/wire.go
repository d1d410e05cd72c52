package rtmp

import (
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"weir/internal/codec"
)

const (
	// Timeouts of the other end: for the handshake, from then to the first media, without a byte
	// after that, without media although bytes arrive, and for closing the connection.
	handshakeTime  = 10 * time.Second
	firstMediaTime = 10 * time.Second
	idleTime       = 10 * time.Second
	noMediaTime    = 30 * time.Second
	closeTime      = 2 * time.Second
	// lastSecond is the end of idleTime and noMediaTime, in which one more read is tried: after a
	// pause of this process the deadline has passed although media waits in the kernel.
	lastSecond = time.Second

	// maxBeforeKey is the maximum number of bytes before a stream key is accepted. The handshake
	// takes 3 KiB of them.
	maxBeforeKey = 64 << 10
	// maxCommand is the maximum size of a command or of the metadata.
	maxCommand = 32 << 10
	// maxMessage is the maximum size of a message with media.
	maxMessage = codec.MaxFrame
	// A server that receives a stream may send maxReplies bytes, and one more for each replyShare
	// bytes that it gets: it only has to acknowledge them.
	maxReplies = 256 << 10
	replyShare = 256
	// maxDrain is the maximum number of bytes that are read from an encoder after it was refused.
	maxDrain = 1 << 20

	bufferSize   = 16 << 10
	ourChunkSize = 64 << 10
)

// wire reads and writes the bytes of a connection. It limits the time of each step, and the bytes
// that the other end may send.
type wire struct {
	conn      net.Conn
	until     time.Time // end of the current step; zero = media flows
	lastMedia time.Time // when media was received; zero = none is expected
	overdue   bool      // the last second without media has begun
	deadline  time.Time // of the connection
	limit     uint64    // bytes that the other end may send; 0 = any number
	share     uint64    // it may send one more for each share bytes that it got; 0 = it may not
	received  uint64
	sent      atomic.Int64
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.read(p)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && w.flows() && !w.overdue {
		w.overdue, w.lastMedia = true, time.Now().Add(2*lastSecond-noMediaTime)
		return w.read(p)
	}
	return n, err
}

// flows reports whether media is expected all the time.
func (w *wire) flows() bool { return w.until.IsZero() && !w.lastMedia.IsZero() }

// tookMedia notes that media was received.
func (w *wire) tookMedia() {
	w.until, w.lastMedia, w.overdue = time.Time{}, time.Now(), false
}

func (w *wire) read(p []byte) (int, error) {
	until := w.until
	if w.flows() {
		until = time.Now().Add(idleTime)
		// Without media, single bytes do not keep a connection open.
		if end := w.lastMedia.Add(noMediaTime); end.Before(until) {
			until = end
		}
		until = until.Add(-lastSecond)
	}
	// Setting a deadline costs almost as much as a short read, so it may be a second early.
	if ahead := until.Sub(w.deadline); ahead < 0 || ahead >= time.Second {
		if err := w.conn.SetReadDeadline(until); err != nil {
			return 0, err
		}
		w.deadline = until
	}
	n, err := w.conn.Read(p)
	w.received += uint64(n)
	switch {
	case w.limit == 0:
	case w.share == 0 && w.received > w.limit:
		return n, LimitError(fmt.Sprintf("more than %d bytes without a stream key", w.limit))
	case w.share > 0 && w.received > w.limit+uint64(w.sent.Load())/w.share:
		return n, LimitError("more data than a server that receives a stream needs to send")
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(idleTime)); err != nil {
		return 0, err
	}
	n, err := w.conn.Write(p)
	w.sent.Add(int64(n))
	return n, err
}
