package weir

import "time"

// sessionShown is a session as events tell of it.
type sessionShown struct {
	Session
	AssetID string `json:"assetId,omitempty"`
}

// NewRecording returns the asset that the media of a session becomes. Who may watch the
// stream may watch its recording.
func NewRecording(session *Session, s *Stream, now time.Time) Asset {
	return Asset{
		ID: session.ID, Name: "live-" + session.CreatedAt.Time().UTC().Format("2006-01-02T15:04Z"), PlaybackID: NewPlaybackID(session.ID),
		UserID: session.UserID, ProjectID: session.ProjectID, CreatedAt: session.CreatedAt, CreatorID: s.CreatorID, PlaybackPolicy: s.PlaybackPolicy,
		Source: AssetSource{Type: SourceRecording, SessionID: session.ID}, Status: AssetStatus{Phase: AssetWaiting, UpdatedAt: At(now)},
	}
}

// Recorded reports whether the session becomes an asset: it is to be recorded, and there
// is something to record.
func (s *Session) Recorded() bool { return s.Record && !s.Unrecorded }

// RecordingReady tells that the recording of a session can be watched. The addresses of
// the asset are those that others can use.
func (s *Stream) RecordingReady(session Session, recording Asset, now time.Time) (Event, error) {
	session.SetRecording(&recording, At(now))
	session.SourceRecordingURL = "" // only for who asks
	return NewStreamEvent(RecordingReadyEvent, *s, struct {
		RecordingURL string       `json:"recordingUrl"`
		MP4URL       string       `json:"mp4Url,omitempty"`
		Session      sessionShown `json:"session"`
	}{session.RecordingURL, session.MP4URL, sessionShown{session, recording.ID}}, now)
}
