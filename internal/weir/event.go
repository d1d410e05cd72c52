package weir

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// EventName names what happened. The list is closed: SDKs refuse other names.
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

// EventNames returns the events that happen. weir accepts others in webhooks, because SDKs know them.
func EventNames() []EventName {
	return []EventName{
		StreamStarted, StreamIdle, RecordingStartedEvent, RecordingWaitingEvent, RecordingReadyEvent,
		MultistreamConnected, MultistreamError, MultistreamDisconnected,
		AssetCreated, AssetUpdated, AssetReadyEvent, AssetFailedEvent, AssetDeletedEvent,
		TaskSpawned, TaskUpdated, TaskCompletedEvent, TaskFailedEvent,
	}
}

// Event reports a change. It is written in the transaction of the change and holds a copy of the
// changed resource, without its secrets.
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

// NewStreamEvent returns an event about a stream, without the stream's key and pull source. payload
// may be nil.
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

// EventBatch collects the events of a transaction. The store writes them at its end, because the
// first event makes other transactions wait before they write theirs.
type EventBatch struct {
	Now    time.Time
	base   Base // of the addresses in snapshots
	events []Event
	err    error
}

// NewEventBatch returns an empty batch.
func NewEventBatch(base Base, now time.Time) *EventBatch {
	return &EventBatch{Now: now, base: base}
}

// Events returns the events in their order.
func (b *EventBatch) Events() ([]Event, error) { return b.events, b.err }

// Add adds an event, or the error of making it.
func (b *EventBatch) Add(e Event, err error) {
	b.events, b.err = append(b.events, e), errors.Join(b.err, err)
}

// Asset adds an event about an asset.
func (b *EventBatch) Asset(name EventName, a Asset) {
	b.add(name, "asset/"+a.ID, a.UserID, a.ProjectID, map[string]any{
		"asset": map[string]any{"id": a.ID, "snapshot": a.WithBase(b.base)},
	})
}

// Task adds an event about a task.
func (b *EventBatch) Task(name EventName, t Task) {
	if t.Output != nil {
		output := *t.Output
		for _, made := range []**AssetOutput{&output.Upload, &output.Clip} {
			if *made != nil {
				*made = &AssetOutput{AssetSpec: (*made).AssetSpec.WithBase(b.base)}
			}
		}
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

// session adds an event about a stream and its session.
func (b *EventBatch) session(name EventName, s *Stream, session Session, assetID string) {
	session.SetRecording(nil, At(b.Now))
	session.AssetID = assetID
	b.Add(NewStreamEvent(name, *s, map[string]any{"session": session}, b.Now))
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
