package store

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store/pgtest"
	"weir/internal/weir"
)

// TestLive runs the tests of one node. They share a database, because making one takes
// longer than all of them.
func TestLive(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		t.Run("broadcast", func(t *testing.T) { testBroadcast(t, st) })
		t.Run("stream for publisher", func(t *testing.T) { testStreamForPublisher(t, st) })
		t.Run("unknown session", func(t *testing.T) { testUnknownSession(t, st) })
		t.Run("owner ends", func(t *testing.T) { testOwnerEnds(t, st) })
		t.Run("terminated encoder returns", func(t *testing.T) { testTerminatedEncoderReturns(t, st) })
		t.Run("record changes in the gap", func(t *testing.T) { testRecordChangesInTheGap(t, st) })
		t.Run("renew many", func(t *testing.T) { testRenewMany(t, st) })
	})
}

// TestLiveOnTwoNodes runs the tests of two nodes on one database.
func TestLiveOnTwoNodes(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		t.Run("old epoch writes nothing", func(t *testing.T) { testOldEpochWritesNothing(t, a, b) })
		t.Run("many claim one key", func(t *testing.T) { testManyClaimOneKey(t, a, b) })
		t.Run("silent node", func(t *testing.T) { testSilentNode(t, a, b) })
		t.Run("numbers of a silent node", func(t *testing.T) { testNumbersOfSilentNode(t, a, b) })
		t.Run("numbers that a node has told", func(t *testing.T) { testToldNumbers(t, a, b) })
		t.Run("origin node", func(t *testing.T) { testOrigin(t, a, b) })
		t.Run("everything at once", func(t *testing.T) { testEverythingAtOnce(t, a, b) })
	})
}

// liveStream writes a stream, recorded if so, and the test's own account.
func liveStream(t *testing.T, st *Store, record bool) weir.Stream {
	t.Helper()
	return liveStreamOf(t, st, t.Name(), record)
}

func liveStreamOf(t *testing.T, st *Store, user string, record bool) weir.Stream {
	t.Helper()
	s := newStream(t, "live")
	s.UserID, s.Record = user, record
	inTx(t, st, func(tx *Tx) error {
		if _, exists, err := found(tx.User(t.Context(), user)); err != nil || !exists {
			u := weir.User{ID: user, Kind: "user", Email: user + "@example.com"}
			if err := errors.Join(err, tx.CreateUser(t.Context(), &u)); err != nil {
				return err
			}
		}
		return tx.CreateStream(t.Context(), &s)
	})
	return s
}

// goOnAir has an encoder come to the node.
func goOnAir(t *testing.T, st *Store, stream weir.Stream, now time.Time) (weir.Session, OnAir) {
	t.Helper()
	session, air, err := tryOnAir(t.Context(), st, stream, now)
	if err != nil {
		t.Fatal(err)
	}
	return session, air
}

func tryOnAir(ctx context.Context, st *Store, stream weir.Stream, now time.Time) (session weir.Session, air OnAir, err error) {
	err = st.Tx(ctx, func(tx *Tx) (err error) {
		session, air, err = tx.GoOnAir(ctx, stream, time.Minute, now)
		return err
	})
	return session, air, err
}

func goOffAir(ctx context.Context, st *Store, last Beat, now time.Time) error {
	return st.Tx(ctx, func(tx *Tx) error { return tx.GoOffAir(ctx, last, now) })
}

func closeSession(ctx context.Context, st *Store, last Beat, now time.Time) (session weir.Session, err error) {
	err = st.Tx(ctx, func(tx *Tx) (err error) {
		session, err = tx.CloseSession(ctx, last, now)
		return err
	})
	return session, err
}

func renew(ctx context.Context, st *Store, now time.Time, beats ...Beat) (lost []Lost, err error) {
	err = st.Tx(ctx, func(tx *Tx) (err error) {
		lost, err = tx.RenewOnAir(ctx, beats, now)
		return err
	})
	return lost, err
}

// beatOf is a beat of the owner, with media.
func beatOf(air OnAir, seen time.Time, bytes int64) Beat {
	return Beat{StreamID: air.StreamID, Epoch: air.Epoch, SeenAt: weir.At(seen), Counters: weir.Counters{SourceBytes: bytes, IngestRate: 5}}
}

