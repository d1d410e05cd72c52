package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"weir/internal/weir"
)

// hookOfAssets creates a webhook for the events of emit.
func hookOfAssets(t *testing.T, st *Store) weir.Webhook {
	t.Helper()
	return createWebhook(t, st, weir.WebhookBody{Name: "w", Events: []weir.EventName{weir.AssetCreated}, SharedSecret: "s"})
}

// claimLine claims a line of a webhook and checks that it is that of the event; nil = none.
func claimLine(t *testing.T, st *Store, hook weir.Webhook, want *weir.Event) Line {
	t.Helper()
	l, ok := tryClaim(t, st, hook)
	switch {
	case want == nil && ok:
		t.Fatalf("claimed %v, want none", l)
	case want != nil && (!ok || l != Line{hook.ID, want.Resource}):
		t.Fatalf("claimed %v, %v; want %s", l, ok, want.Resource)
	}
	return l
}

func tryClaim(t *testing.T, st *Store, hook weir.Webhook) (l Line, ok bool) {
	t.Helper()
	if err := st.Tx(t.Context(), func(tx *Tx) (err error) {
		l, ok, err = tx.ClaimLine(t.Context(), hook.ID)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return l, ok
}

// take claims the line of an event, whose delivery must be the next one of it.
func take(t *testing.T, st *Store, hook weir.Webhook, want *weir.Event) Delivery {
	t.Helper()
	return nextOf(t, st, claimLine(t, st, hook, want), want)
}

// nextOf returns the next delivery of a line and checks which event it has; nil = none.
func nextOf(t *testing.T, st *Store, l Line, want *weir.Event) Delivery {
	t.Helper()
	d, ok, err := st.NextDelivery(t.Context(), l)
	switch {
	case err != nil:
		t.Fatal(err)
	case want == nil && ok:
		t.Errorf("next is event %d, want none", d.Event.Seq)
	case want != nil && !ok:
		t.Fatalf("next is no event, want %d", want.Seq)
	case want != nil && (d.Event.ID != want.ID || d.Event.Seq != want.Seq):
		t.Errorf("next is event %d, want %d", d.Event.Seq, want.Seq)
	}
	return d
}

// settle writes the result of an attempt, and checks whether the line has more to send.
func settle(t *testing.T, st *Store, a *Attempt, more bool) Settled {
	t.Helper()
	s, err := st.SettleLine(t.Context(), Line{a.Delivery.Webhook.ID, a.Delivery.Event.Resource}, a)
	if err != nil {
		t.Fatal(err)
	}
	if s.More != more {
		t.Errorf("the line has more: %v, want %v", s.More, more)
	}
	return s
}

// sent is an attempt that succeeded, or is to be repeated at the time.
func sent(d Delivery, again time.Time) *Attempt {
	return &Attempt{Delivery: d, RetryAt: again, Log: weir.WebhookLog{
		ID: weir.NewID(), WebhookID: d.Webhook.ID, UserID: "u1", ProjectID: "p1", EventID: d.Event.ID, Event: d.Event.Name,
		CreatedAt: weir.At(time.Now()), Success: again.IsZero(), Response: weir.WebhookResponse{Status: 200}, Timeouts: d.Webhook.Timeouts(),
	}}
}

// timedOut is an attempt that is to be repeated at once.
func timedOut(d Delivery) *Attempt {
	a := sent(d, time.Now().Add(-time.Second))
	a.Log.TimedOut, a.Log.Response = true, weir.WebhookResponse{Error: "timeout"}
	return a
}

var over time.Time // no retry

// lines counts the lines.
func lines(t *testing.T, st *Store) int64 {
	t.Helper()
	n, err := one(t.Context(), st.conn, scanInt, "SELECT count(*) FROM delivery_line")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// due returns the webhooks that have something to send.
func due(t *testing.T, st *Store) []DueWebhook {
	t.Helper()
	all, err := st.DueWebhooks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestDeliveriesInOrder(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		e1, e2, other := emit(t, st, "asset/1"), emit(t, st, "asset/1"), emit(t, st, "asset/2")
		// Of one resource one delivery is sent at a time, oldest first; of another one meanwhile.
		d1 := take(t, st, hook, &e1)
		d3 := take(t, st, hook, &other)
		claimLine(t, st, hook, nil)
		if d1.Webhook.URL != hook.URL || d1.Webhook.SharedSecret != "s" || d1.Attempts != 0 {
			t.Errorf("delivery = %+v", d1)
		}
		e4 := emit(t, st, "asset/1")
		claimLine(t, st, hook, nil)
		settle(t, st, sent(d1, over), true)
		settle(t, st, sent(take(t, st, hook, &e2), over), true)
		d4 := take(t, st, hook, &e4)
		settle(t, st, sent(d4, over), false)
		claimLine(t, st, hook, nil)
		if n := pending(t, st); n != 1 {
			t.Errorf("%d deliveries left, want that of the other resource", n)
		}
		settle(t, st, sent(d3, over), false)
		if n := logged(t, st, hook); n != 4 || pending(t, st) != 0 || lines(t, st) != 0 {
			t.Errorf("%d attempts logged, %d deliveries left of %d lines; want 4 and none", n, pending(t, st), lines(t, st))
		}
	})
}

// TestLinesTakeTurns checks that a line with many deliveries does not hold up the others.
func TestLinesTakeTurns(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		a1, a2, b1, b2 := emit(t, st, "asset/a"), emit(t, st, "asset/a"), emit(t, st, "asset/b"), emit(t, st, "asset/b")
		setDue := func(resource string, at time.Time) {
			if _, err := st.conn.exec(t.Context(), "UPDATE delivery_line SET due_at = $2 WHERE resource = $1", resource, at.UnixMilli()); err != nil {
				t.Fatal(err)
			}
		}
		long := time.Now().Add(-time.Hour) // so that the order does not depend on the clock's steps
		setDue("asset/a", long)
		setDue("asset/b", long.Add(time.Second))
		settle(t, st, sent(take(t, st, hook, &a1), over), true)
		settle(t, st, sent(take(t, st, hook, &b1), over), true)
		setDue("asset/a", long)
		settle(t, st, sent(take(t, st, hook, &a2), over), false)
		settle(t, st, sent(take(t, st, hook, &b2), over), false)
	})
}

