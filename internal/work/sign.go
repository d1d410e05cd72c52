package work

import (
	"context"
	"strings"

	"weir/internal/blob"
	"weir/internal/media"
	"weir/internal/publish"
	"weir/internal/weir"
)

// signs reports whether what a task makes of a source is signed.
func signs(t weir.Task) bool {
	return t.Params.Transcode != nil && t.Params.Transcode.C2PA || t.Params.Upload != nil && t.Params.Upload.C2PA
}

// signRecording signs a recording or a clip, and shows its presentation.
func signRecording(ctx context.Context, store blob.Store, signer *publish.Signer, kept *media.Recording, of publish.Subject) (*media.Signature, error) {
	p, prefix := &kept.Presentation, media.AssetFolder(of.Asset.ID)
	signature, err := signer.Present(ctx, store, prefix, p, of)
	if err != nil {
		return nil, err
	}
	if kept.MP4Size > 0 {
		main := p.Audio
		if len(p.Renditions) > 0 {
			main = p.Renditions
		}
		kept.MP4Size, _ = signature.MP4Size(main[0].Name)
	}
	return signature, media.SavePresentation(ctx, store, prefix, *p)
}

// recordingOf returns the recording of a session as it is signed.
func recordingOf(a weir.Asset, session *weir.Session) publish.Subject {
	return publish.Subject{Asset: a, Source: publish.NewStreamIngredient(session), Copied: publish.ReceivedTracks(session)}
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
