package live

import (
	"bytes"
	"context"
	"testing"
	"time"

	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

// faults are what a database does that is away.
var faults = map[string]func(testing.TB, string) func(){"errs": pgtest.Cut, "hangs": pgtest.Hang}

// newTestHubOn is newTestHub on PostgreSQL.
func newTestHubOnPostgreSQL(t *testing.T, record bool) *testHub {
	t.Helper()
	return newTestHubOn(t, storetest.PostgreSQL(t, store.Open, storeOptions("")), record)
}

// An encoder returns while the database is away: it continues its session, and others must wait. What
// happened meanwhile is written when the database is back.
func TestEncoderReturnsWithoutDatabase(t *testing.T) {
	t.Parallel()
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestHubOnPostgreSQL(t, true)
			e := s.publish()
			if err := e.send(5); err != nil {
				t.Fatal(err)
			}
			s.hub.beat(t.Context())
			before := s.air()
			back := fault(t, s.database)
			e.Close(false)
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := s.hub.Publish(soon, "1111-2222-3333-4444", Source{Protocol: "test"}); err == nil || !weir.Retriable(err) {
				t.Errorf("an unknown key: %v", err)
			}
			again := s.publish()
			if again.session != e.session {
				t.Errorf("session %s continues as %s", e.session.info.ID, again.session.info.ID)
			}
			again.frame = 150
			if err := again.send(5); err != nil {
				t.Fatal(err)
			}
			back()
			for range 2 {
				s.hub.beat(t.Context())
			}
			if got := s.frames(videoName, 0, 1, 2, 3, 4); len(got) != 225 || !bytes.Contains(got, []byte{124, 150}) {
				t.Errorf("the segments have the frames %v", got)
			}
			after := s.air()
			if after.SessionID != before.SessionID || !after.Connected || after.NextSequence < before.NextSequence+2 || after.Epoch != before.Epoch {
				t.Errorf("of %+v becomes %+v", before, after)
			}
			if stream, err := s.store.Stream(t.Context(), s.stream.ID); err != nil || !stream.IsActive {
				t.Errorf("%+v, %v", stream, err)
			}
			s.write(func(tx *store.Tx) error {
				_, err := tx.UpdateStream(t.Context(), s.stream.ID, func(s *weir.Stream) error { s.Suspended = true; return nil })
				return err
			})
			if _, err := s.hub.Publish(t.Context(), s.stream.StreamKey.Reveal(), Source{Protocol: "test"}); weir.KindOf(err) != weir.Refused {
				t.Errorf("the encoder of a suspended stream, with a database: %v", err)
			}
		})
	}
}

// The database takes an encoder that returns, and its answer is lost: the session goes on, and so do
// its beats.
func TestLeaseIsConfirmed(t *testing.T) {
	s := newTestHub(t, false)
	e := s.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	s.hub.beat(t.Context())
	before := s.air()
	s.write(func(tx *store.Tx) error {
		_, _, err := tx.GoOnAir(t.Context(), s.stream, time.Minute, time.Now())
		return err
	})
	e.session.unconfirm()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	s.hub.beat(t.Context())
	if after := s.air(); after.NextSequence < before.NextSequence+2 || after.Epoch != before.Epoch+1 {
		t.Errorf("of %+v becomes %+v", before, after)
	}
	for range confirmations {
		s.hub.beat(t.Context())
	}
	if e.session.unconfirmed != 0 {
		t.Error("the lease is read for ever")
	}
}

// A beat that the database does not answer ends, and a later one is saved.
func TestBeatEndsWithoutDatabase(t *testing.T) {
	t.Parallel()
	s := newTestHubOnPostgreSQL(t, false)
	s.hub.o.maxStore = 100 * time.Millisecond
	e := s.publish()
	if err := e.send(5); err != nil {
		t.Fatal(err)
	}
	back := pgtest.Hang(t, s.database)
	s.hub.beat(t.Context())
	if since := e.session.lastBeat; time.Since(since) == 0 {
		t.Error("a beat is saved without a database")
	}
	back()
	s.hub.o.maxStore = storeTimeout
	s.hub.beat(t.Context())
	if n := s.air().NextSequence; n < 3 {
		t.Errorf("%d segments are reported", n)
	}
}

// air returns what the store knows of the stream.
func (s *testHub) air() store.OnAir {
	s.Helper()
	air, err := s.store.OnAirOf(s.Context(), s.stream.PlaybackID)
	if err != nil {
		s.Fatal(err)
	}
	return air
}
