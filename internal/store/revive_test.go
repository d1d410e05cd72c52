package store

import (
	"testing"
	"time"

	"weir/internal/store/pgtest"
	"weir/internal/weir"
)

// TestClocksDiffer has a job that runs on a node whose clock is behind that of the
// node which wrote the event.
func TestClocksDiffer(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		jobs, _ := work(t, st, 1, JobWebhook)
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		e := emit(t, st, "asset/1")
		if _, err := st.conn.exec(t.Context(), "UPDATE delivery SET due_at = due_at + 1000"); err != nil {
			t.Fatal(err)
		}
		job := <-jobs
		d := next(t, st, job, nil, &e)
		next(t, st, job, sent(d, over), nil)
		job.end <- nil
	})
}

// TestReviveDeliveries has deliveries whose jobs are lost.
func TestReviveDeliveries(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		run(t, st)
		ctx := t.Context()
		createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}})
		first, second := emit(t, st, "asset/1"), emit(t, st, "asset/1")
		emit(t, st, "asset/2")
		revive := func() int {
			t.Helper()
			if _, err := st.conn.exec(ctx, "DELETE FROM river_job"); err != nil {
				t.Fatal(err)
			}
			if err := st.reviveDeliveries(ctx); err != nil {
				t.Fatal(err)
			}
			n, err := one(ctx, st.conn, scanInt, "SELECT count(*) FROM river_job")
			if err != nil {
				t.Fatal(err)
			}
			return int(n)
		}
		if n := revive(); n != 0 {
			t.Errorf("%d jobs for deliveries that are new", n)
		}
		if _, err := st.conn.exec(ctx, "UPDATE delivery SET due_at = $1 WHERE resource = 'asset/1'", time.Now().Add(-time.Hour).UnixMilli()); err != nil {
			t.Fatal(err)
		}
		if n := revive(); n != 1 {
			t.Errorf("%d jobs for one resource that waits for an hour, want 1", n)
		}
		jobs, _ := work(t, st, 1, JobWebhook)
		job := <-jobs
		d := next(t, st, job, nil, &first)
		d = next(t, st, job, sent(d, over), &second)
		next(t, st, job, sent(d, over), nil)
		job.end <- nil
		if n := revive(); n != 0 {
			t.Errorf("%d jobs at the next look, want none", n)
		}
	})
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
	emit(t, other, "asset/1") // waits until the lock is taken from the frozen node
	close(goOn)
	if err := <-end; err == nil {
		t.Error("the frozen node could finish its transaction")
	}
}
