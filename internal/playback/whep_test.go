package playback

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/rtc/rtctest"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// openWebRTC lets viewers watch over WebRTC, and returns the address below which they do.
func (h *fixture) openWebRTC() string {
	h.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		h.Fatal(err)
	}
	server, err := rtc.New(rtc.Options{UDP: udp, Log: h.server.Log})
	if err != nil {
		h.Fatal(err)
	}
	h.server.RTC = server
	h.server.whep = h.server.newWHEP()
	web := httptest.NewServer(h.server.WHEP())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- h.server.Run(ctx) }()
	h.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			h.Error(err)
		}
		if err := server.Close(); err != nil {
			h.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return web.URL + rtc.EndpointPath
}

// sendForBrowsers sends H.264 without B-frames and Opus to a stream in real time, until the test
// ends or stop is called.
func (h *fixture) sendForBrowsers(s weir.Stream, film rtctest.Film) (stop func()) {
	h.Helper()
	tracks, video := samples(h, film)
	p, err := h.hub.Publish(h.Context(), s.StreamKey.Reveal(), live.Source{Protocol: "test"})
	if err == nil {
		err = p.SetTracks(h.Context(), tracks)
	}
	if err != nil {
		h.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer p.Close(true)
		tick := time.NewTicker(time.Second / rtctest.Rate)
		defer tick.Stop()
		for i := 0; ; i++ {
			at := time.Duration(i) * time.Second / rtctest.Rate
			n := i % len(video)
			frames := []live.Frame{{Track: 0, PTS: at, DTS: at, Sync: n%rtctest.Rate == 0, Data: bytes.Clone(video[n])}}
			for k := range 2 {
				at := at + time.Duration(k)*20*time.Millisecond
				frames = append(frames, live.Frame{Track: 1, PTS: at, DTS: at, Sync: true, Data: bytes.Clone(film.Audio[(2*i+k)%len(film.Audio)])})
			}
			for _, f := range frames {
				if p.Write(f) != nil {
					return // the publisher was ended
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	h.Cleanup(stop)
	wait.Until(h, "the stream is on air", func() bool {
		b, ok := h.hub.Find(s.PlaybackID)
		return ok && len(b.Master().Video) > 0
	})
	return stop
}

// samples returns a film as cmaf keeps it.
func samples(h *fixture, film rtctest.Film) (tracks []cmaf.Track, video [][]byte) {
	h.Helper()
	d := codec.NewDecoder(codec.H264)
	for _, unit := range film.Video {
		sample, err := d.Sample(codec.FromAnnexB(unit))
		if err != nil {
			h.Fatal(err)
		}
		video = append(video, sample.Data)
	}
	config, known, err := d.Config()
	if err != nil || !known {
		h.Fatalf("no parameter sets: %v", err)
	}
	audio, err := codec.OpusConfig(2)
	if err != nil {
		h.Fatal(err)
	}
	for _, config := range []codec.Config{config, audio} {
		track, err := cmaf.NewTrack(config)
		if err != nil {
			h.Fatal(err)
		}
		tracks = append(tracks, track)
	}
	return tracks, video
}

// watches waits until a peer has seen and heard some of a stream.
func watches(p *rtctest.Peer) {
	p.Helper()
	wait.Until(p, "the viewer sees and hears the stream", func() bool {
		_, video := p.Got("video")
		_, audio := p.Got("audio")
		return video > time.Second && audio > time.Second
	})
}

// A viewer watches until the viewer leaves or the stream ends, and is counted.
func TestWHEP(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	h := newFixture(t, newDisk(t))
	at := h.openWebRTC()
	s := h.newStream(nil)
	stop := h.sendForBrowsers(s, rtctest.MakeFilm(t, "2"))
	leaver, stayer := rtctest.New(t), rtctest.New(t)
	leaver.Post(at+s.PlaybackID, leaver.OfferToWatch())
	stayer.Post(at+"video+"+s.PlaybackID, stayer.OfferToWatch()) // as addresses of the Livepeer Studio API have it
	watches(leaver)
	watches(stayer)
	if response := rtctest.Request(t, http.MethodDelete, leaver.Location, "", ""); response.StatusCode != http.StatusOK {
		t.Errorf("DELETE: %d %s", response.StatusCode, response.Text)
	}
	leaver.Ended()
	wait.Until(t, "the viewing is counted", func() bool {
		rows, err := h.store.Views(t.Context(), store.ViewQuery{UserID: h.ann.ID, StreamID: s.ID, PlaybackID: s.PlaybackID})
		return err == nil && len(rows) == 1 && rows[0].Views == 1 && rows[0].PlaytimeMs > 500
	})
	stop()
	h.changeStream(s, func(s *weir.Stream) { s.Deleted = true })
	stayer.Ended()
	wait.Until(t, "nobody is left", func() bool { return h.server.RTC.Peers() == 0 })
}

// Streams that browsers can't play are refused with a reason and a hint to use HLS.
func TestWHEPRefused(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	at := h.openWebRTC()
	reordered, e := h.broadcast(nil, 3*time.Second)
	defer e.Close(true)
	offer := rtctest.New(t).OfferToWatch()
	for name, tt := range map[string]struct {
		id, offer string
		want      int
		says      string
	}{
		"B-frames":  {reordered.PlaybackID, offer, http.StatusNotAcceptable, "B-frames"},
		"an asset":  {h.newAsset(nil).PlaybackID, offer, http.StatusNotAcceptable, "only live streams"},
		"off air":   {h.newStream(nil).PlaybackID, offer, http.StatusNotFound, "not started"},
		"unknown":   {"0000000000000000", offer, http.StatusNotFound, "not found"},
		"no access": {h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT}).PlaybackID, offer, http.StatusForbidden, ""},
	} {
		t.Run(name, func(t *testing.T) {
			response := rtctest.Request(t, http.MethodPost, at+tt.id, "application/sdp", tt.offer)
			if response.StatusCode != tt.want || !strings.Contains(response.Text, tt.says) {
				t.Errorf("%d %s, want %d with %q", response.StatusCode, response.Text, tt.want, tt.says)
			}
		})
	}
	if n := h.server.RTC.Peers(); n != 0 {
		t.Errorf("%d peers are left", n)
	}
}

// A session ends when its viewer may not watch any more.
func TestWHEPAdmissionEnds(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	at := h.openWebRTC()
	film := rtctest.MakeFilm(t, "2")
	for name, tt := range map[string]struct {
		life time.Duration // of the JWT
		end  func(s weir.Stream, by *signer)
	}{
		"JWT expired": {10 * time.Second, func(weir.Stream, *signer) {}},
		"suspended":   {time.Hour, func(s weir.Stream, _ *signer) { h.changeStream(s, func(s *weir.Stream) { s.Suspended = true }) }},
		"key disabled": {time.Hour, func(_ weir.Stream, by *signer) {
			h.write(func(tx *store.Tx) error {
				_, err := tx.UpdateSigningKey(t.Context(), by.key.ID, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
				return err
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && tt.life < time.Minute {
				t.Skip("slow")
			}
			t.Parallel()
			signer := h.newSigner()
			s := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
			h.sendForBrowsers(s, film)
			p := rtctest.New(t)
			p.Post(at+s.PlaybackID, p.OfferToWatch(), "Livepeer-Jwt", signer.signFor(s.PlaybackID, tt.life, ""))
			watches(p)
			tt.end(s, signer)
			p.Ended()
		})
	}
}

// Browsers get the source if they show it, otherwise the largest rendition that they do.
func TestForBrowsers(t *testing.T) {
	rendition := func(name, codec string, height int, delay int64) cmaf.Rendition {
		return cmaf.Rendition{Name: name, Index: cmaf.TrackIndex{
			Track:    cmaf.Track{Kind: cmaf.Video, Codec: codec, Timescale: 90000, Width: 2 * height, Height: height, Delay: delay},
			Segments: []cmaf.Segment{{}},
		}}
	}
	expected := rendition("1080p", "avc1.64001f", 1080, 0)
	expected.Index.Segments = nil
	rungs := []cmaf.Rendition{rendition("180p", "avc1.64001f", 180, 0), rendition("360p", "avc1.64001f", 360, 0), expected}
	audio := []cmaf.Rendition{{Name: "audio", Index: cmaf.TrackIndex{Track: cmaf.Track{Kind: cmaf.Audio, Codec: "mp4a.40.2"}}}}
	for name, tt := range map[string]struct {
		source *cmaf.Rendition
		rungs  []cmaf.Rendition
		audio  []cmaf.Rendition
		want   string
		kind   weir.Kind
	}{
		"as it is":               {new(rendition("source", "avc1.64001f", 720, 0)), rungs, audio, "source", ""},
		"B-frames":               {new(rendition("source", "avc1.64001f", 720, 6000)), rungs, audio, "360p", ""},
		"HEVC":                   {new(rendition("source", "hvc1.1.6.L93.B0", 720, 0)), rungs, audio, "360p", ""},
		"B-frames, no others":    {new(rendition("source", "avc1.64001f", 720, 6000)), nil, audio, "", weir.Unacceptable},
		"HEVC, others to come":   {new(rendition("source", "hvc1.1.6.L93.B0", 720, 0)), []cmaf.Rendition{expected}, audio, "", weir.Unacceptable},
		"audio only":             {nil, nil, audio, "source", ""},
		"nothing":                {nil, nil, nil, "", weir.NotFound},
		"times that are rounded": {new(rendition("source", "avc1.64001f", 720, 90)), nil, nil, "source", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := cmaf.Master{Audio: tt.audio}
			if tt.source != nil {
				m.Video = append(m.Video, *tt.source)
			}
			m.Video = append(m.Video, tt.rungs...)
			got, err := forBrowsers(m)
			if got != tt.want || err == nil && tt.kind != "" || err != nil && weir.KindOf(err) != tt.kind {
				t.Errorf("forBrowsers() = %q, %v, want %q, %v", got, err, tt.want, tt.kind)
			}
		})
	}
}
