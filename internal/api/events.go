package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// keepAlive is how often a stream of events says something when nothing happens.
	keepAlive = 15 * time.Second
	// eventWriteTimeout is how long a client may take to read what is sent at once;
	// one that takes longer is gone.
	eventWriteTimeout = 10 * time.Second
	// eventsAtOnce bounds the memory of a client that catches up.
	eventsAtOnce = 100
	// maxEventStreams is how many streams of events one key may have open.
	maxEventStreams = 20
)

// streamEvents answers GET /events: the events of the caller's project as
// Server-Sent Events, from the cursor on, or from now on. It ends when the client
// leaves, the server drains, or the credential is worth nothing any more.
func (s *server) streamEvents(w http.ResponseWriter, r *request) error {
	ctx := r.Context()
	leave, err := s.eventStreams.enter(s.limitKey(r))
	if err != nil {
		return err
	}
	defer leave()
	// Watch first: what happens after the look at the last event must wake us.
	happened, stopEvents := s.Store.Watch(store.TopicEvent)
	defer stopEvents()
	changed, stopAuth := s.Store.Watch(store.TopicAuth)
	defer stopAuth()
	after, err := s.startOfEvents(r)
	if err != nil {
		return err
	}
	out := &eventWriter{w: w}
	out.start()
	if r.Method == http.MethodHead {
		return nil
	}
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	for {
		if after, err = s.sendEvents(r, out, after); err != nil || out.gone {
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
		if !s.stillWelcome(r) { // a key was revoked, a log-in has run out …
			return nil
		}
	}
}

// startOfEvents returns the number of the event after which the stream starts.
// Browsers keep the first URL when they connect again, so the header counts more
// than the query.
func (s *server) startOfEvents(r *request) (int64, error) {
	last, forgotten, err := s.Store.EventBounds(r.Context())
	if err != nil {
		return 0, err
	}
	cursor := r.Header.Get("Last-Event-ID")
	if cursor == "" {
		cursor = r.URL.Query().Get("cursor")
	}
	if cursor == "" {
		return last, nil
	}
	after, err := parseEventCursor(cursor)
	if err != nil {
		return 0, err
	}
	// One that lies ahead is of a database that was restored since.
	if after < forgotten || after > last {
		return 0, weir.Errorf(weir.Gone, "the events after this cursor are not kept any more; read the state anew, then listen without a cursor")
	}
	return after, nil
}

// eventCursor is what a client sends back to go on after the event.
func eventCursor(e *weir.Event) string { return strconv.FormatInt(e.Seq, 10) }

func parseEventCursor(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || text != strconv.FormatInt(n, 10) {
		return 0, weir.Errorf(weir.Refused, "cursor: send the id of an event, as it came")
	}
	return n, nil
}

// sendEvents sends what happened after the event with the number, and returns the
// number of the last.
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
		if out.gone || len(events) < eventsAtOnce {
			return after, nil
		}
	}
}

// stillWelcome reports whether the request would be let in if it came now.
func (s *server) stillWelcome(r *request) bool {
	caller, err := s.credential(r, strings.TrimSpace(r.Header.Get("Authorization")))
	if err != nil || caller.Suspended || caller.UserID != r.caller.UserID || caller.ProjectID != r.caller.ProjectID {
		return false
	}
	return s.authorize(&request{Request: r.Request, caller: &caller}, s.routes.match(r.Request)) == nil
}

// eventWriter writes Server-Sent Events until the client is gone, which is not an
// error: that is how every stream ends.
type eventWriter struct {
	w    http.ResponseWriter
	gone bool
}

func (out *eventWriter) start() {
	h := out.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // or a proxy collects events before it passes them on
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

// comment sends a line that clients pass over.
func (out *eventWriter) comment() {
	out.print(": nothing new\n\n")
	out.flush()
}

func (out *eventWriter) print(format string, args ...any) {
	if out.gone {
		return
	}
	out.extendDeadline()
	_, err := fmt.Fprintf(out.w, format, args...)
	out.gone = err != nil
}

func (out *eventWriter) flush() {
	if out.gone {
		return
	}
	out.extendDeadline()
	out.gone = http.NewResponseController(out.w).Flush() != nil
}

// extendDeadline gives the client a while for the next write: the stream as a whole
// has no end.
func (out *eventWriter) extendDeadline() {
	_ = http.NewResponseController(out.w).SetWriteDeadline(time.Now().Add(eventWriteTimeout))
}

// eventStreams counts the open streams of events of each key.
type eventStreams struct {
	mu   sync.Mutex
	open map[string]int
}

// enter counts one more; leave takes it back.
func (e *eventStreams) enter(key string) (leave func(), err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.open[key] >= maxEventStreams {
		return nil, tooMany("too many open event streams: this key may have %d", maxEventStreams)
	}
	if e.open == nil {
		e.open = map[string]int{}
	}
	e.open[key]++
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.open[key]--; e.open[key] == 0 {
			delete(e.open, key)
		}
	}, nil
}
