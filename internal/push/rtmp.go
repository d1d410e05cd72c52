package push

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	"github.com/bluenviron/gortmplib/pkg/handshake"
	"github.com/bluenviron/gortmplib/pkg/rawmessage"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

const (
	// targetPatience is how long a target may take to let us in, and to take a message.
	targetPatience = 10 * time.Second
	// targetFarewell is how long it may take to hear that the stream is over.
	targetFarewell = 2 * time.Second
	// rtmpChunk is how long chunks are: most messages fit into one.
	rtmpChunk = 64 << 10
	// maxAnswer is how long what a target says may be.
	maxAnswer = 32 << 10
	// maxTalk is how much a target may say beside one byte for each share of those that
	// it got: acknowledgements are all that it has to tell.
	maxTalk   = 256 << 10
	talkShare = 256
)

// The kinds of messages and the chunk streams that carry ours.
const (
	rtmpSetChunkSize = 1
	rtmpAcknowledge  = 3
	rtmpUserControl  = 4
	rtmpWindow       = 5
	rtmpAudio        = 8
	rtmpVideo        = 9
	rtmpData         = 18
	rtmpCommand      = 20

	controlChunks = 2
	commandChunks = 3
	audioChunks   = 4
	videoChunks   = 6
)

// rtmpTarget is where RTMP sends a stream to.
type rtmpTarget struct {
	secure   bool
	address  string // host and port
	host     string // for TLS
	app, key string
	url      string // without the key
}

// parseRTMP takes the URL of a target apart. The key is what stands behind the last
// slash, with its query.
func parseRTMP(raw string) (t rtmpTarget, err error) {
	wrong := weir.Errorf(weir.Invalid, "the URL of the target must be rtmp://host/app/key or rtmps://host/app/key")
	u, err := url.Parse(raw)
	if err != nil || u.Hostname() == "" {
		return t, wrong
	}
	if u.User != nil {
		return t, weir.Errorf(weir.Invalid, "the URL of the target has a user name in it; RTMP targets are known by their key alone: write rtmp://host/app/key")
	}
	t.secure, t.host = u.Scheme == "rtmps", u.Hostname()
	port := u.Port()
	switch {
	case port != "":
	case t.secure:
		port = "443"
	default:
		port = "1935"
	}
	t.address = net.JoinHostPort(t.host, port)
	// Keys are sent as they were written, without a look at what is escaped in them.
	_, rest, _ := strings.Cut(raw, "://")
	_, rest, _ = strings.Cut(rest, "/")
	path, query, asked := strings.Cut(rest, "?")
	last := strings.LastIndexByte(path, '/')
	if last <= 0 || last == len(path)-1 {
		return t, wrong
	}
	t.app, t.key = path[:last], path[last+1:]
	if asked {
		t.key += "?" + query
	}
	t.url = u.Scheme + "://" + u.Host + "/" + t.app
	return t, nil
}

// rtmpOutlet publishes to an RTMP server.
type rtmpOutlet struct {
	target rtmpTarget
	conn   net.Conn
	in     *rawmessage.Reader
	fail   func(error) // is told that the connection is broken
	sentTo atomic.Int64
	read   int64 // bytes, by the reader
	ended  sync.WaitGroup

	mu     sync.Mutex // one message at a time
	out    *rawmessage.Writer
	stream uint32 // number of the stream, as it is written
	video  string // four letters of the coding
}

// dialRTMP connects to a target until it takes the stream. fail is told if the
// connection breaks after that.
func dialRTMP(ctx context.Context, raw string, dial dialer, fail func(error)) (outlet, error) {
	target, err := parseRTMP(raw)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, targetPatience)
	defer cancel()
	conn, err := dial(ctx, "tcp", target.address)
	if err != nil {
		return nil, err
	}
	if target.secure {
		conn = tls.Client(conn, &tls.Config{ServerName: target.host, MinVersion: tls.VersionTLS12})
	}
	o := &rtmpOutlet{target: target, conn: conn, fail: fail}
	counted := bytecounter.NewReader(o)
	o.in = rawmessage.NewReader(counted, counted, o.acknowledge)
	o.out = rawmessage.NewWriter(o, nil, false)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = o.greet(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	o.ended.Go(o.listen)
	return o, nil
}

