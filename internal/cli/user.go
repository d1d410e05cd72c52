package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"weir/internal/account"
	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

type userCmd struct {
	Create userCreateCmd `cmd:"" help:"Make an account and print its set-password link."`
	Passwd userPasswdCmd `cmd:"" help:"Print a one-time link that sets a new password."`
	List   userListCmd   `cmd:"" help:"List the accounts."`
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
		return printTable(ctx, "ID\tE-MAIL\tADMIN\tCREATED\tSTATE", "", st.Users, func(u weir.User) (string, error) {
			state := "active"
			switch {
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
	return show(os.Stdout, "Send this link to %s; it sets the password and works once:\n%s/set-password?token=%s\n", u.Email, cfg.LocalURL(0), link.Reveal())
}
