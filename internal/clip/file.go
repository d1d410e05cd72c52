package clip

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"weir/internal/blob"
	"weir/internal/ffmpeg"
	"weir/internal/media"
	"weir/internal/vod"
	"weir/internal/weir"
)

// FileOptions say what CutFile does.
type FileOptions struct {
	FFmpeg     *ffmpeg.Engine
	Source     string        // path of the file
	Out        string        // path of the MP4 file to write; it is replaced when the clip is whole
	Start, End time.Duration // from the start of the file; End 0 = up to its end
	Dir        string        // for temporary files; made and removed

	MaxDuration time.Duration      // of the source; see vod.Engine
	Progress    func(vod.Progress) // one call at a time; may be nil
}

// CutFile cuts a clip out of a file and writes it as an MP4 file.
func CutFile(ctx context.Context, o FileOptions) (result Result, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	work, err := blob.NewDisk(filepath.Join(o.Dir, "media"))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	e := vod.Engine{FFmpeg: o.FFmpeg, Store: work, MaxDuration: o.MaxDuration}
	step := func(name string) func(float64) {
		return func(share float64) {
			if o.Progress != nil {
				o.Progress(vod.Progress{Step: name, Fraction: share})
			}
		}
	}
	excerpt := vod.Excerpt{Start: o.Start - slack, End: o.End}
	src, err := e.Import(ctx, vod.ImportOptions{File: o.Source, Prefix: "work", Excerpt: &excerpt, Progress: step("reading")})
	if err != nil {
		return result, err
	}
	length := time.Duration(src.Duration * float64(time.Second))
	if o.End == 0 {
		o.End = length + slack
	}
	switch {
	case src.To > 0: // the clip ends in the part that was read, and the file goes on
	case o.Start >= length:
		return result, weir.Errorf(weir.Invalid, "the clip starts at %v, but the file ends at %v", o.Start, length.Round(time.Millisecond))
	case o.End > length+time.Second/10: // the last frame and the last packet of audio need not end together
		return result, weir.Errorf(weir.Invalid, "the clip ends at %v, but the file ends at %v", o.End, length.Round(time.Millisecond))
	}
	source, err := sourceOf(ctx, e, src)
	if err != nil {
		return result, err
	}
	result, err = Cut(ctx, e, source, Options{Prefix: "clip", Start: o.Start, End: o.End, Dir: o.Dir, Progress: step("cutting")})
	if err != nil {
		return result, err
	}
	if result.Recording.NoMP4 != "" {
		return result, weir.Errorf(weir.Invalid, "%s", result.Recording.NoMP4)
	}
	file, err := media.RecordingFile(ctx, work, "clip")
	if err != nil {
		return result, err
	}
	return result, writeFile(o.Out, file.Reader(ctx))
}

// sourceOf returns the tracks of an imported file.
func sourceOf(ctx context.Context, e vod.Engine, src vod.Source) (Source, error) {
	if src.Sequential != "" {
		return Source{}, weir.Errorf(weir.Invalid, "the video can't be cut: %s; make an MP4 file of it with weir transcode first", src.Sequential)
	}
	video, audio, err := e.Tracks(ctx, src)
	source := Source{Video: video, Audio: audio}
	if src.Video != nil {
		source.Track, source.Whole = &src.Video.Track, src.Video.NoCopy
	}
	return source, err
}

// writeFile writes a file, which appears when it is whole.
func writeFile(path string, from io.ReadCloser) (err error) {
	defer func() { err = errors.Join(err, from.Close()) }()
	unfinished := path + ".part"
	file, err := os.Create(unfinished)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(unfinished, path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(unfinished))
	}
	return err
}
