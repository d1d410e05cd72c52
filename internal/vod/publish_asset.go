package vod

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"weir/internal/blob"
	"weir/internal/media"
)

// AssetPublisher makes the tracks of an asset playable where they are stored. A complete track is sealed;
// then the presentation lists it.
type AssetPublisher struct {
	Store    blob.Store
	Prefix   string  // of the asset and its tracks
	Duration float64 // seconds

	// Sign signs a complete presentation before viewers see it; nil = it is not signed.
	Sign func(context.Context, *media.Presentation) error
}

// AssetState is the progress of an AssetPublisher.
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
func (p *AssetPublisher) Publish(ctx context.Context, state *AssetState, video, audio []Stream) error {
	if slices.ContainsFunc(audio, Stream.incomplete) {
		return nil
	}
	next := media.Presentation{Duration: p.Duration, Complete: !slices.ContainsFunc(video, Stream.incomplete)}
	whole := slices.ContainsFunc(video, func(s Stream) bool { return s.Complete })
	begun := !slices.ContainsFunc(video, func(s Stream) bool { return len(s.Index.Segments) == 0 })
	if !whole && !begun || p.Sign != nil && !next.Complete {
		return nil
	}
	next.Signature = state.Presentation.Signature
	for _, s := range video {
		if s.Complete || !whole {
			if err := p.seal(ctx, state, s); err != nil {
				return err
			}
			next.Renditions = append(next.Renditions, p.rendition(s))
		}
	}
	for _, s := range audio {
		if err := p.seal(ctx, state, s); err != nil {
			return err
		}
		next.Audio = append(next.Audio, p.rendition(s))
	}
	if reflect.DeepEqual(state.Presentation, next) {
		return nil
	}
	if p.Sign != nil {
		if err := p.Sign(ctx, &next); err != nil {
			return err
		}
	}
	if err := media.SavePresentation(ctx, p.Store, p.Prefix, next); err != nil {
		return err
	}
	state.Presentation = next
	return nil
}

// seal writes the index of a stream if it has grown.
func (p *AssetPublisher) seal(ctx context.Context, state *AssetState, s Stream) error {
	count, known := state.Sealed[s.Name]
	if known && count == len(s.Index.Segments) {
		return nil
	}
	if err := media.Seal(ctx, p.Store, s.Prefix, s.Index); err != nil {
		return err
	}
	if state.Sealed == nil {
		state.Sealed = map[string]int{}
	}
	state.Sealed[s.Name] = len(s.Index.Segments)
	return nil
}

func (p *AssetPublisher) rendition(s Stream) media.Rendition {
	r := media.Rendition{Name: s.Name, Dir: strings.TrimPrefix(s.Prefix, p.Prefix+"/"), Complete: s.Complete}
	if s.Complete {
		r.Bitrate = s.Index.AverageBitrate()
	}
	return r
}