// Read reads what the target says, which is little.
func (o *rtmpOutlet) Read(p []byte) (int, error) {
	n, err := o.conn.Read(p)
	if o.read += int64(n); o.read > maxTalk+o.sentTo.Load()/talkShare {
		return n, weir.Errorf(weir.Upstream, "the target sends more than a server that takes a stream has to say")
	}
	return n, err
}

// Write writes to the target, which must take it in time.
func (o *rtmpOutlet) Write(p []byte) (int, error) {
	if err := o.conn.SetWriteDeadline(time.Now().Add(targetPatience)); err != nil {
		return 0, err
	}
	n, err := o.conn.Write(p)
	o.sentTo.Add(int64(n))
	return n, err
}

func (o *rtmpOutlet) sent() int64 { return o.sentTo.Load() }

// greet gets as far as the target wanting frames.
func (o *rtmpOutlet) greet(ctx context.Context) error {
	if secure, ok := o.conn.(*tls.Conn); ok {
		if err := secure.HandshakeContext(ctx); err != nil {
			return weir.Wrap(weir.Upstream, err, "TLS with the target failed: %v", err)
		}
	}
	if _, _, err := handshake.DoClient(struct {
		io.Reader
		io.Writer
	}{o, o}, false, false); err != nil {
		return err
	}
	if err := o.control(rtmpSetChunkSize, rtmpChunk); err != nil {
		return err
	}
	o.out.SetChunkSize(rtmpChunk)
	const connect, createStream, publish = 1, 4, 5
	if err := o.command(0, "connect", connect, amf0.Object{
		{Key: "app", Value: o.target.app},
		{Key: "type", Value: "nonprivate"},
		{Key: "flashVer", Value: "FMLE/3.0 (compatible; weir)"},
		{Key: "tcUrl", Value: o.target.url},
		{Key: "fourCcList", Value: amf0.StrictArray{"avc1", "hvc1", "av01", "mp4a"}},
	}); err != nil {
		return err
	}
	if _, err := o.answer(connect); err != nil {
		return err
	}
	// The first two are what servers of old need; some never answer them.
	for i, name := range []string{"releaseStream", "FCPublish"} {
		if err := o.command(0, name, 2+i, nil, o.target.key); err != nil {
			return err
		}
	}
	if err := o.command(0, "createStream", createStream, nil); err != nil {
		return err
	}
	made, err := o.answer(createStream)
	if err != nil {
		return err
	}
	number := 1.0
	if len(made) > 1 {
		if n, ok := made[1].(float64); ok {
			number = n
		}
	}
	o.stream = bits.ReverseBytes32(uint32(number)) // the only number that RTMP writes the other way round
	if err := o.command(o.stream, "publish", publish, nil, o.target.key, "live"); err != nil {
		return err
	}
	return o.published()
}

// control sends a number about the connection.
func (o *rtmpOutlet) control(kind byte, value uint32) error {
	return o.message(controlChunks, kind, 0, 0, binary.BigEndian.AppendUint32(nil, value))
}

func (o *rtmpOutlet) acknowledge(count uint32) error { return o.control(rtmpAcknowledge, count) }

func (o *rtmpOutlet) command(stream uint32, name string, number int, arguments ...any) error {
	body, err := append(amf0.Data{name, float64(number)}, arguments...).Marshal()
	if err != nil {
		return err
	}
	return o.message(commandChunks, rtmpCommand, stream, 0, body)
}

// message sends a message.
func (o *rtmpOutlet) message(chunks, kind byte, stream uint32, at time.Duration, body []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(&rawmessage.Message{ChunkStreamID: chunks, Timestamp: at, Type: kind, MessageStreamID: stream, Body: body})
}

