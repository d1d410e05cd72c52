package live

import (
	"context"
	"testing"
	"time"

	"weir/internal/media"
	"weir/internal/weir"
)

// ranges returns what there is of the session on air.
func (s *testHub) ranges(id string) []weir.ClipRange {
	s.Helper()
	ranges, err := s.hub.Ranges(id)
	if err != nil {
		s.Fatal(err)
	}
	return ranges
}

// wallOf returns the time of the wall clock at which a session is on its timeline.
func wallOf(session weir.Session, at time.Duration) time.Time {
	return session.CreatedAt.Time().Add(at)
}

// numbersOf returns the numbers of the frames of a track.
func numbersOf(t *testing.T, track *media.Track) (numbers []byte) {
	t.Helper()
	for n := range track.Index().Segments {
		fragments, err := track.Fragments(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range fragments {
			at := 0
			for _, sample := range f.Samples {
				numbers = append(numbers, f.Data[at])
				at += int(sample.Size)
			}
		}
	}
	return numbers
}

// What clips can be cut from grows with the stream, and ends where the encoder was away.
func TestClipRanges(t *testing.T) {
	for name, record := range map[string]bool{"recorded": true, "not recorded": false} {
		t.Run(name, func(t *testing.T) {
			s := newTestHub(t, record)
			e := s.publish()
			if _, err := s.hub.Ranges(e.session.info.ID); weir.KindOf(err) != weir.NotFound {
				t.Errorf("before the first frame: %v", err)
			}
			if err := e.send(201); err != nil {
				t.Fatal(err)
			}
			id := e.session.info.ID
			all := s.ranges(id)
			length := 201 * time.Second
			if !record { // what the playlist shows
				length = 61 * time.Second
			}
			if len(all) != 1 || time.Duration((all[0].End-all[0].Start)*1e6) > length || time.Duration((all[0].End-all[0].Start)*1e6) < length-time.Second {
				t.Fatalf("ranges %v, want one of %v", all, length)
			}
			tracks, over, err := s.hub.Tracks(id)
			if err != nil || over || len(tracks) != 2 {
				t.Fatalf("%d tracks, over %v, error %v", len(tracks), over, err)
			}
			if first := media.SpansOf(tracks[0].Index()); record && first[0] != all[0] || !record && first[0].Start > all[0].Start-60_000 {
				t.Errorf("the video has %v, the range is %v", first, all)
			}
			e.Close(true)
			back := s.publish()
			if err := back.send(3); err != nil {
				t.Fatal(err)
			}
			if more := s.ranges(id); len(more) != 2 || more[1].Start < more[0].End {
				t.Errorf("after a reconnect: %v", more)
			}
			s.end()
			ended := s.ranges(id)
			tracks, over, err = s.hub.Tracks(id)
			if err != nil || !over || len(ended) != 2 {
				t.Fatalf("at the end: %v, over %v, error %v", ended, over, err)
			}
			numbers := numbersOf(t, tracks[0])
			if got := numbers[len(numbers)-75:]; got[0] != 0 || got[74] != 74 {
				t.Errorf("the last frames are %v", got)
			}
			if _, err := s.hub.Ranges("another"); weir.KindOf(err) != weir.NotFound {
				t.Errorf("another session: %v", err)
			}
		})
	}
}

// The ranges are the same after a restart.
func TestClipRangesAfterRestart(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	e.Close(true)
	before := s.ranges(e.session.info.ID)
	s.stop()
	s.start()
	if after := s.ranges(e.session.info.ID); len(after) != 1 || len(before) != 1 || after[0] != before[0] {
		t.Errorf("after a restart %v, before %v", after, before)
	}
}

// A recording that has ended before the stream has its start and what playlists show.
func TestClipRangesOfEndedRecording(t *testing.T) {
	s := newTestHub(t, true)
	e := s.publish()
	if err := e.send(11); err != nil {
		t.Fatal(err)
	}
	e.session.shrink(func(a *renditions) { a.endRecording("for a test") })
	if err := e.send(200); err != nil {
		t.Fatal(err)
	}
	all := s.ranges(e.session.info.ID)
	if len(all) != 2 || all[0].End-all[0].Start < 10_000 || all[0].End-all[0].Start > 12_500 || all[1].End-all[1].Start < 110_000 {
		t.Errorf("ranges %v", all)
	}
}

// A clip that ends in the future waits for its media, or until it is known that there will be none.
func TestAwait(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(2); err != nil {
		t.Fatal(err)
	}
	id, start := e.session.info.ID, e.clock.start
	soon, cancel := context.WithCancel(t.Context())
	cancel()
	until := wallOf(e.session.info, start+5*time.Second)
	if err := s.hub.Await(soon, id, until); weir.KindOf(err) != weir.Busy {
		t.Errorf("a wait that ends early: %v", err)
	}
	if err := s.hub.Await(t.Context(), id, wallOf(e.session.info, start+time.Second)); err != nil {
		t.Errorf("a wait for what is there: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- s.hub.Await(t.Context(), id, until) }()
	if err := e.send(4); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	tracks, _, err := s.hub.Tracks(id)
	if err != nil {
		t.Fatal(err)
	}
	for _, track := range tracks {
		index := track.Index()
		if end := index.Track.Time(index.End()); end < start+5*time.Second {
			t.Errorf("the %s ends at %v", index.Track.Kind, end)
		}
	}

	// Without an encoder, what is over does not come any more.
	e.Close(true)
	if err := s.hub.Await(t.Context(), id, time.Now()); err != nil {
		t.Error(err)
	}
	go func() { done <- s.hub.Await(t.Context(), id, wallOf(e.session.info, time.Hour)) }()
	s.end()
	if err := <-done; err != nil {
		t.Errorf("when the session ends: %v", err)
	}
}
