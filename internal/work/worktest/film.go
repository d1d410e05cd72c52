package worktest

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
)

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
