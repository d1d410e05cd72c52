package ingest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/handshake"
	rtmp "github.com/bluenviron/gortmplib/pkg/message"

	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/weir"
)

const (
	application = "live"

	// How long a connection may take: until a good stream key is there, from then to the
	// first media, without a byte after that, without media though bytes come, and to go
	// when it was told to.
	handshakeTime  = 10 * time.Second
	firstMediaTime = 10 * time.Second
	idleTime       = 10 * time.Second
	noMediaTime    = 30 * time.Second
	lingerTime     = 2 * time.Second

	// maxBefore is how many bytes a connection may send before it has shown a good
	// stream key; the handshake needs 3 KiB of them.
	maxBefore = 64 << 10
	// maxCommand is how long a command may be, or what is told about the stream.
	maxCommand = 32 << 10
	// maxMessage is how long a message may be once the key is known: more than a key
	// frame of 4K at 100 Mbit/s.
	maxMessage = 8 << 20
	// maxLinger is how much is read from an encoder that was told to go.
	maxLinger = 1 << 20

	bufferSize = 16 << 10
	// streamID is the number of the one stream of a connection, as the library writes it.
	streamID = 0x1000000
	// statusChunks is the chunk stream of what is said about the stream.
	statusChunks = 5
)

// errUnpublished ends a connection that did nothing wrong.
var errUnpublished = errors.New("the encoder ended the stream")

// refusal is why an encoder does not get what it wants, as it was told.
type refusal string

func (r refusal) Error() string { return string(r) }

// connection speaks RTMP with one encoder.
type connection struct {
	wire
	server *server
	seat   *seat
	log    *slog.Logger

	connected bool
	publisher publisher // nil = no stream yet
	feed      *feed
	watch     sync.WaitGroup
	left      chan struct{} // closed when the publisher is let go
}

func newConnection(s *server, conn net.Conn, t *seat) *connection {
	c := &connection{server: s, seat: t, log: s.Log.With("remote", conn.RemoteAddr().String())}
	c.open(conn, maxBefore)
	c.limit = maxBefore
	return c
}

// run serves the connection and returns why it ends.
func (c *connection) run(ctx context.Context) error {
	c.until = time.Now().Add(handshakeTime)
	version, err := c.in.Peek(1)
	if err != nil {
		return err
	}
	if version[0] != 3 {
		return errors.New("it does not speak RTMP")
	}
	if _, _, err := handshake.DoServer(struct {
		io.Reader
		io.Writer
	}{c.in, c}, false); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	return c.serve(func(m message) error { return c.handle(ctx, m) })
}

// handle does what a message says.
func (c *connection) handle(ctx context.Context, m message) error {
	switch m.kind {
	case messageCommand:
		return c.command(ctx, m.body)
	case messageData:
		c.tell(m.body)
	case messageAudio, messageVideo:
		if c.feed == nil {
			return errors.New("media came before a stream key")
		}
		return c.media(m, func(p codec.Packet, at time.Duration) error { return c.feed.add(ctx, p, at) })
	}
	return nil
}

// tell reads what the encoder says about its stream: which tracks there will be.
func (c *connection) tell(body []byte) {
	if c.feed == nil || len(body) > maxCommand {
		return
	}
	data, err := amf0.Unmarshal(body)
	if err != nil || len(data) < 2 {
		return
	}
	if data[0] == "@setDataFrame" {
		data = data[1:]
	}
	if len(data) < 2 || data[0] != "onMetaData" {
		return
	}
	about := object(data[1])
	sends := func(key string) bool {
		value, ok := about.Get(key)
		return ok && value != nil && value != float64(0) && value != ""
	}
	c.feed.promise(sends("videocodecid"), sends("audiocodecid"))
}