func TestRetriesLetOthersPass(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		e1 := emit(t, st, "asset/1")
		settle(t, st, sent(take(t, st, hook, &e1), time.Now().Add(time.Hour)), false)
		claimLine(t, st, hook, nil)
		if all := due(t, st); len(all) != 0 {
			t.Errorf("%v are due before the retry", all)
		}
		e2 := emit(t, st, "asset/1")
		d := take(t, st, hook, &e2)
		if n := pending(t, st); n != 2 {
			t.Errorf("%d deliveries are left, want 2", n)
		}
		// One that is due again comes before newer ones, and knows how often it was tried.
		e3 := emit(t, st, "asset/1")
		for attempts := range 3 {
			if d.Attempts != attempts {
				t.Errorf("%d attempts, want %d", d.Attempts, attempts)
			}
			settle(t, st, sent(d, time.Now().Add(-time.Second)), true)
			d = take(t, st, hook, &e2)
		}
		settle(t, st, sent(d, over), true)
		settle(t, st, sent(take(t, st, hook, &e3), over), false)
		// The first one is due at its time.
		claimLine(t, st, hook, nil)
		if _, err := st.conn.exec(t.Context(), "UPDATE delivery SET due_at = due_at - 3700000"); err != nil {
			t.Fatal(err)
		}
		if _, err := st.conn.exec(t.Context(), "UPDATE delivery_line SET due_at = due_at - 3700000"); err != nil {
			t.Fatal(err)
		}
		settle(t, st, sent(take(t, st, hook, &e1), over), false)
	})
}

