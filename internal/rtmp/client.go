package rtmp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"weir/internal/codec"
)

// ErrURL is the error of a URL that names no stream of an RTMP server.
var ErrURL = errors.New("the URL must be rtmp://host/app/key or rtmps://host/app/key")

// TLSError says why there is no secure connection to a server.
type TLSError struct{ error }

// address is a parsed URL: rtmp://host/app/key, or rtmps.
type address struct {
	secure   bool
	host     string // without the port
	port     string
	app, key string // as they are written, the key with its query
	appURL   string // without the key
}

// parseURL parses a URL. The key is what follows the last slash.
func parseURL(raw string) (a address, err error) {
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return a, ErrURL
	}
	a = address{secure: u.Scheme == "rtmps", host: u.Hostname(), port: u.Port()}
	switch {
	case a.port != "":
	case a.secure:
		a.port = "443"
	default:
		a.port = "1935"
	}
	// Servers compare keys as they were written, escapes included.
	_, rest, _ := strings.Cut(raw, "://")
	_, rest, _ = strings.Cut(rest, "/")
	path, query, hasQuery := strings.Cut(rest, "?")
	path = strings.Trim(path, "/")
	last := strings.LastIndexByte(path, '/')
	if last < 0 {
		return a, ErrURL
	}
	a.app, a.key = path[:last], path[last+1:]
	if hasQuery {
		a.key += "?" + query
	}
	a.appURL = u.Scheme + "://" + u.Host + "/" + a.app
	return a, nil
}

// DialFunc connects to a host and port, as net.Dialer.DialContext does.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// Dial connects to the server of a URL. Play or Publish follows.
func Dial(ctx context.Context, url string, dial DialFunc) (*Conn, error) {
	at, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	conn, err := dial(ctx, "tcp", net.JoinHostPort(at.host, at.port))
	if err != nil {
		return nil, err
	}
	if at.secure {
		conn = tls.Client(conn, &tls.Config{ServerName: at.host, MinVersion: tls.VersionTLS12})
	}
	c := newClient(conn, at)
	err = c.during(ctx, func() error {
		if secure, ok := conn.(*tls.Conn); ok {
			if err := secure.HandshakeContext(ctx); err != nil {
				return &TLSError{err}
			}
		}
		if err := c.handshake(false); err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		return nil
	})
	if err != nil {
		c.Cut()
		return nil, err
	}
	return c, nil
}

func newClient(conn net.Conn, at address) *Conn {
	c := NewConn(conn)
	c.url = at
	c.wire.limit, c.wire.share, c.chunks.limit = maxReplies, replyShare, maxCommand
	return c
}

// during does a step of the protocol. The end of ctx cuts the connection.
func (c *Conn) during(ctx context.Context, step func() error) error {
	c.wire.until = time.Now().Add(handshakeTime)
	stop := context.AfterFunc(ctx, c.Cut)
	err := step()
	if !stop() {
		return context.Cause(ctx)
	}
	return err
}

// Play requests the stream and gives its packets to take, with the time of their message. It
// returns why the stream ends: ErrEnded, a *Refusal, or another error.
func (c *Conn) Play(ctx context.Context, take func(codec.Packet, time.Duration) error) error {
	return c.during(ctx, func() error {
		const window = 2_500_000
		if err := errors.Join(c.sendNumber(messageWindow, window), c.connect(object{
			{"flashVer", "LNX 9,0,124,2"},
			{"fpad", false},
			{"capabilities", float64(15)},
			{"audioCodecs", float64(0x0400)}, // AAC
			{"videoCodecs", float64(0x0080)}, // H.264
			{"videoFunction", float64(0)},
			{"objectEncoding", float64(0)},
		})); err != nil {
			return err
		}
		if err := c.createStream(); err != nil {
			return err
		}
		c.wire.limit, c.chunks.limit = 0, maxMessage
		if _, err := c.call(c.stream, "play", nil, c.url.key); err != nil {
			return err
		}
		return c.receive(take)
	})
}

