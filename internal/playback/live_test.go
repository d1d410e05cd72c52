package playback

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/access"
	"weir/internal/access/accesstest"
	"weir/internal/cmaf"
	"weir/internal/live"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// and adds to the query of a path.
func and(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// next returns the numbers of the next segment and part of a playlist.
func (h *fixture) next(list string) (segment int64, part int) {
	h.Helper()
	found := regexp.MustCompile(`PRELOAD-HINT:TYPE=PART,URI="(?:[^"]*/)?(\d+)\.(\d+)\.m4s"`).FindStringSubmatch(list)
	if found == nil {
		h.Fatalf("no hint in the playlist:\n%s", list)
	}
	if _, err := fmt.Sscan(found[1]+" "+found[2], &segment, &part); err != nil {
		h.Fatal(err)
	}
	return segment, part
}

// The stream decodes without errors to the frames that were sent, each once.
func TestLivePlays(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.runHub()
	s, e := h.broadcast(nil, 6*time.Second)
	e.Close(true)
	h.changeStream(s, func(s *weir.Stream) { s.LastTerminatedAt = new(weir.At(time.Now())) })
	want, _ := decoded(t, writeTemp(t, makeFilm(t).source), "v:0")
	want = append(want, want...)[:e.sent[0]]
	list := h.under(s.PlaybackID, "source/index.m3u8")
	wait.Until(t, "the session has ended", func() bool { return strings.Contains(h.want(list).body, "\n#EXT-X-ENDLIST\n") })
	got, _ := decoded(t, list, "v:0")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames differ (-want +got):\n%s", diff)
	}
	if audio, _ := decoded(t, h.under(s.PlaybackID, "index.m3u8"), "a:0"); len(audio) < e.sent[1]-2 || len(audio) > e.sent[1] {
		t.Errorf("%d audio packets, %d were sent", len(audio), e.sent[1])
	}
	if text := h.logged.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", text)
	}
}

// Everything that playlists name is there, parts and all, and has a length.
func TestLiveAllURIsExist(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	signer := h.newSigner()
	for _, policy := range []*weir.PlaybackPolicy{nil, {Type: weir.PolicyJWT}} {
		s, e := h.broadcast(policy, 5*time.Second)
		query := "x=1"
		if policy != nil {
			query = "jwt=" + signer.sign(s.PlaybackID)
		}
		master := h.under(s.PlaybackID, "index.m3u8?"+query)
		lists := h.named(master, h.want(master).body)
		if len(lists) != 2 {
			t.Fatalf("the master playlist names %q", lists)
		}
		// A player may start without the master playlist.
		lists = append(lists, h.under(s.PlaybackID, "source/index.m3u8?"+query), h.under(s.PlaybackID, "audio/index.m3u8?ll=0&"+query))
		for _, list := range lists {
			text := h.want(list).body
			files := h.named(list, text)
			if len(files) < 3 {
				t.Errorf("%s names %q", list, files)
			}
			for _, file := range files {
				if strings.Contains(text, "PRELOAD-HINT") && file == h.hinted(list, text) {
					continue // it comes later
				}
				if g := h.want(file); len(g.body) == 0 || g.ContentLength != int64(len(g.body)) {
					t.Errorf("%s has %d bytes, Content-Length %d", file, len(g.body), g.ContentLength)
				}
			}
		}
		e.Close(true)
	}
	if text := h.logged.String(); strings.Contains(text, "level=ERROR") {
		t.Errorf("the log has errors:\n%s", text)
	}
}

// hinted returns the URI of the preload hint of a playlist.
func (h *fixture) hinted(list, text string) string {
	_, after, _ := strings.Cut(text, "#EXT-X-PRELOAD-HINT:")
	return h.named(list, "#"+after[:strings.Index(after, "\n")])[0]
}

