package playback

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"weir/internal/live"
	"weir/internal/weir"
	"weir/internal/work/worktest"
)

// Only viewers who may watch a stream get its poster. There is no encoder here, so it is the last
// one, on air and off.
func TestLivePoster(t *testing.T) {
	t.Parallel()
	h := newFixture(t, newDisk(t))
	dir := t.TempDir()
	hub, err := live.New(t.Context(), live.Options{Store: h.store, Dir: dir, SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: h.server.Log})
	if err != nil {
		t.Fatal(err)
	}
	h.hub, h.server.Live = hub, hub
	signer := h.newSigner()
	open, e := h.broadcast(nil, 3*time.Second)
	defer e.Close(true)
	gated := h.newStream(&weir.PlaybackPolicy{Type: weir.PolicyJWT})
	if g := h.get(h.under(open.PlaybackID, "poster.jpg")); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "there is no image of the stream yet") {
		t.Errorf("on air, before there is a poster: %d %s", g.StatusCode, g.body)
	}
	if err := os.Mkdir(filepath.Join(dir, "posters"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, s := range []weir.Stream{open, gated} {
		if err := os.WriteFile(filepath.Join(dir, "posters", s.ID+".jpg"), []byte("a poster of "+s.ID), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, url, caching string
		stream             weir.Stream
	}{
		{"public, on air", h.under(open.PlaybackID, "poster.jpg"), string(keepPoster), open},
		{"gated, off air", h.under(gated.PlaybackID, "poster.jpg?jwt="+signer.sign(gated.PlaybackID)), "private, no-cache", gated},
	} {
		g := h.want(tt.url)
		if g.body != "a poster of "+tt.stream.ID || g.Header.Get("Content-Type") != "image/jpeg" || g.Header.Get("Cache-Control") != tt.caching || g.Header.Get("ETag") == "" {
			t.Errorf("%s: %q with %v", tt.name, g.body, g.Header)
		}
		if again := h.get(tt.url, "If-None-Match", g.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s: who has it gets %d", tt.name, again.StatusCode)
		}
	}
	if g := h.get(h.under(gated.PlaybackID, "poster.jpg")); g.StatusCode != http.StatusForbidden {
		t.Errorf("gated, without a token: %d %s", g.StatusCode, g.body)
	}
}

// While the first poster of a broadcast can't be made, such as beside encodes that have all cores, viewers get
// the one of the broadcast before, or none. They have not asked too often.
func TestPosterIsNotReady(t *testing.T) {
	h := newFixture(t, newDisk(t))
	makeFilm(h) // with the real ffmpeg
	programs, dir := t.TempDir(), t.TempDir()
	for _, name := range []string{"ffmpeg", "ffprobe"} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	hub, err := live.New(t.Context(), live.Options{
		Store: h.store, Dir: dir, SessionTimeout: time.Minute, PartDuration: live.DefaultPart, Log: h.server.Log, FFmpeg: worktest.Engine(t, newDisk(t)).FFmpeg,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.hub, h.server.Live = hub, hub
	h.runHub()
	s, e := h.broadcast(nil, 3*time.Second)
	defer e.Close(true)
	url := h.under(s.PlaybackID, "poster.jpg")
	if g := h.get(url); g.StatusCode != http.StatusNotFound || !strings.Contains(g.body, "there is no image of the stream yet") {
		t.Errorf("the first broadcast: %d %s", g.StatusCode, g.body)
	}
	if err := os.MkdirAll(filepath.Join(dir, "posters"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "posters", s.ID+".jpg"), []byte("the last"), 0o600); err != nil {
		t.Fatal(err)
	}
	if g := h.want(url); g.body != "the last" {
		t.Errorf("after another broadcast: %q", g.body)
	}
}
