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
			inTouch(t, b, time.Now())
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
			checkLost(t, a, now, beatOf(open[0], now.Add(-time.Hour), 20), weir.EndTimeout)
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
			inTouch(t, b, time.Now())
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
			inTouch(t, b, time.Now())
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
			inTouch(t, b, time.Now())
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
			inTouch(t, b, time.Now())
			if err := b.endLapsed(t.Context()); err != nil {
				t.Fatal(err)
			}
			if !streamNow(t, b, stream.ID).IsActive {
				t.Fatal("taken off the air while its node is well")
			}
			inTouch(t, b, time.Now())
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

// testNumbersOfSilentNode shows that whoever continues the numbers of a node that is silent skips those
// that it may have used, however long that was.
func testNumbersOfSilentNode(t *testing.T, a, b *Store) {
	ctx := t.Context()
	begin := func() (weir.Stream, OnAir, Beat) {
		t.Helper()
		stream := liveStream(t, a, true)
		_, air := goOnAir(t, a, stream, time.Now())
		beat := beatOf(air, time.Now(), 10)
		beat.NextSequence, beat.NextDiscontinuities = 7, 3
		checkLost(t, a, time.Now(), beat, "")
		return stream, air, beat
	}
	check := func(what string, got OnAir, sequence, discontinuities int64) {
		t.Helper()
		if got.Sequence < sequence || got.Sequence > sequence+10 || got.Discontinuities < discontinuities || got.Discontinuities > discontinuities+10 {
			t.Errorf("%s continues with segment %d and discontinuity %d, want %d and %d or a few more", what, got.Sequence, got.Discontinuities, sequence, discontinuities)
		}
	}

	stream, _, _ := begin()
	silence(t, a, stream.ID, 40*time.Second)
	_, taken := goOnAir(t, b, stream, time.Now())
	check("another node", taken, 7+16+20, 2)

	stream, _, _ = begin()
	silence(t, a, stream.ID, 64*time.Second)
	_, taken = goOnAir(t, b, stream, time.Now())
	check("another node, when playlists of the first may have forgotten a discontinuity", taken, 7+16+32, 2+2)

	// An encoder may have come back to a node that had said that it was exact.
	stream, _, beat := begin()
	beat.Final = true
	checkLost(t, a, time.Now(), beat, "")
	silence(t, a, stream.ID, 30*time.Second)
	_, taken = goOnAir(t, b, stream, time.Now())
	check("another node, after numbers that were exact", taken, 7+16+15, 2)

	// The session is closed in place of its node, which does not know that.
	closed := func() (weir.Stream, Beat) {
		t.Helper()
		stream, _, beat := begin()
		silence(t, a, stream.ID, 100*time.Second)
		inTouch(t, b, time.Now())
		for range 2 {
			if err := b.endLapsed(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.OnAirOf(ctx, stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
			t.Fatalf("the session is open: %v", err)
		}
		return stream, beat
	}
	stream, _ = closed()
	silence(t, a, stream.ID, 100*time.Second)
	_, taken = goOnAir(t, b, stream, time.Now())
	check("the next session", taken, 7+16+100, 3+16+100)

	stream, beat = closed()
	beat.NextSequence, beat.NextDiscontinuities = 1000, 500
	checkLost(t, a, time.Now(), beat, weir.EndTakenOver)
	_, taken = goOnAir(t, b, stream, time.Now())
	check("the next session, after the node is back", taken, 1000+16, 500+16)

	// A node that is restarted is told how long it was silent.
	stream, _, _ = begin()
	silence(t, a, stream.ID, 20*time.Second)
	open, err := a.OpenSessions(ctx, "node-a", time.Minute)
	for _, air := range open {
		if air.StreamID == stream.ID && (air.Silent < 20*time.Second || air.Final) {
			t.Errorf("resumed as %+v", air)
		}
	}
	if err != nil || len(open) == 0 {
		t.Errorf("%d sessions are open, %v", len(open), err)
	}
}

// testToldNumbers shows that a node is asked how far it is as long as that is not known, also when its
// lease is over and others have taken it for dead, and that what it says counts.
func testToldNumbers(t *testing.T, a, b *Store) {
	ctx := t.Context()
	checkAsked := func(what string, stream weir.Stream, wantNode, wantURL string) {
		t.Helper()
		if node, url, err := b.Unreported(ctx, stream.ID); err != nil || node != wantNode || url != wantURL {
			t.Errorf("%s: %q at %q is to be asked, %v; want %q at %q", what, node, url, err, wantNode, wantURL)
		}
	}
	if err := a.AnnounceURL(ctx, "http://10.0.0.1"); err != nil {
		t.Fatal(err)
	}
	stream := liveStream(t, a, true)
	checkAsked("a new stream", stream, "", "")
	_, air := goOnAir(t, a, stream, time.Now())
	checkAsked("on air", stream, "node-a", "http://10.0.0.1")
	if node, _, err := a.Unreported(ctx, stream.ID); err != nil || node != "" {
		t.Errorf("a node asks %q, %v; it is its own stream", node, err)
	}
	unregister(t, a)
	silence(t, a, stream.ID, time.Minute)
	checkAsked("after its lease", stream, "node-a", "http://10.0.0.1")

	inTx(t, b, func(tx *Tx) error {
		return tx.Reported(ctx, stream.ID, weir.Numbers{Epoch: air.Epoch - 1, Sequence: 1e6, Discontinuities: 1e6}, time.Now())
	})
	checkAsked("after numbers of another epoch", stream, "node-a", "http://10.0.0.1")
	inTx(t, b, func(tx *Tx) error {
		return tx.Reported(ctx, stream.ID, weir.Numbers{Epoch: air.Epoch, Sequence: 70, Discontinuities: 5}, time.Now())
	})
	checkAsked("after it has said how far it is", stream, "", "")
	if _, taken := goOnAir(t, b, stream, time.Now()); taken.Sequence != 70 || taken.Discontinuities != 4 {
		t.Errorf("continues with %+v, want 70 and 4", taken)
	}
}
