package api

import (
	"io"
	"strings"
	"testing"

	"weir/internal/store/pgtest"
	"weir/internal/wait"
	"weir/internal/weir"
)

// newUploadsOnPostgreSQL is newUploads on a database that can go away.
func newUploadsOnPostgreSQL(t *testing.T) (u *uploads, database string) {
	t.Helper()
	database = engines()["postgres"](t)
	f := openFixture(t, database)
	t.Cleanup(f.store.Close)
	f.addUser(t, f.server.Accounts, "ann")
	u = &uploads{fixture: f, TB: t}
	u.restart(nil)
	return u, database
}

// The database goes away while an upload arrives: what has come is kept, and the upload ends when the
// database is back.
func TestTusWithoutDatabase(t *testing.T) {
	t.Parallel()
	u, database := newUploadsOnPostgreSQL(t)
	r := u.request()
	whole := film(1000)
	at := u.begin(r, "Upload-Length", "1000")
	body, sent := io.Pipe()
	answered := make(chan uploadReply)
	go func() { answered <- u.add(at, 0, body) }()
	if _, err := io.WriteString(sent, whole[:600]); err != nil {
		t.Fatal(err)
	}
	wait.Until(t, "the request is being read", func() bool {
		state, _, err := u.server.Media.Get(t.Context(), infoKey(r.Asset.ID), 0, -1)
		if err != nil {
			return false
		}
		defer state.Close()
		text, _ := io.ReadAll(state)
		return strings.Contains(string(text), "writer")
	})
	back := pgtest.Cut(t, database)
	if _, err := io.WriteString(sent, whole[600:]); err != nil {
		t.Fatal(err)
	}
	_ = sent.Close()
	if g := wait.Receive(t, "a response", answered); g.StatusCode < 500 {
		t.Errorf("%d %s", g.StatusCode, g.body)
	}
	back()
	if n := u.offset(at); n != len(whole) || u.kept(r) != whole {
		t.Errorf("%d of %d bytes are kept", n, len(whole))
	}
	u.phases(r, weir.AssetWaiting, weir.TaskWaiting)
}
