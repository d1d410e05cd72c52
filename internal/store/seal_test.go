package store

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"weir/internal/wait"
	"weir/internal/weir"
)

func TestSealer(t *testing.T) {
	s, err := newSealer(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	box := s.sealed("stream/1", []byte("hush"))
	if bytes.Contains(box, []byte("hush")) {
		t.Error("the sealed value shows")
	}
	if plain, err := s.open("stream/1", box); err != nil || string(plain) != "hush" {
		t.Errorf("open = %q, %v", plain, err)
	}
	if _, err := s.open("stream/2", box); err == nil {
		t.Error("a value opens at another place")
	}
	box[len(box)-1] ^= 1
	if _, err := s.open("stream/1", box); err == nil {
		t.Error("a changed value opens")
	}
	if _, err := s.open("stream/1", []byte("x")); err == nil {
		t.Error("a short value opens")
	}
	if _, err := newSealer([]byte("short")); err == nil {
		t.Error("a short master secret is taken")
	}
	again, err := newSealer(testSecret)
	if err != nil {
		t.Fatal(err)
	}
	if s.lookup("a") == s.lookup("b") || s.lookup("a") != again.lookup("a") || s.lookup("") != "" {
		t.Error("lookup is wrong")
	}
}

func TestWrongSecret(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	open(t, url, "node-a")
	_, err := Open(t.Context(), url, Options{Secret: bytes.Repeat([]byte{8}, 32)})
	if err == nil || !strings.Contains(err.Error(), "--secret-file") {
		t.Errorf("open with another secret: %v, want an error that names --secret-file", err)
	}
}

func TestNewerDatabase(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "weir.db")
	st := open(t, url, "node-a")
	if _, err := st.conn.exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true)"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), url, Options{Secret: testSecret}); err == nil || !strings.Contains(err.Error(), "newer weir") {
		t.Errorf("open a newer database: %v, want an error that says so", err)
	}
}

func TestNamedSecretIsMadeOnce(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		var wg sync.WaitGroup
		got := make([]string, 8)
		for i := range got {
			wg.Go(func() {
				b, err := st.NamedSecret(t.Context(), "did", func() ([]byte, error) { return []byte(weir.NewID()), nil })
				if err != nil {
					t.Error(err)
				}
				got[i] = string(b)
			})
		}
		wg.Wait()
		for _, g := range got {
			if g == "" || g != got[0] {
				t.Fatalf("different secrets under one name: %q", got)
			}
		}
		// A slow one does not block other writes.
		slow := newStream(t, "meanwhile")
		if _, err := st.NamedSecret(t.Context(), "slow", func() ([]byte, error) {
			ctx, cancel := context.WithTimeout(t.Context(), wait.Limit)
			defer cancel()
			return []byte("s"), st.Tx(ctx, func(tx *Tx) error { return tx.CreateStream(ctx, &slow) })
		}); err != nil {
			t.Error(err)
		}
	})
}

func TestRevokedKeyLeavesCache(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx := t.Context()
		u := weir.User{ID: weir.NewID(), Email: "a@example.com", CreatedAt: weir.At(time.Now())}
		key := weir.NewAPIKey()
		token := weir.Token{ID: weir.NewID(), UserID: u.ID, Name: "k"}
		if err := st.Tx(ctx, func(tx *Tx) error {
			if err := tx.CreateUser(ctx, &u); err != nil {
				return err
			}
			token.ProjectID = u.DefaultProjectID
			return tx.CreateToken(ctx, &token, key)
		}); err != nil {
			t.Fatal(err)
		}
		caller, err := st.CallerByKey(ctx, key)
		if err != nil || caller.UserID != u.ID || caller.Admin || caller.TokenName != "k" {
			t.Fatalf("caller = %+v, %v", caller, err)
		}
		if _, ok := st.RememberedKey(key); !ok {
			t.Error("the key is not remembered")
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.DeleteToken(ctx, token.ID) }); err != nil {
			t.Fatal(err)
		}
		if _, ok := st.RememberedKey(key); ok {
			t.Error("a revoked key is remembered")
		}
		if _, err := st.CallerByKey(ctx, key); weir.KindOf(err) != weir.NotFound {
			t.Errorf("a revoked key: %v, want not found", err)
		}
	})
}

