package media

import (
	"cmp"
	"context"
	"path"
	"strings"

	"weir/internal/blob"
	"weir/internal/cmaf"
	"weir/internal/weir"
)

// The recorded tracks of a broadcast; also the names of their folders.
const (
	RecordedVideo = weir.SourceProfile
	RecordedAudio = "audio"
)

// Recording describes the asset of a recorded broadcast.
type Recording struct {
	Presentation Presentation
	Spec         weir.VideoSpec
	MP4Size      int64  // 0 = it can't be one MP4 file
	NoMP4        string // why not, for people
	Width        int
	Height       int
}

// KeepRecording makes a presentation in a store from the tracks recorded in folders, one for each period
// of the broadcast, even after a crash. Nothing is encoded. It can be interrupted and repeated. An error
// of kind weir.NotFound means that nothing was recorded.
func KeepRecording(ctx context.Context, store blob.Store, prefix string, dirs ...string) (Recording, error) {
	return presentRecording(ctx, store, prefix, func(name string) (*Track, error) { return keepTrack(ctx, store, prefix, name, dirs) })
}

// KeptRecording returns the recording that KeepRecording made from folders that do not exist any
// more. An error of kind weir.NotFound means that it did not get to its end.
func KeptRecording(ctx context.Context, store blob.Store, prefix string) (Recording, error) {
	if _, err := LoadPresentation(ctx, store, prefix); err != nil {
		return Recording{}, err
	}
	return presentRecording(ctx, store, prefix, func(name string) (*Track, error) { return Open(ctx, store, prefix+"/"+name) })
}

// presentRecording writes the presentation of the recorded tracks.
func presentRecording(ctx context.Context, store blob.Store, prefix string, open func(name string) (*Track, error)) (Recording, error) {
	var tracks []*Track
	for _, name := range []string{RecordedVideo, RecordedAudio} {
		track, err := open(name)
		if weir.KindOf(err) == weir.NotFound {
			continue
		}
		if err != nil {
			return Recording{}, err
		}
		tracks = append(tracks, track)
	}
	r, err := Present(ctx, store, prefix, tracks)
	if err != nil {
		return Recording{}, err
	}
	return r, store.DeletePrefix(ctx, prefix+"/"+periodsFolder)
}

// Present makes a complete presentation of sealed tracks, which are in folders of the prefix.
func Present(ctx context.Context, store blob.Store, prefix string, tracks []*Track) (Recording, error) {
	var indexes []cmaf.TrackIndex
	r := Recording{Presentation: Presentation{Complete: true}}
	for _, track := range tracks {
		index, name := track.Index(), path.Base(track.Prefix())
		indexes = append(indexes, index)
		rendition := Rendition{Name: name, Dir: name, Bitrate: index.AverageBitrate(), Complete: true}
		if index.Track.Kind == cmaf.Video {
			r.Presentation.Renditions = append(r.Presentation.Renditions, rendition)
			r.Width, r.Height = index.Track.Width, index.Track.Height
		} else {
			r.Presentation.Audio = append(r.Presentation.Audio, rendition)
		}
	}
	if len(indexes) == 0 {
		return Recording{}, weir.Errorf(weir.NotFound, "nothing was recorded")
	}
	r.Presentation.Duration = cmaf.Played(indexes).Seconds()
	layout, err := cmaf.Progressive(indexes, nil, 0)
	switch {
	case err == nil:
		r.MP4Size = layout.Size
	case weir.KindOf(err) == weir.Invalid:
		r.NoMP4 = err.Error()
	default:
		return Recording{}, err
	}
	r.Spec = specOf(indexes, r.Presentation.Duration)
	return r, SavePresentation(ctx, store, prefix, r.Presentation)
}

// specOf describes tracks like the source of an asset in the API.
func specOf(tracks []cmaf.TrackIndex, seconds float64) weir.VideoSpec {
	spec := weir.VideoSpec{Format: "mp4", Duration: seconds}
	for _, index := range tracks {
		t := weir.Track{
			Type: string(index.Track.Kind), Codec: codecName(index.Track.Codec), Duration: cmaf.Played([]cmaf.TrackIndex{index}).Seconds(),
			Bitrate: float64(index.AverageBitrate()), Width: index.Track.Width, Height: index.Track.Height,
			Channels: index.Track.Channels, SampleRate: index.Track.SampleRate,
		}
		if index.Track.Kind == cmaf.Video {
			t.FPS = index.FrameRate()
		}
		spec.Tracks = append(spec.Tracks, t)
		spec.Bitrate += t.Bitrate
	}
	return spec
}

// codecName returns the usual name of a codec, not that of playlists.
func codecName(codec string) string {
	letters, _, _ := strings.Cut(codec, ".")
	switch letters {
	case "avc1":
		return "h264"
	case "hvc1", "hev1":
		return "hevc"
	case "av01":
		return "av1"
	case "mp4a":
		return "aac"
	}
	return letters
}

// RecordingFile returns a recording as one MP4 file, with its signature if it has one.
func RecordingFile(ctx context.Context, store blob.Store, prefix string) (*File, error) {
	p, err := LoadPresentation(ctx, store, prefix)
	if err != nil {
		return nil, err
	}
	var tracks []*Track
	var main string
	for _, list := range [][]Rendition{p.Renditions[:min(1, len(p.Renditions))], p.Audio} {
		for _, r := range list {
			track, err := Open(ctx, store, prefix+"/"+r.Dir)
			if err != nil {
				return nil, err
			}
			tracks, main = append(tracks, track), cmp.Or(main, r.Name)
		}
	}
	signature, err := LoadSignature(ctx, store, prefix, p)
	if err != nil {
		return nil, err
	}
	if signature != nil {
		return signature.MP4(main, tracks)
	}
	return Progressive(tracks, nil)
}
