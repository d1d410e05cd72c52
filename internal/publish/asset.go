package publish

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/weir"
)

// Asset makes the tracks of an asset playable where they are stored. A complete track is sealed;
// then the presentation lists it.
type Asset struct {
	Store    blob.Store
	Prefix   string  // of the asset and its tracks
	Duration float64 // seconds
	Captions []int   // see media.Presentation

	// Sign signs a complete presentation before viewers see it; nil = it is not signed.
	Sign func(context.Context, *media.Presentation) error
}

// AssetState is the progress of an Asset.
type AssetState struct {
	Sealed       map[string]int     `json:"sealed,omitempty"` // segments in the index, by name of the track
	Presentation media.Presentation `json:"presentation"`
}

// Playable reports whether viewers can play something.
func (s *AssetState) Playable() bool {
	return len(s.Presentation.Renditions)+len(s.Presentation.Audio) > 0
}

// Publish shows new segments to viewers. Players never look again for other tracks, so nothing is shown
// before all audio is complete and all renditions have begun or one is complete. If the source is copied,
// the presentation has only complete renditions; otherwise all renditions grow together, so that viewers
// need not wait for the last chunk. What is signed is shown when all of it is complete.
func (a *Asset) Publish(ctx context.Context, state *AssetState, video, audio []Track) error {
	if slices.ContainsFunc(audio, Track.incomplete) {
		return nil
	}
	next := media.Presentation{Duration: a.Duration, Captions: a.Captions, Complete: !slices.ContainsFunc(video, Track.incomplete)}
	whole := slices.ContainsFunc(video, func(t Track) bool { return t.Complete })
	begun := !slices.ContainsFunc(video, func(t Track) bool { return len(t.Index.Segments) == 0 })
	if !whole && !begun || a.Sign != nil && !next.Complete {
		return nil
	}
	next.Signature = state.Presentation.Signature
	for _, t := range video {
		if t.Complete || !whole {
			if err := a.seal(ctx, state, t); err != nil {
				return err
			}
			next.Renditions = append(next.Renditions, a.rendition(t))
		}
	}
	for _, t := range audio {
		if err := a.seal(ctx, state, t); err != nil {
			return err
		}
		next.Audio = append(next.Audio, a.rendition(t))
	}
	if reflect.DeepEqual(state.Presentation, next) {
		return nil
	}
	if a.Sign != nil {
		if err := a.Sign(ctx, &next); err != nil {
			return err
		}
	}
	if err := media.SavePresentation(ctx, a.Store, a.Prefix, next); err != nil {
		return err
	}
	state.Presentation = next
	return nil
}

// seal writes the index of a track if it has grown.
func (a *Asset) seal(ctx context.Context, state *AssetState, t Track) error {
	count, known := state.Sealed[t.Name]
	if known && count == len(t.Index.Segments) {
		return nil
	}
	if err := media.Seal(ctx, a.Store, t.Prefix, t.Index); err != nil {
		return err
	}
	if state.Sealed == nil {
		state.Sealed = map[string]int{}
	}
	state.Sealed[t.Name] = len(t.Index.Segments)
	return nil
}

func (a *Asset) rendition(t Track) media.Rendition {
	r := media.Rendition{Name: t.Name, Dir: strings.TrimPrefix(t.Prefix, a.Prefix+"/"), Complete: t.Complete}
	if t.Complete {
		r.Bitrate = t.Index.AverageBitrate()
	}
	return r
}

// AddRenditions adds the new renditions of a recording to its presentation. They get its dates and its
// discontinuities. It can be repeated.
func (a *Asset) AddRenditions(ctx context.Context, video []Track) (media.Presentation, error) {
	shown, err := media.LoadPresentation(ctx, a.Store, a.Prefix)
	if err != nil {
		return shown, err
	}
	source, err := media.Open(ctx, a.Store, a.Prefix+"/"+media.RecordedVideo)
	if err != nil {
		return shown, err
	}
	segments := source.Index().Segments
	for i := range video {
		t := &video[i]
		if t.Name == media.RecordedVideo {
			continue
		}
		if len(t.Index.Segments) != len(segments) {
			return shown, weir.Errorf(weir.Internal, "internal error processing file: rendition %s has %d segments, the recording %d", t.Name, len(t.Index.Segments), len(segments))
		}
		for n := range segments {
			t.Index.Segments[n].Wall, t.Index.Segments[n].Discontinuity = segments[n].Wall, segments[n].Discontinuity
		}
		if err := media.Seal(ctx, a.Store, t.Prefix, t.Index); err != nil {
			return shown, err
		}
		shown.Renditions = slices.DeleteFunc(shown.Renditions, func(r media.Rendition) bool { return r.Name == t.Name })
		shown.Renditions = append(shown.Renditions, a.rendition(*t))
	}
	if a.Sign != nil {
		if err := a.Sign(ctx, &shown); err != nil {
			return shown, err
		}
	}
	return shown, media.SavePresentation(ctx, a.Store, a.Prefix, shown)
}
