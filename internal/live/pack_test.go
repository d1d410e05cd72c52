package live

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
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
	// 5 frames are 0.2 s, and 50 are a segment. How long the newest lasts is not known, until there
	// were so many that it is predicted.
	want := map[int]state{5: {0, 0}, 6: {0, 1}, 9: {0, 1}, 10: {0, 2}, 44: {0, 8}, 45: {0, 9}, 50: {0, 9}, 51: {1, 0}, 54: {1, 0}, 55: {1, 1}, 56: {1, 1}}
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
	for range 50 {
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

// The duration of the last frame of a part is predicted. Whatever comes then, each frame keeps the
// time at which it is decoded: in the index, and in what the files say after a crash.
func TestPredictedTimes(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   func(frame int) time.Duration // decode time
	}{
		{"milliseconds", func(n int) time.Duration { return time.Duration(n*1000/24) * time.Millisecond }},
		{"90 kHz", func(n int) time.Duration { return time.Duration(n) * 1001 * time.Second / 30000 }},
		{"a slower camera in the dark", func(n int) time.Duration {
			return time.Duration(n)*33*time.Millisecond + time.Duration(max(0, n-60))*29*time.Millisecond
		}},
		{"pauses after full parts", func(n int) time.Duration {
			return time.Duration(n)*40*time.Millisecond + time.Duration(n/15)*300*time.Millisecond
		}},
		{"a pause before a key frame", func(n int) time.Duration {
			return time.Duration(n)*40*time.Millisecond + time.Duration(n/25)*3*time.Second
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestHub(t, true)
			e := s.publish()
			var want []int64
			early, parts := 0, 0
			for n := range 150 {
				at := tt.at(n)
				want = append(want, at.Milliseconds())
				if err := e.Write(Frame{PTS: at, DTS: at, Sync: n%25 == 0, Data: bytes.Repeat([]byte{byte(n)}, 100)}); err != nil {
					t.Fatal(err)
				}
				if r := s.broadcast().session.renditions.video; r != nil {
					written := 0
					for _, p := range r.open.Parts {
						written += len(p.Samples)
					}
					for _, segment := range r.segments {
						written += segment.Frames()
					}
					if parts != len(r.open.Parts) && written == n+1 {
						early++
					}
					parts = len(r.open.Parts)
				}
			}
			if early == 0 {
				t.Error("no part went out with its last frame")
			}
			session := s.broadcast().session
			e.Close(true)
			check := func(name string, track cmaf.Track, segments []cmaf.Segment) {
				t.Helper()
				var got []int64
				for i, segment := range segments {
					if i > 0 && segments[i-1].End() != segment.Start() {
						t.Errorf("%s: segment %d ends at %d, and the next one starts at %d", name, i-1, segments[i-1].End(), segment.Start())
					}
					for k, p := range segment.Parts {
						if k > 0 && segment.Parts[k-1].End() != p.Start {
							t.Errorf("%s: part %d of segment %d ends at %d, and the next one starts at %d", name, k-1, i, segment.Parts[k-1].End(), p.Start)
						}
						at := p.Start
						for _, sample := range p.Samples {
							got = append(got, track.Time(at-segments[0].Start()).Milliseconds())
							at += int64(sample.Duration)
						}
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: decode times (-sent +stored):\n%s", name, diff)
				}
			}
			r := session.renditions.video
			check("playlists", r.track, r.segments)
			index, _, err := r.recorder.Index()
			if err != nil {
				t.Fatal(err)
			}
			check("index", r.track, index.Segments)
			// Without an index the files tell.
			dir := filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(dir, os.DirFS(filepath.Join(session.renditions.dir, videoName))); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(dir, "index")); err != nil {
				t.Fatal(err)
			}
			recovered, err := media.Recover(dir)
			if err != nil {
				t.Fatal(err)
			}
			if index, _, err = recovered.Index(); err != nil {
				t.Fatal(err)
			}
			if tt.name != "a pause before a key frame" { // there the end of a segment is its last frame's, as predicted
				check("files", r.track, index.Segments)
			}
		})
	}
}

// A stream may have longer parts than the server's, or none in its playlists.
func TestPartDuration(t *testing.T) {
	for _, tt := range []struct {
		name   string
		own    *float64
		head   string
		listed int // parts of the first 2 seconds
		low    bool
	}{
		{"that of the server", nil, "PART-TARGET=0.210000", 10, true},
		{"half a second", new(0.5), "PART-TARGET=0.525000", 4, true},
		{"a second", new(1.0), "PART-TARGET=1.050000", 2, true},
		{"none", new(0.0), "", 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newTestHub(t, false)
			s.write(func(tx *store.Tx) error {
				_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(stream *weir.Stream) error { stream.PartDuration = tt.own; return nil })
				return err
			})
			e := s.publish()
			if err := e.send(2.2); err != nil {
				t.Fatal(err)
			}
			list := s.playlist(videoName, Query{Low: true, Segment: -1, Part: -1})
			parts := strings.Count(list, `URI="0.`)
			if !strings.Contains(list, tt.head) || parts != tt.listed || strings.Contains(list, "PRELOAD-HINT") != tt.low || strings.Contains(list, "PART-TARGET") != tt.low {
				t.Errorf("%d parts of the first segment, want %d and %q:\n%s", parts, tt.listed, tt.head, list)
			}
			if n := len(s.broadcast().session.renditions.video.segments[0].Parts); tt.listed == 0 && n < 5 {
				t.Errorf("without parts in the playlist, %d writes of a segment", n)
			}
			e.Close(true)
		})
	}
}
