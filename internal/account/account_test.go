package account

import (
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"weir/internal/store"
	"weir/internal/store/pgtest"
	"weir/internal/store/storetest"
	"weir/internal/weir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Runner{M: m}) }

const goodPassword = "correct horse battery"

var home = netip.MustParseAddr("192.0.2.7")

// fixture is a store with accounts, and what they logged.
type fixture struct {
	*Accounts
	store *store.Store
	log   *bytes.Buffer
}

func secret() []byte { return bytes.Repeat([]byte{5}, 32) }

func newFixture(t *testing.T, opt Options) *fixture {
	t.Helper()
	st := openStore(t, storetest.SQLite(t, store.Open, store.Options{Secret: secret()}))
	log := &bytes.Buffer{}
	opt.Log = slog.New(slog.NewTextHandler(log, nil))
	a, err := New(t.Context(), st, opt)
	if err != nil {
		t.Fatal(err)
	}
	a.hasher.cost.memory = 64 // TestHash has seen the real one
	return &fixture{a, st, log}
}

func openStore(t *testing.T, url string) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), url, store.Options{Secret: secret()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(st.Close)
	return st
}

// addUser makes an account with goodPassword.
func (f *fixture) addUser(t *testing.T, email string) weir.User {
	t.Helper()
	ctx := t.Context()
	u := newUser(email)
	if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateUser(ctx, &u) }); err != nil {
		t.Fatal(err)
	}
	link, err := f.NewLink(ctx, u.ID)
	if err != nil {
		t.Fatal(err)
	}
	u, err = f.SetPassword(ctx, link, email, goodPassword)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func (f *fixture) suspend(t *testing.T, id string) {
	t.Helper()
	f.change(t, id, func(u *weir.User) { u.Suspended = true })
}

