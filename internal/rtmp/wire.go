package rtmp

import (
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

const (
	// How long the other end may take: to agree on a stream, from then to the first media,
	// without a byte after that, without media although bytes come, and to close at the end.
	handshakeTime  = 10 * time.Second
	firstMediaTime = 10 * time.Second
	idleTime       = 10 * time.Second
	noMediaTime    = 30 * time.Second
	partingTime    = 2 * time.Second

	// maxBeforeKey is how many bytes an encoder may send before its stream key is accepted. The
	// handshake takes 3 KiB of them.
	maxBeforeKey = 64 << 10
	// maxCommand is how long a command or the metadata may be.
	maxCommand = 32 << 10
	// maxMessage is how long a message with media may be: more than a key frame of 4K at
	// 100 Mbit/s.
	maxMessage = 8 << 20
	// A server that takes a stream may send maxAnswers bytes, and one more for each answerShare
	// bytes that it gets: it only has to acknowledge them.
	maxAnswers  = 256 << 10
	answerShare = 256
	// maxParting is how much is read from an encoder that was told to go.
	maxParting = 1 << 20

	bufferSize   = 16 << 10
	ourChunkSize = 64 << 10
)

// wire reads and writes the bytes of a connection. The other end has a time limit for each
// step, and a limit of bytes.
type wire struct {
	conn      net.Conn
	until     time.Time // end of the present step; zero = media flows
	lastMedia time.Time // when media was received; zero = none is expected
	deadline  time.Time // that the connection has
	limit     uint64    // bytes that the other end may send; 0 = any number
	share     uint64    // it may send one more for each share of those it got; 0 = it may not
	received  uint64
	sent      atomic.Int64
}

func (w *wire) Read(p []byte) (int, error) {
	until := w.until
	if until.IsZero() && !w.lastMedia.IsZero() {
		until = time.Now().Add(idleTime)
		// A byte now and then does not keep a connection.
		if end := w.lastMedia.Add(noMediaTime); end.Before(until) {
			until = end
		}
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
		return n, LimitError("more than a server that takes a stream has to say")
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
