// Package worktest provides ffmpeg and the guard for tests of package work, which must not import them.
package worktest

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/media"
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

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Record writes the recording of an audio stream to a folder. The audio is not decodable.
func Record(t testing.TB, dir string, seconds int) {
	t.Helper()
	must := func(err error) { check(t, err) }
	config, err := codec.AACConfig([]byte{0x11, 0x90})
	must(err)
	track, err := cmaf.NewTrack(config)
	must(err)
	r, err := media.Record(filepath.Join(dir, media.RecordedAudio), track)
	must(err)
	for n := range seconds {
		part, data := cmaf.EncodePart(uint32(n+1), track, cmaf.Fragment{
			Start: int64(n) * 48000, Samples: []cmaf.Sample{{Duration: 48000, Size: 5, Sync: true}}, Data: []byte("sound"),
		})
		segment := cmaf.Segment{Parts: []cmaf.Part{part}, Wall: time.Now()}
		must(errors.Join(r.Begin(segment.Wall, false), r.Append(part, data), r.Finish(segment)))
	}
	must(r.Close())
}

// RecordFilm writes the recording of a stream without audio to a folder: four seconds at ten frames
// a second, and after a gap of half a minute another four.
func RecordFilm(t testing.TB, dir string) (frames int) {
	t.Helper()
	must := func(err error) { check(t, err) }
	film, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=10:d=4", "-c:v", "libx264", "-preset", "ultrafast",
		"-bf", "0", "-g", "20", "-pix_fmt", "yuv420p", "-video_track_timescale", "90000", "-movflags", "frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "pipe:1").Output()
	must(err)
	var r *media.Recorder
	for _, shift := range []int64{0, 34 * 90000} {
		reader := cmaf.NewReader(bytes.NewReader(film))
		tracks, err := reader.Tracks()
		must(err)
		if r == nil {
			r, err = media.Record(filepath.Join(dir, media.RecordedVideo), tracks[0])
			must(err)
		}
		broken := shift > 0
		for {
			f, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(err)
			f.Start += shift
			frames += len(f.Samples)
			part, data := cmaf.EncodePart(uint32(frames), tracks[0], f)
			segment := cmaf.Segment{Parts: []cmaf.Part{part}, Wall: time.Now(), Discontinuity: broken}
			must(errors.Join(r.Begin(segment.Wall, broken), r.Append(part, data), r.Finish(segment)))
			broken = false
		}
	}
	must(r.Close())
	return frames
}
