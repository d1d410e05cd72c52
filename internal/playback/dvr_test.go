package playback

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/access"
	"weir/internal/store"
	"weir/internal/weir"
)

// recordedStream makes a stream that is over, and its recording.
func (h *fixture) recordedStream(policy *weir.PlaybackPolicy) (weir.Stream, weir.Asset) {
	h.Helper()
	s := h.newStream(policy)
	h.changeStream(s, func(s *weir.Stream) { s.Record, s.LastSeen = true, weir.At(time.Now()) })
	s.Record = true
	a := h.newRecording(false)
	h.changeAsset(a, func(a *weir.Asset) { a.PlaybackPolicy = policy })
	session := weir.NewSession(&s, time.Now())
	session.ID = a.ID
	h.write(func(tx *store.Tx) error { return tx.CreateSession(h.Context(), &session) })
	return s, a
}

// After the broadcast dvr.m3u8 is its recording, for those who may play the stream.
func TestRecordingAtStream(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	signer := h.newSigner()
	plays := func(what, url, asset string) {
		t.Helper()
		lists := h.named(url, h.want(url).body)
		if len(lists) != 2 {
			t.Fatalf("%s: the playlists are %v", what, lists)
		}
		for _, list := range lists {
			if !strings.Contains(list, "/hls/"+asset+"/") {
				t.Errorf("%s: the playlist is at %s", what, list)
			}
			pieces := h.named(list, h.want(list).body)
			h.want(pieces[0])
			h.want(pieces[len(pieces)-1])
		}
	}
	public, ofPublic := h.recordedStream(nil)
	plays("a public stream", h.under(public.PlaybackID, "dvr.m3u8"), ofPublic.PlaybackID)

	s, a := h.recordedStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	address := h.under(s.PlaybackID, "dvr.m3u8")
	url := address + "?jwt=" + signer.sign(s.PlaybackID)
	plays("a JWT", url, a.PlaybackID)
	v := &visit{id: s.PlaybackID}
	v.title, _ = h.server.titles.find(t.Context(), s.PlaybackID)
	token := h.server.tokens.issue(v.title, access.Decision{KeyID: signer.key.ID, Expires: time.Now().Add(time.Hour)}, "", "viewer", time.Now())
	plays("a token", h.under(s.PlaybackID, "t/"+token.text+"/dvr.m3u8"), a.PlaybackID)
	refused := func(what, url string, status int) {
		t.Helper()
		if g := h.get(url); g.StatusCode != status {
			t.Errorf("%s: %d %s, want %d", what, g.StatusCode, g.body, status)
		}
	}
	refused("without a credential", address, http.StatusForbidden)
	refused("with a JWT for the recording", address+"?jwt="+signer.sign(a.PlaybackID), http.StatusForbidden)
	refused("another list", h.under(s.PlaybackID, "index.m3u8")+"?jwt="+signer.sign(s.PlaybackID), http.StatusNotFound)
	// The owner may let fewer play the recording.
	h.changeAsset(ofPublic, func(a *weir.Asset) { a.PlaybackPolicy = &weir.PlaybackPolicy{Type: weir.PolicyJWT} })
	h.server.titles.forget(ofPublic.PlaybackID)
	refused("a recording that is gated", h.under(public.PlaybackID, "dvr.m3u8"), http.StatusNotFound)
	h.changeAsset(a, func(a *weir.Asset) { a.Deleted = true })
	h.server.titles.forget(a.PlaybackID)
	refused("a recording that is deleted", url, http.StatusNotFound)
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
