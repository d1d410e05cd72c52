package live

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"weir/internal/cmaf"
	"weir/internal/media"
	"weir/internal/store"
	"weir/internal/weir"
)

// testDisk is a disk of which 100 bytes should be free.
type testDisk struct {
	*testHub
	free int64
	now  time.Time
}

func (s *testHub) newDisk() *testDisk {
	d := &testDisk{testHub: s, free: 1000, now: time.Now()}
	s.hub.o.Space = func() (Space, error) { return Space{Free: d.free, Keep: 100}, nil }
	return d
}

// check lets the hub look at the disk when so much is free.
func (d *testDisk) check(free int64) {
	d.free, d.now = free, d.now.Add(spaceEvery)
	d.hub.checkSpace(d.now)
}

// recover lets the hub look at a disk that has been empty for a while.
func (d *testDisk) recover() {
	d.check(1000)
	d.now = d.now.Add(calmFor)
	d.check(1000)
}

// beside returns another stream of the hub.
func (s *testHub) beside(record bool) *testHub {
	s.Helper()
	stream, err := weir.NewStream{Name: "y", Profiles: &[]weir.Profile{}, Record: record}.Stream(&weir.Caller{UserID: s.stream.UserID}, time.Now())
	if err != nil {
		s.Fatal(err)
	}
	s.write(func(tx *store.Tx) error { return tx.CreateStream(s.Context(), &stream) })
	other := *s
	other.stream = stream
	return &other
}

// issues returns the issues of the stream, in one text.
func (s *testHub) issues() string {
	s.Helper()
	session := s.broadcast().session
	session.mu.Lock()
	defer session.mu.Unlock()
	return strings.Join(session.issues(time.Now(), nil), "\n")
}

// saysOf checks whether a text is among the issues of the stream.
func (s *testHub) saysOf(text string, want bool) {
	s.Helper()
	if issues := s.issues(); strings.Contains(issues, text) != want {
		s.Errorf("the issues are %q; want %q in them: %v", issues, text, want)
	}
}

