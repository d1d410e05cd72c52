package vod

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/ffmpeg"
	"weir/internal/media"
)

// Sizes of images.
const (
	thumbWidth, thumbHeight   = 640, 360
	spriteWidth, spriteHeight = 160, 90
	spriteColumns, spriteRows = 10, 10
	posterWidth, posterHeight = 1280, 720

	// enoughHeight is the minimum height of a rendition for thumbnails.
	enoughHeight = 360
)

// ThumbnailsResult counts the images that were made.
type ThumbnailsResult struct {
	Images int `json:"pictures"` // thumbnails/keyframes_<n>.jpg
	Sheets int `json:"sheets"`   // thumbnails/sprite_<n>.jpg
	Width  int `json:"width"`    // of an image
	Height int `json:"height"`
}

// Thumbnails makes an image of the key frame of each segment: single JPEGs and sheets of small ones
// below <prefix>/thumbnails, each with a WebVTT file with their times (thumbnails.vtt, sprite.vtt),
// and <prefix>/poster.jpg.
//
// The images are from the source if it is one of the renditions, else from another rendition, which needs
// the results of all chunks; without them, images repeat. Other sources may have no key frame in a segment,
// or key frames that can't be decoded in order without the frames between them.
func (e Engine) Thumbnails(ctx context.Context, plan Plan, chunks []ChunkResult) (ThumbnailsResult, error) {
	if plan.Source.Video == nil {
		return ThumbnailsResult{}, nil
	}
	track, format, err := e.thumbnailTrack(ctx, plan, chunks)
	if err != nil {
		return ThumbnailsResult{}, err
	}
	plan = plan.forThumbnails()
	keys := plan.recordedKeys(track.Index(), keysOf(track.Index(), plan))
	if len(keys) == 0 {
		return ThumbnailsResult{}, errors.New("thumbnails: there is no key frame")
	}
	shownWidth, shownHeight := plan.Source.Video.Width, plan.Source.Video.Height
	run := ffmpeg.Thumbnails{
		Lead: cmaf.Lead, Video: format, Timescale: int64(track.Index().Track.Timescale),
		Columns: spriteColumns, Rows: spriteRows, Poster: poster(keys),
	}
	run.Width, run.Height = ffmpeg.Fit(shownWidth, shownHeight, thumbWidth, thumbHeight)
	run.SpriteWidth, run.SpriteHeight = ffmpeg.Fit(shownWidth, shownHeight, spriteWidth, spriteHeight)
	run.PosterWidth, run.PosterHeight = ffmpeg.Fit(shownWidth, shownHeight, posterWidth, posterHeight)

	result := ThumbnailsResult{Width: run.Width, Height: run.Height}
	consumers := []func(context.Context, io.Reader) error{
		e.putImages(plan.Prefix+"/thumbnails/keyframes_%d.jpg", &result.Images),
		e.putImages(plan.Prefix+"/thumbnails/sprite_%d.jpg", &result.Sheets),
		e.putImages(plan.Prefix+"/poster.jpg", new(int)),
	}
	command := ffmpeg.Command{
		Args: run.Args(), Stdin: newKeyFrameReader(ctx, track, keys), Pixels: int64(format.Width) * int64(format.Height) * 2,
	}
	if err := runPipes(ctx, e.FFmpeg, command, consumers); err != nil {
		return ThumbnailsResult{}, fmt.Errorf("thumbnails: %w", err)
	}
	if result.Images != len(keys) {
		return ThumbnailsResult{}, fmt.Errorf("thumbnails: ffmpeg made %d images of %d key frames", result.Images, len(keys))
	}
	return result, e.putCues(ctx, plan, run, keys)
}

func (e Engine) thumbnailTrack(ctx context.Context, plan Plan, chunks []ChunkResult) (*media.Track, ffmpeg.VideoFormat, error) {
	if plan.Source.Sequential == "" {
		track, err := media.Open(ctx, e.Store, plan.Source.Prefix+"/"+sourceDir)
		if err != nil {
			return nil, ffmpeg.VideoFormat{}, err
		}
		copied := slices.ContainsFunc(plan.Renditions, func(r Rendition) bool { return r.Copy })
		if len(chunks) != len(plan.Chunks) || len(chunks) == 0 || copied {
			return track, plan.Source.Video.Track.VideoFormat(), nil
		}
	}
	encoded := plan.encoded()
	best := smallestEnough(encoded)
	if best < 0 || len(chunks) != len(plan.Chunks) {
		return nil, ffmpeg.VideoFormat{}, errors.New("thumbnails of a source that can't be demuxed need the results of all chunks")
	}
	r := encoded[best]
	s := plan.track(r.Name, r.Dir)
	for _, chunk := range chunks {
		if err := addResults(&s, chunk.Renditions); err != nil {
			return nil, ffmpeg.VideoFormat{}, err
		}
	}
	// The bitstream of a rendition has its colours.
	format := ffmpeg.VideoFormat{Width: r.Width, Height: r.Height, PixelFormat: "yuv420p", Range: "tv"}
	return media.NewTrack(e.Store, s.Prefix, s.Index), format, nil
}

// smallestEnough returns the smallest rendition that is high enough for thumbnails, else the
// largest; -1 = there is none.
func smallestEnough(renditions []Rendition) int {
	best := -1
	for i, r := range renditions {
		short := min(r.Width, r.Height)
		if best < 0 {
			best = i
			continue
		}
		bestShort := min(renditions[best].Width, renditions[best].Height)
		switch {
		case bestShort < enoughHeight && short > bestShort, short >= enoughHeight && short < bestShort:
			best = i
		}
	}
	return best
}

// keyFrame is a sample of a track that can be decoded alone.
type keyFrame struct {
	segment, part, sample int
	size                  uint32
	start, end            int64 // the time for which its image is shown, in ticks of the track
}

