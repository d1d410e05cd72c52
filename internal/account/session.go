package account

import (
	"context"
	"crypto/hmac"
	"net/http"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// sessionLife is how long a browser stays logged in.
const sessionLife = 14 * 24 * time.Hour

// session is the log-in of a browser. Its cookie is random. The store has a hash of it among the
// refresh tokens, so that logging out, a new password, suspension and deletion end it at once.
type session struct {
	user  weir.User
	token string // the value of the cookie
	// form is a value that every form of this browser must send: pages of other sites do not know
	// it.
	form string
}

// storedSession returns the token under which the store has a session. It is a MAC of the cookie,
// so that a refresh token can't be used as a cookie, and a cookie not as a refresh token.
func (a *Accounts) storedSession(cookie string) weir.Secret {
	return weir.Secret(a.mac("session", cookie))
}

// cookieName returns the name of the cookie. With the prefix __Host-, browsers accept the cookie
// only over HTTPS and only from this host.
func cookieName(secure bool) string {
	if secure {
		return "__Host-weir"
	}
	return "weir"
}

// openSession logs a browser in.
func (a *Accounts) openSession(ctx context.Context, w http.ResponseWriter, secure bool, u weir.User) error {
	cookie, now := weir.NewToken(), time.Now()
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		return createRefreshToken(ctx, tx, a.storedSession(cookie), u.ID, now, sessionLife)
	})
	if err != nil {
		return err
	}
	setCookie(w, secure, cookie, int(sessionLife.Seconds()))
	return nil
}

func setCookie(w http.ResponseWriter, secure bool, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(secure), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, Secure: secure, SameSite: http.SameSiteLaxMode,
	})
}

// session returns the session of a request, or nil.
func (a *Accounts) session(r *http.Request, secure bool) (*session, error) {
	c, err := r.Cookie(cookieName(secure))
	if err != nil || c.Value == "" {
		return nil, nil
	}
	t, err := a.store.RefreshToken(r.Context(), a.storedSession(c.Value), weir.At(time.Now()))
	if weir.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u, err := a.store.User(r.Context(), t.UserID)
	if weir.IsNotFound(err) || err == nil && u.Suspended {
		return nil, nil
	}
	return &session{user: u, token: c.Value, form: a.mac("form", c.Value)[:32]}, err
}

// sent reports whether a form came from a page of this session.
func (s *session) sent(form string) bool { return hmac.Equal([]byte(form), []byte(s.form)) }

// closeSession logs a browser out.
func (a *Accounts) closeSession(ctx context.Context, w http.ResponseWriter, secure bool, s *session) error {
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.UpdateRefreshToken(ctx, a.storedSession(s.token), func(t *store.RefreshToken) error {
			t.Revoked = true
			return nil
		})
		return err
	})
	if err != nil && !weir.IsNotFound(err) {
		return err
	}
	setCookie(w, secure, "", -1)
	return nil
}
