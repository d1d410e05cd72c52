package vod

import (
	"context"
	"slices"
	"strings"

	"weir/internal/blob"
	"weir/internal/media"
)

// AssetPublisher makes the tracks of an asset playable where they lie: nothing is
// rendered and nothing is moved. A track is sealed when it is complete; then the
// presentation names it.
type AssetPublisher struct {
	Store    blob.Store
	Prefix   string  // of the asset; its tracks lie below
	Duration float64 // seconds
}

// AssetState is what an AssetPublisher did so far. Its zero value is nothing.
type AssetState struct {
	Sealed       map[string]int     `json:"sealed,omitempty"` // segments in the index, by name of the stream
	Presentation media.Presentation `json:"presentation"`
}

// Playable reports whether a viewer finds something to play.
func (s *AssetState) Playable() bool {
	return len(s.Presentation.Renditions)+len(s.Presentation.Audio) > 0
}

// Publish lets viewers see what is new. Players that come early stay with what they find,
// so nothing is shown before all of the audio is complete and there is something of the
// picture. Where the source passes through, the presentation has only whole renditions;
// otherwise all renditions grow together, so that viewers need not wait for the last chunk.
func (p *AssetPublisher) Publish(ctx context.Context, state *AssetState, video, audio []Stream) error {
	if slices.ContainsFunc(audio, Stream.incomplete) {
		return nil
	}
	next := media.Presentation{Duration: p.Duration, Complete: !slices.ContainsFunc(video, Stream.incomplete)}
	whole := slices.ContainsFunc(video, func(s Stream) bool { return s.Complete })
	begun := !slices.ContainsFunc(video, func(s Stream) bool { return len(s.Index.Segments) == 0 })
	if !whole && !begun {
		return nil
	}
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
	if samePresentation(state.Presentation, next) {
		return nil
	}
	if err := media.SavePresentation(ctx, p.Store, p.Prefix, next); err != nil {
		return err
	}
	state.Presentation = next
	return nil
}

// seal writes the index of a stream when it has grown.
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

func samePresentation(a, b media.Presentation) bool {
	return a.Duration == b.Duration && a.Complete == b.Complete && slices.Equal(a.Renditions, b.Renditions) && slices.Equal(a.Audio, b.Audio)
}
