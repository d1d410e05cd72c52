package playback

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/access/accesstest"
	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/hls"
	"weir/internal/live"
	"weir/internal/media"
	"weir/internal/rtc"
	"weir/internal/rtc/rtctest"
	"weir/internal/store"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/wait/linetest"
	"weir/internal/weir"
)

// twoNodes are two servers on one database that know each other. asked counts what the first is
// asked for by the second.
func twoNodes(t *testing.T) (a, b *fixture, asked *counts) {
	t.Helper()
	url := storetest.SQLite(t, store.Open, storeOptions())
	storage := newDisk(t)
	asked = &counts{of: map[string]int{}}
	a, b = newNode(t, url, "node-a", storage, asked), newNode(t, url, "node-b", storage, &counts{of: map[string]int{}})
	a.ann = a.newUser("ann")
	b.ann = a.ann
	return a, b, asked
}

// counts counts requests by their addresses.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[address]++
}

// most returns the address that was asked for most often of those with a text in them.
func (c *counts) limit(text string) (address string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for a, k := range c.of {
		if strings.Contains(a, text) && k > n {
			address, n = a, k
		}
	}
	return address, n
}

func newNode(t *testing.T, url, id string, storage blob.Store, asked *counts) *fixture {
	t.Helper()
	options := storeOptions()
	options.NodeID, options.Stale = id, time.Hour
	st, err := store.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	h := &fixture{TB: t, database: url, store: st, media: storage, logged: &journal{}}
	log := slog.New(slog.NewTextHandler(h.logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if h.hub, err = live.New(t.Context(), live.Options{Store: st, Dir: t.TempDir(), Node: id, Upload: storage, SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: log}); err != nil {
		t.Fatal(err)
	}
	peers, err := OpenPeers(t.Context(), st)
	if err != nil {
		t.Fatal(err)
	}
	h.server, err = New(t.Context(), Options{Store: st, Media: storage, Gate: accesstest.NewGate(t, st), Live: h.hub, Peers: peers, Dir: t.TempDir(), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/hls/", h.server)
	signalling := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.server.WHEP().ServeHTTP(w, r) })
	byName := func(_ *http.Request, id string) (string, error) { return id, nil }
	mux.Handle(rtc.EndpointPath, h.server.Relay(signalling, byName))
	node := h.server.Node(signalling)
	mux.Handle(NodePath, peers.Only(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.add(r.RequestURI)
		node.ServeHTTP(w, r)
	})))
	h.web = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.busy.Add(1)
		h.inside.Add(1)
		defer func() {
			h.inside.Add(-1)
			h.busy.Done()
		}()
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		h.web.Close()
		h.server.edge.close()
		peers.Close()
	})
	if err := st.AnnounceURL(t.Context(), h.web.URL); err != nil {
		t.Fatal(err)
	}
	return h
}

// A viewer gets the same of a stream from every node, and each thing is asked for once.
func TestEdgeSameBytes(t *testing.T) {
	t.Parallel()
	a, b, asked := twoNodes(t)
	s, e := a.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for range 2 {
		for _, path := range append(livePaths(), "index.m3u8?ll=0", "source/9.m4s", "none/0.m4s", "source/index.m3u8?_HLS_msn=x", "source/index.m3u8?_HLS_msn=900") {
			want, got := a.get(a.under(s.PlaybackID, path)), b.get(b.under(s.PlaybackID, path))
			if got.StatusCode != want.StatusCode || got.body != want.body {
				t.Errorf("%s: the edge answers %d %.300s, want %d %.300s", path, got.StatusCode, got.body, want.StatusCode, want.body)
			}
			for _, name := range []string{"Content-Type", "Cache-Control", "ETag", "Content-Length", "Access-Control-Allow-Origin"} {
				if diff := cmp.Diff(want.Header.Get(name), got.Header.Get(name)); diff != "" {
					t.Errorf("%s: %s (-want +got):\n%s", path, name, diff)
				}
			}
		}
	}
	for _, text := range []string{".m4s", ".mp4", "_HLS_msn=1"} {
		if address, n := asked.limit(text); strings.Contains(address, "9.m4s") || strings.Contains(address, "none") {
			continue // what is not there may come
		} else if n != 1 {
			t.Errorf("%s was asked for %d times", address, n)
		}
	}
	half := b.get(b.under(s.PlaybackID, "source/0.m4s"), "Range", "bytes=100-")
	if half.StatusCode != http.StatusPartialContent || half.body != a.want(a.under(s.PlaybackID, "source/0.m4s")).body[100:] {
		t.Errorf("a range answers %d with %d bytes", half.StatusCode, len(half.body))
	}
}

