package work

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"weir/internal/blob"
	"weir/internal/c2pa"
	"weir/internal/media"
	"weir/internal/weir"
)

// Signing signs what weir makes.
type Signing struct {
	Signer  *c2pa.Signer // nil = nothing can be signed
	Version string       // of weir
}

// errNoSigner is the error of a task that asked for a signature which nobody can make.
func errNoSigner() error {
	return weir.Errorf(weir.Unavailable, "c2pa: this server has no key to sign with")
}

// asset signs the presentation of an asset. source is what it was made from, nil for a recording and
// for what was signed before. copied are the tracks whose frames are those of the source.
func (s Signing) asset(
	ctx context.Context, store blob.Store, a weir.Asset, p *media.Presentation, source *c2pa.Source, copied []string,
) (*media.Signature, error) {
	if s.Signer == nil {
		return nil, errNoSigner()
	}
	now := time.Now()
	return media.Sign(ctx, store, assetFolder(a.ID), p, media.Signing{
		Signer: s.Signer, Source: source, Content: func(names []string) c2pa.Content { return s.content(a, names, copied, now) },
	})
}

// content returns what is said about tracks of an asset.
func (s Signing) content(a weir.Asset, names, copied []string, now time.Time) c2pa.Content {
	return c2pa.Content{
		Title: a.Name, Generator: "weir", Version: s.Version, When: now, Steps: steps(a, names, copied),
		About: map[string]string{"assetId": a.ID, "creatorId": a.CreatorID.String()},
	}
}

// recording signs a recording or a clip, and shows its presentation.
func (s Signing) recording(
	ctx context.Context, store blob.Store, a weir.Asset, kept *media.Recording, source *c2pa.Source, copied []string,
) (*media.Signature, error) {
	signature, err := s.asset(ctx, store, a, &kept.Presentation, source, copied)
	if err != nil {
		return nil, err
	}
	if kept.MP4Size > 0 {
		kept.MP4Size, _ = signature.MP4Size(mainTrack(kept.Presentation))
	}
	return signature, media.SavePresentation(ctx, store, assetFolder(a.ID), kept.Presentation)
}

// mainTrack returns the name of the track of a recording that is nearest to the source.
func mainTrack(p media.Presentation) string {
	if len(p.Renditions) > 0 {
		return p.Renditions[0].Name
	}
	return p.Audio[0].Name
}

// steps returns what was done to make tracks of an asset.
func steps(a weir.Asset, names, copied []string) (steps []c2pa.Step) {
	if a.Source.Type == weir.SourceClip {
		steps = append(steps, c2pa.Trimmed)
	}
	switch {
	case slices.ContainsFunc(names, func(name string) bool { return !slices.Contains(copied, name) }):
		steps = append(steps, c2pa.Transcoded)
	case len(steps) == 0 && a.Source.Type != weir.SourceRecording:
		steps = append(steps, c2pa.Repackaged)
	}
	return steps
}

// signedFiles returns a list of files with the sizes that they have with a signature.
func signedFiles(files []weir.File, s *media.Signature) (signed []weir.File) {
	if s == nil {
		return files
	}
	for _, f := range files {
		if f.Type == "static_transcoded_mp4" {
			size, ok := s.MP4Size(strings.TrimSuffix(f.Path, ".mp4"))
			if !ok {
				continue
			}
			f.Size = size
		}
		signed = append(signed, f)
	}
	return signed
}

// provenance returns who signed; nil = nobody.
func provenance(s *media.Signature) *weir.Provenance {
	if s == nil {
		return nil
	}
	return &s.Provenance
}

// sourceManifest returns the manifest of a source file; nil = it has none.
func sourceManifest(name string) (*c2pa.SourceManifest, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	return c2pa.ReadSource(file, info.Size(), c2pa.Options{Now: time.Now()})
}

// formatType returns the media type of the format of a source; "" = it has none that is known.
func formatType(format string) string {
	switch format {
	case "mp4":
		return "video/mp4"
	case "mov":
		return "video/quicktime"
	case "webm":
		return "video/webm"
	case "matroska":
		return "video/x-matroska"
	case "mpegts":
		return "video/mp2t"
	}
	return ""
}
