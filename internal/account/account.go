// Package account knows the people who use weir: how they get an account, how
// they prove who they are, and the pages where they keep their API keys.
//
// There are three ways to be known. A program sends an API key, which is the
// store's to check. A program that acts for a person logs in (login.go) and gets
// an access token, a JWT that lives a day, and a refresh token that lives 30. A
// browser logs in on the pages (pages.go) and gets a cookie, which counts for the
// pages alone: nothing under /api reads it. A new password ends all log-ins of its
// account, because access tokens carry a stamp of the password they were made
// under, and the other two are rows that go with the old password.
//
// Passwords are never kept: password.go says what is. Whoever guesses is slowed
// down (throttle.go). weir sends no mail, so a password is set for the first time,
// or after it was forgotten, with a one-time link that an operator passes on
// (link.go).
package account

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// Options are the settings that accounts obey.
type Options struct {
	Signup         bool           // anybody may register
	TrustedProxies []netip.Prefix // whose X-Forwarded-* headers count
	PublicURL      string         // how browsers reach the pages; "" = as the request says
	Log            *slog.Logger
}

// Accounts is what knows people.
type Accounts struct {
	opt     Options
	store   *store.Store
	log     *slog.Logger
	key     []byte // signs access tokens and forms
	hasher  *hasher
	guesses *throttle // wrong passwords, by account and by address
	signups *throttle // new accounts, by address
	now     func() time.Time
	pages   *pages
}

// placeholder is the address of the first account until its owner sets the real
// one, together with the password.
const placeholder = "admin@localhost"

// New returns the accounts of a store. The key that signs log-ins is made by the
// first node that asks for it.
func New(ctx context.Context, st *store.Store, opt Options) (*Accounts, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	key, err := st.NamedSecret(ctx, "login", func() ([]byte, error) {
		key := make([]byte, 32)
		_, err := rand.Read(key)
		return key, err
	})
	if err != nil {
		return nil, err
	}
	a := &Accounts{
		opt: opt, store: st, log: opt.Log, key: key,
		// Half of the cores, so that a flood of log-ins leaves room for the rest.
		hasher:  newHasher(max(1, runtime.GOMAXPROCS(0)/2)),
		guesses: newThrottle(),
		signups: newThrottle(),
		now:     time.Now,
	}
	a.pages, err = newPages(a)
	return a, err
}

// NewUser is the body that registers a person.
type NewUser struct {
	Email        string `json:"email"`
	Password     string `json:"password"`
	FirstName    string `json:"firstName"`
	LastName     string `json:"lastName"`
	Organization string `json:"organization"`
	Phone        string `json:"phone"`
}

// Register makes an account for somebody who comes from addr, where the settings
// let people do that themselves.
func (a *Accounts) Register(ctx context.Context, n NewUser, addr netip.Addr) (weir.User, error) {
	if !a.opt.Signup {
		return weir.User{}, weir.Errorf(weir.Denied, "sign-up is off on this server; ask its operator for an account")
	}
	email, err := weir.CheckEmail(n.Email)
	if err != nil {
		return weir.User{}, err
	}
	if err := checkNewPassword(n.Password); err != nil {
		return weir.User{}, err
	}
	if err := a.signups.attempt(addressKey(addr), freeSignups, a.now()); err != nil {
		return weir.User{}, err
	}
	hash, err := a.hasher.hash(ctx, n.Password)
	if err != nil {
		return weir.User{}, err
	}
	u := newUser(email)
	u.Password, u.FirstName, u.LastName, u.Organization, u.Phone = hash, n.FirstName, n.LastName, n.Organization, n.Phone
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.FirstUser(ctx)
		u.Admin = isNotFound(err)
		if err != nil && !u.Admin {
			return err
		}
		return tx.CreateUser(ctx, &u)
	})
	return u, err
}

func newUser(email string) weir.User {
	return weir.User{ID: weir.NewID(), Kind: "user", Email: email, EmailValid: true, CreatedAt: weir.At(time.Now())}
}

// First is what the first start makes.
type First struct {
	User      weir.User
	Key       weir.Secret // an API key of the account
	LinkToken weir.Secret // sets its password, once
}

// CreateFirst makes the first account, an admin's, unless there is one. A key that
// the operator chose is added to it if nobody has that key; otherwise one is made
// together with the account. Key and LinkToken are there only when the account was
// created.
func (a *Accounts) CreateFirst(ctx context.Context, apiKey weir.Secret) (first First, created bool, err error) {
	u, err := a.store.FirstUser(ctx)
	if isNotFound(err) {
		first, err = a.createFirst(ctx, apiKey)
		if err == nil {
			return first, true, nil
		}
		if weir.KindOf(err) == weir.Conflict { // another node was faster
			u, err = a.store.FirstUser(ctx)
		}
	}
	if err != nil {
		return First{}, false, err
	}
	if apiKey == "" {
		return First{User: u}, false, nil
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		if has, err := tx.HasKey(ctx, apiKey); err != nil || has {
			return err
		}
		return createKey(ctx, tx, u, "settings", apiKey)
	})
	if weir.KindOf(err) == weir.Conflict {
		err = nil // another node was faster
	}
	return First{User: u}, false, err
}

func (a *Accounts) createFirst(ctx context.Context, apiKey weir.Secret) (First, error) {
	f := First{User: newUser(placeholder), Key: apiKey, LinkToken: weir.Secret(weir.NewToken())}
	f.User.Admin = true
	name := "settings"
	if apiKey == "" {
		f.Key, name = weir.NewAPIKey(), "first"
	}
	err := a.store.Tx(ctx, func(tx *store.Tx) error {
		if err := tx.CreateUser(ctx, &f.User); err != nil {
			return err
		}
		if err := createKey(ctx, tx, f.User, name, f.Key); err != nil {
			return err
		}
		return tx.CreatePasswordLink(ctx, f.LinkToken, f.User.ID, linkExpiry())
	})
	return f, err
}

func createKey(ctx context.Context, tx *store.Tx, u weir.User, name string, key weir.Secret) error {
	t, err := weir.NewAPIToken{Name: name}.Token(u.ID, u.DefaultProjectID, time.Now())
	if err != nil {
		return err
	}
	return tx.CreateToken(ctx, &t, key)
}

func isNotFound(err error) bool { return err != nil && weir.KindOf(err) == weir.NotFound }
