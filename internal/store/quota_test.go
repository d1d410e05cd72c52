package store

import (
	"errors"
	"sync"
	"testing"
	"time"

	"weir/internal/weir"
)

// newUser creates an account.
func newUser(t *testing.T, st *Store, email string, quota weir.Quota) weir.User {
	t.Helper()
	u := weir.User{ID: weir.NewID(), Kind: "user", Email: email, CreatedAt: weir.At(time.Now()), Quota: quota}
	if err := st.Tx(t.Context(), func(tx *Tx) error { return tx.CreateUser(t.Context(), &u) }); err != nil {
		t.Fatal(err)
	}
	return u
}

// Of requests at once, only those pass for which there is room.
func TestQuotaIsExact(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, limit := t.Context(), int64(3)
		u := newUser(t, st, "ann@example.com", weir.Quota{weir.Streams: &limit})
		var wg sync.WaitGroup
		errs := make(chan error, 10)
		for range cap(errs) {
			wg.Go(func() {
				stream := newStream(t, "one")
				stream.UserID = u.ID
				errs <- st.Tx(ctx, func(tx *Tx) error {
					if err := tx.CheckQuota(ctx, u.ID, weir.Streams, 1); err != nil {
						return err
					}
					return tx.CreateStream(ctx, &stream)
				})
			})
		}
		wg.Wait()
		close(errs)
		created := 0
		for err := range errs {
			switch {
			case err == nil:
				created++
			case weir.KindOf(err) != weir.Denied:
				t.Error(err)
			}
		}
		used, err := st.Used(ctx, u.ID, weir.Streams)
		if created != 3 || used != 3 || err != nil {
			t.Errorf("%d streams created, %d are used, %v; want 3", created, used, err)
		}
	})
}

// Every resource is counted, and not after it was deleted.
func TestUsed(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		u := newUser(t, st, "ann@example.com", nil)
		other := newUser(t, st, "bob@example.com", nil)
		caller := &weir.Caller{UserID: u.ID, ProjectID: u.DefaultProjectID}
		stream := newStream(t, "one")
		stream.UserID = u.ID
		asset := newAsset(t, "https://example.com/a.mp4")
		asset.UserID, asset.Stored = u.ID, 1000
		hook, err := weir.WebhookBody{Name: "a", URL: "https://example.com", Events: []weir.EventName{weir.StreamStarted}}.Webhook(caller, now)
		if err != nil {
			t.Fatal(err)
		}
		target, err := weir.NewTarget{URL: "rtmp://example.com/live/a"}.Target(u.ID, u.DefaultProjectID, now)
		if err != nil {
			t.Fatal(err)
		}
		bucket := weir.ObjectStore{ID: weir.NewID(), UserID: u.ID, CreatedAt: weir.At(now), URL: "s3+https://a:b@example.com/c"}
		project := weir.Project{ID: weir.NewID(), UserID: u.ID, CreatedAt: weir.At(now)}
		token := weir.Token{ID: weir.NewID(), UserID: u.ID, CreatedAt: weir.At(now)}
		want := func(what string, n map[weir.Resource]int64) {
			t.Helper()
			for _, r := range weir.Resources() {
				if got, err := st.Used(ctx, u.ID, r); err != nil || got != n[r] {
					t.Errorf("%s: %d of %s, %v; want %d", what, got, r, err, n[r])
				}
				if got, err := st.Used(ctx, other.ID, r); err != nil || got != map[weir.Resource]int64{weir.Projects: 1}[r] {
					t.Errorf("%s: another account has %d of %s, %v", what, got, r, err)
				}
			}
		}
		want("at first", map[weir.Resource]int64{weir.Projects: 1})
		if err := st.Tx(ctx, func(tx *Tx) error {
			return errors.Join(tx.CreateStream(ctx, &stream), tx.CreateAsset(ctx, &asset), tx.CreateWebhook(ctx, &hook), tx.CreateTarget(ctx, &target),
				tx.CreateObjectStore(ctx, &bucket), tx.CreateProject(ctx, &project), tx.CreateToken(ctx, &token, weir.NewAPIKey()))
		}); err != nil {
			t.Fatal(err)
		}
		want("with one of each", map[weir.Resource]int64{
			weir.Storage: 1000, weir.Streams: 1, weir.Assets: 1, weir.Webhooks: 1, weir.Targets: 1, weir.ObjectStores: 1, weir.Projects: 2, weir.Keys: 1,
		})
		if err := st.Tx(ctx, func(tx *Tx) error {
			_, err1 := tx.UpdateStream(ctx, stream.ID, func(s *weir.Stream) error { s.Deleted = true; return nil })
			_, err2 := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error { a.Delete(now); return nil })
			_, err3 := tx.UpdateWebhook(ctx, hook.ID, func(w *weir.Webhook) error { w.Deleted = true; return nil })
			_, err4 := tx.UpdateObjectStore(ctx, bucket.ID, func(o *weir.ObjectStore) error { o.Deleted = true; return nil })
			_, err5 := tx.UpdateProject(ctx, project.ID, func(p *weir.Project) error { p.Deleted = true; return nil })
			return errors.Join(err1, err2, err3, err4, err5, tx.DeleteTarget(ctx, target.ID), tx.DeleteToken(ctx, token.ID))
		}); err != nil {
			t.Fatal(err)
		}
		want("deleted", map[weir.Resource]int64{weir.Storage: 1000, weir.Projects: 1}) // the bytes are still there
		if err := st.Tx(ctx, func(tx *Tx) error {
			_, err := tx.PurgeDeletedAssets(ctx, now.Add(time.Hour), now, 10)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		want("purged", map[weir.Resource]int64{weir.Projects: 1})
	})
}

