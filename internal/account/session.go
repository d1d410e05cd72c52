package account

import (
	"context"
	"crypto/hmac"
	"encoding/json"
	"net/http"
	"time"

	"weir/internal/budget"
	"weir/internal/endpoint"
	"weir/internal/store"
	"weir/internal/weir"
)

const (
	// sessionLife is how long a browser stays logged in.
	sessionLife = 14 * 24 * time.Hour
	// sessionTokenLife is how long an access token of a session is valid. Pages keep it in memory
	// and get another one in time.
	sessionTokenLife = 10 * time.Minute
)

// session is the log-in of a browser. Its cookie is random. The store has a hash of it among the
// refresh tokens, so that logging out, a new password, suspension and deletion end it at once.
type session struct {
	user  weir.User
	token string // the value of the cookie
	row   string // names the session in the store
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
	return &session{user: u, token: c.Value, row: t.Hash, form: a.mac("form", c.Value)[:32]}, err
}

// sessionToken is the response to POST /session/token.
type sessionToken struct {
	Token     string      `json:"token"`
	ExpiresAt weir.Millis `json:"expiresAt"`
	Form      string      `json:"form"` // the value that forms of this browser send, such as the one that logs out
}

// createSessionToken answers POST /session/token: an access token for the scripts of our own pages,
// which use the API with it. It ends with the session. The API itself reads no cookies, so a page
// of another site can't use it in the name of a person who has logged in here.
func (p *pages) createSessionToken(req *pageRequest) error {
	if err := p.checkSameOrigin(req.Request); err != nil {
		return err
	}
	s, err := p.session(req.Request, req.secure)
	if err != nil {
		return err
	}
	if s == nil {
		return weir.Errorf(weir.Unauthenticated, "no browser session: log in at /login first")
	}
	req.session = s
	budget.Authenticated(req.Context())
	now := time.Now()
	token, err := p.accessToken(s.user, s.row, now, sessionTokenLife)
	if err != nil {
		return err
	}
	return writeJSON(req.w, http.StatusOK, sessionToken{token.Reveal(), weir.At(now.Add(sessionTokenLife)), s.form})
}

// checkSameOrigin refuses requests that are not surely from a script of our own origin. Unlike a
// form, which has a value that only our pages know, such a request has nothing but its headers.
func (p *pages) checkSameOrigin(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	known := site == "same-origin" || site == "" && origin != ""
	if !known || p.crossOrigin.Check(r) != nil {
		return weir.Errorf(weir.Denied, "only a page of this server may ask for this token; programs use POST /api/user/token")
	}
	return nil
}

// writeError answers with an error as the API does.
func (p *pages) writeError(req *pageRequest, err error) {
	const internal = "internal error"
	f := endpoint.FailureOf(err, internal)
	if isServerError(err) {
		if req.Context().Err() != nil { // the browser has disconnected
			return
		}
		f.Messages = []string{internal}
		p.log.ErrorContext(req.Context(), "request failed", "route", req.Pattern, "request", req.id, "err", err)
	}
	f.SetHeader(req.w.Header())
	writeText(req.w, f.Status, f.Body())
}

func writeJSON(w http.ResponseWriter, status int, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", endpoint.JSON)
	writeText(w, status, text)
	return nil
}

func writeText(w http.ResponseWriter, status int, text []byte) {
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the browser has disconnected
}

// ownsForm reports whether a form came from a page of this session.
func (s *session) ownsForm(form string) bool { return hmac.Equal([]byte(form), []byte(s.form)) }

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