// command obeys a command.
func (c *connection) command(ctx context.Context, body []byte) error {
	data, err := readCommand(body)
	if err != nil {
		return err
	}
	if len(data) < 2 {
		return errors.New("a command without a number")
	}
	name, _ := data[0].(string)
	number, _ := data[1].(float64)
	arguments := data[2:]
	switch name {
	case "connect":
		return c.connect(int(number), arguments)
	case "createStream":
		return c.result(int(number), nil, float64(1))
	case "publish":
		return c.publish(ctx, arguments)
	case "play", "play2":
		return c.refuse("NetStream.Play.Failed", "this address is for publishing; streams are watched over HLS")
	case "FCUnpublish", "closeStream", "deleteStream":
		if c.publisher != nil {
			return errUnpublished
		}
	}
	return nil // what is left needs no answer
}

// connect answers the command that names the application.
func (c *connection) connect(number int, arguments amf0.Data) error {
	var asked amf0.Object
	if len(arguments) > 0 {
		asked = object(arguments[0])
	}
	app, _ := asked.GetString("app")
	app, _, _ = strings.Cut(app, "?")
	if strings.Trim(app, "/") != application {
		// The name is not logged: people put their stream key there.
		const why = "the address must be rtmp://<host>/" + application + "/<streamKey>"
		err := c.out.Write(&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "_error", CommandID: number, Arguments: amf0.Data{
			nil, status("error", "NetConnection.Connect.Rejected", why),
		}})
		return errors.Join(refusal("another application than "+application+"; "+why), err)
	}
	for _, m := range []rtmp.Message{
		&rtmp.SetWindowAckSize{Value: 2_500_000},
		&rtmp.SetPeerBandwidth{Value: 2_500_000, Type: 2},
		&rtmp.SetChunkSize{Value: 64 << 10},
	} {
		if err := c.out.Write(m); err != nil {
			return err
		}
	}
	c.connected = true
	about := status("status", "NetConnection.Connect.Success", "connected")
	about = append(about, amf0.ObjectEntry{Key: "objectEncoding", Value: float64(0)})
	if _, extended := asked.Get("fourCcList"); extended {
		about = append(about, amf0.ObjectEntry{Key: "fourCcList", Value: amf0.StrictArray{"avc1", "hvc1", "av01", "mp4a", "Opus"}})
	}
	return c.result(number, amf0.Object{
		{Key: "fmsVer", Value: "FMS/3,0,1,123"},
		{Key: "capabilities", Value: float64(31)},
	}, about)
}

// publish lets the encoder in whose stream key is good.
func (c *connection) publish(ctx context.Context, arguments amf0.Data) error {
	if !c.connected || c.publisher != nil {
		return errors.New("publish at the wrong time")
	}
	var key string
	if len(arguments) > 1 {
		key, _ = arguments[1].(string)
	}
	key, _, _ = strings.Cut(key, "?")
	from := live.Source{Protocol: protocol(c.conn), Remote: c.conn.RemoteAddr().String(), Reuse: c.chunks.reuse}
	asking, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	p, err := c.server.publish(asking, key, from)
	if err != nil {
		return c.refuseKey(err)
	}
	c.seat.settle()
	c.publisher, c.left = p, make(chan struct{})
	c.log = c.log.With("stream", p.StreamID())
	c.feed = newFeed(p, bounded(c.log))
	c.limit, c.chunks.limit = 0, maxMessage
	c.until = time.Now().Add(firstMediaTime)
	c.watch.Go(func() {
		select {
		case <-p.Done():
			c.cut()
		case <-c.left:
		}
	})
	c.log.Info("publisher connected", "protocol", from.Protocol)
	return c.status("status", "NetStream.Publish.Start", "publishing")
}

// refuseKey tells the encoder why it may not publish.
func (c *connection) refuseKey(err error) error {
	why := "the stream key could not be looked up; try again"
	if e, ok := errors.AsType[*weir.Error](err); ok && e.Kind != weir.Internal {
		why = strings.Join(e.Messages, "; ")
	}
	switch weir.KindOf(err) {
	case weir.Internal:
		c.log.Error("stream key could not be looked up", "err", err)
	case weir.NotFound:
		why = "no stream has this stream key"
	}
	return c.refuse("NetStream.Publish.BadName", why)
}

// refuse tells the encoder that it does not get what it wants.
func (c *connection) refuse(code, why string) error {
	err := c.status("error", code, why)
	return errors.Join(refusal(why), err)
}

