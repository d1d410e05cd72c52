package publish

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

// An output is a format in which tracks are published; each has a file of this package. It
// consists of items (a track in segments, or a file), which can be put while the tracks grow, and
// of manifests, which are put at the end.
type output interface {
	// name returns the name of the output in requests and in a State.
	name() string

	// jobs returns functions that put the new parts of the items, according to State.item.
	jobs(r *run) []job

	// finish puts the manifests. All tracks are complete, and so are all items.
	finish(ctx context.Context, r *run) error

	// manifests returns the keys of the top-level manifests: with them, the output is finished.
	manifests() []string

	// keys returns the keys of objects that may have been put for an item. The first is that of its
	// file, if it is one.
	keys(item string, state *itemState) []string

	// report adds the paths of the output to out, which has the renditions and the reports of the
	// outputs before. The size of a rendition is that of its MP4 file, else that of HLS, else that
	// of its fragmented file; if an earlier version put that without noting its size, it is an
	// estimate.
	report(out *weir.TranscodeOutput, state *State, video, audio []Track)
}

// list returns the requested outputs, in the order in which they are finished: the master
// playlist of HLS is the very last.
func (p *Outputs) list() (list []output) {
	add := func(asked *weir.PathParam, in func(folder) output) {
		if asked != nil {
			list = append(list, in(folder(asked.Path)))
		}
	}
	add(p.Formats.FMP4, func(f folder) output { return fmp4Output{folder(f.key("fmp4"))} })
	add(p.Formats.MP4, func(f folder) output { return mp4Output{f} })
	add(p.Formats.HLS, func(f folder) output { return hlsOutput{f, p.TS && p.Sign == nil} })
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

// Describe adds the finished outputs to out: their URL, their paths, the renditions and who signed.
func (p *Outputs) Describe(out *weir.TranscodeOutput, state *State, video, audio []Track) {
	out.BaseURL, out.Renditions = state.Base, []weir.RenditionOutput{}
	shown := video
	if len(video) == 0 {
		shown = audio[:min(1, len(audio))]
	}
	for _, t := range shown {
		out.Renditions = append(out.Renditions, renditionOutput(t, audio))
	}
	for _, o := range p.list() {
		o.report(out, state, video, audio)
	}
}

// reportSigned adds the manifest of an item to out; path is what it signs.
func reportSigned(out *weir.TranscodeOutput, state *State, output, item, path string) {
	if p := state.items[output][item]; p != nil && p.Signed != nil {
		signed := *p.Signed
		signed.Path = path
		out.C2PA = append(out.C2PA, signed)
	}
}

func renditionOutput(t Track, audio []Track) weir.RenditionOutput {
	coded := t.Index.Track
	codec := coded.Codec
	if coded.Kind == cmaf.Video && len(audio) > 0 {
		codec += "," + audio[0].Index.Track.Codec
	}
	size := int64(0)
	for _, segment := range t.Index.Segments {
		for _, part := range segment.Parts {
			size += cmaf.Bytes(part.Samples)
		}
	}
	r := weir.RenditionOutput{Name: t.Name, Codec: codec, Width: coded.Width, Height: coded.Height, Size: size}
	if seconds := t.Index.Duration().Seconds(); seconds > 0 {
		r.Bitrate = int64(math.Round(float64(size) * 8 / seconds))
	}
	if coded.Kind == cmaf.Video {
		r.FPS = math.Round(cmp.Or(t.FPS, t.Index.FrameRate())*1000) / 1000
	}
	return r
}