// receive reads the stream that the server plays.
func (c *Conn) receive(take func(codec.Packet, time.Duration) error) error {
	const streamEOF = 1
	playing := false
	for {
		m, err := c.next()
		if err != nil {
			return err
		}
		switch m.kind {
		case messageUserControl:
			if playing && m.isEvent(streamEOF) {
				return ErrEnded
			}
		case messageAudio, messageVideo:
			if err := c.media(m, take); err != nil {
				return err
			}
		case messageCommand:
			reply, err := parseCommand(m.body)
			if err != nil {
				break // it is not needed
			}
			if reply.isError() || reply.name == "_error" {
				return reply.refusal()
			}
			switch _, code := reply.status(); code {
			case "NetStream.Play.Start":
				playing = true
				c.wire.until = time.Now().Add(firstMediaTime)
			case "NetStream.Play.Stop", "NetStream.Play.UnpublishNotify", "NetStream.Play.Complete":
				return ErrEnded
			}
		}
	}
}

// Publish asks the server to receive a stream, and returns when it accepts. WriteTracks and
// WritePacket follow, while another goroutine is in Wait.
func (c *Conn) Publish(ctx context.Context) error {
	return c.during(ctx, func() error {
		if err := c.connect(object{
			{"type", "nonprivate"},
			{"flashVer", "FMLE/3.0 (compatible; weir)"},
		}); err != nil {
			return err
		}
		// Old servers need these two; some never reply to them.
		for _, name := range []string{"releaseStream", "FCPublish"} {
			if _, err := c.call(0, name, nil, c.url.key); err != nil {
				return err
			}
		}
		if err := c.createStream(); err != nil {
			return err
		}
		if _, err := c.call(c.stream, "publish", nil, c.url.key, "live"); err != nil {
			return err
		}
		for {
			reply, err := c.nextCommand()
			if err != nil {
				return err
			}
			if reply.isError() || reply.name == "_error" {
				return reply.refusal()
			}
			if _, code := reply.status(); reply.name == "onStatus" && code == "NetStream.Publish.Start" {
				c.wire.until = time.Time{}
				c.beforeClose = c.unpublish
				return nil
			}
		}
	})
}

// Wait reads the commands of the server during the stream, and returns why the connection ends.
func (c *Conn) Wait() error {
	for {
		reply, err := c.nextCommand()
		if err == nil && reply.isError() {
			err = reply.refusal()
		}
		if err != nil {
			return err
		}
	}
}

// unpublish tells the server that the stream has ended.
func (c *Conn) unpublish() {
	giveUp := time.AfterFunc(closeTime, c.Cut)
	defer giveUp.Stop()
	if _, err := c.call(0, "FCUnpublish", nil, c.url.key); err == nil {
		_, _ = c.call(0, "deleteStream", nil, float64(c.stream))
	}
}

// connect names the application. The object has further properties of the client.
func (c *Conn) connect(about object) error {
	if err := c.enlargeChunks(); err != nil {
		return err
	}
	number, err := c.call(0, "connect", slices.Concat(
		object{{"app", c.url.app}},
		about,
		object{{"tcUrl", c.url.appURL}, {"fourCcList", fourCCList()}},
	))
	if err == nil {
		_, err = c.result(number)
	}
	return err
}

// createStream gets the number of a stream.
func (c *Conn) createStream() error {
	number, err := c.call(0, "createStream", nil)
	if err != nil {
		return err
	}
	created, err := c.result(number)
	c.stream = 1
	if len(created.arguments) > 1 {
		if n, ok := created.arguments[1].(float64); ok {
			c.stream = uint32(n)
		}
	}
	return err
}

func (c *Conn) call(stream uint32, name string, arguments ...any) (number int, err error) {
	c.command++
	return c.command, c.sendCommand(stream, name, c.command, arguments...)
}

func (c *Conn) result(number int) (command, error) {
	for {
		reply, err := c.nextCommand()
		switch {
		case err != nil:
			return reply, err
		case reply.name == "_result" && reply.number == number:
			return reply, nil
		case reply.name == "_error" && reply.number == number, reply.isError():
			return reply, reply.refusal()
		}
	}
}

// nextCommand returns the next command that can be parsed.
func (c *Conn) nextCommand() (command, error) {
	for {
		m, err := c.next()
		if err != nil {
			return command{}, err
		}
		if m.kind != messageCommand {
			continue
		}
		if reply, err := parseCommand(m.body); err == nil {
			return reply, nil
		}
	}
}
