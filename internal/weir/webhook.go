package weir

import (
	"fmt"
	"net/url"
	"slices"
	"time"
)

// Webhook is a URL that events are sent to.
type Webhook struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	Name      string         `json:"name"`
	UserID    string         `json:"userId"`
	ProjectID string         `json:"projectId"`
	CreatedAt Millis         `json:"createdAt"`
	Events    []EventName    `json:"events"`
	StreamID  string         `json:"streamId,omitempty"`
	Status    *WebhookStatus `json:"status,omitempty"`
	Deleted   bool           `json:"-"`
	Responds  bool           `json:"-"` // its receiver has responded to the last delivery

	URL          Secret `json:"-"` // sealed: it may have a token in it; shown to its owner
	SharedSecret Secret `json:"-"` // never shown again
}

// WebhookStatus is the result of recent deliveries.
type WebhookStatus struct {
	LastTriggeredAt     Millis          `json:"lastTriggeredAt,omitempty"`
	LastFailure         *WebhookFailure `json:"lastFailure,omitempty"`
	ConsecutiveTimeouts int             `json:"consecutiveTimeouts,omitempty"` // since the last success
	Paused              *WebhookPause   `json:"paused,omitempty"`
}

// WebhookPause says that no events are sent to a webhook because it has timed out again and again.
type WebhookPause struct {
	Since  Millis `json:"since"`
	Until  Millis `json:"until"` // then one delivery is tried
	Reason string `json:"reason"`
}

const (
	// pauseAfter is how many deliveries must time out in a row until a webhook is paused.
	pauseAfter = 10
	// A pause doubles with each time-out of the delivery after it.
	firstPause = 5 * time.Minute
	maxPause   = time.Hour
)

// Timeouts returns how many deliveries have timed out since the last success.
func (w *Webhook) Timeouts() int {
	if w.Status == nil {
		return 0
	}
	return w.Status.ConsecutiveTimeouts
}

// PausedUntil returns until when nothing is sent; 0 = the webhook is not paused.
func (w *Webhook) PausedUntil() Millis {
	if w.Status == nil || w.Status.Paused == nil {
		return 0
	}
	return w.Status.Paused.Until
}

// Attempted takes over the result of an attempt.
func (w *Webhook) Attempted(l WebhookLog) {
	w.Status = w.Status.After(l)
	if l.Event != PlaybackAccessControl && l.Request.URL == w.URL {
		w.Responds = l.Response.Status != 0 && !l.TimedOut
	}
}

// resume ends a pause, and forgets how the receiver has responded: it may be another one.
func (w *Webhook) resume() {
	w.Responds = false
	if w.Status != nil {
		status := *w.Status
		status.ConsecutiveTimeouts, status.Paused = 0, nil
		w.Status = &status
	}
}

// WebhookFailure is the last delivery that failed.
type WebhookFailure struct {
	Timestamp  Millis `json:"timestamp"`
	StatusCode int    `json:"statusCode,omitempty"`
	Error      string `json:"error,omitempty"`
	Response   string `json:"response,omitempty"` // base64
}

// WebhookBody is the body that creates or replaces a webhook.
type WebhookBody struct {
	Name         string      `json:"name"`
	URL          string      `json:"url"`
	Event        EventName   `json:"event"` // deprecated: one event
	Events       []EventName `json:"events"`
	SharedSecret string      `json:"sharedSecret"`
	StreamID     string      `json:"streamId"`
}

// Webhook returns the webhook that the body describes.
func (b WebhookBody) Webhook(caller *Caller, now time.Time) (Webhook, error) {
	w := Webhook{ID: NewID(), Kind: "webhook", UserID: caller.UserID, ProjectID: caller.ProjectID, CreatedAt: At(now)}
	return w, b.Replace(&w)
}

// Replace gives w the settings of the body, and resumes it if it is paused. Its id, owner and the
// rest of its status stay.
func (b WebhookBody) Replace(w *Webhook) error {
	events := b.Events
	if events == nil && b.Event != "" {
		events = []EventName{b.Event}
	}
	if events == nil {
		return Errorf(Invalid, `must provide "events" field with subscriptions`)
	}
	if err := checkWebhookURL(b.URL); err != nil {
		return err
	}
	w.Name, w.URL, w.Events, w.SharedSecret, w.StreamID = b.Name, Secret(b.URL), events, Secret(b.SharedSecret), b.StreamID
	w.resume()
	return nil
}

