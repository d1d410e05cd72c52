package playback

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"weir/internal/rtc/rtctest"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// watchOnce requests a master playlist and a segment from an address, without a network.
func (h *fixture) watchOnce(a weir.Asset, address, agent string) {
	h.Helper()
	for _, path := range []string{"index.m3u8", large + "/0.m4s"} {
		w := &memory{header: http.Header{}}
		r := httptest.NewRequestWithContext(h.Context(), "GET", "/hls/"+a.PlaybackID+"/"+path, nil)
		r.RemoteAddr = netip.AddrPortFrom(netip.MustParseAddr(address), 1234).String()
		r.Header.Set("User-Agent", agent)
		h.server.ServeHTTP(w, r)
		if w.status != http.StatusOK {
			h.Fatalf("%s: %d %s", path, w.status, w.body.String())
		}
	}
}

// An address that sends another User-Agent with every request is one viewer.
func TestRandomAgents(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	h.watchOnce(a, "192.0.2.1", "Mozilla/5.0 (Windows NT 10.0) Firefox/120.0")
	before := h.delivered()
	const requests = 10_000
	for i := range requests {
		h.watchOnce(a, "192.0.2.2", fmt.Sprintf("agent %x/%d", i*7919, i))
	}
	for i := range 100 { // as a client with IPv6 can
		h.watchOnce(a, fmt.Sprintf("2001:db8::%x", i), fmt.Sprintf("Mozilla/5.0 (X11; Linux) Chrome/%d.0", i))
	}
	got := h.seen(a)
	if got.Views != 3 {
		t.Errorf("%d views, want 3", got.Views)
	}
	if used := h.delivered() - before; used < (requests+100)*900 {
		t.Errorf("usage is %d ms, want that of all requests", used)
	}
}

// accessHook makes an access webhook of ann's that admits the right key, and counts its requests.
func (h *fixture) accessHook() (*weir.PlaybackPolicy, *atomic.Int64) {
	h.Helper()
	var asked atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		var q struct{ AccessKey string }
		if json.Unmarshal(text, &q) != nil || q.AccessKey != "right" {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	h.Cleanup(receiver.Close)
	hook, err := weir.WebhookBody{Name: "gate", URL: receiver.URL, Events: []weir.EventName{}}.
		Webhook(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		h.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(h.Context(), &hook) })
	return &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: hook.ID}, &asked
}

// An address that guesses access keys causes few requests and no views.
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	policy, asked := h.accessHook()
	a := h.newAsset(policy)
	guesser, viewer := h.from("192.0.2.2"), h.from("192.0.2.3")
	wrong := int64(0)
	guess := func() got { return h.get(h.at(a, fmt.Sprintf("index.m3u8?accessKey=%d", wrong)), guesser...) }
	g := guess()
	for ; g.StatusCode == http.StatusForbidden && wrong < 1000; g = guess() {
		wrong++
	}
	if g.StatusCode != http.StatusTooManyRequests || g.Header.Get("Retry-After") != "1" || !strings.Contains(g.body, "too many wrong credentials") {
		t.Errorf("after %d guesses: %d, Retry-After %q, %s", wrong, g.StatusCode, g.Header.Get("Retry-After"), g.body)
	}
	if n := asked.Load(); n != wrong || h.server.Gate.Stats().Throttled != 1 {
		t.Errorf("%d requests about %d guesses, %+v", n, wrong, h.server.Gate.Stats())
	}
	token := h.tokenIn(h.want(h.at(a, "index.m3u8?accessKey=right"), viewer...).body)
	h.want(h.at(a, large+"/0.m4s?accessKey=right"), guesser...)
	h.want(h.at(a, "t/"+token+"/"+large+"/0.m4s"), guesser...)
	if got := h.seen(a); got.Views != 2 {
		t.Errorf("%d views, want 2", got.Views)
	}
}

// agents have different devices.
var agents = []string{"Firefox/1", "Chrome/1", "Safari/1", "Edg/1"}

// limitViewers sets the limit of ann's account.
func (h *fixture) limitViewers(limit int) {
	h.Helper()
	h.write(func(tx *store.Tx) error {
		_, err := tx.UpdateUser(h.Context(), h.ann.ID, func(u *weir.User) error { u.ViewerLimit = &limit; return nil })
		return err
	})
}

