package work

import (
	"context"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// legPatience is how long after the end of a session the recording waits for a node that
// carried a part of it and is gone.
const legPatience = time.Hour

// earlier returns the folders of the earlier legs of a session, "" for one whose files
// can't be had.
func (r *Recordings) earlier(ctx context.Context, session weir.Session) ([]string, error) {
	dirs := make([]string, len(session.Earlier))
	for leg, of := range session.Earlier {
		if of.Lost {
			continue
		}
		dir, err := r.Leg(ctx, session, leg)
		switch {
		case err == nil:
			dirs[leg] = dir
		case weir.KindOf(err) == weir.NotFound: // nothing had come
		case ctx.Err() != nil || time.Since(session.LastSeen.Time()) < legPatience:
			return nil, err
		default:
			r.Log.ErrorContext(ctx, "a recording is made without what a node has that is gone", "session", session.ID, "node", of.Node, "err", err)
			if err := r.lose(ctx, session.ID, leg); err != nil {
				return nil, err
			}
		}
	}
	return dirs, nil
}

// lose notes that a recording is made without a leg.
func (r *Recordings) lose(ctx context.Context, sessionID string, leg int) error {
	return r.Store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateSession(ctx, sessionID, func(s *weir.Session) error {
			s.Earlier[leg].Lost = true
			return nil
		})
		return err
	})
}
