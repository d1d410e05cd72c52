package api

import (
	"net/http"
	"time"

	"weir/internal/weir"
)

// shownHealth is how far back the health of a stream is shown by default.
const shownHealth = time.Hour

// getStreamHealth answers GET /stream/{id}/health.
func (s *server) getStreamHealth(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	stream, err := get(r, s.Store.Stream, r.PathValue("id"))
	if err != nil {
		return err
	}
	from, to, err := span(r.URL.Query())
	if err != nil {
		return err
	}
	if from == 0 {
		end := time.Now()
		if to != 0 {
			end = to.Time()
		}
		from = weir.At(end.Add(-shownHealth))
	}
	response := weir.Health{IsHealthy: stream.IsHealthy, Issues: []string{}, Multistream: []weir.TargetHealth{}, Samples: []weir.HealthSample{}}
	response.Issues = append(response.Issues, stream.Issues...)
	samples, err := s.Store.HealthSamples(ctx, stream.ID, from, to)
	if err != nil {
		return err
	}
	response.Samples = append(response.Samples, samples...)
	targets, err := s.Store.TargetHealth(ctx, stream.ID)
	if err != nil {
		return err
	}
	response.Multistream = append(response.Multistream, targets...)
	return writeJSON(w, http.StatusOK, response)
}
