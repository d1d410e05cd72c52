package push

import (
	"log/slog"
	"testing"

	"weir/internal/store"
	"weir/internal/weir"
)

// However long the store is away, no more than a bounded number of events waits for it.
func TestEventsAreBounded(t *testing.T) {
	q := newEventQueue(nil, slog.New(slog.DiscardHandler))
	for range maxEvents + 5 {
		q.add("stream", weir.MultistreamError, store.Push{})
	}
	if n := len(q.waiting); n != maxEvents {
		t.Errorf("%d events wait, want %d", n, maxEvents)
	}
	q.waiting = q.waiting[1:]
	q.add("stream", weir.MultistreamConnected, store.Push{})
	if n := len(q.waiting); n != maxEvents || q.waiting[n-1].name != weir.MultistreamConnected {
		t.Errorf("of %d events the last is %s", n, q.waiting[n-1].name)
	}
}
