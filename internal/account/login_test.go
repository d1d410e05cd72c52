package account

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/weir"
)

func now() time.Time { return time.Now() }

func TestLogIn(t *testing.T) {
	f := newFixture(t, Options{})
	ann, bob := f.addUser(t, "ann@example.com"), f.addUser(t, "bob@example.com")
	f.suspend(t, bob.ID)
	unset := newUser("new@example.com")
	if err := f.store.Tx(t.Context(), func(tx *store.Tx) error { return tx.CreateUser(t.Context(), &unset) }); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, email, password string
		kind                  weir.Kind
		message               string
	}{
		{"right", "ann@example.com", goodPassword, "", ""},
		{"other case", " ANN@example.com", goodPassword, "", ""},
		{"pre-hashed", "ann@example.com", preHashed, "", ""},
		{"wrong password", "ann@example.com", "wrong password", weir.Denied, "Email or password incorrect"},
		{"unknown", "eve@example.com", goodPassword, weir.Denied, "Email or password incorrect"},
		{"no password yet", "new@example.com", "", weir.Denied, "Email or password incorrect"},
		{"suspended", "bob@example.com", goodPassword, weir.Denied, "user is suspended"},
		{"suspended and wrong", "bob@example.com", "wrong password", weir.Denied, "Email or password incorrect"},
		{"endless", "ann@example.com", strings.Repeat("x", 5000), weir.Denied, "Email or password incorrect"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, err := f.LogIn(t.Context(), tt.email, tt.password, home)
			wantError(t, err, tt.kind, tt.message)
			if err != nil {
				if in.Token != "" || in.RefreshToken != "" {
					t.Error("a refused log-in gives tokens")
				}
				return
			}
			id, err := f.Verify(t.Context(), in.Token.Reveal(), now())
			if err != nil || id != ann.ID || in.User.ID != ann.ID {
				t.Errorf("the token is %q's (%v), want %q", id, err, ann.ID)
			}
		})
	}
}

// TestLogInTellsNothing shows that nobody learns from a log-in who has an account: the response is the
// same, and so is the work.
func TestLogInTellsNothing(t *testing.T) {
	f := newFixture(t, Options{})
	f.addUser(t, "ann@example.com")
	bob := f.addUser(t, "bob@example.com")
	f.delete(t, bob.ID)
	fresh := newUser("new@example.com")
	if err := f.store.Tx(t.Context(), func(tx *store.Tx) error { return tx.CreateUser(t.Context(), &fresh) }); err != nil {
		t.Fatal(err)
	}
	want := int64(f.hasher.cost.memory) * int64(f.hasher.cost.passes) // of one hash
	for _, email := range []string{"ann@example.com", "eve@example.com", "bob@example.com", "new@example.com", "no address"} {
		before := f.hasher.spent.Load()
		_, err := f.LogIn(t.Context(), email, "wrong password", home)
		wantError(t, err, weir.Denied, "Email or password incorrect")
		if did := f.hasher.spent.Load() - before; did != want {
			t.Errorf("%s: work of %d, want %d", email, did, want)
		}
	}
}

// TestDeletedAccount shows that log-ins end with the account, and stay ended when it is restored.
func TestDeletedAccount(t *testing.T) {
	f := newFixture(t, Options{Signup: true})
	ctx := t.Context()
	ann := f.addUser(t, "ann@example.com")
	in, err := f.LogIn(ctx, ann.Email, goodPassword, home)
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, f, "")
	b.logIn(t, ann.Email)
	link, err := f.NewLink(ctx, ann.ID)
	if err != nil {
		t.Fatal(err)
	}
	f.delete(t, ann.ID)
	_, err = f.Verify(ctx, in.Token.Reveal(), now())
	wantError(t, err, weir.Unauthenticated, "no user found from authorization header")
	_, err = f.LogIn(ctx, ann.Email, goodPassword, home)
	wantError(t, err, weir.Denied, "Email or password incorrect")
	_, err = f.NewLink(ctx, ann.ID)
	wantError(t, err, weir.NotFound, "")
	_, err = f.Register(ctx, NewUser{Email: ann.Email, Password: goodPassword}, home)
	wantError(t, err, weir.Conflict, "")
	if err == nil || !strings.Contains(err.Error(), "was deleted") {
		t.Errorf("the address of a deleted account: %v", err)
	}

	if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.RestoreUser(ctx, ann.ID, now()) }); err != nil {
		t.Fatal(err)
	}
	_, err = f.Verify(ctx, in.Token.Reveal(), now())
	wantError(t, err, weir.Unauthenticated, "the password was changed or the account was restored after this access token was made. please log in again")
	_, err = f.Refresh(ctx, in.RefreshToken)
	wantError(t, err, weir.Unauthenticated, "invalid refresh token")
	_, err = f.SetPassword(ctx, link, ann.Email, goodPassword)
	wantError(t, err, weir.Denied, "")
	if s, err := f.store.RefreshToken(ctx, f.storedSession(b.cookie(t)), weir.At(now())); !weir.IsNotFound(err) {
		t.Errorf("the browser is still logged in: %+v, %v", s, err)
	}
	again, err := f.LogIn(ctx, ann.Email, goodPassword, home)
	wantError(t, err, "", "")
	_, err = f.Verify(ctx, again.Token.Reveal(), now())
	wantError(t, err, "", "")
}

