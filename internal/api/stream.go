package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// streamAnswer is a stream as its owner sees it.
type streamAnswer struct {
	weir.Stream
	StreamKey string     `json:"streamKey"`
	Pull      *weir.Pull `json:"pull,omitempty"`
}

func showStream(s weir.Stream) streamAnswer {
	return streamAnswer{Stream: s, StreamKey: s.StreamKey.Reveal(), Pull: s.Pull}
}

// stream returns a stream that the caller may see.
func (s *server) stream(r *request, id string) (weir.Stream, error) {
	return ownStream(r)(s.Store.Stream(r.Context(), id))
}

// ownStream turns what the caller may not see into what does not exist.
func ownStream(r *request) func(weir.Stream, error) (weir.Stream, error) {
	return func(st weir.Stream, err error) (weir.Stream, error) {
		if err == nil && (st.Deleted && !r.caller.Admin || !r.caller.Owns(st.UserID, st.ProjectID)) {
			err = weir.ErrNotFound()
		}
		return st, err
	}
}

// createStream answers POST /stream.
func (s *server) createStream(w http.ResponseWriter, r *request) error {
	var body weir.NewStream
	if err := r.decode(&body); err != nil {
		return err
	}
	if isSet(r.URL.Query(), "autoStartPull") {
		return s.createAndPull(w, r, body)
	}
	ctx := r.Context()
	var stream weir.Stream
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		stream, err = makeStream(ctx, tx, r.caller, body, time.Now())
		return err
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, showStream(stream))
}

// makeStream writes the stream that a body asks for.
func makeStream(ctx context.Context, tx *store.Tx, caller *weir.Caller, body weir.NewStream, now time.Time) (weir.Stream, error) {
	stream, invalid := body.Stream(caller, now)
	if err := checkStream(ctx, tx, caller, body, &stream, invalid, now); err != nil {
		return stream, err
	}
	return stream, tx.CreateStream(ctx, &stream)
}

// checkStream checks what only the store knows, in the order of the contract, and makes
// the targets of a stream. invalid is what is wrong with it by itself.
func checkStream(ctx context.Context, tx *store.Tx, caller *weir.Caller, body weir.NewStream, stream *weir.Stream, invalid error, now time.Time) error {
	if err := checkObjectStore(ctx, tx, caller, body.ObjectStoreID); err != nil {
		return err
	}
	if invalid != nil {
		return invalid
	}
	if err := checkPolicyWebhook(ctx, tx, caller, stream.PlaybackPolicy); err != nil {
		return err
	}
	if body.Multistream == nil {
		return nil
	}
	return setTargets(ctx, tx, stream, body.Multistream.Targets, now)
}

// listStreams answers GET /stream.
func (s *server) listStreams(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	v := r.URL.Query()
	if user := v.Get("userId"); user != "" && r.caller.Admin {
		q.UserID, q.ProjectID = user, ""
	}
	return s.writeStreams(w, r, q)
}

// listUserStreams answers GET /stream/user/{userId}.
func (s *server) listUserStreams(w http.ResponseWriter, r *request) error {
	user := r.PathValue("userId")
	if user != r.caller.UserID && !r.caller.Admin {
		return weir.Errorf(weir.Denied, "user can only request information on their own streams")
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	if user != r.caller.UserID {
		q.UserID, q.ProjectID = user, ""
	}
	return s.writeStreams(w, r, q)
}

// writeStreams answers with a page of streams. There are no child streams here:
// sessions are a resource of their own, so `streamsonly` changes nothing and
// `sessionsonly` leaves nothing.
func (s *server) writeStreams(w http.ResponseWriter, r *request, q store.Query) error {
	v := r.URL.Query()
	if isSet(v, "sessionsonly") && !isSet(v, "streamsonly") {
		return writePage(s, w, r, q, store.Page[store.Shown]{}, showRaw)
	}
	if isSet(v, "active") {
		q.Where = append(q.Where, store.Filter{ID: "isActive", Value: true})
	}
	page, err := s.Store.ShownStreams(r.Context(), q)
	if err != nil {
		return err
	}
	return writeOwned(s, w, r, q, page, showRaw, func(x store.Shown) (string, bool) { return x.UserID, x.Deleted })
}

func showRaw(x store.Shown) json.RawMessage { return x.JSON }

// getStream answers GET /stream/{id}. It is asked most of all, so the row goes
// out as it is stored.
func (s *server) getStream(w http.ResponseWriter, r *request) error {
	shown, err := s.Store.ShownStream(r.Context(), r.PathValue("id"))
	if err == nil && (shown.Deleted && !r.caller.Admin || !r.caller.Owns(shown.UserID, shown.ProjectID)) {
		err = weir.ErrNotFound()
	}
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, shown.JSON)
}

