// Package rtmp implements RTMP, as a server and as a client, and reads FLV, which has the same tags.
//
// A [Conn] is one end of a connection. [NewConn] and [Conn.Serve] receive the stream of an encoder;
// [Dial] with [Conn.Play] fetches a stream from a server, and with [Conn.Publish] sends one to it.
// wire.go limits the bytes and the time of the other end, chunk.go reads and writes messages,
// amf0.go and command.go commands. server.go and client.go have the two sides of the protocol.
//
// Callers get and give media as [codec.Packet]: tag.go reads packets from messages for audio and
// video, Enhanced RTMP included, and tagwrite.go writes them. flv.go reads the same tags from FLV.
// The package does not parse frames.
//
// What the other end sends is not trusted. Every length is checked against a limit before memory is
// allocated for it, and every step is fuzzed. Errors never contain a stream key.
package rtmp

import (
	"bufio"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"weir/internal/codec"
)

// ErrEnded is the error of a stream that the other end has ended in order.
var ErrEnded = errors.New("the stream was ended by its sender")

// LimitError says which limit the other end exceeds.
type LimitError string

func (e LimitError) Error() string { return string(e) }

// Conn is one end of an RTMP connection. One goroutine may read (Serve, Play, Wait) while another
// one writes packets. Sent, LimitWrite and Cut may be called at any time.
type Conn struct {
	wire   wire
	in     *bufio.Reader
	chunks *chunkReader
	clock  unwrapper

	window       uint64 // bytes after which the other end wants an acknowledgement; 0 = never
	acknowledged uint64

	writing sync.Mutex // one message at a time: replies go out between packets
	out     chunkWriter

	beforeClose func() // called by Close; may be nil

	// For clients:
	url     address
	command int    // number of the last command
	stream  uint32 // number of the stream that the server has created
}

// NewConn returns the server's end of a connection with a client.
func NewConn(conn net.Conn) *Conn {
	c := &Conn{wire: wire{conn: conn}}
	c.in = bufio.NewReaderSize(&c.wire, bufferSize)
	c.chunks = newChunkReader(c.in, maxBeforeKey)
	c.out = chunkWriter{to: &c.wire, size: defaultChunkSize}
	c.wire.limit = maxBeforeKey
	return c
}

// Reuse takes back the data of a packet that is not used any more. It must be called within the
// callback that gets packets.
func (c *Conn) Reuse(data []byte) { c.chunks.reuse(data) }

// Received returns the number of bytes received.
func (c *Conn) Received() uint64 { return c.wire.received }

// Sent returns the number of bytes sent.
func (c *Conn) Sent() int64 { return c.wire.sent.Load() }

// LimitWrite shortens the timeout of a write that waits for the other end.
func (c *Conn) LimitWrite() { _ = c.wire.conn.SetWriteDeadline(time.Now().Add(closeTime / 2)) }

// Close ends the connection in order. A client that publishes ends the stream first. A server whose
// reply is the last message waits for the encoder to close, or the reply would be lost.
func (c *Conn) Close() {
	if c.beforeClose != nil {
		c.beforeClose()
	}
	_ = c.wire.conn.Close()
}

// Cut ends the connection at once.
func (c *Conn) Cut() {
	conn := c.wire.conn
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn() // without the close notification of TLS, which may block
	}
	_ = conn.Close()
}

// next returns the next message. It handles control messages.
func (c *Conn) next() (message, error) {
	if c.window > 0 && c.wire.received-c.acknowledged >= c.window {
		c.acknowledged = c.wire.received
		if err := c.sendNumber(messageAck, uint32(c.acknowledged)); err != nil {
			return message{}, err
		}
	}
	m, err := c.chunks.next()
	if err != nil {
		return m, err
	}
	const ping, pong = 6, 7
	switch {
	case m.kind == messageWindow && len(m.body) >= 4:
		c.window = uint64(binary.BigEndian.Uint32(m.body))
	case m.isEvent(ping):
		reply := append([]byte{0, pong}, m.body[2:6]...)
		err = c.send(controlChunks, 0, message{kind: messageUserControl, body: reply}, nil)
	}
	return m, err
}

// isEvent reports whether a message is a user control event with a number as its data.
func (m message) isEvent(event uint16) bool {
	return m.kind == messageUserControl && len(m.body) >= 6 && binary.BigEndian.Uint16(m.body) == event
}

// media gives the packets of a message to take, with the time of the message.
func (c *Conn) media(m message, take func(codec.Packet, time.Duration) error) error {
	if len(m.body) == 0 {
		return nil // some encoders send empty messages
	}
	c.wire.tookMedia()
	at := c.clock.at(m.time)
	return readTag(m.kind, m.body, func(p codec.Packet) error { return take(p, at) })
}

func (c *Conn) send(chunks byte, stream uint32, m message, head []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.out.write(chunks, stream, m, head)
}

func (c *Conn) sendNumber(kind byte, n uint32, more ...byte) error {
	body := append(binary.BigEndian.AppendUint32(nil, n), more...)
	return c.send(controlChunks, 0, message{kind: kind, body: body}, nil)
}

// enlargeChunks makes our chunks so large that most messages fit into one.
func (c *Conn) enlargeChunks() error {
	err := c.sendNumber(messageChunkSize, ourChunkSize)
	c.out.size = ourChunkSize
	return err
}

// unwrapper unwraps times, which wrap after 2^32 milliseconds (50 days).
type unwrapper struct {
	last int64
	set  bool
}

func (u *unwrapper) at(milliseconds uint32) time.Duration {
	if !u.set {
		u.last, u.set = int64(milliseconds), true
	} else {
		u.last += int64(int32(milliseconds - uint32(u.last)))
	}
	return time.Duration(u.last) * time.Millisecond
}

const (
	rtmpVersion = 3
	// handshakeSize is the size of C1, S1, C2 and S2: 8 bytes for times, the rest random.
	handshakeSize = 1536
)

var errNotRTMP = errors.New("the other end does not speak RTMP")

// handshake does the server's or the client's side of the handshake. Each side sends its version
// and a block of its own (C0 C1, S0 S1), and returns the block of the other (C2, S2).
func (c *Conn) handshake(server bool) error {
	hello := make([]byte, 1+handshakeSize, 1+2*handshakeSize)
	hello[0] = rtmpVersion
	_, _ = rand.Read(hello[9:])
	if !server {
		if _, err := c.wire.Write(hello); err != nil {
			return err
		}
	}
	version, err := c.in.Peek(1) // a client of another protocol may send nothing more
	if err != nil {
		return err
	}
	if version[0] != rtmpVersion {
		return errNotRTMP
	}
	theirs := make([]byte, 1+handshakeSize)
	if _, err := io.ReadFull(c.in, theirs); err != nil {
		return err
	}
	if server {
		if _, err := c.wire.Write(append(hello, theirs[1:]...)); err != nil {
			return err
		}
	}
	if _, err := c.in.Discard(handshakeSize); err != nil {
		return unexpected(err)
	}
	if !server {
		_, err = c.wire.Write(theirs[1:])
	}
	return err
}
