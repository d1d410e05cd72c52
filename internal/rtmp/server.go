package rtmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"weir/internal/codec"
)

// serverStream is the number of the only stream of a connection.
const serverStream = 1

// Handler receives the stream of an encoder.
type Handler struct {
	// App is the application in rtmp://host/<App>/<key>. Encoders whose users put the key into the address of
	// the server send <App>/<key> as the application.
	App string
	// Publish accepts or refuses a stream key. The encoder gets the text of the error.
	Publish func(ctx context.Context, key string) error
	// Tracks gets the kinds of tracks that the encoder announces.
	Tracks func(video, audio bool)
	// Packet gets a packet and the time of its message. An error ends the connection.
	Packet func(p codec.Packet, at time.Duration) error
}

// serverConn is the state of a connection with an encoder.
type serverConn struct {
	*Conn
	to        Handler
	connected bool
	published bool
	key       string // what the application has after App; "" = the stream key is the name of the stream
}

// Serve receives the stream of an encoder and returns why it ends: ErrEnded, a *Refusal that was
// sent to the encoder, or another error. Cut ends it from outside.
func (c *Conn) Serve(ctx context.Context, h Handler) error {
	c.wire.until = time.Now().Add(handshakeTime)
	if err := c.handshake(true); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	s := &serverConn{Conn: c, to: h}
	for {
		m, err := c.next()
		if err == nil {
			err = s.handle(ctx, m)
		}
		if err != nil {
			return err
		}
	}
}

func (s *serverConn) handle(ctx context.Context, m message) error {
	switch m.kind {
	case messageCommand:
		return s.execute(ctx, m.body)
	case messageData:
		if s.published {
			s.metadata(m.body)
		}
	case messageAudio, messageVideo:
		if !s.published {
			return errors.New("media arrived before a stream key")
		}
		return s.media(m, s.to.Packet)
	}
	return nil
}

// metadata reads the kinds of tracks from the metadata.
func (s *serverConn) metadata(body []byte) {
	if len(body) > maxCommand {
		return
	}
	values, err := readAMF(body)
	if err == nil && len(values) > 0 && values[0] == "@setDataFrame" {
		values = values[1:]
	}
	if err != nil || len(values) < 2 || values[0] != "onMetaData" {
		return
	}
	about, _ := values[1].(object)
	sends := func(key string) bool {
		value := about.get(key)
		return value != nil && value != float64(0) && value != ""
	}
	s.to.Tracks(sends("videocodecid"), sends("audiocodecid"))
}

func (s *serverConn) execute(ctx context.Context, body []byte) error {
	request, err := parseCommand(body)
	if err != nil {
		return err
	}
	switch request.name {
	case "connect":
		return s.connect(request)
	case "createStream":
		return s.sendCommand(0, "_result", request.number, nil, float64(serverStream))
	case "publish":
		return s.publish(ctx, request)
	case "play", "play2":
		return s.refuse("NetStream.Play.Failed", "this address is for publishing; play the stream over HLS")
	case "FCUnpublish", "closeStream", "deleteStream":
		if s.published {
			s.beforeClose = s.linger
			return ErrEnded
		}
	}
	return nil // the others need no reply
}

// connect replies to the command that names the application.
func (s *serverConn) connect(request command) error {
	var about object
	if len(request.arguments) > 0 {
		about, _ = request.arguments[0].(object)
	}
	app, _, _ := strings.Cut(about.text("app"), "?")
	app, s.key, _ = strings.Cut(strings.Trim(app, "/"), "/")
	if app != s.to.App {
		// The name is not repeated: users put their stream key there by mistake.
		why := "the address must be rtmp://<host>/" + s.to.App + "/<streamKey>"
		s.beforeClose = s.linger
		const code = "NetConnection.Connect.Rejected"
		err := s.sendCommand(0, "_error", request.number, nil, status("error", code, why))
		return errors.Join(&Refusal{code, "another application than " + s.to.App + "; " + why}, err)
	}
	const window, dynamic = 2_500_000, 2
	if err := errors.Join(
		s.sendNumber(messageWindow, window),
		s.sendNumber(messageBandwidth, window, dynamic),
		s.enlargeChunks(),
	); err != nil {
		return err
	}
	s.connected = true
	server := object{{"fmsVer", "FMS/3,0,1,123"}, {"capabilities", float64(31)}}
	result := status("status", "NetConnection.Connect.Success", "connected")
	result = append(result, property{"objectEncoding", float64(0)})
	if about.get("fourCcList") != nil {
		result = append(result, property{"fourCcList", fourCCList()})
	}
	return s.sendCommand(0, "_result", request.number, server, result)
}

// publish replies to the command with the stream key.
func (s *serverConn) publish(ctx context.Context, request command) error {
	if !s.connected || s.published {
		return errors.New("unexpected publish command")
	}
	key := s.key
	if key == "" && len(request.arguments) > 1 {
		key, _ = request.arguments[1].(string)
	}
	key, _, _ = strings.Cut(key, "?")
	asking, cancel := context.WithDeadline(ctx, s.wire.until)
	defer cancel()
	if err := s.to.Publish(asking, key); err != nil {
		return s.refuse("NetStream.Publish.BadName", err.Error())
	}
	s.published = true
	s.wire.limit, s.chunks.limit = 0, maxMessage
	s.wire.until = time.Now().Add(firstMediaTime)
	return s.sendStatus("status", "NetStream.Publish.Start", "publishing")
}

// refuse replies to a command with an error.
func (s *serverConn) refuse(code, why string) error {
	s.beforeClose = s.linger
	return errors.Join(&Refusal{code, why}, s.sendStatus("error", code, why))
}

func (s *serverConn) sendStatus(level, code, text string) error {
	return s.sendCommand(serverStream, "onStatus", 0, nil, status(level, code, text))
}

// linger waits until the encoder has closed. The last reply would be lost if the connection were
// closed while bytes of the encoder are in flight.
func (s *serverConn) linger() {
	conn := s.wire.conn
	if err := conn.SetDeadline(time.Now().Add(closeTime)); err != nil {
		return
	}
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, conn, maxDrain)
}
