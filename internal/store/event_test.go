package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"weir/internal/store/pgtest"
	"weir/internal/weir"
)

func TestEvents(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		stream := newStream(t, "s")
		e, err := weir.NewStreamEvent(weir.StreamStarted, stream, map[string]any{"n": 1}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.Emit(ctx, e) }); err != nil {
			t.Fatal(err)
		}
		for _, event := range []weir.Event{
			{Name: weir.AssetCreated, UserID: "u1", ProjectID: "p2", Resource: "asset/1"},
			{Name: weir.AssetCreated, UserID: "u2", ProjectID: "p1", Resource: "asset/1"},
			{Name: weir.AssetCreated, UserID: "u1", ProjectID: "p1", Resource: "asset/1"},
		} {
			emitEvent(t, st, event)
		}
		e.Seq = 1
		all, err := st.Events(ctx, "u1", "p1", 0, 10)
		if err != nil || len(all) != 2 || all[1].Seq != 4 {
			t.Fatalf("events of the project: %+v, %v", all, err)
		}
		if diff := cmp.Diff(e, all[0]); diff != "" {
			t.Errorf("event differs (-want +got):\n%s", diff)
		}
		if got, err := st.Events(ctx, "u1", "p1", 1, 10); err != nil || len(got) != 1 || got[0].Seq != 4 {
			t.Errorf("events after the first: %+v, %v", got, err)
		}
		if got, err := st.Events(ctx, "u1", "p1", 0, 1); err != nil || len(got) != 1 || got[0].Seq != 1 {
			t.Errorf("one event: %+v, %v", got, err)
		}
	})
}

func TestEventBounds(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		bounds := func(wantLast, wantDeleted int64) {
			t.Helper()
			last, deleted, err := st.EventBounds(ctx)
			if err != nil || last != wantLast || deleted != wantDeleted {
				t.Errorf("EventBounds = %d, %d, %v; want %d, %d", last, deleted, err, wantLast, wantDeleted)
			}
		}
		bounds(0, 0)
		emit(t, st, "asset/1")
		emit(t, st, "asset/1")
		bounds(2, 0)
		if err := st.Prune(ctx, Retention{Events: -time.Hour, Credentials: time.Hour}); err != nil {
			t.Fatal(err)
		}
		bounds(2, 2)
		emit(t, st, "asset/1")
		bounds(3, 2)
		if err := st.Prune(ctx, Retention{Events: time.Hour, Credentials: time.Hour}); err != nil {
			t.Fatal(err)
		}
		bounds(3, 2)
	})
}

// TestEventsFollowTheTransaction checks that watchers are notified of an event after the commit
// of its change, and never when there was none.
func TestEventsFollowTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		changed, stop := st.Watch(TopicEvent)
		rolledBack := errors.New("changed my mind")
		e := weir.Event{ID: weir.NewID(), Name: weir.AssetCreated, UserID: "u1", ProjectID: "p1", Resource: "asset/1"}
		if err := st.Tx(ctx, func(tx *Tx) error {
			if err := tx.Emit(ctx, e); err != nil {
				return err
			}
			return rolledBack
		}); !errors.Is(err, rolledBack) {
			t.Fatal(err)
		}
		select {
		case <-changed:
			t.Error("notified of an event that was rolled back")
		default:
		}
		if err := st.Tx(ctx, func(tx *Tx) error {
			if err := tx.Emit(ctx, e); err != nil {
				return err
			}
			select {
			case <-changed:
				t.Error("notified of an event before its commit")
			default:
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		<-changed
		all, err := st.Events(ctx, "u1", "p1", 0, 10)
		if err != nil || len(all) != 1 || all[0].Seq != 1 {
			t.Errorf("events = %+v, %v; want one, numbered 1", all, err)
		}
		stop()
		emit(t, st, "asset/1")
		select {
		case <-changed:
			t.Error("notified of an event after stop")
		default:
		}
	})
}

// TestWatchAnotherNode shows that other processes are notified of a change too.
func TestWatchAnotherNode(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		run(t, b)
		changed, stop := b.Watch(TopicEvent)
		defer stop()
		emit(t, a, "asset/1")
		<-changed
		// The first look at the counters may have sent it.
		emit(t, a, "asset/1")
		<-changed
	})
}

// TestFollowEvents has a reader follow what several writers write at once: it must see all of it,
// in order, and nothing twice. That needs numbers which become visible in their order.
func TestFollowEvents(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		const writers, perWriter = 4, 25
		ctx := t.Context()
		changed, stop := st.Watch(TopicEvent)
		defer stop()
		failed := make(chan error, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() { failed <- writeEvents(ctx, st, w, perWriter) })
		}
		seen := map[string][]int{}
		for after, total := int64(0), 0; total < writers*perWriter; {
			events, err := st.Events(ctx, "u1", "p1", after, 10)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Seq != after+1 {
					t.Errorf("event %d after %d", e.Seq, after)
				}
				after = e.Seq
				var n int
				if _, err := fmt.Sscanf(string(e.Payload), "%d", &n); err != nil {
					t.Fatal(err)
				}
				seen[e.Resource] = append(seen[e.Resource], n)
				total++
			}
			if len(events) == 0 {
				<-changed
			}
		}
		wg.Wait()
		for range writers {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		for resource, numbers := range seen {
			if len(numbers) != perWriter || !slices.IsSorted(numbers) {
				t.Errorf("%s: %v", resource, numbers)
			}
		}
	})
}

func writeEvents(ctx context.Context, st *Store, writer, n int) error {
	for i := range n {
		e := weir.Event{
			ID: weir.NewID(), Name: weir.AssetUpdated, UserID: "u1", ProjectID: "p1",
			Resource: fmt.Sprintf("asset/%d", writer), Payload: fmt.Appendf(nil, "%d", i),
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.Emit(ctx, e) }); err != nil {
			return err
		}
	}
	return nil
}

// TestFrozenNode has a node that stops in the middle of a transaction, with the
// numbering of events locked. Only PostgreSQL has several nodes.
func TestFrozenNode(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	url := pgtest.Start(t)
	frozen, other := open(t, url, "node-a"), open(t, url, "node-b")
	locked, goOn, end := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		end <- frozen.Tx(t.Context(), func(tx *Tx) error {
			_, err := tx.bump(t.Context(), TopicEvent)
			close(locked)
			<-goOn
			return err
		})
	}()
	<-locked
	thaw := sync.OnceFunc(func() { close(goOn) })
	defer thaw()
	emit(t, other, "asset/1") // waits until the lock is taken from the frozen node
	thaw()
	if err := <-end; err == nil {
		t.Error("the frozen node could finish its transaction")
	}
}