func TestGuessingIsSlowedDown(t *testing.T) {
	f := newFixture(t, Options{})
	f.stopClock()
	ctx := t.Context()
	f.addUser(t, "ann@example.com")
	for range freeByAccount {
		_, err := f.LogIn(ctx, "ann@example.com", "wrong password", home)
		wantError(t, err, weir.Denied, "Email or password incorrect")
	}
	// Now even the right password has to wait, from wherever it comes.
	for _, from := range []string{"192.0.2.7", "192.0.2.8"} {
		_, err := f.LogIn(ctx, "ann@example.com", goodPassword, netip.MustParseAddr(from))
		wantError(t, err, weir.Busy, "")
	}
	// What is not even tried does not count against the others behind the address.
	bob := f.addUser(t, "bob@example.com")
	for range freeByAddress {
		_, err := f.LogIn(ctx, "ann@example.com", goodPassword, home)
		wantError(t, err, weir.Busy, "")
	}
	_, err := f.LogIn(ctx, bob.Email, goodPassword, home)
	wantError(t, err, "", "")
	// A new link gets its owner in at once.
	u, err := f.store.UserByEmail(ctx, "ann@example.com")
	if err != nil {
		t.Fatal(err)
	}
	link, err := f.NewLink(ctx, u.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.SetPassword(ctx, link, u.Email, goodPassword); err != nil {
		t.Fatal(err)
	}
	_, err = f.LogIn(ctx, u.Email, goodPassword, home)
	wantError(t, err, "", "")
}

// A client that tries one password on many accounts is slowed down by address.
func TestSprayingIsSlowedDown(t *testing.T) {
	f := newFixture(t, Options{})
	f.stopClock()
	f.addUser(t, "ann@example.com")
	for i := range freeByAddress {
		_, err := f.LogIn(t.Context(), string(rune('a'+i))+"@example.com", goodPassword, home)
		wantError(t, err, weir.Denied, "Email or password incorrect")
	}
	_, err := f.LogIn(t.Context(), "ann@example.com", goodPassword, home)
	wantError(t, err, weir.Busy, "")
	_, err = f.LogIn(t.Context(), "ann@example.com", goodPassword, netip.MustParseAddr("192.0.2.8"))
	wantError(t, err, "", "")
}

func TestVerify(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	other := newFixture(t, Options{}) // another installation has another key
	at := time.Now()
	sign := func(method jwt.SigningMethod, key any, change func(*claims)) string {
		c := claims{
			RegisteredClaims: jwt.RegisteredClaims{Subject: ann.ID, Audience: jwt.ClaimStrings{audience}, ExpiresAt: jwt.NewNumericDate(at.Add(time.Hour))},
			Stamp:            f.stamp(ann),
		}
		change(&c)
		token, err := jwt.NewWithClaims(method, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	ours := func(change func(*claims)) string { return sign(jwt.SigningMethodHS256, f.key, change) }
	for _, tt := range []struct{ name, token, message string }{
		{"good", ours(func(*claims) {}), ""},
		{"nothing", "", "jwt malformed"},
		{"no JWT", "abc", "jwt malformed"},
		{"broken", "a.b.c", "jwt malformed"},
		{"foreign", sign(jwt.SigningMethodHS256, other.key, func(*claims) {}), "invalid signature"},
		{"unsigned", sign(jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, func(*claims) {}), "invalid algorithm"},
		{"other algorithm", sign(jwt.SigningMethodHS512, f.key, func(*claims) {}), "invalid algorithm"},
		{"expired", ours(func(c *claims) { c.ExpiresAt = jwt.NewNumericDate(at.Add(-time.Second)) }), "access token expired"},
		{"without end", ours(func(c *claims) { c.ExpiresAt = nil }), "legacy access token detected. please log in again"},
		{"not yet", ours(func(c *claims) { c.NotBefore = jwt.NewNumericDate(at.Add(time.Minute)) }), "jwt not active"},
		{"for another audience", ours(func(c *claims) { c.Audience = jwt.ClaimStrings{"else"} }), "jwt audience invalid. expected: weir"},
		{"unknown user", ours(func(c *claims) { c.Subject = weir.NewID() }), "no user found from authorization header"},
		{"old password", ours(func(c *claims) { c.Stamp = "old" }), "the password was changed after this access token was made. please log in again"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			id, err := f.Verify(t.Context(), tt.token, at)
			if tt.message == "" {
				if err != nil || id != ann.ID {
					t.Errorf("user %q, error %v; want %q", id, err, ann.ID)
				}
				return
			}
			wantError(t, err, weir.Unauthenticated, tt.message)
		})
	}
}

func TestAccessTokenLivesADay(t *testing.T) {
	f := newFixture(t, Options{})
	ann := f.addUser(t, "ann@example.com")
	in, err := f.LogIn(t.Context(), ann.Email, goodPassword, home)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Verify(t.Context(), in.Token.Reveal(), now().Add(accessLife-time.Minute))
	wantError(t, err, "", "")
	_, err = f.Verify(t.Context(), in.Token.Reveal(), now().Add(accessLife+time.Minute))
	wantError(t, err, weir.Unauthenticated, "access token expired")
}

func TestRefresh(t *testing.T) {
	f := newFixture(t, Options{})
	ann, bob := f.addUser(t, "ann@example.com"), f.addUser(t, "bob@example.com")
	f.suspend(t, bob.ID)
	at := func(d time.Duration) weir.Millis { return weir.At(time.Now().Add(d)) }
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name    string
		token   store.RefreshToken
		kind    weir.Kind
		message string
		renewed bool
		after   string // message of the next use
	}{
		{name: "fresh", token: store.RefreshToken{UserID: ann.ID, ExpiresAt: at(30 * day)}, after: "refresh token has already been used too recently"},
		{name: "used yesterday", token: store.RefreshToken{UserID: ann.ID, ExpiresAt: at(29 * day), UsedAt: at(-day)}, after: "refresh token has already been used too recently"},
		{name: "near its end", token: store.RefreshToken{UserID: ann.ID, ExpiresAt: at(5 * day)}, renewed: true, after: "refresh token has already been used too recently"},
		{
			name: "used too soon", token: store.RefreshToken{UserID: ann.ID, ExpiresAt: at(29 * day), UsedAt: at(-11 * time.Hour)},
			kind: weir.Unauthenticated, message: "refresh token has already been used too recently", after: "invalid refresh token",
		},
		{
			name: "expired", token: store.RefreshToken{UserID: ann.ID, ExpiresAt: at(-time.Second)},
			kind: weir.Unauthenticated, message: "invalid refresh token", after: "invalid refresh token",
		},
		{
			name: "suspended", token: store.RefreshToken{UserID: bob.ID, ExpiresAt: at(30 * day)},
			kind: weir.Denied, message: "user is suspended", after: "user is suspended",
		},
		{
			name: "of a deleted user", token: store.RefreshToken{UserID: weir.NewID(), ExpiresAt: at(30 * day)},
			kind: weir.Unauthenticated, message: "invalid refresh token", after: "invalid refresh token",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, token := t.Context(), weir.Secret(weir.NewToken())
			if err := f.store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateRefreshToken(ctx, token, tt.token) }); err != nil {
				t.Fatal(err)
			}
			in, err := f.Refresh(ctx, token)
			wantError(t, err, tt.kind, tt.message)
			if err == nil {
				if id, err := f.Verify(ctx, in.Token.Reveal(), now()); err != nil || id != ann.ID {
					t.Errorf("the new token is %q's (%v)", id, err)
				}
				if (in.RefreshToken != "") != tt.renewed {
					t.Errorf("a new refresh token: %v, want %v", in.RefreshToken != "", tt.renewed)
				}
			}
			if in.RefreshToken != "" {
				_, err := f.Refresh(ctx, in.RefreshToken)
				wantError(t, err, "", "")
			}
			_, err = f.Refresh(ctx, token)
			if err == nil || err.Error() != tt.after {
				t.Errorf("next use: %v, want %q", err, tt.after)
			}
		})
	}
	_, err := f.Refresh(t.Context(), "nonsense")
	wantError(t, err, weir.Unauthenticated, "invalid refresh token")
}

// A browser's cookie is no refresh token.
func TestSessionIsNoRefreshToken(t *testing.T) {
	f := newFixture(t, Options{})
	b := newBrowser(t, f, "")
	b.logIn(t, f.addUser(t, "ann@example.com").Email)
	_, err := f.Refresh(t.Context(), weir.Secret(b.cookie(t)))
	wantError(t, err, weir.Unauthenticated, "invalid refresh token")
}

func FuzzVerify(f *testing.F) {
	a := &Accounts{key: []byte("key of a fuzz test, 32 bytes long")}
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.AAAA")
	f.Fuzz(func(t *testing.T, token string) {
		// The store is nil: a token that is not ours must not get as far as that.
		if _, err := a.Verify(t.Context(), token, time.Unix(0, 0)); weir.KindOf(err) != weir.Unauthenticated {
			t.Errorf("%q: %v", token, err)
		}
	})
}
