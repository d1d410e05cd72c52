package weir

import (
	"slices"
	"time"
)

// Session is one broadcast on a stream, from its start to its end.
type Session struct {
	ID                 string         `json:"id"` // also the id of the recording's asset
	Kind               string         `json:"kind"`
	Name               string         `json:"name"`
	ParentID           string         `json:"parentId"` // the stream
	UserID             string         `json:"userId"`
	ProjectID          string         `json:"projectId"`
	PlaybackID         string         `json:"playbackId"` // of the stream
	CreatedAt          Millis         `json:"createdAt"`
	LastSeen           Millis         `json:"lastSeen"`
	IsHealthy          *bool          `json:"isHealthy,omitempty"`
	Issues             []string       `json:"issues,omitempty"`
	Record             bool           `json:"record"`
	RecordingSpec      *RecordingSpec `json:"recordingSpec,omitempty"`
	C2PA               bool           `json:"c2pa,omitempty"`            // its recording is signed
	Profiles           []Profile      `json:"profiles,omitzero"`         // empty = only the source
	PartDuration       *float64       `json:"partDuration,omitempty"`    // that of the stream when the session began
	RecordingStatus    string         `json:"recordingStatus,omitempty"` // set on read, from the asset of the recording
	AssetID            string         `json:"assetId,omitempty"`         // of the recording, if there is one
	RecordingURL       string         `json:"recordingUrl,omitempty"`
	MP4URL             string         `json:"mp4Url,omitempty"`
	SourceRecordingURL string         `json:"sourceRecordingUrl,omitempty"`
	Counters
	Deleted       bool          `json:"-"`
	Unrecorded    bool          `json:"-"` // nothing is or was recorded although recording is on
	RecordedBytes int64         `json:"-"` // of the recording, as of the last beat; 0 once it is an asset
	Earlier       []Period      `json:"-"` // received by other nodes before the current or last one
	End           time.Duration `json:"-"` // of the media on the session's timeline, as of the last beat
	Target        time.Duration `json:"-"` // target duration of its playlists; 0 = not decided yet
	Received      Received      `json:"-"` // how the media came, as of the last beat
}

// Received says how the media of a session came.
type Received struct {
	Protocols []string `json:"protocols,omitempty"` // rtmp, rtmps, srt, whip or pull, in the order of their first use
	Encoded   bool     `json:"encoded,omitempty"`   // the audio was encoded as it came: AAC from Opus
}

// Add adds what is new in r.
func (r *Received) Add(more Received) {
	for _, protocol := range more.Protocols {
		if !slices.Contains(r.Protocols, protocol) {
			r.Protocols = append(slices.Clip(r.Protocols), protocol)
		}
	}
	r.Encoded = r.Encoded || more.Encoded
}

// The states of a recording, as a session shows them.
const (
	RecordingWaiting = "waiting"
	RecordingReady   = "ready"
	RecordingFailed  = "failed"
	RecordingNone    = "none"
)

// maxRecordingDelay is how many milliseconds after its last media a session can still get the asset
// of its recording.
const maxRecordingDelay = 3 * 60 * 60 * 1000

// SetRecording sets the fields about the recording from the asset with the same id; nil = there is
// none. A deleted recording has the status `none`, because SDKs know no other for it.
func (s *Session) SetRecording(asset *Asset, now Millis) {
	s.RecordingStatus, s.AssetID, s.RecordingURL, s.MP4URL, s.SourceRecordingURL = "", "", "", "", ""
	if !s.Record {
		return
	}
	switch {
	case asset == nil && (s.Unrecorded || now-s.LastSeen > maxRecordingDelay):
		s.RecordingStatus = RecordingNone
	case asset == nil:
		s.RecordingStatus = RecordingWaiting
	case asset.Deleted:
		s.RecordingStatus = RecordingNone
	case asset.Status.Phase == AssetReady:
		s.RecordingStatus = RecordingReady
	case asset.Status.Phase == AssetFailed:
		s.RecordingStatus = RecordingFailed
	default:
		s.RecordingStatus = RecordingWaiting
	}
	if asset != nil && !asset.Deleted {
		s.AssetID, s.RecordingURL, s.SourceRecordingURL = asset.ID, asset.PlaybackURL, asset.PlaybackURL
		if asset.Status.Phase == AssetReady {
			s.MP4URL = asset.DownloadURL
		}
	}
}