func (c *connection) status(level, code, text string) error {
	return c.out.Write(&rtmp.CommandAMF0{
		ChunkStreamID: statusChunks, MessageStreamID: streamID, Name: "onStatus",
		Arguments: amf0.Data{nil, status(level, code, text)},
	})
}

func (c *connection) result(number int, values ...any) error {
	return c.out.Write(&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "_result", CommandID: number, Arguments: values})
}

func status(level, code, text string) amf0.Object {
	return amf0.Object{{Key: "level", Value: level}, {Key: "code", Value: code}, {Key: "description", Value: text}}
}

// object returns a value as an object, if it is one.
func object(value any) amf0.Object {
	switch o := value.(type) {
	case amf0.Object:
		return o
	case amf0.ECMAArray:
		return amf0.Object(o)
	}
	return nil
}

// end lets the publisher go, says why in the log, and closes the connection.
func (c *connection) end(ctx context.Context, err error) {
	var ended error // by the hub
	published := c.publisher != nil
	if published {
		select {
		case <-c.publisher.Done():
			ended = c.publisher.Write(live.Frame{})
		default:
			err = errors.Join(err, c.feed.finish(ctx))
		}
	}
	_, refused := errors.AsType[refusal](err)
	c.leave(errors.Is(err, errUnpublished))
	stopping := errors.Is(err, context.Canceled)
	switch {
	case published || stopping:
		logEnd(c.log, ending{stopping: stopping, ended: ended, clean: errors.Is(err, errUnpublished), why: err, lost: lost(err)})
	case refused:
		c.seat.fail()
		c.seat.seats.strangers.tell(c.log, slog.LevelWarn, "publisher refused", err.Error())
	case c.received == 0 && quiet(err):
		c.log.Debug("connection without a byte")
	default:
		c.seat.fail()
		c.seat.seats.strangers.tell(c.log, slog.LevelInfo, "connection ended before a stream key was shown", lost(err))
	}
	if errors.Is(err, errUnpublished) || refused {
		c.linger()
	}
	_ = c.conn.Close()
}

// ending is how a publisher ended.
type ending struct {
	stopping bool   // weir is shutting down
	ended    error  // what the hub said, if it was the one
	clean    bool   // the publisher said so before
	why      error  // otherwise
	lost     string // why, in plain words
}

// logEnd says in the log how a publisher ended that was let in.
func logEnd(log *slog.Logger, e ending) {
	switch {
	case e.stopping:
		log.Info("connection closed: shutting down")
	case e.ended != nil:
		log.Info("publisher was told to end", "reason", e.ended)
	case e.clean:
		log.Info("publisher ended")
	case weir.KindOf(e.why) != weir.Internal:
		log.Warn("publisher can't be taken", "reason", e.why)
	default:
		log.Warn("publisher lost", "reason", e.lost)
	}
}

// lost says in plain words how a connection was lost.
func lost(err error) string {
	timeout, ok := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, io.EOF):
		return "it closed"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "it closed in the middle of a message"
	case ok && timeout.Timeout():
		return "nothing came in time"
	}
	return err.Error()
}

// quiet reports whether a connection did nothing wrong before it ended. Without TLS, or
// with a bad one, no byte is received either.
func quiet(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.ECONNRESET) || ok && timeout.Timeout()
}

// leave lets the publisher go.
func (c *connection) leave(clean bool) {
	p := c.publisher
	if p == nil {
		return
	}
	c.publisher = nil
	close(c.left)
	c.watch.Wait()
	p.Close(clean)
}

// linger waits until the encoder has closed: what was told it last would be lost if
// the connection were closed while its bytes are still on the way.
func (c *connection) linger() {
	if err := c.conn.SetDeadline(time.Now().Add(lingerTime)); err != nil {
		return
	}
	if half, ok := c.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.conn, maxLinger)
}

// cut ends the connection at once, from wherever.
func (c *connection) cut() {
	conn := c.conn
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn() // without waiting for a goodbye
	}
	_ = conn.Close()
}

// unwrapper makes times that run over, every 50 days, into ones that do not.
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
