package media

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"weir/internal/blob"
	"weir/internal/caption"
	"weir/internal/cmaf"
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

// Text is a track of text of an MP4 file.
type Text struct {
	Name     string
	Language string // a tag of BCP 47
	Default  bool
	Cues     []caption.Cue
	Start    time.Duration // the time of the cues at which the file begins
}

// TextTracks returns texts as tracks of the MP4 file of other tracks, the default first. They end with
// the first of these.
func TextTracks(texts []Text, tracks []cmaf.TrackIndex) (list []cmaf.TextTrack) {
	if len(texts) == 0 {
		return nil
	}
	spans := cmaf.TextSpans(tracks)
	for _, text := range texts {
		at := len(list)
		if text.Default {
			at = 0
		}
		list = slices.Insert(list, at, text.track(spans))
	}
	return list
}

func (text Text) track(spans []cmaf.TextSpan) cmaf.TextTrack {
	t := cmaf.TextTrack{Name: text.Name, Language: text.Language, Default: text.Default, Entry: caption.TX3GEntry()}
	var cues []caption.Cue
	var length time.Duration
	for _, span := range spans {
		for _, c := range caption.Shift(text.Cues, text.Start+span.From, text.Start+span.To) {
			c.Start, c.End = c.Start+span.At, c.End+span.At
			cues = append(cues, c)
		}
		length = span.At + span.To - span.From
	}
	for _, c := range caption.Sequence(cues, length) {
		t.Samples = append(t.Samples, cmaf.TextSample{Duration: uint32((c.End - c.Start).Milliseconds()), Data: caption.AppendTX3G(nil, c)})
	}
	return t
}
