package playback

import (
	"time"

	"weir/internal/weir"
)

// keepPoster lets caches keep a poster for about half the time until there is a new one.
const keepPoster = "public, max-age=2"

// livePoster answers with the current poster of a stream.
func (s *Server) livePoster(w *answer, v *visit) error {
	start := time.Now()
	image, err := v.broadcast.Poster(v.Context())
	if err == nil {
		err = s.enterAgain(v, start)
	}
	if err != nil {
		return err
	}
	return cached(w, v, typeJPEG, keepPoster, image)
}

// orLastPoster answers with the last poster of a stream that is not live.
func (s *Server) orLastPoster(answered func(*answer, *visit) error) func(*answer, *visit) error {
	return func(w *answer, v *visit) error {
		err := answered(w, v)
		if weir.KindOf(err) != weir.NotFound || s.Live == nil {
			return err
		}
		image, lastErr := s.Live.LastPoster(v.title.streamID)
		if weir.KindOf(lastErr) == weir.NotFound {
			return err
		}
		if lastErr != nil {
			return lastErr
		}
		return cached(w, v, typeJPEG, keepPoster, image)
	}
}