// checkLost renews and says which streams that must end.
func checkLost(t *testing.T, st *Store, now time.Time, beat Beat, want weir.Ending) {
	t.Helper()
	lost, err := renew(t.Context(), st, now, beat)
	var wanted []Lost
	if want != "" {
		wanted = []Lost{{beat.StreamID, want}}
	}
	if diff := cmp.Diff(wanted, lost); diff != "" || err != nil {
		t.Errorf("lost (-want +got), %v:\n%s", err, diff)
	}
}

// events returns the events of a stream in their order: the name, and for each session a letter.
func events(t *testing.T, st *Store, streamID string) string {
	t.Helper()
	events, err := st.Events(t.Context(), streamNow(t, st, streamID).UserID, "p1", 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]string{}
	var all []string
	for _, e := range events {
		if e.StreamID != streamID {
			continue
		}
		var payload struct{ Session weir.Session }
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			t.Fatal(err)
		}
		if letters[payload.Session.ID] == "" {
			letters[payload.Session.ID] = string(rune('a' + len(letters)))
		}
		all = append(all, string(e.Name)+":"+letters[payload.Session.ID])
	}
	return strings.Join(all, " ")
}

func checkTold(t *testing.T, st *Store, streamID, want string) {
	t.Helper()
	if got := events(t, st, streamID); got != want {
		t.Errorf("events %q\nwant %q", got, want)
	}
}

