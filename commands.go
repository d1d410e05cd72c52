package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"weir/internal/account"
	"weir/internal/store"
	"weir/internal/weir"
)

// openStore opens the database for a command that runs beside the service.
func openStore(ctx context.Context, cfg *Config) (*store.Store, error) {
	if path, ok := strings.CutPrefix(cfg.Database.Reveal(), "sqlite:"); ok {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("there is no database at %s; start the service once, or name another folder with --data", path)
		}
	}
	secret, err := masterSecret(cfg, false)
	if err != nil {
		return nil, err
	}
	return store.Open(ctx, cfg.Database.Reveal(), store.Options{Secret: secret, MaxConns: 4})
}

// findUser returns the account with the address, or the first one.
func findUser(ctx context.Context, st *store.Store, email string) (weir.User, error) {
	if email == "" {
		return st.FirstUser(ctx)
	}
	u, err := st.UserByEmail(ctx, strings.ToLower(email))
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return u, fmt.Errorf("there is no account with the address %s; weir user list shows them", email)
	}
	return u, err
}

// Run is `weir key create`.
func (c KeyCreateCmd) Run(ctx context.Context, cfg *Config) error {
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
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
}

// Run is `weir key list`.
func (c KeyListCmd) Run(ctx context.Context, cfg *Config) error {
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	q := store.Query{Limit: store.MaxLimit, Order: "createdAt-false"}
	if c.User != "" {
		u, err := findUser(ctx, st, c.User)
		if err != nil {
			return err
		}
		q.UserID = u.ID
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tNAME\tACCOUNT\tCREATED\tLAST USED")
	emails := map[string]string{}
	err = pages(func() (string, error) {
		page, err := st.Tokens(ctx, q)
		for _, t := range page.Items {
			if emails[t.UserID] == "" {
				u, err := st.User(ctx, t.UserID)
				if err != nil {
					return "", err
				}
				emails[t.UserID] = u.Email
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", t.ID, t.Name, emails[t.UserID], day(t.CreatedAt), day(t.LastSeen))
		}
		q.Cursor = page.Next
		return page.Next, err
	})
	return errors.Join(err, table.Flush())
}

// Run is `weir key revoke`.
func (c KeyRevokeCmd) Run(ctx context.Context, cfg *Config) error {
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	err = st.Tx(ctx, func(tx *store.Tx) error { return tx.DeleteToken(ctx, c.ID) })
	if weir.KindOf(err) == weir.NotFound && err != nil {
		return fmt.Errorf("there is no key with the id %s; weir key list shows them", c.ID)
	}
	if err != nil {
		return err
	}
	return show(os.Stdout, "revoked %s\n", c.ID)
}

// openAccounts opens the database and what knows about people.
func openAccounts(ctx context.Context, cfg *Config) (*store.Store, *account.Accounts, error) {
	st, err := openStore(ctx, cfg)
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

// Run is `weir user create`.
func (c UserCreateCmd) Run(ctx context.Context, cfg *Config) error {
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

// Run is `weir user passwd`.
func (c UserPasswdCmd) Run(ctx context.Context, cfg *Config) error {
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

func printLink(ctx context.Context, cfg *Config, accounts *account.Accounts, u weir.User) error {
	link, err := accounts.NewLink(ctx, u.ID)
	if err != nil {
		return err
	}
	return show(os.Stdout, "Send this link to %s; it sets the password and works once:\n%s/set-password?token=%s\n", u.Email, commandBase(cfg), link.Reveal())
}

// Run is `weir user list`.
func (UserListCmd) Run(ctx context.Context, cfg *Config) error {
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "ID\tE-MAIL\tADMIN\tCREATED\tSTATE")
	q := store.Query{Limit: store.MaxLimit, Order: "createdAt-false"}
	err = pages(func() (string, error) {
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
			_, _ = fmt.Fprintf(table, "%s\t%s\t%t\t%s\t%s\n", u.ID, u.Email, u.Admin, day(u.CreatedAt), state)
		}
		q.Cursor = page.Next
		return page.Next, err
	})
	return errors.Join(err, table.Flush())
}

// pages calls next until there is no cursor.
func pages(next func() (cursor string, err error)) error {
	for {
		cursor, err := next()
		if err != nil || cursor == "" {
			return err
		}
	}
}

// Run is `weir backup`.
func (c BackupCmd) Run(ctx context.Context, cfg *Config) error {
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.Dir)
	}
	st, err := openStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	secret, err := os.ReadFile(cfg.SecretFile)
	if err != nil {
		return err
	}
	if err := writeDurably(filepath.Join(c.Dir, "secret"), secret); err != nil {
		return err
	}
	if !strings.HasPrefix(cfg.Database.Reveal(), "sqlite:") {
		return show(os.Stdout, "The master secret is in %s. Back up PostgreSQL with its own tools, for example:\n  pg_dump --format=custom --file=%s \"$WEIR_DATABASE\"\n",
			c.Dir, filepath.Join(c.Dir, "weir.dump"))
	}
	path := filepath.Join(c.Dir, "weir.db")
	if err := st.Backup(ctx, path); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return err
	}
	what := "The database and the master secret"
	media, ok := strings.CutPrefix(cfg.Storage.Reveal(), "file:")
	if ok {
		// After the database: what it speaks of is there, and what came later is not missed.
		if err := copyTree(ctx, filepath.Join(c.Dir, "media"), strings.TrimPrefix(media, "//")); err != nil {
			return err
		}
		what = "The database, the master secret and the media"
	}
	if err := show(os.Stdout, "%s are in %s. To go back: weir serve --data %s\n", what, c.Dir, c.Dir); err != nil || ok {
		return err
	}
	return show(os.Stdout, "The media is in a bucket: back it up with the tools of its service.\n")
}

// copyTree copies the files of a folder, as hard links where that can be: weir never
// changes a file of its media in place. Files that go away meanwhile were deleted, or
// not finished.
func copyTree(ctx context.Context, to, from string) error {
	err := filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != from:
			return fs.SkipDir // what is not finished
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !entry.Type().IsRegular() || os.Link(path, filepath.Join(to, rel)) == nil:
			return nil
		}
		return copyFile(filepath.Join(to, rel), path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// Run is `weir doctor`.
func (DoctorCmd) Run(ctx context.Context, cfg *Config) error {
	healthy, err := report(os.Stdout, examine(ctx, cfg, func(ctx context.Context) error {
		if path, ok := strings.CutPrefix(cfg.Database.Reveal(), "sqlite:"); ok {
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				return nil // first start makes it
			}
		}
		st, err := openStore(ctx, cfg)
		if err != nil {
			return err
		}
		defer st.Close()
		return st.Ping(ctx)
	}))
	if err == nil && !healthy {
		err = errors.New("something that weir needs is missing")
	}
	return err
}

// Run is `weir version`.
func (VersionCmd) Run() error { return show(os.Stdout, "%s\n", readVersion()) }

func show(w io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(w, format, args...)
	return err
}

// day writes a moment for a table.
func day(m weir.Millis) string {
	if m == 0 {
		return "never"
	}
	return m.Time().Format("2006-01-02 15:04")
}
