package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"log/slog"

	"github.com/pressly/goose/v3"
)

//go:embed schema/*.sql
var schema embed.FS

// errDuplicate is the error of both engines for a second row with the same key.
var errDuplicate = errors.New("the row already exists")

// migrate migrates our own tables. River has its own migrations, which run before, because ours may
// change jobs.
func migrate(ctx context.Context, dialect goose.Dialect, db *sql.DB) error {
	files, err := fs.Sub(schema, "schema")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files)
	if err != nil {
		return err
	}
	current, newest, err := p.GetVersions(ctx)
	if err != nil {
		return err
	}
	if current > newest {
		return errors.New("this database was made by a newer weir; run that one, or restore a backup")
	}
	_, err = p.Up(ctx)
	return err
}

// quiet returns a logger for libraries. It logs only warnings and errors, as warnings: libraries
// retry by themselves, and what fails for good is an error of weir, which logs it.
func quiet(log *slog.Logger) *slog.Logger { return slog.New(warnOnly{log.Handler()}) }

type warnOnly struct{ slog.Handler }

func (h warnOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

func (h warnOnly) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelWarn
	return h.Handler.Handle(ctx, r)
}

func (h warnOnly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnOnly{h.Handler.WithAttrs(attrs)}
}

func (h warnOnly) WithGroup(name string) slog.Handler { return warnOnly{h.Handler.WithGroup(name)} }
