package account

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"weir/internal/store"
	"weir/internal/weir"
)

const (
	accessLife  = 24 * time.Hour
	refreshLife = 30 * 24 * time.Hour
	audience    = "weir"
)

// LogIn has the tokens of a program that acts for a person.
type LogIn struct {
	User         weir.User
	Token        weir.Secret // the access token
	RefreshToken weir.Secret // for new access tokens; "" = the current one stays valid
}

// claims are the claims of an access token.
type claims struct {
	jwt.RegisteredClaims
	Stamp string `json:"stamp"` // of the password that was used
	// Session is the row of the browser's session that the token was made for; "" = none. The
	// token ends with it.
	Session string `json:"session,omitempty"`
}

// LogIn logs in a person at addr.
func (a *Accounts) LogIn(ctx context.Context, email, password string, addr netip.Addr) (LogIn, error) {
	u, err := a.checkPassword(ctx, email, password, addr)
	if err != nil {
		return LogIn{}, err
	}
	in := LogIn{User: u, RefreshToken: weir.Secret(weir.NewToken())}
	now := time.Now()
	if in.Token, err = a.accessToken(u, "", now, accessLife); err != nil {
		return LogIn{}, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error { return createRefreshToken(ctx, tx, in.RefreshToken, u.ID, now, refreshLife) })
	return in, err
}

// errLogIn is the response to an unknown account and to a wrong password: who has an account is not
// for everybody.
func errLogIn() error { return weir.Errorf(weir.Denied, "Email or password incorrect") }

// checkPassword returns the user with the e-mail address and the password. Too many guesses have to
// wait.
func (a *Accounts) checkPassword(ctx context.Context, email, password string, addr netip.Addr) (weir.User, error) {
	email = strings.ToLower(strings.TrimSpace(email))
	if len(email) > 254 || len(password) > maxPassword {
		return weir.User{}, errLogIn()
	}
	now, who, where := a.now(), accountKey(email), addressKey(addr)
	if err := a.guesses.attempt(where, freeByAddress, now); err != nil {
		return weir.User{}, err
	}
	if err := a.guesses.attempt(who, freeByAccount, now); err != nil {
		a.guesses.succeeded(where) // the password was not checked
		return weir.User{}, err
	}
	u, err := a.store.UserByEmail(ctx, email)
	unknown := weir.IsNotFound(err)
	if err != nil && !unknown {
		return weir.User{}, err
	}
	// Also for an unknown account, so that the response takes as long as for a wrong password.
	right, err := a.hasher.matches(ctx, u.Password, password)
	switch {
	case err != nil:
		// The password was not checked, so the attempt does not count.
		a.guesses.succeeded(where)
		a.guesses.succeeded(who)
		return weir.User{}, err
	case unknown || !right:
		return weir.User{}, errLogIn()
	}
	a.guesses.succeeded(where)
	a.guesses.forget(who)
	return u, notSuspended(u)
}

func notSuspended(u weir.User) error {
	if u.Suspended {
		return weir.Errorf(weir.Denied, "user is suspended")
	}
	return nil
}

func createRefreshToken(ctx context.Context, tx *store.Tx, token weir.Secret, userID string, now time.Time, life time.Duration) error {
	return tx.CreateRefreshToken(ctx, token, store.RefreshToken{UserID: userID, CreatedAt: weir.At(now), ExpiresAt: weir.At(now.Add(life))})
}