// A player gets delta updates from an edge too, which requests the whole playlist.
func TestEdgeDeltaUpdates(t *testing.T) {
	t.Parallel()
	a, b, asked := twoNodes(t)
	s, e := a.broadcast(nil, 21*time.Second)
	defer e.Close(true)
	for _, path := range []string{"source/index.m3u8?_HLS_skip=YES&_HLS_msn=%d", "audio/index.m3u8?_HLS_skip=v2&_HLS_msn=%d&_HLS_part=0"} {
		path = fmt.Sprintf(path, sequence(a.want(a.under(s.PlaybackID, "source/index.m3u8")).body)+9)
		want, got := a.want(a.under(s.PlaybackID, path)).body, b.want(b.under(s.PlaybackID, path)).body
		if diff := cmp.Diff(want, got); diff != "" || !strings.Contains(got, "#EXT-X-SKIP:") {
			t.Errorf("%s (-want +got):\n%s\n%s", path, diff, got)
		}
		// A player that waits for such an old segment does not have those that are left out.
		path, _, _ = strings.Cut(path, "&")
		if got := b.want(b.under(s.PlaybackID, path+"&_HLS_msn=1")).body; strings.Contains(got, "#EXT-X-SKIP:") {
			t.Errorf("%s leaves out what the player does not have:\n%s", path, got)
		}
	}
	if address, n := asked.limit("_HLS_skip"); n > 0 {
		t.Errorf("the origin node was asked for %s", address)
	}
}

// Earlier periods of a dead node come from the storage, on the new origin node and on others.
func TestEdgeEarlierPeriods(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	a.runHub()
	s := a.newStream(nil)
	a.changeStream(s, func(s *weir.Stream) { s.Record = true })
	s.Record = true
	e := a.publish(s)
	e.send(5 * time.Second)
	paths := []string{"source/0.m4s", "source/1.m4s", "source/1.2.m4s", "source/init-0.mp4", "audio/0.m4s", "audio/1.0.m4s", "audio/init-0.mp4"}
	var before []string
	for _, path := range paths {
		before = append(before, a.want(a.under(s.PlaybackID, path)).body)
	}
	session, err := a.store.OnAirOf(t.Context(), s.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the storage has what was carried", func() bool {
		return len(a.stored(session.SessionID, "source")) >= 2 && len(a.stored(session.SessionID, "audio")) >= 2
	})
	a.web.CloseClientConnections()
	a.web.Close()
	e2 := b.publish(s)
	defer e2.Close(true)
	e2.send(5 * time.Second)
	for _, path := range []string{"source/index.m3u8", "source/index.m3u8?ll=0", "source/dvr.m3u8", "audio/dvr.m3u8"} {
		list := b.under(s.PlaybackID, path)
		wait.Until(t, "there is something to see", func() bool { return b.get(list).StatusCode == http.StatusOK })
		text := b.want(list).body
		if !strings.Contains(text, "#EXT-X-MEDIA-SEQUENCE:0\n") || !strings.Contains(text, "\n1.m4s\n") || sequence(text) < 16 {
			t.Errorf("%s has not all:\n%s", path, text)
		}
		for _, file := range b.named(list, withoutGaps(text)) {
			if !strings.Contains(text, "PRELOAD-HINT") || file != b.hinted(list, text) {
				b.want(file)
			}
		}
	}
	for i, path := range paths {
		if got := b.want(b.under(s.PlaybackID, path)).body; got != before[i] || got == "" {
			t.Errorf("%s has %d bytes, and had %d", path, len(got), len(before[i]))
		}
	}
	if g := b.get(b.under(s.PlaybackID, "source/5.m4s")); g.StatusCode != http.StatusNotFound {
		t.Errorf("what nobody has: %d %s", g.StatusCode, g.body)
	}
	e.Close(false)
}