// TestClocksDiffer has an event of a node whose clock is ahead of that of the node that sends it.
func TestClocksDiffer(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		e := emit(t, st, "asset/1")
		if _, err := st.conn.exec(t.Context(), "UPDATE delivery_line SET due_at = due_at + 1000"); err != nil {
			t.Fatal(err)
		}
		settle(t, st, sent(take(t, st, hook, &e), over), false)
	})
}

func TestDeletedWebhook(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		e := emit(t, st, "asset/1")
		emit(t, st, "asset/1")
		emit(t, st, "asset/2")
		d := take(t, st, hook, &e)
		updateWebhook(t, st, hook.ID, func(w *weir.Webhook) { w.Deleted = true })
		if n := pending(t, st); n != 0 {
			t.Errorf("%d deliveries wait after the deletion", n)
		}
		settle(t, st, sent(d, time.Now().Add(time.Hour)), false)
		if pending(t, st) != 0 || lines(t, st) != 0 {
			t.Errorf("%d deliveries and %d lines are left", pending(t, st), lines(t, st))
		}
		if n := logged(t, st, hook); n != 1 {
			t.Errorf("%d attempts logged, want the one that was made", n)
		}
		emit(t, st, "asset/1")
		if n := pending(t, st); n != 0 {
			t.Errorf("%d deliveries to a deleted webhook", n)
		}
		// An event was written at the moment of the deletion.
		if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.addDelivery(t.Context(), Line{hook.ID, "asset/3"}, e.Seq) }); err != nil {
			t.Fatal(err)
		}
		l, _ := tryClaim(t, st, hook)
		nextOf(t, st, l, nil)
		if _, err := st.SettleLine(t.Context(), l, nil); err != nil || pending(t, st) != 0 || lines(t, st) != 0 {
			t.Errorf("%v; %d deliveries and %d lines are left", err, pending(t, st), lines(t, st))
		}
	})
}

func TestDroppedDelivery(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		hook := hookOfAssets(t, st)
		e := emit(t, st, "asset/1")
		settle(t, st, &Attempt{Delivery: take(t, st, hook, &e)}, false)
		if pending(t, st) != 0 || logged(t, st, hook) != 0 {
			t.Errorf("%d deliveries left, %d logged; want none", pending(t, st), logged(t, st, hook))
		}
	})
}

