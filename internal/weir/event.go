package weir

import (
	"encoding/json"
	"fmt"
	"time"
)

// EventName is what happened. The list is closed: SDKs refuse other names.
type EventName string

// The events.
const (
	StreamStarted           EventName = "stream.started"
	StreamDetection         EventName = "stream.detection"
	StreamIdle              EventName = "stream.idle"
	RecordingReadyEvent     EventName = "recording.ready"
	RecordingStartedEvent   EventName = "recording.started"
	RecordingWaitingEvent   EventName = "recording.waiting"
	MultistreamConnected    EventName = "multistream.connected"
	MultistreamError        EventName = "multistream.error"
	MultistreamDisconnected EventName = "multistream.disconnected"
	PlaybackUserNew         EventName = "playback.user.new"
	PlaybackAccessControl   EventName = "playback.accessControl"
	AssetCreated            EventName = "asset.created"
	AssetUpdated            EventName = "asset.updated"
	AssetFailedEvent        EventName = "asset.failed"
	AssetReadyEvent         EventName = "asset.ready"
	AssetDeletedEvent       EventName = "asset.deleted"
	TaskSpawned             EventName = "task.spawned"
	TaskUpdated             EventName = "task.updated"
	TaskCompletedEvent      EventName = "task.completed"
	TaskFailedEvent         EventName = "task.failed"
)

// Event tells of a change. It is written in the transaction of the change and
// holds a copy of what changed, without anything secret.
type Event struct {
	ID        string          `json:"id"`
	CreatedAt Millis          `json:"createdAt"`
	Name      EventName       `json:"event"`
	Stream    json.RawMessage `json:"stream,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`

	UserID    string `json:"-"`
	ProjectID string `json:"-"`
	Resource  string `json:"-"` // deliveries of one resource keep their order
	StreamID  string `json:"-"`
	Seq       int64  `json:"-"` // set by the store; the cursor of GET /api/events
}

// NewStreamEvent tells of a stream. payload may be nil. The stream's key and the
// source that it is pulled from are not in it.
func NewStreamEvent(name EventName, s Stream, payload any, now time.Time) (Event, error) {
	e := Event{
		ID: NewID(), CreatedAt: At(now), Name: name, UserID: s.UserID, ProjectID: s.ProjectID,
		Resource: "stream/" + s.ID, StreamID: s.ID,
	}
	var err error
	if e.Stream, err = json.Marshal(s); err != nil {
		return Event{}, fmt.Errorf("event %s: %w", name, err)
	}
	if payload != nil {
		if e.Payload, err = json.Marshal(payload); err != nil {
			return Event{}, fmt.Errorf("event %s: %w", name, err)
		}
	}
	return e, nil
}

// NewAssetEvent tells of an asset.
func NewAssetEvent(name EventName, a Asset, now time.Time) (Event, error) {
	payload, err := json.Marshal(map[string]any{"asset": map[string]any{"id": a.ID, "snapshot": a}})
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", name, err)
	}
	return Event{
		ID: NewID(), CreatedAt: At(now), Name: name, UserID: a.UserID, ProjectID: a.ProjectID,
		Resource: "asset/" + a.ID, Payload: payload,
	}, nil
}

// NewTaskEvent tells of a task.
func NewTaskEvent(name EventName, t Task, now time.Time) (Event, error) {
	payload := map[string]any{"task": map[string]any{"id": t.ID, "type": t.Type, "snapshot": t}}
	switch name {
	case TaskCompletedEvent:
		payload["success"] = true
	case TaskFailedEvent:
		payload["success"] = false
	}
	data, err := json.Marshal(payload)
	if err != nil {
		return Event{}, fmt.Errorf("event %s: %w", name, err)
	}
	return Event{
		ID: NewID(), CreatedAt: At(now), Name: name, UserID: t.UserID, ProjectID: t.ProjectID,
		Resource: "task/" + t.ID, Payload: data,
	}, nil
}