// After a handover the new origin node, and edges that ask it, know the segments of the node before
// only when the new one has a segment of its own. Until then requests for them wait: a player that
// gets 404 for a part that its playlist has may never come back to that segment.
func TestEdgeWaitsForHandover(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	c := newNode(t, a.database, "node-c", a.media, &counts{of: map[string]int{}})
	for _, h := range []*fixture{a, b, c} {
		h.server.reloadWait, h.server.partMargin = time.Minute, 10*time.Millisecond
	}
	a.runHub()
	s := a.newStream(nil)
	a.changeStream(s, func(s *weir.Stream) { s.Record = true })
	e := a.publish(s)
	e.send(5 * time.Second)
	n, p := c.next(c.want(c.under(s.PlaybackID, "source/index.m3u8")).body)
	session, err := a.store.OnAirOf(t.Context(), s.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}

	e2 := b.publish(s)
	defer e2.Close(true)
	<-e.Done()
	e.Close(false)
	wait.Until(t, "the storage has the last segment of the first node", func() bool {
		return int64(len(a.stored(session.SessionID, "source"))) > n && int64(len(a.stored(session.SessionID, "audio"))) > n
	})
	last := len(a.stored(session.SessionID, "source")[n].Parts) - 1
	if last < p-1 {
		t.Fatalf("segment %d has %d parts, a playlist had part %d", n, last+1, p-1)
	}
	c.server.edge.origins.Forget(s.PlaybackID)
	paths := []string{fmt.Sprintf("source/%d.%d.m4s", n, last), fmt.Sprintf("source/%d.m4s", n), fmt.Sprintf("audio/%d.0.m4s", n), "source/init-0.mp4"}
	waits := map[string]<-chan got{}
	for _, path := range paths {
		waits["the edge: "+path], waits["the new origin node: "+path] = c.later(c.under(s.PlaybackID, path)), b.later(b.under(s.PlaybackID, path))
	}
	b.waiting(int64(len(waits))) // half of them through the edge
	e2.send(5 * time.Second)
	for what, wait := range waits {
		_, path, _ := strings.Cut(what, ": ")
		if g, want := <-wait, a.want(a.under(s.PlaybackID, path)).body; g.StatusCode != http.StatusOK || g.body != want {
			t.Errorf("%s: %d with %d bytes, want %d", what, g.StatusCode, len(g.body), len(want))
		}
	}

	// What will never come is not waited for.
	for _, h := range []*fixture{b, c} {
		for _, path := range []string{fmt.Sprintf("source/%d.%d.m4s", n, last+1), fmt.Sprintf("source/%d.0.m4s", n+1), fmt.Sprintf("source/%d.m4s", n+1), "none/0.m4s"} {
			if g := h.get(h.under(s.PlaybackID, path)); g.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %d %s", path, g.StatusCode, g.body)
			}
		}
	}
}

// If the new origin node has nothing to show in time, players are told to try again. They do not
// after 404.
func TestEdgeHandoverTakesLong(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	c := newNode(t, a.database, "node-c", a.media, &counts{of: map[string]int{}})
	b.server.reloadWait, c.server.reloadWait = 10*time.Millisecond, 10*time.Millisecond
	s, e := a.broadcast(nil, 5*time.Second)
	e2 := b.publish(s)
	for _, h := range []*fixture{b, c} {
		for _, path := range []string{"source/1.m4s", "source/1.0.m4s", "none/0.m4s"} {
			if g := h.get(h.under(s.PlaybackID, path)); g.StatusCode != http.StatusBadGateway || !strings.Contains(g.body, "try again") {
				t.Errorf("%s: %d %s", path, g.StatusCode, g.body)
			}
		}
	}
	e2.Close(false)
	e.Close(false)
}

// stored returns the segments of the first period of a session that are in the storage.
func (h *fixture) stored(session, name string) []cmaf.Segment {
	h.Helper()
	period := media.NewStoredPeriod(h.media, "asset/"+session, 0, name)
	if err := period.Load(h.Context()); err != nil {
		h.Fatal(err)
	}
	segments, _ := period.Segments()
	return segments
}

