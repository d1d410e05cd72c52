package playback

import (
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// end ends the session of a stream, as its owner does.
func (e *encoder) end(s weir.Stream) {
	e.h.Helper()
	e.h.changeStream(s, func(s *weir.Stream) { s.LastTerminatedAt = new(weir.At(time.Now())) })
	wait.Until(e.h.TB, "the session has ended", func() bool {
		_, err := e.h.store.OnAirOf(e.h.Context(), s.PlaybackID)
		return weir.IsNotFound(err)
	})
	e.Close(false)
}

// keepRecording makes an asset of the last session of a stream, and forgets that it was live here.
func (h *fixture) keepRecording(s weir.Stream) weir.Asset {
	h.Helper()
	page, err := h.store.Sessions(h.Context(), store.Query{Where: []store.Filter{{ID: "parentId", Value: s.ID}}, Limit: 1})
	if err != nil || len(page.Items) != 1 {
		h.Fatal(page, err)
	}
	session := page.Items[0]
	if _, err := media.KeepRecording(h.Context(), h.media, "asset/"+session.ID, filepath.Join(h.sessions, session.ID)); err != nil {
		h.Fatal(err)
	}
	a := weir.NewRecording(&session, &s, time.Now())
	h.write(func(tx *store.Tx) error { return tx.CreateAsset(h.Context(), &a) })
	h.changeAsset(a, func(a *weir.Asset) { a.Ready(time.Now()) })
	o := h.server.Options
	o.Live = nil
	if h.server, err = New(h.Context(), o); err != nil {
		h.Fatal(err)
	}
	return a
}

// After the broadcast dvr.m3u8 is its recording, for those who may play the stream. A player that is
// still in the middle of it goes on.
func TestRecordingAtStream(t *testing.T) {
	for name, policy := range map[string]*weir.PlaybackPolicy{"public": nil, "gated": {Type: weir.PolicyJWT}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newFixture(t, newDisk(t))
			h.runHub()
			signer := h.newSigner()
			s := h.newStream(policy)
			before := h.publish(s) // so that the numbers of the next session do not begin with 0
			before.send(5 * time.Second)
			before.end(s)
			h.changeStream(s, func(s *weir.Stream) { s.Record = true })
			e := h.publish(s)
			e.send(90 * time.Second)
			credential := ""
			if policy != nil {
				credential = "?jwt=" + signer.sign(s.PlaybackID)
			}
			address := h.under(s.PlaybackID, "dvr.m3u8")
			collect := func() (lists []string, bodies map[string]string) {
				t.Helper()
				bodies = map[string]string{}
				lists = h.named(address+credential, h.want(address+credential).body)
				for _, list := range lists {
					for _, file := range h.named(list, h.want(list).body) {
						bodies[file] = h.want(file).body
					}
				}
				return lists, bodies
			}
			_, played := collect()
			e.Close(true)
			a := h.keepRecording(s)
			for file, body := range played {
				if h.want(file).body != body {
					t.Errorf("%s is another after the broadcast", file)
				}
			}
			lists, bodies := collect()
			if len(lists) != 2 || !strings.Contains(lists[0], "/hls/"+a.PlaybackID+"/") || len(bodies) < len(played) {
				t.Errorf("the recording has %d files, the broadcast had %d: %v", len(bodies), len(played), lists)
			}
			refused := func(what, url string, status int) {
				t.Helper()
				if g := h.get(url); g.StatusCode != status {
					t.Errorf("%s: %d %s, want %d", what, g.StatusCode, g.body, status)
				}
			}
			if policy != nil {
				refused("without a credential", address, http.StatusForbidden)
				refused("a segment without a credential", h.under(s.PlaybackID, "source/5.m4s"), http.StatusForbidden)
				refused("with a JWT for the recording", address+"?jwt="+signer.sign(a.PlaybackID), http.StatusForbidden)
				token := h.enter(s.PlaybackID, signer.sign(s.PlaybackID)).token
				address, credential = h.under(s.PlaybackID, "t/"+token.Text+"/dvr.m3u8"), ""
				if lists, _ := collect(); len(lists) != 2 {
					t.Errorf("with a token the playlists are %v", lists)
				}
			}
			for _, path := range []string{"index.m3u8", "source/index.m3u8", "source/0.m4s", "source/1000.m4s", "source/4.0.m4s", "source/init-1000.mp4", "144p/4.m4s", "source/x"} {
				refused(path, strings.Replace(address, "dvr.m3u8", path, 1)+credential, http.StatusNotFound)
			}
			other := &weir.PlaybackPolicy{Type: weir.PolicyWebhook}
			for what, change := range map[string]func(*weir.Asset){
				"a recording with another policy": func(a *weir.Asset) { a.PlaybackPolicy = other },
				"a recording that is deleted":     func(a *weir.Asset) { a.PlaybackPolicy, a.Deleted = policy, true },
			} {
				h.changeAsset(a, change)
				h.server.titles.forget(a.PlaybackID)
				h.server.recordings.Forget(s.PlaybackID)
				refused(what, address+credential, http.StatusNotFound)
			}
		})
	}
}

// MPEG-TS needs space on the disk, other forms do not.
func TestPlaybackOnFullDisk(t *testing.T) {
	h := newFixture(t, newDisk(t))
	a := h.newAsset(nil)
	h.server.Dir = t.TempDir()
	if err := syscall.Mount("tmpfs", h.server.Dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(h.server.Dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if g := h.get(h.at(a, large+"/0.ts")); g.StatusCode != http.StatusInsufficientStorage || !strings.Contains(g.body, "the disk of this server is full; use index.m3u8") {
		t.Errorf("MPEG-TS: %d %s", g.StatusCode, g.body)
	}
	h.want(h.at(a, large+"/0.m4s"))
}
