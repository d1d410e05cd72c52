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

	// Sign signs a complete presentation before viewers see it; nil = it is not signed.
	Sign func(context.Context, *media.Presentation) error
}

// AssetState is the progress of an Asset.
type AssetState struct {
	Sealed       map[string]int     `json:"sealed,omitempty"` // segments in the index, by name of the stream
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
func (a *Asset) Publish(ctx context.Context, state *AssetState, video, audio []Stream) error {
	if slices.ContainsFunc(audio, Stream.incomplete) {
		return nil
	}
	next := media.Presentation{Duration: a.Duration, Complete: !slices.ContainsFunc(video, Stream.incomplete)}
	whole := slices.ContainsFunc(video, func(s Stream) bool { return s.Complete })
	begun := !slices.ContainsFunc(video, func(s Stream) bool { return len(s.Index.Segments) == 0 })
	if !whole && !begun || a.Sign != nil && !next.Complete {
		return nil
	}
	next.Signature = state.Presentation.Signature
	for _, s := range video {
		if s.Complete || !whole {
			if err := a.seal(ctx, state, s); err != nil {
				return err
			}
			next.Renditions = append(next.Renditions, a.rendition(s))
		}
	}
	for _, s := range audio {
		if err := a.seal(ctx, state, s); err != nil {
			return err
		}
		next.Audio = append(next.Audio, a.rendition(s))
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

// seal writes the index of a stream if it has grown.
func (a *Asset) seal(ctx context.Context, state *AssetState, s Stream) error {
	count, known := state.Sealed[s.Name]
	if known && count == len(s.Index.Segments) {
		return nil
	}
	if err := media.Seal(ctx, a.Store, s.Prefix, s.Index); err != nil {
		return err
	}
	if state.Sealed == nil {
		state.Sealed = map[string]int{}
	}
	state.Sealed[s.Name] = len(s.Index.Segments)
	return nil
}

func (a *Asset) rendition(s Stream) media.Rendition {
	r := media.Rendition{Name: s.Name, Dir: strings.TrimPrefix(s.Prefix, a.Prefix+"/"), Complete: s.Complete}
	if s.Complete {
		r.Bitrate = s.Index.AverageBitrate()
	}
	return r
}

// AddRenditions adds the new renditions of a recording to its presentation. They get its dates and its
// discontinuities. It can be repeated.
func (a *Asset) AddRenditions(ctx context.Context, video []Stream) (media.Presentation, error) {
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
		s := &video[i]
		if s.Name == media.RecordedVideo {
			continue
		}
		if len(s.Index.Segments) != len(segments) {
			return shown, weir.Errorf(weir.Internal, "internal error processing file: rendition %s has %d segments, the recording %d", s.Name, len(s.Index.Segments), len(segments))
		}
		for n := range segments {
			s.Index.Segments[n].Wall, s.Index.Segments[n].Discontinuity = segments[n].Wall, segments[n].Discontinuity
		}
		if err := media.Seal(ctx, a.Store, s.Prefix, s.Index); err != nil {
			return shown, err
		}
		shown.Renditions = slices.DeleteFunc(shown.Renditions, func(r media.Rendition) bool { return r.Name == s.Name })
		shown.Renditions = append(shown.Renditions, a.rendition(*s))
	}
	if a.Sign != nil {
		if err := a.Sign(ctx, &shown); err != nil {
			return shown, err
		}
	}
	return shown, media.SavePresentation(ctx, a.Store, a.Prefix, shown)
}
