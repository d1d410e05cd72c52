package api

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// keepAlive is how often an event stream sends a comment when there are no events.
	keepAlive = 15 * time.Second
	// eventWriteTimeout is how long a client may take to read what is sent at once.
	eventWriteTimeout = 10 * time.Second
	// eventsAtOnce bounds the memory of a client that catches up.
	eventsAtOnce = 100
	// maxEventStreams is the maximum number of open event streams of one key.
	maxEventStreams = 20
)

// streamEvents answers GET /events: the events of the caller's project as Server-Sent Events, from
// the cursor on, or from now on. It ends when the client disconnects, the server drains, or the
// credential becomes invalid.
func (s *server) streamEvents(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	release, ok := s.eventStreams.acquire(s.limitKey(r), maxEventStreams)
	if !ok {
		return weir.TooMany(time.Second, "too many open event streams: this key may have %d", maxEventStreams)
	}
	defer release()
	// Watch first, so that no event after the read of the last one is missed.
	happened, stopEvents := s.Store.Watch(store.TopicEvent)
	defer stopEvents()
	changed, stopAuth := s.Store.Watch(store.TopicAuth)
	defer stopAuth()
	after, err := s.startOfEvents(r)
	if err != nil {
		return err
	}
	out := &eventWriter{w: &endpoint.Response{ResponseWriter: w, Timeout: eventWriteTimeout}}
	out.start(after)
	if r.Method == http.MethodHead {
		return nil
	}
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		if after, err = s.sendEvents(r, out, after); err != nil || out.closed {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.Stopping:
			return nil
		case <-happened:
		case <-changed:
		case <-ticker.C:
			out.comment()
		}
		if !s.stillAllowed(r) { // a key was revoked, a log-in has expired …
			return nil
		}
	}
}

// startOfEvents returns the number of the event after which the stream starts. Browsers keep the
// first URL when they reconnect, so the header takes precedence over the query.
func (s *server) startOfEvents(r *request) (int64, error) {
	last, deleted, err := s.Store.EventBounds(r.Context())
	if err != nil {
		return 0, err
	}
	cursor := cmp.Or(r.Header.Get("Last-Event-ID"), r.URL.Query().Get("cursor"))
	if cursor == "" {
		return last, nil
	}
	after, err := parseEventCursor(cursor)
	if err != nil {
		return 0, err
	}
	// A larger number comes from before a restore of the database.
	if after < deleted || after > last {
		return 0, weir.Errorf(weir.Gone, "the events after this cursor have expired; read the current state, then connect without a cursor")
	}
	return after, nil
}

// listStreamEvents answers GET /stream/{id}/events: what is stored of the events of a stream, the latest
// first.
func (s *server) listStreamEvents(w http.ResponseWriter, r *request) error {
	stream, err := get(r, s.Store.Stream, r.PathValue("id"))
	if err != nil {
		return err
	}
	q, err := query(r)
	if err != nil {
		return err
	}
	before := int64(math.MaxInt64)
	if q.Cursor != "" {
		if before, err = parseEventCursor(q.Cursor); err != nil {
			return err
		}
	}
	limit := q.Length()
	events, err := s.Store.StreamEvents(r.Context(), stream.ID, before, limit+1)
	if err != nil {
		return err
	}
	page := store.Page[weir.Event]{Items: events}
	if len(events) > limit {
		page.Items, page.Next = events[:limit], eventCursor(&events[limit-1])
	}
	return writePage(s, w, r, store.Query{}, page, func(e weir.Event) weir.Event { return e })
}

// eventCursor returns the cursor that continues after the event.
func eventCursor(e *weir.Event) string { return strconv.FormatInt(e.Seq, 10) }

func parseEventCursor(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || text != strconv.FormatInt(n, 10) {
		return 0, weir.Errorf(weir.Refused, "cursor: must be the id of an event")
	}
	return n, nil
}

// sendEvents sends the events after the one with the number, and returns the number of the last.
func (s *server) sendEvents(r *request, out *eventWriter, after int64) (int64, error) {
	for {
		events, err := s.Store.Events(r.Context(), r.caller.UserID, r.caller.ProjectID, after, eventsAtOnce)
		if err != nil {
			return after, err
		}
		for i := range events {
			if err := out.event(&events[i]); err != nil {
				return after, err
			}
			after = events[i].Seq
		}
		if len(events) > 0 {
			out.flush()
		}
		if out.closed || len(events) < eventsAtOnce {
			return after, nil
		}
	}
}

// stillAllowed reports whether the request would be allowed if it came now.
func (s *server) stillAllowed(r *request) bool {
	caller, err := s.credential(r, strings.TrimSpace(r.Header.Get("Authorization")))
	if err != nil || caller.Suspended || caller.UserID != r.caller.UserID || caller.ProjectID != r.caller.ProjectID {
		return false
	}
	return s.authorize(&request{Request: r.Request, caller: &caller}, s.routes.match(r.Request)) == nil
}

// eventWriter writes Server-Sent Events until the client disconnects, which is not an error.
type eventWriter struct {
	w      *endpoint.Response
	closed bool // the client has disconnected
}

// start begins the response. Its header has the cursor of the start: a client that loses its connection before
// the first event continues with it.
func (out *eventWriter) start(after int64) {
	h := out.w.Header()
	h.Set("Last-Event-ID", strconv.FormatInt(after, 10))
	h.Set("Content-Type", "text/event-stream")
	endpoint.Never.Set(h)
	h.Set("X-Accel-Buffering", "no") // or a proxy buffers events
	out.w.WriteHeader(http.StatusOK)
	out.flush()
}

// event writes an event; flush sends it.
func (out *eventWriter) event(e *weir.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("event %s: %w", e.ID, err)
	}
	out.print("id: %s\nevent: %s\ndata: %s\n\n", eventCursor(e), e.Name, data)
	return nil
}

// comment sends a line that clients ignore.
func (out *eventWriter) comment() {
	out.print(": nothing new\n\n")
	out.flush()
}

func (out *eventWriter) print(format string, args ...any) {
	if out.closed {
		return
	}
	_, err := fmt.Fprintf(out.w, format, args...)
	out.closed = err != nil
}

func (out *eventWriter) flush() {
	if out.closed {
		return
	}
	out.closed = out.w.FlushError() != nil
}