// Concurrent requests for the same file share one request to the origin node.
func TestEdgeAsksOnce(t *testing.T) {
	t.Parallel()
	a, b, asked := twoNodes(t)
	a.server.reloadWait, a.server.partMargin = time.Minute, time.Minute
	s, e := a.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	list := b.under(s.PlaybackID, "source/index.m3u8")
	before := b.want(list).body
	n, p := b.next(before)
	reload := fmt.Sprintf("_HLS_msn=%d&_HLS_part=%d", n, p)
	const viewers = 10
	var waits []<-chan got
	for range viewers {
		waits = append(waits, b.later(list+"?"+reload), b.later(b.hinted(list, before)))
	}
	b.waiting(2 * viewers)
	a.waiting(2)
	e.send(time.Second)
	texts := map[string]int{}
	for i, wait := range waits {
		g := <-wait
		if g.StatusCode != http.StatusOK || i%2 == 0 && !strings.Contains(g.body, fmt.Sprintf("%d.%d.m4s", n, p+1)) {
			t.Fatalf("who waited gets %d %s", g.StatusCode, g.body)
		}
		texts[g.body]++
	}
	if len(texts) != 2 {
		t.Errorf("who waited for two things gets %d", len(texts))
	}
	for _, text := range []string{reload, fmt.Sprintf("/%d.%d.m4s", n, p)} {
		if address, n := asked.limit(text); n != 1 {
			t.Errorf("%q was asked for %d times", address, n)
		}
	}
}

// The edge admits viewers, and sends nothing about them to the origin node.
func TestEdgeGates(t *testing.T) {
	t.Parallel()
	a, b, asked := twoNodes(t)
	signer := a.newSigner()
	s, e := a.broadcast(&weir.PlaybackPolicy{Type: weir.PolicyJWT}, 5*time.Second)
	defer e.Close(true)
	jwt := signer.sign(s.PlaybackID)
	b.answersOf("no credential", s.PlaybackID, livePaths(), http.StatusForbidden, func(p string) string { return p })
	if _, n := asked.limit(""); n > 0 {
		t.Error("the origin node was asked for somebody who may not watch")
	}
	token := b.tokenOf(b.under(s.PlaybackID, "index.m3u8?jwt="+jwt))
	b.answersOf("token", s.PlaybackID, livePaths(), http.StatusOK, func(p string) string { return "t/" + token + "/" + p })
	b.answersOf("JWT", s.PlaybackID, livePaths(), http.StatusOK, func(p string) string { return and(p, "jwt="+jwt) })
	master := b.under(s.PlaybackID, "index.m3u8?jwt="+jwt)
	for _, list := range b.named(master, b.want(master).body) {
		files := b.named(list, b.want(list).body)
		if g := b.want(files[0]); len(g.body) == 0 || !strings.Contains(files[0], "/t/"+token+"/") {
			t.Errorf("%s has %d bytes", files[0], len(g.body))
		}
	}
	for _, text := range []string{"jwt", token} {
		if address, n := asked.limit(text); n > 0 {
			t.Errorf("the origin node got the viewer: %s", address)
		}
	}
	if g := a.get(a.web.URL + NodePath + hlsForNodes + s.PlaybackID + "/index.m3u8"); g.StatusCode != http.StatusNotFound {
		t.Errorf("somebody who is no node gets %d %s", g.StatusCode, g.body)
	}
}

// A viewer counts once, wherever.
func TestEdgeCounts(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	s, e := a.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for _, path := range []string{"index.m3u8", "source/index.m3u8", "audio/index.m3u8", "source/0.m4s", "audio/0.m4s", "source/1.0.m4s"} {
		b.want(b.under(s.PlaybackID, path))
	}
	for _, h := range []*fixture{a, b} {
		h.busy.Wait()
		h.saveViews()
	}
	rows, err := b.store.Views(t.Context(), store.ViewQuery{UserID: a.ann.ID, StreamID: s.ID, PlaybackID: s.PlaybackID})
	if err != nil || len(rows) != 1 || rows[0].Views != 1 || !near(rows[0].PlaytimeMs, (2*time.Second+partLength).Seconds()) {
		t.Errorf("%+v, %v", rows, err)
	}
}

// sequence returns the number of the first segment after the last discontinuity of a playlist.
func sequence(list string) (n int64) {
	for line := range strings.Lines(list[max(0, strings.LastIndex(list, "#EXT-X-DISCONTINUITY\n")):]) {
		if _, err := fmt.Sscanf(line, "%d.m4s", &n); err == nil {
			return n
		}
	}
	return -1
}

