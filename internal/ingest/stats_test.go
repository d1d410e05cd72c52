package ingest

import (
	"log/slog"
	"net"
	"testing"
)

func TestCountersOfSlots(t *testing.T) {
	var shared Counters
	remote := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	first := newSlots(2, 1, &shared, slog.New(slog.DiscardHandler))
	second := newSlots(2, 1, &shared, slog.New(slog.DiscardHandler))
	a, ok := first.admit(remote)
	b, also := second.admit(remote)
	if !ok || !also {
		t.Fatal("there is room, but nobody is let in")
	}
	if _, ok := first.admit(remote); ok {
		t.Error("a second one from the same address is let in before the first has shown a key")
	}
	if got, want := shared.Stats(), (Stats{Connections: 2, TurnedAway: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	a.free()
	b.free()
	if got, want := shared.Stats(), (Stats{TurnedAway: 1}); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
}
