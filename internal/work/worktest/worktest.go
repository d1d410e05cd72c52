// Package worktest provides ffmpeg and the guard for tests of package work, which must not import them.
package worktest

import (
	"net/netip"
	"testing"

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/vod"
)

// Engine returns an engine that works on the storage.
func Engine(t testing.TB, media blob.Store) vod.Engine {
	t.Helper()
	engine, err := ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2})
	if err != nil {
		t.Fatal(err)
	}
	return vod.Engine{FFmpeg: engine, Store: media}
}

// Caller returns options for callers' storage on this machine.
func Caller() blob.Options {
	return blob.Options{Guard: guard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})}
}

// Fetcher reads sources on this machine.
func Fetcher() *blob.Fetcher { return &blob.Fetcher{Guard: Caller().Guard} }
