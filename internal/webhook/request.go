package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"weir/internal/weir"
)

const (
	// maxLogged is how many bytes of a response are logged.
	maxLogged = 1024
	// maxResponse is how many bytes of the response to an access check are read.
	maxResponse = 64 << 10
)

// body is the body of a request that sends an event.
type body struct {
	ID        string          `json:"id"`
	WebhookID string          `json:"webhookId"`
	CreatedAt weir.Millis     `json:"createdAt"`
	Timestamp weir.Millis     `json:"timestamp"`
	Event     weir.EventName  `json:"event"`
	Stream    json.RawMessage `json:"stream,omitempty"`
	Payload   json.RawMessage `json:"payload,omitempty"`
}

func eventBody(e weir.Event, webhookID string, now time.Time) body {
	return body{e.ID, webhookID, e.CreatedAt, weir.At(now), e.Name, e.Stream, e.Payload}
}

// signature returns the header with which a receiver verifies the body. Its time is also the
// timestamp in the body, so it is signed.
func signature(secret weir.Secret, body []byte, now time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret.Reveal()))
	mac.Write(body)
	return "t=" + strconv.FormatInt(now.UnixMilli(), 10) + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}

// Message returns the body and the headers of a request that sends an event to the webhook, for programs
// that send it themselves.
func Message(e weir.Event, hook *weir.Webhook, version string, now time.Time) (body []byte, header map[string]string, err error) {
	if body, err = json.Marshal(eventBody(e, hook.ID, now)); err != nil {
		return nil, nil, err
	}
	return body, headers(userAgent(version), hook, body, now), nil
}

// userAgent returns the name with which weir sends requests.
func userAgent(version string) string { return "weir/" + version }

// headers returns the headers of a request to the webhook.
func headers(userAgent string, hook *weir.Webhook, body []byte, now time.Time) map[string]string {
	h := map[string]string{"content-type": "application/json", "user-agent": userAgent}
	if hook.SharedSecret != "" {
		h["Livepeer-Signature"] = signature(hook.SharedSecret, body, now)
	}
	return h
}

// exchange is a request to a webhook and its result.
type exchange struct {
	url     weir.Secret
	headers map[string]string
	timeout time.Duration
	start   time.Time
	took    time.Duration

	status     int // 0 = there was no response
	response   []byte
	cut        bool // the response was longer
	retryAfter time.Duration

	reason   string // why there was no response, as a text that may be shown
	final    bool   // another attempt can't succeed
	blocked  bool   // because weir does not connect to the address
	timedOut bool   // before the response or, if there is a status, before its end
}

// exchange sends a body to a webhook and reads the first limit bytes of the response.
func (s *Sender) exchange(ctx context.Context, timeout time.Duration, hook *weir.Webhook, body []byte, now time.Time, limit int) (x exchange) {
	x = exchange{url: hook.URL, headers: headers(s.userAgent, hook, body, now), timeout: timeout, start: now}
	defer func() { x.took = time.Since(now) }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL.Reveal(), bytes.NewReader(body))
	if err != nil {
		x.reason, x.final = "the URL of the webhook is not valid", true
		return x
	}
	for name, value := range x.headers {
		r.Header.Set(name, value)
	}
	resp, err := s.client.Do(r)
	if err != nil {
		x.fail(err)
		return x
	}
	defer func() { _ = resp.Body.Close() }()
	x.status = resp.StatusCode
	x.retryAfter = parseRetryAfter(resp.Header.Get("Retry-After"), time.Now())
	// One byte more than the limit: only after reading to the end can the connection be reused. The
	// status counts even if the rest does not arrive.
	x.response, err = io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	x.timedOut = isTimeout(err)
	if len(x.response) > limit {
		x.response, x.cut = x.response[:limit], true
	}
	return x
}

// keepPost keeps the method and the body of a redirected request. http.Client turns a POST that is
// redirected (301, 302) into a GET without a body.
func keepPost(r, first *http.Request) error {
	if code := r.Response.StatusCode; code != http.StatusMovedPermanently && code != http.StatusFound {
		return nil
	}
	body, err := first.GetBody()
	if err != nil {
		return err
	}
	r.Method, r.Body, r.GetBody, r.ContentLength = first.Method, body, first.GetBody, first.ContentLength
	r.Header.Set("Content-Type", first.Header.Get("Content-Type"))
	return nil
}

// ok reports whether the receiver accepted the request.
func (x *exchange) ok() bool { return x.status >= 200 && x.status <= 299 }

// entry returns the entry of the exchange in the log of the webhook, with sent as the body.
func (x *exchange) entry(hook *weir.Webhook, event weir.EventName, eventID string, sent []byte) weir.WebhookLog {
	return weir.WebhookLog{
		ID: weir.NewID(), WebhookID: hook.ID, UserID: hook.UserID, ProjectID: hook.ProjectID, EventID: eventID, Event: event,
		CreatedAt: weir.At(x.start), Duration: x.took.Seconds(), Success: x.ok(), TimedOut: x.timedOut, Timeouts: hook.Timeouts(),
		Request: weir.WebhookRequest{URL: x.url, Method: http.MethodPost, Headers: x.headers, Body: string(sent)},
		Response: weir.WebhookResponse{
			Body:   base64.StdEncoding.EncodeToString(x.response[:min(len(x.response), maxLogged)]),
			Status: x.status, StatusText: http.StatusText(x.status), Error: x.reason,
		},
	}
}
