package live

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// videoOf returns two seconds of a film, with a key frame a second, as an encoder sends it.
// It is red in the first second and blue in the second.
func videoOf(t *testing.T, coding ...string) (cmaf.Track, []Frame) {
	t.Helper()
	return framesOf(t, append([]string{
		"-f", "lavfi", "-i", "color=red:s=320x180:r=10:d=1", "-f", "lavfi", "-i", "color=blue:s=320x180:r=10:d=1",
		"-filter_complex", "[0][1]concat,format=yuv420p", "-g", "10", "-bf", "0",
	}, coding...)...)
}

// newPosterTest is a station with ffmpeg and an encoder that sends frames.
func newPosterTest(t *testing.T, track cmaf.Track) (*testHub, *Publisher) {
	t.Helper()
	s := newTestHub(t, false)
	s.stop()
	var err error
	if s.engine, err = ffmpeg.New(ffmpeg.Options{Sandbox: ffmpeg.Off, Cores: 2}); err != nil {
		t.Fatal(err)
	}
	s.start()
	p, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{Protocol: "test"})
	if err == nil {
		err = p.SetTracks(t.Context(), []cmaf.Track{track})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func write(t *testing.T, p *Publisher, frames []Frame) {
	t.Helper()
	for _, f := range frames {
		f.Data = bytes.Clone(f.Data)
		if err := p.Write(f); err != nil {
			t.Fatal(err)
		}
	}
}

// posterOf asks for the poster until it is there, as pages do.
func posterOf(t *testing.T, b *Broadcast) (image []byte) {
	t.Helper()
	wait.NoError(t, func() (err error) {
		if image, err = b.Poster(t.Context()); err != nil && weir.KindOf(err) != weir.Busy {
			t.Error(err)
			return nil
		}
		return err
	})
	return image
}

// colour returns which of red and blue a JPEG is.
func colour(t *testing.T, data []byte) (string, image.Point) {
	t.Helper()
	decoded, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	size := decoded.Bounds().Size()
	switch r, _, b, _ := decoded.At(size.X/2, size.Y/2).RGBA(); {
	case r > 0xc000 && b < 0x4000:
		return "red", size
	case b > 0xc000 && r < 0x4000:
		return "blue", size
	}
	return "another colour", size
}

// The poster of a stream shows its newest key frame, in each coding that encoders send,
// and has the shape in which the film is shown.
func TestPosterCodings(t *testing.T) {
	for name, tt := range map[string]struct {
		coding []string
		want   image.Point
	}{
		"H.264":                         {[]string{"-c:v", "libx264", "-preset", "ultrafast"}, image.Pt(320, 180)},
		"H.264, pixels of another form": {[]string{"-c:v", "libx264", "-preset", "ultrafast", "-aspect", "32:9"}, image.Pt(640, 180)},
		"HEVC":                          {[]string{"-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1", "-x265-params", "log-level=none"}, image.Pt(320, 180)},
		"AV1":                           {[]string{"-c:v", "libaom-av1", "-cpu-used", "8", "-usage", "realtime"}, image.Pt(320, 180)},
	} {
		t.Run(name, func(t *testing.T) {
			track, frames := videoOf(t, tt.coding...)
			s, p := newPosterTest(t, track)
			write(t, p, frames[:9])
			first := posterOf(t, s.broadcast())
			if is, size := colour(t, first); is != "red" || size != tt.want {
				t.Errorf("the image is %s in %v, want red in %v", is, size, tt.want)
			}
			p.Close(true)
		})
	}
}

// The poster of a video for HDR screens is as light as others show it: white, which is 0x94
// there, is not grey.
func TestPosterOfHDR(t *testing.T) {
	track, frames := framesOf(t, "-f", "lavfi", "-i", "color=0x949494:s=320x180:r=10:d=1", "-pix_fmt", "yuv420p10le", "-c:v", "libx265", "-preset", "ultrafast", "-tag:v", "hvc1",
		"-x265-params", "log-level=none:bframes=0:colorprim=bt2020:colormatrix=bt2020nc:transfer=smpte2084")
	s, p := newPosterTest(t, track)
	write(t, p, frames)
	data := posterOf(t, s.broadcast())
	p.Close(true)
	decoded, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if r, g, b, _ := decoded.At(160, 90).RGBA(); min(r, g, b) < 0xb000 || decoded.Bounds().Size() != image.Pt(320, 180) {
		t.Errorf("white is %x %x %x in an image of %v", r>>8, g>>8, b>>8, decoded.Bounds())
	}
}

// A poster does not wait for encodes that hold all cores for long.
func TestPosterBesideEncodes(t *testing.T) {
	track, frames := videoOf(t, "-c:v", "libx264", "-preset", "ultrafast")
	s, p := newPosterTest(t, track)
	write(t, p, frames[:9])
	ctx, cancel := context.WithCancel(t.Context())
	var encodes sync.WaitGroup
	cores := s.engine.Stats().Cores
	for range cores {
		encodes.Go(func() {
			never, _ := io.Pipe()
			_ = s.engine.Run(ctx, ffmpeg.Command{
				Args: append(ffmpeg.InputOptions(), "-i", "pipe:0", "-f", "null", "-"), Stdin: never, Priority: ffmpeg.Batch,
			})
		})
	}
	wait.Until(t, "encodes hold all cores", func() bool { return s.engine.Stats().Running[ffmpeg.Batch] == cores })
	posterOf(t, s.broadcast())
	if running := s.engine.Stats().Running[ffmpeg.Batch]; running != cores {
		t.Errorf("%d of %d encodes go on", running, cores)
	}
	cancel()
	encodes.Wait()
	p.Close(true)
}

// However many requests come, one image is made at a time, and none while the last one is
// young or is of the newest key frame.
func TestPosterIsMadeOnce(t *testing.T) {
	track, frames := videoOf(t, "-c:v", "libx264", "-preset", "ultrafast")
	s, p := newPosterTest(t, track)
	write(t, p, frames[:1])
	poster := func() []byte { return posterOf(t, s.broadcast()) }
	if _, err := s.broadcast().Poster(t.Context()); weir.KindOf(err) != weir.NotFound {
		t.Errorf("of a stream without a part: %v, want an error of kind NotFound", err)
	}
	write(t, p, frames[1:9])
	var asking sync.WaitGroup
	for range 20 {
		asking.Go(func() {
			if is, _ := colour(t, poster()); is != "red" {
				t.Errorf("the image is %s", is)
			}
		})
	}
	asking.Wait()
	session := s.broadcast().session
	begun := func(before time.Duration) {
		session.poster.mu.Lock()
		defer session.poster.mu.Unlock()
		session.poster.tried = time.Now().Add(-before)
	}
	begun(PosterEvery)
	poster()
	if runs := s.engine.Stats().Runs; runs != 1 {
		t.Errorf("ffmpeg ran %d times, want once: nothing is newer", runs)
	}
	begun(-time.Hour)
	write(t, p, frames[9:])
	poster()
	if runs := s.engine.Stats().Runs; runs != 1 {
		t.Errorf("ffmpeg ran %d times, want once: the image is new", runs)
	}
	begun(PosterEvery)
	if is, _ := colour(t, poster()); is != "red" {
		t.Errorf("while a new image is made it is %s, want the last one", is)
	}
	session.poster.working.Wait()
	if is, _ := colour(t, poster()); is != "blue" || s.engine.Stats().Runs != 2 {
		t.Errorf("then it is %s after %d runs, want the new one", is, s.engine.Stats().Runs)
	}
	p.Close(true)
}

// The last image stays when the broadcast is over, until the stream is deleted.
func TestLastPoster(t *testing.T) {
	track, frames := videoOf(t, "-c:v", "libx264", "-preset", "ultrafast")
	s, p := newPosterTest(t, track)
	if _, err := s.hub.LastPoster(s.stream.ID); weir.KindOf(err) != weir.NotFound {
		t.Errorf("of a stream without an image: %v, want an error of kind NotFound", err)
	}
	write(t, p, frames)
	want := posterOf(t, s.broadcast())
	p.Close(true)
	s.stop()
	s.start()
	s.hub.sweep(t.Context())
	if got, err := s.hub.LastPoster(s.stream.ID); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the last image has %d bytes, want %d; error %v", len(got), len(want), err)
	}
	file := filepath.Join(s.dir, posterFolder, s.stream.ID+posterSuffix)
	if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.hub.sweep(t.Context())
	if _, err := s.hub.LastPoster(s.stream.ID); err != nil {
		t.Errorf("an hour later: %v", err)
	}
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(stream *weir.Stream) error { stream.Deleted = true; return nil })
		return err
	})
	s.hub.sweep(t.Context())
	if _, err := s.hub.LastPoster(s.stream.ID); weir.KindOf(err) != weir.NotFound {
		t.Errorf("the stream was deleted, and its image is there: error %v", err)
	}
}
