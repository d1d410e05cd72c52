package playback

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/wait"
	"weir/internal/wait/linetest"
	"weir/internal/weir"
)

// openStale opens a store whose state may be used for so long while it does not respond.
func openStale(t *testing.T, url string, stale time.Duration) *store.Store {
	t.Helper()
	o := storeOptions()
	o.Stale = stale
	st, err := store.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// becomes asks until the status is so: on a busy machine, a read that is late looks like an outage.
func (h *fixture) becomes(url string, status int, headers ...string) {
	h.Helper()
	wait.NoError(h, func() error {
		if g := h.get(url, headers...); g.StatusCode != status {
			return fmt.Errorf("GET %s: %d %s, want %d", url, g.StatusCode, g.body, status)
		}
		return nil
	})
}

// refuses is get where anything but the status ends the test.
func (h *fixture) refuses(url string, status int, headers ...string) got {
	h.Helper()
	g := h.get(url, headers...)
	if g.StatusCode != status {
		h.Fatalf("GET %s: %d %s, want %d", url, g.StatusCode, g.body, status)
	}
	return g
}

// retried writes to a store whose connections may be broken.
func (h *fixture) retried(do func(*store.Tx) error) {
	h.Helper()
	wait.NoError(h, func() error { return h.store.Tx(h.Context(), do) })
}

// While the database hangs or is down, a node serves those who are in, and new viewers of what it
// knows.
func TestWithoutDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	for name, away := range map[string]struct {
		begin, end func(*pgtest.Server, testing.TB)
	}{
		"hangs":   {(*pgtest.Server).Freeze, (*pgtest.Server).Thaw},
		"refuses": {(*pgtest.Server).Crash, (*pgtest.Server).Start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pg := pgtest.NewServer(t)
			h := newFixtureOn(t, newDisk(t), openStale(t, pg.URL(), time.Hour))
			signer, policy := h.newSigner(), &weir.PlaybackPolicy{Type: weir.PolicyJWT}
			public, gated, deleted, unseen := h.newAsset(nil), h.newAsset(policy), h.newAsset(nil), h.newAsset(nil)
			stream, e := h.broadcast(policy, 5*time.Second)
			ann := h.ann
			h.ann = h.newUser("bob")
			ofBob, bob := h.newAsset(nil), h.ann
			h.ann = ann
			jwt := func(playbackID, who string) string {
				return "index.m3u8?jwt=" + signer.signFor(playbackID, time.Hour, who)
			}
			below := func(token, path string) string { return "t/" + token + "/" + path }
			segment := large + "/0.m4s"

			for _, url := range []string{
				h.at(public, "index.m3u8"), h.at(gated, jwt(gated.PlaybackID, "first")), h.under(stream.PlaybackID, jwt(stream.PlaybackID, "first")),
				h.at(deleted, "index.m3u8"), h.at(ofBob, "index.m3u8"),
			} {
				h.becomes(url, http.StatusOK)
			}
			token := h.tokenOf(h.at(gated, jwt(gated.PlaybackID, "first")))
			onAir := h.tokenOf(h.under(stream.PlaybackID, jwt(stream.PlaybackID, "first")))
			h.becomes(h.at(gated, below(token, segment)), http.StatusOK)
			h.becomes(h.under(stream.PlaybackID, below(onAir, "source/index.m3u8")), http.StatusOK)
			h.changeAsset(deleted, func(a *weir.Asset) { a.Deleted = true })
			h.write(func(tx *store.Tx) error {
				_, err := tx.UpdateUser(t.Context(), bob.ID, func(u *weir.User) error { u.Suspended = true; return nil })
				return err
			})
			for _, a := range []weir.Asset{deleted, ofBob} {
				h.becomes(h.at(a, "index.m3u8"), http.StatusNotFound)
			}
			brief := h.tokenOf(h.under(stream.PlaybackID, "index.m3u8?jwt="+signer.signFor(stream.PlaybackID, 5*time.Second, "brief")))

			away.begin(pg, t)
			wait.Until(t, "the node notices", func() bool {
				h.want(h.at(public, "index.m3u8"))
				return h.store.Away() != nil
			})
			for _, url := range []string{
				h.at(public, segment), h.at(public, large+"/0.ts"), h.at(public, large+".mp4"), h.at(public, "poster.jpg"),
				h.at(gated, below(token, segment)),
				h.under(stream.PlaybackID, below(onAir, "source/index.m3u8")), h.under(stream.PlaybackID, below(onAir, "source/0.m4s")),
			} {
				h.want(url)
				h.want(url, "User-Agent", agents[1]) // a new viewer, or one who has changed
			}
			second := h.tokenOf(h.at(gated, jwt(gated.PlaybackID, "second")))
			h.want(h.at(gated, below(second, segment)))
			second = h.tokenOf(h.under(stream.PlaybackID, jwt(stream.PlaybackID, "second")))
			h.want(h.under(stream.PlaybackID, below(second, "source/0.m4s")))

			for _, url := range []string{h.at(unseen, "index.m3u8"), h.under("nobody", "index.m3u8")} {
				if g := h.refuses(url, http.StatusServiceUnavailable); g.Header.Get("Retry-After") == "" || !strings.Contains(g.body, "the database does not") {
					t.Errorf("of what is not known: Retry-After %q, %s", g.Header.Get("Retry-After"), g.body)
				}
			}
			for _, a := range []weir.Asset{deleted, ofBob} {
				h.refuses(h.at(a, "index.m3u8"), http.StatusNotFound)
			}
			h.refuses(h.at(gated, "index.m3u8?jwt=x"), http.StatusForbidden)
			h.refuses(h.at(gated, below("x", segment)), http.StatusForbidden)
			wait.Until(t, "a JWT has expired", func() bool {
				return h.get(h.under(stream.PlaybackID, below(brief, "source/0.m4s"))).StatusCode == http.StatusForbidden
			})
			if n := h.server.Stats().Stale; n == 0 {
				t.Error("no stale responses are counted")
			}

			away.end(pg, t)
			wait.Until(t, "the node notices the end", func() bool { return h.store.Away() == nil })
			h.becomes(h.at(unseen, "index.m3u8"), http.StatusOK)
			h.retried(func(tx *store.Tx) error {
				_, err := tx.UpdateAsset(t.Context(), public.ID, func(a *weir.Asset) error { a.Deleted = true; return nil })
				return err
			})
			wait.Until(t, "a deletion acts", func() bool { return h.get(h.at(public, segment)).StatusCode == http.StatusNotFound })
			e.Close(true)
		})
	}
}

