package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// streamResponse is a stream as its owner sees it.
type streamResponse struct {
	weir.Stream
	StreamKey string     `json:"streamKey"`
	Pull      *weir.Pull `json:"pull,omitempty"`
}

func showStream(s weir.Stream) streamResponse {
	return streamResponse{Stream: s, StreamKey: s.StreamKey.Reveal(), Pull: s.Pull}
}

// createStream answers POST /stream.
func (s *server) createStream(w http.ResponseWriter, r *request, body weir.NewStream) error {
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

// makeStream writes the stream that a body describes.
func makeStream(ctx context.Context, tx *store.Tx, caller *weir.Caller, body weir.NewStream, now time.Time) (weir.Stream, error) {
	if err := tx.CheckQuota(ctx, caller.UserID, weir.Streams, 1); err != nil {
		return weir.Stream{}, err
	}
	stream, invalid := body.Stream(caller, now)
	if err := checkStream(ctx, tx, body, &weir.Stream{}, &stream, invalid, now); err != nil {
		return stream, err
	}
	return stream, tx.CreateStream(ctx, &stream)
}

// checkStream checks what needs the store, in the order of the contract, and creates the targets of
// a stream, which was another before. invalid is the error of the checks that do not need the store.
func checkStream(ctx context.Context, tx *store.Tx, body weir.NewStream, before, stream *weir.Stream, invalid error, now time.Time) error {
	notFound := weir.Errorf(weir.Refused, "object store %s not found or disabled", body.ObjectStoreID)
	if err := checkObjectStore(ctx, tx, stream.Owner(), before.ObjectStoreID, body.ObjectStoreID, notFound); err != nil {
		return err
	}
	if invalid != nil {
		return invalid
	}
	if err := checkPolicyWebhook(ctx, tx, stream.Owner(), before.PlaybackPolicy, stream.PlaybackPolicy); err != nil {
		return err
	}
	if body.Multistream == nil {
		return nil
	}
	return setTargets(ctx, tx, stream, before.Multistream.Targets, body.Multistream.Targets, now)
}

// listStreams answers GET /stream.
func (s *server) listStreams(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	if user := r.URL.Query().Get("userId"); user != "" && r.caller.Admin {
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

// writeStreams answers with a page of streams. Sessions are a resource of their own and no child
// streams, so `streamsonly` changes nothing and `sessionsonly` selects nothing.
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
	return writeOwned(s, w, r, q, page, showRaw)
}

func showRaw(x store.Shown) json.RawMessage { return x.JSON }

// getStream answers GET /stream/{id}. It is the most frequent request, so it writes the row as it
// is stored.
func (s *server) getStream(w http.ResponseWriter, r *request) error {
	shown, err := get(r, s.Store.ShownStream, r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeText(w, http.StatusOK, shown.JSON)
}

// getStreamByPlaybackID answers GET /stream/playback/{playbackId}.
func (s *server) getStreamByPlaybackID(w http.ResponseWriter, r *request) error {
	return s.writeStream(w)(get(r, s.Store.StreamByPlaybackID, r.PathValue("playbackId")))
}

// getStreamByKey answers GET /stream/key/{streamKey}.
func (s *server) getStreamByKey(w http.ResponseWriter, r *request) error {
	return s.writeStream(w)(get(r, s.Store.StreamByKey, weir.Secret(r.PathValue("streamKey"))))
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
	id := r.PathValue("id")
	var response struct {
		Stream       streamResponse `json:"stream"`
		Session      *weir.Session  `json:"session,omitempty"`
		IsPlaybackID bool           `json:"isPlaybackid"`
		IsSession    bool           `json:"isSession"`
		IsStreamKey  bool           `json:"isStreamKey"`
	}
	stream, err := get(r, s.Store.Stream, id)
	if weir.IsNotFound(err) {
		stream, err = get(r, s.Store.StreamByPlaybackID, id)
		response.IsPlaybackID = err == nil
	}
	if weir.IsNotFound(err) {
		stream, err = get(r, s.Store.StreamByKey, weir.Secret(id))
		response.IsStreamKey = err == nil
	}
	if weir.IsNotFound(err) {
		var session weir.Session
		if session, err = s.Store.Session(r.Context(), id); err == nil {
			stream, err = get(r, s.Store.Stream, session.ParentID)
			response.IsSession = err == nil
		}
	}
	if err != nil {
		return err
	}
	response.Stream = showStream(stream)
	if response.Session, err = s.lastSession(r.Context(), stream); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, response)
}

// changeStream changes the stream that the path names.
func (s *server) changeStream(w http.ResponseWriter, r *request, do func(tx *store.Tx, stream *weir.Stream) error) error {
	_, err := change(s, r, r.PathValue("id"), (*store.Tx).UpdateStream, do)
	return noContent(w, err)
}

// patchStream answers PATCH /stream/{id}.
func (s *server) patchStream(w http.ResponseWriter, r *request, patch weir.StreamPatch) error {
	ctx := r.Context()
	return s.changeStream(w, r, func(tx *store.Tx, stream *weir.Stream) error {
		had := stream.PlaybackPolicy
		if err := patch.Apply(stream); err != nil {
			return err
		}
		if patch.PlaybackPolicy.Set {
			if err := checkPolicyWebhook(ctx, tx, stream.Owner(), had, stream.PlaybackPolicy); err != nil {
				return err
			}
		}
		if patch.Multistream == nil {
			return nil
		}
		return setTargets(ctx, tx, stream, stream.Multistream.Targets, patch.Multistream.Targets, time.Now())
	})
}

// setStreamRecord answers PATCH /stream/{id}/record.
func (s *server) setStreamRecord(w http.ResponseWriter, r *request, patch weir.StreamPatch) error {
	if patch.Record == nil {
		return weir.Errorf(weir.Refused, "record field required")
	}
	return s.changeStream(w, r, func(_ *store.Tx, stream *weir.Stream) error { return patch.Apply(stream) })
}

// setStreamSuspended answers PATCH /stream/{id}/suspended.
func (s *server) setStreamSuspended(w http.ResponseWriter, r *request, patch weir.StreamPatch) error {
	if patch.Suspended == nil {
		return weir.Errorf(weir.Invalid, "missing suspended property")
	}
	return s.changeStream(w, r, func(_ *store.Tx, stream *weir.Stream) error { return patch.Apply(stream) })
}

// deleteStream answers DELETE /stream/{id}.
func (s *server) deleteStream(w http.ResponseWriter, r *request) error {
	return s.changeStream(w, r, markStreamDeleted)
}

func markStreamDeleted(_ *store.Tx, stream *weir.Stream) error {
	stream.Deleted = true
	return nil
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
	return s.changeStream(w, r, func(_ *store.Tx, stream *weir.Stream) error { return stream.Terminate(time.Now()) })
}