// Uploads of an account can't take more than its quota, however many there are at once.
func TestReserveStorage(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, limit := t.Context(), int64(100)
		u := newUser(t, st, "ann@example.com", weir.Quota{weir.Storage: &limit})
		one, two := newAsset(t, "https://example.com/1.mp4"), newAsset(t, "https://example.com/2.mp4")
		one.UserID, two.UserID = u.ID, u.ID
		createAssets(t, st, &one, &two)
		reserve := func(a weir.Asset, n int64) error {
			return st.Tx(ctx, func(tx *Tx) error { return tx.ReserveStorage(ctx, a.ID, n) })
		}
		for i, step := range []struct {
			asset weir.Asset
			bytes int64
			ok    bool
		}{{one, 60, true}, {two, 60, false}, {one, 50, true}, {two, 50, true}, {one, 51, false}, {one, 10, true}, {two, 90, true}} {
			if err := reserve(step.asset, step.bytes); (err == nil) != step.ok || err != nil && weir.KindOf(err) != weir.Denied {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if err := st.CheckStorage(ctx, u.ID, 0); weir.KindOf(err) != weir.Denied {
			t.Errorf("with all of it used: %v", err)
		}
	})
}

// A recording counts while it grows and after it, until it is an asset. A broadcast that begins when
// the quota is used up is not recorded.
func TestRecordingsCount(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now, limit := t.Context(), time.Now(), int64(1000)
		u := newUser(t, st, "ann@example.com", weir.Quota{weir.Storage: &limit})
		used := func(what string, want int64) {
			t.Helper()
			if got, err := st.Used(ctx, u.ID, weir.Storage); got != want || err != nil {
				t.Errorf("%s: %d bytes are used, error %v; want %d", what, got, err, want)
			}
		}
		onAir := func() (weir.Session, Beat) {
			t.Helper()
			session, air := goOnAir(t, st, liveStreamOf(t, st, u.ID, true), now)
			return session, beatOf(air, now, 0)
		}
		first, one := onAir()
		_, two := onAir()
		one.RecordedBytes, two.RecordedBytes = 600, 300
		if _, err := renew(ctx, st, now, one, two); err != nil {
			t.Fatal(err)
		}
		used("two that grow", 900)
		one.Counters.SourceBytes, one.RecordedBytes = 5000, 700
		if _, err := renew(ctx, st, now, one); err != nil {
			t.Fatal(err)
		}
		used("one has ended", 1000)
		third, _ := onAir()
		if third.Recorded() || !first.Recorded() {
			t.Error("the third broadcast is recorded, or the first one is not")
		}
		if _, err := closeSession(ctx, st, one, now); err != nil {
			t.Fatal(err)
		}
		used("one waits to become an asset", 1000)
	})
}
