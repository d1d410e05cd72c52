package weir

import "time"

// NewRecording returns the asset that the media of a session becomes. Who may watch the
// stream may watch its recording.
func NewRecording(session *Session, s *Stream, now time.Time) Asset {
	a := Asset{
		ID: session.ID, Name: "live-" + session.CreatedAt.Time().UTC().Format("2006-01-02T15:04Z"), PlaybackID: NewPlaybackID(session.ID),
		UserID: session.UserID, ProjectID: session.ProjectID, CreatedAt: session.CreatedAt, CreatorID: s.CreatorID, PlaybackPolicy: s.PlaybackPolicy,
		Source: AssetSource{Type: SourceRecording, SessionID: session.ID}, Status: AssetStatus{Phase: AssetWaiting, UpdatedAt: At(now)},
	}
	if session.RecordingSpec != nil {
		a.Profiles = session.RecordingSpec.Profiles
	}
	return a
}

// NewLadder returns the task that makes the renditions and the pictures of a recording,
// which can be watched already.
func NewLadder(session *Session, recording Asset, now time.Time) Task {
	t := Task{
		ID: NewID(), Type: TaskUpload, CreatedAt: At(now), UserID: recording.UserID, ProjectID: recording.ProjectID,
		InputAssetID: recording.ID, OutputAssetID: recording.ID, Params: TaskParams{Upload: &UploadParams{}},
	}
	if session.RecordingSpec != nil {
		t.Params.Upload.Profiles = session.RecordingSpec.Profiles
	}
	t.Queue(now)
	return t
}

// Extends reports whether the task adds to an asset that is there without it.
func (t *Task) Extends() bool { return t.Type == TaskUpload && t.InputAssetID != "" }

// SourceOnly reports whether a recording gets no renditions but what was recorded.
func (s *RecordingSpec) SourceOnly() bool {
	return s != nil && s.Profiles != nil && len(s.Profiles) == 0
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
		RecordingURL string  `json:"recordingUrl"`
		MP4URL       string  `json:"mp4Url,omitempty"`
		Session      Session `json:"session"`
	}{session.RecordingURL, session.MP4URL, session}, now)
}
