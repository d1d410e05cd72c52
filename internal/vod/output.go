package vod

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"path"
	"strings"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// An output is a form in which streams are published: one file of this package each. It
// consists of pieces (a track in segments, or a file), which can be put while the streams
// grow, and of manifests over them, which come when everything is there.
type output interface {
	// name is that of the output in requests and in a PublishState.
	name() string

	// jobs returns what puts the pieces as far as they go now and were not put before. How far
	// they are is in r.state.piece.
	jobs(r *publishing) []publishJob

	// finish puts the manifests. All streams are complete, and so are all pieces.
	finish(ctx context.Context, r *publishing) error

	// manifests returns the keys of what tells a player that the output is finished.
	manifests() []string

	// keys returns the keys of what may have been put of a piece. The first is that of its file,
	// if it is one.
	keys(piece string, state *PieceState) []string

	// report says where the output is. The renditions are in out already, and so is what the
	// outputs before it reported. The size of a rendition is that of its MP4 file, else that of
	// HLS, else that of its fragmented file; where an earlier version put that and did not note
	// its size, it is an estimate.
	report(out *weir.TranscodeOutput, state *PublishState, video, audio []Stream)
}

// outputs returns those that were asked for, in the order in which they are finished: the
// master playlist of HLS is the very last.
func (p *Publisher) outputs() (list []output) {
	add := func(asked *weir.PathParam, in func(folder) output) {
		if asked != nil {
			list = append(list, in(folder(asked.Path)))
		}
	}
	add(p.Outputs.FMP4, func(f folder) output { return fmp4Output{folder(f.key("fmp4"))} })
	add(p.Outputs.MP4, func(f folder) output { return mp4Output{f} })
	add(p.Outputs.HLS, func(f folder) output { return hlsOutput{f, p.TS} })
	return list
}

// folder is a path in the destination, below which an output is.
type folder string

// key returns the key of an object in the folder.
func (f folder) key(names ...string) string {
	return strings.TrimPrefix(path.Join(append([]string{"/", string(f)}, names...)...), "/")
}

// path returns the path of an object in the folder, as it is told to callers.
func (f folder) path(names ...string) string { return "/" + f.key(names...) }

// NewRequestID returns an id for the output of a transcode task.
func NewRequestID() string { return strings.ToLower(rand.Text()[:8]) }

// Output tells what a Publisher put when it has finished.
func (p *Publisher) Output(
	state *PublishState, src Source, video, audio []Stream, requestID string,
) weir.TranscodeOutput {
	spec := src.Probe.VideoSpec()
	out := weir.TranscodeOutput{
		BaseURL:    state.Base,
		Renditions: []weir.RenditionOutput{},
		VideoSpec:  &spec,
		RequestID:  requestID,
		InputVideo: weir.InputVideo{Duration: src.Duration, Size: src.Probe.Size},
	}
	shown := video
	if len(video) == 0 {
		shown = audio[:min(1, len(audio))]
	}
	for _, s := range shown {
		out.Renditions = append(out.Renditions, renditionOutput(s, audio))
	}
	for _, o := range p.outputs() {
		o.report(&out, state, video, audio)
	}
	return out
}

// renditionOutput measures a rendition.
func renditionOutput(s Stream, audio []Stream) weir.RenditionOutput {
	t := s.Index.Track
	codec := t.Codec
	if t.Kind == cmaf.Video && len(audio) > 0 {
		codec += "," + audio[0].Index.Track.Codec
	}
	size := int64(0)
	for _, segment := range s.Index.Segments {
		for _, part := range segment.Parts {
			size += cmaf.Bytes(part.Samples)
		}
	}
	r := weir.RenditionOutput{
		Name: s.Name, Codec: codec, Width: t.Width, Height: t.Height, Size: size,
	}
	if seconds := s.Index.Duration().Seconds(); seconds > 0 {
		r.Bitrate = int64(math.Round(float64(size) * 8 / seconds))
	}
	if t.Kind == cmaf.Video {
		r.FPS = math.Round(cmp.Or(s.FPS, s.Index.FrameRate())*1000) / 1000
	}
	return r
}
