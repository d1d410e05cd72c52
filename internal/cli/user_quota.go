package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

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

func joined[T ~string](all []T) string {
	var names []string
	for _, name := range all {
		names = append(names, string(name))
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
