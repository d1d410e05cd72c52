package api

import (
	"cmp"
	"context"
	"net/http"
	"reflect"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// pullTimeout is how long a request waits for a source to play.
const pullTimeout = time.Minute

// startPull answers POST /stream/{id}/start-pull, when the source plays or has failed.
func (s *server) startPull(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	var wanted store.Pulling
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		check := func(_ *store.Tx, stream *weir.Stream) error { return checkPull(stream) }
		if _, err := changeTx(tx, r, r.PathValue("id"), (*store.Tx).UpdateStream, check); err != nil {
			return err
		}
		var err error
		wanted, err = tx.StartPull(ctx, r.PathValue("id"), false, time.Now())
		return err
	})
	if err != nil {
		return err
	}
	return noContent(w, s.awaitPull(ctx, wanted))
}

// checkPull returns an error if the settings of a stream do not allow to pull it.
func checkPull(stream *weir.Stream) error {
	switch {
	case stream.Pull == nil:
		return weir.Errorf(weir.Refused, "stream does not have a pull source")
	case stream.Suspended:
		return weir.Errorf(weir.Refused, "the stream is suspended; set suspended to false first")
	}
	return stream.Pull.Check()
}

// putPull answers PUT /stream/pull: it creates a stream, or replaces the one with the same key, and
// pulls it.
func (s *server) putPull(w http.ResponseWriter, r *request, body weir.NewStream) error {
	if body.Pull == nil {
		return weir.Errorf(weir.Refused, "stream pull configuration is required")
	}
	key := cmp.Or(r.URL.Query().Get("key"), "pull.source")
	value := map[string]string{"pull.source": body.Pull.Source, "creatorId": body.CreatorID.String()}[key]
	if value == "" {
		return weir.Errorf(weir.Refused, "key must be one of creatorId,pull.source and must be present in the payload")
	}
	return s.pull(w, r, body, key, value, true)
}

// createAndPull answers POST /stream?autoStartPull=true: it creates a stream unless there is one
// with the same source, and pulls it.
func (s *server) createAndPull(w http.ResponseWriter, r *request, body weir.NewStream) error {
	if body.Pull == nil {
		return weir.Errorf(weir.Refused, "autoStartPull requires pull configuration to be present")
	}
	return s.pull(w, r, body, "pull.source", body.Pull.Source, false)
}

// pull pulls the caller's stream with the key, or a new one.
func (s *server) pull(w http.ResponseWriter, r *request, body weir.NewStream, key, value string, replace bool) error {
	ctx, now := r.Context(), time.Now()
	var stream weir.Stream
	var wanted store.Pulling
	status := http.StatusOK
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.LockSources(ctx); err != nil {
			return err
		}
		same, err := tx.Streams(ctx, store.Query{
			UserID: r.caller.UserID, ProjectID: r.caller.ProjectID, Where: []store.Filter{{ID: key, Value: value}}, Limit: 1, Count: true,
		})
		restart := false
		switch {
		case err != nil:
			return err
		case same.Total > 1:
			return weir.Errorf(weir.Refused, "%s must be unique, found %d streams with same source", key, same.Total)
		case same.Total == 0:
			status = http.StatusCreated
			stream, err = makeStream(ctx, tx, r.caller, body, now)
		default:
			stream, err = tx.UpdateStream(ctx, same.Items[0].ID, func(stream *weir.Stream) error {
				if !replace {
					return nil
				}
				before := *stream
				invalid := body.Replace(stream, r.caller, now)
				restart = !reflect.DeepEqual(before.Pull, stream.Pull)
				return checkStream(ctx, tx, body, &before, stream, invalid, now)
			})
		}
		if err != nil {
			return err
		}
		if err := checkPull(&stream); err != nil {
			return err
		}
		wanted, err = tx.StartPull(ctx, stream.ID, restart, now)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.awaitPull(ctx, wanted); err != nil {
		return err
	}
	if stream, err = s.Store.Stream(ctx, stream.ID); err != nil {
		return err
	}
	return writeJSON(w, status, showStream(stream))
}

// awaitPull waits until a pull plays. It ends a pull that fails before that, so that the caller,
// who gets the error, knows that nothing runs.
func (s *server) awaitPull(ctx context.Context, wanted store.Pulling) error {
	changes, stop := s.Store.Watch(store.TopicPull)
	defer stop()
	timeout := time.NewTimer(pullTimeout)
	defer timeout.Stop()
	for {
		now, err := s.Store.PullOf(ctx, wanted.StreamID)
		switch {
		case err != nil:
			return err
		case now.Plays:
			return nil
		case now.Failures > 0:
			return s.withdrawPull(ctx, now, weir.Errorf(weir.Invalid, "%s", now.Issue))
		case !now.Wanted:
			return weir.Errorf(weir.Invalid, "the pull was stopped before the source sent media")
		}
		select {
		case <-changes:
		case <-s.Stopping:
			return weir.Errorf(weir.Busy, "this server is shutting down; send the request again")
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return s.withdrawPull(ctx, now, weir.Errorf(weir.Invalid, "the source sent no media within %d seconds; check that it is on air", int(pullTimeout.Seconds())))
		}
	}
}

// withdrawPull ends a pull and returns why.
func (s *server) withdrawPull(ctx context.Context, p store.Pulling, why error) error {
	err := s.Store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := tx.LockStream(ctx, p.StreamID); err != nil {
			return err
		}
		return tx.StopPull(ctx, p.StreamID, p.Request)
	})
	if err != nil {
		return err
	}
	return why
}