func (f *fixture) delete(t *testing.T, id string) {
	t.Helper()
	if err := f.store.Tx(t.Context(), func(tx *store.Tx) error {
		_, err := tx.DeleteUser(t.Context(), id, weir.Base{}, time.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) change(t *testing.T, id string, change func(*weir.User)) {
	t.Helper()
	ctx := t.Context()
	err := f.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateUser(ctx, id, func(u *weir.User) error {
			change(u)
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stopClock makes the throttle see all tries at one moment.
func (f *fixture) stopClock() {
	now := time.Now()
	f.now = func() time.Time { return now }
}

// wantError checks kind and message of an error; "" is no error.
func wantError(t *testing.T, err error, kind weir.Kind, message string) {
	t.Helper()
	switch {
	case kind == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case kind != "" && (err == nil || weir.KindOf(err) != kind || message != "" && err.Error() != message):
		t.Errorf("error %v, want %s %q", err, kind, message)
	}
}

func TestCreateFirst(t *testing.T) {
	f := newFixture(t, Options{})
	ctx := t.Context()
	first, created, err := f.CreateFirst(ctx, "")
	if err != nil || !created || !first.User.Admin || first.User.Email != placeholder {
		t.Fatalf("first start: %+v, created %v, error %v", first, created, err)
	}
	caller, err := f.store.CallerByKey(ctx, first.Key)
	if err != nil || caller.UserID != first.User.ID {
		t.Errorf("the key belongs to %q (%v), want the first account", caller.UserID, err)
	}
	if _, err := f.SetPassword(ctx, first.LinkToken, "Ann@Example.com", goodPassword); err != nil {
		t.Fatal(err)
	}
	in, err := f.LogIn(ctx, "ann@example.com", goodPassword, home)
	if err != nil || in.User.ID != first.User.ID {
		t.Errorf("log-in with the address that was set: %v", err)
	}

	again, created, err := f.CreateFirst(ctx, "")
	if err != nil || created || again.Key != "" || again.LinkToken != "" || again.User.ID != first.User.ID {
		t.Errorf("second start: %+v, created %v, error %v; want the same account and nothing else", again, created, err)
	}
}

func TestCreateFirstWithChosenKey(t *testing.T) {
	const chosen = weir.Secret("chosen-by-the-operator")
	f := newFixture(t, Options{})
	ctx := t.Context()
	first, created, err := f.CreateFirst(ctx, "")
	if err != nil || !created {
		t.Fatal(created, err)
	}
	for range 2 { // it is added once, however often the service starts
		if _, _, err := f.CreateFirst(ctx, chosen); err != nil {
			t.Fatal(err)
		}
	}
	caller, err := f.store.CallerByKey(ctx, chosen)
	if err != nil || caller.UserID != first.User.ID {
		t.Errorf("the chosen key belongs to %q (%v), want the first account", caller.UserID, err)
	}
	page, err := f.store.Tokens(ctx, store.Query{})
	if err != nil || len(page.Items) != 2 {
		t.Errorf("%d keys (%v), want 2", len(page.Items), err)
	}

	f = newFixture(t, Options{})
	first, created, err = f.CreateFirst(ctx, chosen)
	if err != nil || !created || first.Key != chosen {
		t.Errorf("first start with a key: %v, created %v, error %v; want that key and no other", first.Key.Reveal(), created, err)
	}
}

// Nodes that start together make one first account between them.
func TestCreateFirstTogether(t *testing.T) {
	for name, url := range map[string]string{
		"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "weir.db"), "postgres": pgtest.Start(t),
	} {
		t.Run(name, func(t *testing.T) {
			st := openStore(t, url)
			var wg sync.WaitGroup
			var mu sync.Mutex
			made := 0
			for range 4 {
				a, err := New(t.Context(), st, Options{})
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					_, created, err := a.CreateFirst(t.Context(), "the same for all nodes")
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if created {
						made++
					}
				})
			}
			wg.Wait()
			users, err := st.Users(t.Context(), store.Query{})
			if err != nil || made != 1 || len(users.Items) != 1 {
				t.Errorf("%d accounts, %d starts that made one (%v); want one and one", len(users.Items), made, err)
			}
		})
	}
}

func TestRegister(t *testing.T) {
	f := newFixture(t, Options{})
	_, err := f.Register(t.Context(), NewUser{Email: "ann@example.com", Password: goodPassword}, home)
	wantError(t, err, weir.Denied, "sign-up is off on this server; ask its operator for an account")

	f = newFixture(t, Options{Signup: true})
	for _, tt := range []struct {
		name, email, password string
		kind                  weir.Kind
		message               string
	}{
		{"no address", "ann", goodPassword, weir.Invalid, "invalid email"},
		{"short password", "ann@example.com", "short", weir.Invalid, "the password has 5 characters; use at least 8"},
		{"blank password", "ann@example.com", "          ", weir.Invalid, "the password is blank"},
		{"first", "Ann@Example.com", goodPassword, "", ""},
		{"same again", "ann@example.com", goodPassword, weir.Conflict, "email already registered - please sign in instead or check your verification email"},
		{"second", "bob@example.com", goodPassword, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u, err := f.Register(t.Context(), NewUser{Email: tt.email, Password: tt.password, FirstName: "A"}, home)
			wantError(t, err, tt.kind, tt.message)
			if err != nil {
				return
			}
			if u.Admin != (tt.name == "first") {
				t.Errorf("admin = %v; only the first account is an admin's", u.Admin)
			}
			in, err := f.LogIn(t.Context(), tt.email, tt.password, home)
			if err != nil || in.User.ID != u.ID || in.User.FirstName != "A" || in.User.DefaultProjectID == "" {
				t.Errorf("log-in after sign-up: %+v, %v", in.User, err)
			}
		})
	}
}

func TestRegisterIsSlowedDown(t *testing.T) {
	f := newFixture(t, Options{Signup: true})
	f.stopClock()
	for i := range freeSignups {
		if _, err := f.Register(t.Context(), NewUser{Email: string(rune('a'+i)) + "@example.com", Password: goodPassword}, home); err != nil {
			t.Fatal(err)
		}
	}
	n := NewUser{Email: "z@example.com", Password: goodPassword}
	_, err := f.Register(t.Context(), n, home)
	wantError(t, err, weir.Busy, "")
	_, err = f.Register(t.Context(), n, netip.MustParseAddr("192.0.2.8"))
	wantError(t, err, "", "")
}

func TestPasswordLink(t *testing.T) {
	f := newFixture(t, Options{})
	ctx := t.Context()
	ann, bob := f.addUser(t, "ann@example.com"), f.addUser(t, "bob@example.com")
	in, err := f.LogIn(ctx, ann.Email, goodPassword, home)
	if err != nil {
		t.Fatal(err)
	}
	old, err := f.NewLink(ctx, ann.ID)
	if err != nil {
		t.Fatal(err)
	}
	link, err := f.NewLink(ctx, ann.ID)
	if err != nil {
		t.Fatal(err)
	}
	const wrong = "incorrect or expired user validation token"
	set := func(token weir.Secret, email, password string) error {
		_, err := f.SetPassword(ctx, token, email, password)
		return err
	}
	wantError(t, set("nonsense", ann.Email, goodPassword), weir.Denied, wrong)
	wantError(t, set(old, ann.Email, goodPassword), weir.Denied, wrong)
	wantError(t, set(link, bob.Email, goodPassword), weir.Denied, wrong)
	wantError(t, set(link, ann.Email, "short"), weir.Invalid, "")
	wantError(t, set(link, ann.Email, "another good one"), "", "") // the refusals did not use it up
	wantError(t, set(link, ann.Email, "another good one"), weir.Denied, wrong)

	_, err = f.LogIn(ctx, ann.Email, goodPassword, home)
	wantError(t, err, weir.Denied, "Email or password incorrect")
	_, err = f.LogIn(ctx, ann.Email, "another good one", home)
	wantError(t, err, "", "")
	_, err = f.Refresh(ctx, in.RefreshToken)
	wantError(t, err, weir.Unauthenticated, "invalid refresh token")

	_, err = f.NewLink(ctx, "nobody")
	wantError(t, err, weir.NotFound, "")
}

// The first account can't take the address of another one.
func TestPasswordLinkTakesFreeAddress(t *testing.T) {
	f := newFixture(t, Options{})
	first, _, err := f.CreateFirst(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	f.addUser(t, "ann@example.com")
	_, err = f.SetPassword(t.Context(), first.LinkToken, "ann@example.com", goodPassword)
	wantError(t, err, weir.Conflict, "another account has this e-mail address")
	_, err = f.SetPassword(t.Context(), first.LinkToken, "root@example.com", goodPassword)
	wantError(t, err, "", "")
}

func TestChangePassword(t *testing.T) {
	f := newFixture(t, Options{})
	ctx := t.Context()
	ann := f.addUser(t, "ann@example.com")
	in, err := f.LogIn(ctx, ann.Email, goodPassword, home)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.ChangePassword(ctx, ann.ID, "wrong password", "another good one", home)
	wantError(t, err, weir.Denied, "Email or password incorrect")
	_, err = f.ChangePassword(ctx, ann.ID, goodPassword, "short", home)
	wantError(t, err, weir.Invalid, "")
	if _, err := f.Verify(ctx, in.Token.Reveal(), now()); err != nil {
		t.Errorf("a change that failed ended the log-in: %v", err)
	}

	if _, err := f.ChangePassword(ctx, ann.ID, goodPassword, "another good one", home); err != nil {
		t.Fatal(err)
	}
	_, err = f.Verify(ctx, in.Token.Reveal(), now())
	wantError(t, err, weir.Unauthenticated, "the password was changed after this access token was made. please log in again")
	_, err = f.Refresh(ctx, in.RefreshToken)
	wantError(t, err, weir.Unauthenticated, "invalid refresh token")
	_, err = f.LogIn(ctx, ann.Email, "another good one", home)
	wantError(t, err, "", "")
}

func TestWaitingForATurnEnds(t *testing.T) {
	h := newHasher(1)
	h.running <- struct{}{} // a hash that never ends
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.hash(ctx, goodPassword); err != context.Canceled {
		t.Errorf("error %v, want that of the context", err)
	}
	for range cap(h.waiting) {
		h.waiting <- struct{}{}
	}
	_, err := h.matches(t.Context(), "", goodPassword)
	wantError(t, err, weir.Busy, "")
}
