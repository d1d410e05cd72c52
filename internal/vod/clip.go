package vod

import (
	"context"
	"time"

	"weir/internal/media"
)

// ClipSource has the tracks that a clip is cut from. They share a timeline.
type ClipSource struct {
	Video *media.Track // nil = there is none
	Audio []*media.Track
}

// ClipOptions select a clip.
type ClipOptions struct {
	Prefix     string        // of the clip's tracks in the store
	Start, End time.Duration // on the timeline of the source
	Dir        string        // for temporary files
	Progress   func(share float64)
}

// ClipResult describes a clip that can be played.
type ClipResult struct {
	Recording media.Recording

	Encoded int    // frames of video
	Copied  int    // frames of video
	Whole   string // why all frames were encoded; "" = only those at the edges were
}

// Clip cuts a clip: it copies the frames and encodes only those before the first and after the last key
// frame. It can be repeated.
func (e Engine) Clip(ctx context.Context, source ClipSource, o ClipOptions) (ClipResult, error) {
	panic("not written yet")
}
