package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"weir/internal/blob"
	"weir/internal/caption"
	"weir/internal/weir"
)

// textKey is the key of a track of text. Its name follows from its content, so an object never
// changes, and readers may keep what they have read.
func textKey(prefix, object string) string { return prefix + "/" + object }

// SaveText stores cues as a track of text below a prefix.
func SaveText(ctx context.Context, store blob.Store, prefix, trackID string, cues []caption.Cue) (weir.TrackFile, error) {
	text := caption.WebVTT(cues)
	sum := sha256.Sum256(text)
	f := weir.TrackFile{Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]), Cues: len(cues)}
	f.Object = fmt.Sprintf("text/%s/%s.vtt", trackID, f.SHA256[:16])
	options := blob.PutOptions{ContentType: "text/vtt; charset=utf-8"}
	return f, store.Put(ctx, textKey(prefix, f.Object), bytes.NewReader(text), f.Size, options)
}

// LoadText reads a track of text.
func LoadText(ctx context.Context, store blob.Store, prefix, object string) ([]caption.Cue, error) {
	body, _, err := store.Get(ctx, textKey(prefix, object), 0, -1)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	// What is written may be larger than what was read: times and escapes.
	text, err := io.ReadAll(io.LimitReader(body, maxText))
	if err != nil {
		return nil, err
	}
	cues, err := caption.ReadStored(text)
	if err != nil {
		return nil, fmt.Errorf("text %s: %w", object, err)
	}
	return cues, nil
}

const maxText = 8 * caption.MaxFile

// DeleteText deletes a track of text, which need not exist.
func DeleteText(ctx context.Context, store blob.Store, prefix, object string) error {
	if object == "" {
		return nil
	}
	return store.Delete(ctx, textKey(prefix, object))
}
