package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"weir/internal/config"
	"weir/internal/store"
	"weir/internal/weir"
)

type keyCmd struct {
	Create keyCreateCmd `cmd:"" help:"Make an API key and print it once."`
	List   keyListCmd   `cmd:"" help:"List the API keys of an account, without their values."`
	Revoke keyRevokeCmd `cmd:"" help:"Revoke an API key at once."`
}

type keyCreateCmd struct {
	Name string `arg:"" help:"What the key is for."`
	User string `placeholder:"EMAIL" help:"Account the key belongs to; default: the first account."`
}

func (c keyCreateCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		u, err := findUser(ctx, st, c.User)
		if err != nil {
			return err
		}
		key := weir.NewAPIKey()
		t := weir.Token{ID: weir.NewID(), Kind: "api-token", UserID: u.ID, ProjectID: u.DefaultProjectID, Name: c.Name, CreatedAt: weir.At(time.Now())}
		if err := st.Tx(ctx, func(tx *store.Tx) error { return tx.CreateToken(ctx, &t, key) }); err != nil {
			return err
		}
		return show(os.Stdout, "API key  %s  (shown only now)\nid       %s\n", key.Reveal(), t.ID)
	})
}

type keyListCmd struct {
	User string `placeholder:"EMAIL" help:"Account whose keys to list; default: all accounts."`
}

func (c keyListCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		userID := ""
		if c.User != "" {
			u, err := findUser(ctx, st, c.User)
			if err != nil {
				return err
			}
			userID = u.ID
		}
		emails := map[string]string{}
		return printTable(ctx, "ID\tNAME\tACCOUNT\tCREATED\tLAST USED", userID, st.Tokens, func(t weir.Token) (string, error) {
			if emails[t.UserID] == "" {
				u, err := st.User(ctx, t.UserID)
				if err != nil {
					return "", err
				}
				emails[t.UserID] = u.Email
			}
			return fmt.Sprintf("%s\t%s\t%s\t%s\t%s", t.ID, t.Name, emails[t.UserID], minute(t.CreatedAt), minute(t.LastSeen)), nil
		})
	})
}

type keyRevokeCmd struct {
	ID string `arg:"" help:"Id of the key, as weir key list shows it."`
}

func (c keyRevokeCmd) Run(ctx context.Context, cfg *config.Config) error {
	return withStore(ctx, cfg, func(st *store.Store) error {
		err := st.Tx(ctx, func(tx *store.Tx) error { return tx.DeleteToken(ctx, c.ID) })
		if weir.KindOf(err) == weir.NotFound && err != nil {
			return fmt.Errorf("there is no key with the id %s; weir key list shows them", c.ID)
		}
		if err != nil {
			return err
		}
		return show(os.Stdout, "revoked %s\n", c.ID)
	})
}
