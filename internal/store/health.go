package store

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"weir/internal/weir"
)

// maxSamples is the maximum number of samples in one response: almost three hours.
const maxSamples = 1000

// HealthSamples returns the samples of a stream in a range of time, the oldest first; the newest
// ones if there are more than maxSamples. to = 0 means no end.
func (q *queries) HealthSamples(ctx context.Context, streamID string, from, to weir.Millis) ([]weir.HealthSample, error) {
	b := &builder{}
	b.and("stream_id = %s", streamID)
	b.span("at", from, to)
	samples, err := many(ctx, q.conn, scanSample, "SELECT sample FROM health"+b.where()+" ORDER BY at DESC LIMIT "+strconv.Itoa(maxSamples), b.args...)
	slices.Reverse(samples)
	return samples, err
}

func scanSample(r rows) (s weir.HealthSample, err error) {
	var text string
	if err := r.Scan(&text); err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

// samples are the health samples that one transaction writes.
type samples struct {
	rows []string
	b    builder
}

func (s *samples) add(streamID string, all []weir.HealthSample) error {
	for _, sample := range all {
		text, err := json.Marshal(sample)
		if err != nil {
			return err
		}
		s.rows = append(s.rows, s.b.bind("(%s, %s, %s)", streamID, int64(sample.Time), string(text)))
	}
	return nil
}

// save writes the samples that are not stored yet.
func (s *samples) save(ctx context.Context, tx *Tx) error {
	if len(s.rows) == 0 {
		return nil
	}
	_, err := tx.conn.exec(ctx, "INSERT INTO health (stream_id, at, sample) VALUES "+strings.Join(s.rows, ", ")+" ON CONFLICT DO NOTHING", s.b.args...)
	return err
}
