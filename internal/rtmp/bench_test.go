package rtmp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"weir/internal/codec"
)

// looped reads the same bytes a number of times.
type looped struct {
	data []byte
	pos  int
	left int
}

func (l *looped) Read(p []byte) (int, error) {
	if l.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, l.data[l.pos:])
	if l.pos += n; l.pos == len(l.data) {
		l.pos, l.left = 0, l.left-1
	}
	return n, nil
}

// BenchmarkReceive takes two seconds of an encoder at 6 Mbit/s: what the server side costs until a
// handler gets the packets.
func BenchmarkReceive(b *testing.B) {
	for _, size := range []int{4096, 65536} {
		b.Run(fmt.Sprintf("chunks=%d", size), func(b *testing.B) {
			start := newDialogue()
			start.command("connect", 1, object{{"app", "live"}})
			start.command("publish", 2, nil, goodKey, "live")
			start.say(messageChunkSize, 0, byte(size>>16), byte(size>>8), byte(size))
			var media bytes.Buffer
			w := chunkWriter{to: &media, size: size}
			messages := 0
			send := func(chunks, kind byte, at int, head []byte, length int) {
				messages++
				_ = w.write(chunks, 1, message{kind, uint32(at), make([]byte, length)}, head)
			}
			for i := range 60 {
				length := 22_000 + i*50
				if i == 0 {
					length = 180_000
				}
				send(videoChunks, messageVideo, i*33, []byte{0x27, 1, 0, 0, 0}, length)
				for j := range 1 + i%2 {
					send(audioChunks, messageAudio, i*33, []byte{0xAF, 1}, 340+j)
				}
			}
			b.ReportAllocs()
			b.SetBytes(int64(media.Len()))
			conn := saying(start.Bytes()).(said)
			conn.Reader = io.MultiReader(conn.Reader, &looped{data: media.Bytes(), left: b.N})
			c := NewConn(conn)
			got := 0
			err := c.Serve(b.Context(), Handler{
				App:     "live",
				Publish: func(context.Context, string) error { return nil },
				Packet: func(p codec.Packet, _ time.Duration) error {
					got++
					c.Reuse(p.Data)
					return nil
				},
			})
			if !errors.Is(err, io.EOF) || got != messages*b.N {
				b.Fatal(err, got)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(got), "ns/message")
		})
	}
}

// BenchmarkSend sends a frame of a stream at 6 Mbit/s: what a target costs beside the system's own
// work.
func BenchmarkSend(b *testing.B) {
	c := newClient(said{}, address{})
	c.out.size = ourChunkSize
	p := codec.Packet{Kind: codec.Video, Codec: codec.H264, Data: make([]byte, 25_000)}
	b.ReportAllocs()
	b.SetBytes(int64(len(p.Data)))
	for i := range b.N {
		if err := c.WritePacket(p, false, time.Duration(i)*time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
}
