package weir

import (
	"cmp"
	"time"
)

// NewRecording returns the asset of a session's recording. It has the playback policy of the
// stream, and its name with the time of the session.
func NewRecording(session *Session, s *Stream, now time.Time) Asset {
	a := Asset{
		ID: session.ID, Name: cmp.Or(s.Name, "live") + " " + session.CreatedAt.Time().UTC().Format("2006-01-02T15:04Z"), PlaybackID: NewPlaybackID(session.ID),
		UserID: session.UserID, ProjectID: session.ProjectID, CreatedAt: session.CreatedAt, CreatorID: s.CreatorID, PlaybackPolicy: s.PlaybackPolicy,
		Sign:   session.C2PA,
		Source: AssetSource{Type: SourceRecording, SessionID: session.ID}, Status: AssetStatus{Phase: AssetWaiting, UpdatedAt: At(now)},
	}
	if session.RecordingSpec != nil {
		a.Profiles = session.RecordingSpec.Profiles
	}
	return a
}

// NewLadder returns the task that makes the renditions and thumbnails of a recording or a clip, which
// can be played already.
func NewLadder(recording Asset, now time.Time) Task {
	t := Task{
		ID: NewID(), Type: TaskUpload, CreatedAt: At(now), UserID: recording.UserID, ProjectID: recording.ProjectID,
		InputAssetID: recording.ID, OutputAssetID: recording.ID, Params: TaskParams{Upload: &UploadParams{C2PA: recording.Sign, Profiles: recording.Profiles}},
	}
	t.Queue(now)
	return t
}

// Segmented reports whether the asset was made of segments, and has no file that it came from: it is a
// recording or a clip.
func (a *Asset) Segmented() bool {
	return a.Source.Type == SourceRecording || a.Source.Type == SourceClip
}

// Extends reports whether the task adds to an asset that can be played without it.
func (t *Task) Extends() bool { return t.Type == TaskUpload && t.InputAssetID != "" }

// SourceOnly reports whether a recording gets no renditions beside the source.
func (s *RecordingSpec) SourceOnly() bool {
	return s != nil && s.Profiles != nil && len(s.Profiles) == 0
}

// Recorded reports whether the session becomes an asset: recording is on, and there is media.
func (s *Session) Recorded() bool { return s.Record && !s.Unrecorded }

// RecordingReady returns the event that the recording of a session can be played. The URLs of the
// asset must be complete.
func (s *Stream) RecordingReady(session Session, recording Asset, now time.Time) (Event, error) {
	session.SetRecording(&recording, At(now))
	session.SourceRecordingURL = "" // shown only on request
	return NewStreamEvent(RecordingReadyEvent, *s, struct {
		RecordingURL string  `json:"recordingUrl"`
		MP4URL       string  `json:"mp4Url,omitempty"`
		Session      Session `json:"session"`
	}{session.RecordingURL, session.MP4URL, session}, now)
}
