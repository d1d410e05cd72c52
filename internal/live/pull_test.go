package live

import (
	"context"
	"sync"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/wait"
	"weir/internal/weir"
)

// wantPull gives the stream of a station a source and wants it to be pulled.
func (s *testHub) wantPull() {
	s.Helper()
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(s.Context(), s.stream.ID, func(stream *weir.Stream) error {
			stream.Pull = &weir.Pull{Source: "https://example.com/live.m3u8"}
			return nil
		})
		if err != nil {
			return err
		}
		_, err = tx.StartPull(s.Context(), s.stream.ID, false, time.Now())
		return err
	})
}

// nextPull returns the pull that the node takes.
func (s *testHub) nextPull() *Pull {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), wait.Limit)
	defer cancel()
	p, err := s.hub.NextPull(ctx)
	if err != nil {
		s.Fatal(err)
	}
	if p.StreamID() != s.stream.ID || p.Where().Source != "https://example.com/live.m3u8" {
		s.Fatalf("pull of %s from %+v", p.StreamID(), p.Where())
	}
	return p
}

// request is what the store knows of the pull.
func (s *testHub) pullRequest() store.Pulling {
	s.Helper()
	p, err := s.store.PullOf(s.Context(), s.stream.ID)
	if err != nil {
		s.Fatal(err)
	}
	return p
}

// runHub runs the hub until the test ends.
func (s *testHub) runHub() {
	ctx, cancel := context.WithCancel(s.Context())
	var running sync.WaitGroup
	running.Go(func() { s.hub.keepPulls(ctx) })
	s.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// A pull is on air like what an encoder sends, goes on after a failure and after a stop of
// the node, and ends when its owner wants it to.
func TestPull(t *testing.T) {
	s := newTestHub(t, false)
	s.runHub()
	s.wantPull()
	p := s.nextPull()
	e := &encoder{testHub: s, Publisher: p.Publish("example.com")}
	if err := e.SetTracks(t.Context(), testTracks(t)); err != nil {
		t.Fatal(err)
	}
	if err := e.send(1); err != nil || p.Playable() {
		t.Errorf("playable after a second: %v, %v", p.Playable(), err)
	}
	if err := e.send(2); err != nil || !p.Playable() {
		t.Errorf("playable after three: %v, %v", p.Playable(), err)
	}
	if err := p.Plays(t.Context()); err != nil || !s.pullRequest().Plays {
		t.Errorf("it plays: %v, %+v", err, s.pullRequest())
	}
	if p.Publish("").from.Protocol != "pull" {
		t.Errorf("published by %q", p.Publish("").from.Protocol)
	}
	p.SetPosition(12)
	if err := p.Fail(t.Context(), "the source is gone"); err != nil {
		t.Fatal(err)
	}
	if w := s.pullRequest(); w.Issue != "the source is gone" || w.Node != "" || w.Position != 12 || !w.Wanted {
		t.Errorf("after a failure: %+v", w)
	}
	select {
	case <-e.Done():
	default:
		t.Error("the publisher goes on after the failure")
	}

	p = s.nextPull() // when it is due
	if p.Position() != 12 {
		t.Errorf("goes on at %d", p.Position())
	}
	if err := p.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = s.nextPull()
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(stream *weir.Stream) error { return stream.Terminate(time.Now()) })
		return err
	})
	<-p.Done()
	if err := p.Fail(t.Context(), "too late"); err != nil {
		t.Errorf("an end that nobody asks for any more: %v", err)
	}
	if w := s.pullRequest(); w.Wanted || w.Issue == "too late" {
		t.Errorf("after its end: %+v", w)
	}
}

// An encoder takes a stream over that is pulled.
func TestPullTakenOver(t *testing.T) {
	s := newTestHub(t, false)
	s.wantPull()
	p := s.nextPull()
	e := &encoder{testHub: s, Publisher: p.Publish("example.com")}
	if err := e.SetTracks(t.Context(), testTracks(t)); err != nil {
		t.Fatal(err)
	}
	other := s.publish()
	<-e.Done()
	if err := e.send(1); !TakenOver(err) {
		t.Errorf("the pull goes on: %v", err)
	}
	if err := p.Finish(t.Context()); err != nil || s.pullRequest().Wanted {
		t.Errorf("still wanted: %v", err)
	}
	if err := other.send(1); err != nil {
		t.Errorf("the encoder was cut off: %v", err)
	}
}