// The parts of a segment are the segment.
func TestLiveParts(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for _, name := range []string{"source", "audio"} {
		whole := h.want(h.under(s.PlaybackID, name+"/0.m4s"))
		var parts strings.Builder
		for p := 0; ; p++ {
			g := h.get(h.under(s.PlaybackID, fmt.Sprintf("%s/0.%d.m4s", name, p)))
			if g.StatusCode == http.StatusNotFound {
				break
			}
			parts.WriteString(g.body)
		}
		if parts.String() != whole.body || len(whole.body) == 0 {
			t.Errorf("%s: the parts have %d bytes, the segment has %d", name, parts.Len(), len(whole.body))
		}
		half := len(whole.body) / 2
		if g := h.get(h.under(s.PlaybackID, name+"/0.m4s"), "Range", fmt.Sprintf("bytes=%d-", half)); g.StatusCode != http.StatusPartialContent || g.body != whole.body[half:] {
			t.Errorf("%s: a range answers %d with %d bytes", name, g.StatusCode, len(g.body))
		}
	}
}

func TestLiveHeaders(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	const forever, list = "public, max-age=3600, immutable", "application/vnd.apple.mpegurl"
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for _, tt := range []struct{ path, kind, caching string }{
		{"index.m3u8", list, string(keepPlaylist)},
		{"source/index.m3u8", list, string(keepPlaylist)},
		{"source/index.m3u8?_HLS_msn=1&_HLS_part=0", list, string(keepAwaited)},
		{"audio/index.m3u8?_HLS_msn=1", list, string(keepAwaited)},
		{"source/init-0.mp4", "video/mp4", forever},
		{"source/0.m4s", "video/mp4", forever},
		{"source/0.0.m4s", "video/mp4", forever},
		{"audio/1.m4s", "video/mp4", forever},
	} {
		url := h.under(s.PlaybackID, tt.path)
		g := h.want(url)
		for name, want := range map[string]string{
			"Content-Type": tt.kind, "Cache-Control": tt.caching, "Access-Control-Allow-Origin": "*", "X-Content-Type-Options": "nosniff",
		} {
			if got := g.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.path, name, got, want)
			}
		}
		head := h.ask("HEAD", url)
		if head.StatusCode != http.StatusOK || head.ContentLength != int64(len(g.body)) || head.Header.Get("ETag") != g.Header.Get("ETag") {
			t.Errorf("HEAD %s: %d, %d bytes of %d, ETag %s", tt.path, head.StatusCode, head.ContentLength, len(g.body), head.Header.Get("ETag"))
		}
		if again := h.get(url, "If-None-Match", g.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: a viewer who has it gets %d", tt.path, again.StatusCode)
		}
	}
	if a, b := h.want(h.under(s.PlaybackID, "source/0.m4s")), h.want(h.under(s.PlaybackID, "source/1.m4s")); a.Header.Get("ETag") == b.Header.Get("ETag") {
		t.Error("two segments have one ETag")
	}
}

// A master playlist that is asked for without low latency names playlists without it.
func TestLiveWithoutLowLatency(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for query, low := range map[string]bool{"": true, "?ll=1": true, "?ll=0": false} {
		master := h.under(s.PlaybackID, "index.m3u8"+query)
		for _, list := range h.named(master, h.want(master).body) {
			text := h.want(list).body
			if got := strings.Contains(text, "#EXT-X-PART:"); got != low {
				t.Errorf("%s: low latency %v:\n%s", list, got, text)
			}
			if !strings.Contains(text, "\n0.m4s\n") {
				t.Errorf("%s has no segment:\n%s", list, text)
			}
		}
	}
}

// later asks for something that may take a while.
func (h *fixture) later(url string) <-chan got {
	response := make(chan got, 1)
	go func() { response <- h.get(url) }()
	return response
}

// waiting waits until so many requests are in the server.
func (h *fixture) waiting(n int64) {
	h.Helper()
	wait.Until(h, fmt.Sprintf("%d requests are being answered", n), func() bool { return h.inside.Load() == n })
}

