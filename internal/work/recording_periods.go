package work

import (
	"context"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// periodTimeout is how long after the end of a session its recording waits for a node that has an
// earlier period of it and does not answer.
const periodTimeout = time.Hour

// earlier returns the folders of the earlier periods of a session, "" for one without files.
func (r *Recordings) earlier(ctx context.Context, session weir.Session) ([]string, error) {
	dirs := make([]string, len(session.Earlier))
	for period, of := range session.Earlier {
		if of.Lost {
			continue
		}
		dir, err := r.Period(ctx, session, period)
		switch {
		case err == nil:
			dirs[period] = dir
		case weir.KindOf(err) == weir.NotFound: // nothing was received
		case ctx.Err() != nil || time.Since(session.LastSeen.Time()) < periodTimeout:
			return nil, err
		default:
			r.Log.ErrorContext(ctx, "a recording is made without what a node has that is gone", "session", session.ID, "node", of.Node, "err", err)
			if err := r.lose(ctx, session.ID, period); err != nil {
				return nil, err
			}
		}
	}
	return dirs, nil
}

// lose notes that a recording is made without a period.
func (r *Recordings) lose(ctx context.Context, sessionID string, period int) error {
	return r.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateSession(ctx, sessionID, func(s *weir.Session) error {
			s.Earlier[period].Lost = true
			return nil
		})
		return err
	})
}