func TestPrune(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		ctx, now := t.Context(), time.Now()
		emit := func(at time.Time) {
			t.Helper()
			if err := st.Tx(ctx, func(tx *Tx) error {
				return tx.Emit(ctx, weir.Event{ID: weir.NewID(), Name: weir.AssetCreated, UserID: "u1", ProjectID: "p1", Resource: "asset/1", CreatedAt: weir.At(at)})
			}); err != nil {
				t.Fatal(err)
			}
		}
		for range pruneAtOnce + 5 {
			emit(now.Add(-2 * time.Hour))
		}
		emit(now) // written by a clock that is ahead of the next one
		emit(now.Add(-2 * time.Hour))
		emit(now)
		task := weir.Task{
			ID: weir.NewID(), UserID: "u1", Type: weir.TaskExport, Status: weir.TaskStatus{Phase: weir.TaskFailed, UpdatedAt: weir.At(now.Add(-2 * time.Hour))},
			Secrets: weir.TaskSecrets{ExportURL: "https://example.com/?sig=1"},
		}
		if err := st.Tx(ctx, func(tx *Tx) error { return tx.CreateTask(ctx, &task) }); err != nil {
			t.Fatal(err)
		}
		if err := st.Prune(ctx, Retention{Events: time.Hour, Credentials: time.Hour}); err != nil {
			t.Fatal(err)
		}
		events, err := st.Events(ctx, "u1", "p1", 0, 10)
		if err != nil || len(events) != 1 {
			t.Errorf("%d events are left, %v; want 1", len(events), err)
		}
		last, deleted, err := st.EventBounds(ctx)
		if err != nil || last != pruneAtOnce+8 || deleted != last-1 {
			t.Errorf("last %d, deleted %d, %v", last, deleted, err)
		}
		got, err := st.Task(ctx, task.ID)
		if err != nil || !got.Secrets.Gone || got.Secrets.ExportURL != "" {
			t.Errorf("secrets of an old task: %+v, %v", got.Secrets, err)
		}
	})
}

func TestForgedCursor(t *testing.T) {
	each(t, func(t *testing.T, st *Store) {
		forged := ordering{{"last_seen", true}, {"created_at", true}, {"id", true}}.cursor(&sealer{mac: []byte("other")}, []any{"x", "y", "z"})
		if _, err := st.Streams(t.Context(), Query{UserID: "u1", Cursor: forged}); weir.KindOf(err) != weir.Refused {
			t.Errorf("forged cursor: %v, want refused", err)
		}
	})
}

// BenchmarkSawKey records that an API key was used: by a transaction, and in the next batch.
func BenchmarkSawKey(b *testing.B) {
	st, err := Open(b.Context(), "sqlite:"+filepath.Join(b.TempDir(), "weir.db"), Options{Secret: testSecret})
	if err != nil {
		b.Fatal(err)
	}
	defer st.Close()
	token := weir.Token{ID: "t1", UserID: "u1", Name: "key"}
	if err := st.Tx(b.Context(), func(tx *Tx) error {
		u := weir.User{ID: "u1", Kind: "user", Email: "u1@example.com"}
		if err := tx.CreateUser(b.Context(), &u); err != nil {
			return err
		}
		return tx.CreateToken(b.Context(), &token, weir.NewAPIKey())
	}); err != nil {
		b.Fatal(err)
	}
	b.Run("transaction", func(b *testing.B) {
		for b.Loop() {
			st.SawKey(token.ID, time.Now())
			if err := st.flush(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("batch", func(b *testing.B) {
		for b.Loop() {
			st.SawKey(token.ID, time.Now())
		}
	})
}