// next obeys what the target says about the connection, and returns its next command.
func (o *rtmpOutlet) next() (name string, number int, arguments amf0.Data, err error) {
	for {
		m, err := o.in.Read()
		if err != nil {
			return "", 0, nil, err
		}
		if len(m.Body) > maxAnswer {
			return "", 0, nil, weir.Errorf(weir.Upstream, "the target sends a message of %d bytes", len(m.Body))
		}
		switch m.Type {
		case rtmpSetChunkSize, rtmpWindow, rtmpUserControl:
			if err := o.obey(m); err != nil {
				return "", 0, nil, err
			}
		case rtmpCommand:
			data, err := amf0.Unmarshal(m.Body)
			if err != nil || len(data) < 2 {
				continue // of a kind that we do not know, and do not need
			}
			name, _ := data[0].(string)
			number, _ := data[1].(float64)
			return name, int(number), data[2:], nil
		}
	}
}

func (o *rtmpOutlet) obey(m *rawmessage.Message) error {
	if len(m.Body) < 4 {
		return nil
	}
	value := binary.BigEndian.Uint32(m.Body)
	switch m.Type {
	case rtmpSetChunkSize:
		if value == 0 || value > 1<<20 {
			return weir.Errorf(weir.Upstream, "the target sends chunks of %d bytes", value)
		}
		// No message is longer than what is taken, and no room is made for one that is.
		return o.in.SetChunkSize(min(value, 1<<16))
	case rtmpWindow:
		o.in.SetWindowAckSize(value)
	case rtmpUserControl:
		const ping, pong = 6, 7
		if len(m.Body) >= 6 && binary.BigEndian.Uint16(m.Body) == ping {
			return o.message(controlChunks, rtmpUserControl, 0, 0, append([]byte{0, pong}, m.Body[2:6]...))
		}
	}
	return nil
}

// answer waits for the answer to a command.
func (o *rtmpOutlet) answer(to int) (amf0.Data, error) {
	for {
		name, number, arguments, err := o.next()
		if err != nil {
			return nil, err
		}
		switch {
		case name == "_result" && number == to:
			return arguments, nil
		case name == "_error" && number == to, name == "close":
			return nil, refused(arguments)
		}
	}
}

// published waits until the target says that it takes the stream.
func (o *rtmpOutlet) published() error {
	for {
		name, _, arguments, err := o.next()
		if err != nil {
			return err
		}
		if name == "_error" || name == "close" {
			return refused(arguments)
		}
		if name != "onStatus" {
			continue
		}
		if level, _ := about(arguments).GetString("level"); level == "error" {
			return refused(arguments)
		}
		if code, _ := about(arguments).GetString("code"); code == "NetStream.Publish.Start" {
			return nil
		}
	}
}

// about returns what a status says.
func about(arguments amf0.Data) amf0.Object {
	for _, a := range arguments {
		switch a := a.(type) {
		case amf0.Object:
			if _, ok := a.Get("code"); ok {
				return a
			}
		case amf0.ECMAArray:
			return amf0.Object(a)
		}
	}
	return nil
}

