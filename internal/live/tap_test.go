package live

import (
	"errors"
	"io"
	"testing"
)

// TestTapLosesUpToTheNextKeyFrame has a reader that does not read: others must not
// notice, and it goes on with a key frame.
func TestTapLosesUpToTheNextKeyFrame(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(1); err != nil { // so that the tap begins between key frames
		t.Fatal(err)
	}
	b, ok := s.hub.Find(s.stream.PlaybackID)
	if !ok {
		t.Fatal("the stream is not on air")
	}
	tap := b.Tap(TapOptions{})
	if err := e.send(2); err != nil {
		t.Fatal(err)
	}
	if n := tap.lostFrames(); n != 0 {
		t.Errorf("%d frames are lost to a reader that waits for its first key frame", n)
	}
	tap.mu.Lock()
	tap.waiting += maxTapBytes // as if so much waited
	tap.mu.Unlock()
	if err := e.send(0.2); err != nil {
		t.Fatal(err)
	}
	lost := tap.lostFrames()
	if lost < 5 {
		t.Errorf("%d frames are lost, want all that came", lost)
	}
	tap.mu.Lock()
	tap.queue, tap.waiting = nil, 0
	tap.mu.Unlock()
	if err := e.send(2); err != nil {
		t.Fatal(err)
	}
	first, err := tap.Next(t.Context())
	if err != nil || first.Track != 0 || !first.Sync {
		t.Errorf("the reader goes on with %+v, %v; want a key frame", first, err)
	}
	if tap.lostFrames() <= lost || s.hub.Stats().LostFrames != tap.lostFrames() {
		t.Errorf("%d frames lost, then %d, the hub counts %d", lost, tap.lostFrames(), s.hub.Stats().LostFrames)
	}
	total := tap.lostFrames()
	tap.Close()
	if n := s.hub.Stats().LostFrames; n != total {
		t.Errorf("the hub counts %d lost frames after the tap was closed, want %d", n, total)
	}
	over := b.Tap(TapOptions{})
	e.Close(true)
	if err := b.session.stop(errEnded, true); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := over.Next(t.Context()); err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("at the end: %v, want EOF", err)
			}
			break
		}
	}
	over.Close()
}