// Refresh returns a new access token, and a new refresh token if the current one expires soon. A
// refresh token that is used again soon after its last use was probably stolen: it is revoked.
func (a *Accounts) Refresh(ctx context.Context, refreshToken weir.Secret) (LogIn, error) {
	var in LogIn
	var refused error
	now := time.Now()
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		old, err := tx.UpdateRefreshToken(ctx, refreshToken, func(t *store.RefreshToken) error {
			switch {
			case t.Revoked || t.ExpiresAt.Time().Before(now):
				refused = weir.Errorf(weir.Unauthenticated, "invalid refresh token")
			case t.UsedAt != 0 && now.Sub(t.UsedAt.Time()) < accessLife/2:
				refused = weir.Errorf(weir.Unauthenticated, "refresh token has already been used too recently")
				t.Revoked = true
			default:
				t.UsedAt = weir.At(now)
			}
			return nil // so that the change is written
		})
		if err != nil || refused != nil {
			return err
		}
		if in.User, err = tx.User(ctx, old.UserID); err != nil {
			return err
		}
		if err := notSuspended(in.User); err != nil {
			return err
		}
		if left := old.ExpiresAt.Time().Sub(now); left >= refreshLife/5 {
			return nil
		}
		in.RefreshToken = weir.Secret(weir.NewToken())
		return createRefreshToken(ctx, tx, in.RefreshToken, old.UserID, now, refreshLife)
	})
	switch {
	case weir.IsNotFound(err):
		return LogIn{}, weir.Errorf(weir.Unauthenticated, "invalid refresh token")
	case err != nil:
		return LogIn{}, err
	case refused != nil:
		return LogIn{}, refused
	}
	in.Token, err = a.accessToken(in.User, "", now, accessLife)
	return in, err
}

func (a *Accounts) accessToken(u weir.User, session string, now time.Time, life time.Duration) (weir.Secret, error) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Subject: u.ID, Audience: jwt.ClaimStrings{audience}, IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(now.Add(life)),
		},
		Stamp: a.stamp(u), Session: session,
	}).SignedString(a.key)
	return weir.Secret(token), err
}

// stamp returns a text that changes with the password, and when a deleted account is restored.
func (a *Accounts) stamp(u weir.User) string {
	parts := []string{"stamp", u.ID, u.Password}
	if u.RestoredAt != 0 {
		parts = append(parts, strconv.FormatInt(int64(u.RestoredAt), 10))
	}
	return a.mac(parts...)[:22]
}

// mac returns a MAC of the parts with the key of this installation.
func (a *Accounts) mac(parts ...string) string {
	m := hmac.New(sha256.New, a.key)
	for _, part := range parts {
		m.Write([]byte(part))
		m.Write([]byte{0})
	}
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// Verify returns the user of an access token. The caller must check whether the user is suspended.
func (a *Accounts) Verify(ctx context.Context, token string, now time.Time) (userID string, err error) {
	var c claims
	parsed, err := jwt.ParseWithClaims(
		token, &c,
		func(*jwt.Token) (any, error) { return a.key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithExpirationRequired(), jwt.WithAudience(audience),
		jwt.WithTimeFunc(func() time.Time { return now }),
	)
	if err != nil {
		return "", weir.Errorf(weir.Unauthenticated, "%s", tokenProblem(parsed, err))
	}
	u, err := a.store.User(ctx, c.Subject)
	if weir.IsNotFound(err) {
		return "", weir.Errorf(weir.Unauthenticated, "no user found from authorization header")
	}
	if err != nil {
		return "", err
	}
	if !hmac.Equal([]byte(c.Stamp), []byte(a.stamp(u))) {
		if u.RestoredAt != 0 {
			return "", weir.Errorf(weir.Unauthenticated, "the password was changed or the account was restored after this access token was made. please log in again")
		}
		return "", weir.Errorf(weir.Unauthenticated, "the password was changed after this access token was made. please log in again")
	}
	if c.Session != "" {
		if _, err := a.store.RefreshTokenByHash(ctx, c.Session, weir.At(now)); err != nil {
			if weir.IsNotFound(err) {
				err = weir.Errorf(weir.Unauthenticated, "the browser that this access token was made for has logged out. please log in again")
			}
			return "", err
		}
	}
	return u.ID, nil
}

// tokenProblem returns the message of the contract for an invalid access token.
func tokenProblem(token *jwt.Token, err error) string {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return "jwt malformed"
	case token != nil && token.Method != nil && token.Method.Alg() != jwt.SigningMethodHS256.Alg():
		return "invalid algorithm"
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return "invalid signature"
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return "legacy access token detected. please log in again"
	case errors.Is(err, jwt.ErrTokenExpired):
		return "access token expired"
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return "jwt not active"
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return "jwt audience invalid. expected: " + audience
	}
	return "invalid token"
}