// TestPrunedEvent checks that a delivery whose event was pruned does not hold up others.
func TestPrunedEvent(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		hook := hookOfAssets(t, st)
		emit(t, st, "asset/1")
		emit(t, st, "asset/2")
		prune := func() {
			if err := st.Prune(ctx, Retention{Events: -time.Hour, Credentials: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		prune()
		gone := take(t, st, hook, &weir.Event{Seq: 1, Resource: "asset/1"}) // only its number is known
		e := emit(t, st, "asset/1")
		settle(t, st, &Attempt{Delivery: Delivery{Webhook: gone.Webhook, Event: weir.Event{Seq: gone.Event.Seq, Resource: "asset/1"}}}, true)
		if n := pending(t, st); n != 2 {
			t.Errorf("%d deliveries left, want that of the other pruned event and the new one", n)
		}
		// The next time, deliveries of pruned events are pruned too. The line is left by whoever
		// finds it empty.
		if _, err := st.conn.exec(ctx, "UPDATE event SET created_at = created_at + 7200000"); err != nil {
			t.Fatal(err)
		}
		prune()
		if n := pending(t, st); n != 1 {
			t.Errorf("%d deliveries left, want the new one", n)
		}
		empty := claimLine(t, st, hook, &weir.Event{Resource: "asset/2"})
		nextOf(t, st, empty, nil)
		if _, err := st.SettleLine(ctx, empty, nil); err != nil {
			t.Fatal(err)
		}
		settle(t, st, sent(take(t, st, hook, &e), over), false)
		if pending(t, st) != 0 || lines(t, st) != 0 {
			t.Errorf("%d deliveries and %d lines left", pending(t, st), lines(t, st))
		}
	})
}

func TestDueWebhooks(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		if all := due(t, st); len(all) != 0 {
			t.Errorf("due without deliveries: %v", all)
		}
		idle := createWebhook(t, st, weir.WebhookBody{Name: "idle", Events: []weir.EventName{weir.StreamStarted}})
		one, two := hookOfAssets(t, st), hookOfAssets(t, st)
		e1, e2 := emit(t, st, "asset/1"), emit(t, st, "asset/2")
		check := func(when string, want ...weir.Webhook) {
			t.Helper()
			got, names := map[string]bool{}, map[string]bool{}
			for _, d := range due(t, st) {
				got[d.ID] = true
				if d.UserID != "u1" {
					t.Errorf("%s: webhook of %q", when, d.UserID)
				}
			}
			for _, w := range want {
				names[w.ID] = true
			}
			if diff := cmp.Diff(names, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		check("at first", one, two)
		d1 := take(t, st, one, &e1)
		check("with one line claimed", one, two)
		take(t, st, one, &e2)
		check("with both lines claimed", two)
		settle(t, st, sent(d1, time.Now().Add(time.Hour)), false)
		check("with a retry that is not due", two)
		emit(t, st, "asset/1")
		check("with a new event", one, two)
		updateWebhook(t, st, two.ID, func(w *weir.Webhook) {
			w.Status = &weir.WebhookStatus{Paused: &weir.WebhookPause{Until: weir.At(time.Now().Add(time.Hour))}}
		})
		check("with the second paused", one)
		updateWebhook(t, st, two.ID, func(w *weir.Webhook) { w.Status.Paused.Until = weir.At(time.Now()) })
		check("after the pause", one, two)
		_ = idle
	})
}

// TestPause has a webhook that times out until it is paused, and the ways in which that ends.
func TestPause(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		var log bytes.Buffer
		st, err := Open(t.Context(), url, Options{Secret: testSecret, NodeID: "node-a", Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(st.Close)
		hook := hookOfAssets(t, st)
		e, other := emit(t, st, "asset/1"), emit(t, st, "asset/2")
		paused := func() *weir.WebhookPause {
			t.Helper()
			w, err := st.Webhook(t.Context(), hook.ID)
			if err != nil {
				t.Fatal(err)
			}
			n, err := st.PausedWebhooks(t.Context())
			if err != nil || (n == 1) != (w.PausedUntil() > 0) {
				t.Errorf("%d webhooks are paused, %v; until %d", n, err, w.PausedUntil())
			}
			if w.Status == nil {
				return nil
			}
			return w.Status.Paused
		}
		// Of two that are sent at the same time, one counts.
		d, d2 := take(t, st, hook, &e), take(t, st, hook, &other)
		first := timedOut(d2)
		first.RetryAt = first.RetryAt.Add(-time.Second) // also if both end in one millisecond
		if s := settle(t, st, first, true); s.Timeouts != 1 {
			t.Errorf("%d time-outs, want 1", s.Timeouts)
		}
		if s := settle(t, st, timedOut(d), true); s.Timeouts != 1 {
			t.Errorf("%d time-outs, want 1", s.Timeouts)
		}
		settle(t, st, sent(take(t, st, hook, &other), over), false) // and a success ends the row
		for n := 1; n < 10; n++ {
			if s := settle(t, st, timedOut(take(t, st, hook, &e)), true); s.Timeouts != n || paused() != nil {
				t.Errorf("after %d time-outs: %+v, %+v", n, s, paused())
			}
		}
		settle(t, st, timedOut(take(t, st, hook, &e)), false)
		p := paused()
		if p == nil || p.Until-p.Since != 300_000 || p.Reason != "10 deliveries in a row timed out" || len(due(t, st)) != 0 {
			t.Fatalf("after 10 time-outs: %+v, due %v", p, due(t, st))
		}
		nextOf(t, st, Line{hook.ID, e.Resource}, nil)
		// When the pause has ended, one that times out makes it longer.
		endPause := func() {
			updateWebhook(t, st, hook.ID, func(w *weir.Webhook) { w.Status.Paused.Until = weir.At(time.Now()) })
		}
		endPause()
		settle(t, st, timedOut(take(t, st, hook, &e)), false)
		if p2 := paused(); p2 == nil || p2.Since != p.Since || p2.Until < weir.At(time.Now().Add(9*time.Minute)) {
			t.Errorf("second pause: %+v, after %+v", p2, p)
		}
		// One with a response ends it, though not with success.
		endPause()
		failed := sent(take(t, st, hook, &e), time.Now().Add(-time.Second))
		failed.Log.Response = weir.WebhookResponse{Status: 500}
		if s := settle(t, st, failed, true); s.Timeouts != 11 || paused() != nil {
			t.Errorf("after a response: %+v, %+v", s, paused())
		}
		settle(t, st, timedOut(take(t, st, hook, &e)), false)
		if paused() == nil {
			t.Error("not paused again")
		}
		// A change of the webhook by its owner ends it.
		updateWebhook(t, st, hook.ID, func(w *weir.Webhook) {
			if err := (weir.WebhookPatch{}).Apply(w); err != nil {
				t.Error(err)
			}
		})
		if all := due(t, st); paused() != nil || len(all) != 1 || all[0].Timeouts != 0 {
			t.Errorf("after a change: %+v, due %v", paused(), all)
		}
		if s := settle(t, st, sent(take(t, st, hook, &e), over), false); s.Timeouts != 0 {
			t.Errorf("after a success: %+v", s)
		}
		text := log.String()
		if n := strings.Count(text, "webhook paused"); n != 2 || strings.Count(text, "webhook resumed") != 2 {
			t.Errorf("log: %s", text)
		}
		if strings.Contains(text, "planted") || strings.Count(text, hook.ID) != 4 {
			t.Errorf("log: %s", text)
		}
	})
}

// TestClaimsOfTwoNodes has two nodes that claim as fast as they can while events are written: no
// line is ever with both, every delivery is made once and in order, and none is left.
func TestClaimsOfTwoNodes(t *testing.T) {
	eachPair(t, "node-a", "node-b", func(t *testing.T, a, b *Store) {
		const resources, events, claimers = 3, 40, 3
		hook := hookOfAssets(t, a)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		with, last, made := map[Line]bool{}, map[string]int64{}, 0
		var wg sync.WaitGroup
		defer wg.Wait()
		deliver := func(st *Store) error {
			var l Line
			var ok bool
			err := st.Tx(ctx, func(tx *Tx) (err error) {
				l, ok, err = tx.ClaimLine(ctx, hook.ID)
				return err
			})
			if err != nil || !ok {
				return err
			}
			mu.Lock()
			if with[l] {
				t.Errorf("line %s was claimed twice", l.Resource)
			}
			with[l] = true
			mu.Unlock()
			d, ok, err := st.NextDelivery(ctx, l)
			if err != nil || !ok {
				return fmt.Errorf("claimed a line without a delivery (%w)", err)
			}
			mu.Lock()
			if d.Event.Seq <= last[l.Resource] {
				t.Errorf("event %d of %s after %d", d.Event.Seq, l.Resource, last[l.Resource])
			}
			last[l.Resource] = d.Event.Seq
			with[l] = false
			made++
			mu.Unlock()
			_, err = st.SettleLine(ctx, l, sent(d, over))
			return err
		}
		for _, st := range []*Store{a, b} {
			for range claimers {
				wg.Go(func() {
					for {
						mu.Lock()
						all := made == resources*events
						mu.Unlock()
						if all || ctx.Err() != nil {
							return
						}
						if err := deliver(st); err != nil && ctx.Err() == nil {
							t.Error(err)
							return
						}
					}
				})
			}
		}
		for range events {
			for r := range resources {
				emit(t, []*Store{a, b}[r%2], fmt.Sprintf("asset/%d", r))
			}
		}
		wg.Wait()
		if pending(t, a) != 0 || lines(t, a) != 0 {
			t.Errorf("%d deliveries and %d lines are left", pending(t, a), lines(t, a))
		}
	})
}

// TestEventWhileLineIsLeft writes an event while another transaction leaves the line. Whichever is
// committed first, the line is there for the new delivery.
func TestEventWhileLineIsLeft(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		hook := hookOfAssets(t, st)
		for _, writtenFirst := range []bool{false, true} {
			e := emit(t, st, fmt.Sprint("asset/", writtenFirst))
			line := Line{hook.ID, e.Resource}
			add := func(tx *Tx) error { return tx.addDelivery(ctx, line, e.Seq+100) }
			leave := func(tx *Tx) error {
				if _, err := one(ctx, tx.conn, scanText, "SELECT claim FROM delivery_line WHERE resource = $1"+st.engine.forUpdate(), e.Resource); err != nil {
					return err
				}
				if _, err := tx.conn.exec(ctx, "DELETE FROM delivery WHERE event_seq = $1", e.Seq); err != nil {
					return err
				}
				_, err := tx.leaveLine(ctx, line)
				return err
			}
			first, second := leave, add
			if writtenFirst {
				first, second = add, leave
			}
			done := make(chan error, 1)
			err := st.Tx(ctx, func(tx *Tx) error {
				if err := first(tx); err != nil {
					return err
				}
				go func() { done <- st.Tx(ctx, second) }()
				time.Sleep(200 * time.Millisecond) // the second has come to its first lock by then, usually
				return nil
			})
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			if l, ok := tryClaim(t, st, hook); !ok || l != line {
				t.Errorf("written first %v: claimed %v, %v", writtenFirst, l, ok)
			}
		}
	})
}