// isFull checks that a viewer is refused because of the limit.
func (h *fixture) isFull(url string, limit int, headers ...string) {
	h.Helper()
	g := h.get(url, headers...)
	if says := fmt.Sprintf("the account has reached its limit of %d concurrent viewers", limit); g.StatusCode != http.StatusForbidden || !strings.Contains(g.body, says) {
		h.Errorf("GET %s: %d %.200s, want 403 with %q", url, g.StatusCode, g.body, says)
	}
}

func TestViewerLimit(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.limitViewers(2)
	a, b := h.newAsset(nil), h.newAsset(nil)
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	by := func(i int) []string { return []string{"User-Agent", agents[i]} }
	h.want(h.at(a, "index.m3u8"), by(0)...)
	h.want(h.at(b, large+".mp4"), by(1)...)
	h.busy.Wait()
	for _, url := range []string{h.at(a, "index.m3u8"), h.at(a, "ts.m3u8"), h.at(a, large+".mp4"), h.under(s.PlaybackID, "index.m3u8")} {
		h.isFull(url, 2, by(2)...)
		if g := h.ask("HEAD", url, by(2)...); g.StatusCode != http.StatusOK {
			t.Errorf("HEAD %s: %d", url, g.StatusCode)
		}
		h.want(url, by(0)...) // who watches, also something else of the account
		h.want(url, by(1)...)
	}
	h.want(h.at(a, large+"/0.m4s"), by(0)...)
	if n := h.server.Stats().Refused; n != 4 {
		t.Errorf("%d were refused", n)
	}

	h.limitViewers(0)
	wait.Until(t, "a limit of 0 lets nobody begin", func() bool {
		return strings.Contains(h.get(h.at(a, "index.m3u8"), by(3)...).body, "limit of 0 concurrent viewers")
	})
}

// Viewers on other nodes count.
func TestViewerLimitOnTwoNodes(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	a.limitViewers(1)
	s, e := a.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	a.want(a.under(s.PlaybackID, "index.m3u8"), "User-Agent", agents[0])
	a.busy.Wait()
	a.saveViews()
	b.isFull(b.under(s.PlaybackID, "index.m3u8"), 1, "User-Agent", agents[1])
	a.isFull(a.under(s.PlaybackID, "index.m3u8"), 1, "User-Agent", agents[1])
	a.want(a.under(s.PlaybackID, "index.m3u8"), "User-Agent", agents[0])
}

func TestViewerLimitOverWebRTC(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.limitViewers(1)
	at := h.openWebRTC()
	s := h.newStream(nil)
	h.sendForBrowsers(s, rtctest.MakeFilm(t, "2"))
	first := rtctest.New(t)
	first.Post(at+s.PlaybackID, first.OfferToWatch(), "User-Agent", agents[0])
	watches(first)
	offer := rtctest.New(t).OfferToWatch()
	response := rtctest.Request(t, http.MethodPost, at+s.PlaybackID, "application/sdp", offer, "User-Agent", agents[1])
	if response.StatusCode != http.StatusForbidden || !strings.Contains(response.Text, "limit of 1 concurrent viewers") {
		t.Errorf("a second viewer over WebRTC: %d %s", response.StatusCode, response.Text)
	}
	wait.Until(t, "the stream plays over HLS", func() bool {
		return h.ask("HEAD", h.under(s.PlaybackID, "index.m3u8")).StatusCode == http.StatusOK
	})
	h.isFull(h.under(s.PlaybackID, "index.m3u8"), 1, "User-Agent", agents[1])
	h.want(h.under(s.PlaybackID, "index.m3u8"), "User-Agent", agents[0])
	if n := h.server.RTC.Peers(); n != 1 {
		t.Errorf("%d peers are connected", n)
	}
}

// BenchmarkWatched counts what a viewer was sent, which every segment does.
func BenchmarkWatched(b *testing.B) {
	h := newFixture(b, newDisk(b))
	a := h.newAsset(nil)
	title, err := h.server.titles.find(b.Context(), a.PlaybackID)
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r.Header.Set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0 Safari/537.36")
	req := &request{Request: r, server: h.server, id: a.PlaybackID, title: title}
	for b.Loop() {
		h.server.views.Note(&title.Title, req.viewer(), time.Second)
	}
}
