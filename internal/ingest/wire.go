package ingest

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	rtmp "github.com/bluenviron/gortmplib/pkg/message"

	"weir/internal/codec"
)

// wire is one end of an RTMP connection: what publishing to weir and pulling from others
// have in common.
type wire struct {
	conn   net.Conn
	in     *bufio.Reader
	chunks *chunkReader
	out    *rtmp.Writer

	until    time.Time // when the present step must be done; zero = when nothing comes
	heard    time.Time // when media came last
	deadline time.Time // that the connection knows of
	limit    uint64    // bytes that the other end may send without a stream key; 0 = it has one
	received uint64
	window   uint64 // bytes after which the other end wants to hear of them; 0 = never
	told     uint64 // how many it has heard of
	clock    unwrapper
}

// open makes the wire of a connection whose messages have a largest size.
func (w *wire) open(conn net.Conn, largest int) {
	w.conn = conn
	w.in = bufio.NewReaderSize(w, bufferSize)
	w.chunks = newChunkReader(w.in, largest)
	w.out = rtmp.NewWriter(w, bytecounter.NewWriter(w), false)
}

// Read reads from the other end within the time and the number of bytes that it has.
func (w *wire) Read(p []byte) (int, error) {
	until := w.until
	if until.IsZero() {
		until = time.Now().Add(idleTime)
		// Whoever sends a byte now and then is not there either.
		if end := w.heard.Add(noMediaTime); end.Before(until) {
			until = end
		}
	}
	// To set it costs almost as much as to read a little, so it may be a second early.
	if ahead := until.Sub(w.deadline); ahead < 0 || ahead >= time.Second {
		if err := w.conn.SetReadDeadline(until); err != nil {
			return 0, err
		}
		w.deadline = until
	}
	n, err := w.conn.Read(p)
	w.received += uint64(n)
	if w.limit > 0 && w.received > w.limit {
		return n, fmt.Errorf("more than %d bytes without a stream key", w.limit)
	}
	return n, err
}

// Write writes to the other end, which must take it.
func (w *wire) Write(p []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(idleTime)); err != nil {
		return 0, err
	}
	return w.conn.Write(p)
}

// serve hands on messages until an error, and answers those that are about the wire.
func (w *wire) serve(handle func(message) error) error {
	for {
		m, err := w.chunks.next()
		if err != nil {
			return err
		}
		if err := w.regard(m); err != nil {
			return err
		}
		if err := handle(m); err != nil {
			return err
		}
		if w.window > 0 && w.received-w.told >= w.window {
			w.told = w.received
			if err := w.out.Write(&rtmp.Acknowledge{Value: uint32(w.received)}); err != nil {
				return err
			}
		}
	}
}

func (w *wire) regard(m message) error {
	const ping = 6
	switch {
	case m.kind == messageWindow && len(m.body) >= 4:
		w.window = uint64(binary.BigEndian.Uint32(m.body))
	case m.kind == messageUserControl && len(m.body) >= 6 && binary.BigEndian.Uint16(m.body) == ping:
		return w.out.Write(&rtmp.UserControlPingResponse{ServerTime: binary.BigEndian.Uint32(m.body[2:])})
	}
	return nil
}

// media takes audio or video apart.
func (w *wire) media(m message, add func(codec.Packet, time.Duration) error) error {
	if len(m.body) == 0 {
		return nil // some encoders do that when they have nothing to say
	}
	w.until, w.heard = time.Time{}, time.Now()
	at := w.clock.at(m.time)
	take := func(p codec.Packet) error { return add(p, at) }
	if m.kind == messageAudio {
		return audioTag(m.body, take)
	}
	return videoTag(m.body, take)
}

// readCommand reads the name, the number and the arguments of a command, as far as they
// are there.
func readCommand(body []byte) (amf0.Data, error) {
	if len(body) > maxCommand {
		return nil, fmt.Errorf("a command of %d bytes; %d are allowed", len(body), maxCommand)
	}
	data, err := amf0.Unmarshal(body)
	if err != nil {
		return nil, fmt.Errorf("a command can't be read: %w", err)
	}
	return data, nil
}