// withoutGaps returns a playlist without gap segments.
func withoutGaps(list string) string {
	return regexp.MustCompile(`#EXT-X-GAP\n#EXTINF:.*\n.*\n`).ReplaceAllString(list, "")
}

// After a node dies, viewers get the last state until the encoder connects to another.
func TestEdgeAfterOriginDies(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	s, e := a.broadcast(nil, 5*time.Second)
	list := b.under(s.PlaybackID, "source/index.m3u8")
	before := b.want(list).body
	n, p := b.next(before)
	kept := b.want(b.under(s.PlaybackID, "source/0.m4s")).body
	a.web.CloseClientConnections()
	a.web.Close()
	if g := b.want(list); g.body != before || g.Header.Get("Cache-Control") != "public, max-age=1" {
		t.Errorf("the last state is %s: %s", g.Header.Get("Cache-Control"), g.body)
	}
	if b.want(b.under(s.PlaybackID, "source/0.m4s")).body != kept {
		t.Error("a segment is another now")
	}
	b.server.reloadWait = 10 * time.Millisecond
	if g := b.get(b.under(s.PlaybackID, "source/1.m4s")); g.StatusCode != http.StatusBadGateway || !strings.Contains(g.body, "try again") {
		t.Errorf("what nobody has: %d %s", g.StatusCode, g.body)
	}
	b.server.reloadWait = time.Minute
	waits := b.later(fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d", list, n, p))
	b.waiting(1)
	session, err := b.store.OnAirOf(t.Context(), s.PlaybackID)
	if err != nil {
		t.Fatal(err)
	}
	e2 := b.publish(s)
	defer e2.Close(true)
	e2.send(time.Second)
	if g := b.want(list); g.body != before {
		t.Errorf("before there is a whole segment players get %s", g.body)
	}
	e2.send(4 * time.Second)
	after := <-waits
	if after.StatusCode != http.StatusOK || sequence(after.body) <= n || !strings.Contains(after.body, "#EXT-X-DISCONTINUITY\n") {
		t.Errorf("after segment %d comes %d %s", n, after.StatusCode, after.body)
	}
	now, err := b.store.OnAirOf(t.Context(), s.PlaybackID)
	if err != nil || now.SessionID != session.SessionID || now.Node != "node-b" {
		t.Errorf("%+v goes on as %+v, %v", session, now, err)
	}
	e.Close(false)
}

// While a node hangs, its viewers get the last state from the other nodes, as after its death.
func TestEdgeWhileOriginHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	a, b, _ := twoNodes(t)
	line := linetest.New(t, strings.TrimPrefix(a.web.URL, "http://"))
	if err := a.store.AnnounceURL(t.Context(), "http://"+line.Address()); err != nil {
		t.Fatal(err)
	}
	s, e := a.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	list := b.under(s.PlaybackID, "source/index.m3u8")
	before := b.want(list).body
	b.server.reloadWait = 10 * time.Millisecond
	line.Hang()
	reload, segment := b.later(list+"?_HLS_msn=9"), b.later(b.under(s.PlaybackID, "source/1.m4s"))
	if g := b.want(list); g.body != before {
		t.Errorf("the last state is %s", g.body)
	}
	if g := <-reload; g.StatusCode != http.StatusOK || g.body != before {
		t.Errorf("who waits for the next segment gets %d %s", g.StatusCode, g.body)
	}
	if g := <-segment; g.StatusCode != http.StatusBadGateway || !strings.Contains(g.body, "try again") {
		t.Errorf("what only the other node has: %d %s", g.StatusCode, g.body)
	}
	line.Mend()
	b.want(b.under(s.PlaybackID, "source/1.m4s"))
}