// number returns the number after a tag of a playlist; 0 = it has none.
func number(t *testing.T, list, tag string) int {
	t.Helper()
	found := regexp.MustCompile(tag + `:(\d+)`).FindStringSubmatch(list)
	if found == nil {
		return 0
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// window returns the numbers in a playlist: of its first segment, of discontinuities before it, and
// of its segments.
func (s *testHub) window(name string) (first, breaks, segments int) {
	s.Helper()
	list := s.playlist(name, plain)
	return number(s.T, list, "#EXT-X-MEDIA-SEQUENCE"), number(s.T, list, "#EXT-X-DISCONTINUITY-SEQUENCE"), strings.Count(list, "#EXTINF")
}

// onDisk returns how many segments of a rendition there are on disk.
func (s *testHub) onDisk(name string) int {
	s.Helper()
	files, err := filepath.Glob(filepath.Join(s.broadcast().session.renditions.dir, name, "*.m4s"))
	if err != nil {
		s.Fatal(err)
	}
	return len(files)
}

func TestSpaceSteps(t *testing.T) {
	var s space
	now := time.Now()
	for i, tt := range []struct {
		free  int64
		later time.Duration
		want  step
	}{
		{1000, 0, normal},
		{100, 0, normal},
		{99, 0, scarce},
		{75, 0, scarce},
		{74, 0, refusing},
		{49, 0, cutting},
		{24, 0, full},
		{30, time.Hour, full}, // not enough to go on
		{32, 0, cutting},      // at once
		{62, time.Hour, cutting},
		{63, 0, cutting},
		{63, calmFor - 1, cutting},
		{62, 0, cutting}, // so it begins anew
		{63, time.Hour, cutting},
		{63, calmFor, refusing},
		{200, 0, refusing},
		{10, 0, full}, // several steps at once
		{200, 0, normal},
		{99, 0, scarce},
		{124, time.Hour, scarce},
		{126, 0, scarce},
		{126, calmFor, normal},
	} {
		now = now.Add(tt.later)
		if got := s.update(Space{Free: tt.free, Keep: 100}, now); got != tt.want {
			t.Fatalf("%d: with %d free of 100 it is step %d, want %d", i, tt.free, got, tt.want)
		}
	}
}

// On a disk that is nearly full playlists become short, and what they do not show is deleted at
// once. No playlist goes back. With more room they grow again.
func TestPlaylistsBecomeShort(t *testing.T) {
	s := newTestHub(t, false)
	d := s.newDisk()
	e := s.publish()
	send := func(seconds float64) {
		t.Helper()
		if err := e.send(seconds); err != nil {
			t.Fatal(err)
		}
	}
	send(131)
	e.Close(false)
	e = s.publish()
	send(21)
	e.Close(false)
	e = s.publish()
	send(5)
	windows := map[string][3]int{}
	follow := func(what string, length float64) {
		t.Helper()
		for _, name := range []string{videoName, audioName} {
			first, breaks, n := s.window(name)
			before := windows[name]
			list := s.playlist(name, plain)
			durations := durations(t, list)
			sum := 0.0
			for _, d := range durations {
				sum += d
			}
			if sum < length-0.1 || sum-durations[0] > length+0.1 {
				t.Errorf("%s: %s shows %.1f s, want %.1f and less than a segment more:\n%s", what, name, sum, length, list)
			}
			if first < before[0] || breaks < before[1] || first+n < before[0]+before[2] {
				t.Errorf("%s: the playlist goes back: from segment %d after %d discontinuities with %d segments to %d after %d with %d", what, before[0], before[1], before[2], first, breaks, n)
			}
			// Discontinuities do not vanish: they are in the playlist or before it.
			if all := breaks + strings.Count(list, "#EXT-X-DISCONTINUITY\n"); all != 2 {
				t.Errorf("%s: there are %d discontinuities, want 2:\n%s", what, all, list)
			}
			windows[name] = [3]int{first, breaks, n}
			for i := range n {
				body, _, err := s.broadcast().Segment(name, int64(first+i))
				if err != nil {
					t.Fatalf("%s: segment %d is in the playlist: %v", what, first+i, err)
				}
				body.Close()
			}
		}
	}
	first, _, _ := s.window(videoName)
	follow("before", 60)
	d.check(200)
	follow("room", 60)
	if s.onDisk(videoName) < 50 {
		t.Errorf("%d segments are on disk, want a window and as many before", s.onDisk(videoName))
	}
	d.check(99)
	follow("scarce", 12)
	if got := s.onDisk(videoName); got != windows[videoName][2]+1 { // the open one
		t.Errorf("%d segments are on disk, want those of the playlist", got)
	}
	if now, _, _ := s.window(videoName); now <= first {
		t.Errorf("the playlist begins at %d, and began at %d", now, first)
	}
	s.saysOf("playlists are shorter than usual", true)
	send(20)
	follow("on", 12)
	if got := s.onDisk(videoName); got > 6+2 { // the open one, and one that is written next
		t.Errorf("%d segments are on disk after a while", got)
	}
	d.recover()
	s.saysOf("disk", false)
	follow("room again", 12)
	send(10)
	follow("growing", 22)
	send(100)
	follow("grown", 60)
}

// durations returns the durations of the segments in a playlist.
func durations(t *testing.T, list string) (all []float64) {
	t.Helper()
	for _, found := range regexp.MustCompile(`#EXTINF:([0-9.]+)`).FindAllStringSubmatch(list, -1) {
		d, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// HLS wants three segments in a playlist, however long they are.
func TestShortPlaylistOfLongSegments(t *testing.T) {
	s := newTestHub(t, false)
	d := s.newDisk()
	e := s.publish()
	for range 8 {
		if err := e.frames(200, 10, 40*time.Millisecond, false); err != nil { // 8 seconds
			t.Fatal(err)
		}
		e.frame += 200
	}
	d.check(90)
	if _, _, n := s.window(videoName); n != shortSegments {
		t.Errorf("the playlist has %d segments, want %d", n, shortSegments)
	}
}

// Below the limit a stream goes on and is continues without recording. What was recorded stays, and can be
// watched; what comes after that is deleted again.
func TestRecordingEnds(t *testing.T) {
	s := newTestHub(t, true)
	d := s.newDisk()
	e := s.publish()
	if err := e.send(7); err != nil {
		t.Fatal(err)
	}
	d.check(99) // shorter playlists may be enough
	d.check(101)
	s.saysOf("continues without recording", false)
	d.check(99)
	s.saysOf("continues without recording", true)
	d.recover() // that does not bring back what was left out
	if err := e.send(150); err != nil {
		t.Fatal(err)
	}
	s.saysOf("continues without recording", true)
	check := func() {
		t.Helper()
		for n, want := range map[int64]bool{0: true, 3: true, 4: false, 70: true} {
			body, _, err := s.broadcast().Segment(videoName, n)
			if (err == nil) != want {
				t.Errorf("segment %d: error %v, want it there: %v", n, err, want)
			}
			if err == nil {
				body.Close()
			}
		}
		for _, name := range []string{videoName, audioName} {
			whole, err := s.broadcast().WholePlaylist(name)
			list := plainOf(whole)
			if err != nil || !strings.HasSuffix(list, "\n3.m4s\n#EXT-X-ENDLIST\n") || strings.Count(list, "#EXTINF") != 4 {
				t.Errorf("the list of what is recorded of %s: error %v\n%s", name, err, list)
			}
		}
		if got := s.frames(videoName, 0, 1, 2, 3); len(got) != 200 || got[175] != 175 {
			t.Errorf("%d frames are recorded", len(got))
		}
		if m := s.broadcast().Recorded(); len(m.Video) != 1 || len(m.Audio) != 1 {
			t.Errorf("recorded are %+v", m)
		}
	}
	check()
	s.stop()
	s.start()
	check()
	// It is not recorded again: the next end would find something to delete before it.
	if err := s.publish().send(5); err != nil {
		t.Fatal(err)
	}
	s.saysOf("continues without recording", true)
	check()
}

// A stream that is to be recorded and begins on a full disk is on air.
func TestRecordingDoesNotBegin(t *testing.T) {
	s := newTestHub(t, true)
	d := s.newDisk()
	d.check(90)
	e := s.publish()
	d.check(90)
	if err := e.send(150); err != nil {
		t.Fatal(err)
	}
	if n := s.onDisk(videoName); n > 6+2 {
		t.Errorf("%d segments are on disk", n)
	}
	if m := s.broadcast().Recorded(); len(m.Video)+len(m.Audio) > 0 {
		t.Errorf("recorded are %+v", m)
	}
	s.saysOf("continues without recording", true)
}

// With less space new streams are refused. Those on air stay, and their encoders may reconnect.
func TestNewEncodersAreRefused(t *testing.T) {
	s := newTestHub(t, false)
	d, other := s.newDisk(), s.beside(false)
	e := s.publish()
	if err := e.send(3); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if weir.KindOf(err) != weir.Full || !strings.Contains(err.Error(), "not enough disk space for another stream") {
			t.Errorf("%s: error %v, want that there is no room", what, err)
		}
	}
	d.check(80)
	waiting, err := s.hub.Publish(t.Context(), other.stream.StreamKey.Reveal(), Source{})
	if err != nil {
		t.Errorf("with some room: %v", err)
	}
	d.check(74)
	_, err = s.hub.Publish(t.Context(), other.stream.StreamKey.Reveal(), Source{})
	refused("a new encoder", err)
	refused("one that was there before", waiting.SetTracks(t.Context(), testTracks(t)))
	if err := e.send(3); err != nil {
		t.Errorf("the encoder on air: %v", err)
	}
	e.Close(false)
	if err := s.publish().send(3); err != nil {
		t.Errorf("it reconnects: %v", err)
	}
	if n := s.hub.Stats(); n.Refused != 1 || n.DiskStep != int64(refusing) {
		t.Errorf("the hub counts %+v", n)
	}
	d.recover()
	if err := other.publish().send(1); err != nil {
		t.Errorf("with room: %v", err)
	}
	if n := s.hub.Stats(); n.DiskStep != 0 {
		t.Errorf("the hub counts %+v", n)
	}
}

// With even less space streams lose their playlists one after the other, those first that lose least,
// and no recording is touched.
func TestPlaylistsAreCut(t *testing.T) {
	recorded := newTestHub(t, true)
	d := recorded.newDisk()
	older, newer, away := recorded.beside(false), recorded.beside(false), recorded.beside(false)
	created := time.Now()
	for i, s := range []*testHub{recorded, older, newer, away} {
		e := s.publish()
		if err := e.send(31); err != nil {
			t.Fatal(err)
		}
		e.session.info.CreatedAt = weir.At(created.Add(time.Duration(i) * time.Second))
		if s == away {
			e.Close(true)
		}
	}
	cut := func() (names string) {
		t.Helper()
		for name, s := range map[string]*testHub{"a recorded": recorded, "b older": older, "c newer": newer, "d away": away} {
			if _, _, n := s.window(videoName); n <= 3 { // the last one may be shorter
				names += name[:1]
			} else if n < 6 {
				t.Errorf("%s: %d segments", name, n)
			}
		}
		return names
	}
	d.check(90)
	for i, want := range []int{1, 2, 3, 4, 4} {
		d.check(45)
		got := cut()
		if len(got) != want || !strings.Contains(got, "d") ||
			strings.Contains(got, "b") != (want > 1) || strings.Contains(got, "c") != (want > 2) || strings.Contains(got, "a") != (want > 3) {
			t.Errorf("after %d checks %q are cut", i+1, got)
		}
	}
	older.saysOf("playlists show the last segments only", true)
	if got := older.onDisk(videoName); got > 3 {
		t.Errorf("%d segments of a stream that is cut are on disk", got)
	}
	if got := recorded.frames(videoName, 0, 5, 10, 14); len(got) != 200 {
		t.Errorf("the recording has lost frames: %d of 200", len(got))
	}
	d.check(60)
	d.recover()
	older.saysOf("disk", false)
	if _, _, n := older.window(videoName); n != 2 {
		t.Errorf("%d segments", n)
	}
}

// The files of a recorded session that is over are not touched: an asset is being made of them.
func TestEndedRecordingIsLeftAlone(t *testing.T) {
	s := newTestHub(t, true)
	d := s.newDisk()
	other := s.beside(false)
	for _, s := range []*testHub{s, other} {
		if err := s.publish().send(31); err != nil {
			t.Fatal(err)
		}
	}
	s.end()
	for range 3 {
		d.check(20)
	}
	if _, _, n := s.window(videoName); n < 15 {
		t.Errorf("the playlist of the session that is over has %d segments", n)
	}
	if got := s.frames(videoName, 0, 7, 14); len(got) != 150 {
		t.Errorf("%d frames of three segments are left", len(got))
	}
	if _, _, n := other.window(videoName); n != 2 {
		t.Errorf("the playlist of the other stream has %d segments, want 2", n)
	}
}

// When only the room of the database is left, nothing is written. The encoder stays, and what it
// sends is there again when there is room.
func TestNothingIsWritten(t *testing.T) {
	for name, record := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, record)
			d := s.newDisk()
			e := s.publish()
			if err := e.send(7); err != nil {
				t.Fatal(err)
			}
			d.check(10)
			before := s.playlist(videoName, Query{Low: true, Segment: -1})
			if err := e.send(20); err != nil {
				t.Errorf("the encoder is told: %v", err)
			}
			s.saysOf("the media of the encoder is dropped", true)
			s.saysOf("has sent nothing", false)
			first, _, n := s.window(videoName)
			if first+n != 4 { // the open one has ended
				t.Errorf("%d segments from %d on, was\n%s", n, first, before)
			}
			d.recover()
			if err := e.send(9); err != nil {
				t.Fatal(err)
			}
			s.saysOf("disk", false)
			list := s.playlist(videoName, plain)
			if strings.Count(list, "#EXT-X-DISCONTINUITY\n") != 1 || !strings.Contains(list, "\n3.m4s\n#EXT-X-DISCONTINUITY\n") || !strings.HasSuffix(list, "\n6.m4s\n") {
				t.Errorf("with room again:\n%s", list)
			}
			for first, segment := range map[int]int64{50: 1, 700: 4, 750: 5} {
				for i, number := range s.frames(videoName, segment) {
					if number != byte(first+i) {
						t.Fatalf("frame %d of segment %d has the number %d, want %d", i, segment, number, byte(first+i))
					}
				}
			}
		})
	}
}