// A request for a future playlist or part is answered when it exists.
func TestLiveWaits(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.reloadWait, h.server.partMargin = time.Minute, time.Minute
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	list := h.under(s.PlaybackID, "source/index.m3u8")
	before := h.want(list).body
	n, p := h.next(before)
	file := h.hinted(list, before)
	reload, whole, part := h.later(fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d", list, n, p)), h.later(fmt.Sprintf("%s?_HLS_msn=%d", list, n)), h.later(file)
	h.waiting(3)
	e.send(300 * time.Millisecond)
	if g := <-reload; g.StatusCode != http.StatusOK || !strings.Contains(g.body, fmt.Sprintf(`"%d.%d.m4s"`, n, p)) {
		t.Errorf("the playlist answers %d:\n%s", g.StatusCode, g.body)
	}
	if g := <-part; g.StatusCode != http.StatusOK || g.body != h.want(file).body {
		t.Errorf("the part answers %d with %d bytes", g.StatusCode, len(g.body))
	}
	h.waiting(1)
	e.send(2 * time.Second)
	if g := <-whole; g.StatusCode != http.StatusOK || !strings.Contains(g.body, fmt.Sprintf("\n%d.m4s\n", n)) {
		t.Errorf("the playlist with the segment answers %d:\n%s", g.StatusCode, g.body)
	}
}

// At the start of a broadcast a player gets the playlist when there is a whole segment in it:
// hls.js gives up on one that has parts only.
func TestLiveFirstSegment(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, time.Second)
	defer e.Close(true)
	first := h.later(h.under(s.PlaybackID, "source/index.m3u8"))
	h.waiting(1)
	e.send(2 * time.Second)
	if g := <-first; g.StatusCode != http.StatusOK || !strings.Contains(g.body, "\n0.m4s\n") {
		t.Errorf("the first playlist answers %d:\n%s", g.StatusCode, g.body)
	}
}

// A part that was announced but is not there in time is not found, one that was never announced at
// once.
func TestLivePartTimeout(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.partMargin = 10 * time.Millisecond
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	list := h.under(s.PlaybackID, "source/index.m3u8")
	text := h.want(list).body
	if g := h.get(h.hinted(list, text)); g.StatusCode != http.StatusNotFound || g.Header.Get("Cache-Control") != "public, max-age=1" {
		t.Errorf("a part that does not come answers %d, to be kept %q", g.StatusCode, g.Header.Get("Cache-Control"))
	}
	h.server.partMargin = time.Hour
	n, p := h.next(text)
	for _, path := range []string{
		fmt.Sprintf("source/%d.%d.m4s", n, p+1), fmt.Sprintf("source/%d.0.m4s", n+2), fmt.Sprintf("source/%d.m4s", n), "source/0.99.m4s", "source/9223372036854775807.0.m4s",
		"source/9223372036854775808.m4s", "source/0.2147483648.m4s", "source/init-1.mp4", "source/init-2147483647.mp4", "source/init-.mp4", "source/init-00.mp4", "source/00.m4s", "source/-1.m4s",
		"source/+1.m4s", "source/0.m4", "source/0.0.0.m4s", "source/0..m4s", "source/.m4s", "source/", "nothing/index.m3u8", "nothing/0.m4s", "nothing/0.0.m4s", "nothing/init-0.mp4",
		"source/ts.m3u8", "ts.m3u8", "source/0.ts", "source.mp4", "download/video", "thumbnails/thumbnails.vtt", "",
	} {
		if g := h.get(h.under(s.PlaybackID, path)); g.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %d", path, g.StatusCode)
		}
	}
}