// TestMigrateDeliveries checks that deliveries of a weir that sent them by jobs are kept.
func TestMigrateDeliveries(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		hook := hookOfAssets(t, st)
		e1, e2, e3 := emit(t, st, "asset/1"), emit(t, st, "asset/1"), emit(t, st, "asset/2")
		enqueue(t, st, JobTask, "stays")
		var db *sql.DB
		dialect := goose.DialectSQLite3
		if pg, ok := st.engine.(*postgres); ok {
			db, dialect = stdlib.OpenDBFromPool(pg.pool.Pool), goose.DialectPostgres
			defer func() { _ = db.Close() }()
		} else {
			db = st.engine.(*sqlite).writer
		}
		files, err := fs.Sub(schema, "schema")
		if err != nil {
			t.Fatal(err)
		}
		p, err := goose.NewProvider(dialect, db, files)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.DownTo(ctx, 12); err != nil {
			t.Fatal(err)
		}
		retry := time.Now().Add(time.Hour).UnixMilli()
		for _, change := range []string{
			"UPDATE delivery SET due_at = 5",
			fmt.Sprintf("UPDATE delivery SET due_at = %d, attempts = 2 WHERE event_seq = %d", retry, e3.Seq),
			fmt.Sprintf("UPDATE delivery SET claimed_by = 7 WHERE event_seq = %d", e1.Seq),
		} {
			if _, err := st.conn.exec(ctx, change); err != nil {
				t.Fatal(err)
			}
		}
		enqueue(t, st, JobTask, "goes")
		if _, err := st.conn.exec(ctx, "UPDATE river_job SET kind = 'webhook' WHERE args->>'ref' = 'goes'"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Up(ctx); err != nil {
			t.Fatal(err)
		}
		jobs, err := many(ctx, st.conn, scanText, "SELECT args->>'ref' FROM river_job")
		if err != nil || len(jobs) != 1 || jobs[0] != "stays" {
			t.Errorf("jobs = %v, %v", jobs, err)
		}
		settle(t, st, sent(take(t, st, hook, &e1), over), true)
		settle(t, st, sent(take(t, st, hook, &e2), over), false)
		claimLine(t, st, hook, nil)
		if n := pending(t, st); n != 1 {
			t.Errorf("%d deliveries left, want the one that waits for its retry", n)
		}
	})
}

