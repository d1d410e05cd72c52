package live

import (
	"bytes"
	"context"
	endian "encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"

	"weir/internal/wait"
)

// Messages of RTMP.
const (
	rtmpChunkSize = 1
	rtmpAudio     = 8
	rtmpPicture   = 9
	rtmpCommand   = 20
)

// rtmpEncoder is an encoder that sends byte by byte what it is told, right or wrong.
type rtmpEncoder struct {
	net.Conn
	chunk int
	gone  chan struct{} // closed when weir has closed the connection
}

// dialRTMP connects from an address of this machine, which is another one for everybody
// who means harm, and shakes hands.
func dialRTMP(ctx context.Context, from, to string) (*rtmpEncoder, error) {
	conn, err := dialFrom(ctx, from, to)
	if err != nil {
		return nil, err
	}
	e := &rtmpEncoder{Conn: conn, chunk: 128, gone: make(chan struct{})}
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	_, err = conn.Write(append([]byte{3}, make([]byte, 1536)...))
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1+2*1536))
	}
	if err == nil {
		_, err = conn.Write(make([]byte, 1536))
	}
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("handshake: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	go func() {
		defer close(e.gone)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return e, nil
}

// dialFrom connects from an address of this machine; "" = any.
func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	var d net.Dialer
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	return d.DialContext(ctx, "tcp", to)
}

// close ends the connection, and waits for everything of it.
func (e *rtmpEncoder) close() {
	_ = e.Close()
	<-e.gone
}

// send sends a message in chunks.
func (e *rtmpEncoder) send(kind byte, at time.Duration, body []byte) error {
	var b bytes.Buffer
	b.Grow(len(body) + len(body)/e.chunk + 16)
	stream := 2 + kind%16
	b.WriteByte(stream)
	b.Write(endian.BigEndian.AppendUint32(nil, uint32(at.Milliseconds()))[1:])
	b.Write(endian.BigEndian.AppendUint32(nil, uint32(len(body)))[1:])
	b.WriteByte(kind)
	b.Write([]byte{1, 0, 0, 0})
	for i := 0; ; i += e.chunk {
		b.Write(body[i:min(i+e.chunk, len(body))])
		if i+e.chunk >= len(body) {
			break
		}
		b.WriteByte(0xC0 | stream)
	}
	_, err := e.Write(b.Bytes())
	return err
}

func (e *rtmpEncoder) command(name string, arguments ...any) error {
	body, err := append(amf0.Data{name, float64(1)}, arguments...).Marshal()
	if err != nil {
		return err
	}
	return e.send(rtmpCommand, 0, body)
}

// publish does all that comes before media.
func (e *rtmpEncoder) publish(key string) error {
	const size = 64 << 10
	err := e.send(rtmpChunkSize, 0, endian.BigEndian.AppendUint32(nil, size))
	e.chunk = size
	return errors.Join(err,
		e.command("connect", amf0.Object{{Key: "app", Value: "live"}}),
		e.command("createStream", nil),
		e.command("publish", nil, key, "live"))
}

// Parameter sets of H.264: 640 by 360. Nobody decodes the pictures of these tests.
const (
	crowdSPS = "\x67\x42\xc0\x1e\xd9\x00\xa0\x2f\xf9\x61\x00\x00\x03\x00\x01\x00\x00\x03\x00\x3c\x0f\x16\x2e\x48"
	crowdPPS = "\x68\xcb\x83\xcb\x20"
)

// pictureConfig is what is sent ahead of the pictures.
func pictureConfig(sps, pps string) []byte {
	body := []byte{0x17, 0, 0, 0, 0, 1, sps[1], sps[2], sps[3], 0xFF, 0xE1}
	body = append(endian.BigEndian.AppendUint16(body, uint16(len(sps))), sps...)
	body = append(endian.BigEndian.AppendUint16(append(body, 1), uint16(len(pps))), pps...)
	return body
}

// picture is a message with a picture of one NAL unit.
func picture(nal []byte) []byte {
	body := []byte{0x27, 1, 0, 0, 0}
	if nal[0]&31 == 5 {
		body[0] = 0x17
	}
	return append(endian.BigEndian.AppendUint32(body, uint32(len(nal))), nal...)
}

// stamped is a NAL unit that tells its number and when it was made, and is as long as
// told. There are no zeros in it: some would be read as the start of another.
func stamped(n int, key bool, size int) []byte {
	nal := []byte{0x41}
	if key {
		nal[0] = 0x65
	}
	nal = fmt.Appendf(nal, "%08x%016x", n, time.Now().UnixNano())
	return append(nal, bytes.Repeat([]byte{0x55}, max(0, size-len(nal)))...)
}

// readStamp reads what is in a stamped NAL unit.
func readStamp(nal []byte) (n int, made time.Time, err error) {
	var at int64
	if len(nal) < 25 {
		return 0, made, fmt.Errorf("a picture of %d bytes", len(nal))
	}
	_, err = fmt.Sscanf(string(nal[1:25]), "%08x%016x", &n, &at)
	return n, time.Unix(0, at), err
}