// An encoder that changes to another node takes its viewers along.
func TestEdgeFollowsTheEncoder(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	a.server.reloadWait, b.server.reloadWait = time.Minute, time.Minute
	a.runHub()
	s, e := a.broadcast(nil, 5*time.Second)
	list := a.under(s.PlaybackID, "source/index.m3u8")
	n, _ := a.next(a.want(list).body)
	waits := a.later(fmt.Sprintf("%s?_HLS_msn=%d", list, n+1)) // this one still ends at the first node
	a.waiting(1)
	e2 := b.publish(s)
	defer e2.Close(true)
	e2.send(5 * time.Second)
	if g := <-waits; g.StatusCode != http.StatusOK || sequence(g.body) <= n || strings.Contains(g.body, "ENDLIST") {
		t.Errorf("who waited at the first node gets %d %s", g.StatusCode, g.body)
	}
	<-e.Done()
	e.Close(false)
	if got, want := a.want(list).body, b.want(b.under(s.PlaybackID, "source/index.m3u8")).body; got != want {
		t.Errorf("the first node shows %s, the second %s", got, want)
	}
	if g := a.want(a.under(s.PlaybackID, "source/0.m4s")); len(g.body) == 0 {
		t.Error("what the first node received is lost")
	}
	// And back again.
	e3 := a.publish(s)
	defer e3.Close(true)
	last := sequence(a.want(list).body)
	e3.send(5 * time.Second)
	wait.Until(t, "the first node shows what it carries", func() bool { return sequence(a.want(list).body) > last })
}

// A signature needs the secret, and is valid for one request and for a limited time.
func TestNodeSignatures(t *testing.T) {
	t.Parallel()
	a, _, _ := twoNodes(t)
	good := a.server.Peers
	unauthenticated := &Peers{key: bytes.Repeat([]byte{1}, 32), client: good.client}
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	web := httptest.NewServer(good.Only(inner))
	t.Cleanup(web.Close)
	ask := func(p *Peers, change func(*http.Request)) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", web.URL+"/_node/x?y=1", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		now := strconv.FormatInt(time.Now().Unix(), 10)
		r.Header.Set(signatureHeader, now+" "+p.sign(now, "POST", "/_node/x?y=1", []byte("body")))
		change(r)
		response, err := web.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	at := func(when time.Time) func(*http.Request) {
		return func(r *http.Request) {
			now := strconv.FormatInt(when.Unix(), 10)
			r.Header.Set(signatureHeader, now+" "+good.sign(now, "POST", "/_node/x?y=1", []byte("body")))
		}
	}
	for _, tt := range []struct {
		what   string
		peers  *Peers
		change func(*http.Request)
		want   int
	}{
		{"a node", good, func(*http.Request) {}, http.StatusOK},
		{"without the secret", unauthenticated, func(*http.Request) {}, http.StatusNotFound},
		{"no signature", good, func(r *http.Request) { r.Header.Del(signatureHeader) }, http.StatusNotFound},
		{"another path", good, func(r *http.Request) { r.URL.Path = "/_node/z" }, http.StatusNotFound},
		{"another query", good, func(r *http.Request) { r.URL.RawQuery = "y=2" }, http.StatusNotFound},
		{"another method", good, func(r *http.Request) { r.Method = "PUT" }, http.StatusNotFound},
		{"another body", good, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("bodY")) }, http.StatusNotFound},
		{"a clock behind", good, at(time.Now().Add(-10 * time.Second)), http.StatusOK},
		{"an old one", good, at(time.Now().Add(-time.Minute)), http.StatusNotFound},
		{"one of the future", good, at(time.Now().Add(time.Minute)), http.StatusNotFound},
	} {
		if got := ask(tt.peers, tt.change); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, got, tt.want)
		}
	}
}

// The cache has a limit, and drops the least recently used.
func TestPieces(t *testing.T) {
	t.Parallel()
	c := newFileCache(10_000)
	now := time.Now()
	of := func(n int) *fetched { return &fetched{body: make([]byte, n)} }
	c.put("used", of(100), time.Time{})
	c.put("short", of(100), now.Add(time.Second))
	for i := range 100 {
		c.put(fmt.Sprint(i), of(500), time.Time{})
		if _, ok := c.get("used", now); !ok {
			t.Fatal("what is used is forgotten")
		}
		if i == 0 {
			if _, ok := c.get("short", now.Add(2*time.Second)); ok {
				t.Error("what held for a second holds for longer")
			}
		}
	}
	if _, ok := c.get("0", now); ok || c.size > c.max || len(c.items) != c.order.Len() {
		t.Errorf("%d bytes in %d files", c.size, len(c.items))
	}
	c.put("large", of(5000), time.Time{})
	if _, ok := c.get("large", now); ok {
		t.Error("one file evicts the others")
	}
	c.put("used", of(200), time.Time{})
	if f, _ := c.get("used", now); f == nil || len(f.body) != 200 {
		t.Error("what is put again is the old one")
	}
}