// BenchmarkClaim looks for webhooks that are due, claims a line and settles a delivery while an
// account has 100,000 deliveries pending.
func BenchmarkClaim(b *testing.B) {
	for _, engine := range engines {
		for _, pending := range []struct{ hooks, events, resources int }{{1, 100_000, 1}, {1, 100_000, 100_000}, {100, 1000, 10}} {
			b.Run(fmt.Sprintf("%s/hooks=%d/events=%d/resources=%d", engine.name, pending.hooks, pending.events, pending.resources), func(b *testing.B) {
				st, err := Open(b.Context(), engine.url(b), Options{Secret: testSecret, NodeID: "node-a"})
				if err != nil {
					b.Fatal(err)
				}
				defer st.Close()
				fillDeliveries(b, st, pending.hooks, pending.events, pending.resources)
				var look time.Duration
				for b.Loop() {
					began := time.Now()
					all, err := st.DueWebhooks(b.Context())
					if err != nil || len(all) != pending.hooks {
						b.Fatal(len(all), err)
					}
					look += time.Since(began)
					benchDeliver(b, st, all[0].ID)
				}
				b.ReportMetric(float64(look.Microseconds())/float64(b.N), "µs/look")
			})
		}
	}
}

func benchDeliver(b *testing.B, st *Store, hookID string) {
	ctx := b.Context()
	var l Line
	if err := st.Tx(ctx, func(tx *Tx) (err error) {
		l, _, err = tx.ClaimLine(ctx, hookID)
		return err
	}); err != nil {
		b.Fatal(err)
	}
	d, ok, err := st.NextDelivery(ctx, l)
	if err != nil || !ok {
		b.Fatal(ok, err)
	}
	if _, err := st.SettleLine(ctx, l, sent(d, time.Now().Add(time.Second))); err != nil {
		b.Fatal(err)
	}
}