// WebhookPatch is the body that changes a webhook.
type WebhookPatch struct {
	Name         *string      `json:"name"`
	URL          *string      `json:"url"`
	Events       *[]EventName `json:"events"`
	SharedSecret *Secret      `json:"sharedSecret"`
	StreamID     *string      `json:"streamId"`
}

// Apply changes w as the patch says, and resumes it if it is paused.
func (p WebhookPatch) Apply(w *Webhook) error {
	if p.URL != nil {
		if err := checkWebhookURL(*p.URL); err != nil {
			return err
		}
		w.URL = Secret(*p.URL)
	}
	set(&w.Name, p.Name)
	set(&w.Events, p.Events)
	set(&w.SharedSecret, p.SharedSecret)
	set(&w.StreamID, p.StreamID)
	w.resume()
	return nil
}

// Wants reports whether the event must be sent to the webhook.
func (w *Webhook) Wants(e *Event) bool {
	return !w.Deleted && w.UserID == e.UserID && w.ProjectID == e.ProjectID &&
		slices.Contains(w.Events, e.Name) && (w.StreamID == "" || w.StreamID == e.StreamID)
}

func checkWebhookURL(raw string) error {
	if u, err := url.Parse(raw); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Errorf(Invalid, "bad url: write it as https://host/path")
	}
	return nil
}

// WebhookLog is one attempt to deliver an event.
type WebhookLog struct {
	ID        string          `json:"id"`
	WebhookID string          `json:"webhookId"`
	UserID    string          `json:"userId"`
	ProjectID string          `json:"-"`
	EventID   string          `json:"-"`
	Event     EventName       `json:"event"`
	CreatedAt Millis          `json:"createdAt"`
	Duration  float64         `json:"duration"` // seconds
	Success   bool            `json:"success"`
	Request   WebhookRequest  `json:"request"`
	Response  WebhookResponse `json:"response"`

	TimedOut bool `json:"-"` // no response came, or not all of it
	Timeouts int  `json:"-"` // of the webhook, in a row, when the attempt began
}

// WebhookRequest is the request of an attempt.
type WebhookRequest struct {
	URL     Secret            `json:"-"` // sealed, as the webhook's own
	Method  string            `json:"method"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// WebhookResponse is the response. Error says why there was none.
type WebhookResponse struct {
	Body       string `json:"body"` // base64 of the first 1,024 bytes
	Status     int    `json:"status,omitempty"`
	StatusText string `json:"statusText,omitempty"`
	Error      string `json:"-"`
}

// After returns the status after one more attempt. It keeps the last failure when later attempts
// succeed.
func (s *WebhookStatus) After(l WebhookLog) *WebhookStatus {
	next := WebhookStatus{}
	if s != nil {
		next = *s
	}
	next.LastTriggeredAt = max(next.LastTriggeredAt, l.CreatedAt)
	if !l.Success {
		next.LastFailure = &WebhookFailure{
			Timestamp: l.CreatedAt, StatusCode: l.Response.Status, Error: l.Response.Error, Response: l.Response.Body,
		}
	}
	switch {
	case l.Event == PlaybackAccessControl: // viewers cause them
	case l.TimedOut && l.Timeouts == next.ConsecutiveTimeouts: // of attempts at the same time, one counts
		next.ConsecutiveTimeouts++
		next.pause(l.CreatedAt + Millis(l.Duration*1000))
	case !l.TimedOut:
		next.Paused = nil
		if l.Success {
			next.ConsecutiveTimeouts = 0
		}
	}
	return &next
}

// pause pauses a webhook that has timed out too often.
func (s *WebhookStatus) pause(now Millis) {
	n := s.ConsecutiveTimeouts - pauseAfter
	if n < 0 {
		return
	}
	since := now
	if s.Paused != nil {
		since = s.Paused.Since
	}
	long := min(firstPause<<min(n, 4), maxPause) // 5 min · 2⁴ is more than an hour
	s.Paused = &WebhookPause{
		Since: since, Until: now + Millis(long.Milliseconds()),
		Reason: fmt.Sprintf("%d deliveries in a row timed out", s.ConsecutiveTimeouts),
	}
}