func TestLiveQueryIsRefused(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.reloadWait = time.Hour
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	for _, query := range []string{
		"_HLS_part=1", "_HLS_msn=", "_HLS_msn=-1", "_HLS_msn=x", "_HLS_msn=1.5", "_HLS_msn=%201", "_HLS_msn=1&_HLS_part=", "_HLS_msn=1&_HLS_part=-1", "_HLS_msn=1&_HLS_part=x",
		"_HLS_msn=9223372036854775807", "_HLS_msn=9223372036854775808", "_HLS_msn=1&_HLS_part=2147483648", "_HLS_msn=6", "_HLS_msn=6&_HLS_part=0", "_HLS_msn=2&_HLS_part=100",
	} {
		g := h.get(h.under(s.PlaybackID, "source/index.m3u8?"+query))
		if g.StatusCode != http.StatusBadRequest || !strings.HasPrefix(g.body, `{"errors":["_HLS_`) {
			t.Errorf("%s: %d %s", query, g.StatusCode, g.body)
		}
	}
	for _, query := range []string{"_HLS_skip=no", "_HLS_other=1", "_HLS_msn=0", "_HLS_msn=1&_HLS_part=3", "ll=x"} {
		h.want(h.under(s.PlaybackID, "source/index.m3u8?"+query))
	}
}

// Without media from the encoder, players get the current playlist after a wait.
func TestLiveGap(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.reloadWait = 20 * time.Millisecond
	s, e := h.broadcast(nil, 5*time.Second)
	e.Close(false)
	list := h.under(s.PlaybackID, "source/index.m3u8")
	last := h.want(list)
	n, p := h.next(last.body)
	g := h.want(fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d", list, n, p))
	if g.body != last.body || g.Header.Get("Cache-Control") != "public, max-age=1" {
		t.Errorf("in the gap a playlist is to be kept %q:\n%s", g.Header.Get("Cache-Control"), g.body)
	}
	if strings.Contains(last.body, "ENDLIST") {
		t.Errorf("the playlist has ended:\n%s", last.body)
	}
	h.want(h.under(s.PlaybackID, "index.m3u8"))
	h.want(h.under(s.PlaybackID, "source/0.m4s"))

	e = h.publish(s)
	defer e.Close(true)
	e.send(3 * time.Second)
	after := h.want(list).body
	if !strings.Contains(after, "#EXT-X-DISCONTINUITY\n") || !strings.Contains(after, fmt.Sprintf("\n%d.m4s\n", n)) {
		t.Errorf("after the gap:\n%s", after)
	}
}

// Pages of other origins may read how old a response from a cache is, and how long it took.
func TestLiveHeadersForPages(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	g := h.want(h.under(s.PlaybackID, "source/index.m3u8"))
	if exposed := g.Header.Get("Access-Control-Expose-Headers"); !strings.Contains(exposed, "Age,") || g.Header.Get("Timing-Allow-Origin") != "*" {
		t.Errorf("exposed %q, timing %q", exposed, g.Header.Get("Timing-Allow-Origin"))
	}
}

// Playlists are compressed for who takes that, and caches can tell the forms apart. A range is of the
// plain form.
func TestPlaylistsAreCompressed(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, 5*time.Second)
	e.Close(true)
	for _, path := range []string{"index.m3u8", "source/index.m3u8", "source/index.m3u8?ll=0"} {
		url := h.under(s.PlaybackID, path)
		plain, small := h.want(url, "Accept-Encoding", "identity"), h.want(url, "Accept-Encoding", "br, gzip;q=0.5")
		if got := small.Header.Get("Content-Encoding"); got != "gzip" || small.ContentLength != int64(len(small.body)) {
			t.Errorf("%s: Content-Encoding %q, Content-Length %d", path, got, small.ContentLength)
			continue
		}
		unpacked, err := gzip.NewReader(strings.NewReader(small.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(unpacked)
		if err != nil || string(text) != plain.body || len(small.body) >= len(plain.body) {
			t.Errorf("%s: %d bytes are\n%s\nwant those of\n%s", path, len(small.body), text, plain.body)
		}
		tag, other := plain.Header.Get("ETag"), small.Header.Get("ETag")
		if tag == "" || tag == other || plain.Header.Get("Vary") != "Accept-Encoding" || small.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("%s: ETags %s and %s, Vary %q and %q", path, tag, other, plain.Header.Get("Vary"), small.Header.Get("Vary"))
		}
		if again := h.get(url, "Accept-Encoding", "gzip", "If-None-Match", other); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: who has it gets %d", path, again.StatusCode)
		}
		if part := h.get(url, "Accept-Encoding", "gzip", "Range", "bytes=0-6"); part.StatusCode != http.StatusPartialContent || part.body != "#EXTM3U" {
			t.Errorf("%s: a range is %d %q", path, part.StatusCode, part.body)
		}
	}
}

