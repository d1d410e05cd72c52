package rtmp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/google/go-cmp/cmp"

	"weir/internal/codec"
)

// said is a connection whose other end has sent some bytes and reads nothing.
type said struct{ io.Reader }

func (said) Write(p []byte) (int, error)      { return len(p), nil }
func (said) Close() error                     { return nil }
func (said) LocalAddr() net.Addr              { return nil }
func (said) RemoteAddr() net.Addr             { return nil }
func (said) SetDeadline(time.Time) error      { return nil }
func (said) SetReadDeadline(time.Time) error  { return nil }
func (said) SetWriteDeadline(time.Time) error { return nil }

// saying returns a connection whose other end sends some bytes after a handshake.
func saying(data []byte) net.Conn {
	hello := append([]byte{rtmpVersion}, make([]byte, 2*handshakeSize)...)
	return said{bytes.NewReader(append(hello, data...))}
}

// chunked is a dialogue as bytes.
type chunked struct {
	bytes.Buffer
	w chunkWriter
}

func newDialogue() *chunked {
	d := &chunked{}
	d.w = chunkWriter{to: d, size: defaultChunkSize}
	return d
}

func (d *chunked) say(kind byte, body ...byte) {
	_ = d.w.write(commandChunks, 1, message{kind: kind, body: body}, nil)
}

func (d *chunked) command(name string, number int, arguments ...any) {
	d.say(messageCommand, appendAMF(appendAMF(nil, name, float64(number)), arguments...)...)
}

// FuzzServe listens to an encoder that may say anything.
func FuzzServe(f *testing.F) {
	d := newDialogue()
	d.command("connect", 1, object{{"app", "live"}, {"fourCcList", []string{"hvc1"}}})
	f.Add(bytes.Clone(d.Bytes()))
	d.command("createStream", 2, nil)
	d.command("publish", 3, nil, goodKey, "live")
	d.say(messageData, appendAMF(nil, "@setDataFrame", "onMetaData", ecmaArray{{"videocodecid", float64(7)}, {"audiocodecid", float64(10)}})...)
	d.say(messageAudio, 0xAF, 0, 0x11, 0x90)
	d.say(messageAudio, 0xAF, 1, 0x21, 0x10, 0x04)
	d.say(messageVideo, 0x17, 0, 0, 0, 0, 'a', 'v', 'c', 'C')
	f.Add(bytes.Clone(d.Bytes()))
	d.command("deleteStream", 4, nil, float64(1))
	f.Add(d.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		c := NewConn(saying(data))
		published := false
		err := c.Serve(t.Context(), Handler{
			App: "live",
			Publish: func(_ context.Context, key string) error {
				if key != goodKey {
					return errors.New("no such key")
				}
				published = true
				return nil
			},
			Tracks: func(bool, bool) {},
			Packet: func(p codec.Packet, _ time.Duration) error {
				if !published {
					t.Error("a packet before the stream key")
				}
				c.Reuse(p.Data)
				return nil
			},
		})
		if err == nil {
			t.Error("it goes on after the last byte")
		}
		if c.chunks.unfinished > maxMessage {
			t.Errorf("%d bytes are kept", c.chunks.unfinished)
		}
		c.Close()
	})
}

// FuzzPlay and FuzzPublish listen to a server that may say anything.
func FuzzPlay(f *testing.F) {
	d := newDialogue()
	d.say(messageChunkSize, 0, 0, 16, 0)
	d.w.size = 4096
	d.command("_result", 1, nil, nil)
	d.command("_result", 2, nil, float64(1))
	d.command("onStatus", 0, nil, status("status", "NetStream.Play.Start", "x"))
	d.say(messageAudio, 0xAF, 1, 0x21, 0x10, 0x04)
	d.say(messageUserControl, 0, 1, 0, 0, 0, 1)
	f.Add(d.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Dial(t.Context(), "rtmp://a.example/live/key", dialPipe(saying(data)))
		if err != nil {
			t.Fatal(err)
		}
		if c.Play(t.Context(), func(codec.Packet, time.Duration) error { return nil }) == nil {
			t.Error("it goes on after the last byte")
		}
		c.Close()
	})
}

func FuzzPublish(f *testing.F) {
	d := newDialogue()
	d.command("_result", 1, nil, status("status", "NetConnection.Connect.Success", "x"))
	d.say(messageUserControl, 0, 6, 0, 0, 0, 0)
	d.say(messageWindow, 0, 0, 0, 64)
	d.command("_result", 4, nil, float64(1))
	d.command("onStatus", 0, nil, status("status", "NetStream.Publish.Start", "x"))
	f.Add(bytes.Clone(d.Bytes()))
	d.command("close", 0, nil)
	f.Add(d.Bytes())
	f.Add([]byte{2, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 0, 16, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Dial(t.Context(), "rtmp://a.example/live/key", dialPipe(saying(data)))
		if err != nil {
			t.Fatal(err)
		}
		if err = c.Publish(t.Context()); err == nil && c.Wait() == nil {
			t.Error("it goes on after the last byte")
		}
		c.Close()
	})
}

func FuzzParseURL(f *testing.F) {
	f.Add("rtmp://a.example/live2/key?x=y")
	f.Fuzz(func(t *testing.T, raw string) {
		if a, err := parseURL(raw); err == nil && (a.app == "" || a.host == "" || a.key == "") {
			t.Errorf("parseURL(%q) = %+v", raw, a)
		}
	})
}

// FuzzFLV reads files that may be anything.
func FuzzFLV(f *testing.F) {
	f.Add(flvFile())
	f.Fuzz(func(t *testing.T, data []byte) {
		err := ReadFLV(bufio.NewReader(bytes.NewReader(data)), func(p codec.Packet, _ time.Duration) error {
			if len(p.Data) > len(data) {
				t.Errorf("a packet of %d bytes in a file of %d", len(p.Data), len(data))
			}
			return nil
		})
		if errors.Is(err, io.EOF) {
			t.Error("an end in the middle looks like a whole file")
		}
	})
}

// FuzzAMF reads values that may be anything. A library reads the same in them.
func FuzzAMF(f *testing.F) {
	f.Add(appendAMF(nil, "connect", 1.0, object{{"app", "live"}, {"fpad", false}, {"list", []string{"a", "b"}}}, ecmaArray{{"x", nil}}, true))
	f.Add([]byte{amfUndefined, amfDate, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, amfLongString, 0, 0, 0, 1, 'a'})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := readAMF(data)
		want, wrong := amf0.Unmarshal(data)
		if wrong != nil || err != nil {
			return // the library knows fewer types, and any depth
		}
		if diff := cmp.Diff(fromLibrary(want), got, cmp.AllowUnexported(property{}), equalNaN()); diff != "" {
			t.Errorf("values (-library +ours):\n%s", diff)
		}
	})
}

func equalNaN() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return a == b || a != a && b != b })
}

// fromLibrary returns values of the library as ours.
func fromLibrary(values []any) (all []any) {
	for _, value := range values {
		switch v := value.(type) {
		case amf0.Object:
			value = fromObject(v)
		case amf0.ECMAArray:
			value = fromObject(amf0.Object(v))
		case amf0.StrictArray:
			value = fromLibrary(v)
		case amf0.Undefined:
			value = nil
		}
		all = append(all, value)
	}
	return all
}

func fromObject(o amf0.Object) object {
	all := object{}
	for _, e := range o {
		all = append(all, property{e.Key, fromLibrary([]any{e.Value})[0]})
	}
	return all
}