func streamNow(t *testing.T, st *Store, id string) weir.Stream {
	t.Helper()
	s, err := st.Stream(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// testBroadcast follows a stream from its first frame over a gap to its next session.
func testBroadcast(t *testing.T, st *Store) {
	ctx, now := t.Context(), time.Now()
	stream := liveStream(t, st, true)
	if _, err := st.OnAirOf(ctx, stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
		t.Errorf("OnAirOf before the start: %v, want not found", err)
	}
	session, air := goOnAir(t, st, stream, now)
	if !streamNow(t, st, stream.ID).IsActive || session.ParentID != stream.ID {
		t.Error("not active after the start")
	}
	want := OnAir{
		StreamID: stream.ID, SessionID: session.ID, Node: "node-a", Epoch: 1, Connected: true, Timeout: time.Minute, SeenAt: weir.At(now),
		ExpiresAt: weir.At(now.Add(weir.OnAirLease)), ClosesAt: weir.At(now.Add(weir.OnAirLease + time.Minute)),
	}
	if got, err := st.OnAirOf(ctx, stream.PlaybackID); err != nil || !cmp.Equal(got, want) || !cmp.Equal(air, want) {
		t.Errorf("OnAirOf = %+v, %v; GoOnAir gave %+v; want %+v", got, err, air, want)
	}
	if u, err := st.User(ctx, stream.UserID); err != nil || u.LastStreamedAt != weir.At(now) {
		t.Errorf("the account streamed last at %d, %v; want %d", u.LastStreamedAt, err, weir.At(now))
	}
	beat := Beat{
		StreamID: stream.ID, Epoch: 1, SeenAt: weir.At(now.Add(2 * time.Second)), NextSequence: 2, NextDiscontinuities: 1,
		Counters: weir.Counters{SourceSegments: 2, SourceSegmentsDuration: 4, SourceBytes: 500, IngestRate: 125},
		Received: weir.Received{Protocols: []string{"rtmp"}, Encoded: true},
	}
	checkLost(t, st, now.Add(2*time.Second), beat, "")
	checkLost(t, st, now.Add(2*time.Second), beat, "")
	s := streamNow(t, st, stream.ID)
	kept, err := st.Session(ctx, session.ID)
	if err != nil || !cmp.Equal(kept.Received, beat.Received) || s.Counters != beat.Counters || kept.Counters != beat.Counters || s.LastSeen != beat.SeenAt || kept.LastSeen != beat.SeenAt {
		t.Errorf("after beats: stream %+v, session %+v, %v; want %+v", s.Counters, kept.Counters, err, beat.Counters)
	}

	beat.Counters.SourceBytes = 600
	for range 2 { // twice is once
		if err := goOffAir(ctx, st, beat, now.Add(5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if s := streamNow(t, st, stream.ID); s.IsActive || s.SourceBytes != 600 || s.IngestRate != 0 {
		t.Errorf("off air: active %t, %d bytes, rate %v; want false, 600, 0", s.IsActive, s.SourceBytes, s.IngestRate)
	}
	checkLost(t, st, now.Add(7*time.Second), beat, "") // in the gap it is still ours
	back, air := goOnAir(t, st, stream, now.Add(20*time.Second))
	if back.ID != session.ID || air.Epoch != 2 || air.Sequence != 0 || air.NextSequence != 2 {
		t.Errorf("return: session %s, %+v; want %s, epoch 2, numbers from 0, next 2", back.ID, air, session.ID)
	}

	beat = Beat{StreamID: stream.ID, Epoch: 2, Counters: back.Counters, NextSequence: 9, NextDiscontinuities: 3}
	closed, err := closeSession(ctx, st, beat, now.Add(30*time.Second))
	if err != nil || closed.ID != session.ID {
		t.Fatalf("CloseSession = %s, %v; want %s", closed.ID, err, session.ID)
	}
	if _, err := st.OnAirOf(ctx, stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
		t.Errorf("OnAirOf after the end: %v, want not found", err)
	}
	second, air := goOnAir(t, st, stream, now.Add(40*time.Second))
	if second.ID == session.ID || air.Epoch != 3 || air.Sequence != 9 || air.Discontinuities != 3 {
		t.Errorf("next session %s, %+v; want a new one, epoch 3, numbers from 9 and 3", second.ID, air)
	}
	checkTold(t, st, stream.ID, "stream.started:a recording.started:a stream.idle:a stream.started:a stream.idle:a recording.waiting:a stream.started:b recording.started:b")
}

// testStreamForPublisher checks which encoders may publish, when they connect and when they go on
// air.
func testStreamForPublisher(t *testing.T, st *Store) {
	ctx := t.Context()
	stream := liveStream(t, st, false)
	check := func(name string, want weir.Kind) {
		t.Helper()
		_, byKey := st.StreamForPublisher(ctx, stream.StreamKey)
		_, _, going := tryOnAir(ctx, st, stream, time.Now())
		for _, err := range []error{byKey, going} {
			if (err == nil) != (want == "") || err != nil && weir.KindOf(err) != want {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	setUser := func(change func(*weir.User)) {
		t.Helper()
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.UpdateUser(ctx, stream.UserID, func(u *weir.User) error { change(u); return nil })
			return err
		})
	}
	check("as it is", "")
	setUser(func(u *weir.User) { u.Disabled = true })
	check("account disabled", weir.Refused)
	setUser(func(u *weir.User) { u.Disabled = false })
	updateStream(t, st, stream.ID, func(s *weir.Stream) { s.Suspended = true })
	check("suspended", weir.Refused)
	updateStream(t, st, stream.ID, func(s *weir.Stream) { s.Deleted, s.Suspended = true, false })
	check("deleted", weir.NotFound)
	updateStream(t, st, stream.ID, func(s *weir.Stream) { s.Deleted = false })
	deleteUser(t, st, stream.UserID)
	check("account deleted", weir.NotFound)
	if _, err := st.StreamForPublisher(ctx, "abcd-abcd-abcd-abcd"); weir.KindOf(err) != weir.NotFound {
		t.Errorf("unknown key: %v, want not found", err)
	}
}

func updateStream(t *testing.T, st *Store, id string, change func(*weir.Stream)) {
	t.Helper()
	inTx(t, st, func(tx *Tx) error {
		_, err := tx.UpdateStream(t.Context(), id, func(s *weir.Stream) error { change(s); return nil })
		return err
	})
}

// testOldEpochWritesNothing shows that a node that lost a stream can't change it.
func testOldEpochWritesNothing(t *testing.T, a, b *Store) {
	ctx, now := t.Context(), time.Now()
	stream := liveStream(t, a, true)
	_, first := goOnAir(t, a, stream, now)
	changed, stop := a.Watch(TopicLive)
	defer stop()
	run(t, a)
	session, second := goOnAir(t, b, stream, now.Add(time.Second))
	<-changed
	before := streamNow(t, a, stream.ID)
	old := beatOf(first, now.Add(time.Hour), 1e6)
	old.NextSequence = 1e6
	checkLost(t, a, now.Add(2*time.Second), old, weir.EndTakenOver)
	if err := goOffAir(ctx, a, old, now.Add(2*time.Second)); !errors.Is(err, ErrLostStream) {
		t.Errorf("GoOffAir = %v", err)
	}
	if _, err := closeSession(ctx, a, old, now.Add(2*time.Second)); !errors.Is(err, ErrLostStream) {
		t.Errorf("CloseSession = %v", err)
	}
	if diff := cmp.Diff(before, streamNow(t, b, stream.ID)); diff != "" {
		t.Errorf("the stream changed (-before +after):\n%s", diff)
	}
	if got, err := b.OnAirOf(ctx, stream.PlaybackID); err != nil || !cmp.Equal(got, second) || got.Node != "node-b" || got.SessionID != session.ID {
		t.Errorf("OnAirOf = %+v, %v; want %+v", got, err, second)
	}
	checkLost(t, b, now.Add(2*time.Second), beatOf(second, now, 5), "")
	// A session that is closed has no owner either, with the right epoch too.
	if _, err := closeSession(ctx, b, beatOf(second, now, 5), now.Add(3*time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := closeSession(ctx, b, beatOf(second, now, 5), now.Add(3*time.Second)); !errors.Is(err, ErrLostStream) {
		t.Errorf("second CloseSession = %v", err)
	}
	checkLost(t, b, now.Add(4*time.Second), beatOf(second, now, 5), weir.EndTakenOver)
	checkTold(t, a, stream.ID, "stream.started:a recording.started:a stream.idle:a recording.waiting:a")
}

// testManyClaimOneKey has encoders come to two nodes at once: there is one session,
// and exactly one of them has it in the end.
func testManyClaimOneKey(t *testing.T, a, b *Store) {
	ctx, now := t.Context(), time.Now()
	stream := liveStream(t, a, true)
	const n = 12
	airs, failed := make([]OnAir, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { _, airs[i], failed[i] = tryOnAir(ctx, []*Store{a, b}[i%2], stream, now) })
	}
	wg.Wait()
	epochs, kept := map[int64]bool{}, map[int]bool{}
	for i, air := range airs {
		if failed[i] != nil {
			t.Fatal(failed[i])
		}
		epochs[air.Epoch] = true
		if air.SessionID != airs[0].SessionID {
			t.Errorf("sessions %s and %s", air.SessionID, airs[0].SessionID)
		}
		// What the last one says is the least, so that anybody else's would show.
		lost, err := renew(ctx, []*Store{a, b}[i%2], now, beatOf(air, now, 100-air.Epoch))
		if err != nil {
			t.Fatal(err)
		}
		if len(lost) == 0 {
			kept[i%2] = true
		}
	}
	if written := streamNow(t, a, stream.ID).SourceBytes; len(epochs) != n || len(kept) != 1 || written != 100-n {
		t.Errorf("%d epochs, %d nodes have it, %d bytes; want %d, 1, %d", len(epochs), len(kept), written, n, 100-n)
	}
	checkTold(t, a, stream.ID, "stream.started:a recording.started:a")
	for i, air := range airs {
		if air.Epoch < n {
			continue
		}
		if _, err := closeSession(ctx, []*Store{a, b}[i%2], beatOf(air, now, 0), now); err != nil {
			t.Fatal(err)
		}
	}
	for _, st := range []*Store{a, b} {
		if epoch, ok := st.epochs.Load(stream.ID); ok {
			t.Errorf("the epoch %v of a session that is closed is remembered", epoch)
		}
	}
}

// testEverythingAtOnce has encoders come and go on two nodes while the owner ends their
// sessions: the events stay in order, and fit the final state.
func testEverythingAtOnce(t *testing.T, a, b *Store) {
	ctx := t.Context()
	stream := liveStream(t, a, true)
	broken := make([]error, 4)
	var wg sync.WaitGroup
	for i := range broken {
		wg.Go(func() {
			st, random := []*Store{a, b}[i%2], rand.New(rand.NewPCG(1, uint64(i)))
			var air OnAir
			for n := range 12 {
				now, err := time.Now(), error(nil)
				switch last := beatOf(air, now, int64(n)); {
				case air.Epoch == 0 || random.IntN(3) == 0:
					_, air, err = tryOnAir(ctx, st, stream, now)
				case random.IntN(3) == 0:
					err = goOffAir(ctx, st, last, now)
				case random.IntN(3) == 0:
					_, err = closeSession(ctx, st, last, now)
				case random.IntN(3) == 0:
					err = st.Tx(ctx, func(tx *Tx) error {
						_, err := tx.UpdateStream(ctx, stream.ID, func(s *weir.Stream) error {
							s.LastTerminatedAt = new(weir.Millis(random.Int64()))
							return nil
						})
						return err
					})
				default:
					_, err = renew(ctx, st, now, last)
				}
				if err != nil && !errors.Is(err, ErrLostStream) {
					broken[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(broken...); err != nil {
		t.Fatal(err)
	}
	var active, open string // the session according to the events
	for e := range strings.SplitSeq(events(t, a, stream.ID), " ") {
		name, session, _ := strings.Cut(e, ":")
		fits := true
		switch weir.EventName(name) {
		case weir.StreamStarted:
			fits = active == ""
			active = session
		case weir.StreamIdle:
			fits = active == session
			active = ""
		case weir.RecordingStartedEvent:
			fits = active == session && session > open
			open = session
		case weir.RecordingWaitingEvent:
			fits = active == "" && session == open
		}
		if !fits {
			t.Fatalf("%s does not fit into %s", e, events(t, a, stream.ID))
		}
	}
	if got := streamNow(t, b, stream.ID).IsActive; got != (active != "") {
		t.Errorf("active %t, although the events are %s", got, events(t, a, stream.ID))
	}
}

func unregister(t *testing.T, st *Store) {
	t.Helper()
	if err := st.unregister(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// silence makes as if the node that carries a stream had said nothing for so long.
func silence(t *testing.T, st *Store, streamID string, d time.Duration) {
	t.Helper()
	if _, err := st.conn.exec(t.Context(), "UPDATE live SET seen_at = seen_at - $2, expires_at = expires_at - $2, closes_at = closes_at - $2 WHERE stream_id = $1",
		streamID, d.Milliseconds()); err != nil {
		t.Fatal(err)
	}
}

// testUnknownSession shows that a session is closed that its node, which is well,
// does not know of: the answer to its GoOnAir was lost.
func testUnknownSession(t *testing.T, st *Store) {
	stream := liveStream(t, st, false)
	if err := st.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer unregister(t, st)
	goOnAir(t, st, stream, time.Now())
	look := func() {
		t.Helper()
		inTouch(t, st, time.Now())
		if err := st.endLapsed(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	silence(t, st, stream.ID, time.Hour)
	look()
	look()
	checkTold(t, st, stream.ID, "stream.started:a stream.idle:a")
	if _, err := st.OnAirOf(t.Context(), stream.PlaybackID); err != nil {
		t.Errorf("OnAirOf = %v; a node that has just come may still close its own", err)
	}
	if _, err := st.conn.exec(t.Context(), "UPDATE node SET started_at = 0"); err != nil {
		t.Fatal(err)
	}
	look()
	if _, err := st.OnAirOf(t.Context(), stream.PlaybackID); weir.KindOf(err) != weir.NotFound {
		t.Errorf("OnAirOf = %v, want not found", err)
	}
}

// testOwnerEnds shows that a node hears of every way in which the owner of a stream, or
// the operator, can end its session: on air and in the gap.
func testOwnerEnds(t *testing.T, st *Store) {
	change := func(change func(*weir.Stream)) func(*testing.T, weir.Stream) {
		return func(t *testing.T, s weir.Stream) { updateStream(t, st, s.ID, change) }
	}
	setUser := func(change func(*weir.User)) func(*testing.T, weir.Stream) {
		return func(t *testing.T, s weir.Stream) {
			inTx(t, st, func(tx *Tx) error {
				_, err := tx.UpdateUser(t.Context(), s.UserID, func(u *weir.User) error { change(u); return nil })
				return err
			})
		}
	}
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, s weir.Stream)
		want weir.Ending
	}{
		{"terminate", change(func(s *weir.Stream) { s.LastTerminatedAt = new(weir.Millis(5)) }), weir.EndTerminated},
		{"suspend", change(func(s *weir.Stream) { s.Suspended = true }), weir.EndSuspended},
		{"delete", change(func(s *weir.Stream) { s.Deleted = true }), weir.EndDeleted},
		{"disable the account", setUser(func(u *weir.User) { u.Disabled = true }), weir.EndBlocked},
		{"suspend the account", setUser(func(u *weir.User) { u.Suspended = true }), weir.EndBlocked},
		{"delete the account", func(t *testing.T, s weir.Stream) {
			deleteUser(t, st, s.UserID)
		}, weir.EndBlocked},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, now := t.Context(), time.Now()
			live, gap := liveStream(t, st, true), liveStream(t, st, true)
			_, onAir := goOnAir(t, st, live, now)
			_, away := goOnAir(t, st, gap, now)
			if err := goOffAir(ctx, st, beatOf(away, now, 3), now); err != nil {
				t.Fatal(err)
			}
			changed, stop := st.Watch(TopicLive)
			defer stop()
			updateStream(t, st, live.ID, func(s *weir.Stream) { s.Name = "other" })
			select {
			case <-changed:
				t.Error("notified of a change that ends nothing")
			default:
			}
			for _, s := range []weir.Stream{live, gap} {
				if _, exists, err := found(st.User(ctx, s.UserID)); err != nil {
					t.Fatal(err)
				} else if !exists {
					break // deleted with the first
				}
				tt.do(t, s)
				<-changed
			}
			checkLost(t, st, now, beatOf(onAir, now, 3), tt.want)
			checkLost(t, st, now, beatOf(away, now, 3), tt.want)
			for _, air := range []OnAir{onAir, away} {
				if _, err := closeSession(ctx, st, beatOf(air, now, 3), now); err != nil {
					t.Fatal(err)
				}
				checkTold(t, st, air.StreamID, "stream.started:a recording.started:a stream.idle:a recording.waiting:a")
			}
		})
	}
}

// testTerminatedEncoderReturns shows that an encoder that comes back faster than its
// node can end the session begins a new one.
func testTerminatedEncoderReturns(t *testing.T, st *Store) {
	now := time.Now()
	stream := liveStream(t, st, true)
	session, air := goOnAir(t, st, stream, now)
	last := beatOf(air, now, 3)
	last.NextSequence = 7
	checkLost(t, st, now, last, "")
	updateStream(t, st, stream.ID, func(s *weir.Stream) { s.LastTerminatedAt = new(weir.At(now)) })
	next, taken := goOnAir(t, st, stream, now)
	if next.ID == session.ID || taken.Sequence <= 7 || taken.Ending != "" {
		t.Errorf("session %s, %+v; want a new one with numbers beyond 7", next.ID, taken)
	}
	checkLost(t, st, now, last, "") // an old beat of the same node: it has the stream
	checkLost(t, st, now, beatOf(taken, now, 3), "")
	checkTold(t, st, stream.ID, "stream.started:a recording.started:a stream.idle:a recording.waiting:a stream.started:b recording.started:b")
}

// testRecordChangesInTheGap shows that a stream that is to be recorded is: the session
// that was open is not.
func testRecordChangesInTheGap(t *testing.T, st *Store) {
	now := time.Now()
	stream := liveStream(t, st, false)
	_, air := goOnAir(t, st, stream, now)
	if err := goOffAir(t.Context(), st, beatOf(air, now, 1), now); err != nil {
		t.Fatal(err)
	}
	updateStream(t, st, stream.ID, func(s *weir.Stream) { s.Record = true })
	if next, _ := goOnAir(t, st, stream, now); !next.Record {
		t.Error("not recorded")
	}
	checkTold(t, st, stream.ID, "stream.started:a stream.idle:a stream.started:b recording.started:b")
}

// testRenewMany writes the beats of many streams in one transaction.
func testRenewMany(t *testing.T, st *Store) {
	ctx, now := t.Context(), time.Now()
	const n = beatsAtOnce + 5
	first := liveStream(t, st, false)
	all := []weir.Stream{first}
	for range n - 1 {
		s := newStream(t, "many")
		s.UserID = first.UserID
		all = append(all, s)
	}
	var beats []Beat
	inTx(t, st, func(tx *Tx) error {
		for i, s := range all {
			if i > 0 {
				if err := tx.CreateStream(ctx, &s); err != nil {
					return err
				}
			}
			_, air, err := tx.GoOnAir(ctx, s, time.Minute, now)
			if err != nil {
				return err
			}
			beats = append(beats, beatOf(air, now.Add(time.Second), int64(i)))
		}
		return nil
	})
	beats[3].Epoch++
	updateStream(t, st, beats[beatsAtOnce+2].StreamID, func(s *weir.Stream) { s.Suspended = true })
	lost, err := renew(ctx, st, now.Add(time.Second), beats...)
	why := map[string]weir.Ending{}
	for _, l := range lost {
		why[l.StreamID] = l.Why
	}
	want := map[string]weir.Ending{beats[3].StreamID: weir.EndTakenOver, beats[beatsAtOnce+2].StreamID: weir.EndSuspended}
	if diff := cmp.Diff(want, why); diff != "" || err != nil {
		t.Errorf("lost (-want +got), %v:\n%s", err, diff)
	}
	for i, s := range all {
		got := streamNow(t, st, s.ID)
		if want := int64(i); i != 3 && got.SourceBytes != want {
			t.Errorf("stream %d has %d bytes", i, got.SourceBytes)
		}
	}
	if lost, err := renew(ctx, st, now); err != nil || len(lost) > 0 {
		t.Errorf("no beats: %v, %v", lost, err)
	}
}

// TestRenewSkipsLockedStreams shows that a stream that is being changed does not hold up
// the beats of the others.
func TestRenewSkipsLockedStreams(t *testing.T) {
	st := open(t, pgtest.Start(t), "node-a") // SQLite has one writer
	ctx, now := t.Context(), time.Now()
	held, free := liveStream(t, st, false), liveStream(t, st, false)
	_, heldAir := goOnAir(t, st, held, now)
	_, freeAir := goOnAir(t, st, free, now)
	inTx(t, st, func(tx *Tx) error {
		_, err := tx.UpdateStream(ctx, held.ID, func(s *weir.Stream) error {
			lost, err := renew(ctx, st, now, beatOf(heldAir, now, 7), beatOf(freeAir, now, 7))
			if len(lost) > 0 {
				t.Errorf("lost %v", lost)
			}
			return err
		})
		return err
	})
	if a, b := streamNow(t, st, held.ID).SourceBytes, streamNow(t, st, free.ID).SourceBytes; a != 0 || b != 7 {
		t.Errorf("%d and %d bytes; want the first left out, the second written", a, b)
	}
	checkLost(t, st, now, beatOf(heldAir, now, 8), "")
	if got := streamNow(t, st, held.ID).SourceBytes; got != 8 {
		t.Errorf("%d bytes at the next time, want 8", got)
	}
}

// BenchmarkRenewOnAir writes the beats of a node with 100 streams.
func BenchmarkRenewOnAir(b *testing.B) {
	for name, url := range map[string]string{"sqlite": "sqlite:" + filepath.Join(b.TempDir(), "weir.db"), "postgres": pgtest.Start(b)} {
		b.Run(name, func(b *testing.B) {
			st, err := Open(b.Context(), url, Options{Secret: testSecret, NodeID: "node-a"})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			now := time.Now()
			var beats []Beat
			if err := st.Tx(b.Context(), func(tx *Tx) error {
				u := weir.User{ID: "u1", Kind: "user", Email: "u1@example.com"}
				if err := tx.CreateUser(b.Context(), &u); err != nil {
					return err
				}
				for range 100 {
					s, err := weir.NewStream{Name: "s"}.Stream(&weir.Caller{UserID: "u1", ProjectID: "p1"}, now)
					if err != nil {
						return err
					}
					if err := tx.CreateStream(b.Context(), &s); err != nil {
						return err
					}
					_, air, err := tx.GoOnAir(b.Context(), s, time.Minute, now)
					if err != nil {
						return err
					}
					beats = append(beats, beatOf(air, now, 1))
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				now = now.Add(2 * time.Second)
				for i := range beats {
					beats[i].SeenAt = weir.At(now)
					beats[i].Counters.SourceBytes += 1000
				}
				if lost, err := renew(b.Context(), st, now, beats...); err != nil || len(lost) > 0 {
					b.Fatal(lost, err)
				}
			}
		})
	}
}
