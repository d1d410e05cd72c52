package live

import (
	"testing"
	"time"
)

// A part that has no room for another frame is there for players at once, and not with
// the next frame; where a segment may end, it is there when that is known.
func TestPartsDoNotWait(t *testing.T) {
	s := newStation(t, false)
	e := s.publish()
	type state struct{ whole, parts int }
	look := func() state {
		r := s.broadcast().session.video
		if r == nil {
			return state{}
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		return state{len(r.segments), len(r.open.Parts)}
	}
	// 5 frames are 0.2 s, and 50 are a segment. How long the newest lasts is not known.
	want := map[int]state{5: {0, 0}, 6: {0, 1}, 10: {0, 1}, 11: {0, 2}, 46: {0, 9}, 50: {0, 9}, 51: {0, 9}, 52: {1, 0}, 56: {1, 1}}
	for e.frame < 56 {
		if err := e.send(0.04); err != nil {
			t.Fatal(err)
		}
		if want, ok := want[e.frame]; ok && look() != want {
			t.Errorf("after %d frames there are %+v, want %+v", e.frame, look(), want)
		}
	}
	video := s.broadcast().session.video
	e.Close(true)
	segments, err := video.past(0, 2)
	if err != nil || len(segments) != 2 {
		t.Fatalf("%d segments, %v", len(segments), err)
	}
	if n := len(segments[0].Parts); n != 10 {
		t.Errorf("the first segment has %d parts, want 10", n)
	}
	// The last frame is taken to last as long as the one before it, which is in another part.
	if got := video.time(segments[1].Duration()); got != 240*time.Millisecond {
		t.Errorf("6 frames last %v, want 240ms", got)
	}
}
