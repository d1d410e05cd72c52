package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"weir/internal/wait"
	"weir/internal/weir"
)

// remote is a database that may hang or err, for reads of Recent and for probes.
type remote struct {
	mu    sync.Mutex
	takes time.Duration
	err   error
	reads int
}

func (r *remote) set(takes time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.takes, r.err = takes, err
}

func (r *remote) ask(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	takes, err := r.takes, r.err
	r.reads++
	r.mu.Unlock()
	defer r.mu.Lock()
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// remembering makes a Recent that reads numbers from a database. get returns a number, and how long
// it took.
func remembering(t *testing.T, stale time.Duration, limit int) (c *Recent[int], db *remote, logged *bytes.Buffer, get func(key string) (int, time.Duration, error)) {
	t.Helper()
	db, logged = &remote{}, &bytes.Buffer{}
	st := &Store{away: newAbsence(stale, true, db.ask, slog.New(slog.NewTextHandler(logged, nil)))}
	t.Cleanup(st.away.close)
	c = &Recent[int]{Store: st, Max: limit}
	number := atomic.Int64{}
	return c, db, logged, func(key string) (int, time.Duration, error) {
		start := time.Now()
		n, err := c.Get(t.Context(), key, start, func(ctx context.Context) (int, error) {
			if err := db.ask(ctx); err != nil {
				return 0, err
			}
			if strings.HasPrefix(key, "missing") {
				return 0, weir.ErrNotFound()
			}
			return int(number.Add(1)), nil
		})
		return n, time.Since(start), err
	}
}

// A result is read once while it is fresh, also an error that another attempt would have too.
func TestRecent(t *testing.T) {
	t.Parallel()
	c := Recent[int]{Store: &Store{away: newAbsence(0, false, nil, nil)}, Max: 10}
	reads, now := 0, time.Now()
	fails := weir.ErrNotFound()
	for _, tt := range []struct {
		name  string
		key   string
		after time.Duration
		err   error
		reads int
	}{
		{"the first time", "a", 0, nil, 1},
		{"again", "a", Fresh - 1, nil, 1},
		{"another key", "b", 0, nil, 2},
		{"when it is not fresh", "a", Fresh, nil, 3},
		{"what does not exist", "c", 0, fails, 4},
		{"again", "c", 0, fails, 4},
		{"an error of the moment", "d", 0, errors.New("broken"), 5},
		{"again", "d", 0, errors.New("broken"), 6},
	} {
		_, err := c.Get(t.Context(), tt.key, now.Add(tt.after), func(context.Context) (int, error) {
			reads++
			return 7, tt.err
		})
		if fmt.Sprint(err) != fmt.Sprint(tt.err) || reads != tt.reads {
			t.Errorf("%s (%s): %v after %d reads, want %v after %d", tt.name, tt.key, err, reads, tt.err, tt.reads)
		}
	}
	c.Forget("b")
	c.Expire("a")
	if _, ok := c.find("b"); ok || len(c.found.items) != 1 || len(c.missing.items) != 1 {
		t.Errorf("%d results and %d errors are remembered, want those of a and c", len(c.found.items), len(c.missing.items))
	}
	if n, err := c.Get(t.Context(), "a", now, func(context.Context) (int, error) { return 8, nil }); n != 8 || err != nil {
		t.Errorf("%d, %v of what was expired, want it read again", n, err)
	}
}

// What is used stays, however many others are asked for.
func TestRecentKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	c, _, _, get := remembering(t, time.Hour, 10)
	for i := range 10 {
		if _, _, err := get(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if _, _, err := get(fmt.Sprint("missing ", i)); !weir.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if _, ok := c.find(fmt.Sprint(i)); !ok {
			t.Errorf("result %d was displaced by requests for what does not exist", i)
		}
	}
	for i := range 100 {
		if _, _, err := get(fmt.Sprint("other ", i)); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.find("3"); !ok {
			t.Fatalf("what is used was displaced by %d others", i+1)
		}
	}
	if len(c.found.items) != c.Max || len(c.missing.items) != c.Max || c.found.order.Len() != c.Max {
		t.Errorf("%d results and %d errors are remembered, want %d each", len(c.found.items), len(c.missing.items), c.Max)
	}
}

// A read does not end with the first of those who wait for it.
func TestRecentIsShared(t *testing.T) {
	t.Parallel()
	c := Recent[string]{Store: &Store{away: newAbsence(0, false, nil, nil)}, Max: 1}
	ctx, cancel := context.WithCancel(t.Context())
	begun, goOn, now := make(chan struct{}), make(chan struct{}), time.Now()
	load := func(ctx context.Context) (string, error) {
		close(begun) // panics the second time
		<-goOn
		return "read", ctx.Err()
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Get(ctx, "a", now, load); !errors.Is(err, context.Canceled) {
			t.Errorf("a reader that does not wait any more: %v", err)
		}
	})
	<-begun
	for range 5 {
		wg.Go(func() {
			if got, err := c.Get(t.Context(), "a", now, load); got != "read" || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	cancel()
	close(goOn)
	wg.Wait()
}

// In an outage readers get what is known, and wait for half a second once.
func TestAway(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]struct {
		takes time.Duration
		err   error
		wait  time.Duration // of the first reader
	}{
		"hangs": {time.Hour, nil, patience},
		"errs":  {0, errors.New("connection refused"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, db, logged, get := remembering(t, 15*time.Minute, 10)
				expect := func(key string, want int, kind weir.Kind, wait time.Duration) {
					t.Helper()
					n, took, err := get(key)
					if n != want || err != nil && weir.KindOf(err) != kind || (err == nil) != (kind == "") || took != wait {
						t.Errorf("%s: %d, %v after %v, want %d, %s after %v", key, n, err, took, want, kind, wait)
					}
				}
				expect("a", 1, "", 0)
				expect("b", 2, "", 0)
				expect("missing", 0, weir.NotFound, 0)
				db.set(away.takes, away.err)
				expect("a", 1, "", 0) // fresh
				time.Sleep(Fresh)
				expect("a", 1, "", away.wait)
				expect("a", 1, "", 0)
				expect("b", 2, "", 0)
				expect("missing", 0, weir.NotFound, 0)
				expect("unknown", 0, weir.Outage, 0)
				if err := c.Store.Away(); weir.KindOf(err) != weir.Outage {
					t.Errorf("Away = %v", err)
				}
				time.Sleep(15*time.Minute - 5*time.Second)
				expect("b", 2, "", 0)
				time.Sleep(5 * time.Second)
				expect("b", 0, weir.Outage, 0)
				expect("missing", 0, weir.Outage, 0)

				db.set(0, nil)
				time.Sleep(probeEvery + probeTimeout)
				expect("a", 3, "", 0)
				expect("unknown", 4, "", 0)
				if err := c.Store.Away(); err != nil {
					t.Errorf("Away = %v when the database is back", err)
				}
				if text := logged.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "does not respond") || !strings.Contains(text, "responds again") {
					t.Errorf("the log says:\n%s", text)
				}
			})
		})
	}
}

