// Package account has the accounts of people: registration, log-in, and the pages for both and for
// the password.
//
// There are three kinds of credentials. A program sends an API key, which the store checks. A
// program that acts for a person logs in (login.go) and gets an access token, a JWT that is valid
// for a day, and a refresh token that is valid for 30 days. A browser logs in on the pages
// (pages.go) and gets a cookie, which only the pages accept, and no path under /api. A new password
// ends all log-ins of its account: access tokens have a stamp of the password in them, and refresh
// tokens and sessions are rows that are deleted with the old password.
//
// Passwords are stored as hashes (password.go), and guessing is slowed down (throttle.go). weir
// sends no mail, so people set their first password, or a forgotten one, with a one-time link that
// the operator gives them (link.go).
package account

import (
	"context"
	"log/slog"
	"net/netip"
	"runtime"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// Options are the settings of accounts.
type Options struct {
	Signup         bool           // anybody may register
	TrustedProxies []netip.Prefix // whose X-Forwarded-* headers count
	PublicURL      string         // URL at which browsers reach the pages; "" = taken from the request
	Log            *slog.Logger
}

// Accounts manages accounts and log-ins.
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

// placeholder is the e-mail address of the first account until its owner sets the real one,
// together with the password.
const placeholder = "admin@localhost"

// New returns the accounts of a store. The first node creates the key that signs log-ins.
func New(ctx context.Context, st *store.Store, opt Options) (*Accounts, error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	key, err := st.NamedKey(ctx, "login")
	if err != nil {
		return nil, err
	}
	a := &Accounts{
		opt: opt, store: st, log: opt.Log, key: key,
		// Half of the cores, so that many log-ins do not block other requests.
		hasher:  newHasher(max(1, runtime.GOMAXPROCS(0)/2)),
		guesses: newThrottle(),
		signups: newThrottle(),
		now:     time.Now,
	}
	a.pages, err = newPages(a)
	return a, err
}

// NewUser is the body that registers an account.
type NewUser struct {
	Email        string `json:"email"`
	Password     string `json:"password"`
	FirstName    string `json:"firstName"`
	LastName     string `json:"lastName"`
	Organization string `json:"organization"`
	Phone        string `json:"phone"`
}

// Register creates an account for a person at addr, if the settings allow sign-up.
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
	u, err := a.user(ctx, email, n)
	if err != nil {
		return weir.User{}, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		_, err := tx.FirstUser(ctx)
		u.Admin = weir.IsNotFound(err)
		if err != nil && !u.Admin {
			return err
		}
		return tx.CreateUser(ctx, &u)
	})
	return u, err
}

// Create creates an account for somebody else, also when sign-up is off. It may be without a
// password; NewLink then makes the link that sets one.
func (a *Accounts) Create(ctx context.Context, n NewUser) (weir.User, error) {
	email, err := weir.CheckEmail(n.Email)
	if err != nil {
		return weir.User{}, err
	}
	if n.Password != "" {
		if err := checkNewPassword(n.Password); err != nil {
			return weir.User{}, err
		}
	}
	u, err := a.user(ctx, email, n)
	if err != nil {
		return weir.User{}, err
	}
	err = a.store.Tx(ctx, func(tx *store.Tx) error { return tx.CreateUser(ctx, &u) })
	return u, err
}

// user returns the user that a body describes.
func (a *Accounts) user(ctx context.Context, email string, n NewUser) (weir.User, error) {
	u := newUser(email)
	u.FirstName, u.LastName, u.Organization, u.Phone = n.FirstName, n.LastName, n.Organization, n.Phone
	if n.Password == "" {
		return u, nil
	}
	var err error
	u.Password, err = a.hasher.hash(ctx, n.Password)
	return u, err
}

func newUser(email string) weir.User {
	return weir.User{ID: weir.NewID(), Kind: "user", Email: email, EmailValid: true, CreatedAt: weir.At(time.Now())}
}

// First is the account that the first start creates.
type First struct {
	User      weir.User
	Key       weir.Secret // an API key of the account
	LinkToken weir.Secret // of the one-time link that sets its password
}

// CreateFirst creates the first account, that of an admin, unless there is one. It gets the API key
// that the operator chose, or a new one. An account that exists gets the operator's key if no
// account has it. Key and LinkToken are set only if the account was created.
func (a *Accounts) CreateFirst(ctx context.Context, apiKey weir.Secret) (first First, created bool, err error) {
	u, err := a.store.FirstUser(ctx)
	if weir.IsNotFound(err) {
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
