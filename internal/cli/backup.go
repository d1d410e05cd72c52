package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"weir/internal/config"
	"weir/internal/server"
)

type backupCmd struct {
	Dir string `arg:"" help:"Folder to write to; it must be empty or not exist."`
}

func (c backupCmd) Run(ctx context.Context, cfg *config.Config) error {
	if entries, err := os.ReadDir(c.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("%s is not empty", c.Dir)
	}
	st, err := server.OpenStore(ctx, cfg)
	if err != nil {
		return err
	}
	defer st.Close()
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(c.Dir, "secret"), cfg.SecretFile); err != nil {
		return err
	}
	if _, sqlite := cfg.SQLite(); !sqlite {
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
	media, ok := cfg.MediaDir()
	if ok {
		// After the database, so that all files that it refers to are copied.
		if err := copyTree(ctx, filepath.Join(c.Dir, "media"), media); err != nil {
			return err
		}
		what = "The database, the master secret and the media"
	}
	if err := show(os.Stdout, "%s are in %s. To go back: weir serve --data %s\n", what, c.Dir, c.Dir); err != nil || ok {
		return err
	}
	return show(os.Stdout, "The media is in a bucket: back it up with the tools of its service.\n")
}

// copyTree copies the files of a folder. It makes hard links where it can: weir never changes a media
// file in place. Files may be deleted meanwhile.
func copyTree(ctx context.Context, to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
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
			return fs.SkipDir // unfinished files
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		case !entry.Type().IsRegular() || os.Link(path, filepath.Join(to, rel)) == nil:
			return nil
		}
		if err := copyFile(filepath.Join(to, rel), path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
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