// A database that answers late is not asked by those who wait, but by others.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, db, _, get := remembering(t, time.Minute, 10)
		if _, _, err := get("a"); err != nil {
			t.Fatal(err)
		}
		db.set(2*time.Second, nil)
		last := 0
		for range 200 { // longer than what is known may be used
			time.Sleep(time.Second)
			n, took, err := get("a")
			if err != nil || n < last || took > patience {
				t.Fatalf("%d, %v after %v", n, err, took)
			}
			last = n
		}
		if last < 20 {
			t.Errorf("it was read %d times", last)
		}
		for i := range 3 * readsWhileSlow { // unknown ones are known a little later
			if _, _, err := get(fmt.Sprint(i)); weir.KindOf(err) != weir.Outage {
				t.Fatal(err)
			}
		}
		time.Sleep(4 * time.Second)
		if _, _, err := get("0"); err != nil {
			t.Error(err)
		}
	})
}

// One read that fails is no outage.
func TestFailingRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, logged, _ := remembering(t, time.Minute, 10)
		broken := errors.New("broken row")
		for i, err := range []error{nil, broken} {
			time.Sleep(Fresh)
			if n, err := c.Get(t.Context(), "a", time.Now(), func(context.Context) (int, error) { return 7, err }); n != 7 || err != nil {
				t.Errorf("read %d: %d, %v", i, n, err)
			}
		}
		if _, err := c.Get(t.Context(), "b", time.Now(), func(context.Context) (int, error) { return 7, broken }); !errors.Is(err, broken) {
			t.Errorf("of what is not known: %v", err)
		}
		if c.Store.Away() != nil || logged.Len() > 0 {
			t.Errorf("it is an outage: %s", logged)
		}
	})
}

