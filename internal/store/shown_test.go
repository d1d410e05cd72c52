package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"weir/internal/weir"
)

// rename changes the name of a stream.
func rename(t *testing.T, st *Store, id, name string) {
	t.Helper()
	if err := st.Tx(t.Context(), func(tx *Tx) error {
		_, err := tx.UpdateStream(t.Context(), id, func(s *weir.Stream) error { s.Name = name; return nil })
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func shownName(t *testing.T, st *Store, id, want string) bool {
	t.Helper()
	shown, err := st.ShownStream(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(shown.JSON), fmt.Sprintf(`"name":%q`, want))
}

func TestShownStreamFollowsChanges(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		s := newStream(t, "one")
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) }); err != nil {
			t.Fatal(err)
		}
		for i := range 5 {
			name := fmt.Sprintf("name %d", i)
			rename(t, st, s.ID, name)
			for range 2 { // the second time from memory
				if !shownName(t, st, s.ID, name) {
					t.Fatalf("the change to %q does not show", name)
				}
			}
		}
		// What was not committed does not show.
		failed := errors.New("no")
		if err := st.Tx(ctx, func(tx *Tx) error {
			if _, err := tx.UpdateStream(ctx, s.ID, func(s *weir.Stream) error { s.Name = "never"; return nil }); err != nil {
				return err
			}
			return failed
		}); !errors.Is(err, failed) {
			t.Fatal(err)
		}
		if !shownName(t, st, s.ID, "name 4") {
			t.Error("a change that was rolled back shows")
		}
	})
}

func TestShownStreamFollowsOthers(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	a, b := open(t, url, "node-a"), open(t, url, "node-b")
	ctx := t.Context()
	s := newStream(t, "one")
	if err := a.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) }); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		name := fmt.Sprintf("name %d", i)
		if err := a.poll(ctx); err != nil {
			t.Fatal(err)
		}
		shownName(t, a, s.ID, name) // remembered from now on
		rename(t, b, s.ID, name)
		if err := a.poll(ctx); err != nil {
			t.Fatal(err)
		}
		if !shownName(t, a, s.ID, name) {
			t.Fatalf("the change to %q by another process does not show after a poll", name)
		}
		// Its own changes do not clear the cache.
		rename(t, a, s.ID, name+"!")
		shownName(t, a, s.ID, name)
		if err := a.poll(ctx); err != nil {
			t.Fatal(err)
		}
		if len(a.shown.values) == 0 {
			t.Error("its own change cleared the memory")
		}
	}
}

// TestShownStreamUnderLoad reads and changes at once; after a change its process must
// see the change, whatever others were reading meanwhile.
func TestShownStreamUnderLoad(t *testing.T) {
	st := open(t, "sqlite:"+filepath.Join(t.TempDir(), "weir.db"), "node-a")
	ctx := t.Context()
	s := newStream(t, "one")
	if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &s) }); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if _, err := st.ShownStream(ctx, s.ID); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for i := range 200 {
		name := fmt.Sprintf("name %d", i)
		rename(t, st, s.ID, name)
		if !shownName(t, st, s.ID, name) {
			t.Errorf("the change to %q does not show", name)
			break
		}
	}
	close(stop)
	readers.Wait()
}
