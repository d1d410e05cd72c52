package media

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"weir/internal/blob"
)

// Presentation lists the tracks of one video: its renditions and its audio.
type Presentation struct {
	Renditions []Rendition `json:"renditions,omitempty"`
	Audio      []Rendition `json:"audio,omitempty"`
	Duration   float64     `json:"duration"` // seconds
	Complete   bool        `json:"complete"` // nothing will be added
	// Captions are the channels of closed captions in the frames, see cmaf.Master.
	Captions []int `json:"captions,omitzero"`
	// Signature names the object that has the Signature of all tracks; "" = they are not signed.
	Signature string `json:"signature,omitempty"`
}

// Rendition is a track of a presentation.
type Rendition struct {
	Name     string `json:"name"` // for viewers
	Dir      string `json:"dir"`  // of the track, below the prefix of the presentation
	Bitrate  int    `json:"bitrate,omitempty"`
	Complete bool   `json:"complete"` // its track is sealed
}

const maxPresentation = 1 << 20

func presentationKey(prefix string) string { return prefix + "/presentation.json" }

// LoadPresentation reads the presentation under a prefix.
func LoadPresentation(ctx context.Context, store blob.Store, prefix string) (Presentation, error) {
	body, _, err := store.Get(ctx, presentationKey(prefix), 0, -1)
	if err != nil {
		return Presentation{}, err
	}
	defer body.Close()
	var p Presentation
	if err := json.NewDecoder(io.LimitReader(body, maxPresentation)).Decode(&p); err != nil {
		return Presentation{}, fmt.Errorf("presentation of %s: %w", prefix, err)
	}
	return p, nil
}

// SavePresentation replaces the presentation under a prefix.
func SavePresentation(ctx context.Context, store blob.Store, prefix string, p Presentation) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return store.Put(ctx, presentationKey(prefix), bytes.NewReader(data), int64(len(data)), blob.PutOptions{ContentType: "application/json", CacheControl: "no-cache"})
}
