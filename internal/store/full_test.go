package store

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"weir/internal/store/storetest"
	"weir/internal/weir"
)

// On a full disk writes fail with an error that says so, reads go on, and with more space so do
// writes.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("only root can mount a small disk: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	made, err := os.ReadFile(strings.TrimPrefix(storetest.SQLite(t, Open, Options{Secret: testSecret}), "sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "weir.db")
	if err := os.WriteFile(path, made, 0o600); err != nil {
		t.Fatal(err)
	}
	st, err := Open(t.Context(), "sqlite:"+path, Options{Secret: testSecret, NodeID: "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if err := st.register(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := st.TryWrite(t.Context()); err != nil {
		t.Fatal(err)
	}
	balloon := filepath.Join(dir, "balloon")
	f, err := os.Create(balloon)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	user := func() error {
		u := weir.User{ID: weir.NewID(), Email: weir.NewID() + "@example.com", CreatedAt: weir.At(time.Now())}
		return st.Tx(t.Context(), func(tx *Tx) error { return tx.CreateUser(t.Context(), &u) })
	}
	for what, write := range map[string]func() error{
		"a row": user, "a try": func() error { return st.TryWrite(t.Context()) },
		"a job": func() error {
			return st.Tx(t.Context(), func(tx *Tx) error { return tx.enqueue(t.Context(), []newJob{{kind: JobPurge, ref: weir.NewID()}}) })
		},
	} {
		var err error
		for range 3000 { // until what the files have left is used up
			time.Sleep(time.Millisecond) // so that a try changes something
			if err = write(); err != nil {
				break
			}
		}
		if weir.KindOf(err) != weir.Full {
			t.Errorf("%s: error %v, want one of kind full", what, err)
		}
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Errorf("a read: %v", err)
	}
	if err := os.Remove(balloon); err != nil {
		t.Fatal(err)
	}
	if err := user(); err != nil {
		t.Errorf("with space: %v", err)
	}
	if err := st.TryWrite(t.Context()); err != nil {
		t.Errorf("with space: %v", err)
	}
}

func TestFullDiskOfPostgreSQL(t *testing.T) {
	if err := pgError(&pgconn.PgError{Code: "53100", Message: "could not extend file"}); weir.KindOf(err) != weir.Full {
		t.Errorf("error %v, want one of kind full", err)
	}
}
