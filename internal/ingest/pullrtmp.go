package ingest

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/handshake"
	rtmp "github.com/bluenviron/gortmplib/pkg/message"

	"weir/internal/codec"
	"weir/internal/weir"
)

// player watches a stream of an RTMP server.
type player struct {
	wire
	source  *pullSource
	playing bool
}

// readRTMP reads a stream of an RTMP server for as long as it sends.
func (s *pullSource) readRTMP(ctx context.Context, u *url.URL) error {
	port := u.Port()
	if port == "" {
		port = map[string]string{"rtmp": "1935", "rtmps": "443"}[u.Scheme]
	}
	app, name, err := rtmpNames(u)
	if err != nil {
		return err
	}
	conn, err := s.Guard.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		if _, ok := errors.AsType[*weir.Error](err); ok {
			return err
		}
		return weir.Wrap(weir.Upstream, err, "%s can't be reached", s.host)
	}
	raw := conn
	defer func() { _ = raw.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	if u.Scheme == "rtmps" {
		conn = tls.Client(conn, &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12})
	}
	p := &player{source: s}
	p.open(conn, maxMessage)
	p.until = time.Now().Add(handshakeTime)
	err = p.run(ctx, fmt.Sprintf("%s://%s/%s", u.Scheme, u.Host, app), app, name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return p.failed(err)
}

// rtmpNames returns the application and the stream that an address names.
func rtmpNames(u *url.URL) (app, name string, err error) {
	path := strings.Trim(u.Path, "/")
	cut := strings.LastIndexByte(path, '/')
	if cut <= 0 || cut == len(path)-1 {
		return "", "", weir.Errorf(weir.Invalid, "the pull source must be rtmp://<host>/<application>/<stream>")
	}
	app, name = path[:cut], path[cut+1:]
	if u.RawQuery != "" {
		name += "?" + u.RawQuery
	}
	return app, name, nil
}

// failed says what went wrong in words for the owner.
func (p *player) failed(err error) error {
	if _, ok := errors.AsType[*weir.Error](err); ok || err == nil {
		return err
	}
	timeout, isNet := errors.AsType[net.Error](err)
	switch {
	case isNet && timeout.Timeout():
		return weir.Wrap(weir.Upstream, err, "nothing came from %s in time", p.source.host)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), isNet:
		return weir.Wrap(weir.Upstream, err, "%s ended the connection", p.source.host)
	}
	return unreadable(err)
}

// The numbers of our commands.
const (
	numberConnect = 1
	numberCreate  = 2
	numberPlay    = 3
)

// run asks for the stream and reads it to its end.
func (p *player) run(ctx context.Context, address, app, name string) error {
	if _, _, err := handshake.DoClient(struct {
		io.Reader
		io.Writer
	}{p.in, p}, false, false); err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	connect := amf0.Object{
		{Key: "app", Value: app},
		{Key: "flashVer", Value: "LNX 9,0,124,2"},
		{Key: "tcUrl", Value: address},
		{Key: "fpad", Value: false},
		{Key: "capabilities", Value: float64(15)},
		{Key: "audioCodecs", Value: float64(0x0400)}, // AAC
		{Key: "videoCodecs", Value: float64(0x0080)}, // H.264
		{Key: "videoFunction", Value: float64(0)},
		{Key: "fourCcList", Value: amf0.StrictArray{"avc1", "hvc1", "av01", "mp4a", "Opus"}},
		{Key: "objectEncoding", Value: float64(0)},
	}
	for _, m := range []rtmp.Message{
		&rtmp.SetWindowAckSize{Value: 2_500_000},
		&rtmp.SetChunkSize{Value: 64 << 10},
		&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "connect", CommandID: numberConnect, Arguments: amf0.Data{connect}},
	} {
		if err := p.out.Write(m); err != nil {
			return err
		}
	}
	return p.serve(func(m message) error { return p.handle(ctx, m, name) })
}

// handle does what a message says.
func (p *player) handle(ctx context.Context, m message, name string) error {
	switch m.kind {
	case messageUserControl:
		const ended = 1
		if len(m.body) >= 6 && binary.BigEndian.Uint16(m.body) == ended && p.playing {
			return p.ended()
		}
	case messageCommand:
		return p.command(m.body, name)
	case messageAudio, messageVideo:
		return p.media(m, func(packet codec.Packet, at time.Duration) error { return p.source.addNow(ctx, packet, at) })
	}
	return nil
}

func (p *player) ended() error {
	return weir.Errorf(weir.Upstream, "the stream at %s has ended", p.source.host)
}

// command takes an answer of the server, or what it says of the stream.
func (p *player) command(body []byte, name string) error {
	data, err := readCommand(body)
	if err != nil {
		return err
	}
	if len(data) < 2 {
		return nil
	}
	what, _ := data[0].(string)
	number, _ := data[1].(float64)
	switch {
	case what == "_error":
		return weir.Errorf(weir.Upstream, "%s refuses: %s", p.source.host, p.reason(data))
	case what == "_result" && number == numberConnect:
		return p.out.Write(&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "createStream", CommandID: numberCreate, Arguments: amf0.Data{nil}})
	case what == "_result" && number == numberCreate:
		var stream float64
		if len(data) > 3 {
			stream, _ = data[3].(float64)
		}
		return p.out.Write(&rtmp.CommandAMF0{
			ChunkStreamID: 4, MessageStreamID: littleEndian(uint32(stream)), Name: "play", CommandID: numberPlay, Arguments: amf0.Data{nil, name},
		})
	case what == "onStatus":
		return p.status(data)
	}
	return nil
}

// littleEndian turns the number of a stream into the form that the library writes: the
// one number of the protocol whose lowest byte comes first.
func littleEndian(n uint32) uint32 {
	return n>>24 | n>>8&0xFF00 | n<<8&0xFF0000 | n<<24
}

// status takes what the server says of the stream.
func (p *player) status(data amf0.Data) error {
	about := object(data[len(data)-1])
	level, _ := about.GetString("level")
	code, _ := about.GetString("code")
	switch {
	case level == "error":
		return weir.Errorf(weir.Upstream, "%s refuses: %s", p.source.host, p.reason(data))
	case code == "NetStream.Play.Start":
		p.playing = true
		p.until = time.Now().Add(firstMediaTime)
	case code == "NetStream.Play.Stop", code == "NetStream.Play.UnpublishNotify", code == "NetStream.Play.Complete":
		return p.ended()
	}
	return nil
}

// reason returns what the server says is wrong, as far as it is fit to be shown.
func (p *player) reason(data amf0.Data) string {
	about := object(data[len(data)-1])
	code, _ := about.GetString("code")
	for _, r := range code {
		if r < ' ' || r > '~' {
			code = ""
		}
	}
	if code == "" || len(code) > 100 {
		return "it gives no reason"
	}
	return code
}