// The disk is really full: an encoder stays, nothing that was written is damaged, and the stream goes
// on when there is room.
func TestNoSpaceLeft(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skipf("a file system can't be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := newTestHub(t, true)
	s.stop()
	s.dir = filepath.Join(dir, "live")
	s.start()
	e := s.publish()
	e.size = 20_000 // a megabyte in a segment
	for range 20 {
		if err := e.send(1); err != nil {
			t.Fatalf("the encoder is told: %v", err)
		}
	}
	s.saysOf("the media of the encoder is dropped", true)
	first, _, n := s.window(videoName)
	if first != 0 || n < 4 {
		t.Errorf("%d segments from %d on are shown", n, first)
	}
	for i, number := range s.frames(videoName, 0, 1, 2, 3) {
		if int(number) != i {
			t.Fatalf("frame %d has the number %d", i, number)
		}
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if err := e.send(9); err != nil {
		t.Fatal(err)
	}
	s.saysOf("disk", false)
	after := s.playlist(videoName, plain)
	if strings.Count(after, "#EXT-X-DISCONTINUITY\n") != 1 {
		t.Errorf("after that:\n%s", after)
	}
	session := e.session
	s.stop()
	for _, name := range []string{videoName, audioName} {
		recorder, err := media.Recover(filepath.Join(session.renditions.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		index, _, err := recorder.Index()
		if err != nil || len(index.Segments) != strings.Count(after, "#EXTINF")+1 {
			t.Errorf("%s: %d segments are recovered, error %v; the list had\n%s", name, len(index.Segments), err, after)
		}
		if err := recorder.Close(); err != nil {
			t.Error(err)
		}
	}
	s.stop = func() {} // it has stopped
}

// Renditions become short with their source. What they miss while nothing is written are gaps, and a
// segment that could not end then does so before the next one.
func TestRungOnFullDisk(t *testing.T) {
	s := newTestHub(t, false)
	d := s.newDisk()
	e := s.publish()
	if err := e.send(41); err != nil {
		t.Fatal(err)
	}
	all := &e.session.renditions
	recorder, err := media.Record(filepath.Join(all.dir, "144p"), all.video.track)
	if err != nil {
		t.Fatal(err)
	}
	r := &rung{profile: weir.Profile{Name: "144p"}, ladder: &ladder{renditions: all}}
	if r.out, err = all.addRung(r.profile, recorder); err != nil {
		t.Fatal(err)
	}
	fill := func() error { return r.fill(all.video.recorder.Next()) }
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	d.check(90)
	if first, _, n := s.window("144p"); first != 14 || n != 6 || s.onDisk("144p") != 6 {
		t.Errorf("%d segments from %d on, %d are on disk", n, first, s.onDisk("144p"))
	}
	// A part is written when the disk becomes full.
	part, data := cmaf.EncodePart(1, all.video.track, cmaf.GapFragment(all.video.track.Ticks(40*time.Second), all.video.track.Ticks(time.Second)))
	if err := r.out.Part(part, false, data); err != nil {
		t.Fatal(err)
	}
	if err := e.send(6); err != nil {
		t.Fatal(err)
	}
	d.check(10)
	if err := fill(); weir.KindOf(err) != weir.Full {
		t.Errorf("error %v, want one of kind full", err)
	}
	d.recover()
	if err := fill(); err != nil {
		t.Fatal(err)
	}
	first, breaks, n := s.window(videoName)
	if ownFirst, ownBreaks, own := s.window("144p"); ownFirst+own != first+n || ownBreaks != breaks {
		t.Errorf("the rendition has %d segments from %d on after %d discontinuities, the source %d from %d on after %d", own, ownFirst, ownBreaks, n, first, breaks)
	}
}
