package weir

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// sampleName is the name of what a sample event is about.
const sampleName = "test event"

// SampleEvent returns an event with which the owner of a webhook tries it: one that the webhook
// gets, about a stream, an asset or a task that does not exist. It looks like a real one, so that
// receivers understand it, and has `test` in its payload. name is "" for the first event of the
// webhook.
func (w *Webhook) SampleEvent(name EventName, base Base, now time.Time) (Event, error) {
	events := slices.DeleteFunc(slices.Clone(w.Events), func(e EventName) bool { return e == PlaybackAccessControl })
	switch {
	case name == PlaybackAccessControl || name == "" && len(events) == 0 && len(w.Events) > 0:
		return Event{}, Errorf(Invalid, "%s is an access check of a viewer, not an event; to test it, play content whose playback policy names this webhook", PlaybackAccessControl)
	case len(events) == 0:
		return Event{}, Errorf(Invalid, "the webhook is subscribed to no events; set its events first")
	case name == "":
		name = events[0]
	case !slices.Contains(events, name):
		return Event{}, Errorf(Invalid, "the webhook is not subscribed to %s; test one of its events, or add this one to them", name)
	}
	e, err := sampleEvent(name, &Caller{UserID: w.UserID, ProjectID: w.ProjectID}, base, now)
	if err != nil {
		return Event{}, err
	}
	payload := map[string]json.RawMessage{}
	if e.Payload != nil {
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			return Event{}, err
		}
	}
	payload["test"] = json.RawMessage("true")
	e.Payload, err = json.Marshal(payload)
	return e, err
}

func sampleEvent(name EventName, owner *Caller, base Base, now time.Time) (Event, error) {
	kind, what, _ := strings.Cut(string(name), ".")
	batch := NewEventBatch(base, now)
	switch kind {
	case "asset", "task":
		asset, task, err := NewAsset{Name: sampleName, URL: "https://example.com/test.mp4"}.Asset(owner, now)
		if err != nil {
			return Event{}, err
		}
		switch what {
		case "ready", "completed":
			asset.Ready(now)
			task.Complete(nil, nil, now)
		case "failed":
			asset.Fail("this is a test", now)
			task.Fail("this is a test", now)
		case "deleted":
			asset.Delete(now)
		}
		if kind == "asset" {
			batch.Asset(name, asset)
		} else {
			batch.Task(name, task)
		}
	default:
		stream, err := NewStream{Name: sampleName, Record: kind == "recording"}.Stream(owner, now)
		if err != nil {
			return Event{}, err
		}
		session := NewSession(&stream, now)
		stream.IsActive, stream.LastSeen, session.LastSeen = what != "idle", At(now), At(now)
		switch {
		case kind == "multistream":
			batch.Add(NewTargetEvent(name, stream, Target{ID: NewID(), Name: sampleName}, SourceProfile, now))
		case name == RecordingReadyEvent:
			batch.Add(stream.RecordingReady(session, NewRecording(&session, &stream, now).WithBase(base), now))
		case kind == "playback":
			batch.Add(NewStreamEvent(name, stream, nil, now))
		default:
			batch.session(name, &stream, session, "")
		}
	}
	events, err := batch.Events()
	if err != nil {
		return Event{}, err
	}
	return events[0], nil
}
