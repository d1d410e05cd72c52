package live

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A part that has no room for another frame is there for players at once, and not with
// the next frame; where a segment may end, it is there when that is known.
func TestPartsDoNotWait(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	type state struct{ whole, parts int }
	look := func() state {
		r := s.broadcast().session.renditions.video
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
	video := s.broadcast().session.renditions.video
	e.Close(true)
	_, segments, err := video.past(0, 2)
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

// Players ask for the part that they are told comes next, and it comes, also where frames
// last longer at the end of a segment than they did in it.
func TestHintedPartsCome(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	type place struct {
		segment int64
		part    int
	}
	var hinted []place
	// 30 frames are ten parts. The key frame after them makes two seconds by its length.
	at := time.Duration(0)
	for i := range 64 {
		if err := e.Write(Frame{PTS: at, DTS: at, Sync: i%31 == 30 || i == 0, Data: []byte{byte(i)}}); err != nil {
			t.Fatal(err)
		}
		at += 64 * time.Millisecond
		if i%31 == 30 {
			at += 136 * time.Millisecond
		}
		if r := s.broadcast().session.renditions.video; r != nil {
			r.mu.Lock()
			hinted = append(hinted, place{r.first + int64(len(r.segments)), len(r.open.Parts)})
			r.mu.Unlock()
		}
	}
	e.Close(true)
	segments := s.broadcast().session.renditions.video.segments
	if len(segments) < 3 {
		t.Fatalf("there are %d segments, want 3", len(segments))
	}
	for _, h := range hinted {
		if h.segment < int64(len(segments)) && h.part >= len(segments[h.segment].Parts) {
			t.Errorf("part %d of segment %d was to come, which has %d", h.part, h.segment, len(segments[h.segment].Parts))
		}
	}
}

// While there is less than a segment, its frame rate is what the encoder was told: of eight
// frames a second out of 25 the first two may be neighbours.
func TestFirstFrameRate(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	check := func(frames int, want string) {
		for e.frame < frames {
			if err := e.send(0.04); err != nil {
				t.Fatal(err)
			}
		}
		s.broadcast().session.renditions.video.setRate(8)
		if text := string(s.broadcast().Master().Playlist().Text()); !strings.Contains(text, want) {
			t.Errorf("after %d frames there is no %s:\n%s", frames, want, text)
		}
	}
	check(6, "FRAME-RATE=8.000")
	check(52, "FRAME-RATE=25.000")
	e.Close(true)
}

// The last part of a segment is told of together with the segment's end: before that is
// written, players would be told to ask for one more.
func TestLastPartEndsSegment(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	for range 51 {
		if err := e.send(0.04); err != nil {
			t.Fatal(err)
		}
	}
	session := s.broadcast().session
	index := filepath.Join(session.renditions.dir, videoName, "index")
	for _, err := range []error{os.Rename(index, index+".away"), os.Mkdir(index, 0o700)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	session.renditions.video.mu.Lock()
	changed := session.renditions.video.changed
	session.renditions.video.mu.Unlock()
	if err := e.send(0.04); err == nil {
		t.Error("a segment ends although its end can't be written")
	}
	select {
	case <-changed:
		t.Error("players hear of the last part of a segment that has not ended")
	default:
	}
	for _, err := range []error{os.Remove(index), os.Rename(index+".away", index)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	e.Close(true)
	if segments := session.renditions.video.segments; len(segments) == 0 || len(segments[0].Parts) < 10 {
		t.Errorf("there are %d segments; want one of the 10 parts that were written", len(segments))
	}
}
