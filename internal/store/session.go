package store

import (
	"context"
	"time"

	"weir/internal/weir"
)

var sessions = table[weir.Session]{
	name:    "session",
	deleted: true,
	project: true,
	order:   "lastSeen-true,createdAt-true",
	columns: func(_ *queries, s *weir.Session) []column {
		return []column{
			{"id", s.ID},
			{"user_id", s.UserID},
			{"project_id", s.ProjectID},
			{"deleted", s.Deleted},
			{"created_at", int64(s.CreatedAt)},
			{"last_seen", int64(s.LastSeen)},
			{"name", s.Name},
			{"parent_id", s.ParentID},
			{"playback_id", s.PlaybackID},
			{"record", s.Record},
			{"unrecorded", s.Unrecorded},
			{"recorded_bytes", s.RecordedBytes},
			{"source_segments", s.SourceSegments},
			{"transcoded_segments", s.TranscodedSegments},
			{"source_segments_duration", s.SourceSegmentsDuration},
			{"transcoded_segments_duration", s.TranscodedSegmentsDuration},
			{"source_bytes", s.SourceBytes},
			{"transcoded_bytes", s.TranscodedBytes},
			{"ingest_rate", s.IngestRate},
			{"outgoing_rate", s.OutgoingRate},
		}
	},
	fields: map[string]field{
		"id": {"id", textField}, "name": {"name", textField}, "lastSeen": {"last_seen", numberField},
		"createdAt": {"created_at", numberField}, "userId": {"user_id", textField}, "user.email": {"user_id", emailField},
		"parentId": {"parent_id", textField}, "projectId": {"project_id", textField}, "record": {"record", boolField},
		"sourceSegments": {"source_segments", numberField}, "transcodedSegments": {"transcoded_segments", numberField},
		"sourceSegmentsDuration":     {"source_segments_duration", numberField},
		"transcodedSegmentsDuration": {"transcoded_segments_duration", numberField},
		"sourceBytes":                {"source_bytes", numberField}, "transcodedBytes": {"transcoded_bytes", numberField},
		"ingestRate": {"ingest_rate", numberField}, "outgoingRate": {"outgoing_rate", numberField},
		"recordingStatus": {recordingStatus, textField},
	},
	hidden: func(s *weir.Session) any {
		return &sessionHidden{s.Deleted, s.Unrecorded, s.RecordedBytes, s.Earlier, s.End, s.Target, s.Received}
	},
	unhide: func(s *weir.Session, hidden any) {
		h := hidden.(*sessionHidden)
		s.Deleted, s.Unrecorded, s.RecordedBytes, s.Earlier, s.End, s.Target, s.Received = h.Deleted, h.Unrecorded, h.RecordedBytes, h.Earlier, h.End, h.Target, h.Received
	},
}

type sessionHidden struct {
	Deleted       bool          `json:"deleted,omitempty"`
	Unrecorded    bool          `json:"unrecorded,omitempty"`
	RecordedBytes int64         `json:"recordedBytes,omitempty"`
	Earlier       []weir.Period `json:"earlier,omitempty"`
	End           time.Duration `json:"end,omitempty"`
	Target        time.Duration `json:"target,omitempty"`
	Received      weir.Received `json:"received,omitzero"`
}

// recordingStatus is weir.Session.SetRecording in SQL, for filters and orders, but without its time
// limit: a session without an asset stays `waiting`.
const recordingStatus = `(CASE WHEN NOT record THEN '' ELSE COALESCE(
	(SELECT CASE WHEN a.deleted THEN 'none' WHEN a.phase = 'ready' THEN 'ready' WHEN a.phase = 'failed' THEN 'failed' ELSE 'waiting' END
	FROM asset a WHERE a.id = session.id), CASE WHEN unrecorded THEN 'none' ELSE 'waiting' END) END)`

// Session returns the session with the id.
func (q *queries) Session(ctx context.Context, id string) (weir.Session, error) {
	return sessions.get(ctx, q, id)
}

// StreamOfRecording returns the stream whose recording an asset is; NotFound if it is none.
func (q *queries) StreamOfRecording(ctx context.Context, a weir.Asset) (weir.Stream, error) {
	if a.Source.Type != weir.SourceRecording {
		return weir.Stream{}, weir.ErrNotFound()
	}
	session, err := q.Session(ctx, a.Source.SessionID)
	if err != nil {
		return weir.Stream{}, err
	}
	return q.Stream(ctx, session.ParentID)
}

// Sessions returns a page of sessions.
func (q *queries) Sessions(ctx context.Context, query Query) (Page[weir.Session], error) {
	return sessions.list(ctx, q, query)
}

// CreateSession writes a new session.
func (tx *Tx) CreateSession(ctx context.Context, s *weir.Session) error {
	return sessions.insert(ctx, tx, s)
}

// UpdateSession changes a session.
func (tx *Tx) UpdateSession(ctx context.Context, id string, change func(*weir.Session) error) (weir.Session, error) {
	return sessions.update(ctx, tx, id, change)
}
