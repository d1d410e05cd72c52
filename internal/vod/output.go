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

// An output is a format in which streams are published; each has a file of this package. It
// consists of pieces (a track in segments, or a file), which can be put while the streams grow, and
// of manifests, which are put at the end.
type output interface {
	// name returns the name of the output in requests and in a PublishState.
	name() string

	// jobs returns functions that put the new parts of the pieces, according to r.state.piece.
	jobs(r *publishing) []publishJob

	// finish puts the manifests. All streams are complete, and so are all pieces.
	finish(ctx context.Context, r *publishing) error

	// manifests returns the keys of the top-level manifests: with them, the output is finished.
	manifests() []string

	// keys returns the keys of objects that may have been put for a piece. The first is that of its
	// file, if it is one.
	keys(piece string, state *PieceState) []string

	// report adds the paths of the output to out, which has the renditions and the reports of the
	// outputs before. The size of a rendition is that of its MP4 file, else that of HLS, else that
	// of its fragmented file; if an earlier version put that without noting its size, it is an
	// estimate.
	report(out *weir.TranscodeOutput, state *PublishState, video, audio []Stream)
}

// outputs returns the requested outputs, in the order in which they are finished: the master
// playlist of HLS is the very last.
func (p *Publisher) outputs() (list []output) {
	add := func(asked *weir.PathParam, in func(folder) output) {
		if asked != nil {
			list = append(list, in(folder(asked.Path)))
		}
	}
	add(p.Outputs.FMP4, func(f folder) output { return fmp4Output{folder(f.key("fmp4"))} })
	add(p.Outputs.MP4, func(f folder) output { return mp4Output{f} })
	add(p.Outputs.HLS, func(f folder) output { return hlsOutput{f, p.TS && p.Sign == nil} })
	return list
}

// folder is the path of an output in the destination.
type folder string

func (f folder) key(names ...string) string {
	return strings.TrimPrefix(path.Join(append([]string{"/", string(f)}, names...)...), "/")
}

// path returns the path of an object in the folder, for callers.
func (f folder) path(names ...string) string { return "/" + f.key(names...) }

// NewRequestID returns an id for the output of a transcode task.
func NewRequestID() string { return strings.ToLower(rand.Text()[:8]) }

// Output describes the finished outputs.
func (p *Publisher) Output(state *PublishState, src Source, video, audio []Stream, requestID string) weir.TranscodeOutput {
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

// reportSigned adds the manifest of a piece to out; path is what it signs.
func reportSigned(out *weir.TranscodeOutput, state *PublishState, output, piece, path string) {
	if p := state.Pieces[output][piece]; p != nil && p.Signed != nil {
		signed := *p.Signed
		signed.Path = path
		out.C2PA = append(out.C2PA, signed)
	}
}

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
	r := weir.RenditionOutput{Name: s.Name, Codec: codec, Width: t.Width, Height: t.Height, Size: size}
	if seconds := s.Index.Duration().Seconds(); seconds > 0 {
		r.Bitrate = int64(math.Round(float64(size) * 8 / seconds))
	}
	if t.Kind == cmaf.Video {
		r.FPS = math.Round(cmp.Or(s.FPS, s.Index.FrameRate())*1000) / 1000
	}
	return r
}
