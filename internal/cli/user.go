package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"weir/internal/account"
	"weir/internal/config"
	"weir/internal/server"
	"weir/internal/store"
	"weir/internal/weir"
)

// userCmd is `weir user`.
type userCmd struct {
	Create userCreateCmd `cmd:"" help:"Make an account and print its set-password link."`
	Passwd userPasswdCmd `cmd:"" help:"Print a one-time link that sets a new password."`
	List   userListCmd   `cmd:"" help:"List the accounts."`
}

// userCreateCmd is `weir user create EMAIL`.
type userCreateCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

// Run makes an account.
func (c userCreateCmd) Run(ctx context.Context, cfg *config.Config) error {
	st, accounts, err := openAccounts(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	email, err := weir.CheckEmail(c.Email)
	if err != nil {
		return err
	}
	u := weir.User{ID: weir.NewID(), Kind: "user", Email: email, EmailValid: true, CreatedAt: weir.At(time.Now())}
	if err := st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateUser(ctx, &u) }); err != nil {
		return err
	}
	return printLink(ctx, cfg, accounts, u)
}

// userPasswdCmd is `weir user passwd EMAIL`.
type userPasswdCmd struct {
	Email string `arg:"" help:"E-mail address of the account."`
}

// Run prints a link that sets a new password.
func (c userPasswdCmd) Run(ctx context.Context, cfg *config.Config) error {
	st, accounts, err := openAccounts(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	u, err := findUser(ctx, st, c.Email)
	if err != nil {
		return err
	}
	return printLink(ctx, cfg, accounts, u)
}

// userListCmd is `weir user list`.
type userListCmd struct{}

// Run lists the accounts.
func (userListCmd) Run(ctx context.Context, cfg *config.Config) error {
	st, err := server.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tE-MAIL\tADMIN\tCREATED\tSTATE")
	q := store.Query{Limit: store.MaxLimit, Order: "createdAt-false"}
	err = eachPage(func() (string, error) {
		page, err := st.Users(ctx, q)
		for _, u := range page.Items {
			state := "active"
			switch {
			case u.Suspended:
				state = "suspended"
			case u.Disabled:
				state = "disabled"
			case u.Password == "":
				state = "no password yet"
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%t\t%s\t%s\n", u.ID, u.Email, u.Admin, minute(u.CreatedAt), state)
		}
		q.Cursor = page.Next
		return page.Next, err
	})
	return errors.Join(err, table.Flush())
}

// openAccounts opens the database and the accounts in it.
func openAccounts(ctx context.Context, cfg *config.Config) (*store.Store, *account.Accounts, error) {
	st, err := server.OpenStore(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	a, err := account.New(ctx, st, account.Options{PublicURL: cfg.PublicURL, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		st.Close()
		return nil, nil, err
	}
	return st, a, nil
}

// printLink prints a link that sets the password of an account.
func printLink(ctx context.Context, cfg *config.Config, accounts *account.Accounts, u weir.User) error {
	link, err := accounts.NewLink(ctx, u.ID)
	if err != nil {
		return err
	}
	return show(os.Stdout, "Send this link to %s; it sets the password and works once:\n%s/set-password?token=%s\n", u.Email, cfg.LocalURL(0), link.Reveal())
}
