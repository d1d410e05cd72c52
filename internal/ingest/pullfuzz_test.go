package ingest

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	rtmp "github.com/bluenviron/gortmplib/pkg/message"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/weir"
)

// nothing takes everything that a source hands on.
type nothing struct{}

func (nothing) StreamID() string                              { return "stream-1" }
func (nothing) SetTracks(context.Context, []cmaf.Track) error { return nil }
func (nothing) Done() <-chan struct{}                         { return nil }
func (nothing) Close(bool)                                    {}
func (nothing) LeaveOut(string)                               {}
func (nothing) Write(live.Frame) error                        { return nil }

// FuzzPlaylist reads playlists that may be anything.
func FuzzPlaylist(f *testing.F) {
	for _, text := range []string{
		"#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n#EXT-X-MAP:URI=\"i.mp4\",BYTERANGE=\"10@0\"\n#EXTINF:2.0,\n#EXT-X-BYTERANGE:100@10\na\n#EXT-X-DISCONTINUITY\n#EXTINF:1,x\n#EXT-X-BYTERANGE:5\na\n#EXT-X-ENDLIST\n",
		"#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",URI=\"s\",DEFAULT=YES\n#EXT-X-STREAM-INF:BANDWIDTH=5,CODECS=\"avc1.1,mp4a\",AUDIO=\"a\"\nv\n",
		"#EXTM3U\n#EXT-X-KEY:METHOD=AES-128,URI=\"k\",IV=0x1\n#EXT-X-GAP\n#EXTINF:3\nb\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		master, list, err := readPlaylist(text)
		if err != nil {
			if weir.KindOf(err) != weir.Invalid {
				t.Errorf("an error that is not about the playlist: %v", err)
			}
			return
		}
		if master != nil {
			bestVariant(master)
			return
		}
		for i, s := range list.Segments {
			if s.Number < 0 || s.Duration < 0 || s.Offset < 0 || s.Length < 0 || i > 0 && (s.Breaks < list.Segments[i-1].Breaks || s.Number <= list.Segments[i-1].Number) {
				t.Fatalf("segment %+v", s)
			}
		}
	})
}

// FuzzPullFLV reads files that may be anything.
func FuzzPullFLV(f *testing.F) {
	data, err := os.ReadFile(clip(f, "flv"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[:4<<10])
	f.Fuzz(func(t *testing.T, data []byte) {
		feed := newFeed(nothing{}, slog.New(slog.DiscardHandler))
		var clock unwrapper
		_ = readFLV(bufio.NewReader(bytes.NewReader(data)), func(video bool, milliseconds uint32, body []byte) error {
			if len(body) == 0 {
				return nil
			}
			take := func(p codec.Packet) error { return feed.add(t.Context(), p, clock.at(milliseconds)) }
			if video {
				return videoTag(body, take)
			}
			return audioTag(body, take)
		})
	})
}

// FuzzPullRTMP listens to a server that may say anything.
func FuzzPullRTMP(f *testing.F) {
	var said bytes.Buffer
	out := rtmp.NewWriter(&said, bytecounter.NewWriter(&said), false)
	for _, m := range []rtmp.Message{
		&rtmp.SetChunkSize{Value: 4096},
		&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "_result", CommandID: numberConnect, Arguments: amf0.Data{nil, nil}},
		&rtmp.CommandAMF0{ChunkStreamID: 3, Name: "_result", CommandID: numberCreate, Arguments: amf0.Data{nil, float64(1)}},
		&rtmp.CommandAMF0{ChunkStreamID: 5, Name: "onStatus", Arguments: amf0.Data{nil, status("status", "NetStream.Play.Start", "x")}},
		&rtmp.UserControlStreamEOF{StreamID: 1},
	} {
		if err := out.Write(m); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(said.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		s := newPullSource(Puller{Log: slog.New(slog.DiscardHandler)}, newWish("rtmp://example.com/live/key"), nothing{})
		p := &player{source: s}
		p.open(saying{bytes.NewReader(data)}, maxMessage)
		for {
			m, err := p.chunks.next()
			if err == nil {
				err = p.handle(t.Context(), m, "key")
			}
			if err != nil {
				_ = p.failed(err)
				return
			}
		}
	})
}

// saying is a connection to somebody who says something and hears nothing.
type saying struct{ io.Reader }

func (saying) Write(p []byte) (int, error)      { return len(p), nil }
func (saying) Close() error                     { return nil }
func (saying) LocalAddr() net.Addr              { return nil }
func (saying) RemoteAddr() net.Addr             { return nil }
func (saying) SetDeadline(time.Time) error      { return nil }
func (saying) SetReadDeadline(time.Time) error  { return nil }
func (saying) SetWriteDeadline(time.Time) error { return nil }