// A request ends when its viewer leaves.
func TestLiveViewerLeaves(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.reloadWait, h.server.partMargin = time.Hour, time.Hour
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	list := h.under(s.PlaybackID, "source/index.m3u8")
	text := h.want(list).body
	n, p := h.next(text)
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 2)
	for _, url := range []string{fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d", list, n, p), h.hinted(list, text)} {
		r, err := http.NewRequestWithContext(ctx, "GET", url, nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			response, err := h.web.Client().Do(r)
			if err == nil {
				err = response.Body.Close()
			}
			left <- err
		}()
	}
	h.waiting(2)
	leave()
	for range 2 {
		if err := <-left; err == nil {
			t.Error("there was a response")
		}
	}
	h.waiting(0)
}

func TestLiveOffAir(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s := h.newStream(nil)
	for _, path := range livePaths() {
		if g := h.get(h.under(s.PlaybackID, path)); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "the stream has not started yet") {
			t.Errorf("%s before the first broadcast: %d %s", path, g.StatusCode, g.body)
		}
	}
	e := h.publish(s)
	defer e.Close(true)
	if g := h.get(h.under(s.PlaybackID, "index.m3u8")); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "the stream has not started yet") {
		t.Errorf("before the first frame: %d %s", g.StatusCode, g.body)
	}
	e.send(500 * time.Millisecond)
	if lists := h.named(h.web.URL, h.want(h.under(s.PlaybackID, "index.m3u8")).body); len(lists) != 2 {
		t.Errorf("after half a second there is %q", lists)
	}
	was := h.newStream(nil)
	h.changeStream(was, func(s *weir.Stream) { s.LastSeen = weir.At(time.Now()) })
	if g := h.get(h.under(was.PlaybackID, "index.m3u8")); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "the stream is not live at the moment") {
		t.Errorf("after a broadcast: %d %s", g.StatusCode, g.body)
	}
	h.server.Live = nil
	if g := h.get(h.under(was.PlaybackID, "index.m3u8")); g.StatusCode != http.StatusNotFound {
		t.Errorf("on a node that carries no streams: %d %s", g.StatusCode, g.body)
	}
}

// The master playlist waits for late audio, but not forever.
func TestPresentable(t *testing.T) {
	t.Parallel()
	lasting := func(name string, kind cmaf.Kind, length time.Duration) cmaf.Rendition {
		r := cmaf.Rendition{Name: name, Index: cmaf.TrackIndex{Track: cmaf.Track{Kind: kind, Timescale: 1000}}}
		if length > 0 {
			r.Index.Segments = []cmaf.Segment{{Parts: []cmaf.Part{{Samples: []cmaf.Sample{{Duration: uint32(length.Milliseconds())}}}}}}
		}
		return r
	}
	for _, tt := range []struct {
		video, audio time.Duration
		want         string
	}{
		{0, 0, ""},
		{200 * time.Millisecond, 0, ""},
		{200 * time.Millisecond, 100 * time.Millisecond, "source audio"},
		{live.SegmentTarget - time.Millisecond, 0, ""},
		{live.SegmentTarget, 0, "source"},
		{0, live.SegmentTarget, "audio"},
	} {
		m := cmaf.Master{Video: []cmaf.Rendition{lasting("source", cmaf.Video, tt.video)}, Audio: []cmaf.Rendition{lasting("audio", cmaf.Audio, tt.audio)}}
		var names []string
		if presentable(&m) {
			for _, r := range append(m.Video, m.Audio...) {
				names = append(names, r.Name)
			}
		}
		if got := strings.Join(names, " "); got != tt.want {
			t.Errorf("with %s of video and %s of audio there is %q, want %q", tt.video, tt.audio, got, tt.want)
		}
	}
	if presentable(&cmaf.Master{}) {
		t.Error("nothing is presentable")
	}
}

