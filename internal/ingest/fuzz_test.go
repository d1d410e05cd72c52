package ingest

import (
	"bufio"
	"bytes"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bluenviron/gortmplib/pkg/amf0"
	"github.com/bluenviron/gortmplib/pkg/bytecounter"
	"github.com/bluenviron/gortmplib/pkg/rawmessage"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/weir"
)

// talker is an encoder that says something and hears nothing.
type talker struct{ io.Reader }

func (talker) Write(p []byte) (int, error)      { return len(p), nil }
func (talker) Close() error                     { return nil }
func (talker) LocalAddr() net.Addr              { return nil }
func (talker) SetDeadline(time.Time) error      { return nil }
func (talker) SetReadDeadline(time.Time) error  { return nil }
func (talker) SetWriteDeadline(time.Time) error { return nil }

func (talker) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1} }

// FuzzPublish listens to an encoder that may say anything over RTMP after the handshake.
func FuzzPublish(f *testing.F) {
	var said bytes.Buffer
	e := &client{out: rawmessage.NewWriter(&said, bytecounter.NewWriter(&said), false)}
	e.command("connect", amf0.Object{{Key: "app", Value: "live"}, {Key: "fourCcList", Value: amf0.StrictArray{"hvc1"}}})
	f.Add(bytes.Clone(said.Bytes()))
	e.command("createStream", nil)
	e.command("publish", nil, goodKey, "live")
	e.metadata(amf0.ECMAArray{{Key: "videocodecid", Value: float64(7)}, {Key: "audiocodecid", Value: float64(10)}})
	e.audioConfig()
	e.audioFrame()
	head := []byte{0x17, 0, 0, 0, 0}
	e.send(messageVideo, append(head, someAVCC...)...)
	e.send(messageVideo, 0x17, 1, 0, 0, 0, 0, 0, 0, 2, 0x65, 1)
	f.Add(bytes.Clone(said.Bytes()))
	e.command("deleteStream", nil, float64(1))
	f.Add(said.Bytes())
	hello := append([]byte{3}, make([]byte, 2*1536)...)
	f.Fuzz(func(t *testing.T, data []byte) {
		hub, log := newTestHub(), &logBook{}
		s := newServer(RTMP{Log: log.logger(), publish: hub.publish, Admission: NewAdmission(nil, log.logger())})
		conn := talker{io.MultiReader(bytes.NewReader(hello), bytes.NewReader(data))}
		slot, err := s.Admission.admit(addressOf(conn.RemoteAddr()))
		if err != nil {
			t.Fatal(err)
		}
		s.serve(t.Context(), conn, slot)
		if n := s.Admission.Stats().Connections; n != 0 {
			t.Errorf("%d connections are counted at the end", n)
		}
		for _, p := range hub.publishers {
			if p.closed == "" || strings.Contains(p.closed, "again") {
				t.Errorf("a publisher ended %q", p.closed)
			}
			for _, f := range p.frames {
				if len(f.Data) == 0 {
					t.Error("a frame without data")
				}
			}
		}
		if text := log.String(); strings.Contains(text, goodKey) || strings.Contains(text, "defect") {
			t.Errorf("the log has the stream key, or a defect:\n%s", text)
		}
	})
}

// file is a server that has one.
type file []byte

func (f file) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f))
	response := w.Result()
	response.Request = r
	return response, nil
}

// FuzzPullMP4 reads files that may be anything, whole ones and fragmented ones.
func FuzzPullMP4(f *testing.F) {
	whole := filepath.Join(f.TempDir(), "whole.mp4")
	run(f, "ffmpeg", "-v", "error", "-nostdin", "-i", clip(f, "flv"), "-t", "0.2", "-c", "copy", whole)
	for _, path := range []string{whole, clip(f, "small.mp4"), clip(f, "opus.mp4")} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:min(len(data), 16<<10)])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		// Files are read as fast as they are shown; the clock of a bubble does not wait.
		synctest.Test(t, func(t *testing.T) {
			s := newPullSource(Puller{Log: slog.New(slog.DiscardHandler)}, newTestPull("https://example.com/film.mp4"), nothing{})
			w := &fetcher{client: &http.Client{Transport: file(data)}}
			a, err := w.get(t.Context(), &url.URL{Scheme: "https", Host: "example.com", Path: "/film.mp4"}, 0, 0)
			if err != nil {
				return // there is nothing in it
			}
			defer a.Close()
			err = s.readMP4(t.Context(), w, a, bufio.NewReaderSize(a, 64<<10))
			if kind := weir.KindOf(err); err != nil && kind != weir.Invalid && kind != weir.Upstream {
				t.Errorf("an error that is not about the file: %v", err)
			}
		})
	})
}

// FuzzAudio adds arbitrary configurations and frames of audio.
func FuzzAudio(f *testing.F) {
	f.Add(true, []byte{0x11, 0x90}, []byte{0x21, 0x10, 0x04})
	f.Add(true, []byte{0x2B, 0x92, 0x08, 0x00}, []byte{1})
	f.Add(false, codec.OpusHead(2), []byte{0xFC, 1, 2, 3})
	f.Add(false, []byte("OpusHead\x01\x06\x00\x00\x80\xBB\x00\x00\x00\x00\x01\x04\x02\x00\x04\x01\x02\x03\x05"), []byte{0xFF, 0x83, 1})
	f.Fuzz(func(t *testing.T, aac bool, config, frame []byte) {
		name := codec.Opus
		if aac {
			name = codec.AAC
		}
		d := codec.NewDecoder(name)
		_ = d.Configure(config)
		s, err := d.Sample(bytes.Clone(frame))
		if err == nil && (s.Duration < 0 || s.Timescale < 0 || len(s.Data) > len(frame)) {
			t.Errorf("a frame of %d bytes is %d of %d bytes, %d samples at %d Hz", len(frame), len(s.Data), len(frame), s.Duration, s.Timescale)
		}
		if c, ok, err := d.Config(); ok && (err != nil || c.Kind != cmaf.Audio || c.SampleRate == 0) {
			t.Errorf("configuration %+v, %v", c, err)
		}
		feed := newFeed(nothing{}, slog.New(slog.DiscardHandler))
		for i := range 3 {
			for _, p := range []codec.Packet{{Kind: cmaf.Audio, Codec: name, Config: true, Data: config}, {Kind: cmaf.Audio, Codec: name, Data: bytes.Clone(frame)}} {
				if err := feed.addPacket(t.Context(), p, time.Duration(i)*time.Second); err != nil && weir.KindOf(err) != weir.Invalid {
					t.Errorf("an error that is not the sender's: %v", err)
				}
			}
		}
	})
}
