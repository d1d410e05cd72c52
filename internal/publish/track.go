package publish

import (
	"time"

	"weir/internal/cmaf"
)

// Track is a track of a result, as far as it is stored without gaps from the start.
type Track struct {
	Name     string          // of the rendition, or audio<k>; also the name of its folder in outputs
	Prefix   string          // of its segments in the store
	Index    cmaf.TrackIndex // of these segments
	Complete bool            // nothing will be added
	FPS      float64         // frames a second on average; 0 = not known

	// Upper bounds of the complete track.
	Samples int
	Length  time.Duration
}

func (t Track) incomplete() bool { return !t.Complete }