// getStreamByPlaybackID answers GET /stream/playback/{playbackId}.
func (s *server) getStreamByPlaybackID(w http.ResponseWriter, r *request) error {
	return s.writeStream(w)(ownStream(r)(s.Store.StreamByPlaybackID(r.Context(), r.PathValue("playbackId"))))
}

// getStreamByKey answers GET /stream/key/{streamKey}.
func (s *server) getStreamByKey(w http.ResponseWriter, r *request) error {
	return s.writeStream(w)(ownStream(r)(s.Store.StreamByKey(r.Context(), weir.Secret(r.PathValue("streamKey")))))
}

func (s *server) writeStream(w http.ResponseWriter) func(weir.Stream, error) error {
	return func(stream weir.Stream, err error) error {
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, showStream(stream))
	}
}

// getStreamInfo answers GET /stream/{id}/info, where the id is that of a stream,
// its key, its playback id, or the id of one of its sessions.
func (s *server) getStreamInfo(w http.ResponseWriter, r *request) error {
	ctx, id := r.Context(), r.PathValue("id")
	type info struct {
		Stream       streamAnswer  `json:"stream"`
		Session      *weir.Session `json:"session,omitempty"`
		IsPlaybackID bool          `json:"isPlaybackid"`
		IsSession    bool          `json:"isSession"`
		IsStreamKey  bool          `json:"isStreamKey"`
	}
	var answer info
	own := ownStream(r)
	stream, err := own(s.Store.Stream(ctx, id))
	if isNotFound(err) {
		stream, err = own(s.Store.StreamByPlaybackID(ctx, id))
		answer.IsPlaybackID = err == nil
	}
	if isNotFound(err) {
		stream, err = own(s.Store.StreamByKey(ctx, weir.Secret(id)))
		answer.IsStreamKey = err == nil
	}
	if isNotFound(err) {
		var session weir.Session
		if session, err = s.Store.Session(ctx, id); err == nil {
			stream, err = own(s.Store.Stream(ctx, session.ParentID))
			answer.IsSession = err == nil
		}
	}
	if err != nil {
		return err
	}
	answer.Stream = showStream(stream)
	page, err := s.Store.Sessions(ctx, store.Query{Where: []store.Filter{{ID: "parentId", Value: stream.ID}}, Limit: 1})
	if err != nil {
		return err
	}
	if len(page.Items) > 0 {
		answer.Session = &page.Items[0]
	}
	return writeJSON(w, http.StatusOK, answer)
}

func isNotFound(err error) bool { return err != nil && weir.KindOf(err) == weir.NotFound }

// changeStream changes a stream of the caller's in one transaction.
func (s *server) changeStream(r *request, id string, change func(tx *store.Tx, stream *weir.Stream) error) (weir.Stream, error) {
	var changed weir.Stream
	ctx := r.Context()
	err := s.Store.Tx(ctx, func(tx *store.Tx) (err error) {
		changed, err = tx.UpdateStream(ctx, id, func(stream *weir.Stream) error {
			if _, err := ownStream(r)(*stream, nil); err != nil {
				return err
			}
			return change(tx, stream)
		})
		return err
	})
	return changed, err
}

