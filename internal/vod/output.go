package vod

import (
	"cmp"
	"crypto/rand"
	"math"
	"slices"
	"strings"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// NewRequestID returns an id for the output of a transcode task.
func NewRequestID() string { return strings.ToLower(rand.Text()[:8]) }

// Output tells what a Publisher put: paths are relative to base. It is complete when
// the streams are.
func (p *Publisher) Output(state *PublishState, src Source, video, audio []Stream, base, requestID string) weir.TranscodeOutput {
	spec := src.Probe.VideoSpec()
	out := weir.TranscodeOutput{
		BaseURL:    base,
		Renditions: []weir.RenditionOutput{},
		VideoSpec:  &spec,
		RequestID:  requestID,
		InputVideo: weir.InputVideo{Duration: src.Duration, Size: src.Probe.Size},
	}
	if p.Outputs.HLS != nil {
		out.HLS = &weir.PathParam{Path: "/" + p.hlsKey("index.m3u8")}
	}
	if p.Outputs.FMP4 != nil {
		out.FMP4 = &weir.FMP4Output{Path: "/" + p.fmp4Key("master.m3u8"), DASH: "/" + p.fmp4Key("index.mpd")}
	}
	shown := video
	if len(video) == 0 {
		shown = audio[:min(1, len(audio))]
	}
	for _, s := range shown {
		r := renditionOutput(s, audio)
		// A size that is not noted is of a file that an earlier version put: there is only an estimate.
		size := func(put int64) { r.Size = cmp.Or(put, r.Size) }
		if p.Outputs.FMP4 != nil {
			files := fmp4Files(video, audio)
			for _, file := range slices.Concat(files.Video, files.Audio) {
				if file.Name == s.Name {
					r.FMP4 = "/" + p.fmp4Key(file.File())
					size(state.FMP4[file.File()].size())
				}
			}
		}
		if p.Outputs.HLS != nil {
			r.Playlist = "/" + p.hlsKey(s.Name, "index.m3u8")
			size(state.HLS[s.Name].size())
		}
		if p.Outputs.MP4 != nil {
			r.MP4 = "/" + p.mp4Key(s.Name)
			size(state.MP4[s.Name].size())
			out.MP4 = append(out.MP4, weir.PathParam{Path: r.MP4})
		}
		out.Renditions = append(out.Renditions, r)
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
	r := weir.RenditionOutput{Name: s.Name, Codec: codec, Width: t.Width, Height: t.Height, Size: size}
	if seconds := s.Index.Duration().Seconds(); seconds > 0 {
		r.Bitrate = int64(math.Round(float64(size) * 8 / seconds))
	}
	if t.Kind == cmaf.Video {
		r.FPS = math.Round(cmp.Or(s.FPS, s.Index.FrameRate())*1000) / 1000
	}
	return r
}

// MP4Size returns the size of the MP4 file of a rendition with the audio that plays
// unasked, without making it.
func MP4Size(rendition Stream, audio []Stream) (int64, error) {
	indexes := []cmaf.TrackIndex{rendition.Index}
	if len(audio) > 0 && rendition.Index.Track.Kind == cmaf.Video {
		indexes = append(indexes, audio[0].Index)
	}
	layout, err := cmaf.Progressive(indexes, 0)
	return layout.Size, err
}
