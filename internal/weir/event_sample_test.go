package weir

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestSampleEvent(t *testing.T) {
	now := time.UnixMilli(1_760_000_000_000)
	all := []EventName{
		StreamStarted, StreamDetection, StreamIdle, RecordingReadyEvent, RecordingStartedEvent, RecordingWaitingEvent,
		MultistreamConnected, MultistreamError, MultistreamDisconnected, PlaybackUserNew, AssetCreated, AssetUpdated,
		AssetFailedEvent, AssetReadyEvent, AssetDeletedEvent, TaskSpawned, TaskUpdated, TaskCompletedEvent, TaskFailedEvent,
	}
	hook := &Webhook{UserID: "ann", ProjectID: "one", Events: append([]EventName{PlaybackAccessControl}, all...)}
	for _, name := range all {
		e, err := hook.SampleEvent(name, Base{URL: "https://weir.test"}, now)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var payload struct {
			Test                         bool
			Asset, Task, Session, Target *struct{ ID string }
		}
		if err := json.Unmarshal(e.Payload, &payload); err != nil || !payload.Test {
			t.Errorf("%s: payload %s (%v)", name, e.Payload, err)
		}
		kind, _, _ := strings.Cut(string(name), ".")
		has := map[string]bool{
			"asset": payload.Asset != nil, "task": payload.Task != nil, "multistream": payload.Target != nil,
			"stream": payload.Session != nil && e.Stream != nil, "recording": payload.Session != nil && e.Stream != nil, "playback": e.Stream != nil,
		}
		if !has[kind] || e.Name != name || e.ID == "" || e.UserID != "ann" || e.ProjectID != "one" || e.CreatedAt != At(now) {
			t.Errorf("%s: %+v with %s", name, e, e.Payload)
		}
		if strings.Contains(string(e.Stream)+string(e.Payload), "streamKey") {
			t.Errorf("%s shows a stream key: %s %s", name, e.Stream, e.Payload)
		}
	}
	if e, err := hook.SampleEvent("", Base{}, now); err != nil || e.Name != StreamStarted {
		t.Errorf("the event of the webhook's choice is %q (%v), want its first", e.Name, err)
	}
	for _, tt := range []struct {
		events []EventName
		name   EventName
		want   string
	}{
		{nil, "", "subscribed to no events"},
		{[]EventName{PlaybackAccessControl}, "", "access check of a viewer"},
		{all, PlaybackAccessControl, "access check of a viewer"},
		{[]EventName{AssetReadyEvent}, AssetFailedEvent, "not subscribed to asset.failed"},
	} {
		_, err := (&Webhook{Events: tt.events}).SampleEvent(tt.name, Base{}, now)
		if KindOf(err) != Invalid || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v, %q: %v, want %q", tt.events, tt.name, err, tt.want)
		}
	}
}
