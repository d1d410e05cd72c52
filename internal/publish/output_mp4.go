package publish

import (
	"cmp"
	"context"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/weir"
)

// mp4Output is a progressive MP4 file for each rendition, with the default audio.
type mp4Output struct{ folder }

func (o mp4Output) name() string { return "mp4" }

func (o mp4Output) file(rendition string) string { return rendition + ".mp4" }

// formText is the form of files with texts inside.
const formText = "text"

func (o mp4Output) jobs(r *run) (jobs []job) {
	texts, form := r.fileTexts()
	render := func(indexes []cmaf.TrackIndex, pad int, boxes ...[]byte) (cmaf.Layout, error) {
		return cmaf.Progressive(indexes, media.TextTracks(texts, indexes), pad, boxes...)
	}
	renditions, audio := r.video, r.audio[:min(1, len(r.audio))]
	if len(renditions) == 0 {
		renditions, audio = audio, nil
	}
	for _, t := range renditions {
		jobs = append(jobs, r.fileJob(growingFile{
			key: o.key(o.file(t.Name)), state: r.state.item(o.name(), t.Name, form), form: form,
			tracks: append([]Track{t}, audio...), texts: texts, render: render, grows: true, title: t.Name,
		}))
	}
	return jobs
}

// fileTexts returns the texts that MP4 files have inside, and the form of the files. Signed ones have none.
func (r *run) fileTexts() (texts []media.Text, form string) {
	if r.Sign != nil || len(r.Text) == 0 {
		return nil, ""
	}
	for _, t := range r.Text {
		texts = append(texts, media.Text{Name: t.Name, Language: t.Language, Default: t.Default, Cues: t.Cues, Start: t.Start})
	}
	return texts, formText
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
	layout, err := cmaf.Progressive(indexes, nil, 0)
	return layout.Size, err
}
