package publish

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"weir/internal/c2pa"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// fmp4Output is a fragmented MP4 file for each track, with HLS playlists and a DASH manifest.
type fmp4Output struct{ folder }

const (
	fmp4Master = "master.m3u8"
	fmp4DASH   = "index.mpd"
)

func (o fmp4Output) name() string { return "fmp4" }

func (o fmp4Output) files(video, audio []Track) cmaf.Files {
	files := func(kind cmaf.Kind, tracks []Track) (list []cmaf.TrackFile) {
		for i, t := range tracks {
			n := cmaf.FileNumber(kind, i, len(video))
			list = append(list, cmaf.TrackFile{Name: t.Name, Number: n, Index: t.Index})
		}
		return list
	}
	return cmaf.Files{Video: files(cmaf.Video, video), Audio: files(cmaf.Audio, audio)}
}

func (o fmp4Output) jobs(r *run) (jobs []job) {
	files := o.files(r.video, r.audio)
	tracks := slices.Concat(r.video, r.audio)
	render := func(indexes []cmaf.TrackIndex, _ int, boxes ...[]byte) (cmaf.Layout, error) {
		return cmaf.SingleFile(indexes[0], boxes...)
	}
	for i, file := range slices.Concat(files.Video, files.Audio) {
		name := file.File()
		jobs = append(jobs, r.fileJob(growingFile{
			key: o.key(name), form: formZero, state: r.state.item(o.name(), name, formZero), tracks: tracks[i : i+1], render: render,
			title: tracks[i].Name, beside: r.set(tracks[i].Name),
		}))
	}
	return jobs
}

// set returns the tracks that the file of a track belongs to, which have a file each; nil = the
// output was begun when manifests did not name them.
func (r *run) set(name string) *c2pa.Tracks {
	if r.state.Set == "" {
		return nil
	}
	tracks := &c2pa.Tracks{Set: r.state.Set, File: name}
	for _, t := range slices.Concat(r.video, r.audio) {
		tracks.All = append(tracks.All, t.named())
	}
	return tracks
}

func (o fmp4Output) finish(ctx context.Context, r *run) (err error) {
	files := o.files(r.video, r.audio)
	for _, list := range [][]cmaf.TrackFile{files.Audio, files.Video} {
		for i := range list {
			// Only the size of the manifest matters for the places in the file.
			signed, err := r.signer(list[i].Name, r.set(list[i].Name))
			if err != nil {
				return err
			}
			var boxes [][]byte
			if signed != nil {
				boxes = [][]byte{signed.Blank()}
			}
			layout, err := cmaf.SingleFile(list[i].Index, boxes...)
			if err != nil {
				return err
			}
			list[i].Layout = layout
			text := list[i].Media().Text()
			if err := r.sendBytes(ctx, o.key(list[i].Playlist()), typePlaylist, text); err != nil {
				return err
			}
		}
	}
	if files.Text, err = r.putText(ctx, o.folder, o.name(), zeroTime); err != nil {
		return err
	}
	files.Captions = r.Captions
	for k := range files.Text {
		if err := r.putTextFile(ctx, o.folder, k); err != nil {
			return err
		}
	}
	manifest, err := cmaf.DASH(files)
	if err != nil {
		return err
	}
	if err := r.sendBytes(ctx, o.key(fmp4DASH), typeDASH, manifest); err != nil {
		return err
	}
	return r.sendBytes(ctx, o.key(fmp4Master), typePlaylist, files.Master().Playlist().Text())
}

func (o fmp4Output) manifests() []string { return []string{o.key(fmp4Master), o.key(fmp4DASH)} }

func (o fmp4Output) keys(file string, state *itemState) []string {
	if keys, ok := o.textKeys(file, state); ok {
		return keys
	}
	playlist := strings.NewReplacer("index-stream", "media_", ".mp4", ".m3u8").Replace(file)
	return []string{o.key(file), o.key(playlist)}
}

func (o fmp4Output) report(out *weir.TranscodeOutput, state *State, video, audio []Track) {
	out.FMP4 = &weir.FMP4Output{Path: o.path(fmp4Master), DASH: o.path(fmp4DASH)}
	files := o.files(video, audio)
	all := slices.Concat(files.Video, files.Audio)
	for _, file := range all {
		reportSigned(out, state, o.name(), file.File(), o.path(file.File()))
	}
	for i, file := range all[:len(out.Renditions)] {
		r := &out.Renditions[i]
		r.FMP4 = o.path(file.File())
		r.Size = cmp.Or(state.size(o.name(), file.File()), r.Size)
	}
}