// A reader who has waited for too long gets an error for what is not known, also if the outage is over
// in the same moment. Here the store closes, so that there is none.
func TestOutageIsOverAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, db, _, get := remembering(t, time.Minute, 10)
		db.set(3*time.Second, nil)
		read := make(chan error)
		go func() {
			_, _, err := get("unknown")
			read <- err
		}()
		synctest.Wait()
		c.Store.away.mu.Lock()
		c.Store.away.closed = true
		c.Store.away.mu.Unlock()
		if err := <-read; weir.KindOf(err) != weir.Outage {
			t.Errorf("error %v", err)
		}
	})
}

// Without --stale nothing that was read before is used, and readers wait.
func TestStaleOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, db, _, get := remembering(t, 0, 10)
		if _, _, err := get("a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(Fresh)
		db.set(3*time.Second, nil)
		if n, took, err := get("a"); n != 2 || err != nil || took != 3*time.Second {
			t.Errorf("%d, %v after %v", n, err, took)
		}
		time.Sleep(Fresh)
		db.set(0, errors.New("connection refused"))
		if _, _, err := get("a"); err == nil || c.Store.Away() != nil {
			t.Errorf("error %v, away: %v", err, c.Store.Away())
		}
	})
}

// What is forgotten while it is read is not remembered.
func TestForgottenWhileItIsRead(t *testing.T) {
	t.Parallel()
	c, _, _, _ := remembering(t, time.Minute, 10)
	if _, err := c.Get(t.Context(), "a", time.Now(), func(context.Context) (int, error) {
		c.Forget("a")
		return 1, nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.find("a"); ok {
		t.Error("it is remembered as it was before")
	}
}

// What was deleted or blocked is forgotten by all processes at once, so that an outage does not bring it
// back.
func TestChangesAreForgotten(t *testing.T) {
	eachEngine(t, func(t *testing.T, url string) {
		here, there := open(t, url, "node-a"), open(t, url, "node-b")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer cancel()
		wg.Go(func() { there.listen(ctx) })
		u := weir.User{ID: weir.NewID(), Email: "ann@example.com", CreatedAt: weir.At(time.Now())}
		asset := weir.Asset{ID: weir.NewID(), PlaybackID: "assetplaybackid0", UserID: u.ID}
		key := weir.SigningKey{ID: weir.NewID(), UserID: u.ID, PublicKey: "p"}
		write := func(do func(tx *Tx) error) {
			t.Helper()
			if err := here.Tx(t.Context(), do); err != nil {
				t.Fatal(err)
			}
		}
		write(func(tx *Tx) error {
			return errors.Join(tx.CreateUser(ctx, &u), tx.CreateAsset(ctx, &asset), tx.CreateSigningKey(ctx, &key))
		})
		change := map[string]func(tx *Tx) error{
			asset.PlaybackID: func(tx *Tx) error {
				_, err := tx.UpdateAsset(ctx, asset.ID, func(a *weir.Asset) error { a.Deleted = true; return nil })
				return err
			},
			u.ID: func(tx *Tx) error {
				_, err := tx.UpdateUser(ctx, u.ID, func(u *weir.User) error { u.Suspended = true; return nil })
				return err
			},
			key.ID: func(tx *Tx) error {
				_, err := tx.UpdateSigningKey(ctx, key.ID, func(k *weir.SigningKey) error { k.Disabled = true; return nil })
				return err
			},
		}
		for id, change := range change {
			nodes := []*Recent[int]{{Store: here, Max: 10}}
			if !here.engine.noticesOthers() { // SQLite has one node
				nodes = append(nodes, &Recent[int]{Store: there, Max: 10})
			}
			know := func() {
				for _, c := range nodes {
					if _, err := c.Get(ctx, id, time.Now(), func(context.Context) (int, error) { return 1, nil }); err != nil {
						t.Fatal(err)
					}
				}
			}
			know()
			write(change)
			for i, c := range nodes {
				// Again and again: the other node may not listen yet.
				wait.Until(t, fmt.Sprintf("node %d has forgotten %s", i, id), func() bool {
					if _, ok := c.find(id); !ok {
						return true
					}
					write(change)
					return false
				})
			}
		}
	})
}