// patchStream answers PATCH /stream/{id}.
func (s *server) patchStream(w http.ResponseWriter, r *request) error {
	var patch weir.StreamPatch
	if err := r.decode(&patch); err != nil {
		return err
	}
	ctx := r.Context()
	_, err := s.changeStream(r, r.PathValue("id"), func(tx *store.Tx, stream *weir.Stream) error {
		if err := patch.Apply(stream); err != nil {
			return err
		}
		if patch.PlaybackPolicy.Set {
			if err := checkPolicyWebhook(ctx, tx, r.caller, stream.PlaybackPolicy); err != nil {
				return err
			}
		}
		if patch.Multistream == nil {
			return nil
		}
		return setTargets(ctx, tx, stream, patch.Multistream.Targets, time.Now())
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// setStreamRecord answers PATCH /stream/{id}/record.
func (s *server) setStreamRecord(w http.ResponseWriter, r *request) error {
	var body struct {
		Record *bool `json:"record"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
	if body.Record == nil {
		return weir.Errorf(weir.Refused, "record field required")
	}
	return s.applyPatch(w, r, weir.StreamPatch{Record: body.Record})
}

// setStreamSuspended answers PATCH /stream/{id}/suspended.
func (s *server) setStreamSuspended(w http.ResponseWriter, r *request) error {
	var body struct {
		Suspended *bool `json:"suspended"`
	}
	if err := r.decode(&body); err != nil {
		return err
	}
	if body.Suspended == nil {
		return weir.Errorf(weir.Invalid, "missing suspended property")
	}
	return s.applyPatch(w, r, weir.StreamPatch{Suspended: body.Suspended})
}

func (s *server) applyPatch(w http.ResponseWriter, r *request, patch weir.StreamPatch) error {
	if _, err := s.changeStream(r, r.PathValue("id"), func(_ *store.Tx, stream *weir.Stream) error {
		return patch.Apply(stream)
	}); err != nil {
		return err
	}
	return noContent(w)
}

// deleteStream answers DELETE /stream/{id}.
func (s *server) deleteStream(w http.ResponseWriter, r *request) error {
	if _, err := s.changeStream(r, r.PathValue("id"), markStreamDeleted); err != nil {
		return err
	}
	return noContent(w)
}

func markStreamDeleted(_ *store.Tx, stream *weir.Stream) error {
	stream.Deleted = true
	return nil
}

// deleteStreams answers DELETE /stream: all of the ids, or none.
func (s *server) deleteStreams(w http.ResponseWriter, r *request) error {
	ids, err := decodeIDs(r)
	if err != nil {
		return err
	}
	ctx := r.Context()
	err = s.Store.Tx(ctx, func(tx *store.Tx) error {
		for _, id := range ids {
			if _, err := tx.UpdateStream(ctx, id, func(stream *weir.Stream) error {
				if _, err := ownStream(r)(*stream, nil); err != nil {
					return err
				}
				return markStreamDeleted(tx, stream)
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return noContent(w)
}

// decodeIDs reads `{"ids": […]}`.
func decodeIDs(r *request) ([]string, error) {
	var body struct {
		IDs json.RawMessage `json:"ids"`
	}
	var ids []string
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if json.Unmarshal(body.IDs, &ids) != nil || len(ids) == 0 {
		return nil, weir.Errorf(weir.Invalid, "missing ids")
	}
	return ids, nil
}

// terminateStream answers DELETE /stream/{id}/terminate.
func (s *server) terminateStream(w http.ResponseWriter, r *request) error {
	if _, err := s.changeStream(r, r.PathValue("id"), func(_ *store.Tx, stream *weir.Stream) error {
		return stream.Terminate(time.Now())
	}); err != nil {
		return err
	}
	return noContent(w)
}
