package store

import (
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/weir"
)

func TestPush(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		now := time.Now()
		stream, other := liveStream(t, st, false), liveStream(t, st, false)
		var targets []weir.Target
		for _, n := range []weir.NewTarget{{URL: "rtmp://a.example/live/hunter2"}, {URL: "srt://b.example:99", Disabled: true}} {
			target, err := n.Target(stream.UserID, stream.ProjectID, now)
			if err != nil {
				t.Fatal(err)
			}
			inTx(t, st, func(tx *Tx) error { return tx.CreateTarget(ctx, &target) })
			targets = append(targets, target)
		}
		refs := []weir.TargetRef{{ID: targets[0].ID, Profile: "source"}, {ID: targets[1].ID, Profile: "source"}, {ID: targets[0].ID, Profile: "240p0", VideoOnly: true}}
		changed, stop := st.Watch(TopicLive)
		defer stop()
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.UpdateStream(ctx, stream.ID, func(s *weir.Stream) error {
				s.Multistream.Targets = refs
				return nil
			})
			return err
		})
		<-changed // the node that carries the stream is notified of a target

		pushes := func() map[string][]Push {
			t.Helper()
			got, err := st.Pushes(ctx, []string{stream.ID, other.ID})
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		want := map[string][]Push{stream.ID: {{refs[0], targets[0]}, {refs[2], targets[0]}}}
		if diff := cmp.Diff(want, pushes()); diff != "" {
			t.Errorf("pushes (-want +got):\n%s", diff)
		}
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.UpdateTarget(ctx, targets[1].ID, func(target *weir.Target) error {
				target.Disabled = false
				return nil
			})
			return err
		})
		<-changed // and of a change of it
		if got := pushes()[stream.ID]; len(got) != 3 {
			t.Errorf("with all targets enabled there are %d pushes", len(got))
		}
		inTx(t, st, func(tx *Tx) error { return tx.DeleteTarget(ctx, targets[0].ID) })
		<-changed
		if got := pushes()[stream.ID]; len(got) != 1 || got[0].Target.ID != targets[1].ID {
			t.Errorf("without the first target there are the pushes %+v", got)
		}
		if got, err := st.Pushes(ctx, nil); err != nil || len(got) != 0 {
			t.Errorf("pushes of no streams: %v, %v", got, err)
		}
	})
}

// How pushes do is known as long as the session is open.
func TestTargetHealth(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		now := time.Now()
		stream := liveStream(t, st, false)
		health := func() []weir.TargetHealth {
			t.Helper()
			got, err := st.TargetHealth(ctx, stream.ID)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		if got := health(); len(got) != 0 {
			t.Errorf("before the stream is on air: %+v", got)
		}
		_, air := goOnAir(t, st, stream, now)
		beat := Beat{StreamID: stream.ID, Epoch: air.Epoch, SeenAt: weir.At(now), Pushes: []weir.TargetHealth{
			{ID: "a", Profile: "source", Status: "connected", Bitrate: 1e6}, {ID: "b", Profile: "source", Status: "error", LastError: "it's gone"},
		}}
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.RenewOnAir(ctx, []Beat{beat}, now)
			return err
		})
		if diff := cmp.Diff(beat.Pushes, health()); diff != "" {
			t.Errorf("while it is on air (-want +got):\n%s", diff)
		}
		inTx(t, st, func(tx *Tx) error {
			_, err := tx.CloseSession(ctx, beat, now)
			return err
		})
		if got := health(); len(got) != 0 {
			t.Errorf("after the session: %+v", got)
		}
	})
}

func TestEmitPush(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		stream := liveStream(t, st, false)
		target, err := weir.NewTarget{URL: "rtmp://a.example/live/hunter2", Name: "there"}.Target(stream.UserID, stream.ProjectID, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		inTx(t, st, func(tx *Tx) error {
			return tx.EmitPush(ctx, weir.MultistreamError, stream.ID, Push{weir.TargetRef{ID: target.ID, Profile: "source"}, target}, time.Now())
		})
		events, err := st.Events(ctx, stream.UserID, stream.ProjectID, 0, 10)
		if err != nil || len(events) != 1 {
			t.Fatalf("events %+v, %v; want one", events, err)
		}
		want := `{"target":{"id":"` + target.ID + `","name":"there","profile":"source"}}`
		if e := events[0]; e.Name != weir.MultistreamError || string(e.Payload) != want || e.StreamID != stream.ID || len(e.Stream) == 0 {
			t.Errorf("event %s of stream %s with %s; want %s", e.Name, e.StreamID, e.Payload, want)
		}
	})
}

// An event of a push shows the stream as the events before it have left it, also when both
// are written at the same time.
func TestPushEventsFollowTheStream(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		stream := liveStream(t, st, false)
		push := Push{weir.TargetRef{ID: "x", Profile: weir.SourceProfile}, weir.Target{ID: "x", Name: "platform"}}
		var telling sync.WaitGroup
		stop := make(chan struct{})
		end := sync.OnceFunc(func() {
			close(stop)
			telling.Wait()
		})
		defer end()
		telling.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := st.Tx(ctx, func(tx *Tx) error {
					return tx.EmitPush(ctx, weir.MultistreamConnected, stream.ID, push, time.Now())
				}); err != nil {
					t.Error(err)
					return
				}
			}
		})
		for range 40 {
			now := time.Now()
			_, air := goOnAir(t, st, stream, now)
			if err := goOffAir(ctx, st, beatOf(air, now, 1), now); err != nil {
				t.Fatal(err)
			}
		}
		end()
		events, err := st.Events(ctx, stream.UserID, stream.ProjectID, 0, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		active, pushes := false, 0
		for _, e := range events {
			var shown struct{ IsActive bool }
			if err := json.Unmarshal(e.Stream, &shown); err != nil {
				t.Fatal(err)
			}
			if e.Name != weir.MultistreamConnected {
				active = e.Name == weir.StreamStarted
				continue
			}
			if pushes++; shown.IsActive != active {
				t.Fatalf("event %d of a push says that the stream is active: %t; the events before it say %t", e.Seq, shown.IsActive, active)
			}
		}
		if pushes == 0 {
			t.Error("no push emitted an event")
		}
	})
}