// An edge goes on without the database: it knows the origin node.
func TestEdgeWithoutDatabase(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t)
	storage := newDisk(t)
	a := newNode(t, pg.URL(), "node-a", storage, &counts{of: map[string]int{}})
	b := newNode(t, pg.URL(), "node-b", storage, &counts{of: map[string]int{}})
	a.ann = a.newUser("ann")
	b.ann = a.ann
	s, e := a.broadcast(nil, 5*time.Second)
	b.becomes(b.under(s.PlaybackID, "index.m3u8"), http.StatusOK)
	b.becomes(b.under(s.PlaybackID, "source/0.m4s"), http.StatusOK)
	pg.Crash(t)
	wait.Until(t, "the edge notices", func() bool {
		b.want(b.under(s.PlaybackID, "source/index.m3u8"))
		return b.store.Away() != nil
	})
	e.send(3 * time.Second)
	b.want(b.under(s.PlaybackID, "source/index.m3u8?_HLS_msn=2"))
	b.want(b.under(s.PlaybackID, "source/2.m4s"))
	b.want(b.under(s.PlaybackID, "index.m3u8"), "User-Agent", agents[1])
	// A name that is not there expires what is known of the origin node, and does not drop it.
	b.refuses(b.under(s.PlaybackID, "none/index.m3u8"), http.StatusNotFound)
	b.want(b.under(s.PlaybackID, "source/1.m4s"))
	pg.Start(t)
	wait.Until(t, "the edge notices the end", func() bool { return b.store.Away() == nil })
	e.Close(true)
}

// With --stale 0 nothing is served from memory.
func TestWithoutDatabaseAndStaleState(t *testing.T) {
	t.Parallel()
	pg := pgtest.NewServer(t)
	h := newFixtureOn(t, newDisk(t), openStale(t, pg.URL(), 0))
	a := h.newAsset(nil)
	h.want(h.at(a, "index.m3u8"))
	pg.Crash(t)
	wait.Until(t, "the viewer gets an error", func() bool { return h.get(h.at(a, large+"/0.m4s")).StatusCode >= 500 })
	pg.Start(t)
	wait.Until(t, "the viewer gets the segment", func() bool { return h.get(h.at(a, large+"/0.m4s")).StatusCode == http.StatusOK })
}

// What is deleted while a node does not reach the database plays there, until the node reaches it.
func TestDeletedWhileAway(t *testing.T) {
	t.Parallel()
	url := storetest.PostgreSQL(t, store.Open, storeOptions())
	address, _, _ := strings.Cut(strings.TrimPrefix(url[strings.Index(url, "@"):], "@"), "/")
	link := linetest.New(t, address)
	elsewhere := openStore(t, url)
	t.Cleanup(elsewhere.Close)
	h := newFixtureOn(t, newDisk(t), openStale(t, strings.Replace(url, address, link.Address(), 1), time.Hour))
	a := h.newAsset(nil)
	h.becomes(h.at(a, "index.m3u8"), http.StatusOK)
	link.Cut()
	wait.Until(t, "the node notices", func() bool {
		h.want(h.at(a, "index.m3u8"))
		return h.store.Away() != nil
	})
	if err := elsewhere.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.UpdateAsset(t.Context(), a.ID, func(a *weir.Asset) error { a.Deleted = true; return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
	h.want(h.at(a, large+"/0.m4s"))
	link.Mend()
	wait.Until(t, "the deletion acts", func() bool { return h.get(h.at(a, large+"/0.m4s")).StatusCode == http.StatusNotFound })
}

// Requests for what does not exist displace nothing that is watched.
func TestFloodOfUnknownIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	h := newFixtureOn(t, newDisk(t), openStale(t, storetest.SQLite(t, store.Open, storeOptions()), time.Hour))
	a := h.newAsset(nil)
	h.want(h.at(a, "index.m3u8"))
	for i := range maxKnown + maxKnown/10 {
		w := &memory{header: http.Header{}}
		h.server.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", fmt.Sprintf("/hls/nobody%d/index.m3u8", i), nil))
		if w.status != http.StatusNotFound {
			t.Fatalf("an unknown id: %d", w.status)
		}
	}
	h.server.titles.known.Expire(a.PlaybackID)
	h.store.Close() // from now on it errs
	h.want(h.at(a, large+"/0.m4s"))
}
