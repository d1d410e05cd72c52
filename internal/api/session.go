package api

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// sessionInList is a session in the list of all sessions, with its stream, but without the stream's
// key and pull source.
type sessionInList struct {
	weir.Session
	ParentStream *weir.Stream `json:"parentStream,omitempty"`
}

// setRecordings sets the fields of sessions about their recordings.
func (s *server) setRecordings(r *request, sessions []weir.Session) error {
	var ids []string
	for _, session := range sessions {
		if session.Record {
			ids = append(ids, session.ID)
		}
	}
	recordings, err := s.Store.RecordingAssets(r.Context(), ids)
	if err != nil {
		return err
	}
	now, base := weir.At(time.Now()), s.addresses(r.Request)
	for i := range sessions {
		var recording *weir.Asset
		if asset, ok := recordings[sessions[i].ID]; ok {
			recording = new(asset.WithBase(base))
		}
		sessions[i].SetRecording(recording, now)
	}
	return nil
}

// getSession answers GET /session/{id}.
func (s *server) getSession(w http.ResponseWriter, r *request) error {
	session, err := get(r, s.Store.Session, r.PathValue("id"))
	if err != nil {
		return err
	}
	one := []weir.Session{session}
	if err := s.setRecordings(r, one); err != nil {
		return err
	}
	if isSet(r.URL.Query(), "sourceRecording") {
		return writeJSON(w, http.StatusOK, one[0])
	}
	return writeJSON(w, http.StatusOK, withoutSource(one[0]))
}

// withoutSource returns a session without the URL of its source recording.
func withoutSource(session weir.Session) weir.Session {
	session.SourceRecordingURL = ""
	return session
}

// listSessions answers GET /session.
func (s *server) listSessions(w http.ResponseWriter, r *request) error {
	q, err := query(r)
	if err != nil {
		return err
	}
	q.Filters = append(q.Filters, equals(r.URL.Query(), "parentId")...)
	page, err := s.Store.Sessions(r.Context(), q)
	if err != nil {
		return err
	}
	if err := s.setRecordings(r, page.Items); err != nil {
		return err
	}
	var parents []string
	for _, session := range page.Items {
		parents = append(parents, session.ParentID)
	}
	slices.Sort(parents)
	streams, err := s.Store.StreamsByID(r.Context(), slices.Compact(parents))
	if err != nil {
		return err
	}
	show := func(session weir.Session) sessionInList {
		shown := sessionInList{Session: withoutSource(session)}
		if stream, ok := streams[session.ParentID]; ok && !stream.Deleted {
			shown.ParentStream = &stream
		}
		return shown
	}
	return writeOwned(s, w, r, q, page, show)
}

// listStreamSessions answers GET /stream/{id}/sessions and GET /stream/sessions/{parentId}, its old
// path.
func (s *server) listStreamSessions(w http.ResponseWriter, r *request) error {
	stream, err := get(r, s.Store.Stream, cmp.Or(r.PathValue("id"), r.PathValue("parentId")))
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	// An admin may list the sessions of another user's stream.
	q.UserID, q.ProjectID = stream.UserID, stream.ProjectID
	q.Where = append(q.Where, store.Filter{ID: "parentId", Value: stream.ID})
	if v := r.URL.Query(); v.Get("record") != "" {
		q.Where = append(q.Where, store.Filter{ID: "record", Value: isSet(v, "record")})
	}
	page, err := s.Store.Sessions(r.Context(), q)
	if err != nil {
		return err
	}
	if err := s.setRecordings(r, page.Items); err != nil {
		return err
	}
	return writePage(s, w, r, q, page, withoutSource)
}

// equals returns a filter for each of the named parameters that the request has. The field of the
// filter has the same name.
func equals(v url.Values, names ...string) []store.Filter {
	var filters []store.Filter
	for _, name := range names {
		if value := v.Get(name); value != "" {
			filters = append(filters, store.Filter{ID: name, Value: value})
		}
	}
	return filters
}
