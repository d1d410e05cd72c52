package live

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store"
	"weir/internal/weir"
)

// TestStats counts what passes, and does not forget it when a session is let go.
func TestStats(t *testing.T) {
	s := newTestHub(t, false)
	if _, err := s.hub.Publish(t.Context(), "0000-0000-0000-0000", Source{}); weir.KindOf(err) != weir.NotFound {
		t.Fatalf("an unknown key: %v", err)
	}
	check := func(when string, want Stats) {
		t.Helper()
		got := s.hub.Stats()
		if open := want.Sessions > 0; (got.BeatAge > 0) != open {
			t.Errorf("%s: the last beat of %d sessions is %v old", when, want.Sessions, got.BeatAge)
		}
		got.BeatAge = 0
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	check("nothing came", Stats{Refused: 1})

	e := s.publish()
	if err := e.send(2); err != nil {
		t.Fatal(err)
	}
	// Five frames of 40 ms are a part; the last picture and what follows are in hand.
	now := Stats{OnAir: 1, Sessions: 1, BytesIn: int64(e.frame*100 + e.audio), Parts: s.hub.Stats().Parts, Admitted: 1, Refused: 1}
	check("on air", now)
	if now.Parts < 15 || now.Parts > 20 {
		t.Errorf("%d parts of two seconds of picture and sound, want about 18", now.Parts)
	}
	e.Close(true)
	now.OnAir, now.Parts = 0, s.hub.Stats().Parts
	check("in the gap", now)
	s.write(func(tx *store.Tx) error {
		_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(st *weir.Stream) error { return st.Terminate(time.Now()) })
		return err
	})
	s.hub.beat(t.Context())
	now.Sessions = 0
	check("over", now)
	s.hub.closeEnded(time.Now().Add(2 * shownAfter))
	check("forgotten", now)
}

// TestHealthReachesTheStore has a session whose encoder sends key frames too rarely.
func TestHealthReachesTheStore(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(1); err != nil {
		t.Fatal(err)
	}
	session := e.session
	healthy := func() weir.Stream {
		t.Helper()
		s.hub.beat(t.Context())
		st, err := s.store.Stream(t.Context(), s.stream.ID)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := healthy(); st.IsHealthy == nil || !*st.IsHealthy || len(st.Issues) > 0 {
		t.Errorf("at first healthy %v, %q", st.IsHealthy, st.Issues)
	}
	session.mu.Lock()
	session.health.interval = 8300 * time.Millisecond
	session.health.unsaved = []weir.HealthSample{{Time: weir.At(time.Now()), Bitrate: 5}}
	session.mu.Unlock()
	st := healthy()
	want := []string{"key frames every 8.3 s; set the encoder's key-frame interval to 2 s"}
	if diff := cmp.Diff(want, st.Issues); diff != "" || st.IsHealthy == nil || *st.IsHealthy {
		t.Errorf("healthy %v, issues (-want +got):\n%s", st.IsHealthy, diff)
	}
	if n := s.hub.Stats().Unhealthy; n != 1 {
		t.Errorf("%d streams are not well, want 1", n)
	}
	samples, err := s.store.HealthSamples(t.Context(), s.stream.ID, 0, 0)
	if err != nil || len(samples) != 1 || samples[0].Bitrate != 5 {
		t.Errorf("samples %+v, %v", samples, err)
	}
	e.Close(false)
	if st := healthy(); len(st.Issues) != 1 || st.Issues[0] != "the connection of the encoder was lost 0 s ago; reconnect it" {
		t.Errorf("after the connection was lost: %q", st.Issues)
	}
}

// A node counts the sessions that it continues, and the numbers that it leaves out for that.
func TestHandoverStats(t *testing.T) {
	a := newTestHub(t, false)
	b := a.another()
	if err := a.publish().send(5); err != nil {
		t.Fatal(err)
	}
	a.hub.beat(t.Context())
	if err := b.publish().send(1); err != nil {
		t.Fatal(err)
	}
	if first, second := a.hub.Stats(), b.hub.Stats(); first.Handovers != 0 || second.Handovers != 1 || second.Skipped < 16 {
		t.Errorf("the first node counts %+v, the second %+v", first, second)
	}
}

// Every part is reported when viewers can fetch it.
func TestPublishedParts(t *testing.T) {
	s := newTestHub(t, false)
	var published int64
	s.hub.o.Published = func(lag time.Duration) {
		if published++; lag < 0 {
			t.Errorf("published %v ahead", lag)
		}
	}
	if err := s.publish().send(5); err != nil {
		t.Fatal(err)
	}
	if n := s.hub.Stats().Parts; n == 0 || published != n {
		t.Errorf("of %d parts %d are reported", n, published)
	}
}
