package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
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
	Quota  userQuotaCmd  `cmd:"" help:"Show or change how much an account may have."`
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

type userQuotaCmd struct {
	Email   string            `arg:"" help:"E-mail address of the account."`
	Changes map[string]string `arg:"" optional:"" placeholder:"RESOURCE=LIMIT" help:"New limits, such as streams=500 storage=2TB; none = no limit, default = that of every account."`
}

func (c userQuotaCmd) Run(ctx context.Context, cfg *config.Config) error {
	change, err := c.parse()
	if err != nil {
		return err
	}
	return withStore(ctx, cfg, func(st *store.Store) error {
		u, err := findUser(ctx, st, c.Email)
		if err != nil {
			return err
		}
		if err := st.Tx(ctx, func(tx *store.Tx) error {
			u, err = tx.UpdateUser(ctx, u.ID, change)
			return err
		}); err != nil {
			return err
		}
		return printQuota(ctx, st, u)
	})
}

// parse returns what changes the quota of a user.
func (c userQuotaCmd) parse() (func(*weir.User) error, error) {
	limits, reset := weir.Quota{}, []weir.Resource{}
	for name, value := range c.Changes {
		r := weir.Resource(name)
		if !slices.Contains(weir.Resources(), r) {
			return nil, fmt.Errorf("%q has no quota; these have one: %s", name, joined(weir.Resources()))
		}
		switch value {
		case "none":
			limits[r] = nil
		case "default":
			reset = append(reset, r)
		default:
			limit, err := parseLimit(r, value)
			if err != nil {
				return nil, err
			}
			limits[r] = &limit
		}
	}
	return func(u *weir.User) error {
		u.SetQuota(limits)
		for _, r := range reset {
			delete(u.Quota, r)
		}
		return nil
	}, nil
}

func parseLimit(r weir.Resource, value string) (int64, error) {
	if r == weir.Storage {
		return config.ParseSize(value)
	}
	limit, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%s=%s: the limit must be a whole number, none or default", r, value)
	}
	return int64(limit), nil
}

func joined(resources []weir.Resource) string {
	var names []string
	for _, r := range resources {
		names = append(names, string(r))
	}
	return strings.Join(names, ", ")
}

// printQuota prints how much an account has of each resource, and how much it may have.
func printQuota(ctx context.Context, st *store.Store, u weir.User) error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, "RESOURCE\tUSED\tLIMIT"); err != nil {
		return err
	}
	for _, r := range weir.Resources() {
		used, err := st.Used(ctx, u.ID, r)
		if err != nil {
			return err
		}
		amount := func(n int64) string {
			if r == weir.Storage {
				return fmt.Sprintf("%.1f GB", float64(n)/1e9)
			}
			return strconv.FormatInt(n, 10)
		}
		limit := "none"
		if n, limited := u.Limit(r); limited {
			limit = amount(n)
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\t%s\n", r, amount(used), limit); err != nil {
			return err
		}
	}
	return w.Flush()
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
