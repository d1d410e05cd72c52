package weir

import (
	"encoding/json"
	"errors"
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

// EventBatch collects the events of a transaction. The store writes them at its end, because from
// the first event on other transactions wait with theirs.
type EventBatch struct {
	Now    time.Time
	base   string // of the URLs in snapshots
	events []Event
	err    error
}

// NewEventBatch returns an empty batch.
func NewEventBatch(base string, now time.Time) *EventBatch {
	return &EventBatch{Now: now, base: base}
}

// Events returns the events in their order.
func (b *EventBatch) Events() ([]Event, error) { return b.events, b.err }

// Add adds an event that was made elsewhere.
func (b *EventBatch) Add(e Event, err error) {
	b.events, b.err = append(b.events, e), errors.Join(b.err, err)
}

// Asset adds an event of an asset.
func (b *EventBatch) Asset(name EventName, a Asset) {
	b.add(name, "asset/"+a.ID, a.UserID, a.ProjectID, map[string]any{
		"asset": map[string]any{"id": a.ID, "snapshot": a.WithBase(b.base)},
	})
}

// Task adds an event of a task.
func (b *EventBatch) Task(name EventName, t Task) {
	if t.Output != nil && t.Output.Upload != nil {
		output, upload := *t.Output, *t.Output.Upload
		upload.AssetSpec = upload.AssetSpec.WithBase(b.base)
		output.Upload = &upload
		t.Output = &output
	}
	payload := map[string]any{"task": map[string]any{"id": t.ID, "type": t.Type, "snapshot": t}}
	switch name {
	case TaskCompletedEvent:
		payload["success"] = true
	case TaskFailedEvent:
		payload["success"] = false
	}
	b.add(name, "task/"+t.ID, t.UserID, t.ProjectID, payload)
}

func (b *EventBatch) add(name EventName, resource, userID, projectID string, payload any) {
	data, err := json.Marshal(payload)
	if err != nil {
		err = fmt.Errorf("event %s: %w", name, err)
	}
	b.Add(Event{
		ID: NewID(), CreatedAt: At(b.Now), Name: name, UserID: userID, ProjectID: projectID,
		Resource: resource, Payload: data,
	}, err)
}