func TestLivePolicyOnEveryPath(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	signer := h.newSigner()
	policy := &weir.PlaybackPolicy{Type: weir.PolicyJWT}
	s, e := h.broadcast(policy, 5*time.Second)
	defer e.Close(true)
	other := h.newStream(policy)
	jwt := signer.sign(s.PlaybackID)
	token := h.tokenOf(h.under(s.PlaybackID, "index.m3u8?jwt="+jwt))
	plain := func(p string) string { return p }
	with := func(token string) func(string) string {
		return func(p string) string { return "t/" + token + "/" + p }
	}
	query := func(jwt string) func(string) string {
		return func(p string) string { return and(p, "jwt="+jwt) }
	}
	answers := func(what string, status int, path func(string) string, headers ...string) {
		t.Helper()
		h.answersOf(what, s.PlaybackID, livePaths(), status, path, headers...)
	}
	expired := h.expire(h.enter(s.PlaybackID, jwt))
	answers("no credential", http.StatusForbidden, plain)
	answers("no token", http.StatusForbidden, with("x"))
	answers("expired token", http.StatusForbidden, with(expired.Text))
	answers("JWT of another stream", http.StatusForbidden, query(signer.sign(other.PlaybackID)))
	h.answersOf("token of another stream", other.PlaybackID, livePaths(), http.StatusForbidden, with(token))
	answers("token", http.StatusOK, with(token))
	answers("JWT", http.StatusOK, query(jwt))
	answers("JWT in a header", http.StatusOK, plain, "Livepeer-Jwt", jwt)
	if text := h.logged.String(); strings.Contains(text, token) || strings.Contains(text, "eyJ") {
		t.Error("the log has a token in it")
	}
}

// The admission of a viewer can end during playback, and during a blocking request.
func TestLiveAdmissionEnds(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	h := newFixture(t, newDisk(t))
	h.server.reloadWait = fresh + 100*time.Millisecond
	for _, tt := range []struct {
		name   string
		end    func(s weir.Stream, by *signer)
		status int
	}{
		{"deleted", func(s weir.Stream, _ *signer) { h.changeStream(s, func(s *weir.Stream) { s.Deleted = true }) }, http.StatusNotFound},
		{"suspended", func(s weir.Stream, _ *signer) { h.changeStream(s, func(s *weir.Stream) { s.Suspended = true }) }, http.StatusNotFound},
		{"another policy", func(s weir.Stream, _ *signer) {
			h.changeStream(s, func(s *weir.Stream) {
				s.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: "w"}
			})
		}, http.StatusForbidden},
		{"key disabled", func(_ weir.Stream, by *signer) {
			h.write(func(tx *store.Tx) error {
				_, err := tx.UpdateSigningKey(t.Context(), by.key.ID, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
				return err
			})
		}, http.StatusForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			signer := h.newSigner()
			s, e := h.broadcast(&weir.PlaybackPolicy{Type: weir.PolicyJWT}, 5*time.Second)
			defer e.Close(true)
			token := h.tokenOf(h.under(s.PlaybackID, "index.m3u8?jwt="+signer.sign(s.PlaybackID)))
			with := func(p string) string { return "t/" + token + "/" + p }
			list := h.under(s.PlaybackID, with("source/index.m3u8"))
			n, p := h.next(h.want(list).body)
			waits := h.later(fmt.Sprintf("%s?_HLS_msn=%d&_HLS_part=%d", list, n, p))
			h.waiting(1)
			tt.end(s, signer)
			if g := <-waits; g.StatusCode != tt.status {
				t.Errorf("who waited gets %d %s", g.StatusCode, g.body)
			}
			h.answersOf("after", s.PlaybackID, livePaths(), tt.status, with)
		})
	}
}

