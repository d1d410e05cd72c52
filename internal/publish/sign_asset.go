package publish

import (
	"context"
	"slices"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/media"
	"weir/internal/weir"
)

// Ingredient is what something signed was made from.
type Ingredient = c2pa.Source

// NewIngredient describes a file in a format such as mp4, as ffprobe names it.
func NewIngredient(name, format string, manifest *SourceManifest) *Ingredient {
	return &Ingredient{Title: name, Format: mediaType("." + format), Manifest: manifest}
}

// NewStreamIngredient describes a session of which something is a recording or a clip. What its
// encoder got the media from is not known: a camera, a film or a program.
func NewStreamIngredient(session *weir.Session) *Ingredient {
	var by []string
	for _, protocol := range session.Received.Protocols {
		if by = append(by, strings.ToUpper(protocol)); protocol == "pull" {
			by[len(by)-1] = "a pull"
		}
	}
	description := "a live stream that weir received"
	if len(by) > 0 { // else it ended before somebody noted that
		description += " by " + strings.Join(by, " and ")
	}
	began := session.CreatedAt.Time()
	return &Ingredient{Title: session.Name, Opened: began, Description: description + " from " + began.UTC().Format(time.RFC3339)}
}

// Subject is what a presentation is signed as.
type Subject struct {
	Asset weir.Asset
	// Source is what it was made from; nil = as it was signed before.
	Source *Ingredient
	// Copied are the names of the tracks whose frames are those of the source.
	Copied []string
	// SHA256 is that of the source; "" = it is no file.
	SHA256 string
}

// RecordedTracks are the tracks of a recording or a clip that are not made by its ladder.
var RecordedTracks = []string{media.RecordedVideo, media.RecordedAudio}

// ReceivedTracks are the tracks of a recording whose frames are those of the encoder.
func ReceivedTracks(session *weir.Session) []string {
	if session.Received.Encoded {
		return []string{media.RecordedVideo}
	}
	return RecordedTracks
}

// Present signs a complete presentation of an asset, which the caller saves.
func (s *Signer) Present(ctx context.Context, store blob.Store, prefix string, p *media.Presentation, of Subject) (*media.Signature, error) {
	if s == nil {
		return nil, weir.Errorf(weir.Unavailable, "c2pa: this server has no key to sign with")
	}
	now := time.Now()
	return media.Sign(ctx, store, prefix, p, media.Signing{Signer: s.C2PA, Source: of.Source, Content: func(names []string) c2pa.Content {
		return c2pa.Content{
			Title: of.Asset.Name, Generator: "weir", Version: s.Version, When: now, Steps: of.steps(names),
			About: map[string]string{"assetId": of.Asset.ID, "creatorId": of.Asset.CreatorID.String(), "sourceSha256": of.SHA256},
		}
	}})
}

// steps returns what was done to make tracks.
func (of Subject) steps(names []string) (steps []c2pa.Step) {
	if of.Asset.Source.Type == weir.SourceClip {
		steps = append(steps, c2pa.Trimmed)
	}
	switch {
	case slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(of.Copied, name) }):
		steps = append(steps, c2pa.Transcoded)
	case len(steps) == 0:
		steps = append(steps, c2pa.Repackaged)
	}
	return steps
}
