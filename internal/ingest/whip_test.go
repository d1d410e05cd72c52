package ingest

import (
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/rtc"
	"weir/internal/rtc/rtctest"
	"weir/internal/wait"
)

// startWHIP lets peers publish to a hub, and returns the address for the good key.
func startWHIP(t *testing.T, hub *testHub) (url string, admission *Admission, endpoint *rtc.Endpoint) {
	t.Helper()
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	server, err := rtc.New(rtc.Options{UDP: udp, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	admission = NewAdmission(nil, log)
	endpoint = WHIP{RTC: server, Log: log, Admission: admission, publish: hub.publish}.Endpoint()
	web := httptest.NewServer(endpoint)
	t.Cleanup(func() {
		web.Close()
		endpoint.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return web.URL + rtc.EndpointPath + goodKey, admission, endpoint
}

// A peer publishes H.264 and Opus until it says goodbye, in one of the ways that there are.
func TestWHIP(t *testing.T) {
	film := rtctest.MakeFilm(t, "2")
	for name, tt := range map[string]struct {
		end    func(*rtctest.Peer, *rtc.Endpoint, *testPublisher)
		closed string
	}{
		"deleted":      {func(p *rtctest.Peer, _ *rtc.Endpoint, _ *testPublisher) { deleted(p) }, "clean"},
		"closed":       {func(p *rtctest.Peer, _ *rtc.Endpoint, _ *testPublisher) { p.Close() }, "clean"},
		"hub ends it":  {func(_ *rtctest.Peer, _ *rtc.Endpoint, to *testPublisher) { close(to.done) }, "lost"},
		"server stops": {func(_ *rtctest.Peer, d *rtc.Endpoint, _ *testPublisher) { d.Close() }, "lost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := newTestHub()
			url, admission, endpoint := startWHIP(t, hub)
			p := rtctest.New(t)
			p.Post(url, p.OfferToSend())
			p.Connected()
			p.Play(film)
			hub.wait(t, "media", func() bool { return hub.count() > 100 })
			if n := admission.Stats().Connections; n != 1 {
				t.Errorf("%d connections are counted, want 1", n)
			}
			if response := rtctest.Request(t, http.MethodPatch, p.Location, "application/trickle-ice-sdpfrag", "a=end-of-candidates\r\n"); response.StatusCode != http.StatusNoContent {
				t.Errorf("PATCH: %d %s", response.StatusCode, response.Text)
			}
			if response := rtctest.Request(t, http.MethodPatch, p.Location, "application/trickle-ice-sdpfrag", "a=ice-ufrag:another\r\n"); response.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("an ICE restart: %d %s", response.StatusCode, response.Text)
			}
			hub.mu.Lock()
			publisher := hub.publishers[0]
			hub.mu.Unlock()
			tt.end(p, endpoint, publisher)
			got := hub.only(t)
			checkWHIP(t, got)
			if got.closed != tt.closed {
				t.Errorf("the publisher ended %s, want %s", got.closed, tt.closed)
			}
			endpoint.Close()
			if n := admission.Stats().Connections; n != 0 {
				t.Errorf("%d connections are counted at the end", n)
			}
		})
	}
}

func deleted(p *rtctest.Peer) {
	p.Helper()
	if response := rtctest.Request(p, http.MethodDelete, p.Location, "", ""); response.StatusCode != http.StatusOK {
		p.Errorf("DELETE: %d %s", response.StatusCode, response.Text)
	}
}

// checkWHIP checks the received frames.
func checkWHIP(t *testing.T, p *testPublisher) {
	t.Helper()
	p.hub.mu.Lock()
	defer p.hub.mu.Unlock()
	if p.from.Protocol != "whip" || !strings.HasPrefix(p.from.Remote, "127.0.0.1") {
		t.Errorf("it comes from %+v", p.from)
	}
	if len(p.tracks) != 1 || len(p.tracks[0]) != 2 || !strings.HasPrefix(p.tracks[0][0].Codec, "avc1.") || !strings.EqualFold(p.tracks[0][1].Codec, "opus") ||
		p.tracks[0][0].Width != 160 || p.tracks[0][1].Channels != 2 {
		t.Fatalf("the tracks are %+v, want H.264 of 160x90 and stereo Opus, once", p.tracks)
	}
	last := map[cmaf.Kind]live.Frame{}
	for i, f := range p.frames {
		before, ok := last[f.kind]
		switch {
		case !ok && f.kind == cmaf.Video && !f.Sync:
			t.Error("the first video frame is no key frame")
		case ok && f.DTS <= before.DTS || f.PTS != f.DTS:
			t.Fatalf("frame %d, %s, is decoded at %v and shown at %v, the one before at %v", i, f.kind, f.DTS, f.PTS, before.DTS)
		}
		last[f.kind] = f.Frame
	}
	if apart := (last[cmaf.Video].PTS - last[cmaf.Audio].PTS).Abs(); apart > 500e6 {
		t.Errorf("audio and video end %v apart", apart)
	}
}

// Invalid offers are refused, and so are requests without a session.
func TestWHIPRefused(t *testing.T) {
	hub := newTestHub()
	url, _, _ := startWHIP(t, hub)
	good := rtctest.New(t).OfferToSend()
	const sdp = "application/sdp"
	for name, tt := range map[string]struct {
		method, url, contentType, body string
		want                           int
	}{
		"unknown key":  {"POST", strings.Replace(url, goodKey, "aaaa-bbbb-cccc-dddd", 1), sdp, good, http.StatusNotFound},
		"no H.264":     {"POST", url, sdp, strings.ReplaceAll(good, "H264/90000", "VP9/90000"), http.StatusUnsupportedMediaType},
		"not SDP":      {"POST", url, sdp, "hello", http.StatusBadRequest},
		"another type": {"POST", url, "application/json", good, http.StatusUnsupportedMediaType},
		"too long":     {"POST", url, sdp, strings.Repeat("a", rtc.MaxOffer+1), http.StatusRequestEntityTooLarge},
		"GET":          {"GET", url, "", "", http.StatusMethodNotAllowed},
		"no session":   {"DELETE", url + "/nothing", "", "", http.StatusNotFound},
		"HEAD":         {"HEAD", url, "", "", http.StatusOK},
		"OPTIONS":      {"OPTIONS", url, "", "", http.StatusNoContent},
	} {
		t.Run(name, func(t *testing.T) {
			response := rtctest.Request(t, tt.method, tt.url, tt.contentType, tt.body)
			if response.StatusCode != tt.want || response.Header.Get("Access-Control-Allow-Origin") != "*" {
				t.Errorf("%d %s, want %d", response.StatusCode, response.Text, tt.want)
			}
			if tt.want >= 400 && !strings.Contains(response.Text, `{"errors":["`) {
				t.Errorf("no reason is given: %s", response.Text)
			}
			if strings.Contains(response.Text, goodKey) {
				t.Errorf("the stream key is in the response: %s", response.Text)
			}
		})
	}
	hub.mu.Lock()
	defer hub.mu.Unlock()
	for _, p := range hub.publishers {
		if p.closed == "" {
			t.Error("a publisher is left")
		}
	}
}

// An address with many wrong stream keys must wait; a valid key does not help it.
func TestWHIPGuesses(t *testing.T) {
	hub := newTestHub()
	url, admission, _ := startWHIP(t, hub)
	const sdp = "application/sdp"
	wrong, good := strings.Replace(url, goodKey, "aaaa-bbbb-cccc-dddd", 1), rtctest.New(t).OfferToSend()
	response := rtctest.Request(t, http.MethodPost, wrong, sdp, good)
	for tries := 1; response.StatusCode == http.StatusNotFound && tries < 10*maxFailuresAtOnce; tries++ {
		response = rtctest.Request(t, http.MethodPost, wrong, sdp, good)
	}
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" || !strings.Contains(response.Text, "wrong stream keys") {
		t.Errorf("after many wrong keys: %d %s", response.StatusCode, response.Text)
	}
	admission.failing.PerSecond = 0 // so that the next request is not late enough
	if response := rtctest.Request(t, http.MethodPost, url, sdp, good); response.StatusCode != http.StatusTooManyRequests {
		t.Errorf("the right key after many wrong ones: %d %s", response.StatusCode, response.Text)
	}
	if admission.CheckKeys(netip.MustParseAddr("192.0.2.1")) != nil {
		t.Error("another address must wait too")
	}
}

// A publisher is refused when there are no open files left for its stream, and gives back what it had.
func TestWHIPNoFiles(t *testing.T) {
	hub := newTestHub()
	url, admission, _ := startWHIP(t, hub)
	_, admission.budget = newAdmission(t, 2)
	const sdp = "application/sdp"
	release, err := admission.budget.Stream(filesOfStream)
	if err != nil {
		t.Fatal(err)
	}
	response := rtctest.Request(t, http.MethodPost, url, sdp, rtctest.New(t).OfferToSend())
	if response.StatusCode != http.StatusServiceUnavailable || response.Header.Get("Retry-After") == "" || !strings.Contains(response.Text, "open files") {
		t.Errorf("without open files: %d %s", response.StatusCode, response.Text)
	}
	if p := hub.only(t); p.closed != "lost" {
		t.Errorf("the publisher ended %s", p.closed)
	}
	release()
	p := rtctest.New(t)
	p.Post(url, p.OfferToSend())
	if n := admission.budget.Stats().StreamFiles; n != filesOfStream {
		t.Errorf("%d open files are kept, want %d", n, filesOfStream)
	}
	deleted(p)
	wait.Until(t, "all is given back", func() bool {
		return admission.budget.Stats().StreamFiles == 0 && admission.Stats().Connections == 0
	})
}

func TestIsStreamKey(t *testing.T) {
	for id, want := range map[string]bool{
		goodKey: true, "video+" + goodKey: true, "1a2b3c4d5e6f7a8b": false, "1a2b-3c4d-5e6f": false, "1a2b-3c4d-5e6f-7a8b-9": false, "": false,
		"7a8b9c0d-1234-4567-8901-123456789012": false,
	} {
		if got := IsStreamKey(id); got != want {
			t.Errorf("IsStreamKey(%q) = %v", id, got)
		}
	}
}