// refused is the error of a target that does not take the stream.
func refused(arguments amf0.Data) error {
	code, _ := about(arguments).GetString("code")
	// What else a target says is not repeated: it may have the key in it.
	odd := func(r rune) bool { return r != '.' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !strings.HasPrefix(code, "Net") || len(code) > 64 || strings.ContainsFunc(code, odd) {
		code = "no reason given"
	}
	return weir.Errorf(weir.Upstream, "the target refused the stream (%s); check the address and the key", code)
}

// listen hears the target until the connection ends.
func (o *rtmpOutlet) listen() {
	for {
		name, _, arguments, err := o.next()
		if err == nil && name == "onStatus" {
			if level, _ := about(arguments).GetString("level"); level == "error" {
				err = refused(arguments)
			}
		}
		if err == nil && name == "close" {
			err = refused(arguments)
		}
		if errors.Is(err, io.EOF) {
			err = weir.Errorf(weir.Upstream, "the target closed the connection")
		}
		if err != nil {
			o.fail(err)
			_ = o.conn.Close()
			return
		}
	}
}

// hurry gives up on a target that does not take what it is sent.
func (o *rtmpOutlet) hurry() { _ = o.conn.SetWriteDeadline(time.Now().Add(targetFarewell / 2)) }

// close tells the target that the stream is over.
func (o *rtmpOutlet) close() {
	// Not longer than it takes: whoever has stopped listening need not be told.
	farewell := time.AfterFunc(targetFarewell, func() { _ = o.conn.Close() })
	defer farewell.Stop()
	err := o.command(0, "FCUnpublish", 6, nil, o.target.key)
	if err == nil {
		_ = o.command(0, "deleteStream", 7, nil, float64(bits.ReverseBytes32(o.stream)))
	}
	_ = o.conn.Close()
	o.ended.Wait()
}

// begin sends what goes ahead of the frames.
func (o *rtmpOutlet) begin(video, audio *cmaf.Track, at time.Duration) error {
	told := amf0.ECMAArray{{Key: "encoder", Value: "weir"}}
	o.video = ""
	if video != nil {
		o.video = string(video.Entry[4:8])
		var coding float64 = 7
		switch o.video {
		case "avc1":
		case "hvc1", "av01":
			coding = float64(binary.BigEndian.Uint32(video.Entry[4:8]))
		default:
			return weir.Errorf(weir.Invalid, "%s can't be sent over RTMP; send H.264, HEVC or AV1", video.Codec)
		}
		told = append(told, amf0.ObjectEntry{Key: "width", Value: float64(video.Width)}, amf0.ObjectEntry{Key: "height", Value: float64(video.Height)},
			amf0.ObjectEntry{Key: "videocodecid", Value: coding})
	}
	if audio != nil {
		told = append(told, amf0.ObjectEntry{Key: "audiocodecid", Value: 10.0}, amf0.ObjectEntry{Key: "audiosamplerate", Value: float64(audio.SampleRate)},
			amf0.ObjectEntry{Key: "audiosamplesize", Value: 16.0}, amf0.ObjectEntry{Key: "stereo", Value: audio.Channels != 1})
	}
	body, err := amf0.Data{"@setDataFrame", "onMetaData", told}.Marshal()
	if err != nil {
		return err
	}
	if err := o.message(audioChunks, rtmpData, o.stream, at, body); err != nil {
		return err
	}
	if video != nil {
		if err := o.message(videoChunks, rtmpVideo, o.stream, at, append(o.videoHead(true, true, 0), video.Config().Record...)); err != nil {
			return err
		}
	}
	if audio != nil {
		return o.message(audioChunks, rtmpAudio, o.stream, at, append([]byte{aacHead, 0}, audio.Config().Record...))
	}
	return nil
}

// aacHead says AAC; what follows in it is always the same, as the config says it.
const aacHead = 0xaf

// videoHead returns what stands in front of a frame, or of the config.
func (o *rtmpOutlet) videoHead(config, sync bool, shown time.Duration) []byte {
	kind := byte(2)
	if sync {
		kind = 1
	}
	after := int32(shown.Milliseconds())
	delay := []byte{byte(after >> 16), byte(after >> 8), byte(after)}
	if o.video == "avc1" {
		head := append([]byte{kind<<4 | 7, 1}, delay...)
		if config {
			head[1] = 0
		}
		return head
	}
	const extended, start, frames, framesAtOnce = 0x80, 0, 1, 3
	switch {
	case config:
		return append([]byte{extended | kind<<4 | start}, o.video...)
	case o.video == "hvc1" && after != 0:
		return append(append([]byte{extended | kind<<4 | frames}, o.video...), delay...)
	case o.video == "hvc1":
		return append([]byte{extended | kind<<4 | framesAtOnce}, o.video...)
	}
	return append([]byte{extended | kind<<4 | frames}, o.video...)
}

func (o *rtmpOutlet) frame(f outgoing) error {
	if f.kind == cmaf.Audio {
		return o.message(audioChunks, rtmpAudio, o.stream, f.dts, append([]byte{aacHead, 1}, f.data...))
	}
	return o.message(videoChunks, rtmpVideo, o.stream, f.dts, append(o.videoHead(false, f.sync, f.pts-f.dts), f.data...))
}

// pause has nothing to do: times of RTMP may leap.
func (o *rtmpOutlet) pause() error { return nil }
