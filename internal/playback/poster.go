package playback

import (
	"time"

	"weir/internal/weir"
)

// keepPoster is how long others may keep a picture of a stream: half as long as until there
// is another one, about.
const keepPoster = "public, max-age=2"

// livePoster answers with a picture of what is on air.
func (s *Server) livePoster(w *answer, v *visit) error {
	start := time.Now()
	picture, err := v.broadcast.Poster(v.Context())
	if err != nil {
		return err
	}
	if time.Since(start) > fresh && !v.node {
		if err := s.enter(v); err != nil { // much can have happened meanwhile
			return err
		}
	}
	return cached(w, v, typeJPEG, keepPoster, picture)
}

// orLastPoster answers with the last picture of a stream of which there is no other.
func (s *Server) orLastPoster(answered func(*answer, *visit) error) func(*answer, *visit) error {
	return func(w *answer, v *visit) error {
		err := answered(w, v)
		if weir.KindOf(err) != weir.NotFound || s.Live == nil {
			return err
		}
		picture, lastErr := s.Live.LastPoster(v.title.streamID)
		if weir.KindOf(lastErr) == weir.NotFound {
			return err
		}
		if lastErr != nil {
			return lastErr
		}
		return cached(w, v, typeJPEG, keepPoster, picture)
	}
}