// A viewer over WebRTC can ask any node.
func TestEdgeRelaysOffers(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	a, b, _ := twoNodes(t)
	a.openWebRTC()
	s := a.newStream(nil)
	a.sendForBrowsers(s, rtctest.MakeFilm(t, "2"))
	viewer := rtctest.New(t)
	viewer.Post(b.web.URL+rtc.EndpointPath+s.PlaybackID, viewer.OfferToWatch())
	watches(viewer)
	if !strings.HasPrefix(viewer.Location, b.web.URL) {
		t.Errorf("the session is at %s", viewer.Location)
	}
	if response := rtctest.Request(t, http.MethodDelete, viewer.Location, "", ""); response.StatusCode != http.StatusOK {
		t.Errorf("DELETE: %d %s", response.StatusCode, response.Text)
	}
	viewer.Ended()
	viewer = rtctest.New(t)
	refused := a.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	a.sendForBrowsers(refused, rtctest.MakeFilm(t, "2"))
	if response := rtctest.Request(t, http.MethodPost, b.web.URL+rtc.EndpointPath+refused.PlaybackID, "application/sdp", viewer.OfferToWatch()); response.StatusCode != http.StatusForbidden {
		t.Errorf("who may not watch gets %d %s", response.StatusCode, response.Text)
	}
}

// An encoder that was on another node connects here when that one dies.
func TestEdgeBecomesTheOriginAgain(t *testing.T) {
	t.Parallel()
	a, b, _ := twoNodes(t)
	a.runHub()
	s, e := a.broadcast(nil, 5*time.Second)
	list := a.under(s.PlaybackID, "source/index.m3u8")
	e2 := b.publish(s)
	e2.send(5 * time.Second)
	<-e.Done()
	e.Close(false)
	before := a.want(list).body
	n, p := a.next(before)
	if n < 16 {
		t.Fatalf("the first node does not show what the second carries: %s", before)
	}
	b.web.CloseClientConnections()
	b.web.Close()
	waits := a.later(fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d&_HLS_skip=YES", list, n, p))
	a.waiting(1)
	e3 := a.publish(s)
	defer e3.Close(true)
	e3.send(5 * time.Second)
	if g := <-waits; g.StatusCode != http.StatusOK || sequence(g.body) <= n {
		t.Errorf("after segment %d comes %d %s", n, g.StatusCode, g.body)
	}
	for _, path := range []string{"index.m3u8", "source/index.m3u8", "audio/index.m3u8"} {
		g := a.want(a.under(s.PlaybackID, path))
		for _, file := range a.named(a.under(s.PlaybackID, path), withoutGaps(g.body)) {
			if !strings.Contains(g.body, "PRELOAD-HINT") || file != a.hinted(a.under(s.PlaybackID, path), g.body) {
				a.want(file)
			}
		}
	}
	e2.Close(false)
}

// A player gets an update only if it has all that is left out: it asks for a segment, and has those
// before it.
func TestUpdateFor(t *testing.T) {
	t.Parallel()
	list := hls.Media{Sequence: 40, Target: 2 * time.Second, PartTarget: time.Second}
	for n := range 20 {
		list.Segments = append(list.Segments, hls.Segment{File: hls.File{URI: strconv.Itoa(40+n) + ".m4s"}, Duration: 2 * time.Second})
	}
	whole, delta := list.Text(), list.Delta()
	f := newFetched(whole)
	for segment, want := range map[int64][]byte{40: whole, 53: whole, 54: delta.Text(), 60: delta.Text()} {
		if diff := cmp.Diff(string(want), string(f.updateFor(segment).Plain)); diff != "" {
			t.Errorf("a player that asks for segment %d (-want +got):\n%s", segment, diff)
		}
	}
	for _, text := range []string{"", "#EXTM3U\n", "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nx\n"} {
		if got := string(newFetched([]byte(text)).updateFor(9).Plain); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
