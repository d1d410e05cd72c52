package rtmp

import (
	"crypto/rand"
	"errors"
	"io"
)

const (
	rtmpVersion = 3
	// handshakeSize is the size of C1, S1, C2 and S2: 8 bytes for times, the rest random.
	handshakeSize = 1536
)

var errNotRTMP = errors.New("it does not speak RTMP")

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
