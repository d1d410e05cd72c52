package account

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"weir/internal/store"
	"weir/internal/weir"
)

// LinkLife is how long a set-password link is valid.
const LinkLife = 7 * 24 * time.Hour

func linkExpiry() weir.Millis { return weir.At(time.Now().Add(LinkLife)) }

// NewLink returns the token of a link that sets the password of a user once. Older links of the
// user stop working. The old password works until the link is used.
func (a *Accounts) NewLink(ctx context.Context, userID string) (weir.Secret, error) {
	token := weir.Secret(weir.NewToken())
	return token, a.store.Tx(ctx, func(tx *store.Tx) error {
		if _, err := tx.User(ctx, userID); err != nil {
			return err
		}
		return tx.CreatePasswordLink(ctx, token, userID, linkExpiry())
	})
}

// LinkPath returns the path and the query of the page where a link sets a password.
func LinkPath(token weir.Secret) string { return "/set-password?token=" + token.Reveal() }

// errLink is the response to an invalid link, or one of another user.
func errLink() error {
	return weir.Errorf(weir.Denied, "incorrect or expired user validation token")
}

// linkUser returns the user whose password a link sets.
func (a *Accounts) linkUser(ctx context.Context, token weir.Secret) (weir.User, error) {
	id, err := a.store.PasswordLink(ctx, token)
	if weir.IsNotFound(err) {
		return weir.User{}, errLink()
	}
	if err != nil {
		return weir.User{}, err
	}
	return a.store.User(ctx, id)
}

// SetPassword sets a password with the token of a one-time link, and ends all log-ins of the
// account. The e-mail address must be that of the account; the first account, which has none yet,
// takes it.
func (a *Accounts) SetPassword(ctx context.Context, linkToken weir.Secret, email, password string) (weir.User, error) {
	email, err := weir.CheckEmail(email)
	if err != nil {
		return weir.User{}, err
	}
	if err := checkNewPassword(password); err != nil {
		return weir.User{}, err
	}
	// Before the hash, which is expensive.
	if _, err := a.linkUser(ctx, linkToken); err != nil {
		return weir.User{}, err
	}
	hash, err := a.hasher.hash(ctx, password)
	if err != nil {
		return weir.User{}, err
	}
	var u weir.User
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		id, err := tx.UsePasswordLink(ctx, linkToken)
		if weir.IsNotFound(err) {
			return errLink()
		}
		if err != nil {
			return err
		}
		u, err = changePassword(ctx, tx, id, hash, func(u *weir.User) error {
			if u.Email == placeholder && email != placeholder {
				return takeEmail(ctx, tx, u, email)
			}
			if u.Email != email {
				return errLink()
			}
			return nil
		})
		return err
	})
	if err == nil {
		a.guesses.forget(accountKey(email))
	}
	return u, err
}

func takeEmail(ctx context.Context, tx *store.Tx, u *weir.User, email string) error {
	if err := tx.FreeEmail(ctx, email); err != nil {
		if weir.KindOf(err) == weir.Conflict && !errors.Is(err, store.ErrDeletedAccount) {
			return weir.Errorf(weir.Conflict, "another account has this e-mail address")
		}
		return err
	}
	u.Email, u.EmailValid = email, true
	return nil
}

// changePassword writes a new password and ends all log-ins.
func changePassword(ctx context.Context, tx *store.Tx, userID, hash string, check func(*weir.User) error) (weir.User, error) {
	u, err := tx.UpdateUser(ctx, userID, func(u *weir.User) error {
		if err := check(u); err != nil {
			return err
		}
		u.Password = hash
		return nil
	})
	if err != nil {
		return u, err
	}
	return u, tx.RevokeRefreshTokens(ctx, userID)
}

// ChangePassword sets a new password for a person at addr who knows the old one. It ends all
// log-ins of the account.
func (a *Accounts) ChangePassword(ctx context.Context, userID, old, password string, addr netip.Addr) (weir.User, error) {
	if err := checkNewPassword(password); err != nil {
		return weir.User{}, err
	}
	u, err := a.store.User(ctx, userID)
	if err != nil {
		return weir.User{}, err
	}
	if u, err = a.checkPassword(ctx, u.Email, old, addr); err != nil {
		return weir.User{}, err
	}
	hash, err := a.hasher.hash(ctx, password)
	if err != nil {
		return weir.User{}, err
	}
	checked := u.Password
	err = a.store.Tx(ctx, func(tx *store.Tx) error {
		u, err = changePassword(ctx, tx, userID, hash, func(u *weir.User) error {
			if u.Password != checked { // it was changed meanwhile
				return errLogIn()
			}
			return nil
		})
		return err
	})
	return u, err
}
