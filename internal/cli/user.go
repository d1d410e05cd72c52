package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"weir/internal/account"
	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

type userCmd struct {
	Create  userCreateCmd  `cmd:"" settings:"store,address" help:"Make an account and print its set-password link."`
	Passwd  userPasswdCmd  `cmd:"" settings:"store,address" help:"Print a one-time link that sets a new password."`
	List    userListCmd    `cmd:"" settings:"store,delete-grace" help:"List the accounts."`
	Delete  userDeleteCmd  `cmd:"" settings:"store,address,delete-grace" help:"Delete an account; what it has is removed after --delete-grace."`
	Quota   userQuotaCmd   `cmd:"" help:"Show or change how much an account may have."`
	Restore userRestoreCmd `cmd:"" help:"Bring a deleted account back before it is removed."`
}

type userCreateCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

func (c userCreateCmd) Run(ctx context.Context, cfg *config.Config) error {
	email, err := weir.CheckEmail(c.Email)
	if err != nil {
		return err
	}
	return withStore(ctx, cfg, func(st *store.Store) error {
		u := weir.User{ID: weir.NewID(), Kind: "user", Email: email, EmailValid: true, CreatedAt: weir.At(time.Now())}
		if err := st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateUser(ctx, &u) }); err != nil {
			return err
		}
		return printLink(ctx, cfg, st, u)
	})
}

type userPasswdCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

func (c userPasswdCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		u, err := findUser(ctx, st, c.Email)
		if err != nil {
			return err
		}
		return printLink(ctx, cfg, st, u)
	})
}

type userListCmd struct{}

func (userListCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		users := func(ctx context.Context, q store.Query) (store.Page[weir.User], error) {
			q.Deleted = true
			return st.Users(ctx, q)
		}
		return printTable(ctx, "ID\tE-MAIL\tADMIN\tCREATED\tSTATE", "", users, func(u weir.User) (string, error) {
			state := "active"
			switch {
			case u.Purging:
				state = "deleted, is being removed"
			case u.Deleted:
				state = "deleted, is removed after " + removal(cfg, u)
			case u.Suspended:
				state = "suspended"
			case u.Disabled:
				state = "disabled"
			case u.Password == "":
				state = "no password yet"
			}
			return fmt.Sprintf("%s\t%s\t%t\t%s\t%s", u.ID, u.Email, u.Admin, minute(u.CreatedAt), state), nil
		})
	})
}

// removal returns when a deleted account is removed.
func removal(cfg *config.Config, u weir.User) string {
	return minute(weir.At(u.DeletedAt.Time().Add(cfg.DeleteGrace)))
}

type userDeleteCmd struct {
	Account string `arg:"" name:"email" help:"E-mail address of the account, or an id that weir doctor shows."`
}

func (c userDeleteCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		now := time.Now()
		var u weir.User
		err := st.Tx(ctx, func(tx *store.Tx) (err error) {
			if !strings.Contains(c.Account, "@") {
				if u, err = tx.DeleteOrphan(ctx, c.Account, now); weir.IsNotFound(err) {
					return fmt.Errorf("%s is neither an e-mail address nor an id that weir doctor shows", c.Account)
				}
				return err
			}
			if u, err = findUser(ctx, tx, c.Account); err != nil {
				return err
			}
			u, err = tx.DeleteUser(ctx, u.ID, cfg.EventBase(), now)
			return err
		})
		if err != nil {
			return err
		}
		return show(os.Stdout, "%s is deleted. What it has is removed after %s; until then, weir user restore %s brings it back.\n", u.Email, removal(cfg, u), u.Email)
	})
}

type userRestoreCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

func (c userRestoreCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		if err := st.Tx(ctx, func(tx *store.Tx) error {
			u, err := tx.DeletedUser(ctx, strings.ToLower(c.Email))
			if weir.IsNotFound(err) {
				return fmt.Errorf("there is no deleted account with the address %s; weir user list shows them", c.Email)
			}
			if err != nil {
				return err
			}
			return tx.RestoreUser(ctx, u.ID, time.Now())
		}); err != nil {
			return err
		}
		return show(os.Stdout, "%s is restored. Its keys work again; people have to log in again.\n", c.Email)
	})
}

// printLink prints a link that sets the password of an account.
func printLink(ctx context.Context, cfg *config.Config, st *store.Store, u weir.User) error {
	accounts, err := account.New(ctx, st, account.Options{PublicURL: cfg.PublicURL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	link, err := accounts.NewLink(ctx, u.ID)
	if err != nil {
		return err
	}
	return show(os.Stdout, "Send this link to %s; it sets the password and works once:\n%s%s\n", u.Email, cfg.LocalURL(0), account.LinkPath(link))
}
