package vod

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
	"weir/internal/weir"
)

// ClipFileOptions say what ClipFile does.
type ClipFileOptions struct {
	FFmpeg     *ffmpeg.Engine
	Source     string        // path of the file
	Out        string        // path of the MP4 file to write; it is replaced when the clip is whole
	Start, End time.Duration // from the start of the file; End 0 = up to its end
	Dir        string        // for temporary files; made and removed

	MaxDuration time.Duration  // of the source; see Engine
	Progress    func(Progress) // one call at a time; may be nil
}

// ClipFile cuts a clip out of a file and writes it as an MP4 file.
func ClipFile(ctx context.Context, o ClipFileOptions) (result ClipResult, err error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	work, err := blob.NewDisk(filepath.Join(o.Dir, "media"))
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, work.Close()) }()
	e := Engine{FFmpeg: o.FFmpeg, Store: work, MaxDuration: o.MaxDuration}
	step := func(name string) func(float64) {
		return func(share float64) {
			if o.Progress != nil {
				o.Progress(Progress{Step: name, Fraction: share})
			}
		}
	}
	src, err := e.Import(ctx, ImportOptions{File: o.Source, Prefix: workPrefix, Part: &Part{o.Start, o.End}, Progress: step("reading")})
	if err != nil {
		return result, err
	}
	length := time.Duration(src.Duration * float64(time.Second))
	if o.End == 0 {
		o.End = length + clipSlack
	}
	switch {
	case src.To > 0: // the clip ends in the part that was read, and the file goes on
	case o.Start >= length:
		return result, weir.Errorf(weir.Invalid, "the clip starts at %v, but the file ends at %v", o.Start, length.Round(time.Millisecond))
	case o.End > length+time.Second/10: // the last frame and the last packet of audio need not end together
		return result, weir.Errorf(weir.Invalid, "the clip ends at %v, but the file ends at %v", o.End, length.Round(time.Millisecond))
	}
	source, err := e.clipSource(ctx, src)
	if err != nil {
		return result, err
	}
	result, err = e.Clip(ctx, source, ClipOptions{Prefix: "clip", Start: o.Start, End: o.End, Dir: o.Dir, Progress: step("cutting")})
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

// clipSource returns the tracks of an imported file. Audio that is not AAC is encoded.
func (e Engine) clipSource(ctx context.Context, src Source) (ClipSource, error) {
	var source ClipSource
	if src.Sequential != "" {
		return source, weir.Errorf(weir.Invalid, "the video can't be cut: %s; make an MP4 file of it with weir transcode first", src.Sequential)
	}
	if src.Video != nil {
		track, err := media.Open(ctx, e.Store, src.Prefix+"/"+sourceDir)
		if err != nil {
			return source, err
		}
		source.Video, source.Stream, source.Whole = track, &src.Video.Stream, src.Video.NoCopy
	}
	var plan *Plan
	for k, audio := range src.Audio {
		place := src.place(k)
		if !audio.Copy {
			if plan == nil {
				p, err := e.Plan(ctx, src, Request{})
				if err != nil {
					return source, err
				}
				plan = &p
			}
			result, err := e.EncodeAudio(ctx, *plan, k, nil)
			if err != nil {
				return source, err
			}
			place = plan.Prefix + "/" + result.Name
		}
		track, err := media.Open(ctx, e.Store, place)
		if err != nil {
			return source, err
		}
		source.Audio = append(source.Audio, track)
	}
	return source, nil
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
