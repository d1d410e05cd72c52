package vod

import (
	"context"
	"slices"

	"weir/internal/cmaf"
)

func (p *Publisher) mp4Key(name string) string { return destKey(p.Outputs.MP4.Path, name+".mp4") }

func (p *Publisher) fmp4Key(name string) string { return destKey(p.Outputs.FMP4.Path, "fmp4", name) }

// files returns the MP4 files of the outputs: those with everything in them, and
// the fragmented ones of one track each.
func (r *publishing) files() []growingFile {
	var files []growingFile
	streams := slices.Concat(r.video, r.audio)
	if r.Outputs.MP4 != nil {
		for _, streams := range mp4Files(r.video, r.audio) {
			name := streams[0].Name
			files = append(files, growingFile{
				key: r.mp4Key(name), state: fileState(r.state.MP4, name), streams: streams, render: cmaf.Progressive, grows: true,
			})
		}
	}
	if r.Outputs.FMP4 != nil {
		fragmented := fmp4Files(r.video, r.audio)
		for _, file := range slices.Concat(fragmented.Audio, fragmented.Video) {
			i := slices.IndexFunc(streams, func(s Stream) bool { return s.Name == file.Name })
			files = append(files, growingFile{
				key: r.fmp4Key(file.File()), state: fileState(r.state.FMP4, file.File()), streams: streams[i : i+1],
				render: func(indexes []cmaf.TrackIndex, _ int) (cmaf.Layout, error) { return cmaf.SingleFile(indexes[0]) },
			})
		}
	}
	return files
}

func fileState(states map[string]*FileState, name string) *FileState {
	if states[name] == nil {
		states[name] = &FileState{}
	}
	return states[name]
}

// mp4Files returns which streams are in each MP4 file: a rendition and the audio
// that plays unasked, or that audio alone.
func mp4Files(video, audio []Stream) (files [][]Stream) {
	first := audio[:min(1, len(audio))]
	for _, v := range video {
		files = append(files, append([]Stream{v}, first...))
	}
	if len(video) == 0 && len(audio) > 0 {
		files = append(files, first)
	}
	return files
}

// fmp4Files names the fragmented files of streams.
func fmp4Files(video, audio []Stream) cmaf.Files {
	files := func(kind cmaf.Kind, streams []Stream) (list []cmaf.TrackFile) {
		for i, s := range streams {
			list = append(list, cmaf.TrackFile{Name: s.Name, Number: cmaf.FileNumber(kind, i, len(video)), Index: s.Index})
		}
		return list
	}
	return cmaf.Files{Video: files(cmaf.Video, video), Audio: files(cmaf.Audio, audio)}
}

// finishFMP4 puts the playlists and the manifests over the fragmented files.
func (r *publishing) finishFMP4(ctx context.Context) error {
	files := fmp4Files(r.video, r.audio)
	for _, list := range [][]cmaf.TrackFile{files.Audio, files.Video} {
		for i := range list {
			layout, err := cmaf.SingleFile(list[i].Index)
			if err != nil {
				return err
			}
			list[i].Layout = layout
			if err := r.putText(ctx, r.fmp4Key(list[i].Playlist()), typePlaylist, list[i].Media().Text()); err != nil {
				return err
			}
		}
	}
	manifest, err := cmaf.DASH(files)
	if err != nil {
		return err
	}
	if err := r.putText(ctx, r.fmp4Key("index.mpd"), typeDASH, manifest); err != nil {
		return err
	}
	return r.putText(ctx, r.fmp4Key("master.m3u8"), typePlaylist, files.Master().Playlist().Text())
}