// fillDeliveries makes webhooks, and deliveries of as many events to each.
func fillDeliveries(b *testing.B, st *Store, hooks, events, resources int) {
	ctx := b.Context()
	numbers := fmt.Sprintf("(WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < %d) SELECT n FROM number) AS numbers", events)
	resource := fmt.Sprintf("'asset/' || (n %% %d)", resources)
	must := func(err error) {
		if err != nil {
			b.Fatal(err)
		}
	}
	must(st.Tx(ctx, func(tx *Tx) error {
		_, err := tx.conn.exec(ctx, "INSERT INTO event SELECT n, 'e' || n, 'u1', 'p1', 0, 'asset.created', "+resource+`, '', '{"id":"e"}' FROM `+numbers)
		must(err)
		for range hooks {
			w, err := weir.WebhookBody{Name: "w", URL: "https://example.com", Events: []weir.EventName{}}.Webhook(&weir.Caller{UserID: "u1", ProjectID: "p1"}, time.Now())
			must(err)
			must(tx.CreateWebhook(ctx, &w))
			_, err = tx.conn.exec(ctx, "INSERT INTO delivery (webhook_id, event_seq, resource, due_at, attempts) SELECT '"+w.ID+"', n, "+resource+", 0, 0 FROM "+numbers)
			must(err)
			_, err = tx.conn.exec(ctx, "INSERT INTO delivery_line (webhook_id, resource, due_at, claim) SELECT DISTINCT '"+w.ID+"', "+resource+", 5, '' FROM "+numbers)
			must(err)
		}
		return nil
	}))
	if _, ok := st.engine.(*postgres); ok {
		_, err := st.conn.exec(ctx, "ANALYZE")
		must(err)
	}
}