// keysOf returns a key frame for each segment of the plan: the first in it, else the last before
// it.
func keysOf(index cmaf.TrackIndex, plan Plan) []keyFrame {
	starts := startsOf(index, plan)
	if len(starts) == 0 {
		return nil
	}
	var keys []keyFrame
	var last keyFrame
	found := false
	next := 0
	flush := func(until int64) { // the segments that start before until have no key frame of their own
		for next < len(starts) && starts[next] < until {
			if found {
				keys = append(keys, last)
			}
			next++
		}
	}
	eachKey(index, func(k keyFrame, shown int64) {
		if !found {
			last, found = k, true
		}
		for next+1 < len(starts) && starts[next+1] <= shown {
			flush(starts[next] + 1)
		}
		if next < len(starts) && shown >= starts[next] {
			keys = append(keys, k)
			next++
		}
		last = k
	})
	flush(1 << 62)
	for i := range keys {
		keys[i].start, keys[i].end = starts[i], index.End()
		if i+1 < len(starts) {
			keys[i].end = starts[i+1]
		}
	}
	return keys
}

// startsOf returns the starts of segments in ticks of a track.
func startsOf(index cmaf.TrackIndex, plan Plan) (starts []int64) {
	for _, start := range plan.Starts {
		starts = append(starts, cmaf.RescaleUp(start, plan.Timescale, int64(index.Track.Timescale)))
	}
	if len(plan.Starts) == 0 {
		for _, segment := range index.Segments {
			starts = append(starts, segment.Start())
		}
	}
	return starts
}

func eachKey(index cmaf.TrackIndex, do func(k keyFrame, shown int64)) {
	for n, segment := range index.Segments {
		for p, part := range segment.Parts {
			at := part.Start
			for i, s := range part.Samples {
				if s.Sync {
					do(keyFrame{segment: n, part: p, sample: i, size: s.Size}, at+int64(s.Offset))
				}
				at += int64(s.Duration)
			}
		}
	}
}

// poster chooses the key frame of the poster: the one with the most bytes near the start, because
// many videos begin in black.
func poster(keys []keyFrame) int {
	best := 0
	for i := range min(len(keys), max(3, len(keys)/4)) {
		if keys[i].size > keys[best].size {
			best = i
		}
	}
	return best
}

// newKeyFrameReader returns a reader of single key frames for ffmpeg, one fragment each.
func newKeyFrameReader(ctx context.Context, track *media.Track, keys []keyFrame) io.Reader {
	described := track.Index().Track
	described.Delay = 0
	f := &trackReader{ready: track.Init()}
	for i := range keys {
		f.parts = append(f.parts, cmaf.FramePart{Segment: i})
	}
	f.next = func(at cmaf.FramePart) ([]byte, error) {
		key := keys[at.Segment]
		data, err := track.Sample(ctx, key.segment, key.part, key.sample)
		if err != nil {
			return nil, err
		}
		if sets, err := track.Index().InBand(key.segment); err == nil {
			data = append(slices.Clip(sets), data...)
		}
		fragment := cmaf.Fragment{Start: key.start, Samples: []cmaf.Sample{{Duration: uint32(max(key.end-key.start, 1)), Size: uint32(len(data)), Sync: true}}, Data: data}
		_, part := cmaf.EncodePart(uint32(at.Segment+1), described, fragment)
		return part, nil
	}
	return f
}

// putImages stores the JPEGs of a pipe; %d in the name stands for their number.
func (e Engine) putImages(name string, count *int) func(context.Context, io.Reader) error {
	return func(ctx context.Context, r io.Reader) error {
		return eachJPEG(r, func(image []byte) error {
			key := strings.Replace(name, "%d", strconv.Itoa(*count), 1)
			*count++
			return e.Store.Put(ctx, key, bytes.NewReader(image), int64(len(image)), blob.PutOptions{ContentType: "image/jpeg"})
		})
	}
}

// putCues writes the WebVTT files.
func (e Engine) putCues(ctx context.Context, plan Plan, run ffmpeg.Thumbnails, keys []keyFrame) error {
	var single, sprite strings.Builder
	single.WriteString("WEBVTT\n")
	sprite.WriteString("WEBVTT\n")
	for i, key := range keys {
		start := key.start
		if i == 0 {
			start = 0 // also for the time before the first frame
		}
		times := cueTime(start, run.Timescale) + " --> " + cueTime(key.end, run.Timescale)
		fmt.Fprintf(&single, "\n%s\nkeyframes_%d.jpg\n", times, i)
		place := i % (spriteColumns * spriteRows)
		fmt.Fprintf(&sprite, "\n%s\nsprite_%d.jpg#xywh=%d,%d,%d,%d\n", times, i/(spriteColumns*spriteRows),
			place%spriteColumns*run.SpriteWidth, place/spriteColumns*run.SpriteHeight, run.SpriteWidth, run.SpriteHeight)
	}
	for name, text := range map[string]string{"thumbnails.vtt": single.String(), "sprite.vtt": sprite.String()} {
		key := plan.Prefix + "/thumbnails/" + name
		if err := e.Store.Put(ctx, key, strings.NewReader(text), int64(len(text)), blob.PutOptions{ContentType: "text/vtt"}); err != nil {
			return err
		}
	}
	return nil
}

// cueTime formats a time for WebVTT, to the nearest millisecond.
func cueTime(ticks, timescale int64) string {
	ms := ticks/timescale*1000 + (ticks%timescale*1000+timescale/2)/timescale
	return fmt.Sprintf("%02d:%02d:%02d.%03d", ms/3_600_000, ms/60_000%60, ms/1000%60, ms%1000)
}
