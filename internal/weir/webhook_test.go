package weir

import (
	"testing"
	"time"
)

// timeOut returns the status after a delivery that began at the time and timed out.
func timeOut(s *WebhookStatus, at Millis) *WebhookStatus {
	w := Webhook{Status: s}
	return s.After(WebhookLog{Event: AssetCreated, CreatedAt: at, Duration: 2, TimedOut: true, Timeouts: w.Timeouts()})
}

// TestPause plays a webhook that never answers, whenever it is tried.
func TestPause(t *testing.T) {
	var s *WebhookStatus
	for n := 1; n < 10; n++ {
		if s = timeOut(s, Millis(n)); s.Paused != nil || s.ConsecutiveTimeouts != n {
			t.Errorf("after %d time-outs: %+v", n, s)
		}
	}
	now := Millis(1_000_000)
	since := now + 2000
	for n, want := range []time.Duration{5, 10, 20, 40, 60, 60, 60} {
		s = timeOut(s, now)
		if p := s.Paused; p == nil || p.Since != since || p.Until != now+2000+Millis((want*time.Minute).Milliseconds()) {
			t.Fatalf("pause %d = %+v, want %d minutes", n+1, p, want)
		}
		now = s.Paused.Until
	}
	if s.Paused.Reason != "16 deliveries in a row timed out" {
		t.Errorf("reason = %q", s.Paused.Reason)
	}
}

func TestPauseEnds(t *testing.T) {
	paused := &WebhookStatus{LastTriggeredAt: 7, ConsecutiveTimeouts: 12, Paused: &WebhookPause{Since: 1, Until: 2}}
	for _, tt := range []struct {
		name     string
		log      WebhookLog
		timeouts int
		paused   bool
	}{
		{"a success", WebhookLog{Success: true, Timeouts: 12}, 0, false},
		{"an error", WebhookLog{Response: WebhookResponse{Status: 500}, Timeouts: 12}, 12, false},
		{"a refused connection", WebhookLog{Response: WebhookResponse{Error: "connection refused"}, Timeouts: 12}, 12, false},
		{"a time-out", WebhookLog{TimedOut: true, Timeouts: 12}, 13, true},
		{"a success whose response does not end", WebhookLog{Success: true, TimedOut: true, Timeouts: 12}, 13, true},
		{"a time-out of an attempt at the same time", WebhookLog{TimedOut: true, Timeouts: 11}, 12, true},
		{"a question that times out", WebhookLog{Event: PlaybackAccessControl, TimedOut: true, Timeouts: 12}, 12, true},
		{"an access check with a response", WebhookLog{Event: PlaybackAccessControl, Success: true, Timeouts: 12}, 12, true},
	} {
		s := paused.After(tt.log)
		if s.ConsecutiveTimeouts != tt.timeouts || (s.Paused != nil) != tt.paused {
			t.Errorf("%s: %+v", tt.name, s)
		}
	}
	text := func(s string) *string { return &s }
	for name, change := range map[string]func(*Webhook) error{
		"PATCH": WebhookPatch{Name: text("x")}.Apply,
		"PUT":   WebhookBody{URL: "https://example.com", Events: []EventName{}}.Replace,
	} {
		w := Webhook{Status: paused}
		if err := change(&w); err != nil || w.PausedUntil() != 0 || w.Timeouts() != 0 || w.Status.LastTriggeredAt != 7 {
			t.Errorf("%s: %+v, %v", name, w.Status, err)
		}
	}
	if paused.Paused == nil || paused.ConsecutiveTimeouts != 12 {
		t.Error("a change went into the status that was given")
	}
	// What is refused changes nothing.
	w := Webhook{Status: paused}
	if err := (WebhookPatch{URL: text("x")}).Apply(&w); err == nil || w.PausedUntil() == 0 {
		t.Errorf("a bad URL: %v, %+v", err, w.Status)
	}
}