// The access webhook of a stream is asked again when its interval is over, about the key that the
// viewer sent.
func TestLiveWebhookIsAskedAgain(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	var friendly atomic.Bool
	var asked atomic.Int64
	friendly.Store(true)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		text, _ := io.ReadAll(r.Body)
		var q map[string]any
		_ = json.Unmarshal(text, &q)
		if playURL, _ := q["playURL"].(string); strings.Contains(playURL, "/t/") {
			t.Errorf("the webhook gets a token: %s", playURL)
		}
		if q["accessKey"] != "the right key" || !friendly.Load() {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(hooks.Close)
	hook, err := weir.WebhookBody{Name: "gate", URL: hooks.URL, Events: []weir.EventName{}}.
		Webhook(&weir.Caller{UserID: h.ann.ID, ProjectID: h.ann.DefaultProjectID}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.write(func(tx *store.Tx) error { return tx.CreateWebhook(t.Context(), &hook) })
	s, e := h.broadcast(&weir.PlaybackPolicy{Type: weir.PolicyWebhook, WebhookID: hook.ID}, 5*time.Second)
	defer e.Close(true)
	token := h.tokenOf(h.under(s.PlaybackID, "index.m3u8?accessKey="+url.QueryEscape("the right key")))
	with := func(p string) string { return "t/" + token + "/" + p }
	answers := func(what string, status int) {
		t.Helper()
		h.answersOf(what, s.PlaybackID, livePaths(), status, with)
	}
	answers("at first", http.StatusOK)
	if n := asked.Load(); n != 1 {
		t.Errorf("the webhook was asked %d times", n)
	}
	over := func() { // the interval is, or it is another node
		h.busy.Wait()
		if h.server.control, err = access.OpenControl(t.Context(), accesstest.NewGate(t, h.store)); err != nil {
			t.Fatal(err)
		}
	}
	over()
	answers("when it is asked again", http.StatusOK)
	if n := asked.Load(); n != 2 {
		t.Errorf("the webhook was asked %d times", n)
	}
	friendly.Store(false)
	answers("within the interval", http.StatusOK)
	over()
	answers("when it says no", http.StatusForbidden)
	if n := asked.Load(); n != 3 {
		t.Errorf("the webhook was asked %d times, the last time about a viewer whom it had refused", n)
	}
	friendly.Store(true)
	over()
	answers("when it says yes again", http.StatusOK)

	long := strings.Repeat("k", 4097)
	if g := h.get(h.under(s.PlaybackID, "index.m3u8?accessKey="+long)); g.StatusCode != http.StatusForbidden || !strings.Contains(g.body, "longer than") {
		t.Errorf("a very long access key: %d %s", g.StatusCode, g.body)
	}
	if strings.Contains(h.logged.String(), "the right key") {
		t.Error("the log has an access key in it")
	}
}

// Viewers of a stream are counted as those of an asset are.
func TestLiveViews(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	s, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	sums := func() weir.ViewSums {
		t.Helper()
		h.busy.Wait()
		h.saveViews()
		rows, err := h.store.Views(t.Context(), store.ViewQuery{UserID: h.ann.ID, StreamID: s.ID, PlaybackID: s.PlaybackID})
		if err != nil || len(rows) != 1 {
			t.Fatalf("%d rows, %v", len(rows), err)
		}
		return rows[0].ViewSums
	}
	for _, path := range livePaths() {
		h.ask("HEAD", h.under(s.PlaybackID, path))
	}
	for _, path := range []string{"source/index.m3u8", "source/init-0.mp4", "audio/index.m3u8"} {
		h.want(h.under(s.PlaybackID, path))
	}
	if got := sums(); got.Views != 0 {
		t.Errorf("after a look: %+v", got)
	}
	h.want(h.under(s.PlaybackID, "index.m3u8"))
	if got := sums(); got.Views != 1 || got.Exits != 1 || got.Watched() != 0 {
		t.Errorf("after the master playlist: %+v", got)
	}
	for _, path := range []string{"source/0.m4s", "audio/0.m4s", "source/1.0.m4s", "audio/1.0.m4s"} {
		h.want(h.under(s.PlaybackID, path))
	}
	if got := sums(); got.Watched() != 1 || got.Exits != 0 || !near(got.PlaytimeMs, (2*time.Second+partLength).Seconds()) {
		t.Errorf("after a segment and a part: %+v", got)
	}
}

// Every name of a file is read back as it is written, and no other name means the same.
func FuzzPiece(f *testing.F) {
	for _, seed := range []string{"0.m4s", "1.2.m4s", "init-3.mp4", "00.m4s", "9223372036854775807.2147483647.m4s", "init-2147483648.mp4", "1.m4s.m4s", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, file string) {
		p, ok := parseFileName(file)
		if !ok {
			return
		}
		want := fmt.Sprintf("%d.%d.m4s", p.segment, p.part)
		switch {
		case p.init:
			want = fmt.Sprintf("init-%d.mp4", p.segment)
		case p.part < 0:
			want = fmt.Sprintf("%d.m4s", p.segment)
		}
		if file != want || p.segment < 0 {
			t.Errorf("parsePiece(%q) = %+v, which is %q", file, p, want)
		}
	})
}

// No request of a player causes an internal error.
func FuzzLive(f *testing.F) {
	h := newFixture(f, newDisk(f))
	h.server.reloadWait, h.server.partMargin = time.Millisecond, time.Millisecond
	public, e := h.broadcast(nil, 5*time.Second)
	defer e.Close(true)
	private, e2 := h.broadcast(&weir.PlaybackPolicy{Type: weir.PolicyJWT}, 5*time.Second)
	defer e2.Close(true)
	for _, path := range append(livePaths(), "source/2.99.m4s", "t/x/source/index.m3u8", "../x", "source/init--1.mp4") {
		path, query, _ := strings.Cut(path, "?")
		f.Add(path, query)
	}
	for _, query := range []string{"_HLS_msn=3", "_HLS_msn=2&_HLS_part=9", "_HLS_msn=-1", "_HLS_msn=99999999999999999999", "_HLS_part=1", "_HLS_skip=v2&ll=0", "%zz", "jwt=x"} {
		f.Add("source/index.m3u8", query)
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		for _, s := range []weir.Stream{public, private} {
			w := &memory{header: http.Header{}}
			r := &http.Request{Method: "GET", URL: &url.URL{Path: "/hls/" + s.PlaybackID + "/" + path, RawQuery: query}, Header: http.Header{}, RemoteAddr: h.newAddress() + ":1"}
			h.server.ServeHTTP(w, r.WithContext(t.Context()))
			switch {
			case w.status == 0 || w.status >= 500:
				t.Errorf("%q?%q: %d %s", path, query, w.status, w.body.String())
			case s.ID == private.ID && w.status != http.StatusForbidden:
				t.Errorf("%q?%q of a private stream: %d", path, query, w.status)
			}
			if q, err := parseQuery(r.URL.Query()); err == nil && (q.Segment < -1 || q.Part < -1 || q.Segment < 0 && q != (live.Query{Low: q.Low, Skip: q.Skip, Segment: -1, Part: -1})) {
				t.Errorf("%q is read as %+v", query, q)
			}
		}
	})
}
