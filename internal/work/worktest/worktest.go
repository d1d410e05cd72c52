// Package worktest provides ffmpeg and the guard for tests of package work, which must not import them.
package worktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/ffmpeg"
	"weir/internal/guard"
	"weir/internal/media"
	"weir/internal/vod"
	"weir/internal/weir"
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
	l := NewLive(t, dir, time.Now())
	l.Send(4 * time.Second)
	l.Gap(30 * time.Second)
	l.Send(4 * time.Second)
	l.End()
	return l.frames
}

// Live is a session on air that has this film: ten frames a second, a key frame every two seconds, no
// audio. It comes as fast as it is sent.
type Live struct {
	tb       testing.TB
	film     []byte
	began    time.Time
	track    cmaf.Track
	recorder *media.Recorder

	mu     sync.Mutex
	at     time.Duration // on the timeline
	broken bool
	over   bool
	frames int
}

// NewLive returns a session that began at a time and writes to a folder.
func NewLive(t testing.TB, dir string, began time.Time) *Live {
	t.Helper()
	film, err := exec.CommandContext(t.Context(), "ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc2=s=320x180:r=10:d=4", "-c:v", "libx264", "-preset", "ultrafast",
		"-bf", "0", "-g", "20", "-pix_fmt", "yuv420p", "-video_track_timescale", "90000", "-movflags", "frag_keyframe+empty_moov+default_base_moof", "-f", "mp4", "pipe:1").Output()
	check(t, err)
	l := &Live{tb: t, film: film, began: began}
	tracks, err := cmaf.NewReader(bytes.NewReader(film)).Tracks()
	check(t, err)
	l.track = tracks[0]
	l.recorder, err = media.Record(filepath.Join(dir, media.RecordedVideo), l.track)
	check(t, err)
	return l
}

// Wall returns the time of the wall clock at which the session is on its timeline, in milliseconds.
func (l *Live) Wall(at time.Duration) float64 { return float64(l.began.Add(at).UnixMicro()) / 1000 }

// Send sends so much of the film, which is a multiple of two seconds.
func (l *Live) Send(length time.Duration) {
	l.tb.Helper()
	reader := cmaf.NewReader(bytes.NewReader(l.film))
	for sent := time.Duration(0); sent < length; sent += 2 * time.Second {
		f, err := reader.Next()
		if errors.Is(err, io.EOF) {
			reader = cmaf.NewReader(bytes.NewReader(l.film))
			f, err = reader.Next()
		}
		check(l.tb, err)
		f.Start = l.track.Ticks(l.at)
		part, data := cmaf.EncodePart(uint32(l.frames+1), l.track, f)
		segment := cmaf.Segment{Parts: []cmaf.Part{part}, Wall: l.began.Add(l.at), Discontinuity: l.broken}
		check(l.tb, errors.Join(l.recorder.Begin(segment.Wall, l.broken), l.recorder.Append(part, data), l.recorder.Finish(segment)))
		l.mu.Lock()
		l.at, l.broken, l.frames = l.at+2*time.Second, false, l.frames+len(f.Samples)
		l.mu.Unlock()
	}
}

// Gap lets the encoder be away.
func (l *Live) Gap(length time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at, l.broken = l.at+length, true
}

// End ends the session.
func (l *Live) End() {
	l.tb.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	check(l.tb, l.recorder.Close())
}

// Ranges returns what was sent.
func (l *Live) Ranges(string) ([]weir.ClipRange, error) {
	track, err := l.recorder.Reading(true)
	if err != nil {
		return nil, err
	}
	return media.SpansOf(track.Index()), nil
}

// Tracks returns the video so far.
func (l *Live) Tracks(string) ([]*media.Track, bool, error) {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	track, err := l.recorder.Reading(true)
	return []*media.Track{track}, over, err
}

// Await waits until the film was sent up to a time.
func (l *Live) Await(ctx context.Context, _ string, until time.Time) error {
	for {
		l.mu.Lock()
		there := l.over || !l.began.Add(l.at).Before(until)
		l.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-ctx.Done():
			return weir.Errorf(weir.Busy, "not yet")
		case <-time.After(10 * time.Millisecond):
		}
	}
}
