package store

import (
	"slices"
	"testing"
	"time"

	"weir/internal/weir"
)

// testSilentNode shows what becomes of the streams of a node that is silent: others
// take them off the air, another node or the same one continues the session, or
// it is closed when its time is over.
func testSilentNode(t *testing.T, a, b *Store) {
	const began, over = "stream.started:a recording.started:a stream.idle:a", " recording.waiting:a"
	for _, tt := range []struct {
		name string
		then func(t *testing.T, stream weir.Stream, session weir.Session, air OnAir)
	}{
		{"another continues", func(t *testing.T, stream weir.Stream, session weir.Session, air OnAir) {
			now := time.Now()
			next, taken := goOnAir(t, b, stream, now)
			if len(next.Earlier) != 1 || next.Earlier[0].Node != "node-a" || taken.Sequence <= air.NextSequence || taken.Discontinuities < air.Discontinuities {
				t.Errorf("after %+v the next period is %+v of %+v", air, taken, next)
			}
			if next.ID != session.ID || taken.Epoch != air.Epoch+1 || taken.Node != "node-b" || next.SourceBytes != 10 {
				t.Errorf("session %s, %+v; want %s with node-b", next.ID, taken, session.ID)
			}
			checkLost(t, a, now, beatOf(air, now, 20), weir.EndTakenOver)
			checkTold(t, b, stream.ID, began+" stream.started:a")
			if _, err := closeSession(t.Context(), b, beatOf(taken, now, 30), now); err != nil {
				t.Fatal(err)
			}
			inTx(t, b, func(tx *Tx) error {
				recording := weir.NewRecording(&next, &stream, now)
				recording.Ready(now)
				return tx.CreateAsset(t.Context(), &recording)
			})
			if needed, err := a.NeedsFiles(t.Context(), session.ID); err != nil || needed {
				t.Errorf("the files of the first node are needed: %t, %v; the asset has them", needed, err)
			}
			inTx(t, b, func(tx *Tx) error {
				_, err := tx.UpdateSession(t.Context(), session.ID, func(s *weir.Session) error { s.Earlier[0].Lost = true; return nil })
				return err
			})
			if needed, err := a.NeedsFiles(t.Context(), session.ID); err != nil || !needed {
				t.Errorf("the files of the first node are needed: %t, %v; the asset does not have them", needed, err)
			}
		}},
		{"it was only asleep", func(t *testing.T, stream weir.Stream, _ weir.Session, air OnAir) {
			now := time.Now()
			checkLost(t, a, now, beatOf(air, air.SeenAt.Time().Add(-time.Hour), 10), "") // nothing new has come
			if streamNow(t, b, stream.ID).IsActive {
				t.Error("active without media")
			}
			checkLost(t, a, now, beatOf(air, now.Add(time.Second), 20), "")
			if !streamNow(t, b, stream.ID).IsActive {
				t.Error("not active although media comes")
			}
			checkTold(t, b, stream.ID, began+" stream.started:a")
		}},
		{"it starts again", func(t *testing.T, stream weir.Stream, session weir.Session, air OnAir) {
			if err := a.register(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer unregister(t, a)
			silence(t, b, stream.ID, time.Hour)
			if err := b.endLapsed(t.Context()); err != nil { // a closes its own
				t.Fatal(err)
			}
			open, err := a.OpenSessions(t.Context(), "node-a", time.Minute)
			open = slices.DeleteFunc(open, func(other OnAir) bool { return other.SessionID != session.ID })
			if err != nil || len(open) != 1 || open[0].Epoch != air.Epoch+1 {
				t.Fatalf("OpenSessions = %+v, %v; want %s", open, err, session.ID)
			}
			now := time.Now()
			checkLost(t, a, now, beatOf(air, now, 20), weir.EndTakenOver) // the former process
			checkLost(t, a, now, beatOf(open[0], now, 20), weir.EndTimeout)
			last := beatOf(open[0], now, 20)
			last.NextSequence = 100
			if _, err := closeSession(t.Context(), a, last, now); err != nil {
				t.Fatal(err)
			}
			checkTold(t, b, stream.ID, began+over)
			if _, next := goOnAir(t, b, stream, now); next.Sequence != 100 {
				t.Errorf("the next session begins with %d, want 100", next.Sequence)
			}
		}},
		{"its time is over", func(t *testing.T, stream weir.Stream, _ weir.Session, air OnAir) {
			silence(t, b, stream.ID, time.Hour)
			for range 2 {
				if err := b.endLapsed(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			checkTold(t, b, stream.ID, began+over)
			if _, err := b.OnAirOf(t.Context(), stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
				t.Errorf("OnAirOf = %v, want not found", err)
			}
			if _, next := goOnAir(t, b, stream, time.Now()); next.Sequence <= air.NextSequence+5 || next.Epoch <= air.Epoch {
				t.Errorf("next session %+v; want numbers that were not seen yet", next)
			}
		}},
		{"its time is over, and its files are in the bucket", func(t *testing.T, stream weir.Stream, session weir.Session, air OnAir) {
			b.adopt = true
			defer func() { b.adopt = false }()
			silence(t, b, stream.ID, time.Hour)
			if err := b.endLapsed(t.Context()); err != nil {
				t.Fatal(err)
			}
			closed, err := b.Session(t.Context(), session.ID)
			if err != nil || len(closed.Earlier) != 1 || closed.Earlier[0].Node != "node-a" {
				t.Errorf("the session is %+v, %v", closed, err)
			}
			origin, err := b.OriginNodeOf(t.Context(), stream.PlaybackID)
			if err == nil && (origin.Node != "node-b" || origin.SessionID != "") {
				t.Errorf("the origin node is %+v", origin)
			}
		}},
		{"its time is over when an encoder comes", func(t *testing.T, stream weir.Stream, session weir.Session, _ OnAir) {
			next, _ := goOnAir(t, b, stream, time.Now().Add(time.Hour))
			if next.ID == session.ID {
				t.Error("a session went on after its time")
			}
			checkTold(t, b, stream.ID, began+over+" stream.started:b recording.started:b")
		}},
		{"it is to end", func(t *testing.T, stream weir.Stream, _ weir.Session, _ OnAir) {
			updateStream(t, b, stream.ID, func(s *weir.Stream) { s.Deleted = true })
			if err := b.endLapsed(t.Context()); err != nil {
				t.Fatal(err)
			}
			checkTold(t, b, stream.ID, began+over)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stream := liveStream(t, a, true)
			session, air := goOnAir(t, a, stream, time.Now())
			checkLost(t, a, time.Now(), beatOf(air, time.Now(), 10), "")
			if err := b.endLapsed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !streamNow(t, b, stream.ID).IsActive {
				t.Fatal("taken off the air while its node is well")
			}
			silence(t, a, stream.ID, 11*time.Second)
			for range 2 {
				if err := b.endLapsed(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if streamNow(t, b, stream.ID).IsActive {
				t.Fatal("active although its node is silent")
			}
			tt.then(t, stream, session, air)
		})
	}
}
