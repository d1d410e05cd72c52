package worktest

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/codec"
	"weir/internal/media"
)

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
