package live

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"weir/internal/media"
	"weir/internal/weir"
)

// logs returns how many bytes a session has that are not media.
func (s *testHub) logs(session *session) (size int64) {
	s.Helper()
	for _, name := range []string{"index", "journal"} {
		info, err := os.Stat(filepath.Join(session.renditions.dir, videoName, name))
		if err != nil {
			s.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// TestUnrecordedStreamForgets sends for a long time: what is on disk does not grow with
// it, and players do not notice a restart.
func TestUnrecordedStreamForgets(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	segments := func(count int) {
		t.Helper()
		if err := e.frames(count, 100, 2*time.Second, true); err != nil {
			t.Fatal(err)
		}
		e.frame += count * 50
	}
	segments(30)
	e.Close(false)
	e = s.publish()
	var sizes []int64
	for range 3 {
		segments(400)
		s.hub.syncAll()
		sizes = append(sizes, s.logs(e.session))
	}
	if sizes[2] > sizes[0]+1000 {
		t.Errorf("index and journal have %d bytes after each 400 segments", sizes)
	}
	e.Close(false)
	count, seconds := e.session.renditions.video.carried()
	next, breaks := e.session.renditions.video.totals()
	before := s.playlist(videoName, plain)
	s.stop()
	s.start()
	session := s.broadcast().session
	if got, lasted := session.renditions.video.carried(); got != count || lasted != seconds || count < 1200 {
		t.Errorf("after a restart there were %d segments of %v s, before it %d of %v", got, lasted, count, seconds)
	}
	if got, broken := session.renditions.video.totals(); got != next || broken != breaks || breaks != 2 {
		t.Errorf("after a restart segment %d is next, after %d discontinuities, before it %d after %d", got, broken, next, breaks)
	}
	if after := s.playlist(videoName, plain); after != before {
		t.Errorf("the playlist was\n%s\nand is\n%s", before, after)
	}
}

// TestRungAfterLongAbsence lets a rung come when its source has been on air for long: what
// players do not see any more of the source is not there of the rung either.
func TestRungAfterLongAbsence(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(31); err != nil {
		t.Fatal(err)
	}
	e.Close(false)
	e = s.publish()
	session := e.session
	r := &rung{profile: weir.Profile{Name: "144p"}, ladder: &ladder{renditions: &session.renditions}}
	show := func() {
		t.Helper()
		source := session.renditions.video
		if err := r.fill(source.recorder.Next()); err != nil {
			t.Fatal(err)
		}
		first, breaks, segments := source.since(0, source.recorder.Next())
		got, broken, shown := r.out.since(0, r.out.recorder.Next())
		if got != first || broken != breaks || len(shown) != len(segments) {
			t.Errorf("the rung shows %d segments from %d on, after %d discontinuities; the source %d from %d on, after %d", len(shown), got, broken, len(segments), first, breaks)
		}
		if index, _, err := r.out.recorder.Index(); err != nil || len(index.Segments) > 2*len(segments) {
			t.Errorf("the rung has %d gaps, error %v", len(index.Segments), err)
		}
	}
	for range 3 {
		if err := e.frames(40, 100, 2*time.Second, true); err != nil {
			t.Fatal(err)
		}
		e.frame += 40 * 50
		if r.out == nil {
			recorder, err := media.Record(filepath.Join(session.renditions.dir, r.profile.Name), session.renditions.video.track)
			if err != nil {
				t.Fatal(err)
			}
			if r.out, err = session.renditions.addRung(r.profile, recorder); err != nil {
				t.Fatal(err)
			}
		}
		show()
	}
	// What a restart finds of it is the same.
	before := s.playlist("144p", plain)
	recorder, err := media.Recover(filepath.Join(session.renditions.dir, r.profile.Name))
	if err != nil {
		t.Fatal(err)
	}
	session.renditions.rungs = nil
	if r.out, err = session.renditions.addRung(r.profile, recorder); err != nil {
		t.Fatal(err)
	}
	show()
	if after := s.playlist("144p", plain); after != before || strings.Count(after, "EXT-X-GAP") < 29 {
		t.Errorf("the playlist was\n%s\nand is\n%s", before, after)
	}
}

// TestPowerCut takes away what was written last of a stream that is not recorded: players
// are not shown other segments under numbers that they have seen.
func TestPowerCut(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, dir string){
		"the newest segments": func(t *testing.T, dir string) {
			for _, n := range []string{"3", "4", "5"} {
				if err := os.Remove(filepath.Join(dir, videoName, n+".m4s")); err != nil {
					t.Fatal(err)
				}
			}
		},
		"all": func(t *testing.T, dir string) {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, false)
			e := s.publish()
			if err := e.send(11); err != nil {
				t.Fatal(err)
			}
			s.hub.beat(t.Context())
			seen, breaks := e.session.renditions.video.totals()
			s.stop()
			lose(t, e.session.renditions.dir)
			s.start()
			e = s.publish()
			if err := e.send(5); err != nil {
				t.Fatal(err)
			}
			list := s.playlist(videoName, plain)
			first := strings.SplitN(list, "#EXT-X-MEDIA-SEQUENCE:", 2)[1]
			if n, err := strconv.ParseInt(strings.SplitN(first, "\n", 2)[0], 10, 64); err != nil || n < seen {
				t.Errorf("players have seen segments up to %d, and are shown:\n%s", seen-1, list)
			}
			if _, now := e.session.renditions.video.totals(); now <= breaks {
				t.Errorf("players have counted %d discontinuities, and then %d", breaks, now)
			}
			// The next restart finds all.
			before, counted := e.session.renditions.video.totals()
			s.hub.beat(t.Context())
			s.stop()
			s.start()
			if n, now := s.broadcast().session.renditions.video.totals(); n != before || now != counted {
				t.Errorf("after a restart segment %d is next, after %d discontinuities, before it %d after %d", n, now, before, counted)
			}
		})
	}
}
