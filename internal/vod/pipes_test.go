package vod

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media/mediatest"
	"weir/internal/weir"
)

// Missing output is no error of the source when ffmpeg had no memory for it or broke off, even with
// status 0.
func TestMissingOutput(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	t.Parallel()
	engine := newEngine(t).FFmpeg
	small := mediatest.Film(t, "small.ts", "-f", "lavfi", "-i", "testsrc2=s=128x72:r=25:d=1", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
	large := mediatest.Film(t, "large.ts", "-f", "lavfi", "-i", "testsrc2=s=2560x1440:r=25:d=1", "-c:v", "libx264", "-preset", "ultrafast", "-pix_fmt", "yuv420p")
	grows := joinFiles(t, "grows.ts", -1, small, large)
	whole := mediatest.Film(t, "whole.mp4", "-f", "lavfi", "-i", "testsrc2=s=128x72:r=25:d=3", "-c:v", "libx264", "-g", "25", "-pix_fmt", "yuv420p", "-movflags", "frag_keyframe+empty_moov")
	half := joinFiles(t, "half.mp4", 20_000, whole)

	frames := func(_ context.Context, r io.Reader) error {
		reader, _, err := openTrack(r, cmaf.Video)
		for n := 0; ; n++ {
			if err == nil {
				_, err = reader.Next()
			}
			if errors.Is(err, io.EOF) && n < 50 {
				return weir.Errorf(weir.Invalid, "the video is damaged")
			}
			if err != nil {
				return err
			}
		}
	}
	for _, tt := range []struct {
		name   string
		args   []string
		reason ffmpeg.Reason
	}{
		{"no memory for large frames", []string{
			"-max_alloc", "2000000", "-threads", "1", "-i", "file:" + grows, "-vf", "scale=128:72", "-c:v", "libx264", "-threads", "1",
			"-f", "mp4", "-movflags", "frag_every_frame+empty_moov", "pipe:3",
		}, ffmpeg.OutOfMemory},
		{"breaks off", []string{"-f", "data", "-i", "file:" + half, "-map", "0", "-c", "copy", "-f", "data", "pipe:3"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			command := ffmpeg.Command{Args: tt.args, Read: []string{grows, half}}
			err := runPipes(t.Context(), engine, command, []func(context.Context, io.Reader) error{frames})
			if weir.KindOf(err) != weir.Internal || ffmpeg.ReasonOf(err) != tt.reason {
				t.Errorf("error %v of kind %s and reason %q, want %s and %q", err, weir.KindOf(err), ffmpeg.ReasonOf(err), weir.Internal, tt.reason)
			}
		})
	}
}

// joinFiles makes a file of others, of so many bytes; -1 = of all.
func joinFiles(t *testing.T, name string, size int, files ...string) string {
	t.Helper()
	var all []byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	if size >= 0 {
		all = all[:size]
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
