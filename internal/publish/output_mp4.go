package publish

import (
	"cmp"
	"context"

	"weir/internal/cmaf"
	"weir/internal/weir"
)

// mp4Output is a progressive MP4 file for each rendition, with the default audio.
type mp4Output struct{ folder }

func (o mp4Output) name() string { return "mp4" }

func (o mp4Output) file(rendition string) string { return rendition + ".mp4" }

func (o mp4Output) jobs(r *run) (jobs []job) {
	renditions, audio := r.video, r.audio[:min(1, len(r.audio))]
	if len(renditions) == 0 {
		renditions, audio = audio, nil
	}
	for _, t := range renditions {
		jobs = append(jobs, r.fileJob(growingFile{
			key: o.key(o.file(t.Name)), state: r.state.item(o.name(), t.Name, ""),
			tracks: append([]Track{t}, audio...), render: cmaf.Progressive, grows: true, title: t.Name,
		}))
	}
	return jobs
}

func (o mp4Output) finish(context.Context, *run) error { return nil }

func (o mp4Output) manifests() []string { return nil }

func (o mp4Output) keys(rendition string, _ *itemState) []string {
	return []string{o.key(o.file(rendition))}
}

func (o mp4Output) report(out *weir.TranscodeOutput, state *State, _, _ []Track) {
	for i := range out.Renditions {
		r := &out.Renditions[i]
		r.MP4 = o.path(o.file(r.Name))
		r.Size = cmp.Or(state.size(o.name(), r.Name), r.Size)
		out.MP4 = append(out.MP4, weir.PathParam{Path: r.MP4})
		reportSigned(out, state, o.name(), r.Name, r.MP4)
	}
}

// MP4Size returns the size of the MP4 file of a rendition with the default audio, without making
// it.
func MP4Size(rendition Track, audio []Track) (int64, error) {
	indexes := []cmaf.TrackIndex{rendition.Index}
	if len(audio) > 0 && rendition.Index.Track.Kind == cmaf.Video {
		indexes = append(indexes, audio[0].Index)
	}
	layout, err := cmaf.Progressive(indexes, 0)
	return layout.Size, err
}
